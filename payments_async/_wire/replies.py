"""HTTP status and envelope to payload, or to the right error. What may have been carried out is decided here."""

from __future__ import annotations

import email.utils
import http
import re
from datetime import UTC, datetime
from typing import Any, TypeVar

from payments_async._dialect import Dialect
from payments_async._errors import (
    AuthenticationFailed,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    Rejected,
    ServiceFault,
    UnreadableReply,
)
from payments_async._masking import Secrets, redact
from payments_async._wire.call import Call, Refused, Reply, Unreadable
from payments_async._wire.codec import decode
from payments_async._wire.readers import failure_facts, named_transaction, speaks_against_refusal

__all__ = ["lost_reply", "never_left", "read_reply", "retry_after", "seconds_ahead", "told_status"]

T = TypeVar("T")
_NONE = Secrets()

# Answers of a service that read the order and declined it. Every other status proves nothing.
_REFUSALS = frozenset({400, 403, 404, 405, 406, *range(410, 418), 421, 422, 426, 431})
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)  # a fraction is not allowed, and seen all the same
_LONGEST_WORDS = 500
_NAMES_TRANSACTION = re.compile(rb"(?i)transaction[_-]?id")  # in what is no readable JSON, such as half of it
_MOST_WORDS_READ = 10_000


def read_reply(call: Call[T], reply: Reply, dialect: Dialect, secrets: Secrets = _NONE) -> T:
    """The result of a call, or the error that says what to do next.

    Args:
        secrets: Hidden in the words of an error, as the personal texts of the call are.

    Raises:
        NotSent, OutcomeUnknown, Rejected, AuthenticationFailed: For a call that must be carried out only once.
        Rejected, AuthenticationFailed, ServiceFault, UnreadableReply: For any other.
    """
    if 200 <= reply.status < 300:
        if call.read_quickly is not None and (result := call.read_quickly(reply.body)) is not None:
            return result
        try:
            return call.read(decode(reply.body))
        except Refused as error:
            failure = _refusal(call, reply, dialect, secrets, error.message, code=error.code)
        except Unreadable as error:
            shapeless = OutcomeUnknown if call.once else UnreadableReply
            named = error.transaction_id
            failure = _failure(shapeless, call, reply, secrets, error.message, code=error.code, transaction_id=named)
    else:
        failure = _refusal(call, reply, dialect, secrets)
    raise failure  # here, so that the service's words as they came do not hang on as its context


def never_left(call: Call[Any], why: str) -> PaymentsError:
    """The error of a call of which no byte left."""
    kind = NotSent if call.once else ServiceFault
    return kind(redact(f"{call.label}: {why}"), request_id=call.request_id)


def lost_reply(call: Call[Any], why: str) -> PaymentsError:
    """The error of a call that may have arrived and whose answer did not."""
    kind = OutcomeUnknown if call.once else ServiceFault
    return kind(redact(f"{call.label}: {why}"), request_id=call.request_id)


def retry_after(text: str | None, now: float) -> float | None:
    """Seconds to wait by a ``Retry-After`` header in either of its forms, or ``None``.

    Args:
        text: The header.
        now: Unix seconds.
    """
    if text is None:
        return None
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    ahead = seconds_ahead(text, now)
    return None if ahead is None else max(0.0, ahead)


def seconds_ahead(text: str, now: float) -> float | None:
    """By how much the moment in a header is later than now, or ``None`` where it is no moment.

    Args:
        now: Unix seconds.
    """
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime.fromtimestamp(now, UTC)).total_seconds()


def told_status(error: PaymentsError) -> int | None:
    """The HTTP status of a failed exchange: that of the answer, or one that a good answer tells as its code."""
    if error.status is not None and error.status < 300 and error.code is not None and _is_told(error.code):
        return error.code
    return error.status


def _is_told(code: int) -> bool:
    """Whether a code of an envelope is an HTTP status that says no."""
    return 400 <= code < 600


def _refusal(
    call: Call[Any],
    reply: Reply,
    dialect: Dialect,
    secrets: Secrets,
    message: str | None = None,
    *,
    code: int | None = None,
) -> PaymentsError:
    """The error of an answer whose status or envelope says no; of an order, only where nothing speaks against it."""
    status = reply.status
    if status < 300:  # then it is the code that says no, in HTTP's words or in its own
        status = code if code is not None and _is_told(code) else 400
    if not call.once:
        return _failure(_repeated(status), call, reply, secrets, message, code=code)
    kind, transaction_id = _once(status, dialect), None
    try:
        value = decode(reply.body)
    except Unreadable:
        against = _broken_speaks_against(reply.body)
    else:
        transaction_id = named_transaction(value)
        against = speaks_against_refusal(value, call.request_id, is_read=kind is Rejected)
    if against is not None and kind is not OutcomeUnknown:
        said = _said(reply)[0] or _reason(reply.status)
        kind, message = OutcomeUnknown, f"a refusal that cannot be believed, for {against}: {said}"
    return _failure(kind, call, reply, secrets, message, code=code, transaction_id=transaction_id)


def _broken_speaks_against(body: bytes) -> str | None:
    """Why what is no JSON proves no refusal: it may have been an acceptance before it was cut off, or packed."""
    if _NAMES_TRANSACTION.search(body):
        return "it seems to name a transaction"
    return "it is cut off or garbled" if body.lstrip()[:1] in (b"{", b"[") or b"\0" in body else None


def _once(status: int, dialect: Dialect) -> type[PaymentsError]:
    if status in dialect.turned_away_unread:
        return AuthenticationFailed if status == 401 else NotSent
    return Rejected if status in _REFUSALS else OutcomeUnknown


def _repeated(status: int) -> type[PaymentsError]:
    if status == 401:
        return AuthenticationFailed
    return Rejected if 400 <= status < 500 and status not in (407, 408, 409, 425, 429) else ServiceFault


def _reason(status: int) -> str:
    if 300 <= status < 400:
        return "the answer is a redirect, which is never followed; check the base address"
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "an undocumented HTTP status"


def _failure(
    kind: type[PaymentsError],
    call: Call[Any],
    reply: Reply,
    secrets: Secrets,
    message: str | None = None,
    *,
    code: int | None = None,
    transaction_id: str | None = None,
) -> PaymentsError:
    said, said_code, correlation_id = _said(reply)
    message = message or said or _reason(reply.status)
    if kind is Rejected and call.once and call.sent_before:
        # A refusal of a repeated order may mean "already have it": it says nothing of the earlier attempt.
        kind, message = OutcomeUnknown, f"refused when sent again, which proves nothing: {message}"
    words = redact(message[:_MOST_WORDS_READ], (*secrets.texts(), *call.private()))
    return kind(
        f"{redact(call.label)}: {words[:_LONGEST_WORDS]}",
        request_id=call.request_id,
        status=reply.status,
        code=said_code if code is None else code,
        correlation_id=correlation_id,
        transaction_id=transaction_id,
        retry_after=reply.retry_after,
    )


def _said(reply: Reply) -> tuple[str | None, int | None, str | None]:
    try:
        return failure_facts(decode(reply.body))
    except Unreadable:
        return None, None, None

"""What the service answered, read: to a result, or to the error that says what to do next."""

from __future__ import annotations

import email.utils
import http
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from payments_async._values.errors import (
    AuthenticationFailed,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    Rejected,
    ServiceFault,
    UnreadableReply,
)
from payments_async._values.frozen import field, frozen
from payments_async._values.masking import Secret, Secrets, redact
from payments_async._wire.call import Call, Refused, Reply, Unreadable
from payments_async._wire.codec import decode, fold, read_code, read_int, read_record, read_text, read_timestamp
from payments_async._wire.dialect import Dialect
from payments_async._wire.models import Acceptance, Page, TransactionStatus, Validation

T = TypeVar("T")
_NONE = Secrets()

# Answers of a service that read the order and declined it. Every other status proves nothing.
_REFUSALS = frozenset({400, 403, 404, 405, 406, *range(410, 418), 421, 422, 426, 431})
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)  # a fraction is not allowed, and seen all the same
_LONGEST_WORDS = 500
_NAMES_TRANSACTION = re.compile(rb"(?i)transaction[_-]?id")  # in what is not readable JSON, such as half of it
_MOST_WORDS_READ = 10_000
# An id made of these alone is an empty one: the services' frameworks write an unset id as zeros.
_NOTHING = "0-{} \t"
_SPEAKS_TLS = "the base address speaks TLS: begin it with https://"
_NOT_TLS = (b"plain http request was sent to https port", b"speaking plain http to", b"http request to an https server")
_WORDS_WITHIN = 2_000  # bytes
_MOST_LOOKED_AT = 10_000  # members of an answer that are searched for a transaction
_TAKEN = frozenset({TransactionStatus.ENQUEUED, TransactionStatus.PROCESSING, TransactionStatus.SUCCESSFUL})
_YES = frozenset({"OK", "ACCEPTED", "RECEIVED", "CREATED", "SUBMITTED", "COMPLETE", "COMPLETED", "DONE"})
# Words of a refusal that is none: whoever believed it would pay again under another request id.
_HAS_IT = re.compile(
    r"\bduplicate|\bunique\b|\balready\b.{0,20}\b(?:exist|us|process|receiv|submit|sent|paid|complet|post|register|tak|accept)",
    re.IGNORECASE | re.DOTALL,
)
_GOES_ON = re.compile(
    r"\btime[sd]?[ -]?out|\bbeing processed|\bin progress|\bpending\b|\bqueued\b|\b(?:was|been) received\b",
    re.IGNORECASE,
)
_NO = frozenset({"ERROR", "FAIL", "FAILED", "FAILURE", "REJECTED"})
_PLAIN_STATUSES = {str(status): status for status in TransactionStatus}
_ACCEPTANCE = {
    "requestId": "request_id",
    "batchId": "batch_id",
    "transactionId": "transaction_id",
    "status": "status",
    "message": "message",
    "createdOn": "created_on",
}
_ACCEPTANCE_FOLDED = {fold(name): field for name, field in _ACCEPTANCE.items()} | {"clientreferenceid": "request_id"}


class _Envelope(NamedTuple):
    """The common response envelope, and the card endpoints' with ``success`` in place of ``code``."""

    code: int | None
    success: bool | None
    message: str | None
    data: Any


@frozen
class Login:
    """What a login gave (section "Authentication")."""

    token: Secret = field(repr=False)
    refresh_token: Secret | None = field(default=None, repr=False)


class _Documented(msgspec.Struct, forbid_unknown_fields=True):
    """The data of an acceptance, exactly as documented."""

    requestId: str  # noqa: N815 - the service's own spelling
    batchId: str  # noqa: N815
    transactionId: str  # noqa: N815
    status: str
    message: str
    createdOn: str  # noqa: N815


class _DocumentedAcceptance(msgspec.Struct):
    """An acceptance exactly as documented."""

    code: Literal[0]
    data: _Documented
    status: Literal["success"] = "success"
    correlationId: str | None = None  # noqa: N815
    success: None = None  # it is not documented here: whatever it says is weighed by the slower reader


_decode_documented = msgspec.json.Decoder(_DocumentedAcceptance).decode


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
        reply.is_unusual = True
        try:
            return call.read(decode(reply.body))
        except Refused as error:
            failure = _refusal(call, reply, dialect, secrets, error.message, code=error.code)
        except Unreadable as error:
            shapeless = OutcomeUnknown if call.once else UnreadableReply
            named = error.transaction_id
            failure = _failure(shapeless, call, reply, secrets, error.message, code=error.code, transaction_id=named)
    else:
        reply.is_unusual = True
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
    """By how much the moment in a header is later than now, or ``None`` where it is not a moment.

    Args:
        now: Unix seconds.
    """
    moment = _moment_in(text)
    return None if moment is None else (moment - datetime.fromtimestamp(now, UTC)).total_seconds()


@lru_cache(maxsize=8)  # the answers of one second have the same, and each commit asks for that of the last answer
def _moment_in(text: str) -> datetime | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # of a number that no clock has
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def told_status(error: PaymentsError) -> int | None:
    """The HTTP status of a failed exchange: that of the answer, or one that a good answer tells as its code."""
    if error.status is not None and 200 <= error.status < 300 and error.code is not None and _is_told(error.code):
        return error.code
    return error.status


def correlation_id_of(reply: Reply) -> str | None:
    """The service's own reference for an exchange, where its answer names one."""
    return _said(reply)[2]


def read_plain_acceptance(body: bytes, *, request_id: str, timezone: tzinfo) -> Acceptance | None:
    """The acceptance exactly as documented, which is the usual case, quickly; ``None`` when anything differs."""
    try:
        answer = _decode_documented(body)
        data = answer.data
        moment = read_timestamp(data.createdOn, timezone)
    except (msgspec.DecodeError, ValueError, TypeError, ArithmeticError, RecursionError):
        return None
    status = _PLAIN_STATUSES.get(data.status)
    named = data.transactionId
    if status is None or data.requestId != request_id or not named.strip(_NOTHING) or named != named.strip():
        return None
    return Acceptance(
        request_id=request_id,
        transaction_id=data.transactionId,
        batch_id=data.batchId or None,
        status=status,
        message=data.message or None,
        created_on=moment,
        correlation_id=answer.correlationId or None,
    )


def read_acceptance(value: Any, *, request_id: str, timezone: tzinfo) -> Acceptance:
    """The service's "queued" in any spelling (section "Transaction acceptance response").

    Raises:
        Refused: When the envelope has an error code, and nothing in it speaks against a refusal.
        Unreadable: When it is anything but an acceptance of this request.
    """
    named = _named_transaction(value)
    value = _folded(value)
    data = value.get("data")
    data = data if isinstance(data, dict) else {}
    known, extra = _acceptance_members(data, timezone)
    transaction = known["transaction_id"]
    try:
        code = read_code(value.get("code"))
    except Unreadable as error:
        raise Unreadable(error.message, transaction_id=named) from None
    if code is not None and code != 0:
        raise Refused(_message(value), code=code)
    echo = known["request_id"]
    if transaction is None:
        raise Unreadable("the answer names no transaction where it should", transaction_id=named)
    if echo != request_id and (echo is not None or code is None):
        raise Unreadable("the answer does not belong to this request", transaction_id=transaction)
    if _flag(value.get("success")) is False or _word(value.get("status")) in _NO:
        raise Unreadable(f"it says no beside a transaction: {_message(value)}", code=code, transaction_id=transaction)
    known["request_id"] = request_id
    return Acceptance(**known, correlation_id=_optional(value, "correlationid"), extra=extra)


def reads(kind: type[T], timezone: tzinfo) -> Callable[[Any], T]:
    """A reader of one record in an envelope."""
    return partial(_read_one, kind=kind, timezone=timezone)


def reads_page(kind: type[T], timezone: tzinfo) -> Callable[[Any], Page[T]]:
    """A reader of a paged collection in an envelope (section "Paged collection")."""
    return partial(_read_page, kind=kind, timezone=timezone)


def read_validation(value: Any) -> Validation:
    """The service's opinion (section 11). A "no" is an answer, not an error; no token, or no time, is not an opinion.

    Raises:
        Refused: When its code is one of HTTP's for that.
    """
    envelope = _envelope(value)
    if (
        envelope.code is not None
        and not envelope.success
        and (envelope.code in (401, 429) or 500 <= envelope.code < 600)
    ):
        raise Refused(envelope.message or "refused without words", code=envelope.code)
    if envelope.success is not None:
        ok = envelope.success
    elif envelope.code is not None:
        ok = envelope.code == 0
    else:
        raise Unreadable("the validation says neither success nor code")
    extra = {key: item for key, item in value.items() if fold(key) not in ("success", "message", "data")}
    return Validation(ok=ok, message=envelope.message, data=envelope.data, extra=extra)


def read_login(value: Any) -> Login:
    """Token and refresh token, at the top or under ``data``, in any spelling.

    Raises:
        Refused: When it says that it did not succeed.
        Unreadable: When there is no token.
    """
    folded = _folded(value)
    inner = _folded(folded["data"]) if isinstance(folded.get("data"), dict) else {}
    token = inner.get("token") or folded.get("token")
    if folded.get("success") is False or inner.get("success") is False or (not token and folded.get("success") == 0):
        raise Refused(_message(folded), code=_code_or_none(folded))
    if not token or not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        code = _code_or_none(folded)
        if code:
            raise Refused(_message(folded), code=code)
        raise Unreadable("the login answer holds no token")
    refresh = inner.get("refreshtoken") or folded.get("refreshtoken")
    return Login(Secret(token), Secret(refresh) if isinstance(refresh, str) else None)


def read_anything(value: Any) -> Any:
    """The decoded JSON as it is."""
    return value


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
    if 200 <= status < 300:  # then it is the code that says no, in HTTP's words or in its own
        status = code if code is not None and _is_told(code) else 400
    if not call.once:
        kind = ServiceFault if _wants_tls(reply) else _repeated(status)
        return _failure(kind, call, reply, secrets, message, code=code)
    kind, transaction_id = _once(status, dialect), None
    try:
        value = decode(reply.body)
    except Unreadable:
        against = _broken_speaks_against(reply.body)
    else:
        transaction_id = _named_transaction(value)
        against = _speaks_against_refusal(value, call.request_id, is_read=kind is Rejected)
    if against is not None and kind is not OutcomeUnknown:
        said = _said(reply)[0] or _reason(reply.status)
        kind, message = OutcomeUnknown, f"a refusal that cannot be believed, for {against}: {said}"
    return _failure(kind, call, reply, secrets, message, code=code, transaction_id=transaction_id)


def _broken_speaks_against(body: bytes) -> str | None:
    """Why what is not JSON proves no refusal: it may have been an acceptance before it was cut off, or packed."""
    if _NAMES_TRANSACTION.search(body):
        return "it seems to name a transaction"
    return "it is cut off or garbled" if body.lstrip()[:1] in (b"{", b"[") or b"\0" in body else None


def _wants_tls(reply: Reply) -> bool:
    """Whether a server that speaks TLS says that it was spoken to without: nginx, Apache, Go's, each in its words."""
    return reply.status == 400 and any(words in reply.body[:_WORDS_WITHIN].lower() for words in _NOT_TLS)


def _once(status: int, dialect: Dialect) -> type[PaymentsError]:
    """What an answer with this status proves of an order, before anything in it speaks against that."""
    if status in dialect.turned_away_unread:
        return AuthenticationFailed if status == 401 else NotSent
    return Rejected if status in _REFUSALS else OutcomeUnknown


def _repeated(status: int) -> type[PaymentsError]:
    """What an answer with this status means for a call that does no harm when it is made again."""
    if status == 401:
        return AuthenticationFailed
    return Rejected if 400 <= status < 500 and status not in (407, 408, 409, 425, 429) else ServiceFault


def _reason(status: int) -> str:
    """A status in words, for an answer that has none."""
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
    """The error, in the words of the service where it had any, with secrets and people masked."""
    said, said_code, correlation_id = _said(reply)
    message = message or said or (_SPEAKS_TLS if _wants_tls(reply) else _reason(reply.status))
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
    """Message, code and correlation id of an answer, each ``None`` where it cannot be read."""
    try:
        return _failure_facts(decode(reply.body))
    except Unreadable:
        return None, None, None


def _failure_facts(value: Any) -> tuple[str | None, int | None, str | None]:
    """Message, code and correlation id of a failed call's body, each ``None`` where it cannot be read."""
    try:
        folded = _folded(value)
    except Unreadable:
        return None, None, None
    return _optional(folded, "message"), _code_or_none(folded), _optional(folded, "correlationid")


def _named_transaction(value: Any) -> str | None:
    """The transaction that an answer names, wherever in it; an empty id, or one of zeros alone, names none."""
    waiting, looked_at = [value], 0
    while waiting and looked_at < _MOST_LOOKED_AT:
        item, looked_at = waiting.pop(), looked_at + 1
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            for key, inner in item.items():
                if fold(key) == "transactionid" and (found := _transaction_id(inner)) is not None:
                    return found
                if isinstance(inner, dict | list):
                    waiting.append(inner)
    return None


def _speaks_against_refusal(value: Any, request_id: str | None, *, is_read: bool = True) -> str | None:
    """Why an answer is not a refusal of this request although its status or its code says so, or ``None``.

    Args:
        request_id: What the answer should be about, where there is one.
        is_read: Whether the order was read to be refused, rather than turned away unread.
    """
    if _named_transaction(value) is not None:
        return "it names a transaction"
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        return "it is packed into a text"
    if not isinstance(value, dict):
        return None
    folded = _folded(value)
    data = _folded(folded["data"]) if isinstance(folded.get("data"), dict) else {}
    words = _word(folded.get("status")), _word(data.get("status"))
    if (
        _flag(folded.get("success")) is True
        or _says_yes(_code_or_none(folded))
        or any(word in _YES or TransactionStatus(word) in _TAKEN for word in words)
    ):
        return "it says that the order was taken"
    said = f"{_text(folded.get('message'))} {_text(data.get('message'))}"
    if request_id is not None and _HAS_IT.search(said):
        return "it says that the service has the order already"
    if request_id is not None and is_read and _GOES_ON.search(said):
        return "it says that the order may still be carried out"
    # at the top it may be what a balancer calls its own exchange
    for echo in (data.get("requestid"), data.get("clientreferenceid")):
        if request_id is not None and _text(echo) not in ("", request_id):
            return "it is about another request"
    return None


def _read_one(value: Any, *, kind: type[T], timezone: tzinfo) -> T:
    """One record in an envelope."""
    return read_record(kind, _payload(value), timezone)


def _read_page(value: Any, *, kind: type[T], timezone: tzinfo) -> Page[T]:
    """A paged collection in an envelope, or a bare list."""
    data = _payload(value)
    if isinstance(data, list):
        data = {"collection": data}
    rows = _folded(data).get("collection")
    if not isinstance(rows, list):
        raise Unreadable("the listing holds no collection")
    known, extra = _page_members(data)
    return Page(collection=tuple(read_record(kind, row, timezone) for row in rows), **known, extra=extra)


def _page_members(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a page says of itself, and what it says beyond that."""
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, item in data.items():
        name, read = _PAGE.get(fold(key), (key, _nothing))
        value = read(item)
        if value is not None:
            known[name] = value
        elif item is not None and name != "collection":
            extra[key] = item  # unknown, or known and unreadable
    return known, extra


def _payload(value: Any) -> Any:
    """The data of an envelope that does not say no."""
    envelope = _envelope(value)
    # Spec: "One description says 1 on success for some read endpoints; the examples all show 0."
    if envelope.code not in (None, 0, 1) or (envelope.success is False and not envelope.data):
        raise Refused(envelope.message or "refused without words", code=envelope.code)
    if envelope.data is None:  # present data beats the flag: the card's own sample shows success 0 beside full data
        raise Unreadable("the answer holds no data", code=envelope.code)
    return envelope.data


def _envelope(value: Any) -> _Envelope:
    """The common members of an answer, in any spelling."""
    folded = _folded(value)
    return _Envelope(
        code=read_code(folded.get("code")),
        success=_flag(folded.get("success")),
        message=_optional(folded, "message"),
        data=folded.get("data"),
    )


def _folded(value: Any) -> dict[str, Any]:
    """The members of an object under their folded names."""
    if not isinstance(value, dict):
        raise Unreadable("the answer is not an object")
    return {fold(key): item for key, item in value.items()}


def _acceptance_members(data: Mapping[str, Any], timezone: tzinfo) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of an acceptance, and what is said beyond them or cannot be read."""
    known: dict[str, Any] = {"transaction_id": None, "request_id": None}
    extra: dict[str, Any] = {}
    for key, item in data.items():
        name = _ACCEPTANCE.get(key) or _ACCEPTANCE_FOLDED.get(fold(key))
        if item is None and name is not None:
            continue
        if name is None or known.get(name) is not None:  # said twice: the first counts, the other is kept
            extra[key] = item
            continue
        try:
            match name:
                case "created_on":
                    known[name] = read_timestamp(item, timezone)
                case "status":
                    known[name] = TransactionStatus(read_text(item))
                    if known[name] != item:
                        extra[key] = item  # the service's own word for it is kept
                case "transaction_id":
                    known[name] = _transaction_id(item)
                case _:
                    known[name] = read_text(item) or None
        except (ValueError, TypeError, ArithmeticError):
            extra[key] = item  # it never costs a payment: the text is kept
    return known, extra


def _transaction_id(item: Any) -> str | None:
    """The id of a transaction, or ``None`` for what names none."""
    text = _text(item)
    return text.strip() if text.strip(_NOTHING) else None


def _text(item: Any) -> str:
    """A text or number as text; empty for anything else."""
    try:
        return read_text(item)
    except (ValueError, ArithmeticError):
        return ""


def _word(item: Any) -> str:
    """A text as words are compared: without blanks around it, in capitals."""
    return _text(item).strip().upper()


def _says_yes(code: int | None) -> bool:
    """Whether a code is the documented success, or one of HTTP's."""
    return code is not None and (code == 0 or 200 <= code < 300)


def _message(value: Mapping[str, Any]) -> str:
    """What a refusal says."""
    return _optional(value, "message") or "refused without words"


def _optional(folded: Mapping[str, Any], name: str) -> str | None:
    """A text, or ``None`` where there is none."""
    return _text(folded.get(name)) or None


def _code_or_none(folded: Mapping[str, Any]) -> int | None:
    """The error code, or ``None`` where there is none that can be read."""
    try:
        return read_code(folded.get("code"))
    except Unreadable:
        return None


def _count(value: Any) -> int | None:
    """A number of rows or pages, or ``None`` for what is none."""
    try:
        count = read_int(value)
    except ValueError:
        return None
    return count if count >= 0 else None


def _flag(value: Any) -> bool | None:
    """A truth value in any spelling, or ``None`` for what is none."""
    match value:
        case bool():
            return value
        case 0 | 1:
            return bool(value)
        case str():
            return {"true": True, "1": True, "success": True, "false": False, "0": False}.get(value.strip().lower())
        case _:
            return None


def _nothing(_: Any) -> None:
    """What is read of a member that is read elsewhere, or not known."""


_PAGE: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "totalcount": ("total_count", _count),
    "pagesize": ("page_size", _count),
    "currentpage": ("current_page", _count),
    "totalpages": ("total_pages", _count),
    "previouspage": ("previous_page", _flag),
    "nextpage": ("next_page", _flag),
    "collection": ("collection", _nothing),
}

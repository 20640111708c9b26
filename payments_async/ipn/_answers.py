"""What the receiver says to the service: prebuilt refusals, and the response message. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import NamedTuple

from payments_async._events import TransactionEvent

__all__ = [
    "BAD_METHOD",
    "CONTRADICTED",
    "ENCODED",
    "FAILED",
    "FORBIDDEN",
    "HEALTHY",
    "NOT_FOUND",
    "NOT_STORED",
    "TOO_LARGE",
    "TOO_SLOW",
    "UNREADABLE",
    "Answer",
    "ResponseMessage",
    "refusal",
    "response_message",
]


class Answer(NamedTuple):
    """One answer: HTTP status and JSON body.

    Attributes:
        closes: Whether the connection ends with it: kept open, those of strangers would be all that there are.
        hang_up: Whether to close the connection at once: its sender is not to be listened to any longer.
    """

    status: int
    body: bytes
    closes: bool = False
    hang_up: bool = False


def refusal(status: int, why: str, *, closes: bool = False, hang_up: bool = False) -> Answer:
    """An answer other than 200; ``why`` names no value of the request."""
    body = b'{"ResponseCode":"%d","ResponseMessage":%b}' % (status, quoted(why).encode())
    return Answer(status, body, closes or hang_up, hang_up)


FORBIDDEN = refusal(403, "forbidden", closes=True)
UNREADABLE = refusal(400, "the body cannot be read")
NOT_FOUND = refusal(404, "not found")
BAD_METHOD = refusal(405, "only POST is answered here")
TOO_SLOW = refusal(408, "the body took too long", hang_up=True)
ENCODED = refusal(415, "no content coding is taken here", hang_up=True)
TOO_LARGE = refusal(413, "the body is too large")
CONTRADICTED = refusal(400, "the transaction's record says otherwise")
FAILED = refusal(500, "not handled, send it again")
NOT_STORED = refusal(503, "not stored, send it again")
HEALTHY = Answer(200, b'{"status": "ok"}')


def response_message(event: TransactionEvent, code: str, created_on: str) -> bytes:
    """The receiver's response message, all of it text.

    Args:
        code: Its ``ResponseCode``, as JSON text.
        created_on: When we answer, as JSON text.
    """
    # Spec: "keys TransactionId, AccountId, createdOn, SubscriptionId, ResponseCode, RequestId, ReferenceId (the
    # client's reference; may equal requestId), ResponseMessage; all strings"
    request_id = quoted(event.request_id or "")
    return (
        f'{{"TransactionId":{quoted(event.transaction_id)},"AccountId":{quoted(event.account_id or "")},'
        f'"createdOn":{created_on},"SubscriptionId":{quoted(event.subscription_id or "")},"ResponseCode":{code},'
        f'"RequestId":{request_id},"ReferenceId":{request_id},"ResponseMessage":"received"}}'
    ).encode()


class ResponseMessage:
    """Our answer to what was taken; the time in it is written once a second.

    Args:
        code: Its ``ResponseCode``.
        clock: Gives Unix seconds.
    """

    def __init__(self, code: str, clock: Callable[[], float]) -> None:
        self._code = quoted(code)
        self._clock = clock
        self._second = -1
        self._text = ""

    def of(self, event: TransactionEvent) -> bytes:
        """The body that answers this event."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._text = datetime.fromtimestamp(second, UTC).strftime('"%Y-%m-%d %H:%M:%S"')
        return response_message(event, self._code, self._text)

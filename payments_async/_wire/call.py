"""Call: one exchange with the service, described but not made. Reply or TransportFailure: what came of it, unread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec

T = TypeVar("T")


# Structs, and not attrs classes as everything else: two are made for each payout, at a fifth of the cost.
class Reply(msgspec.Struct):
    """An HTTP answer: its status, its whole body, and the seconds its ``Retry-After`` asks to wait.

    Attributes:
        is_unusual: It was not read at once, as what is exactly documented is.
        headers: Of the answer, as they came.
    """

    status: int
    body: bytes  # it holds personal data, of a login the token
    retry_after: float | None = None
    is_unusual: bool = False
    headers: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return f"<Reply {self.status}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # what tools ask for that take records apart
        return [("status", self.status)]


class TransportFailure(Exception):
    """No usable answer. Whether the request may have arrived is ``Outgoing.left``."""


class Call(msgspec.Struct, Generic[T], kw_only=True):
    """One exchange, described but not made.

    Attributes:
        method: HTTP method.
        path: Path below the base address, percent-encoded, with a leading slash.
        read: Turns the decoded JSON of a 2xx answer into the result; raises ``Refused`` or ``Unreadable``.
        read_quickly: Turns the body of the usual 2xx answer into the result at once, or gives ``None``: then ``read``
            decides. A shortcut for speed that never raises.
        query: Query string, encoded, without the question mark.
        body: JSON body, ready to send.
        repeatable: Whether making it twice is harmless, so that it may be retried.
        once: Whether carrying it out twice would do harm: its failures are sorted as those of money.
        authorized: Whether it carries the Authorization header.
        request_id: Of the order, where there is one.
        sent_before: The order may have left before this call, so a refusal proves nothing.
        known_as: Path and body of the same request in the session's own dialect, where it is sent in another.
        answer: What its answer is, for the rules of ``quirks``; empty for what nobody knows.
        attempt: The number of its first attempt: what an outbox sends again is not the first one.
        traceparent: The trace context of who put the order, as W3C writes it.
        remembered: Whether a session remembers its acceptance; orders of a journal are remembered there.
        private: Gives the personal texts in the body, to be masked in words that come back.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    read_quickly: Callable[[bytes], T | None] | None = None
    query: str = ""
    body: bytes | None = None  # it holds personal data, of a login the secrets
    repeatable: bool = False
    once: bool = False
    authorized: bool = True
    request_id: str | None = None
    sent_before: bool = False
    known_as: tuple[str, bytes] | None = None
    answer: str = ""
    remembered: bool = False
    attempt: int = 1
    traceparent: str | None = None
    private: Callable[[], tuple[str, ...]] = tuple

    @property
    def label(self) -> str:
        """What to call it in a message."""
        return f"{self.method} {self.path}"

    def __repr__(self) -> str:
        return f"<Call {self.label}>"  # the body holds personal data

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("label", self.label)]


def with_query(call: Call[T], query: Mapping[str, str]) -> Call[T]:
    """A call with further parameters in its query string; those that it has by itself stay as they are."""
    own = {name for name, _ in parse_qsl(call.query, keep_blank_values=True)}
    further = urlencode({name: value for name, value in query.items() if name not in own})
    changed = copy(call)
    changed.query = "&".join(filter(None, (call.query, further)))
    return changed


class Refused(Exception):
    """The envelope says no.

    Attributes:
        code: The error code, or ``None``.
    """

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Unreadable(Exception):
    """The answer has a shape nobody documented.

    Attributes:
        code: Its error code, where it could be read.
        transaction_id: The transaction it named, where it could be read.
    """

    def __init__(self, message: str, *, code: int | None = None, transaction_id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.transaction_id = transaction_id

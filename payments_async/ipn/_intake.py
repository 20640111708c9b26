"""What is done with one notification from its sender to its answer, whatever framework brought it.

Sender, path, method, size, reading: then it goes on with an inbox or without, and the answer comes back from there.
What is refused is counted by address and reason, and told to the log now and then.
The adapters of frameworks, and ``Receiver.take``, all use this.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from json.encoder import encode_basestring_ascii as quoted
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import attrs
from multidict import MultiMapping

from payments_async._session.quirks import MetQuirks
from payments_async._values.observing import Observer, Watched
from payments_async._values.threads import HomeLoop
from payments_async._wire.dialect import Dialect
from payments_async._wire.events import TransactionEvent
from payments_async._wire.notifications import UnreadableNotification, read_unusual, read_usual
from payments_async.ipn._health import ReceiverHealth
from payments_async.ipn._senders import Delivery, Sender, Senders, Verifier, is_genuine

_SHORTEST_TOKEN = 16
_JSON = MappingProxyType({"Content-Type": "application/json"})
_log = logging.getLogger("payments_async.ipn")
_MOST = 1000  # addresses and reasons that are told apart
_OTHERS = "others"
_QUIET = 10.0  # seconds
_LINES = 10  # in the log, in so many seconds


class Answer(NamedTuple):
    """One answer, for any framework to send: HTTP status, headers and JSON body.

    Attributes:
        headers: Those that belong to the body; the framework adds its length.
        closes: Whether the connection ends with it: kept open, those of strangers would be all that there are.
        hang_up: Whether to close the connection at once: its sender is not to be listened to any longer.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    closes: bool = False
    hang_up: bool = False


class RequestRefused(Exception):
    """A request is not from a known sender, or is not one that can be a notification.

    Attributes:
        answer: Send this to its sender.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"the request is answered {answer.status}; receiver.refusals() and the log say why")
        self.answer = answer


def json_answer(status: int, body: bytes) -> Answer:
    """An answer with a JSON body."""
    return Answer(status, _JSON, body)


def _refusal(status: int, why: str, *, closes: bool = False, hang_up: bool = False) -> Answer:
    """An answer other than 200; ``why`` names no value of the request."""
    headers = MappingProxyType({**_JSON, "Allow": "POST"}) if status == 405 else _JSON
    body = b'{"ResponseCode":"%d","ResponseMessage":%b}' % (status, quoted(why).encode())
    return Answer(status, headers, body, closes or hang_up, hang_up)


FORBIDDEN = _refusal(403, "forbidden", closes=True)
UNREADABLE = _refusal(400, "the body cannot be read")
NOT_FOUND = _refusal(404, "not found")
_BAD_METHOD = _refusal(405, "only POST is answered here")
TOO_SLOW = _refusal(408, "the body took too long", hang_up=True)
_ENCODED = _refusal(415, "no content coding is taken here", hang_up=True)
TOO_LARGE = _refusal(413, "the body is too large")
CONTRADICTED = _refusal(400, "the transaction's record says otherwise")
FAILED = _refusal(500, "not handled, send it again")
NOT_STORED = _refusal(503, "not stored, send it again")


class Pipeline(Protocol):
    """Where a notification goes on that was taken: with an inbox, or without."""

    def start(self) -> None:
        """Begin to handle what was left over, unless that has begun."""

    def take(
        self, event: TransactionEvent, body: bytes, query: str, sender: Sender, is_usual: bool
    ) -> asyncio.Future[Answer | None] | None:
        """Take a notification.

        Args:
            is_usual: As ``Arrival.usual``.

        Returns:
            The answer, if it is not 200, or ``None`` where there is nothing to wait for.
        """

    async def final_events(
        self, request_id: str, transaction_id: str | None = None
    ) -> Sequence[TransactionEvent] | None:
        """The final events of an order, or of a transaction of it, as far as they are remembered.

        ``None`` where that cannot be known now.
        """

    async def replay(self, event_id: int | None) -> int:
        """Handle one dead letter again, or all of them, and tell how many."""

    async def health(self) -> ReceiverHealth:
        """How much is waiting."""

    async def aclose(self) -> None:
        """Stop, and wait for handlers under way. It may be started again."""


def _checked_token(token: str | None) -> str | None:
    """The path token, if it can stand in a URL and is long enough not to be guessed.

    Raises:
        ValueError: It is not.
    """
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ValueError("path_token: at least 16 printable ASCII characters, such as secrets.token_urlsafe() gives")
    if token is not None and set(token) & set("/?#% "):
        raise ValueError("path_token: without '/', '?', '#', '%' and spaces")
    return token


@attrs.define(eq=False, repr=False, kw_only=True)
class Intake:
    """Takes notifications from those it knows.

    Attributes:
        way: Where they go on.
        verifier_time: Seconds that a verifier may take.
        verifies: Whether senders have to prove more than their address.
        quirks: Those that notifications have shown.
        clock: Gives Unix seconds.

    The others are those of ``Receiver``.
    """

    way: Pipeline
    senders: Senders
    path_token: str | None = attrs.field(converter=_checked_token)
    max_body: int
    body_time: float
    refusals: Refusals
    _verifiers: Sequence[Verifier]
    _verifier_time: float
    _shadow: bool
    _reported: Callable[[TransactionEvent, str], object]
    _dialect: Dialect
    _clock: Callable[[], float]
    _observer: Observer | None = None
    verifies: bool = attrs.field(init=False)
    quirks: MetQuirks = attrs.field(init=False)
    _home: HomeLoop = attrs.field(factory=lambda: HomeLoop("the receiver", "await receiver.take(...)"), init=False)
    _has_said_so: bool = attrs.field(default=False, init=False)
    _timezone: tzinfo = attrs.field(init=False)
    _response_code: str = attrs.field(init=False)
    _second: int = attrs.field(default=-1, init=False)  # of the time that is written out, once a second
    _now: str = attrs.field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.verifies = bool(self._verifiers)
        self.quirks = MetQuirks(self._observer)
        self._timezone = self._dialect.timezone
        self._response_code = quoted(self._dialect.ipn_response_code)

    def start(self) -> None:
        """Begin to handle what was left over, unless that has begun. What threads hand in is taken in this loop."""
        self._home.note()
        self.way.start()

    def in_loop(self, work: Coroutine[Any, Any, Answer], timeout: float) -> Answer:
        """Have the loop that this was started in do something, while this thread waits for it.

        Args:
            timeout: Seconds; then the answer is 503. A delivery may have been stored by then: it is one, sent again.

        Raises:
            RuntimeError: That loop does not run in this process, or is the one of this thread.
        """
        try:
            return self._home.run(work, timeout)
        except TimeoutError:
            return NOT_STORED

    def admits(self, peer: str) -> bool:
        """Whether to take a connection from this address: a sender's or a trusted proxy's; in shadow anybody's."""
        return self._shadow or self.senders.may_connect(peer)

    def knows_token(self, token: str | None) -> bool:
        """Compare in constant time; without a token of ours, none is right."""
        ours = self.path_token
        if token is None or ours is None:
            return token is ours
        return hmac.compare_digest(token.encode(errors="surrogateescape"), ours.encode())

    def split(self, path: str) -> tuple[str | None, list[str]]:
        """The token in a path below that of notifications, and the segments that follow it."""
        segments = [segment for segment in path.split("/") if segment]
        token = segments.pop(0) if self.path_token is not None and segments else None
        return token, segments

    async def health(self, token: str | None) -> Answer:
        """Answer a request for the health path."""
        if not self.knows_token(token):
            return NOT_FOUND
        found = await self.way.health()
        return json_answer(200 if found.is_well else 503, json.dumps(found.document()).encode())

    def screen(
        self, method: str, token: str | None, peer: str, headers: MultiMapping[str], *, may_be_rewritten: bool = False
    ) -> Answer | Sender:
        """Look at a request before its body is read: a refusal, or its sender.

        Args:
            token: Last segment of the path, or ``None`` where there is none.
            may_be_rewritten: Whether a server may have put an address out of the headers in the place of the peer's.
        """
        if may_be_rewritten and self.senders.is_rewritten(peer, headers):
            self._say_so()
            why = "the server put this address there, out of headers that anybody may have written"
            self.refusals.note(peer, why, "a connection is refused")
            return FORBIDDEN
        sender = self.senders.check(peer, headers)
        if not sender.is_known:
            self.refusals.note(sender.address, sender.why, "a sender is not known")
            if not self._shadow:
                return FORBIDDEN
        if not self.knows_token(token):
            return self._refused(sender.address, NOT_FOUND, "the path token is wrong")
        if method != "POST":
            return self._refused(sender.address, _BAD_METHOD, "it is not a POST")
        if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            # a few bytes could be seconds of work
            return self._refused(sender.address, _ENCODED, "its body has a content coding")
        return sender

    async def receive(
        self,
        method: str,
        token: str | None,
        body: bytes,
        query: str,
        headers: MultiMapping[str],
        peer: str,
        certificate: Callable[[], bytes | None] | None = None,
        *,
        may_be_rewritten: bool = False,
    ) -> Answer:
        """Take a request whose body is here already: its sender, then all that ``take`` does."""
        sender = self.screen(method, token, peer, headers, may_be_rewritten=may_be_rewritten)
        if isinstance(sender, Answer):
            return sender
        taken = await self.take(sender, body, query, headers, peer, certificate)
        return taken if isinstance(taken, Answer) else self.answer(taken)

    async def take(
        self,
        sender: Sender,
        body: bytes,
        query: str,
        headers: MultiMapping[str],
        peer: str,
        certificate: Callable[[], bytes | None] | None = None,
    ) -> TransactionEvent | Answer:
        """Take a notification: its size, its verifiers, its words, then its row in the inbox.

        Gives the event, to be answered 200, or a refusal.

        Args:
            sender: What ``screen`` gave.
            query: Raw query string, without the question mark.
            certificate: Gives the client's TLS certificate (DER), if the socket has one.
        """
        if len(body) > self.max_body:
            return self._refused(sender.address, TOO_LARGE, "its body is too large")
        if self.verifies:
            verified = await self.verify(sender, body, query, headers, peer, certificate)
            if isinstance(verified, Answer):
                return verified
            sender = verified
        event = read_usual(body, query, self._timezone)
        is_usual = event is not None
        if event is None:
            try:
                event = read_unusual(body, query, self._timezone)
            except UnreadableNotification as error:
                self.refusals.note(sender.address, str(error), "a notification is unreadable")
                return _refusal(400, str(error))
        if self.quirks.wants("notification", is_unusual=not is_usual):
            self.quirks.look_at_notification(body, query)
        if not sender.is_known:
            self._reported(event, sender.address)
        work = None if self._observer is None else self._begin_watching(self._observer, event, is_usual=is_usual)
        taken = self.way.take(event, body, query, sender, is_usual and self._timezone is UTC)
        if work is not None:
            _close(work) if taken is None else taken.add_done_callback(partial(_close, work))
        refused = None if taken is None else await taken
        return event if refused is None else refused

    async def verify(
        self,
        sender: Sender,
        body: bytes,
        query: str,
        headers: MultiMapping[str],
        peer: str,
        certificate: Callable[[], bytes | None] | None = None,
    ) -> Answer | Sender:
        """Ask the verifiers: a refusal, or the sender, who in shadow is not known where one of them says no."""
        delivery = Delivery(
            peer=peer,
            sender=sender.address,
            through_proxy=self.senders.trusts(peer),
            headers=headers,
            query=query,
            body=body,
            certificate=None if certificate is None else certificate(),
        )
        if await is_genuine(delivery, self._verifiers, self._verifier_time):
            return sender
        if not self._shadow:
            return self._refused(sender.address, FORBIDDEN, "a verifier says no")
        return sender._replace(is_known=False)

    def answer(self, event: TransactionEvent) -> Answer:
        """The answer to a notification that was taken."""
        return json_answer(200, self.message(event))

    def _begin_watching(self, observer: Observer, event: TransactionEvent, *, is_usual: bool) -> Watched:
        if not is_usual:
            observer.count("quirk", quirk="unusual_notification")
        return observer.begin(
            "notification",
            event=type(event).__name__,
            request_id=event.request_id,
            transaction_id=event.transaction_id,
            batch_id=event.batch_id,
            correlation_id=event.correlation_id,
        )

    def message(self, event: TransactionEvent) -> bytes:
        """The body that answers a notification which was taken, all of it text."""
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._now = datetime.fromtimestamp(second, UTC).strftime('"%Y-%m-%d %H:%M:%S"')
        # Spec: "keys TransactionId, AccountId, createdOn, SubscriptionId, ResponseCode, RequestId, ReferenceId (the
        # client's reference; may equal requestId), ResponseMessage; all strings"
        request_id = quoted(event.request_id or "")
        return (
            f'{{"TransactionId":{quoted(event.transaction_id)},"AccountId":{quoted(event.account_id or "")},'
            f'"createdOn":{self._now},"SubscriptionId":{quoted(event.subscription_id or "")},'
            f'"ResponseCode":{self._response_code},"RequestId":{request_id},"ReferenceId":{request_id},'
            f'"ResponseMessage":"received"}}'
        ).encode()

    def _say_so(self) -> None:
        if not self._has_said_so:
            self._has_said_so = True
            _log.error(
                "the server in front rewrites addresses from headers, so requests with them are refused",
                extra={
                    "remedy": "let it leave them (uvicorn --no-proxy-headers), name trusted_proxies; or rewritten=True"
                },
            )

    def _refused(self, address: str, answer: Answer, why: str) -> Answer:
        self.refusals.note(address, why)
        return answer


def _close(work: Watched, taken: asyncio.Future[Answer | None] | None = None) -> None:
    """A notification that was watched is answered, or whoever sent it has hung up."""
    if taken is not None and taken.cancelled():
        work.tell(error="hung_up")
    elif taken is not None and (failure := taken.exception()) is not None:
        work.tell(error=type(failure).__name__)
    else:
        refused = None if taken is None else taken.result()
        work.tell(
            answer=200 if refused is None else refused.status, error=None if refused is None else str(refused.status)
        )
    work.close()


class Refusal(NamedTuple):
    """How often one sender was refused for one reason."""

    address: str
    why: str
    times: int


class Refusals:
    """Counts refusals. Each new address and reason is logged, but only so many lines in a while: a flood fills no disk.

    Args:
        clock: Gives Unix seconds.
        observer: Told of each, if anybody watches.
    """

    def __init__(self, clock: Callable[[], float], observer: Observer | None = None) -> None:
        self._clock = clock
        self._observer = observer
        self._counts: dict[tuple[str, str], int] = {}
        self._told: dict[tuple[str, str], float] = {}
        self._since = 0.0
        self._lines = 0
        self._unsaid = 0

    def note(self, address: str, why: str, message: str = "a request is refused", **facts: object) -> None:
        """One more.

        Args:
            message: For the log.
        """
        if self._observer is not None:
            self._observer.count("refusal", reason=message)
        key = (address, why)
        if key not in self._counts and len(self._counts) >= _MOST:
            key = (_OTHERS, why)
        self._counts[key] = count = self._counts.get(key, 0) + 1
        now = self._clock()
        if not self._since <= now < self._since + _QUIET:
            self._since, self._lines = now, 0
        if self._lines >= _LINES or 0 <= now - self._told.get(key, now - _QUIET) < _QUIET:
            self._unsaid += 1
            return
        self._told[key] = now
        self._lines += 1
        unsaid, self._unsaid = self._unsaid, 0
        extra = {"sender": address, "why": why, "count": count, "not_logged_since": unsaid}
        words = message + ": %s: %s (%d times by now)"
        _log.warning(words, address, why, count, extra={**extra, **facts})

    def all(self) -> tuple[Refusal, ...]:
        """All so far, the most frequent first."""
        found = (Refusal(address, why, count) for (address, why), count in self._counts.items())
        return tuple(sorted(found, key=lambda refusal: -refusal.times))

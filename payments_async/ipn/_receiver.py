"""What to do with one notification, from sender to answer. Knows nothing of any web framework."""

from __future__ import annotations

import asyncio
import logging
import random as chance
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from multidict import MultiMapping

from payments_async._dialect import Dialect
from payments_async._events import TransactionEvent
from payments_async._wire.notifications import (
    UnreadableNotification,
    plain_transaction_id,
    read_notification,
    read_unusual,
)
from payments_async._wire.usual_notifications import read_usual
from payments_async.ipn import _answers as answers
from payments_async.ipn._answers import Answer, ResponseMessage
from payments_async.ipn._confirm import Confirming
from payments_async.ipn._handling import Handling
from payments_async.ipn._keeping import Keeping
from payments_async.ipn._path_token import checked, knows
from payments_async.ipn._refusals import Refusal, Refusals
from payments_async.ipn._router import Handler, Predicate, Router
from payments_async.ipn._senders import DOCUMENTED_SENDERS, Sender, Senders
from payments_async.ipn._tasks import Tasks
from payments_async.ipn._unkept import Unkept
from payments_async.ipn._verifiers import Delivery, Verifier, is_genuine
from payments_async.ipn._waiting import Waiting, Wanted
from payments_async.journal._inbox import Inbox

if TYPE_CHECKING:
    from aiohttp import web

    from payments_async.ipn._asgi import AsgiApp

__all__ = ["Receiver"]

H = TypeVar("H", bound=Handler)
_log = logging.getLogger("payments_async.ipn")


class Receiver:
    """Takes notifications: believes nobody it does not know, loses nothing, runs no handler twice for one fact.

    Mount it with ``app()`` or ``asgi()``. It starts by itself; ``async with receiver:`` or ``close()`` drains it where
    no application does.

    Args:
        inbox: A journal. With one, a notification is stored, then answered 200, then handled, with retries. Without
            one, handlers run before the answer, a failure is answered 500, and memory alone knows a duplicate (of the
            last 10,000 transactions) and a final event that came before it was waited for (of the last 1,000).
        senders: Addresses and networks notifications are taken from. None at all refuses everybody.
        trusted_proxies: Addresses and networks of your own proxies; ``"unix:"`` for a Unix socket.
        path_token: An unguessable last segment of the IPN URL; anything else there is 404.
        verifiers: Further proof of the sender; every one must say yes.
        confirm: A session. The transaction is read from the service before an event is believed: until then it settles
            no order, and no handler hears it. With an inbox it waits for that as long as the service cannot be asked.
        shadow: Answer 200 to those whom ``senders`` and ``verifiers`` would have refused, and only report them: in the
            log, and with an inbox in it (``inbox.dubious()``). Nothing believes what they say: it settles no order, no
            handler hears it, nobody who waits is told.
        reported: Told in shadow of each such notification and the address it came from.
        handling: How handlers are run.
        proxy_headers: Where your proxies say whom they forward for.
        max_body: Longest body in bytes. One with a content coding is refused.
        body_time: Seconds a body may take to arrive.
        dialect: Gives the zone of timestamps without one, and the ``ResponseCode`` of our answer.
        owner: Name of this receiver in an inbox it shares, and of no other that runs; random by default. What a dead
            process held is taken over within ``Handling.poll`` where the system tells that it is dead. Elsewhere (on
            Windows) a name that stays the same after a restart takes it back at once; otherwise that waits until its
            lease ends.
        clock: Gives Unix seconds.
        sleep: Waits between two looks into the inbox.
        random: Gives jitter, in [0, 1).
    """

    def __init__(
        self,
        inbox: Inbox | None = None,
        senders: Iterable[str] = DOCUMENTED_SENDERS,
        trusted_proxies: Iterable[str] = (),
        path_token: str | None = None,
        verifiers: Iterable[Verifier] = (),
        confirm: Confirming | None = None,
        *,
        shadow: bool = False,
        reported: Callable[[TransactionEvent, str], object] = lambda event, sender: None,
        handling: Handling = Handling(),  # noqa: B008 - frozen
        proxy_headers: Iterable[str] = ("X-Forwarded-For", "Forwarded"),
        max_body: int = 64 * 1024,
        body_time: float = 10.0,
        dialect: Dialect = Dialect(),
        owner: str | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = chance.random,
    ) -> None:
        self.max_body = max_body
        self.body_time = body_time
        self.path_token: str | None = checked(path_token)
        self._senders = Senders(senders, trusted_proxies, proxy_headers=proxy_headers)
        self._verifiers = tuple(verifiers)
        self._shadow = shadow
        self._refusals = Refusals(clock)
        self._reported = reported
        self._handling = handling
        self._timezone = dialect.timezone
        self._message = ResponseMessage(dialect.ipn_response_code, clock)
        self._tasks = tasks = Tasks()
        self._router = router = Router(concurrency=handling.concurrency, timeout=handling.timeout)
        self._waiting = Waiting(poll=handling.poll)
        believed = self._waiting.announce
        read = partial(read_notification, timezone=dialect.timezone)
        self._unkept = Unkept(router, handling, read=read, confirm=confirm, believed=believed, tasks=tasks)
        self._keeping = None if inbox is None else Keeping(
            inbox, router, handling, owner=owner, confirm=confirm, believed=believed, finish=self.close,
            tasks=tasks, clock=clock, sleep=sleep, random=random,
        )  # fmt: skip

    def on(
        self, kind: type[TransactionEvent], *, when: Predicate | None = None, name: str | None = None
    ) -> Callable[[H], H]:
        """Register an async handler for a kind of event and its subtypes.

        Handlers of one event run side by side. With an inbox a handler may run again for an event whose end was not
        recorded: ``event.event_id`` stays the same.

        Args:
            when: Says of an event whether this handler wants it.
            name: Kept in the inbox; its module and qualified name by default. Keep it when you move the function.
        """

        def register(handler: H) -> H:
            self._router.add(kind, when, handler, name)
            return handler

        return register

    def app(self) -> web.Application:
        """An aiohttp application for ``add_subapp``; it answers with and without a trailing slash."""
        from payments_async.ipn._aiohttp import sub_app

        return sub_app(self)

    def asgi(self, path: str = "", *, rewritten: bool = False) -> AsgiApp:
        """An ASGI application for Starlette and FastAPI.

        Starlette's mount at ``/ipn`` answers ``/ipn/`` alone and redirects ``/ipn``, so give it a route too::

            app.router.routes.append(Route("/ipn", receiver.asgi("/ipn")))
            app.mount("/ipn", receiver.asgi())

        Args:
            path: Where a route hands requests over, or where it stands by itself; empty where it is mounted.
            rewritten: Believe a server that puts an address out of the headers in the place of the socket's peer. Then
                who may write those headers is its affair: ``uvicorn --forwarded-allow-ips='*'`` lets anybody pass for
                a sender. Without this a request with such an address is refused; let the server leave the address
                (``uvicorn --no-proxy-headers``) and name ``trusted_proxies``.
        """
        from payments_async.ipn._asgi import AsgiApp

        return AsgiApp(self, path, rewritten=rewritten)

    def start(self) -> None:
        """Begin to handle what the inbox holds. The first notification does it too."""
        if self._keeping is not None:
            self._keeping.start()

    async def close(self) -> None:
        """Stop, and wait for handlers under way; what has not begun stays in the inbox."""
        if self._keeping is not None:
            await self._keeping.stop()
        await self._tasks.join(self._handling.drain)
        await self._tasks.cancel()
        self._router.close()
        if self._keeping is not None:
            await self._keeping.give_back()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait_for(
        self,
        request_id: str,
        timeout: float | None = None,
        *,
        transaction_id: str | None = None,
        when: Callable[[TransactionEvent], bool] | None = None,
    ) -> TransactionEvent:
        """The final event of an order, also when it came before; processing does not count.

        Args:
            timeout: Seconds; ``None`` waits for ever.
            transaction_id: Of the acceptance: then only a notification of this transaction counts, also one that
                leaves the request id out.
            when: Says of a final event whether it counts.

        Raises:
            TimeoutError: When it did not come in time. That is no outcome.
        """
        known = None if transaction_id is None else plain_transaction_id(transaction_id)
        wanted = Wanted(request_id=request_id, transaction_id=known, when=when)
        look_up = self._unkept.final_events if self._keeping is None else self._keeping.final_events
        async with asyncio.timeout(timeout):
            return await self._waiting.wait(wanted, look_up)

    async def replay(self, event_id: int | None = None) -> int:
        """Handle one dead letter again, or all of them, and tell how many.

        Raises:
            ValueError: Without an inbox.
        """
        if self._keeping is None:
            raise ValueError("there is no inbox, so there are no dead letters")
        return await self._keeping.replay(event_id)

    def explain(self, request: Delivery | web.BaseRequest | dict[str, Any]) -> str:
        """Say in words why a request's sender is accepted or refused.

        Args:
            request: An aiohttp request, an ASGI scope, or a delivery.
        """
        headers: MultiMapping[str]
        match request:
            case Delivery():
                peer, headers = request.peer, request.headers
            case dict():
                from payments_async.ipn._asgi import headers_of, peer_of

                peer, headers = peer_of(request), headers_of(request)
            case _:
                from payments_async.ipn._aiohttp import peer_of as peer_of_request

                peer, headers = peer_of_request(request), request.headers
        return self._senders.decide(peer, headers).why

    async def health(self) -> Answer:
        """How much is waiting, as a JSON answer: 503 when the inbox cannot be read.

        Also after a delivery could not be stored, until something can be written again: that is tried here.
        """
        return answers.HEALTHY if self._keeping is None else await self._keeping.health()

    def screen(self, method: str, token: str | None, peer: str, headers: MultiMapping[str]) -> Answer | Sender:
        """Look at a request before its body is read: a refusal, or its sender.

        Args:
            token: Last segment of the path, or ``None`` where there is none.
        """
        decision = self._senders.decide(peer, headers)
        if not decision.accepted:
            self._refusals.note(decision.address, decision.why, "a sender is not known")
            if not self._shadow:
                return answers.FORBIDDEN
        if not self.knows_token(token):
            return self._refused(decision.address, answers.NOT_FOUND, "the path token is wrong")
        if method != "POST":
            return self._refused(decision.address, answers.BAD_METHOD, "it is no POST")
        if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            # a few bytes could be seconds of work
            return self._refused(decision.address, answers.ENCODED, "its body has a content coding")
        return Sender(decision.address, decision.accepted)

    def admits(self, peer: str) -> bool:
        """Whether to take a connection from this address: a sender's or a trusted proxy's; in shadow anybody's."""
        return self._shadow or self._senders.may_bring(peer)

    def trusts(self, peer: str) -> bool:
        """Whether the peer is one of the trusted proxies."""
        return self._senders.trusts(peer)

    def refuse(self, address: str, why: str) -> None:
        """Count a refusal that was made elsewhere, such as of a connection."""
        self._refusals.note(address, why, "a connection is refused")

    def refusals(self) -> Sequence[Refusal]:
        """Whom this receiver refused, why and how often, the most frequent first."""
        return self._refusals.all()

    def is_rewritten(self, peer: str, headers: MultiMapping[str]) -> bool:
        """Whether a server has put an address out of the headers in the place of the socket's peer."""
        return self._senders.are_named(peer, headers)

    def _refused(self, address: str, answer: Answer, why: str) -> Answer:
        self._refusals.note(address, why)
        return answer

    def knows_token(self, token: str | None) -> bool:
        """Compare in constant time."""
        return knows(self.path_token, token)

    async def take(
        self,
        sender: Sender,
        peer: str,
        headers: MultiMapping[str],
        query: str,
        body: bytes,
        certificate: Callable[[], bytes | None] = lambda: None,
    ) -> Answer:
        """Take a notification whose sender was accepted.

        Args:
            sender: What ``screen`` gave.
            query: Raw query string, without the question mark.
            body: Raw.
            certificate: Gives the client's TLS certificate (DER), if the socket has one.
        """
        if self._verifiers and len(body) <= self.max_body:
            through_proxy = self._senders.trusts(peer)
            delivery = Delivery(
                peer=peer, sender=sender.address, through_proxy=through_proxy, headers=headers, query=query, body=body,
                certificate=certificate(),
            )  # fmt: skip
            if not await is_genuine(delivery, self._verifiers, self._handling.timeout):
                if not self._shadow:
                    return self._refused(sender.address, answers.FORBIDDEN, "a verifier says no")
                sender = sender._replace(is_known=False)
        begun = self.begin(sender, query, body)
        if isinstance(begun, Answer):
            return begun
        event, refusal = begun
        refused = None if refusal is None else await refusal
        return Answer(200, self.message(event)) if refused is None else refused

    @property
    def verifies(self) -> bool:
        """Whether senders have to prove more than their address."""
        return bool(self._verifiers)

    def begin(
        self, sender: Sender, query: str, body: bytes
    ) -> Answer | tuple[TransactionEvent, asyncio.Future[Answer | None] | None]:
        """Take a notification whose sender is proved, without waiting.

        Returns:
            A refusal, or the event and what gives its refusal later on: ``None`` in place of an answer where it was
            taken, and ``None`` in place of a future where that is known already.
        """
        if len(body) > self.max_body:
            return self._refused(sender.address, answers.TOO_LARGE, "its body is too large")
        event = read_usual(body, query, self._timezone)
        is_usual = event is not None
        if event is None:
            try:
                event = read_unusual(body, query, self._timezone)
            except UnreadableNotification as error:
                self._refusals.note(sender.address, str(error), "a notification is unreadable")
                return answers.refusal(400, str(error))
        if not sender.is_known:
            self._reported(event, sender.address)
            if self._keeping is None:
                return event, None
        if self._keeping is None:
            return event, self._unkept.take(event, body, query)
        return event, self._keeping.take(event, body, query, sender, is_usual and self._timezone is UTC)

    def message(self, event: TransactionEvent) -> bytes:
        """The body that answers a notification which was taken."""
        return self._message.of(event)

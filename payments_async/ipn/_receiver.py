"""The receiver of notifications, as an application has it: its handlers, its faces, its waiters, its end."""

from __future__ import annotations

import asyncio
import logging
import random as chance
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, overload

from multidict import CIMultiDict, CIMultiDictProxy, MultiMapping

from payments_async._values.checks import check_callable, check_filled, check_instance, check_patience
from payments_async._values.handlers import ErrorHook, HandlerPolicy, error_text
from payments_async._values.observing import guarded
from payments_async._values.request_ids import plain_id
from payments_async._values.tasks import Tasks
from payments_async._values.testing import NOT_TESTING, Testing
from payments_async._values.threads import in_thread
from payments_async._wire.events import TransactionEvent
from payments_async._wire.notifications import plain_transaction_id, read_notification
from payments_async._wire.status_codes import FINAL_CODES
from payments_async.ipn._confirm import RecordSource
from payments_async.ipn._health import ReceiverHealth
from payments_async.ipn._inline import InlinePipeline
from payments_async.ipn._intake import (
    FORBIDDEN,
    TOO_LARGE,
    Answer,
    Intake,
    Pipeline,
    Refusal,
    Refusals,
    RequestRefused,
)
from payments_async.ipn._routes import EventRouter, check_kind
from payments_async.ipn._senders import DOCUMENTED_SENDERS, UNIX_SOCKET, Delivery, Senders, Verifier
from payments_async.ipn._settings import ReceiverSettings

if TYPE_CHECKING:
    from aiohttp import web

    from payments_async.ipn._asgi import AsgiApp
    from payments_async.ipn._wsgi import WsgiApp
    from payments_async.journal import Journal
    from payments_async.journal._inbox import Heard

_log = logging.getLogger("payments_async.ipn")
_Predicate = Callable[[TransactionEvent], bool]
_BREATH = 0.01  # seconds for which commits that follow each other are heard of together


class Waiters:
    """They wait by request id, and by transaction id where they know it.

    Each looks once for what came before. Of what comes then one task hears for all of them, while anybody waits: it
    reads on in the inbox from where it was, whenever something was written there by whichever process.

    Args:
        inbox: Which other receivers may share.
        poll: Seconds after which it is read on though nothing was heard, and between two tries of what failed.
        sleep: Waits.
    """

    def __init__(
        self, inbox: Journal | None, *, poll: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._inbox = inbox
        self._poll = poll
        self._sleep = sleep
        self._waiters: dict[str, dict[asyncio.Future[TransactionEvent], _Predicate]] = {}
        self._tasks = Tasks("the receiver")
        self._heard: Heard | None = None  # how far it was read
        self._begun: asyncio.Future[None] | None = None  # done once nothing passes by any more; None while none hears
        self._again: asyncio.Future[None] | None = None  # done when everybody has to look once more

    def announce(self, event: TransactionEvent) -> None:
        """Wake those who wait for this event, if it is final."""
        if not self._waiters or event.status_code not in FINAL_CODES:
            return
        for key in {plain_id(event.request_id or ""), event.transaction_id}:
            for future, is_it in self._waiters.get(key, {}).items():
                if future.done():
                    continue
                try:
                    if is_it(event):
                        future.set_result(event)
                except Exception as error:  # noqa: BLE001 - it is the waiter's own predicate, and so the waiter's error
                    future.set_exception(error)

    async def wait(
        self,
        request_id: str,
        *,
        transaction_id: str | None,
        when: _Predicate | None,
        look_up: Callable[[str, str | None], Awaitable[Sequence[TransactionEvent] | None]],
    ) -> TransactionEvent:
        """The final event, as soon as it is announced or found.

        Args:
            transaction_id: Only of this transaction; then the notification may leave the request id out.
            when: Says of an event whether it is the one.
            look_up: Gives the final events of an order, or of one transaction of it, that came before; ``None`` where
                that cannot be known now.
        """
        wanted = plain_id(request_id)

        def is_it(event: TransactionEvent) -> bool:
            if event.status_code not in FINAL_CODES:
                return False
            named = None if event.request_id is None else plain_id(event.request_id)
            if transaction_id is None:
                is_named = named == wanted
            else:
                is_named = event.transaction_id == transaction_id and named in (None, wanted)
            return is_named and (when is None or when(event))

        future: asyncio.Future[TransactionEvent] = asyncio.get_running_loop().create_future()
        key = wanted if transaction_id is None else transaction_id
        waiters = self._waiters.setdefault(key, {})
        waiters[future] = is_it  # before the first look: it may come while we look
        try:
            await self._heard_from_now_on(future)
            while not future.done():
                awaited: set[asyncio.Future[Any]] = {future} if self._again is None else {future, self._again}
                found = await look_up(request_id, transaction_id)
                for event in found or ():
                    if is_it(event):
                        return event
                patience = self._poll if found is None else None
                await asyncio.wait(awaited, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            return future.result()
        finally:
            del waiters[future]
            if not waiters and self._waiters.get(key) is waiters:
                del self._waiters[key]

    async def aclose(self) -> None:
        """Hear nothing more, unless a caller still waits."""
        if not self._waiters:
            await self._tasks.aclose()
            self._begun = None

    async def _heard_from_now_on(self, future: asyncio.Future[TransactionEvent]) -> None:
        """Wait until nothing passes by that is written from now on, or what is waited for has come."""
        if self._inbox is None:
            return
        loop, begun = asyncio.get_running_loop(), self._begun
        if begun is None or begun.get_loop() is not loop:
            begun, self._again, self._heard = loop.create_future(), loop.create_future(), None
            self._begun = begun
            self._tasks.keep("hearing of other receivers", partial(self._hear, self._inbox, begun))
        awaited: set[asyncio.Future[Any]] = {future, begun}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)

    async def _hear(self, inbox: Journal, begun: asyncio.Future[None]) -> None:
        """Read on, as long as anybody waits."""
        seen, is_failing = 0, False
        while self._waiters:
            heard = self._heard
            try:
                seen = await inbox.committed(seen, timeout=self._poll)
                now, events = await inbox.finals_since(heard, self._is_awaited)
            except Exception as error:  # noqa: BLE001 - whatever the reason, those who wait go on waiting
                if not is_failing and self._waiters:  # else the inbox may have been closed meanwhile
                    why = error_text(error)
                    _log.warning("events of other receivers cannot be read: %s", why, extra={"error": why})
                is_failing = True
                await self._sleep(self._poll)
                continue
            for event in events:
                self.announce(event)
            if heard is not None and (now.event < heard.event or now.belief < heard.belief):
                self._look_again()
            self._heard, is_failing = now, False
            if not begun.done():
                begun.set_result(None)
            await self._sleep(_BREATH)
        self._begun = None

    def _is_awaited(self, request_key: str | None, transaction_id: str) -> bool:
        return request_key in self._waiters or transaction_id in self._waiters

    def _look_again(self) -> None:
        """The inbox was put back to what it was before: what is there now has other numbers."""
        again, self._again = self._again, asyncio.get_running_loop().create_future()
        if again is not None:
            again.set_result(None)


E = TypeVar("E", bound=TransactionEvent)
E_co = TypeVar("E_co", bound=TransactionEvent, covariant=True)
R = TypeVar("R", bound=Awaitable[object])
H = TypeVar("H", bound=Callable[[TransactionEvent], Awaitable[object]])
X = TypeVar("X", bound=ErrorHook)
_RAW = "the raw body, in bytes, such as Flask's request.get_data()"


class Registration(Protocol[E_co]):
    """Registers a handler for a kind of event, and gives it back: one of every event as it is, so that it stacks."""

    @overload
    def __call__(self, handler: H, /) -> H: ...
    @overload
    def __call__(self, handler: Callable[[E_co], R], /) -> Callable[[E_co], R]: ...


class Receiver:
    """Takes notifications from known senders, stores them before it answers, and runs handlers.

    Mount it with ``mount(app)``, or by hand with ``app()``, ``asgi()`` or ``wsgi()``. Of any other framework, hand what
    came to ``take()`` and send what it gives. It starts by itself; ``async with receiver:`` or ``aclose()`` drains it
    where no application does.

    Args:
        inbox: A journal. With one, a notification is stored, then answered 200, then handled, with retries; receivers
            that share it share its events, and each hears what the others take (``wait_for``). Without one, handlers
            run before the answer, a failure is answered 500, and memory alone knows a duplicate (of the last 10,000
            transactions) and a final event that came before it was waited for (of the last 1,000).
        senders: Addresses and networks notifications are taken from. None at all refuses everybody.
        trusted_proxies: Addresses and networks of your own proxies; ``"unix:"`` for a Unix socket.
        path_token: An unguessable last segment of the IPN URL; anything else there is 404.
        verifiers: Further proof of the sender; every one must say yes.
        confirm: A session. The transaction is read from the service before an event is believed: until then it settles
            no order, and no handler hears it. With an inbox it waits for that as long as the service cannot be asked.
        policy: How patiently handlers are run, and how many at once.
        settings: Shadow mode, limits of a body, proxy headers, and more.
        testing: Another clock, for tests.

    >>> receiver = Receiver(JOURNAL, trusted_proxies=["10.0.0.5"], path_token="an-unguessable-segment")
    """

    def __init__(
        self,
        inbox: Journal | None = None,
        senders: Iterable[str] = DOCUMENTED_SENDERS,
        trusted_proxies: Iterable[str] = (),
        path_token: str | None = None,
        verifiers: Iterable[Verifier] = (),
        confirm: RecordSource | None = None,
        *,
        policy: HandlerPolicy = HandlerPolicy(),  # noqa: B008 - frozen
        settings: ReceiverSettings = ReceiverSettings(),  # noqa: B008 - frozen
        testing: Testing = NOT_TESTING,
    ) -> None:
        if inbox is not None and (isinstance(inbox, type) or not hasattr(inbox, "receive")):
            given = f"the class {inbox.__name__}" if isinstance(inbox, type) else type(inbox).__name__
            raise TypeError(f"inbox: expected a journal, such as SqliteJournal('payments.sqlite'), not {given}")
        if confirm is not None and not hasattr(confirm, "transactions"):
            raise TypeError(f"confirm: expected the PaymentsSession to ask, not {type(confirm).__name__}")
        check_instance("policy", policy, HandlerPolicy, "HandlerPolicy(...)")
        check_instance("settings", settings, ReceiverSettings, "ReceiverSettings(...)")
        check_instance("testing", testing, Testing, "Testing(now=...)")
        dialect, clock = settings.dialect, testing.now or time.time
        observer = guarded(settings.observer)
        router = EventRouter(concurrency=policy.concurrency, timeout=policy.timeout, observer=observer)
        waiters = Waiters(inbox, poll=policy.poll)
        way: Pipeline
        if inbox is None:
            read = partial(read_notification, timezone=dialect.timezone)
            way = InlinePipeline(
                router=router,
                policy=policy,
                read=read,
                confirm=confirm,
                believed=waiters.announce,
                observer=observer,
            )
        else:
            from payments_async.ipn._durable import DurablePipeline  # it brings the journal

            way = DurablePipeline(
                inbox=inbox,
                router=router,
                policy=policy,
                owner=settings.owner,
                confirm=confirm,
                believed=waiters.announce,
                clock=clock,
                sleep=testing.sleep or asyncio.sleep,
                random=testing.random or chance.random,
                observer=observer,
            )
        self._inbox = inbox
        self._router = router
        self._waiters = waiters
        self._intake = Intake(
            way=way,
            senders=Senders(senders, trusted_proxies, proxy_headers=settings.proxy_headers),
            path_token=path_token,
            verifiers=tuple(verifiers),
            verifier_time=policy.timeout,
            shadow=settings.shadow,
            reported=settings.reported,
            max_body=settings.max_body,
            body_time=settings.body_time,
            refusals=Refusals(clock, observer),
            dialect=dialect,
            clock=clock,
            observer=observer,
        )

    def on(self, kind: type[E], *, when: Callable[[E], bool] | None = None, name: str | None = None) -> Registration[E]:
        """Register an async handler for a kind of event and its subtypes.

        Handlers of one event run side by side. With an inbox a handler may run again for an event whose end was not
        recorded: ``event.fact_id`` stays the same.

        Args:
            when: Says of an event whether this handler wants it.
            name: Kept in the inbox; its module and qualified name by default. Keep it when you move the function.
        """
        check_kind(kind)  # here, for a decorator that lacks its parentheses is never called again

        def register(handler: Any, /) -> Any:
            self._router.add(kind, when, handler, name)
            return handler

        return register

    def error(self, hook: X) -> X:
        """Register a function, async or not, that is told of each handler that failed (``HandlerFailure``).

        It is told at once, of every round, within the time of a handler. What it raises is logged, and changes nothing.
        """
        check_callable("hook", hook, "a function that is told of handlers that failed")
        self._router.error_hooks.append(hook)
        return hook

    @property
    def inbox(self) -> Journal | None:
        """Where notifications are kept; ``None`` where they are not."""
        return self._inbox

    def app(self) -> web.Application:
        """An aiohttp application for ``add_subapp``; it answers with and without a trailing slash."""
        from payments_async.ipn._aiohttp import sub_app

        return sub_app(self._intake)

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

        return AsgiApp(self._intake, path, rewritten=rewritten)

    def wsgi(self, path: str = "", *, rewritten: bool = False, timeout: float = 60.0) -> WsgiApp:
        """A WSGI application, for Flask, Django and their servers. Open the receiver with ``in_thread`` in each worker.

        Args:
            path, rewritten: As of ``asgi``.
            timeout: Seconds until the answer is 503, so that the service sends again.
        """
        from payments_async.ipn._wsgi import WsgiApp

        check_patience("timeout", timeout)
        return WsgiApp(self._intake, path, rewritten=rewritten, timeout=timeout)

    async def take(
        self,
        body: bytes,
        query: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
        peer: str | None,
        *,
        method: str = "POST",
        token: str | None = None,
        certificate: bytes | None = None,
        rewritten: bool = False,
    ) -> Answer:
        """Take one request, whatever framework it came by, and give the answer to send.

        In this sequence: sender, size, verifiers, reading, row in the inbox, 200. Handlers run after the answer;
        without an inbox before it.

        Args:
            body: Raw, as it came.
            query: Raw query string, without the question mark.
            headers: Of the request; pairs where a name may come twice.
            peer: Address of the socket's peer, not one that a header named; ``None`` for a Unix socket.
            method: Anything but POST is answered 405.
            token: Last segment of the path, where the receiver has a ``path_token``.
            certificate: The client's TLS certificate (DER), for a verifier.
            rewritten: Believe ``peer`` though the headers name the same address: a server that you trust put it there.
        """
        check_instance("body", body, bytes, _RAW)
        known, peer = _headers(headers), peer or UNIX_SOCKET
        return await self._intake.receive(
            method, token, body, query, known, peer, lambda: certificate, may_be_rewritten=not rewritten
        )

    def take_sync(
        self,
        body: bytes,
        query: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
        peer: str | None,
        *,
        method: str = "POST",
        token: str | None = None,
        certificate: bytes | None = None,
        rewritten: bool = False,
        timeout: float = 60.0,
    ) -> Answer:
        """As ``take``, from a thread without an event loop: the one that the receiver is open in does the work.

        Args:
            timeout: Seconds until the answer is 503, so that the service sends again.

        Raises:
            RuntimeError: The receiver is not open in this process (``in_thread``), or this thread runs an event loop.
        """
        check_patience("timeout", timeout)
        taken = self.take(
            body,
            query,
            headers,
            peer,
            method=method,
            token=token,
            certificate=certificate,
            rewritten=rewritten,
        )
        return self._intake.in_loop(taken, timeout)

    async def verify_sender(
        self,
        body: bytes,
        query: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
        peer: str | None,
        *,
        token: str | None = None,
        certificate: bytes | None = None,
        rewritten: bool = False,
    ) -> str:
        """Check who sent a request, and nothing else: its sender's address. ``take`` does this first.

        Then ``read_notification`` gives the event, and ``answer`` what to send once you have stored it. ``shadow`` does
        not count here.

        Args:
            body, query, headers, peer, token, certificate, rewritten: As of ``take``.

        Raises:
            RequestRefused: Send its ``answer``.
        """
        check_instance("body", body, bytes, _RAW)
        intake, known, peer = self._intake, _headers(headers), peer or UNIX_SOCKET
        sender = intake.screen("POST", token, peer, known, may_be_rewritten=not rewritten)
        if not isinstance(sender, Answer) and len(body) > intake.max_body:
            sender = TOO_LARGE
        if not isinstance(sender, Answer) and intake.verifies:
            sender = await intake.verify(sender, body, query, known, peer, lambda: certificate)
        if isinstance(sender, Answer) or not sender.is_known:
            raise RequestRefused(sender if isinstance(sender, Answer) else FORBIDDEN)
        return sender.address

    def answer(self, event: TransactionEvent) -> Answer:
        """The 200 that tells the service that an event was taken. Send it once the event is on disk."""
        return self._intake.answer(event)

    @contextmanager
    def in_thread(self, *before: AbstractAsyncContextManager[Any]) -> Iterator[Self]:
        """Open the receiver in an event loop in a thread of its own, for a synchronous application.

        Args:
            before: What is opened before it, in this sequence, and closed after it: its journal, a session.
        """
        with in_thread(*before, self):
            yield self

    def mount(self, app: Any, path: str = "/ipn") -> None:
        """Answer below a path of an application, and start and end with it. Before the application starts.

        With Starlette and FastAPI it starts after what the lifespan of yours opens, and is drained before that closes.

        Args:
            app: An aiohttp ``web.Application``, or an application of Starlette or FastAPI.
            path: Answered with and without a trailing slash.

        Raises:
            TypeError: It is none of these.
            ValueError: The path is that of the whole application.
        """
        path = "/" + path.strip("/")
        if path == "/":
            raise ValueError("path: name one below the application's, such as '/ipn'")
        if hasattr(app, "add_subapp"):
            from payments_async.ipn import _aiohttp

            _aiohttp.mount(app, path, self._intake)
        elif hasattr(getattr(app, "router", None), "lifespan_context"):
            from payments_async.ipn._asgi import mount

            mount(app, path, self.asgi(path), self.asgi(), self)
        else:
            kind = type(app).__name__
            raise TypeError(f"app: an aiohttp web.Application, or one of Starlette or FastAPI, not {kind}")

    @property
    def quirks_met(self) -> Mapping[str, str]:
        """As ``PaymentsSession.quirks_met``, of notifications."""
        return dict(self._intake.quirks.met)

    def start(self) -> None:
        """Begin to handle what the inbox holds. The first notification does it too."""
        self._intake.start()

    async def aclose(self) -> None:
        """Stop, and wait for handlers under way; what has not begun stays in the inbox."""
        await self._intake.way.aclose()
        await self._waiters.aclose()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

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
            TimeoutError: When it did not come in time. That is not an outcome.
        """
        if timeout is not None:
            check_patience("timeout", timeout)
        wanted = check_filled("request_id", request_id)
        known = None if transaction_id is None else plain_transaction_id(transaction_id)
        look_up = self._intake.way.final_events
        try:
            async with asyncio.timeout(timeout):
                return await self._waiters.wait(wanted, transaction_id=known, when=when, look_up=look_up)
        except TimeoutError as error:
            words = f"no final notification of order {wanted} came within {timeout} s; it may come at any time"
            raise TimeoutError(words) from error

    async def replay(self, event_id: int | None = None) -> int:
        """Handle one dead letter again, or all of them, and tell how many.

        Raises:
            ValueError: Without an inbox.
        """
        return await self._intake.way.replay(event_id)

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
        return self._intake.senders.check(peer, headers).why

    async def health(self) -> ReceiverHealth:
        """How much is waiting, and what is wrong.

        After a delivery could not be stored, this tries whether the journal can be written again.
        """
        return await self._intake.way.health()

    def refusals(self) -> Sequence[Refusal]:
        """The senders that this receiver refused, why and how often; the most frequent first."""
        return self._intake.refusals.all()


def _headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> MultiMapping[str]:
    """Headers whose names have no case, from whatever a framework has."""
    return headers if isinstance(headers, CIMultiDict | CIMultiDictProxy) else CIMultiDict(headers)


def intake_of(receiver: Receiver) -> Intake:
    """What the faces of a receiver hand requests to."""
    return receiver._intake

"""An HTTP server with limits on slow senders, for a receiver alone or for the aiohttp application it is mounted in."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import attrs
from aiohttp import web

from payments_async._values.tasks import Tasks
from payments_async.ipn._aiohttp import notify, peer_of, written
from payments_async.ipn._intake import Intake
from payments_async.ipn._receiver import Receiver, intake_of
from payments_async.ipn._senders import Senders
from payments_async.ipn._settings import ServerLimits

_Left = Callable[[], None]
_log = logging.getLogger("payments_async.ipn")
_BACKLOG = 512  # connections waiting to be accepted
_SHUTDOWN = 10.0  # seconds that a shutdown waits for answers under way
_LINGERING = 2.0  # seconds that the rest of a refused body is read for, so that its sender reads the refusal


@asynccontextmanager
async def serving(
    served: Receiver | web.Application,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    path: str = "/ipn",
    tls: ssl.SSLContext | None = None,
    limits: ServerLimits = ServerLimits(),  # noqa: B008 - frozen
    access_log: logging.Logger | None = None,
) -> AsyncIterator[tuple[str, int]]:
    """Serve while the block runs; gives the address it listens on, then drains.

    Of a receiver that is served alone, connections are taken from its senders, its trusted proxies and the visitors;
    anybody else is hung up on before anything of him is read. What it hung up on is in ``receiver.refusals()``. An
    application has other callers too: there a stranger's connection ends with the 403 that answers him.

    Args:
        served: A receiver, or an aiohttp application that one is mounted in: aiohttp's own servers set no limit to the
            time that headers take.
        port: 0 takes a free one.
        path: Where notifications go, for a receiver; ``/`` for the root.
        tls: Ends TLS here. ``verify_mode = ssl.CERT_REQUIRED`` asks clients for a certificate.
        limits: Connections, and the time that headers may take.
        access_log: Where aiohttp logs every request: with its query, and so with account, amount and path token.

    Raises:
        TypeError, ValueError: For an argument that cannot be right; it names which.
        OSError: When the address cannot be listened on.
    """
    intake = intake_of(served) if isinstance(served, Receiver) else None
    runner, tasks = _runner(served, path), Tasks(f"the server of {path}")
    guard = _guard(intake, limits)

    def connection(left: _Left) -> _Connection:
        return _Connection(
            _server(runner),
            left=left,
            keepalive=limits.keepalive,
            access_log=access_log,
            decodes=intake is None,
            refuse=guard.refuse,
        )

    listening = await asyncio.get_running_loop().create_server(
        lambda: _GuardedProtocol(guard, connection, tls=tls, handshake_time=limits.header_time, tasks=tasks),
        host,
        port,
        backlog=_BACKLOG,
        start_serving=False,
    )
    try:  # an application starts when the port is ours: its receiver takes back what one of its name held
        await runner.setup()
        _watch(_server(runner))
        if intake is not None:
            intake.start()
        await listening.start_serving()
        tasks.keep("guard against slow senders", partial(_cut_off, _server(runner), limits.header_time))
        address = listening.sockets[0].getsockname()
        yield str(address[0]), int(address[1])
    finally:
        listening.close()
        try:
            await runner.cleanup()  # runs what the application has to clean up, which may fail
        finally:
            await tasks.aclose()
            if intake is not None:
                await intake.way.aclose()


async def serve(
    served: Receiver | web.Application,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    path: str = "/ipn",
    tls: ssl.SSLContext | None = None,
    limits: ServerLimits = ServerLimits(),  # noqa: B008 - frozen
    access_log: logging.Logger | None = None,
    stop_on: Iterable[signal.Signals] = (),
    started: Callable[[str, int], object] = lambda host, port: None,
) -> None:
    """Serve until cancelled or told to stop; then finish what is under way. Other arguments are those of ``serving``.

    Args:
        stop_on: Signals that end it, such as ``(signal.SIGTERM,)``; only in the main thread, and not on Windows. Under
            ``asyncio.run`` SIGINT cancels it anyhow.
        started: Told host and port once it listens.
    """
    if isinstance(stop_on, int):
        raise TypeError("stop_on: a collection of signals, such as (signal.SIGTERM,)")
    loop, stopped, signals = asyncio.get_running_loop(), asyncio.Event(), tuple(stop_on)
    async with serving(
        served,
        host,
        port,
        path=path,
        tls=tls,
        limits=limits,
        access_log=access_log,
    ) as address:
        for one in signals:
            loop.add_signal_handler(one, stopped.set)
        try:
            started(*address)
            await stopped.wait()
        finally:
            for one in signals:
                loop.remove_signal_handler(one)


def _guard(intake: Intake | None, limits: ServerLimits) -> _Guard:
    """Who gets a connection: anybody of an application, of a receiver alone those who can bring something."""
    most, each = limits.connections, limits.connections_each
    if intake is None:
        return _Guard(admits=lambda _: True, counts=lambda _: True, most=most, each=each, refuse=_log_refusal)
    known = Senders(limits.visitors)
    return _Guard(
        admits=lambda address: known.may_connect(address) or intake.admits(address),
        counts=lambda address: not intake.senders.trusts(address),
        most=most,
        each=each or max(1, most // 4),
        refuse=partial(intake.refusals.note, message="a connection is refused"),
    )


def _log_refusal(address: str, why: str) -> None:
    _log.debug("a connection is refused: %s: %s", address, why, extra={"sender": address, "why": why})


def _runner(served: Receiver | web.Application, path: str) -> web.BaseRunner:
    """What serves either of the two."""
    if isinstance(served, Receiver):
        return web.ServerRunner(
            web.Server(_handler(intake_of(served), "/" + path.strip("/"))), shutdown_timeout=_SHUTDOWN
        )
    if isinstance(served, web.Application):
        return web.AppRunner(served, shutdown_timeout=_SHUTDOWN)
    raise TypeError(f"served: a Receiver or an aiohttp.web.Application, not {type(served).__name__}")


def _handler(intake: Intake, path: str) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """The paths of the receiver's sub-app, without a router: there are only two."""
    depth = 0 if path == "/" else path.count("/")
    with_token = intake.path_token is not None

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        segments = request.raw_path.partition("?")[0].rstrip("/").split("/")[1:]
        rest = segments[depth:]
        is_ours = not depth or "/".join(["", *segments[:depth]]) == path
        token = rest.pop(0) if is_ours and with_token and rest else None
        if is_ours and rest == ["health"] and request.method in ("GET", "HEAD"):
            return await written(request, await intake.health(token))
        if rest or not is_ours:
            intake.refusals.note(peer_of(request), "it asks for another path than that of notifications")
            return web.Response(status=404)
        return await notify(intake, request, token)

    return handle


@attrs.define(eq=False, repr=False, kw_only=True)
class _Guard:
    """Decides who gets a connection at all, before a byte of it is read: it counts them, and lets in only so many.

    Attributes:
        admits: Whether an address may come in at all.
        counts: Whether the connections of an address are counted: those through a proxy are many people's.
        most: Connections at once.
        each: Connections at once of one address; ``None`` sets no limit.
        refuse: Told of each one that is hung up on, and why.
    """

    _admits: Callable[[str], bool]
    _counts: Callable[[str], bool]
    _most: int
    _each: int | None
    refuse: Callable[[str, str], None]
    _all: int = attrs.field(default=0, init=False)
    _by_address: dict[str, int] = attrs.field(factory=dict, init=False)

    def enter(self, address: str) -> _Left | None:
        """Let somebody in: gives what is to be called once he has left, or ``None`` if he has to stay outside."""
        why = self._objection(address)
        if why is not None:
            self.refuse(address, why)
            return None
        self._all += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        return partial(self._leave, address)

    def _objection(self, address: str) -> str | None:
        """Why somebody has to stay outside, if he has to."""
        if not self._admits(address):
            return "hung up on: neither a known sender nor a trusted proxy"
        if self._all >= self._most:
            return f"hung up on: there are {self._most} connections already"
        if self._each is not None and self._by_address.get(address, 0) >= self._each and self._counts(address):
            return f"hung up on: it has {self._each} connections already"
        return None

    def _leave(self, address: str) -> None:
        self._all -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]


class _GuardedProtocol(asyncio.Protocol):
    """The first protocol of a connection: hangs up, or hands over to the one that serves it, after TLS if there is any.

    Args:
        make: Makes the protocol that serves; it calls its argument when the connection is lost.
    """

    def __init__(
        self,
        guard: _Guard,
        make: Callable[[_Left], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None,
        handshake_time: float,
        tasks: Tasks,
    ) -> None:
        self._guard = guard
        self._make = make
        self._tls = tls
        self._handshake_time = handshake_time
        self._tasks = tasks
        self._early: list[bytes] = []
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        served = cast("asyncio.Transport", transport)  # by what it does: those of uvloop are of no class of asyncio's
        peer = served.get_extra_info("peername")
        left = None if peer is None else self._guard.enter(str(peer[0]))  # None: it is gone already
        if left is None:
            served.abort()
        elif self._tls is None:
            _hand_over(served, self._make(left))
        else:
            self._tasks.start("handshake", self._secure(served, self._tls, left))

    def data_received(self, data: bytes) -> None:
        self._early.append(data)  # what came with the end of the handshake

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext, left: _Left) -> None:
        """Shake hands, then hand over together with what came in the meantime."""
        secured: asyncio.Transport | None = None
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=self._handshake_time
            )
        except (OSError, ssl.SSLError):  # no TLS, too slow, or gone
            transport.abort()
        finally:
            if secured is None or self._is_lost:
                left()
        if secured is not None and not self._is_lost:
            serving = self._make(left)
            _hand_over(secured, serving)
            for data in self._early:
                serving.data_received(data)


def _hand_over(transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
    transport.set_protocol(protocol)
    protocol.connection_made(transport)


class _Connection(web.RequestHandler):
    """A connection that remembers since when it owes us the end of some headers."""

    def __init__(
        self,
        server: web.Server,
        *,
        left: _Left,
        keepalive: float,
        access_log: logging.Logger | None,
        decodes: bool,
        refuse: Callable[[str, str], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=keepalive,
            lingering_time=_LINGERING,
            auto_decompress=decodes,  # the receiver refuses every coding
            access_log=access_log,  # type: ignore[arg-type]  # it may be None, though it is not typed so
        )
        self._left = left
        self._refuse = refuse
        self._now = loop.time
        self._busy = False
        self.owes_since: float | None = loop.time()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._left()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if data and self.owes_since is None and not self._busy:  # aiohttp itself calls this with nothing
            self.owes_since = self._now()
        super().data_received(data)

    def cut_off(self) -> None:
        """Close it, and wait for nobody who does not read."""
        if self.transport is not None and self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.force_close()

    def has_headers(self) -> None:
        """A request is complete but for its body."""
        self.owes_since = None
        self._busy = True

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Refuse what is not readable as HTTP. aiohttp logs its bytes, and a whole notification may be among them."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        self._refuse(peer_of(request), "it is not readable as HTTP")
        answer = web.Response(status=status)
        answer.force_close()
        return answer

    def log_access(self, request: web.BaseRequest, response: web.StreamResponse, time: float | None) -> None:
        self._busy = False  # aiohttp calls this once an answer is written
        super().log_access(request, response, time)


def _server(runner: web.BaseRunner) -> web.Server:
    server = runner.server
    assert server is not None, "it is set up"
    return server


def _watch(server: web.Server) -> None:
    """Let the server tell its connections when the headers of a request have come."""
    make = server.request_factory

    def made(message: Any, payload: Any, protocol: _Connection, *rest: Any) -> web.BaseRequest:
        protocol.has_headers()
        return make(message, payload, protocol, *rest)

    server.request_factory = made  # type: ignore[assignment]


async def _cut_off(server: web.Server, header_time: float) -> None:
    """Close, again and again, the connections whose headers do not end."""
    now = asyncio.get_running_loop().time
    pause = header_time / 4
    while True:
        # Reckoned before the pause: where the loop was held up in it, nobody could send or be read meanwhile.
        latest = now() - (header_time - pause)
        await asyncio.sleep(pause)
        for connection in server.connections:
            if isinstance(connection, _Connection) and (since := connection.owes_since) is not None and since < latest:
                connection.cut_off()

"""A small HTTP server for one receiver, with limits on slow senders. For a receiver that lives in no application."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from aiohttp import web

from payments_async.ipn._aiohttp import health, notify
from payments_async.ipn._receiver import Receiver
from payments_async.ipn._tasks import Tasks

__all__ = ["serve", "serving"]

_BACKLOG = 512  # connections waiting to be accepted
_SHUTDOWN = 10.0  # seconds that a shutdown waits for answers under way
_LINGERING = 2.0  # seconds that the rest of a refused body is read for, so that its sender reads the refusal


@asynccontextmanager
async def serving(
    receiver: Receiver,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    path: str = "/ipn",
    tls: ssl.SSLContext | None = None,
    header_time: float = 10.0,
    keepalive: float = 75.0,
    connections: int = 1000,
) -> AsyncIterator[tuple[str, int]]:
    """Serve a receiver while the block runs; gives the address it listens on, then drains.

    Args:
        port: 0 takes a free one.
        path: Where notifications go; ``/`` for the root.
        tls: Ends TLS here. ``verify_mode = ssl.CERT_REQUIRED`` asks clients for a certificate.
        header_time: Seconds from a request's first byte, or a connection's beginning, to the end of its headers.
        keepalive: Seconds that a connection may be idle between two requests.
        connections: Most connections at once; a further one is closed.
    """
    server = _watched(web.Server(_handler(receiver, "/" + path.strip("/"))))
    tasks = Tasks()
    listening = await asyncio.get_running_loop().create_server(
        lambda: _Connection(server, most=connections, keepalive=keepalive), host, port, ssl=tls, backlog=_BACKLOG,
        ssl_handshake_timeout=None if tls is None else header_time,
    )  # fmt: skip
    try:
        receiver.start()
        tasks.start(_cut_off(server, header_time))
        address = listening.sockets[0].getsockname()
        yield str(address[0]), int(address[1])
    finally:
        listening.close()
        await asyncio.sleep(0)  # what was accepted begins
        server.pre_shutdown()
        await server.shutdown(_SHUTDOWN)
        await tasks.cancel()
        await receiver.close()


async def serve(
    receiver: Receiver,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    path: str = "/ipn",
    tls: ssl.SSLContext | None = None,
    header_time: float = 10.0,
    keepalive: float = 75.0,
    connections: int = 1000,
    started: Callable[[str, int], object] = lambda host, port: None,
) -> NoReturn:
    """Serve a receiver until cancelled; then finish what is under way. Arguments are those of ``serving``.

    Args:
        started: Told host and port once it listens.
    """
    async with serving(
        receiver, host, port, path=path, tls=tls, header_time=header_time, keepalive=keepalive, connections=connections
    ) as address:
        started(*address)
        await asyncio.Event().wait()  # for ever: nobody sets it
        raise AssertionError("nobody sets it")


def _handler(receiver: Receiver, path: str) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """The paths of the receiver's sub-app, without a router: there are only two."""
    depth = 0 if path == "/" else path.count("/")
    with_token = receiver.path_token is not None

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        segments = request.raw_path.partition("?")[0].rstrip("/").split("/")[1:]
        rest = segments[depth:]
        if depth and "/".join(["", *segments[:depth]]) != path:
            return web.Response(status=404)
        token = rest.pop(0) if with_token and rest else None
        if rest == ["health"] and request.method in ("GET", "HEAD"):
            return await health(receiver, request, token)
        return web.Response(status=404) if rest else await notify(receiver, request, token)

    return handle


class _Connection(web.RequestHandler):
    """A connection that remembers since when it owes us the end of some headers."""

    def __init__(self, server: web.Server, *, most: int, keepalive: float) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=keepalive,
            lingering_time=_LINGERING,
            access_log=None,  # type: ignore[arg-type]  # documented, though not typed so
        )
        self._server = server
        self._most = most
        self._now = loop.time
        self._busy = False
        self.owes_since: float | None = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._server.connections) > self._most:
            self.force_close()

    def data_received(self, data: bytes) -> None:
        if data and self.owes_since is None and not self._busy:  # aiohttp itself calls this with nothing
            self.owes_since = self._now()
        super().data_received(data)

    def has_headers(self) -> None:
        """A request is complete but for its body."""
        self.owes_since = None
        self._busy = True

    def log_access(self, request: web.BaseRequest, response: web.StreamResponse, time: float | None) -> None:
        self._busy = False  # aiohttp calls this once an answer is written


def _watched(server: web.Server) -> web.Server:
    """Let the server tell its connections when the headers of a request have come."""
    make = server.request_factory

    def made(message: Any, payload: Any, protocol: _Connection, *rest: Any) -> web.BaseRequest:
        protocol.has_headers()
        return make(message, payload, protocol, *rest)

    server.request_factory = made  # type: ignore[assignment]
    return server


async def _cut_off(server: web.Server, header_time: float) -> None:
    """Close, again and again, the connections whose headers do not end."""
    now = asyncio.get_running_loop().time
    while True:
        await asyncio.sleep(header_time / 4)
        latest = now() - header_time
        for connection in server.connections:
            if isinstance(connection, _Connection) and (since := connection.owes_since) is not None and since < latest:
                connection.force_close()

"""The receiver as an aiohttp sub-application: bytes in, answers out."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from functools import partial
from typing import Any, ClassVar

from aiohttp import web
from multidict import CIMultiDict

from payments_async.ipn._intake import TOO_LARGE, TOO_SLOW, UNREADABLE, Answer, Intake
from payments_async.ipn._senders import UNIX_SOCKET

# an older aiohttp reads on, however many requests of a connection wait; they are kept in memory
_QUEUES_FOR_EVER = not hasattr(web.RequestHandler, "_buffer_paused")
_MOST_WAITING = 200  # requests of one connection
_MOST_UNREAD = 64 * 1024  # bytes of answers that wait for a caller to read them; above it asyncio pauses writing
_JSON = CIMultiDict({"Content-Type": "application/json"})


def sub_app(intake: Intake) -> web.Application:
    """An application that starts the receiver and drains it at the end."""
    app = web.Application()
    mount(app, "", intake)
    return app


def mount(app: web.Application, below: str, intake: Intake) -> None:
    """Let an application answer below a path, start the receiver and drain it at the end.

    With routes of its own: aiohttp looks for a sub-application and then for its route, at a tenth of a notification.
    """
    with_token = intake.path_token is not None

    async def guarded(request: web.Request) -> web.StreamResponse:
        return await notify(intake, request, request.match_info["token"])

    notifications = guarded if with_token else partial(notify, intake)

    async def healthy(request: web.Request) -> web.StreamResponse:
        return await written(request, await intake.health(request.match_info.get("token")))

    for path in ("/{token}", "/{token}/") if with_token else ("", "/"):
        app.router.add_route("*", below + path, notifications)
    app.router.add_get(below + ("/{token}/health" if with_token else "/health"), healthy)

    async def start(_: web.Application) -> None:
        intake.start()

    async def drain(_: web.Application) -> None:
        await intake.way.aclose()

    app.on_startup.append(start)  # after all of `cleanup_ctx`, where the journal may be opened
    app.on_cleanup.append(drain)


def peer_of(request: web.BaseRequest) -> str:
    """Address of the socket's peer, whatever headers and middlewares say."""
    transport = request.transport
    if transport is None:
        return "nobody"  # who has hung up is not an address, and so refused
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else UNIX_SOCKET


async def notify(intake: Intake, request: web.BaseRequest, token: str | None = None) -> web.StreamResponse:
    """Answer a request for the IPN path."""
    transport = request.transport
    if transport is not None:
        if _QUEUES_FOR_EVER:
            _pace(request.protocol, transport)
        if transport.get_write_buffer_size() > _MOST_UNREAD and not await _is_read(request, intake.body_time):
            return web.Response(status=TOO_SLOW.status)  # to nobody
    peer = peer_of(request)
    headers = request.headers
    sender = intake.screen(request.method, token, peer, headers)
    if isinstance(sender, Answer):
        return await written(request, sender)
    content = request.content
    body: bytes | Answer
    if content.is_eof() and content.exception() is None:  # all of it is here: no timer is needed
        body = content.read_nowait() or await request.read()  # aiohttp keeps what a middleware has read
    else:
        body = await _body(request, intake.max_body, intake.body_time)
        if isinstance(body, Answer):
            return await written(request, body)
    query = request.raw_path.partition("?")[2]
    certificate = partial(_certificate, request) if intake.verifies else None
    taken = await intake.take(sender, body, query, headers, peer, certificate)
    if isinstance(taken, Answer):
        return await written(request, taken)
    return TakenResponse(body=intake.message(taken), headers=_JSON)


class TakenResponse(web.Response):
    """The answer to a notification that was taken, written in one piece: a fifth more notifications a second.

    Where a middleware added a header or an application listens to ``on_response_prepare``, aiohttp writes it.
    """

    _date: ClassVar[tuple[int, bytes]] = (0, b"")
    _quick = False

    async def prepare(self, request: web.BaseRequest) -> Any:
        """Write headers and body, or let aiohttp do it."""
        transport = request.transport
        if transport is None or len(self.headers) != 1 or request.version != (1, 1) or _is_watched(request):
            return await super().prepare(request)
        if not self._quick:
            self._quick = True
            self._stays = request.keep_alive
            body: bytes = self.body  # type: ignore[assignment]
            transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b%b\r\n%b"
                % (len(body), self._dated(), b"" if self._stays else b"Connection: close\r\n", body)
            )
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""
        if not self._quick:
            await super().write_eof(data)

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection stays."""
        return self._stays if self._quick else super().keep_alive

    @property
    def body_length(self) -> int:
        """For the access log."""
        return len(self.body) if self._quick else super().body_length  # type: ignore[arg-type]

    @classmethod
    def _dated(cls) -> bytes:
        second = int(time.time())
        if second != cls._date[0]:
            cls._date = (second, f"Date: {formatdate(second, usegmt=True)}\r\n".encode())
        return cls._date[1]


async def _is_read(request: web.BaseRequest, seconds: float) -> bool:
    """Whether the caller reads the answers to what he sent before; until then he is not read from either."""
    protocol, transport = request.protocol, request.transport
    if transport is None:
        return False
    transport.pause_reading()
    try:
        async with asyncio.timeout(seconds):
            await request.writer.drain()
    except TimeoutError:
        transport.abort()  # closing it would wait for him to read
        return False
    if not _is_held(protocol):
        transport.resume_reading()
    return True


def _pace(protocol: Any, transport: asyncio.Transport) -> None:
    """Read no further while many requests of one connection wait."""
    waiting = len(protocol._messages)
    if waiting > _MOST_WAITING:
        transport.pause_reading()
    elif waiting < _MOST_WAITING // 2 and not transport.is_reading() and not _is_held(protocol):
        transport.resume_reading()


def _is_held(protocol: Any) -> bool:
    """Whether aiohttp itself has stopped reading."""
    return bool(protocol._reading_paused or getattr(protocol, "_buffer_paused", False))


def _is_watched(request: web.BaseRequest) -> bool:
    """Whether an application around us listens to ``on_response_prepare``."""
    if isinstance(request, web.Request):
        for app in request.match_info.apps:
            if app.on_response_prepare:
                return True
    return False


async def _body(request: web.BaseRequest, longest: int, seconds: float) -> bytes | Answer:
    """The body, or why there is none."""
    content = request.content
    try:
        if (request.content_length or 0) > longest:
            return TOO_LARGE
        chunks, size = [], 0
        async with asyncio.timeout(seconds):
            while not content.at_eof():
                chunks.append(await content.readany())
                size += len(chunks[-1])
                if size > longest:
                    return TOO_LARGE
        return b"".join(chunks)
    except TimeoutError:
        return TOO_SLOW
    except Exception:  # noqa: BLE001 - a coding that cannot be undone, a chunk that is none, a sender who hung up
        return UNREADABLE


async def written(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    """The response that says an answer; where it is to hang up, that is done here."""
    response = web.Response(status=answer.status, body=answer.body, headers=answer.headers)
    if answer.closes:
        response.force_close()
    if answer.hang_up:
        await response.prepare(request)
        await response.write_eof()
        request.protocol.force_close()  # or aiohttp would go on listening for the rest
        if request.transport is not None and request.transport.get_write_buffer_size():
            request.transport.abort()
    return response


def _certificate(request: web.BaseRequest) -> bytes | None:
    tls = None if request.transport is None else request.transport.get_extra_info("ssl_object")
    certificate: bytes | None = None if tls is None else tls.getpeercert(binary_form=True)
    return certificate

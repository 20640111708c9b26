"""A notification with a content coding is refused at its headers: a few bytes could be seconds of work."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from payments_async.ipn import Receiver, serving

HEADERS = (
    b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Encoding: %b\r\nContent-Length: 1000000\r\n\r\n"  # and no body as yet
)
Serve = Callable[[Receiver], AbstractAsyncContextManager[tuple[str, int]]]


@asynccontextmanager
async def mounted(receiver: Receiver) -> AsyncIterator[tuple[str, int]]:
    """In an application on aiohttp's own server."""
    app = web.Application()
    app.add_subapp("/ipn", receiver.app())
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0]
    await runner.cleanup()


@asynccontextmanager
async def alone(receiver: Receiver) -> AsyncIterator[tuple[str, int]]:
    """On the server with limits."""
    async with serving(receiver, port=0) as address:
        yield address


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"GZIP ", b"x-gzip", b"identity, gzip"])
@pytest.mark.parametrize("serve", [mounted, alone])
async def test_a_coded_body_is_refused_before_it_came(serve: Serve, coding: bytes) -> None:
    """415, and the connection is closed: there is nothing to wait for."""
    async with serve(Receiver(senders=["127.0.0.1"])) as address, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HEADERS % coding)
        answer = await reader.read()
        assert b"415" == answer.split()[1]
        writer.close()
        with suppress(ConnectionError):  # it was cut off, which is the point
            await writer.wait_closed()


async def test_a_coded_body_is_left_alone_by_the_asgi_application() -> None:
    """It reads nothing of it, and asks the server to close."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        raise AssertionError("nothing is to be read")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "client": ("127.0.0.1", 1),
        "headers": [(b"content-encoding", b"gzip")],
    }
    async with Receiver(senders=["127.0.0.1"]) as receiver:
        await receiver.asgi()(scope, receive, send)  # type: ignore[arg-type]
    assert (415, True) == (sent[0]["status"], (b"connection", b"close") in sent[0]["headers"])


async def test_a_stranger_learns_nothing_of_codings() -> None:
    """He is refused as ever, whatever he sends."""
    async with alone(Receiver(senders=["10.0.0.1"])) as address, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(*address)
        body = gzip.compress(b"0" * 10_000_000)
        writer.write(b"POST /ipn HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Encoding: gzip\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        assert b"403" == (await reader.read()).split()[1]
        writer.close()
        with suppress(ConnectionError):  # it was cut off, which is the point
            await writer.wait_closed()

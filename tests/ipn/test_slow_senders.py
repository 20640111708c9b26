"""Fifty slow senders at once, over real sockets, at each server: they are cut off, and they stop nobody."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count

import pytest
from aiohttp import web
from ipn.notifications import notification

from payments_async.ipn import Receiver, ReceiverSettings, ServerLimits, serving

SLOW = 50
HEADER_TIME, BODY_TIME = 0.4, 0.4  # seconds
PAUSE = 0.05  # seconds between two bytes of a slow sender: he is never silent for long
PATIENCE = 60.0  # seconds: nobody is waited for any longer
BODY = notification()
HEADERS = b"POST /ipn HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * 2000
FIRST_PART = b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + b" " * 1900


@asynccontextmanager
async def own_server(receiver: Receiver) -> AsyncIterator[int]:
    """The package's own server."""
    async with serving(receiver, port=0, limits=ServerLimits(header_time=HEADER_TIME)) as (_, port):
        yield port


@asynccontextmanager
async def sub_app(receiver: Receiver) -> AsyncIterator[int]:
    """The sub-app in an application that aiohttp serves."""
    outer = web.Application()
    outer.add_subapp("/ipn", receiver.app())
    runner = web.AppRunner(outer, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def sub_app_at_our_own_server(receiver: Receiver) -> AsyncIterator[int]:
    """The sub-app in an application that the package's own server serves."""
    outer = web.Application()
    outer.add_subapp("/ipn", receiver.app())
    async with serving(outer, port=0, limits=ServerLimits(header_time=HEADER_TIME)) as (_, port):
        yield port


@asynccontextmanager
async def under_uvicorn(receiver: Receiver) -> AsyncIterator[int]:
    """The ASGI application in a real server."""
    uvicorn = pytest.importorskip("uvicorn")
    settings = uvicorn.Config(receiver.asgi("/ipn"), port=0, proxy_headers=False, log_config=None, access_log=False)
    server = uvicorn.Server(settings)
    running = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


Server = Callable[[Receiver], AbstractAsyncContextManager[int]]
OWN_SERVERS = (own_server, sub_app_at_our_own_server)
SERVERS = (*OWN_SERVERS, sub_app, under_uvicorn)


async def all_that_comes(reader: asyncio.StreamReader) -> bytes:
    """What can be read until the end, however it ends."""
    come = b""
    with suppress(ConnectionError):
        while piece := await reader.read(1000):
            come += piece
    return come


async def dribble(port: int, text: bytes) -> bytes:
    """Send the last bytes one by one until the server has had enough; all that it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = asyncio.ensure_future(all_that_comes(reader))
    try:
        writer.write(text[:-100])
        for byte in text[-100:]:
            await asyncio.wait({said}, timeout=PAUSE)
            if said.done() or writer.is_closing():
                break
            writer.write(bytes([byte]))
        return await said
    finally:
        said.cancel()
        writer.close()


async def genuine(port: int, name: str) -> bytes:
    """A whole notification over a connection of its own, and the first line of the answer."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = notification(name)
        writer.write(b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        line = await reader.readline()
        writer.close()
        return line


async def answered_meanwhile(port: int, slow: list[asyncio.Task[bytes]], enough: int) -> set[bytes]:
    """What genuine senders hear, one after the other, until the slow ones are gone or there have been enough."""
    heard = set()
    for number in count():
        heard.add(await genuine(port, f"t-{number}"))
        if all(task.done() for task in slow) or number >= enough:
            return heard
        await asyncio.sleep(0.01)
    raise AssertionError("it ends above")


@pytest.mark.parametrize("server", SERVERS)
async def test_fifty_senders_of_slow_bodies(server: Server) -> None:
    """Each is told 408 and hung up on; meanwhile every genuine sender is answered."""
    async with (
        server(Receiver(senders=["127.0.0.1"], settings=ReceiverSettings(body_time=BODY_TIME))) as port,
        asyncio.timeout(2 * PATIENCE),
    ):
        async with asyncio.TaskGroup() as group:
            slow = [group.create_task(dribble(port, FIRST_PART + b" " * 100)) for _ in range(SLOW)]
            assert {b"HTTP/1.1 200 OK\r\n"} == await answered_meanwhile(port, slow, 1000)
        # who writes just as he is hung up on does not hear why
        assert {b"HTTP/1.1 408", b""} >= {task.result()[:12] for task in slow}


@pytest.mark.parametrize("server", OWN_SERVERS)
async def test_fifty_senders_of_slow_headers_at_our_own_server(server: Server) -> None:
    """Each is hung up on without a word; meanwhile every genuine sender is answered."""
    async with server(Receiver(senders=["127.0.0.1"])) as port, asyncio.timeout(2 * PATIENCE):
        async with asyncio.TaskGroup() as group:
            slow = [group.create_task(dribble(port, HEADERS)) for _ in range(SLOW)]
            assert {b"HTTP/1.1 200 OK\r\n"} == await answered_meanwhile(port, slow, 1000)
        assert {b""} == {task.result() for task in slow}


@pytest.mark.parametrize("server", [sub_app, under_uvicorn])
async def test_fifty_senders_of_slow_headers_at_a_server_of_others(server: Server) -> None:
    """How long headers may take is that server's affair: the receiver hears of them once they end. They stop nobody."""
    async with server(Receiver(senders=["127.0.0.1"])) as port, asyncio.timeout(2 * PATIENCE):
        slow = [asyncio.ensure_future(dribble(port, HEADERS)) for _ in range(SLOW)]
        try:
            assert {b"HTTP/1.1 200 OK\r\n"} == await answered_meanwhile(port, slow, 50)
        finally:
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

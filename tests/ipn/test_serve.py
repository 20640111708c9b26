"""The server of its own: its limits on slow senders, its shutdown, and the applications it serves."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable

import pytest
from aiohttp import ClientSession, web
from ipn.memory_inbox import MemoryInbox
from ipn.notifications import notification

from payments_async import journal
from payments_async.ipn import Receiver, TransactionEvent, TransactionSucceeded, serve, serving

BODY = notification()
STOP = signal.SIGUSR1
HEAD = b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(BODY)


def alone(receiver: Receiver) -> Receiver:
    """Served as it is."""
    return receiver


def mounted(receiver: Receiver) -> web.Application:
    """In an application."""
    app = web.Application()
    app.add_subapp("/ipn", receiver.app())
    return app


async def post(port: int) -> bytes:
    """A whole notification, and the first line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD + b"\r\n" + BODY)
    line = await reader.readline()
    writer.close()
    return line


async def dribble(port: int, text: bytes) -> bytes:
    """Send a byte now and then, until the server has had enough; everything it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = asyncio.ensure_future(reader.read())
    try:
        for byte in text:
            if said.done() or writer.is_closing():
                break
            writer.write(bytes([byte]))
            await asyncio.wait({said}, timeout=0.02)
        return await said
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_senders_of_slow_headers_are_cut_off_and_stop_nobody() -> None:
    """Many of them, and a genuine sender is answered meanwhile."""
    async with serving(Receiver(senders=["127.0.0.1"]), port=0, header_time=0.2) as (_, port):
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            slow = [group.create_task(dribble(port, HEAD * 20)) for _ in range(20)]
            idle = group.create_task(dribble(port, b""))
            await asyncio.sleep(0.1)
            assert b"HTTP/1.1 200 OK\r\n" == await post(port)
        assert {b""} == {task.result() for task in [*slow, idle]}
        assert b"HTTP/1.1 200 OK\r\n" == await post(port)


async def test_senders_of_slow_bodies_are_cut_off() -> None:
    """They hear 408 and the connection is closed, whatever they go on sending."""
    receiver = Receiver(senders=["127.0.0.1"], body_time=0.15)
    async with serving(receiver, port=0, header_time=60.0) as (_, port):
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"\r\n" + BODY[:5])
            assert b"HTTP/1.1 408" in await reader.read()
            writer.close()
            assert b"HTTP/1.1 200 OK\r\n" == await post(port)


async def test_a_body_may_be_slower_than_headers() -> None:
    """The limit on headers ends where the body begins."""
    async with serving(Receiver(senders=["127.0.0.1"]), port=0, header_time=0.4) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"\r\n")
        for piece in (BODY[:10], BODY[10:20], BODY[20:]):
            await asyncio.sleep(0.2)
            writer.write(piece)
        assert b"HTTP/1.1 200 OK\r\n" == await reader.readline()
        await asyncio.sleep(0.6)  # idle between two requests for longer than headers may take
        writer.write(HEAD + b"\r\n" + BODY)
        assert (await reader.readuntil(b" 200 OK")).endswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_there_are_only_so_many_connections() -> None:
    """A further one is closed; when one ends, there is room again."""
    async with serving(Receiver(senders=["127.0.0.1"]), port=0, connections=2) as (_, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await asyncio.sleep(0.02)
        assert b"" == await post(port)
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(60):
            while not (line := await post(port)):  # the server hears of it a little later
                pass
        assert b"HTTP/1.1 200 OK\r\n" == line


@pytest.mark.parametrize("put", [alone, mounted])
@pytest.mark.parametrize("by_signal", [False, True])
async def test_a_server_that_is_stopped_finishes_what_is_under_way(
    put: Callable[[Receiver], Receiver | web.Application], by_signal: bool
) -> None:
    """Cancelled or by a signal: the sender whose notification is being handled still gets its answer."""
    receiver, begun, address = Receiver(senders=["127.0.0.1"]), asyncio.Event(), asyncio.Queue[int]()

    @receiver.on(TransactionEvent)
    async def settle(event: TransactionEvent) -> None:
        begun.set()
        await asyncio.sleep(0.05)

    server = asyncio.ensure_future(
        serve(put(receiver), port=0, stop_on=[STOP], started=lambda host, port: address.put_nowait(port))
    )
    answer = asyncio.ensure_future(post(await address.get()))
    await begun.wait()
    if by_signal:
        os.kill(os.getpid(), STOP)
    else:
        server.cancel()
    assert b"HTTP/1.1 200 OK\r\n" == await answer
    (ended,) = await asyncio.gather(server, return_exceptions=True)
    assert ended is None if by_signal else isinstance(ended, asyncio.CancelledError)


@pytest.mark.parametrize("put", [alone, mounted])
async def test_who_finds_the_port_taken_takes_nothing_from_who_has_it(
    put: Callable[[Receiver], Receiver | web.Application],
) -> None:
    """A second receiver of the same name fails before it gives back the leases of that name."""
    inbox = MemoryInbox(time.time)
    held = TransactionSucceeded(transaction_id="t-1", status_code=0)
    delivery = journal.Delivery(body=b"{}", query="", peer="127.0.0.1", received_at=time.time())
    await inbox.receive(delivery, held, owner="one", lease=60.0)
    async with serving(Receiver(senders=["127.0.0.1"]), port=0) as (_, port):
        with pytest.raises(OSError, match="address already in use"):
            async with serving(put(Receiver(inbox, owner="one")), port=port):
                raise AssertionError("two listen at one address")
    assert [] == list(await inbox.claim("another", lease=1.0, limit=10))
    again, heard = Receiver(inbox, owner="one"), asyncio.Queue[str]()

    @again.on(TransactionEvent)
    async def hear(event: TransactionEvent) -> None:
        heard.put_nowait(event.transaction_id)

    async with serving(put(again), port=0), asyncio.timeout(50):  # seconds: far less than the lease
        assert "t-1" == await heard.get()


@pytest.mark.parametrize("logged", [False, True])
async def test_an_application_is_served_whole(logged: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Its other routes answer too, its receiver works, and requests are logged only if that is asked for."""
    app, heard = mounted(receiver := Receiver(senders=["127.0.0.1"])), list[str]()
    log = logging.getLogger("aiohttp.access") if logged else None

    @receiver.on(TransactionEvent)
    async def hear(event: TransactionEvent) -> None:
        heard.append(event.transaction_id)

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app.router.add_get("/", hello)
    with caplog.at_level("INFO", "aiohttp.access"):
        async with serving(app, port=0, access_log=log) as (host, port), ClientSession() as client:
            async with client.get(f"http://{host}:{port}/") as answer:
                assert "hello" == await answer.text()
            assert b"HTTP/1.1 200 OK\r\n" == await post(port)
    assert ["t-1"] == heard
    assert (2 if logged else 0) == len(caplog.records)


async def test_an_application_that_fails_to_clean_up_leaves_no_task_behind() -> None:
    """Its error is told, and the watch over slow headers ends all the same."""

    async def fail(app: web.Application) -> None:
        raise RuntimeError("no")

    app = web.Application()
    app.on_cleanup.append(fail)
    before = asyncio.all_tasks()
    with pytest.raises(RuntimeError, match="no"):
        async with serving(app, port=0):
            assert before < asyncio.all_tasks()
    assert before == asyncio.all_tasks()


@pytest.mark.parametrize("name", ["header_time", "connections"])
async def test_a_limit_of_nothing_is_refused(name: str) -> None:
    """It would cut off everybody."""
    with pytest.raises(ValueError, match=f"{name}: must be above 0"):
        await serve(Receiver(), port=0, **{name: 0})  # type: ignore[arg-type]


async def test_a_signal_that_is_no_collection_is_refused() -> None:
    """Before anything listens, and with what to write instead."""
    with pytest.raises(TypeError, match=r"stop_on: a collection of signals"):
        await serve(Receiver(), port=0, stop_on=STOP)  # type: ignore[arg-type]


async def test_only_a_receiver_or_an_application_is_served() -> None:
    """An ASGI application needs a server of its own kind."""
    with pytest.raises(TypeError, match="served: a Receiver or an aiohttp"):
        async with serving(Receiver().asgi(), port=0):  # type: ignore[arg-type]
            raise AssertionError("it is served")

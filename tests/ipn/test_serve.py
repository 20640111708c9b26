"""The server of its own: its limits on slow senders, its shutdown, and the applications it serves."""

import asyncio
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from ipn.memory_inbox import MemoryInbox
from ipn.notifications import notification

from payments_async.ipn import (
    Receiver,
    ReceiverSettings,
    ServerLimits,
    TransactionEvent,
    TransactionSucceeded,
    serve,
    serving,
)
from payments_async.journal.contract import RawNotification

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
    async with serving(Receiver(senders=["127.0.0.1"]), port=0, limits=ServerLimits(header_time=0.2)) as (_, port):
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            slow = [group.create_task(dribble(port, HEAD * 20)) for _ in range(20)]
            idle = group.create_task(dribble(port, b""))
            await asyncio.sleep(0.1)
            assert b"HTTP/1.1 200 OK\r\n" == await post(port)
        assert {b""} == {task.result() for task in [*slow, idle]}
        assert b"HTTP/1.1 200 OK\r\n" == await post(port)


async def test_a_genuine_sender_is_answered_after_the_event_loop_was_held_up() -> None:
    """By whatever else runs in it, for longer than headers may take: that time is not the sender's."""
    async with serving(Receiver(senders=["127.0.0.1"]), port=0, limits=ServerLimits(header_time=0.2)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(20):  # turns, in which the server takes the connection
            await asyncio.sleep(0)
        time.sleep(0.5)  # noqa: ASYNC251 - it is to hold up the loop
        for _ in range(20):  # in which he might be hung up on
            await asyncio.sleep(0)
        writer.write(HEAD + b"\r\n" + BODY)
        assert b"HTTP/1.1 200 OK\r\n" == await asyncio.wait_for(reader.readline(), 60)
        writer.close()


async def test_senders_of_slow_bodies_are_cut_off() -> None:
    """They hear 408 and the connection is closed, whatever they go on sending."""
    receiver = Receiver(senders=["127.0.0.1"], settings=ReceiverSettings(body_time=0.15))
    async with serving(receiver, port=0, limits=ServerLimits(header_time=60.0)) as (_, port):
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"\r\n" + BODY[:5])
            assert b"HTTP/1.1 408" in await reader.read()
            writer.close()
            assert b"HTTP/1.1 200 OK\r\n" == await post(port)


async def test_a_body_may_be_slower_than_headers() -> None:
    """The limit on headers ends where the body begins."""
    async with serving(Receiver(senders=["127.0.0.1"]), port=0, limits=ServerLimits(header_time=0.4)) as (_, port):
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
    async with serving(
        Receiver(senders=["127.0.0.1"]), port=0, limits=ServerLimits(connections=2, connections_each=2)
    ) as (_, port):
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
    delivery = RawNotification(body=b"{}", query="", peer="127.0.0.1", received_at=time.time())
    await inbox.receive(delivery, held, owner="one", lease=60.0)
    async with serving(Receiver(senders=["127.0.0.1"]), port=0) as (_, port):
        with pytest.raises(OSError, match="address already in use"):
            async with serving(put(Receiver(inbox, settings=ReceiverSettings(owner="one"))), port=port):
                raise AssertionError("two listen at one address")
    assert [] == list(await inbox.claim("another", lease=1.0, limit=10))
    again, heard = Receiver(inbox, settings=ReceiverSettings(owner="one")), asyncio.Queue[str]()

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
        await serve(Receiver(), port=0, limits=ServerLimits(**{name: 0}))  # type: ignore[arg-type]


async def test_a_signal_that_is_no_collection_is_refused() -> None:
    """Before anything listens, and with what to write instead."""
    with pytest.raises(TypeError, match=r"stop_on: a collection of signals"):
        await serve(Receiver(), port=0, stop_on=STOP)  # type: ignore[arg-type]


async def test_only_a_receiver_or_an_application_is_served() -> None:
    """An ASGI application needs a server of its own kind."""
    with pytest.raises(TypeError, match="served: a Receiver or an aiohttp"):
        async with serving(Receiver().asgi(), port=0):  # type: ignore[arg-type]
            raise AssertionError("it is served")


STRANGER, VISITOR = "127.0.0.9", "127.0.0.8"  # other addresses of this machine


async def line_from(source: str, port: int, *, ask: bytes = HEAD + b"\r\n" + BODY) -> bytes:
    """What somebody at an address hears in answer, the first line of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        writer.write(ask)
        return await reader.readline()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_stranger_is_hung_up_on_before_he_is_heard() -> None:
    """Neither sender nor proxy nor visitor: his connection ends as it begins, and it is counted who he was."""
    receiver = Receiver(senders=["127.0.0.1"], trusted_proxies=["127.0.0.7"])
    health = b"GET /ipn/health HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serving(receiver, port=0, limits=ServerLimits(visitors=[VISITOR])) as (_, port):
        for source, expected in ((STRANGER, b""), ("127.0.0.1", b"200"), ("127.0.0.7", b"403"), (VISITOR, b"403")):
            assert expected in await line_from(source, port), source
        assert b"200" in await line_from(VISITOR, port, ask=health)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(STRANGER, 0))
        assert b"" == await reader.read()  # he never has to say anything
        writer.close()
    refused = {(refusal.address, refusal.why): refusal.times for refusal in receiver.refusals()}
    assert 2 == refused[STRANGER, "hung up on: neither a known sender nor a trusted proxy"]
    assert {STRANGER, "127.0.0.7", VISITOR} == {address for address, _ in refused}


async def test_a_flood_of_strangers_keeps_no_sender_out() -> None:
    """They hold connections as long as they are let; every genuine notification is answered meanwhile."""
    receiver = Receiver(senders=["127.0.0.1"])
    async with (
        serving(receiver, port=0, limits=ServerLimits(connections=20, visitors=[VISITOR])) as (_, port),
        asyncio.timeout(100),
    ):
        held = []
        for number in range(200):
            source = STRANGER if number % 2 else VISITOR
            held.append(await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))
            if not number % 20:
                assert b"HTTP/1.1 200 OK\r\n" == await post(port)
        for _, writer in held:
            writer.close()


async def test_one_address_gets_only_its_share_of_the_connections() -> None:
    """A sender that keeps on opening more is hung up on; another, and a proxy that many come through, are not."""
    receiver = Receiver(senders=["127.0.0.1", "127.0.0.2"], trusted_proxies=["127.0.0.7"])
    async with serving(receiver, port=0, limits=ServerLimits(connections=10, connections_each=3)) as (_, port):
        held = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.1", 0)) for _ in range(3)]
        held += [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.7", 0)) for _ in range(5)]
        await asyncio.sleep(0.02)
        assert b"" == await line_from("127.0.0.1", port)
        assert b"200" in await line_from("127.0.0.2", port)
        assert b"403" in await line_from("127.0.0.7", port)
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize("put", [alone, mounted])
async def test_a_connection_ends_with_a_403(put: Callable[[Receiver], Receiver | web.Application]) -> None:
    """Where a stranger gets one at all, he cannot keep it."""
    receiver = Receiver(senders=["127.0.0.2"])
    async with serving(put(receiver), port=0) as (_, port), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((HEAD + b"\r\n" + BODY) * 2)
        said = await reader.read()
        writer.close()
    assert (1, True) == (said.count(b"HTTP/1.1 403"), b"Connection: close" in said)


async def send_for_ever(connection: socket.socket, words: bytes) -> None:
    """Until it is cut off."""
    while True:
        await asyncio.get_running_loop().sock_sendall(connection, words)


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("put", [alone, mounted])
async def test_a_sender_who_never_reads_is_not_listened_to_for_ever(
    put: Callable[[Receiver], Receiver | web.Application],
) -> None:
    """Answers pile up to a limit; then he is not read from, and when he does not read either, he is hung up on."""
    receiver = Receiver(senders=["127.0.0.1"], settings=ReceiverSettings(body_time=0.3))
    async with serving(put(receiver), port=0) as (_, port), asyncio.timeout(100):
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", port))
            with pytest.raises(ConnectionError):
                await send_for_ever(deaf, (HEAD + b"\r\n" + BODY) * 100)
        assert b"HTTP/1.1 200 OK\r\n" == await post(port)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificate and key of 127.0.0.1, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*command.split(), *files], cwd=folder, check=True, capture_output=True)
    return folder


async def test_with_tls_a_stranger_is_hung_up_on_before_the_handshake(certificates: Path) -> None:
    """A sender is served over TLS, over one connection as often as he likes; no TLS, or a slow one, is cut off."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    ours = ssl.create_default_context(cafile=str(certificates / "cert.pem"))
    receiver = Receiver(senders=["127.0.0.1"])
    served = serving(
        receiver,
        port=0,
        tls=theirs,
        limits=ServerLimits(visitors=(), header_time=0.4, connections=3, connections_each=3),
    )
    async with served as (_, port), asyncio.timeout(60):
        for _ in range(4):  # who is cut off leaves room for others
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"\r\n" + BODY)  # no TLS
            assert b"200" not in await all_said(reader, writer)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)  # and this one is silent
            assert b"" == await all_said(reader, writer)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ours)
        for _ in range(3):
            writer.write(HEAD + b"\r\n" + BODY)
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"}")
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=ours, local_addr=(STRANGER, 0))
        writer.close()
    assert {STRANGER} == {refusal.address for refusal in receiver.refusals()}


def test_on_another_event_loop(certificates: Path) -> None:
    """The connections of uvloop are of no class of asyncio's, and are served all the same, with TLS and without."""
    uvloop = pytest.importorskip("uvloop")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    ours = ssl.create_default_context(cafile=str(certificates / "cert.pem"))

    async def answered(tls: ssl.SSLContext | None, scheme: str) -> int:
        async with serving(Receiver(senders=["127.0.0.1"]), port=0, tls=tls) as (host, port), ClientSession() as http:
            url = f"{scheme}://{host}:{port}/ipn"
            async with asyncio.timeout(60), http.post(url, data=BODY, ssl=ours) as answer:
                return answer.status

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert [200, 200] == [runner.run(answered(*how)) for how in ((None, "http"), (theirs, "https"))]


async def all_said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Everything until the connection ends, however it ends."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()

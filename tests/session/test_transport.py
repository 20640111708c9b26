"""What left and what did not: the evidence on the wire decides between NotSent and OutcomeUnknown."""

import asyncio
import contextlib
import gzip
import json
import logging
import os
import ssl
import sys
import traceback
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_writer import StreamWriter
from session.conftest import Open
from session.wires import (
    LOGIN,
    PAYOUTS,
    SECRET,
    Request,
    Times,
    Wire,
    accept_everything,
    accepted,
    payout,
    raw_reply,
    reply,
    turns,
    under_way,
    until,
)

from payments_async import (
    AuthenticationFailed,
    Dialect,
    HttpConnection,
    Limits,
    NotSent,
    OutcomeUnknown,
    PaymentsSession,
    RetryPolicy,
    ServiceFault,
)
from payments_async._session.transport import AnotherMachine, Outgoing, ThisMachine, TransportFailure
from payments_async.sandbox import Quirks, Sandbox

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SHORT = aiohttp.ClientTimeout(total=1.0)  # long enough to log in and to send, on any machine
MIDDLEWARES = "middlewares" in aiohttp.ClientSession.__init__.__code__.co_varnames


class Names(AbstractResolver):
    """Finds this machine under any name, until it is told not to."""

    lost = False

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        if self.lost:
            raise OSError(None, "no such host")
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": 2, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        """Nothing is open."""


async def not_sent(payments: PaymentsSession, words: str) -> NotSent:
    """Send a payout that does not leave."""
    with pytest.raises(NotSent, match=words) as caught:
        await payments.payouts.send(payout())
    assert ("r-1", frozenset()) == (caught.value.request_id, payments.unsettled)
    return caught.value


async def unknown(payments: PaymentsSession, words: str = ".") -> OutcomeUnknown:
    """Send a payout that leaves and is not answered well."""
    with pytest.raises(OutcomeUnknown, match=words) as caught:
        await payments.payouts.send(payout())
    assert ("r-1", {"r-1"}) == (caught.value.request_id, set(payments.unsettled))
    return caught.value


def answers(wire: Wire, answer: bytes | None) -> None:
    """Let the wire answer every order so."""

    async def same(_: Request) -> bytes | None:
        return answer

    wire.answer = same


# --- nothing left -----------------------------------------------------------------------------------------------------


async def test_a_name_that_cannot_be_resolved(stack: AsyncExitStack, opened: Open, certificates: Path) -> None:
    """Nothing left."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    wire = await stack.enter_async_context(Wire(tls=tls))
    ours = ssl.create_default_context(cafile=str(certificates / "cert.pem"))
    ours.check_hostname = False
    names = Names()
    connector = aiohttp.TCPConnector(resolver=names, use_dns_cache=False, force_close=True)
    http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
    payments = await opened(f"https://pay.test:{wire.port}", http=http, ssl=ours)
    await payments.log_in()
    names.lost = True
    await not_sent(payments, "name could not be resolved")
    assert not wire.orders


async def test_a_refused_connection(payments: PaymentsSession, wire: Wire) -> None:
    """Nothing left."""
    await payments.log_in()
    await wire.stop()
    await not_sent(payments, "refused or failed")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
async def test_a_process_with_too_many_open_files(payments: PaymentsSession, wire: Wire) -> None:
    """Nothing left, and it is not the network that is to be looked at."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        with contextlib.suppress(OSError):
            while True:
                files.callback(os.close, os.dup(2))
        await not_sent(payments, "too many open files; raise its limit")
    assert not wire.requests


async def test_a_certificate_nobody_signed(opened: Open, certificates: Path, stack: AsyncExitStack) -> None:
    """Nothing left: not even the login."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    wire = await stack.enter_async_context(Wire(tls=tls))
    await not_sent(await opened(wire), "TLS connection failed; check .* the ssl setting")
    assert not wire.requests


async def test_a_server_that_speaks_no_tls(opened: Open) -> None:
    """Nothing left."""

    async def banner(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.test at your service\r\n")
        writer.close()

    async with await asyncio.start_server(banner, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await not_sent(
            await opened(f"https://127.0.0.1:{port}"), "TLS connection failed|connection was refused or failed"
        )


async def test_a_client_certificate(opened: Open, certificates: Path, stack: AsyncExitStack) -> None:
    """The ssl setting is used: with the certificate the payout is accepted, without it nothing leaves."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    tls.load_verify_locations(certificates / "cert.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    wire = await stack.enter_async_context(Wire(tls=tls))
    ours = ssl.create_default_context(cafile=str(certificates / "cert.pem"))
    await not_sent(await opened(wire, ssl=ours), ".")
    ours = ssl.create_default_context(cafile=str(certificates / "cert.pem"))
    ours.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    payments = await opened(wire, ssl=ours)
    assert "t-r-1" == (await payments.payouts.send(payout())).transaction_id


async def test_a_proxy_that_wants_a_password(opened: Open, wire: Wire) -> None:
    """It answers 407 to the tunnel, so nothing left."""
    answers(wire, raw_reply(b"", 407, {"Proxy-Authenticate": "Basic"}))
    await not_sent(await opened("https://payments.test", proxy=wire.base_url), "check the proxy setting")
    assert ["CONNECT"] == [request.method for request in wire.requests]


async def test_a_proxy_that_is_not_there(opened: Open, wire: Wire) -> None:
    """Nothing left."""
    await wire.stop()
    await not_sent(await opened("https://payments.test", proxy=wire.base_url), "check the proxy setting")


async def test_an_order_through_a_proxy(opened: Open, wire: Wire, stack: AsyncExitStack) -> None:
    """A proxy that works is used."""
    wire.login = wire._honest_login

    async def forward(request: Request) -> bytes | None:
        if request.path.endswith(LOGIN):
            return await wire.login(request)
        return accepted()

    wire.answer = forward
    payments = await opened("http://127.0.0.1:9", proxy=wire.base_url)
    await payments.payouts.send(payout())
    assert f"http://127.0.0.1:9{PAYOUTS}" == wire.orders[-1].path


@pytest.mark.parametrize("proxy", ["proxy.test:3128", "", "http://", "socks5://proxy.test:1080", "http://proxy:port"])
async def test_a_proxy_with_a_typo(proxy: str) -> None:
    """The setting is named at once."""
    with pytest.raises(ValueError, match=r"^proxy: "):
        PaymentsSession("https://payments.test", SECRET, connection=HttpConnection(proxy=proxy))


async def test_a_handshake_that_never_ends(opened: Open, wire: Wire) -> None:
    """The connect timeout: nothing left."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        timeout = aiohttp.ClientTimeout(total=5, sock_connect=0.1)
        await not_sent(await opened(f"https://127.0.0.1:{port}", timeout=timeout), "no connection in time")


async def test_no_free_connection_in_time(opened: Open, wire: Wire, stack: AsyncExitStack) -> None:
    """A wait in the pool of a brought client is no unknown outcome."""
    http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)))
    payments = await opened(wire, http=http, timeout=SHORT)
    await payments.log_in()
    async with _busy(http, wire):
        await not_sent(payments, "in time")
    assert [PAYOUTS] != [request.path for request in wire.orders]


class _busy:  # noqa: N801 - reads as a verb
    """Take the only connection of a client."""

    def __init__(self, http: aiohttp.ClientSession, wire: Wire) -> None:
        self._task = asyncio.ensure_future(http.get(wire.base_url + "/busy", timeout=aiohttp.ClientTimeout(total=60)))
        self._wire = wire

    async def __aenter__(self) -> None:
        async def never(_: Request) -> bytes | None:
            await asyncio.Event().wait()
            return None

        self._wire.answer = never
        await until(lambda: self._wire.orders)

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_a_brought_client_that_is_closed_meanwhile(opened: Open, wire: Wire, stack: AsyncExitStack) -> None:
    """Who waits in its pool is cancelled by aiohttp, not by us: that is a clear NotSent, and no cancellation."""
    http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)))
    payments = await opened(wire, http=http)
    await payments.log_in()
    async with _busy(http, wire), under_way(payments.payouts.send(payout()), lambda: payments.unsettled) as call:
        await turns()
        await http.close()
        with pytest.raises(NotSent):
            await call
    assert not payments.unsettled
    with pytest.raises(RuntimeError, match="is closed"):
        await payments.payouts.send(payout())


async def test_a_connection_closed_while_idle(payments: PaymentsSession, wire: Wire) -> None:
    """A keep-alive connection that has gone before our write is no trouble: another one is made."""
    await payments.payouts.send(payout("r-0"))
    await wire.hang_up()
    await payments.payouts.send(payout())
    assert [1, 1] == [sum(request.request_id == name for request in wire.orders) for name in ("r-0", "r-1")]


async def test_a_connection_lost_just_before_the_write() -> None:
    """The body knows that it did not leave, whether the connection is closing or gone."""
    protocol = BaseProtocol(asyncio.get_running_loop())
    outgoing = Outgoing(b"{}")
    with pytest.raises(ConnectionError):
        await outgoing.write_with_length(StreamWriter(protocol, asyncio.get_running_loop()), None)
    assert not outgoing.left


async def test_a_body_has_all_that_a_body_of_the_http_client_has() -> None:
    """It is made without what makes theirs, so what they are given must not be missing from it."""
    assert [] == [name for name in vars(aiohttp.BytesPayload(b"{}")) if not hasattr(Outgoing(b"{}"), name)]
    assert ("application/json", 2) == (Outgoing(b"{}").content_type, Outgoing(b"{}").size)


@pytest.mark.parametrize("brought", [False, True])
async def test_headers_of_a_client_of_ours_and_of_one_that_was_brought(brought: bool, wire: Wire) -> None:
    """They are the same, and the host is the first of them."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession()) if brought else None
        payments = await stack.enter_async_context(
            PaymentsSession(wire.base_url, SECRET, connection=HttpConnection(http=http))
        )
        await payments.payouts.send(payout())
    expected = ["host", "accept", "accept-encoding", "content-type", "user-agent", "authorization", "content-length"]
    assert expected == [name.lower() for name in wire.orders[0].headers]


async def test_a_body_leaves_once() -> None:
    """Whatever writes it a second time is stopped, also the older way of writing."""

    class Paper(asyncio.Transport):
        written = b""

        def write(self, data: Any) -> None:
            self.written += data

        def is_closing(self) -> bool:
            return False

    loop = asyncio.get_running_loop()
    protocol = BaseProtocol(loop)
    protocol.transport = paper = Paper()
    for length in (None, 2):
        writer, outgoing = StreamWriter(protocol, loop), Outgoing(b"{}")
        await (outgoing.write(writer) if length is None else outgoing.write_with_length(writer, length))
        assert outgoing.left
        with pytest.raises(TransportFailure):
            await outgoing.write(writer)
        with pytest.raises(TransportFailure):
            await outgoing.write_with_length(writer, length)
    assert b"{}{}" == paper.written


async def test_a_timeout_before_the_first_byte(opened: Open, stack: AsyncExitStack) -> None:
    """A body that nobody asks for (``Expect: 100-continue``) stays here: nothing of it left."""
    heads: list[bytes] = []
    rest: list[bytes] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if LOGIN.encode() in heads[0] and len(heads) == 1:
            writer.write(CONTINUE)
            await reader.readuntil(b"}")
            writer.write(reply({"Token": "t"}, Connection="close"))
        rest.append(await reader.read())
        writer.close()

    http = await stack.enter_async_context(aiohttp.ClientSession(headers={"Expect": "100-continue"}))
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await not_sent(await opened(f"http://127.0.0.1:{port}", http=http, timeout=SHORT), "in time")
        await turns()
    assert PAYOUTS.encode() in heads[1]
    assert b"requestId" not in b"".join(heads + rest)


class Asked:
    """A service that takes logins, and answers the head of an order as it is told, before the body has come."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.orders = 0
        self.bodies = b""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if LOGIN.encode() in head:
                    assert b"Expect" not in head
                    await reader.readuntil(b"}")
                    writer.write(reply({"Token": "t"}))
                    continue
                assert b"Expect: 100-continue" in head
                self.orders += 1
                writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
                self.bodies += await reader.read(65536)
                if self.answers[0].startswith(b"HTTP/1.1 100"):
                    writer.write(accepted("r-1"))
        writer.close()


@contextlib.asynccontextmanager
async def asking(service: Asked, opened: Open, **settings: Any) -> AsyncIterator[PaymentsSession]:
    """A session whose orders wait until they are asked for."""
    async with await asyncio.start_server(service, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        plain = {"dialect": Dialect(expect_continue=True)} | settings
        payments = await opened(f"http://127.0.0.1:{port}", **plain)
        yield payments
        await payments.aclose()


async def test_an_order_leaves_when_it_is_asked_for(opened: Open) -> None:
    """Reads and logins wait for nothing."""
    service = Asked(CONTINUE)
    async with asking(service, opened) as payments:
        assert "r-1" == (await payments.payouts.send(payout())).request_id
    assert 1 == service.bodies.count(b"requestId")


@pytest.mark.parametrize("status", [200, 202, 307, 400, 403, 409, 417, 500, 503])
async def test_an_answer_to_an_order_that_was_not_asked_for(opened: Open, status: int) -> None:
    """Whatever it says, also that the order was taken: nothing of it had left, and it may be of another order."""
    service = Asked(accepted("r-1").replace(b"200", str(status).encode(), 1))
    async with asking(service, opened) as payments:
        await not_sent(payments, f"answered {status} before it asked for the order")
    assert b"" == service.bodies


async def test_an_answer_in_one_breath_with_the_go_on(opened: Open) -> None:
    """What was told to continue stays here all the same, once the end of the try is told."""
    service = Asked(CONTINUE + accepted("r-1"))
    async with asking(service, opened) as payments:
        try:
            await payments.payouts.send(payout())
        except NotSent:
            await turns()
            assert b"requestId" not in service.bodies
        except OutcomeUnknown:
            pass  # it had left


@pytest.mark.parametrize(("status", "orders"), [(401, 2), (429, 2)])
async def test_an_order_that_is_turned_away_before_it_leaves(opened: Open, status: int, orders: int) -> None:
    """It is tried again as ever: after a new login, or after a pause."""
    service = Asked(reply({}, status, Retry_After="1"), CONTINUE)
    async with asking(service, opened) as payments:
        assert "r-1" == (await payments.payouts.send(payout())).request_id
    assert orders == service.orders


async def test_a_dead_line_keeps_the_order_here(opened: Open) -> None:
    """Nobody asks for the body in time: it is surely not sent, where it was unknown without this."""
    service = Asked(b"")
    async with asking(service, opened, timeout=SHORT) as payments:
        await not_sent(payments, "in time")
    assert b"" == service.bodies


@pytest.mark.parametrize("says", ["ignored", "refused"])
async def test_a_service_that_does_not_know_it(opened: Open, stack: AsyncExitStack, says: Any) -> None:
    """No order is sent, and none is unknown."""
    sandbox = await stack.enter_async_context(Sandbox(quirks=Quirks(expect_continue=says)))
    payments = await opened(sandbox, dialect=Dialect(expect_continue=True), timeout=SHORT)
    await not_sent(payments, "in time" if says == "ignored" else "417")
    assert not sandbox.ledger


async def test_a_service_that_knows_it(opened: Open, stack: AsyncExitStack) -> None:
    """The sandbox does."""
    sandbox = await stack.enter_async_context(Sandbox())
    payments = await opened(sandbox, dialect=Dialect(expect_continue=True))
    await payments.payouts.send(payout())
    assert 1 == len(sandbox.ledger)


@pytest.mark.parametrize("status", [400, 401, 429, 500])
@pytest.mark.parametrize("brought", [False, True])
async def test_an_answer_that_nobody_asked_for(
    opened: Open, wire: Wire, stack: AsyncExitStack, brought: bool, status: int
) -> None:
    """What comes on an idle connection is never read as the answer to the next order, which would look refused."""
    http = await stack.enter_async_context(aiohttp.ClientSession()) if brought else None
    payments = await opened(wire, http=http)
    await payments.payouts.send(payout("r-0"))
    wire.orders[0].writer.write(reply({}, status))
    await turns()
    await not_sent(payments, "an answer had come before the request left")
    assert (await payments.payouts.send(payout())).request_id == "r-1"
    assert ["r-0", "r-1"] == [request.request_id for request in wire.orders]


async def test_an_answer_that_nobody_asked_for_before_a_read(opened: Open, wire: Wire) -> None:
    """It is not read as a record either: the read is made again, on another connection."""
    payments = await opened(wire)
    await payments.payouts.send(payout("r-0"))
    wire.orders[0].writer.write(reply({"code": 0, "data": {"transactionId": "t-9", "requestId": "r-9"}}))
    await turns()
    answers(wire, reply({"code": 0, "data": {"transactionId": "t-1", "requestId": "r-1"}}))
    assert (await payments.transactions.get("t-1")).request_id == "r-1"


# --- a byte may have left ---------------------------------------------------------------------------------------------


async def test_a_timeout_after_the_first_byte(opened: Open, wire: Wire) -> None:
    """It may be carried out at any moment."""
    answered = asyncio.Event()

    async def late(_: Request) -> bytes | None:
        await answered.wait()
        return None

    wire.answer = late
    await unknown(await opened(wire, timeout=SHORT), "in time")
    assert 1 == len(wire.orders)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\nContent-Le",
        accepted()[:-5],
        raw_reply(b"", 200),
        raw_reply(b"<html>Welcome</html>", 200, {"Content-Type": "text/html"}),
        raw_reply(b'{"code": 0, "data": {"requestId": "r-1"'),
        raw_reply(b"[]"),
        raw_reply(b"null"),
        reply({"code": True, "data": {"requestId": "r-1", "transactionId": "t"}}),
        reply({"code": 0, "data": {"requestId": "r-2", "transactionId": "t"}}),
        reply({"code": 7, "data": {"requestId": "r-1", "transactionId": "t"}}),
        b"HTTP/1.1 OK\r\n\r\n",
        b"SSH-2.0-Server\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nGrace\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        raw_reply(b"[" * 200_000),
        raw_reply(b"\xff\xfe{}"),
    ],
)
async def test_an_answer_that_is_none(payments: PaymentsSession, wire: Wire, answer: bytes | None) -> None:
    """Cut, half, empty, a page, no JSON, no HTTP: it may have been carried out, and was sent once."""

    async def lie(request: Request) -> bytes | None:
        if answer is not None:
            request.writer.write(answer)
            await request.writer.drain()
            request.writer.close()
        return None if answer is None else b""

    wire.answer = lie
    await unknown(payments)
    assert 1 == len(wire.orders)


@pytest.mark.parametrize("status", [408, 409, 425, 500, 501, 502, 503, 504, 599, 402, 418, 451, 300, 305, 999])
async def test_a_status_that_proves_nothing(payments: PaymentsSession, wire: Wire, status: int) -> None:
    """It may have been carried out."""
    answers(wire, reply({"code": 9, "message": "hm"}, status))
    assert status == (await unknown(payments)).status
    assert 1 == len(wire.orders)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed(payments: PaymentsSession, wire: Wire, status: int) -> None:
    """Whether it was carried out before it was redirected, nobody knows; the words say what to check."""
    answers(wire, reply({}, status, Location="/elsewhere"))
    await unknown(payments, "redirect, which is never followed; check the base address")
    assert [PAYOUTS] == [request.path for request in wire.orders]
    with pytest.raises(ServiceFault, match="redirect"):
        await payments.accounts.get()
    assert 2 == len(wire.orders)


async def test_an_answer_after_100_continue(payments: PaymentsSession, wire: Wire) -> None:
    """What comes before the real answer is skipped."""
    answers(wire, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + accepted())
    assert "t-r-1" == (await payments.payouts.send(payout())).transaction_id


def bomb() -> bytes:
    """30 MB of blanks, packed."""
    body = gzip.compress(b" " * 30_000_000)
    return raw_reply(body, 200, {"Content-Encoding": "gzip"})


def chunked(count: int) -> bytes:
    """An answer that does not tell its length."""
    piece = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + piece * count + b"0\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n",
        chunked(64),
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b" " * 200_000,
        bomb(),
    ],
    ids=["with a length", "without", "until the end", "packed"],
)
async def test_an_answer_over_the_limit(opened: Open, wire: Wire, answer: bytes) -> None:
    """It is refused as soon as that is known; the setting is named."""
    payments = await opened(wire, limits=Limits(reply_bytes=100_000))
    answers(wire, answer)
    await unknown(payments, "Limits.reply_bytes")


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_packed_answer(payments: PaymentsSession, wire: Wire, pack: Any) -> None:
    """We do not ask for one, and understand it."""
    body = pack(json.dumps({"code": 0, "data": {"requestId": "r-1", "transactionId": "t"}}).encode())
    encoding = "gzip" if pack is gzip.compress else "deflate"
    answers(wire, raw_reply(body, 200, {"Content-Encoding": encoding}))
    assert "t" == (await payments.payouts.send(payout())).transaction_id
    assert "identity" == wire.orders[0].headers["accept-encoding"]


async def test_an_answer_that_trickles(opened: Open, wire: Wire) -> None:
    """The total timeout ends it, although bytes keep coming."""

    async def trickle(request: Request) -> bytes | None:
        request.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not request.writer.transport.is_closing():
            request.writer.write(b" ")
            await asyncio.sleep(0.01)
        return None

    wire.answer = trickle
    await unknown(await opened(wire, timeout=SHORT), "in time")


async def test_a_post_is_not_repeated_below_us(payments: PaymentsSession, wire: Wire) -> None:
    """A kept-alive connection that breaks under a payout: aiohttp repeats GET, and must not repeat this."""
    await payments.payouts.send(payout("r-0"))
    answers(wire, None)
    await unknown(payments)
    assert 2 == len(wire.orders)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("body", [None, {"a": 1}])
async def test_an_unknown_endpoint_is_called_once(
    payments: PaymentsSession, wire: Wire, method: str, body: object
) -> None:
    """Also by methods that aiohttp holds for idempotent, and without a body."""
    await payments.payouts.send(payout("r-0"))
    answers(wire, None)
    with pytest.raises(OutcomeUnknown):
        await payments.raw(method, "/api/anything", body=body)
    await turns()  # headers that came a second time would have been read by now
    assert (1, 3) == (sum(request.path == "/api/anything" for request in wire.orders), wire.started)
    await wire.stop()
    with pytest.raises(NotSent):
        await payments.raw(method, "/api/anything", body=body)


# --- a client of the caller's own -------------------------------------------------------------------------------------


async def test_a_brought_client_is_not_closed(opened: Open, wire: Wire, times: Times) -> None:
    """It outlives the session."""
    async with aiohttp.ClientSession() as http:
        async with PaymentsSession(wire.base_url, SECRET, connection=HttpConnection(http=http)) as payments:
            await payments.payouts.send(payout())
        assert not http.closed


async def test_a_brought_client_with_settings_of_its_own(opened: Open, wire: Wire, stack: AsyncExitStack) -> None:
    """Its cookies, headers, raise_for_status and redirects do not change what a payout is."""
    http = await stack.enter_async_context(
        aiohttp.ClientSession(
            cookies={"a": "b"},
            headers={"Authorization": "Theirs", "Content-Type": "text/plain", "X-Theirs": "1"},
            raise_for_status=True,
        )
    )
    payments = await opened(wire, http=http)
    await payments.payouts.send(payout("r-0"))
    sent = wire.orders[0].headers
    assert ("Token token-1", "application/json", "1") == tuple(
        sent[name] for name in ("authorization", "content-type", "x-theirs")
    )
    answers(wire, reply({}, 500))
    await unknown(payments)


async def test_a_brought_client_with_a_base_url(opened: Open, wire: Wire, stack: AsyncExitStack) -> None:
    """The session's address counts, or it is a clear NotSent; never a foreign exception."""
    http = await stack.enter_async_context(aiohttp.ClientSession(base_url="http://127.0.0.1:9"))
    payments = await opened(wire, http=http)
    try:
        await payments.payouts.send(payout())
    except NotSent:
        assert not wire.requests
    else:
        assert 1 == len(wire.orders)


async def test_trust_env_belongs_to_the_brought_client(stack: AsyncExitStack) -> None:
    """A setting that would be ignored is refused."""
    http = await stack.enter_async_context(aiohttp.ClientSession())
    with pytest.raises(ValueError, match=r"^trust_env: "):
        PaymentsSession("https://payments.test", SECRET, connection=HttpConnection(http=http, trust_env=True))


@pytest.mark.skipif(not MIDDLEWARES, reason="this aiohttp knows no client middlewares")
@pytest.mark.parametrize("replaces_body", [False, True])
@pytest.mark.parametrize("answer", [None, reply({}, 503), reply({}, 401), reply({}, 429)])
async def test_a_middleware_that_repeats(
    opened: Open, wire: Wire, stack: AsyncExitStack, answer: bytes | None, replaces_body: bool
) -> None:
    """It cannot send a payout twice, not even with a body of its own in place of ours."""
    if replaces_body and not hasattr(aiohttp.ClientRequest, "update_body"):
        pytest.skip("this aiohttp lets nobody replace a body")

    async def stubborn(request: Any, handler: Any) -> Any:
        if replaces_body:
            await request.update_body(bytes(request.body._value))
        for _ in range(3):
            try:
                response = await handler(request)
            except aiohttp.ClientError:
                continue
            if response.status == 200:
                return response
        return await handler(request)

    http = await stack.enter_async_context(aiohttp.ClientSession(middlewares=(stubborn,)))
    payments = await opened(wire, http=http, retry=RetryPolicy(attempts=1))
    await payments.log_in()
    answers(wire, answer)
    await unknown(payments)
    assert 1 == len(wire.orders)


@pytest.mark.skipif(not MIDDLEWARES, reason="this aiohttp knows no client middlewares")
async def test_a_middleware_that_breaks(opened: Open, wire: Wire, stack: AsyncExitStack) -> None:
    """Its error does not escape from a money call; before the request it is NotSent, after it unknown."""
    before = True

    async def broken(request: Any, handler: Any) -> Any:
        if request.url.path == LOGIN:
            return await handler(request)
        if not before:
            (await handler(request)).close()
        raise KeyError("a bug")

    http = await stack.enter_async_context(aiohttp.ClientSession(middlewares=(broken,)))
    payments = await opened(wire, http=http)
    await not_sent(payments, "KeyError")
    before = False
    await unknown(payments, "KeyError")


async def test_a_hook_that_breaks(
    opened: Open, wire: Wire, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """Its place and traceback are kept as the cause, without its words, and it is logged, once."""
    words = "a secret of the hook"

    async def broken(_session: object, _context: object, params: Any) -> None:
        if params.url.path != LOGIN:
            raise KeyError(words)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(broken)
    http = await stack.enter_async_context(aiohttp.ClientSession(trace_configs=[trace]))
    payments = await opened(wire, http=http)
    for _ in range(3):
        with pytest.raises(NotSent, match=r"failed \(KeyError\); mend it first") as caught:
            await payments.payouts.send(payout())
    assert caught.value.__cause__ is not None
    cause = caught.value.__cause__.__cause__
    assert cause is not None
    shown = "".join(traceback.format_exception(caught.value))
    assert "KeyError in broken (" in str(cause)
    assert "raise KeyError(words)" == traceback.extract_tb(cause.__traceback__)[-1].line
    assert words not in shown
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    (said,) = [record.getMessage() for record in errors]
    assert said.startswith("a middleware, a hook or the HTTP client failed: KeyError in broken (")
    assert words not in said
    assert "KeyError in broken (" in vars(errors[0])["error"]
    assert not wire.orders


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base_url",
    [
        "http://payments.test",
        "http://127.0.0.1.payments.test",
        "http://localhost.payments.test",
        "http://0.0.0.0",
        "http://10.0.0.1:80",
        "payments.test",
        "payments.test:443/x",
        "https:/payments.test",
        "https//payments.test",
        "htps://payments.test",
        "https://",
        "",
        "https://payments.test:port",
        "https://payments.test:99999",
        "https://user:secret-walrus@payments.test",
        "https://payments.test/?a=b",
        "https://payments.test/#a",
        "https://payments.test/api",
        "https://payments.test/prefix/api/",
        "https://pay ments.test",
        "https://[::1",
    ],
)
async def test_a_base_address_with_a_typo(base_url: str) -> None:
    """The setting is named, what it held is not."""
    with pytest.raises(ValueError, match=r"^base_url: ") as caught:
        PaymentsSession(base_url, SECRET)
    assert "walrus" not in str(caught.value)


@pytest.mark.parametrize("tail", ["", "/"])
@pytest.mark.parametrize("prefix", ["", "/pay", "/pay/v1"])
async def test_a_prefix_and_a_trailing_slash(opened: Open, wire: Wire, prefix: str, tail: str) -> None:
    """The path is put together once, without a double slash."""
    wire.answer = _login_below(wire, prefix)
    payments = await opened(wire.base_url + prefix + tail)
    await payments.payouts.send(payout())
    assert prefix + PAYOUTS == wire.requests[-1].path
    assert wire.base_url + prefix == payments.base_url


def _login_below(wire: Wire, prefix: str) -> Any:
    async def answer(request: Request) -> bytes | None:
        login = request.path == prefix + LOGIN
        return await (wire.login if login else accept_everything)(request)

    return answer


async def test_another_path_than_the_service_has(opened: Open, sandbox: Sandbox) -> None:
    """The login finds nothing there, and the words say what to check."""
    payments = await opened(sandbox.base_url + "/typo")
    with pytest.raises(AuthenticationFailed, match="check the base address"):
        await payments.payouts.send(payout())


async def test_plain_http_to_this_machine(opened: Open, wire: Wire) -> None:
    """The one exception to https."""
    for host in ("127.0.0.1", "localhost"):
        payments = await opened(f"http://{host}:{wire.port}")
        await payments.payouts.send(payout(f"r-{host}"))
    PaymentsSession("http://[::1]:8080", SECRET)


@pytest.mark.parametrize("address", ["10.0.0.7", "192.0.2.1", "2001:db8::1"])
async def test_plain_http_to_a_name_that_leads_elsewhere(address: str) -> None:
    """A name is believed to be this machine only if it leads here when the connection is made."""
    row = {"hostname": "pay.localhost", "host": address, "port": 80, "family": 2, "proto": 0, "flags": 0}

    class Elsewhere(Names):
        async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
            return [*await super().resolve(host, port, family), ResolveResult(**row)]

    with pytest.raises(AnotherMachine):
        await ThisMachine(Elsewhere()).resolve("pay.localhost", 80)
    assert ["127.0.0.1"] == [found["host"] for found in await ThisMachine(Names()).resolve("pay.localhost", 80)]


async def test_plain_http_that_would_leave_this_machine(stack: AsyncExitStack) -> None:
    """Neither a proxy elsewhere nor a client whose names we cannot see to takes it away."""
    http = await stack.enter_async_context(aiohttp.ClientSession())
    with pytest.raises(ValueError, match=r"^base_url: with a ClientSession of your own"):
        PaymentsSession("http://pay.localhost:8080", SECRET, connection=HttpConnection(http=http))
    with pytest.raises(ValueError, match=r"^proxy: a base_url with plain http"):
        PaymentsSession("http://127.0.0.1:8080", SECRET, connection=HttpConnection(proxy="http://proxy.test:3128"))
    PaymentsSession(
        "http://127.0.0.1:8080", SECRET, connection=HttpConnection(http=http, proxy="http://127.0.0.1:3128")
    )


async def test_plain_http_leads_nowhere_else(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session says why it did not connect."""

    async def elsewhere(*_: Any, **__: Any) -> list[ResolveResult]:
        raise AnotherMachine("elsewhere")

    monkeypatch.setattr(ThisMachine, "resolve", elsewhere)
    await not_sent(await opened("http://pay.localhost:9"), "the name leads to another one; use https://")

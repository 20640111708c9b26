"""Whom a receiver refuses: counted by address and reason, and told to the log in moderation."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from ipn.faces import FACES
from ipn.memory_inbox import MemoryInbox
from ipn.notifications import notification

from payments_async.ipn import Receiver, ReceiverSettings, serving
from payments_async.ipn._intake import Refusals


class Clock:
    """Stands until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_flood_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """A few lines in ten seconds, whoever they are about; the counts tell the rest, in bounded memory."""
    clock = Clock()
    refusals = Refusals(clock)
    for number in range(5000):
        refusals.note(f"10.0.{number // 250}.{number % 250}", "unknown")
        refusals.note("10.9.9.9", "unknown")
    assert 10 == len(caplog.records)
    counts = {refusal.address: refusal.times for refusal in refusals.all()}
    assert (5000, 10_000, 1001) == (counts["10.9.9.9"], sum(counts.values()), len(counts))
    assert ["10.9.9.9"] == [refusal.address for refusal in refusals.all() if refusal.times == 5000]
    clock.now += 10
    refusals.note("10.9.9.9", "unknown")
    assert 10_000 == 10 + sum(vars(record)["not_logged_since"] for record in caplog.records)


async def test_every_refusal_is_counted_with_its_reason() -> None:
    """On each face, by address."""
    for face in FACES.values():
        receiver = Receiver(
            senders=["127.0.0.1"], path_token="a-token-nobody-guesses", settings=ReceiverSettings(max_body=1000)
        )
        async with face(receiver) as send:
            path = "/ipn/a-token-nobody-guesses"
            await send(notification(), path="/ipn/another-token-of-mine")
            await send(method="GET", path=path)
            await send(b"{", path=path)
            await send(b" " * 2000, path=path)
        whys = {refusal.why for refusal in receiver.refusals()}
        assert {"the path token is wrong", "it is not a POST", "the body is not readable JSON"} <= whys
        assert {"127.0.0.1"} == {refusal.address for refusal in receiver.refusals()}


@asynccontextmanager
async def under_uvicorn(receiver: Receiver, *, rewritten: bool = False, **settings: Any) -> AsyncIterator[int]:
    """The ASGI application in a real server."""
    uvicorn = pytest.importorskip("uvicorn")
    app = receiver.asgi("/ipn", rewritten=rewritten)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, **settings))
    running = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


async def answer(port: int, forwarded: str | None) -> bytes:
    """The status line of the answer to a notification that says so of its way."""
    body = notification()
    header = b"" if forwarded is None else f"X-Forwarded-For: {forwarded}\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /ipn HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n%b" % (header, len(body), body))
    line = await reader.readline()
    writer.close()
    return line.split()[1]


SPOOFED = ["52.48.24.237", "52.48.24.237:4711", "10.0.0.1, 52.48.24.237", "52.48.24.237, 52.48.24.237"]


@pytest.mark.parametrize("trusts", ["*", "127.0.0.1"])
async def test_an_address_that_a_server_took_out_of_headers_is_not_believed(
    trusts: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may have written it there; the log says once what to do, and who wants to believe the server says so."""
    caplog.set_level(logging.ERROR, "payments_async")
    receiver = Receiver(senders=["52.48.24.237"])
    async with under_uvicorn(receiver, forwarded_allow_ips=trusts) as port:
        assert {b"403"} == {await answer(port, forwarded) for forwarded in SPOOFED}
    (said,) = [record for record in caplog.records if "rewrites addresses" in record.getMessage()]
    assert "--no-proxy-headers" in vars(said)["remedy"]
    async with under_uvicorn(receiver, rewritten=True, forwarded_allow_ips=trusts) as port:
        assert b"200" == await answer(port, SPOOFED[0])


async def test_a_server_that_leaves_addresses_alone_is_believed() -> None:
    """The receiver reads the headers itself, of the proxies that it trusts."""
    async with under_uvicorn(Receiver(senders=["52.48.24.237"]), proxy_headers=False) as port:
        assert b"403" == await answer(port, SPOOFED[0])
    receiver = Receiver(senders=["52.48.24.237"], trusted_proxies=["127.0.0.1"])
    async with under_uvicorn(receiver, proxy_headers=False) as port:
        assert [b"200", b"403", b"403"] == [
            await answer(port, forwarded) for forwarded in (SPOOFED[0], "52.48.24.237, 10.0.0.1", None)
        ]


@pytest.mark.parametrize("face", FACES.values(), ids=FACES)
async def test_health_says_so_when_deliveries_cannot_be_stored(face: Any) -> None:
    """503 from the first that could not be, until something can be written again; a probe finds out."""
    inbox = MemoryInbox(time.time)
    receiver = Receiver(inbox, senders=["127.0.0.1"])
    async with face(receiver) as send:

        async def health() -> tuple[int, str]:
            got = await send(method="GET", path="/ipn/health")
            return got.status, json.loads(got.body)["status"]

        assert (200, "ok") == await health()
        inbox.broken = OSError("the disk is full")
        assert 503 == (await send(notification())).status
        assert [(503, "notifications cannot be stored")] * 2 == [await health(), await health()]
        inbox.broken = None
        assert (200, "ok") == await health()
        assert 200 == (await send(notification())).status


@pytest.mark.parametrize("is_alone", [True, False])
async def test_what_is_not_readable_as_http_is_in_no_log(is_alone: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A whole notification may be among its bytes: it is refused with a reason, and neither answer nor log shows it."""
    caplog.set_level(logging.DEBUG)
    receiver, application = Receiver(senders=["127.0.0.1"]), web.Application()
    receiver.mount(application, "/ipn")
    head = b"POST /ipn HTTP/1.1\nHost: x\nAuthorization: hidden\nContent-Length: %d\n\n%b"
    body = notification(StatusMessage="paid to Grace Akello")
    async with serving(receiver if is_alone else application, port=0) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(head % (len(body), body))
        answer = await reader.read()
        writer.close()
    told = answer.decode() + caplog.text
    assert (True, False, False) == ("HTTP/1.0 400" in told, "Akello" in told, "hidden" in told)
    assert "127.0.0.1: it is not readable as HTTP" in caplog.text

"""A receiver that is mounted in an application starts and ends with it, whatever framework that is of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from fastapi import FastAPI
from starlette.applications import Starlette

from payments_async.ipn import Receiver, TransactionSucceeded
from payments_async.journal import SqliteJournal
from payments_async.testing import notification

MADE = notification("r-1")


async def asked(app: Any, method: str, path: str, body: bytes = b"") -> int:
    """The status that an ASGI application answers with."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": "", "headers": []}
    scope |= {
        "client": ("127.0.0.1", 50000),
        "query_string": MADE.query.encode(),
        "scheme": "http",
        "http_version": "1.1",
    }
    await app(scope | {"server": ("127.0.0.1", 80), "asgi": {"version": "3.0"}}, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize("framework", [Starlette, FastAPI])
async def test_an_application_of_starlettes_kind(framework: Any, journal: SqliteJournal) -> None:
    """It answers with and without a slash, and its handlers are drained while what they use is still open."""
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
        told.append("opened")
        yield {"shop": "open"}
        told.append("closed")

    receiver = Receiver(journal, ["127.0.0.1"])

    @receiver.on(TransactionSucceeded)
    async def paid(event: TransactionSucceeded) -> None:
        told.append(f"paid {event.request_id}")

    app = framework(lifespan=lifespan)
    receiver.mount(app, "/hooks/ipn/")
    async with app.router.lifespan_context(app) as state:
        assert {"shop": "open"} == state
        assert 200 == await asked(app, "POST", "/hooks/ipn", MADE.body)
        assert 200 == await asked(app, "POST", "/hooks/ipn/", MADE.body)
        assert 200 == await asked(app, "GET", "/hooks/ipn/health")
        assert 404 == await asked(app, "POST", "/ipn", MADE.body)
    assert ["opened", "paid r-1", "closed"] == told


async def test_an_aiohttp_application(tmp_path: Path) -> None:
    """The same call for the other framework: it starts once the application has opened what is named after it."""
    journal, app = SqliteJournal(tmp_path / "inbox.sqlite", state_folder=None), web.Application()
    receiver = Receiver(journal, senders=["127.0.0.1"])
    receiver.mount(app)

    async def opened(_: web.Application) -> AsyncIterator[None]:
        async with journal:
            yield

    app.cleanup_ctx.append(opened)
    async with TestClient(TestServer(app)) as client:
        for path in ("/ipn", "/ipn/"):
            assert 200 == (await client.post(path, data=MADE.body)).status
        assert 200 == (await client.get("/ipn/health")).status
        assert "r-1" == (await receiver.wait_for("r-1", timeout=60)).request_id
        assert 404 == (await client.post("/ipn/other", data=MADE.body)).status


def test_what_nothing_can_be_mounted_in() -> None:
    """A mistake is told where it is made: neither at the first notification nor by a route that swallows all others."""
    receiver = Receiver()
    with pytest.raises(TypeError, match="not dict"):
        receiver.mount({})
    with pytest.raises(ValueError, match="such as '/ipn'"):
        receiver.mount(web.Application(), "/")


@pytest.mark.parametrize("reads", ["read", "text", "json"])
@pytest.mark.parametrize("token", [None, "a-token-of-20-letters"])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_middleware_of_aiohttp_that_reads_first(reads: str, token: str | None, is_chunked: bool) -> None:
    """The receiver takes the body that a log or a check of signatures has read, and limits it all the same."""
    heard: list[object] = []

    @web.middleware
    async def reader(request: web.Request, handler: Any) -> web.StreamResponse:
        heard.append(await getattr(request, reads)())
        answer: web.StreamResponse = await handler(request)
        return answer

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        yield body[:10]
        yield body[10:]

    receiver, app = Receiver(senders=["127.0.0.1"], path_token=token), web.Application(middlewares=[reader])
    receiver.mount(app)
    path = "/ipn" if token is None else f"/ipn/{token}"
    async with TestClient(TestServer(app)) as client:
        for body, expected in ((MADE.body, 200), (b'{"x": "' + b"a" * 70_000 + b'"}', 413)):
            answer = await client.post(path, data=pieces(body) if is_chunked else body)
            assert expected == answer.status
    assert 2 == len(heard)

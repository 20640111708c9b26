"""A sandbox with a clock that stands still, a caller that is logged in, and an IPN URL."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from nested import for_sandbox
from sandbox.calls import Caller, Inbox

from payments_async.sandbox import ManualClock, Quirks, Sandbox

Open = Callable[..., Awaitable[Caller]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Close, after the test, whatever it opened."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def inbox() -> Inbox:
    """Return what answers at the IPN URL."""
    return Inbox()


@pytest.fixture
async def ipn_url(inbox: Inbox) -> AsyncIterator[str]:
    """Serve the inbox."""
    app = web.Application()
    app.router.add_post("/ipn", inbox.receive)
    async with TestServer(app) as server:
        yield str(server.make_url("/ipn"))


@pytest.fixture
async def opened(stack: AsyncExitStack, ipn_url: str) -> Open:
    """Open a sandbox with settings, and quirks by name; a caller that can log in comes with it."""

    async def open_(*, login: bool = True, quirks: dict[str, Any] | None = None, **settings: Any) -> Caller:
        settings = {"clock": ManualClock(), "ipn_url": ipn_url} | settings
        sandbox = await stack.enter_async_context(Sandbox(quirks=Quirks(**quirks or {}), **for_sandbox(settings)))
        caller = Caller(sandbox, await stack.enter_async_context(aiohttp.ClientSession()))
        if login:
            await caller.login()
        return caller

    return open_


@pytest.fixture
async def caller(opened: Open) -> Caller:
    """Open a plain sandbox and log in."""
    return await opened()


@pytest.fixture
async def sandbox(caller: Caller) -> Sandbox:
    """Return the sandbox of the caller."""
    return caller.sandbox

"""A faked service, and sessions to it that close themselves."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from nested import for_session
from session.wires import SECRET, Times, Wire

from payments_async import PaymentsSession, RetryPolicy

Open = Callable[..., Awaitable[PaymentsSession]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What a test opened, closed in reverse."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def wire(stack: AsyncExitStack) -> Wire:
    """A server that answers what it is told."""
    return await stack.enter_async_context(Wire())


@pytest.fixture
async def opened(stack: AsyncExitStack, wire: Wire) -> Open:
    """Open a session that tries once, with a clock that moves by sleeping."""

    async def open_(**settings: Any) -> PaymentsSession:
        times = Times()
        plain: dict[str, Any] = {"retry": RetryPolicy(attempts=1), "clock": times.clock, "sleep": times.sleep}
        return await stack.enter_async_context(PaymentsSession(wire.base_url, SECRET, **for_session(plain | settings)))

    return open_

"""A pay desk: a service, a session, a journal and an outbox on it, and what became of its orders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
from bulk.worlds import World, payout, session
from nested import for_outbox, for_sandbox

from payments_async.journal import SqliteJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Sandbox

A_MINUTE = 60.0  # seconds; what guards a test against hanging


@attrs.define
class Desk(World):
    """A world with an outbox, which is open."""

    outbox: Outbox

    def executions(self) -> list[str]:
        """The request ids that the service has carried out, in their sequence, each as often as it was."""
        return [execution.request_id for execution in self.sandbox.ledger]

    async def comes_to(self, states: dict[str, int]) -> None:
        """Wait until so many orders are in each state, and no others."""
        await until(self.states, states)


@asynccontextmanager
async def desk(folder: Path, *, outbox: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Desk]:
    """Open everything; settings are the sandbox's."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(**for_sandbox(settings)))
        journal = await stack.enter_async_context(SqliteJournal(folder / "journal.db"))
        payments = await stack.enter_async_context(session(sandbox))
        opened = await stack.enter_async_context(Outbox(payments, journal, **for_outbox(outbox or {})))
        yield Desk(sandbox, payments, journal, opened)


async def until(look: Callable[[], Awaitable[Any]], expected: Any) -> None:
    """Wait until it looks as expected; when it never does, say how it looks."""
    seen = None
    try:
        async with asyncio.timeout(A_MINUTE):
            while (seen := await look()) != expected:  # noqa: ASYNC110 - other processes have no event to wait for
                await asyncio.sleep(0.01)
    except TimeoutError:
        assert expected == seen


def ids(numbers: range) -> list[str]:
    """The request ids of orders."""
    return [payout(number).request_id for number in numbers]

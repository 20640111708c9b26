"""Machines that work one outbox: by themselves, or handed the chunks of batches by PGQueuer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
from bulk.worlds import session
from journal import postgres
from nested import for_outbox

from payments_async.fleet import run_worker, submit
from payments_async.journal import PostgresJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Sandbox

NEVER = 3600.0  # seconds; a lease that is waited for hangs the test


@attrs.define
class Machine:
    """One that works: its outbox, and what has it leave."""

    outbox: Outbox
    stop: asyncio.Event
    task: asyncio.Task[None]

    async def leave(self) -> None:
        """Finish what is under way, and end."""
        self.stop.set()
        await self.task


@attrs.frozen
class Dispatch:
    """Who hands out the chunks of batches.

    Attributes:
        machine: Opens one that works.
        put: Puts a batch.
    """

    machine: Callable[..., AbstractAsyncContextManager[Machine]]
    put: Callable[..., Awaitable[object]]


def journal_of(schema: str, folder: Path, name: str = "one") -> PostgresJournal:
    """The journal as one machine has it."""
    return PostgresJournal(postgres.dsn(), schema=schema, state_folder=folder / name)


@asynccontextmanager
async def embedded(sandbox: Sandbox, journal: PostgresJournal, **options: Any) -> AsyncIterator[Machine]:
    """It takes chunks by itself."""

    async def work(outbox: Outbox, stop: asyncio.Event) -> None:
        await stop.wait()
        await outbox.aclose()

    async with _machine(sandbox, journal, work, **options) as machine:
        yield machine


@asynccontextmanager
async def by_pgqueuer(sandbox: Sandbox, journal: PostgresJournal, **options: Any) -> AsyncIterator[Machine]:
    """It is handed them."""

    async def work(outbox: Outbox, stop: asyncio.Event) -> None:
        await run_worker(outbox, stop=stop)

    async with _machine(sandbox, journal, work, claims_batches=False, **options) as machine:
        yield machine


@asynccontextmanager
async def _machine(
    sandbox: Sandbox, journal: PostgresJournal, work: Callable[..., Any], **options: Any
) -> AsyncIterator[Machine]:
    async with (
        journal,
        session(sandbox) as payments,
        Outbox(payments, journal, **for_outbox({"lease": NEVER} | options)) as outbox,
    ):
        stop = asyncio.Event()
        machine = Machine(outbox, stop, asyncio.ensure_future(work(outbox, stop)))
        try:
            yield machine
        finally:
            await machine.leave()


@asynccontextmanager
async def clerk(sandbox: Sandbox, journal: PostgresJournal) -> AsyncIterator[Outbox]:
    """Somebody who only puts."""
    async with (
        journal,
        session(sandbox) as payments,
        Outbox(payments, journal, worker=None) as outbox,
    ):
        yield outbox


DISPATCHES = {
    "embedded": Dispatch(embedded, Outbox.put_batch),
    "pgqueuer": Dispatch(by_pgqueuer, submit),
}

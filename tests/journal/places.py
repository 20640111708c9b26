"""A service with a clock of its own, and a machine whose clock may be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import attrs
from bulk.worlds import payout, session
from journal.conftest import Home
from nested import for_reconcile

from payments_async import PaymentsSession
from payments_async.bulk import Reconciliation, RunSettings, reconcile, run_batch
from payments_async.journal import Journal
from payments_async.sandbox import Fault, ManualClock, Quirks, Sandbox
from payments_async.testing import Testing

DAY = 86_400.0
AHEAD = 3 * DAY


@attrs.define
class DatedClock:
    """A clock that is moved, by which the service also dates its answers."""

    moved: ManualClock = attrs.field(factory=ManualClock)

    def now(self) -> datetime:
        """The present instant."""
        return self.moved.now()

    async def sleep(self, seconds: float) -> None:
        """Wait until it was moved as far."""
        await self.moved.sleep(seconds)


@attrs.define
class Place:
    """A service with a clock that is right, and a machine whose clock may not be."""

    sandbox: Sandbox
    clock: DatedClock
    journal: Journal
    wrong: float = 0.0

    def right(self) -> float:
        """Unix seconds that are so."""
        return self.clock.now().timestamp()

    def now(self) -> float:
        """Unix seconds by the machine's clock."""
        return self.right() + self.wrong

    @asynccontextmanager
    async def session(self) -> AsyncIterator[PaymentsSession]:
        """A new one, which has heard nothing of the service yet."""
        async with session(self.sandbox, now=self.now, clock=self.right) as payments:
            yield payments

    async def send(self, number: int, *, lost: bool = False) -> None:
        """Send an order as a batch of its own; it may be carried out without an answer."""
        if lost:
            self.sandbox.script(Fault.LOST_AFTER, on="money", request_id=payout(number).request_id)
        async with self.session() as payments:
            await run_batch(
                payments,
                self.journal,
                f"batch {number}",
                [payout(number)],
                settings=RunSettings(testing=Testing(now=self.now), look_first="never"),
            )

    async def pass_(self, seconds: float) -> None:
        """Let time pass for everybody."""
        self.clock.moved.advance(seconds)
        await asyncio.sleep(0)  # what slept goes on

    async def look(self, **settings: Any) -> Reconciliation:
        """Reconcile everything, in a session of its own."""

        async def sleep(seconds: float) -> None:
            await self.pass_(seconds)

        async with self.session() as payments:
            return await reconcile(
                payments, self.journal, **for_reconcile({"now": self.now, "sleep": sleep} | settings)
            )

    async def state(self, number: int) -> str:
        """Where an order stands."""
        entry = await self.journal.entry(payout(number).request_id)
        assert entry is not None
        return str(entry.state)

    async def sent_at(self, number: int) -> float:
        """When it was permitted, by the journal."""
        entry = await self.journal.entry(payout(number).request_id)
        assert entry is not None
        assert entry.permitted_at is not None
        return entry.permitted_at


def opener(home: Home) -> Callable[..., Any]:
    """Opens everything, with these quirks of the service."""

    @asynccontextmanager
    async def open_(**quirks: Any) -> AsyncIterator[Place]:
        clock = DatedClock()
        async with Sandbox(clock=clock, quirks=Quirks(**quirks)) as sandbox:
            place = Place(sandbox, clock, None)  # type: ignore[arg-type]  # it needs the clock of the place
            async with home.opens(clock=place.now) as journal:
                place.journal = journal
                yield place

    return open_

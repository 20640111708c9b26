"""A process that stands still at the worst moment: what it was about to send is not sent after its lease."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bulk.worlds import BATCH, contradiction, payout, payouts, session

from payments_async.bulk import run_batch
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Sandbox

LEASE = 30.0  # seconds


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service."""
    async with Sandbox() as service:
        yield service


class Stall:
    """A process that stands still for a minute once its first permit is on disk; meanwhile others take it for dead."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ahead = 0.0  # seconds by which all clocks have gone on
        self.is_permitted = False
        self.taken_over = 0

    def passed(self, point: str) -> None:
        """Called by the journal at every point between two steps, in its own thread."""
        if point == "permit.written":
            self.is_permitted = True
        if point == "commit.done" and self.is_permitted and not self.ahead:
            self.ahead = 2 * LEASE
            self.taken_over = asyncio.run(self._take_over())

    async def _take_over(self) -> int:
        async with SqliteJournal(self.path, clock=self.unix) as other:
            return await other.expire_chunks(BATCH)

    def unix(self) -> float:
        """Seconds since 1970."""
        return time.time() + self.ahead

    def monotonic(self) -> float:
        """Seconds since something."""
        return time.monotonic() + self.ahead


async def test_a_lease_that_runs_out_between_permit_and_sending_sends_nothing(tmp_path: Path, sandbox: Sandbox) -> None:
    """The permit was good when it was granted. Somebody else decides about the order by now, so it stays here."""
    stall = Stall(tmp_path / "journal.db")
    async with (
        SqliteJournal(stall.path, clock=stall.unix, crash_at=stall.passed) as journal,
        session(sandbox, clock=stall.monotonic) as payments,
    ):
        await payments.log_in()
        done = await run_batch(payments, journal, BATCH, payouts(3), concurrency=1, lease=LEASE)
        assert 1 == stall.taken_over
        assert (1, 2) == (done.counts["unknown"], done.counts["accepted"])
        assert [0, 1, 1] == [sandbox.executions(payout(number).request_id) for number in range(3)]
        async for entry in journal.entries():
            executed = [one for one in sandbox.ledger if one.request_id == entry.request_id]
            assert contradiction(entry.state, executed[0] if executed else None) is None

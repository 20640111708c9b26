"""A process that stands still at the worst moment: what it was about to send is not sent after its lease."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

import aiohttp
import pytest
from bulk.worlds import BATCH, contradiction, payout, payouts, session

from payments_async.bulk import RunProgress, RunSettings, run_batch
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Fault, ManualClock, Sandbox
from payments_async.testing import Testing

LEASE = 30.0  # seconds


class Stalls:
    """A process that stands still each time something of it is on disk; the last time others take it for dead.

    Args:
        plan: What was written, and for how many seconds it stands still then; one after the other.
    """

    def __init__(self, path: Path, *plan: tuple[str, float]) -> None:
        self.path = path
        self.ahead = 0.0  # seconds by which all clocks have gone on
        self.plan = list(plan)
        self.is_written = False
        self.taken_over = 0
        self.attempts: list[int] = []

    def passed(self, point: str) -> None:
        """Called by the journal at every point between two steps, in its own thread."""
        if self.plan and point == f"{self.plan[0][0]}.written":
            self.is_written = True
        if point == "commit.done" and self.is_written:
            self.is_written = False
            asyncio.run(self._stand_still())

    async def _stand_still(self) -> None:
        """Others take it over before it goes on: else it would renew its lease as soon as the clocks have gone on."""
        _, seconds = self.plan.pop(0)
        if not self.plan:
            async with SqliteJournal(self.path, testing=Testing(now=lambda: self.unix() + seconds)) as other:
                self.taken_over = await other.expire_chunks(BATCH)
        self.ahead += seconds

    async def connected(self, *_: object) -> None:
        """Called when a connection was made, for the first order: the machine was asleep meanwhile."""
        if self.plan and self.plan[0][0] == "connected":
            await self._stand_still()

    def unix(self) -> float:
        """Seconds since 1970."""
        return time.time() + self.ahead

    def monotonic(self) -> float:
        """Seconds since something."""
        return time.monotonic() + self.ahead

    def is_past(self, what: str) -> bool:
        """Whether it stood still after that."""
        return all(written != what for written, _ in self.plan)


async def ran(path: Path, stalls: Stalls, sandbox: Sandbox, meanwhile: Awaitable[object] | None = None) -> RunProgress:
    """A run of three orders, one after the other; nothing it wrote down contradicts the ledger."""
    async with (
        SqliteJournal(path, testing=Testing(now=stalls.unix, crash_at=stalls.passed)) as journal,
        session(sandbox, clock=stalls.monotonic) as payments,
    ):
        await payments.log_in()
        running = asyncio.ensure_future(
            run_batch(payments, journal, BATCH, payouts(3), settings=RunSettings(concurrency=1, lease=LEASE))
        )
        if meanwhile is not None:
            await meanwhile
        done = await running
        async for entry in journal.entries():
            executed = [one for one in sandbox.ledger if one.request_id == entry.request_id]
            assert contradiction(entry.state, executed[0] if executed else None) is None
        stalls.attempts = await permits(journal)
    return done


async def permits(journal: SqliteJournal) -> list[int]:
    """How many permits each order had."""
    return [entry.attempt async for entry in journal.entries()]


def executions(sandbox: Sandbox) -> list[int]:
    """How often each of the three orders was carried out."""
    return [sandbox.executions(payout(number).request_id) for number in range(3)]


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param([("permit", LEASE + 1)], id="after the permit"),
        pytest.param([("claim_chunk", LEASE - 5), ("permit", 6)], id="after the claim and after the permit"),
    ],
)
async def test_a_lease_that_runs_out_between_permit_and_sending_sends_nothing(
    tmp_path: Path, plan: list[tuple[str, float]], service: Sandbox
) -> None:
    """The permit was good when it was granted. Somebody else decides about the order by now: it needs another one."""
    path = tmp_path / "journal.db"
    done = await ran(path, stalls := Stalls(path, *plan), service)
    assert 1 == stalls.taken_over
    assert 3 == done.counts["accepted"]
    assert ([2, 1, 1], [1, 1, 1]) == (stalls.attempts, executions(service))


async def test_a_machine_that_sleeps_while_it_connects_sends_nothing_when_it_wakes_up(
    tmp_path: Path, service: Sandbox
) -> None:
    """A laptop that is shut, between its permit and the first byte: hours later a person may have decided otherwise."""
    stalls = Stalls(tmp_path / "journal.db", ("permit", 0.0), ("connected", 10 * 3600.0))
    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(stalls.connected)
    one_for_each_call = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=one_for_each_call, trace_configs=[trace]) as http,
        SqliteJournal(stalls.path, testing=Testing(now=stalls.unix, crash_at=stalls.passed)) as journal,
        session(service, http=http, clock=stalls.monotonic) as payments,
    ):
        done = await run_batch(payments, journal, BATCH, payouts(3), settings=RunSettings(concurrency=1, lease=LEASE))
        assert 3 == done.counts["accepted"]
        assert ([2, 1, 1], [1, 1, 1]) == (await permits(journal), executions(service))
        assert 1 == stalls.taken_over


async def test_a_lease_is_as_long_as_when_its_renewal_was_asked_for(tmp_path: Path) -> None:
    """Not as when the answer came: it stood still in between, and again after the permit for the next order."""
    path = tmp_path / "journal.db"
    stalls = Stalls(path, ("claim_chunk", LEASE / 2), ("renew_chunk", LEASE - 5), ("permit", 6))
    async with Sandbox(clock=ManualClock()) as sandbox:
        sandbox.script(Fault.SLOW, on="money", seconds=1.0)

        async def until_renewed() -> None:
            """The first order is under way meanwhile."""
            async with asyncio.timeout(60):
                while not (sandbox.ledger and stalls.is_past("renew_chunk")):  # noqa: ASYNC110 - in another thread
                    await asyncio.sleep(0.01)
            await sandbox.advance(1.0)

        done = await ran(path, stalls, sandbox, until_renewed())
        assert 1 == stalls.taken_over
        assert 3 == done.counts["accepted"]
        assert ([1, 2, 1], [1, 1, 1]) == (stalls.attempts, executions(sandbox))

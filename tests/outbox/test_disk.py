"""A journal that cannot be written for a while: puts say so, nothing is sent unwritten, and it goes on by itself."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path

import attrs
import pytest
from bulk.worlds import World, payout, session
from outbox.desks import A_MINUTE, Desk, until

from payments_async.journal import JournalUnavailable, Run, SqliteJournal
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing

COUNT = 60


@attrs.define
class Faults:
    """What happens to commits.

    Attributes:
        rate: Of them that fail.
        points: Where: before they are on disk, or after it, so that only the answer is lost.
    """

    rate: float = 0.0
    points: tuple[str, ...] = ("commit.begun", "commit.done")
    struck: int = 0
    chance: random.Random = attrs.field(factory=lambda: random.Random(7))

    def __call__(self, point: str) -> None:
        """What the journal calls at each point."""
        if point in self.points and self.chance.random() < self.rate:
            self.struck += 1
            raise _fault()


def _fault() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR, "SQLITE_IOERR"
    return error


@asynccontextmanager
async def opened(folder: Path, faults: Callable[[str], None] | None = None) -> AsyncIterator[Desk]:
    """An outbox whose journal has hardly any patience, and whose leases never run out."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox())
        path = folder / "journal.db"
        journal = await stack.enter_async_context(
            SqliteJournal(path, busy_timeout=0.05, testing=Testing(crash_at=faults))
        )
        payments = await stack.enter_async_context(session(sandbox))
        outbox = await stack.enter_async_context(
            Outbox(payments, journal, worker=WorkerSettings(lease=3600.0, settles=False), concurrency=10)
        )
        await outbox.pay(payout(9999), timeout=A_MINUTE)
        yield Desk(sandbox, payments, journal, outbox)


async def pay_all(here: Desk) -> int:
    """Pay all orders at once, as an application does: whoever is told that it failed pays again. How often it did."""
    failed = 0

    async def pay(number: int) -> None:
        nonlocal failed
        while True:
            try:
                await here.outbox.pay(payout(number), timeout=0.5)
            except JournalUnavailable:
                failed += 1
                await asyncio.sleep(0.02)
            else:
                return

    async with asyncio.timeout(A_MINUTE), asyncio.TaskGroup() as group:
        for number in range(COUNT):
            group.create_task(pay(number))
    return failed


async def comes_to_rest(here: World) -> None:
    """Nothing waits and nothing is under way any more, and no state contradicts the ledger."""
    await until(lambda: _at_rest(here), True)
    await here.check(COUNT + 1)


async def _at_rest(here: World) -> bool:
    return not {"planned", "sending"} & set(await here.states())


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("point", ["commit.begun", "commit.done"])
async def test_commits_that_fail_now_and_then(tmp_path: Path, point: str) -> None:
    """Whether they happened or only their answer was lost: each order is sent once at most, and none is forgotten."""
    faults = Faults(points=(point,))
    async with opened(tmp_path, faults) as here:  # also of a chunk that nobody knows to be leased
        faults.rate = 0.1
        await pay_all(here)
        faults.rate = 0.0
        await comes_to_rest(here)
        assert faults.struck > 0


class LostAnswer:
    """The first commit that claims a chunk, once it is armed, happens, and its answer is lost."""

    is_armed = has_claimed = False

    def __call__(self, point: str) -> None:
        """What the journal calls at each point."""
        if self.is_armed and point == "claim_chunk.token_raised":
            self.is_armed, self.has_claimed = False, True
        elif self.has_claimed and point == "commit.done":
            self.has_claimed = False
            raise _fault()


async def test_a_claim_that_happened_and_whose_answer_was_lost(tmp_path: Path) -> None:
    """Nobody knows that the chunk is leased: it is given back all the same, long before that is over."""
    lost = LostAnswer()
    async with opened(tmp_path, lost) as here:
        await here.outbox.aclose()
        async with Outbox(here.payments, here.journal, worker=None) as other:
            await other.put(payout(0))
        lost.is_armed = True
        async with Outbox(here.payments, here.journal, worker=WorkerSettings(lease=3600.0, settles=False)):
            await here.comes_to({"accepted": 2})
        assert not lost.is_armed


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.slow
async def test_a_journal_that_another_process_holds(tmp_path: Path) -> None:
    """Orders under way come to their end; what was put before and after is sent, once the file is free."""
    async with opened(tmp_path) as here:
        here.sandbox.chaos({Fault.SLOW: 1.0}, seconds=0.05)
        for number in range(0, COUNT, 2):
            await here.outbox.put(payout(number))
        with locked(tmp_path / "journal.db"):
            with pytest.raises(JournalUnavailable):
                await here.outbox.put(payout(1))
            await until(lambda: _is_well(here.outbox), False)
            sent = len(here.sandbox.ledger)
            with pytest.raises(JournalUnavailable):
                await here.outbox.pay(payout(1))
            assert sent == len(here.sandbox.ledger), "something was sent that was not written down"
        await pay_all(here)
        await comes_to_rest(here)
        await until(lambda: _is_well(here.outbox), True)


async def _is_well(outbox: Outbox) -> bool:
    return (await outbox.health()).is_well


@pytest.mark.slow(covered=True)
async def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    """Puts are refused, nothing is sent, and with room again everything goes on."""
    async with opened(tmp_path) as here:
        await _pages(here.journal, 1)  # as few as there are
        refused = 0
        for number in range(1000, 2000):
            try:
                await here.outbox.put(payout(number))
            except JournalUnavailable:
                refused += 1
            if refused == 3:
                break
        assert 3 == refused
        put = number - 1000 - 2
        await _pages(here.journal, 1_000_000)
        await pay_all(here)
        await until(lambda: _at_rest(here), True)
        await here.check(COUNT + 1 + put)


@pytest.mark.slow
async def test_an_outbox_is_hindered_until_its_journal_takes_a_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It can be read all the while: health does not say in between that all is well, and one line of the log tells."""
    faults = Faults(points=("commit.begun",))
    async with opened(tmp_path, faults) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        faults.rate = 1.0
        with pytest.raises(JournalUnavailable):
            await here.outbox.put(payout(1))
        begun, ask = 0, here.journal.run

        async def run(batch_id: str) -> Run:
            nonlocal begun
            begun += 1
            return await ask(batch_id)

        async def has_begun_again() -> bool:
            return begun >= 2

        here.journal.run = run  # type: ignore[method-assign]
        await until(has_begun_again, True)
        assert ["hindered"] == [one.code for one in (await here.outbox.health()).problems]
        assert 1 == sum("sends nothing" in line.getMessage() for line in caplog.records)
        faults.rate = 0.0
        await here.outbox.pay(payout(1), timeout=A_MINUTE)
        assert (await here.outbox.health()).is_well
        assert [] == here.sandbox.duplicates()


async def _pages(journal: SqliteJournal, most: int) -> None:
    """How large the file may get."""
    await journal._submit("check_writable", lambda commit: commit.execute(f"PRAGMA max_page_count = {most}").fetchall())

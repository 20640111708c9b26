"""A service that lists late, and a journal that was put back: nothing is paid twice, whatever its list misses yet."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from bulk.worlds import BATCH, payout, payouts, session
from outbox.desks import A_MINUTE

from payments_async import PaymentsSession
from payments_async.bulk import Fuse, RunProgress, RunSettings, lift_quarantine, reconcile, run_batch, send_again_all
from payments_async.journal import HeldElsewhere, NotLookedFor, SqliteJournal, TakeoverAuthorisation
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Quirks, Sandbox
from payments_async.testing import Testing

COUNT, KNOWN = 12, 3  # orders in all, and those that the backup knows to be sent
LATE = [0, 3, 8]  # readings after which a transaction is listed
_MOST = 20  # times that an operator reconciles
WORD = TakeoverAuthorisation(who="A. Clerk", why="the disk burnt")
MEMORY = {"remembered": "state", "forgotten": "another"}


@attrs.define
class Scene:
    """A journal in a folder, and a clock that everybody goes by."""

    sandbox: Sandbox
    payments: PaymentsSession
    folder: Path
    ahead: float = 0.0

    def clock(self) -> float:
        """Unix seconds."""
        return time.time() + self.ahead

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.ahead += seconds

    async def nap(self, seconds: float) -> None:
        """Let time pass, and others go on."""
        self.ahead += seconds
        await asyncio.sleep(0.01)

    @property
    def path(self) -> Path:
        """Of the journal."""
        return self.folder / "journal/journal.db"

    def journal(self, state: str = "state") -> SqliteJournal:
        """Open it, on a machine that keeps its memory in that folder."""
        self.path.parent.mkdir(exist_ok=True)
        return SqliteJournal(self.path, state_folder=self.folder / state, testing=Testing(now=self.clock))

    async def run(self, journal: SqliteJournal, fuse: Fuse | None = None) -> RunProgress:
        """Run the batch."""
        return await run_batch(
            self.payments,
            journal,
            BATCH,
            payouts(COUNT),
            fuse=fuse,
            settings=RunSettings(testing=Testing(now=self.clock), concurrency=1),
        )


@asynccontextmanager
async def scene(folder: Path, late: int) -> AsyncIterator[Scene]:
    """A service that lists late."""
    async with Sandbox(quirks=Quirks(listed_after=late)) as sandbox, session(sandbox) as payments:
        yield Scene(sandbox, payments, folder)


def put_in_place(here: Scene, backup: Path) -> None:
    """``rm -rf folder && cp -a backup folder``."""
    shutil.rmtree(here.path.parent)
    shutil.copytree(backup, here.path.parent, copy_function=shutil.copy2)


def put_over(here: Scene, backup: Path) -> None:
    """``cp -a backup/journal.db folder``: the mark beside it stays."""
    here.path.write_bytes((backup / here.path.name).read_bytes())


STRIKES: dict[str, Callable[[Scene, Path], None]] = {"rm, cp -a": put_in_place, "cp over": put_over}


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize(
    ("late", "known", "strike", "memory"),
    [
        (0, KNOWN, "rm, cp -a", "remembered"),
        (3, KNOWN, "cp over", "forgotten"),
        (8, KNOWN, "rm, cp -a", "forgotten"),
        (8, 0, "cp over", "remembered"),
    ],
)
async def test_an_operator_who_does_what_is_told(
    tmp_path: Path, late: int, known: int, strike: str, memory: str
) -> None:
    """Quarantine, reconcile with its defaults, lift, run: what was sent after the backup is never sent again."""
    async with scene(tmp_path, late) as here:
        async with here.journal() as journal:
            await here.run(journal, Fuse(max_total=sum([payout(n).amount for n in range(known)], Decimal(0))))
        backup = tmp_path / "backup"
        await asyncio.to_thread(shutil.copytree, here.path.parent, backup)
        async with here.journal() as journal:
            await here.run(journal)
        assert COUNT == len(here.sandbox.ledger)
        await asyncio.to_thread(STRIKES[strike], here, backup)
        async with here.journal(MEMORY[memory]) as journal:
            assert (0, True) == ((await here.run(journal)).sent, (await journal.run(BATCH)).awaits is not None)
            for _ in range(_MOST):
                await reconcile(here.payments, journal, BATCH, testing=Testing(now=here.clock, sleep=here.sleep))
                try:
                    await lift_quarantine(journal, BATCH, "A. Clerk", "reconcile said nothing")
                    break
                except NotLookedFor:
                    await here.sleep(300.0)
            else:
                pytest.fail("the quarantine was never lifted")
            done = await here.run(journal)
            assert (0, 0) == (done.sent, done.counts["planned"])
        assert [] == here.sandbox.duplicates()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "strike", "memory"),
    [(3, "cp over", "forgotten"), (8, "rm, cp -a", "remembered")],
)
async def test_what_is_put_into_an_outbox_that_was_put_back(
    tmp_path: Path, late: int, strike: str, memory: str
) -> None:
    """It waits for two clean lists, a quarter of an hour after that was found; what they show is not sent again."""

    async def passing(here: Scene) -> None:
        while True:
            await asyncio.sleep(0.05)
            here.ahead += 30.0

    async def put(outbox: Outbox, *numbers: int) -> None:
        for number in numbers:
            async with asyncio.timeout(A_MINUTE):
                while True:
                    with suppress(HeldElsewhere):  # this machine remembers it, and no list has shown it yet
                        await outbox.put(payout(number))
                        break
                    await asyncio.sleep(0.05)
            await outbox.pay(payout(number), timeout=A_MINUTE)

    async with scene(tmp_path, late) as here:
        async with (
            here.journal() as journal,
            Outbox(
                here.payments, journal, testing=Testing(now=here.clock), worker=WorkerSettings(settles=False)
            ) as outbox,
        ):
            await put(outbox, *range(KNOWN))
        backup = tmp_path / "backup"
        await asyncio.to_thread(shutil.copytree, here.path.parent, backup)
        async with (
            here.journal() as journal,
            Outbox(
                here.payments, journal, testing=Testing(now=here.clock), worker=WorkerSettings(settles=False)
            ) as outbox,
        ):
            await put(outbox, *range(KNOWN, COUNT))
        await asyncio.to_thread(STRIKES[strike], here, backup)
        clock = asyncio.create_task(passing(here))
        try:
            async with here.journal(MEMORY[memory]) as journal:
                outbox = Outbox(
                    here.payments,
                    journal,
                    testing=Testing(now=here.clock, sleep=here.nap),
                    worker=WorkerSettings(settles=False),
                )
                async with outbox:
                    assert (await journal.run("outbox")).awaits is not None
                    await put(outbox, *range(KNOWN, COUNT + 1))
        finally:
            clock.cancel()
            await asyncio.wait([clock])
        assert [] == here.sandbox.duplicates()
        assert COUNT + 1 == len(here.sandbox.ledger)


@pytest.mark.parametrize("late", LATE)
async def test_orders_that_a_new_journal_adopts_after_the_first_was_lost(tmp_path: Path, late: int) -> None:
    """A person adopts each of them, and has each parked one sent: what the lost journal sent is not sent again."""
    async with scene(tmp_path, late) as here:
        async with (
            here.journal() as journal,
            Outbox(
                here.payments, journal, testing=Testing(now=here.clock), worker=WorkerSettings(settles=False)
            ) as outbox,
        ):
            for number in range(COUNT):
                await outbox.pay(payout(number), timeout=A_MINUTE)
            await outbox.pause("A. Clerk", "lunch")
            await outbox.put(payout(COUNT))  # never sent
        await asyncio.to_thread(shutil.rmtree, here.path.parent)
        async with (
            SqliteJournal(
                tmp_path / "new.db",
                state_folder=tmp_path / "state",
                testing=Testing(now=here.clock),
                second_journal=WORD,
            ) as journal,
            Outbox(
                here.payments, journal, testing=Testing(now=here.clock), worker=WorkerSettings(settles=False)
            ) as outbox,
        ):
            for number in range(COUNT + 1):
                try:
                    await outbox.put(payout(number))  # those that the first list shows are known
                except HeldElsewhere:
                    entry = await outbox.put(payout(number), adoption=WORD)
                    assert entry.state in {"unknown", "accepted"}  # that list may have come meanwhile
            for _ in range(_MOST):
                await reconcile(here.payments, journal, "outbox", testing=Testing(now=here.clock, sleep=here.sleep))
                parked = [entry.request_id async for entry in journal.entries("outbox", "parked")]
                if parked:
                    await send_again_all(journal, parked, "A. Clerk", "no list shows it")
                counts = (await journal.progress("outbox")).counts
                if not counts["unknown"]:
                    break
                await here.sleep(300.0)
            await outbox.pay(payout(COUNT), timeout=A_MINUTE)
        assert [] == here.sandbox.duplicates()
        assert COUNT + 1 == len(here.sandbox.ledger)

"""Looking first: a journal that may have forgotten reads the service's list, and what it shows is never sent again."""

import asyncio
import shutil
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from bulk.worlds import BATCH, World, payout, payouts, session, world
from nested import for_run

from payments_async.bulk import (
    FirstLook,
    Fuse,
    ReconcileSettings,
    RunProgress,
    RunSettings,
    lift_quarantine,
    reconcile,
    run_batch,
)
from payments_async.journal import NotLookedFor, SqliteJournal
from payments_async.sandbox import Fault
from payments_async.testing import Testing

COUNT = 30
DAY = 86_400.0
# a list that shifts, lies and counts wrongly, and still shows everything
LISTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "newest first": {"newest_first": True},
    "next page lies": {"next_page_lies": True},
    "small pages": {"max_page_size": 7},
    "dates ignored": {"ignores_date_filter": True},
    "other date keys": {"date_keys": (("startDate", "endDate"),)},
    "status in records": {"record_has_status": True},
    "sign": {"record_amount_sign": "collections_negative"},
    "product and beneficiary swapped": {"list_swaps_product": True},
    "fewer counted than shown": {"total_error": -20, "max_page_size": 7},
    "not counted at all": {"total_error": None, "max_page_size": 7},
    "nothing of any days": {"dates_show_nothing": True, "max_page_size": 7},
    "request ids in capitals": {"request_id_case": "upper"},
}
# a list that does not show everything
HALVES: dict[str, dict[str, Any]] = {
    "every page is the first": {"repeats_first_page": True, "max_page_size": 7},
    "every page is the first, and nothing is counted": {
        "repeats_first_page": True,
        "max_page_size": 7,
        "total_error": None,
    },
    "more counted than shown": {"total_error": 3},
}


@asynccontextmanager
async def beside(here: World, folder: Path, name: str = "other.db") -> AsyncIterator[World]:
    """The same service and session, with another journal, on a machine that knows nothing of the first."""
    async with SqliteJournal(folder / name, state_folder=folder / "another machine") as journal:
        yield attrs.evolve(here, journal=journal)


async def run(here: World, count: int = COUNT, **settings: Any) -> RunProgress:
    """Run the batch."""
    return await run_batch(here.payments, here.journal, BATCH, payouts(count), **for_run(settings))


def read(here: World) -> int:
    """How many pages of transactions were asked for."""
    return len([one for one in here.sandbox.requests if one.path == "/api/transactions"])


def paid_once(here: World, count: int = COUNT) -> None:
    """Each order was carried out once."""
    assert (count, []) == (len(here.sandbox.ledger), here.sandbox.duplicates())


def files_in(folder: Path) -> dict[Path, bytes]:
    """All of a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def bring_back(folder: Path, snapshot: dict[Path, bytes]) -> None:
    """Write them back into the same files, as the snapshot of a machine does."""
    for path in files_in(folder).keys() - snapshot.keys():
        path.unlink()
    for path, content in snapshot.items():
        path.write_bytes(content)


async def test_request_ids_in_letters_of_both_kinds(tmp_path: Path) -> None:
    """A list that shows them in capitals shows these orders all the same."""
    async with world(tmp_path, {"request_id_case": "upper"}) as here:
        vouchers = [payout(number, request_id=f"Voucher-{number}") for number in range(COUNT)]
        await run_batch(here.payments, here.journal, BATCH, vouchers)
        async with beside(here, tmp_path) as there:
            done = await run_batch(there.payments, there.journal, BATCH, vouchers)
        assert done.looked is not None
        assert COUNT == done.looked.found
        paid_once(here)


# --- a journal that was restored --------------------------------------------------------------------------------------


async def test_a_backup_from_before_the_run_pays_nothing_again(tmp_path: Path) -> None:
    """The run stops; the lift is refused until all is looked for. That contradicts nothing, and nothing is left."""
    path = tmp_path / "journal.db"
    async with world(tmp_path) as here:
        stop = asyncio.Event()
        stop.set()
        await run(here, stop=stop)
        await here.journal.aclose()
        backup = path.read_bytes()
        async with SqliteJournal(path) as journal:
            assert COUNT == (await run(attrs.evolve(here, journal=journal))).sent
        for name in ("journal.db", "journal.db-wal"):
            (tmp_path / name).unlink(missing_ok=True)
        path.write_bytes(backup)
        async with SqliteJournal(path) as journal:
            restored = attrs.evolve(here, journal=journal)
            stopped = await run(restored)
            assert (0, COUNT) == (stopped.sent, stopped.counts["planned"])
            assert "reconcile, then lift it" in str(stopped.stopped)
            with pytest.raises(NotLookedFor):
                await lift_quarantine(journal, BATCH, "A. Clerk", "reconcile said nothing")
            report = await reconcile(here.payments, journal, BATCH, settings=ReconcileSettings(grace=0.0, interval=0.0))
            assert (COUNT, ()) == (report.found, report.conflicts)
            await lift_quarantine(journal, BATCH, "A. Clerk", "all looked up")
            done = await run(restored)
            assert (0, 0) == (done.sent, done.counts["planned"])
        paid_once(here)


async def test_a_list_that_cannot_be_read_lifts_nothing(tmp_path: Path) -> None:
    """Reconcile says so, and a quarantine that nobody has looked for stays."""
    async with world(tmp_path) as here:
        stop = asyncio.Event()
        stop.set()
        await run(here, stop=stop)
        await here.journal.aclose()
        shutil.copyfile(tmp_path / "journal.db", tmp_path / "copy.db")
        async with beside(here, tmp_path, "copy.db") as copy:
            here.sandbox.script(Fault.ERROR_BEFORE, times=None, on="transactions")
            report = await reconcile(copy.payments, copy.journal, settings=ReconcileSettings(patience=0.0))
            assert "absence from the list" in report.unread[0]
            with pytest.raises(NotLookedFor):
                await lift_quarantine(copy.journal, BATCH, "A. Clerk", "all looked up")


# --- two journals for one batch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", LISTS)
async def test_what_another_journal_has_sent_is_not_sent_again(tmp_path: Path, how: str) -> None:
    """A typo in the path makes a second journal: it finds everything in the list, says so, and sends the rest."""
    async with world(tmp_path, LISTS[how]) as here:
        await run(here, 20)
        async with beside(here, tmp_path) as other:
            done = await run(other)
            assert done.looked is not None
            assert (20, 20, None) == (done.looked.rows, done.looked.found, done.looked.problem)
            assert (COUNT - 20, None, 20) == (done.sent, done.stopped, done.conflicts)
        paid_once(here)


@pytest.mark.parametrize("how", HALVES)
async def test_a_list_that_does_not_show_everything_stops_the_run(tmp_path: Path, how: str) -> None:
    """Nothing is sent; the reason says what is missing; what was found is written down all the same."""
    async with world(tmp_path, HALVES[how]) as here:
        await run(here, 20, look_first="never")
        async with beside(here, tmp_path) as other:
            done = await run(other)
            assert done.looked is not None
            assert done.looked.problem is not None
            assert (0, done.looked.found) == (done.sent, done.conflicts)
            assert f"{done.looked.problem}), so orders in it that were sent before" in str(done.stopped)
        paid_once(here, 20)


async def test_an_order_that_the_list_has_with_another_amount_is_not_sent(tmp_path: Path) -> None:
    """It is parked for a person: somebody has paid something under its request id."""
    async with world(tmp_path) as here:
        async with session(here.sandbox) as somebody:
            await somebody.payouts.send(payout(4, amount=Decimal(7)))
        done = await run(here)
        assert ("parked", COUNT - 1, 1) == (await here.state(4), done.sent, done.conflicts)
        assert (1, 1) == (done.looked and done.looked.found, here.sandbox.executions(payout(4).request_id))


# --- when, and at what cost -------------------------------------------------------------------------------------------


async def test_what_looking_has_cost_is_told(tmp_path: Path) -> None:
    """Eight days back and one ahead; pages as large as the service gives them; seconds by the session's clock."""
    async with world(tmp_path) as here:
        async with session(here.sandbox) as neighbour:
            for number in range(1000, 1250):
                await neighbour.payouts.send(payout(number))
        before = read(here)
        done = await run(here, 3)
        assert done.looked is not None
        looked = attrs.evolve(done.looked, seconds=0.0)
        # a page of 500 is cut to 100: three pages, one beyond the last, and, since none is ours, two of all days
        assert (250, 6, 0, True, None) == (looked.rows, looked.requests, looked.found, looked.counted, looked.problem)
        assert looked.requests == read(here) - before
        assert 10 == looked.days
        assert done.looked.seconds >= 0


async def test_a_healthy_batch_is_looked_for_once(tmp_path: Path) -> None:
    """Going on with it asks the service for nothing; a new batch is looked for again."""
    async with world(tmp_path) as here:
        first = await run(here)
        before = read(here)
        again = await run(here, COUNT)
        assert (True, None, before) == (first.looked is not None, again.looked, read(here))
        other = await run_batch(here.payments, here.journal, "bonus", [payout(500)])
        assert other.looked is not None


async def one_by_one(here: World, *numbers: int) -> list[int | None]:
    """Send orders as batches of their own, looking first in doubt; tells how many were found, or that none looked."""
    found = []
    for number in numbers:
        done = await run_batch(
            here.payments, here.journal, f"pay-{number}", [payout(number)], settings=RunSettings(look_first="in_doubt")
        )
        found.append(done.looked and done.looked.found)
    return found


async def test_orders_one_after_the_other_are_looked_for_only_in_doubt(tmp_path: Path) -> None:
    """A journal looks for each of them in its first week; then the list of a week shows nothing that it may lack."""
    moment = time.time() - 30 * DAY
    async with (
        world(tmp_path) as plain,
        SqliteJournal(tmp_path / "own.db", testing=Testing(now=lambda: moment)) as journal,
    ):
        here = attrs.evolve(plain, journal=journal)
        assert [0, 0] == await one_by_one(here, 0, 1)
        moment += 8 * DAY
        assert [None, None] == await one_by_one(here, 2, 3)


async def test_each_order_that_a_copy_has_forgotten_is_looked_for(tmp_path: Path) -> None:
    """Whatever is begun in it waits like the rest; once that is over, an order is looked for before it is sent."""
    async with world(tmp_path) as here:
        await one_by_one(here, 0)
        await here.journal.aclose()
        shutil.copyfile(tmp_path / "journal.db", tmp_path / "copy.db")
        async with session(here.sandbox) as forgotten:
            for number in (7, 8):
                await forgotten.payouts.send(payout(number))
        async with beside(here, tmp_path, "copy.db") as copy:
            assert [None, None] == await one_by_one(copy, 9, 7)
            paid_once(here, 3)
            await reconcile(copy.payments, copy.journal, settings=ReconcileSettings(grace=0.0, interval=0.0))
            await lift_quarantine(copy.journal, "pay-9", "A. Clerk", "all looked up")
            assert [None, None, 1] == await one_by_one(copy, 9, 7, 8)  # for 9 the list was read already
        paid_once(here, 4)


async def test_every_run_looks_before_its_first_order(tmp_path: Path) -> None:
    """What a run before it saw is old: somebody else may have sent the rest meanwhile."""
    async with world(tmp_path) as here:
        await run(here, fuse=Fuse(max_total=Decimal(5000)))
        async with session(here.sandbox) as somebody:
            await somebody.payouts.send(payout(20))
        done = await run(here)
        assert (1, COUNT - 5) == (done.looked and done.looked.found, done.sent)
        paid_once(here)


async def test_a_machine_that_went_back_to_the_midst_of_a_batch_pays_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal, its mark and the state folder came back together, in the same files: only the list can tell."""
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    async with world(tmp_path) as here:
        await run(here, fuse=Fuse(max_total=Decimal(15_000)))
        await here.journal.aclose()
        snapshot = files_in(tmp_path)
        async with SqliteJournal(tmp_path / "journal.db") as journal:
            await run(attrs.evolve(here, journal=journal))
        paid_once(here)
        bring_back(tmp_path, snapshot)
        async with SqliteJournal(tmp_path / "journal.db") as journal:
            done = await run(attrs.evolve(here, journal=journal))
            assert (0, 0) == (done.sent, done.counts["planned"])
        paid_once(here)


# --- a machine that slept ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look_first", ["always", "in_doubt"])
@pytest.mark.parametrize("how", ["stood still", "slept"])
async def test_a_batch_whose_machine_has_slept_in_the_midst_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, look_first: str
) -> None:
    """A snapshot of it went on elsewhere: what that has paid is not sent again, nor the order that was begun before."""
    ahead, permits, sleeps, wakes = 0.0, 0, asyncio.Event(), threading.Event()
    if how == "slept":
        gettime = getattr(time, "clock_gettime", None)
        if gettime is None:
            pytest.skip("no clock tells of sleep here")
        monkeypatch.setattr(time, "clock_gettime", lambda clock: gettime(clock) + ahead)
    loop = asyncio.get_running_loop()

    def falls_asleep(point: str) -> None:
        nonlocal permits
        permits += point == "permit.written"
        if permits == 5 and point == "permit.written":
            loop.call_soon_threadsafe(sleeps.set)
            assert wakes.wait(60)

    async with (
        world(tmp_path) as plain,
        SqliteJournal(tmp_path / "own.db", testing=Testing(crash_at=falls_asleep)) as journal,
        session(plain.sandbox) as snapshot,
    ):
        here = attrs.evolve(plain, journal=journal)
        settings = {"concurrency": 1, "lease": 3600.0, "look_first": look_first}
        running = asyncio.ensure_future(run(here, now=lambda: time.time() + ahead, **settings))
        await asyncio.wait_for(sleeps.wait(), 60)
        for number in (4, 20, 21, 22):
            await snapshot.payouts.send(payout(number))
        ahead = 300.0
        wakes.set()
        done = await running
        assert (COUNT - 4, 4, 4, None) == (done.sent, done.looked and done.looked.found, done.conflicts, done.stopped)
        paid_once(here)


async def test_a_run_that_may_not_look_asks_for_no_list(tmp_path: Path) -> None:
    """The caller has said so, and answers for it."""
    async with world(tmp_path) as here:
        done = await run(here, look_first="never")
        assert (None, 0, COUNT) == (done.looked, read(here), done.sent)
        with pytest.raises(ValueError, match="always, in_doubt, never"):
            await run(here, look_first="sometimes")


# --- a clock that is wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [-20_410, -400, 400], ids=["1970", "behind", "ahead"])
async def test_the_days_that_are_read_are_those_of_the_service(tmp_path: Path, days: int) -> None:
    """A machine whose clock is wrong reads the days that its orders would be in, not those it believes to be in."""

    def wrong() -> float:
        return time.time() + days * DAY

    async with world(tmp_path) as here:
        await run(here)
        async with (
            SqliteJournal(
                tmp_path / "other.db", state_folder=tmp_path / "another machine", testing=Testing(now=wrong)
            ) as journal,
            session(here.sandbox, now=wrong) as payments,
        ):
            other = attrs.evolve(here, journal=journal, payments=payments)
            done = await run(other, now=wrong)
            assert (0, COUNT) == (done.sent, done.looked and done.looked.found)
            await reconcile(
                payments, journal, BATCH, settings=ReconcileSettings(interval=0.0), testing=Testing(now=wrong)
            )
        paid_once(here)


async def test_a_clock_that_was_ahead_when_a_batch_was_made_shortens_no_look(tmp_path: Path) -> None:
    """It was set right since: the days before now are read, and not those before a day that is yet to come."""
    path = tmp_path / "other.db"
    async with world(tmp_path) as here, session(here.sandbox) as payments:
        async with SqliteJournal(path, testing=Testing(now=lambda: time.time() + 400 * DAY)) as journal:
            await run(attrs.evolve(here, journal=journal), fuse=Fuse(max_total=Decimal(0)))
        async with SqliteJournal(path) as journal:
            done = await run(attrs.evolve(here, journal=journal, payments=payments), fuse=Fuse(max_total=Decimal(0)))
            assert (10, None) == (done.looked and done.looked.days, done.looked and done.looked.problem)


# --- a list that cannot be read now -----------------------------------------------------------------------------------


async def test_a_list_that_fails_stops_the_run_and_the_same_call_goes_on(tmp_path: Path) -> None:
    """Nothing is sent before; once it can be read, everything is."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.ERROR_BEFORE, times=6, on="transactions")  # two pages, three tries each
        stopped = await run(here, patience=0.0)
        assert (0, COUNT) == (stopped.sent, stopped.counts["planned"])
        assert "was not read to its end (it could not be read" in str(stopped.stopped)
        done = await run(here)
        assert (COUNT, None) == (done.sent, done.stopped)
        paid_once(here)


async def test_a_page_that_fails_is_asked_for_again_by_itself(tmp_path: Path) -> None:
    """Beyond the retries of any read, for as long as the run is patient."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.ERROR_BEFORE, times=5, on="transactions")
        done = await run(here, patience=60.0)
        assert (COUNT, None) == (done.sent, done.stopped)


async def test_a_run_that_is_to_stop_stops_looking(tmp_path: Path) -> None:
    """Also while it waits for a list that cannot be had."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.ERROR_BEFORE, times=None, on="transactions")
        stop = asyncio.Event()
        running = asyncio.ensure_future(run(here, stop=stop, patience=600.0))
        async with asyncio.timeout(60):
            while not read(here):  # noqa: ASYNC110 - the sandbox tells nobody
                await asyncio.sleep(0.01)
        stop.set()
        done = await running
        assert (0, "it was asked to stop", "it was asked to stop") == (
            done.sent,
            done.stopped,
            done.looked and done.looked.problem,
        )


async def test_refused_credentials_end_the_look(tmp_path: Path) -> None:
    """They stop the run, and fail no order."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.TOKEN_REVOKED, times=None, on="transactions")
        done = await run(here)
        assert "the credentials were refused" in str(done.stopped)
        assert (0, COUNT) == (done.sent, done.counts["planned"])


async def test_how_far_a_look_is_can_be_watched(tmp_path: Path) -> None:
    """A list of many pages takes its time: about once a second the caller hears of it."""
    seen: list[FirstLook] = []
    async with world(tmp_path, {"max_page_size": 5}) as here:
        await run(here, look_first="never")
        seconds = iter(range(10_000))
        async with (
            session(here.sandbox, clock=lambda: float(next(seconds))) as slow,
            beside(attrs.evolve(here, payments=slow), tmp_path) as other,
        ):
            await run(other, progress=lambda progress: seen.append(progress.looked) if progress.looked else None)
        assert [5, 10, 15] == [looked.rows for looked in seen][:3]

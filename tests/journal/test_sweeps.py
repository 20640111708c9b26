"""Sweeps on record: which reading of the service's list counts, for whom, and until when."""

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import attrs
import pytest
from journal.conftest import Opens
from journal.factories import BATCH, IDENTITY, Clock, claimed, loaded, missed, order, orders, permitted, swept

from payments_async import PayoutOrder
from payments_async.journal import Journal, NotLookedFor, Signal, SqliteJournal, State
from payments_async.journal.contract import Outcome
from payments_async.testing import Testing

READ = {
    "to its end": ({}, True),
    "without a count": ({"counted": False}, True),
    "not to its end": ({"problem": "it showed 2 of 3 rows", "counted": False}, False),
    "for another batch": ({"batch": "bonus"}, False),
    "for none in particular": ({"batch": None}, False),
    "from the day after": ({"since": date(1970, 1, 13)}, False),
    "from that day": ({"since": date(1970, 1, 12)}, True),
}


@pytest.mark.parametrize("how", READ)
async def test_a_list_that_was_read(journal: Journal, how: str) -> None:
    """It counts for the batch it was made for, if it begins early enough and was read to its end."""
    ended, expected = READ[how]
    await loaded(journal, 2, batch="bonus")
    await loaded(journal)
    await swept(journal, **ended)
    assert expected == await journal.is_looked_for(BATCH)


async def test_a_list_that_is_still_being_read(journal: Journal) -> None:
    """Whoever reads it may be killed: it counts for nobody."""
    await loaded(journal)
    await journal.begin_list_scan(BATCH, since=date(1970, 1, 1), until=date(1970, 1, 13))
    assert (False, False) == (await journal.is_looked_for(BATCH), await journal.is_looked_for())
    (scan,) = await journal.list_scans(BATCH)
    assert (None, "it was broken off", False) == (scan.ended, scan.problem, scan.is_complete)


async def test_any_list_that_was_read_dispels_the_doubt_about_a_new_journal(journal: Journal) -> None:
    """Whatever batch it was made for: from then on the journal knows by itself what it sent."""
    await loaded(journal)
    assert not await journal.is_looked_for()
    await swept(journal, batch=None, counted=False)
    assert await journal.is_looked_for()


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("home", ["sqlite"], indirect=True)  # the statements are the same in a database
async def test_a_year_of_sweeps(journal: Journal) -> None:
    """The latest are told of, however many there were, so that nobody who asks needs more memory each day."""
    await loaded(journal)
    made = [await journal.begin_list_scan(BATCH, since=date(1970, 1, 1), until=date(1970, 1, 2)) for _ in range(1005)]
    for batch in (BATCH, None):
        told = await journal.list_scans(batch)
        assert (1000, made[5].id, made[-1].id) == (len(told), told[0].id, told[-1].id)


async def test_the_record_of_a_sweep(journal: Journal, clock: Clock) -> None:
    """It keeps the days, what was seen, what that took and when."""
    await loaded(journal)
    begun = await journal.begin_list_scan(BATCH, since=date(1970, 1, 1), until=date(1970, 1, 13))
    clock.pass_(7.0)
    await swept(journal, rows=12, requests=2)
    first, last = await journal.list_scans()
    assert begun.id == first.id
    assert (BATCH, 12, 2, 1_000_007.0, True) == (last.batch_id, last.rows, last.requests, last.begun, last.is_complete)
    assert (date(1970, 1, 1), date(2100, 1, 1)) == (last.since, last.until)


# Copies are quarantined when a SQLite file is opened.


async def copied(path: Path, name: str) -> Path:
    """A copy of a journal's file."""
    return Path(shutil.copyfile(path, path.with_name(name)))


async def test_what_was_looked_for_before_a_copy_was_made_does_not_count_in_it(tmp_path: Path) -> None:
    """Each copy is looked for anew before its quarantine can be lifted, also the copy of one that was lifted."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        await swept(journal)
    for turn in range(3):
        path = await copied(path, f"copy {turn}.db")
        async with SqliteJournal(path) as journal:
            assert (await journal.run(BATCH)).quarantined_at is not None
            assert (False, False) == (await journal.is_looked_for(BATCH), await journal.is_looked_for())
            with pytest.raises(NotLookedFor, match="reconcile the batch"):
                await journal.lift_quarantine(BATCH, who="Ann", why="surely none of it was sent")
            assert 1 == (await journal.run(BATCH)).quarantined
            await missed(journal)
            assert 1 == await journal.lift_quarantine(BATCH, who="Ann", why="all looked up")


async def test_a_list_that_was_read_before_the_rest_of_a_batch_was_loaded(tmp_path: Path) -> None:
    """It was compared with those orders alone that a backup from the midst of the load held."""

    def broken() -> Iterator[PayoutOrder]:
        yield from orders(1000)
        raise ConnectionResetError

    async with SqliteJournal(tmp_path / "journal.db") as journal:
        await journal.open_run(BATCH, IDENTITY)
        with pytest.raises(ConnectionResetError):
            await journal.load(BATCH, broken(), owner="loader")
    async with SqliteJournal(await copied(tmp_path / "journal.db", "copy.db")) as journal:
        await missed(journal)
        await journal.load(BATCH, orders(1500), owner="loader")
        with pytest.raises(NotLookedFor):
            await journal.lift_quarantine(BATCH, who="Ann", why="all looked up")
        await missed(journal)
        assert 3 == await journal.lift_quarantine(BATCH, who="Ann", why="all looked up")


HALF: list[dict[str, Any]] = [
    {"counted": False},
    {"clean": False},
    {"problem": "a page is missing"},
    {"since": date(2099, 1, 1)},
]


@pytest.mark.parametrize("ended", HALF)
async def test_a_quarantine_is_not_lifted_by_half_a_list(tmp_path: Path, ended: dict[str, Any]) -> None:
    """Whatever a person says of it."""
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        await loaded(journal)
    async with SqliteJournal(await copied(tmp_path / "journal.db", "copy.db")) as journal:
        for _ in range(3):
            await swept(journal, **ended)
        with pytest.raises(NotLookedFor):
            await journal.lift_quarantine(BATCH, who="Ann", why="all looked up")


async def test_what_lifting_asks_is_what_parking_asks(tmp_path: Path, clock: Clock) -> None:
    """Two lists, a quarter of an hour after the copy was found, a minute apart; what is awaited is told."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path, testing=Testing(now=clock)) as journal:
        await loaded(journal)
    async with SqliteJournal(await copied(path, "copy.db"), testing=Testing(now=clock)) as journal:
        found = clock.now
        for pause, lists, due in (
            (0.0, 0, 900.0), (899.0, 0, 959.0), (1.0, 1, 960.0), (59.0, 1, 1019.0), (1.0, None, None)
        ):  # fmt: skip
            clock.pass_(pause)
            begun = await journal.begin_list_scan(BATCH, since=date(1970, 1, 1), until=date(2100, 1, 1))
            await journal.end_list_scan(attrs.evolve(begun, counted=True, clean=True, problem=None))
            awaits = (await journal.run(BATCH)).awaits
            told = None if awaits is None else (awaits.lists, awaits.due() - found)
            assert told == (None if lists is None else (lists, due)), pause
            if awaits is not None:
                with pytest.raises(NotLookedFor, match="2 complete lists"):
                    await journal.lift_quarantine(BATCH, who="Ann", why="reconcile said nothing")
        assert 1 == await journal.lift_quarantine(BATCH, who="Ann", why="all looked up")


async def test_a_person_releases_orders_by_name(tmp_path: Path) -> None:
    """Each planned order of the quarantine, without waiting for the list; it is recorded whose word that is."""
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        await loaded(journal)
    async with SqliteJournal(await copied(tmp_path / "journal.db", "copy.db")) as journal:
        some, all_ = [order(number).request_id for number in (0, 1)], [order(n).request_id for n in range(3)]
        with pytest.raises(NotLookedFor, match=f"of 1 orders nothing was stated, such as {all_[2]}"):
            await journal.lift_quarantine(BATCH, who="Ann", why="the bank's letter", request_ids=some)
        assert 1 == await journal.lift_quarantine(BATCH, who="Ann", why="the bank's letter", request_ids=all_)
        assert await journal.claim_chunk(BATCH, "worker") is not None
        (decision,) = await journal.decisions(BATCH)
        assert "without waiting for the list" in str(decision.detail)
        assert all(request_id in str(decision.detail) for request_id in all_)


async def test_a_batch_that_is_begun_in_a_restored_journal_waits_like_the_rest(tmp_path: Path) -> None:
    """The journal may have sent it and forgotten: until two lists have counted; one that is begun later is free."""
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        await loaded(journal)
    async with SqliteJournal(await copied(tmp_path / "journal.db", "copy.db")) as journal:
        await loaded(journal, batch="bonus")
        await missed(journal)
        await loaded(journal, batch="later")
        waits = {run.batch_id: (run.quarantined, run.awaits is not None) for run in await journal.runs()}
        assert {BATCH: (1, False), "bonus": (1, True), "later": (0, False)} == waits


async def test_what_is_put_into_a_restored_outbox_waits_for_two_lists(tmp_path: Path) -> None:
    """It lies in an open chunk, which no worker claims before; nor was the outbox looked for by one list."""
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        await journal.open_outbox("shop", IDENTITY)
        await journal.put("shop", order(0))
    async with SqliteJournal(await copied(tmp_path / "journal.db", "copy.db")) as journal:
        await journal.open_outbox("shop", IDENTITY)
        await journal.put("shop", order(1))
        seen = []
        for _ in range(3):
            is_claimed = await journal.claim_chunk("shop", "worker") is not None
            seen.append((await journal.is_looked_for("shop"), is_claimed))
            await swept(journal, batch="shop")
        assert [(False, False), (False, False), (True, True)] == seen


async def test_a_clock_that_was_set_back_between_two_copies(tmp_path: Path, clock: Clock) -> None:
    """The second copy is in doubt as well, although its quarantine seems to be older than the list that was read."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path, testing=Testing(now=clock)) as journal:
        await loaded(journal)
    async with SqliteJournal(await copied(path, "copy.db"), testing=Testing(now=clock)) as journal:
        await missed(journal)
        assert await journal.is_looked_for(BATCH)
    clock.pass_(-3600.0)
    async with SqliteJournal(
        await copied(path.with_name("copy.db"), "copy 2.db"), testing=Testing(now=clock)
    ) as journal:
        assert not await journal.is_looked_for(BATCH)


async def test_a_list_that_was_begun_before_the_copy_was_noticed_does_not_count(tmp_path: Path) -> None:
    """What it read first was compared with another file."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        begun = await journal.begin_list_scan(BATCH, since=date(1970, 1, 1), until=date(2100, 1, 1))
    async with SqliteJournal(await copied(path, "copy.db")) as journal:
        await journal.end_list_scan(attrs.evolve(begun, counted=True, clean=True, problem=None))
        assert not await journal.is_looked_for(BATCH)


async def test_a_copy_of_a_journal_whose_batches_are_all_done_is_in_doubt_too(tmp_path: Path) -> None:
    """Nothing of it is in quarantine; but an order that it never heard of may have been sent since."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal, 1)
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
        await journal.release_chunk(chunk)
        await swept(journal)
        assert await journal.is_looked_for()
    async with SqliteJournal(await copied(path, "copy.db")) as journal:
        assert 0 == (await journal.run(BATCH)).quarantined
        assert not await journal.is_looked_for()


async def test_the_first_of_several_permits(opens: Opens, clock: Clock) -> None:
    """An order that was written off was sent when it was first sent, and may have arrived then."""
    async with opens() as journal:
        chunk = await claimed(journal)
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN))
        clock.pass_(10.0)
        await journal.record(Outcome(permit=await permitted(journal, chunk, 1), signal=Signal.REJECTED))
        await journal.release_chunk(chunk)
        await journal.park(order(0).request_id, detail="two list scans")
        await journal.send_again(order(0).request_id, who="Ann", why="not on the statement")
        clock.pass_(86_400.0)
        again = await journal.claim_chunk(BATCH, "worker")
        assert again is not None
        await journal.record(Outcome(permit=await permitted(journal, again), signal=Signal.UNKNOWN))
        since = journal.sent_since
        assert 1_000_000.0 == await since(BATCH, (State.UNKNOWN, State.REJECTED))
        assert 1_000_010.0 == await since(None, (State.REJECTED,))
        assert await since(None, (State.REJECTED,), after=1_000_010.0) is None
        assert await since(BATCH, (State.PLANNED, State.ACCEPTED)) is None

"""A journal that forgot: it was restored, copied, or is another one. What it may have sent is not sent again."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bulk.worlds import payout, session
from nested import for_journal
from outbox.desks import A_MINUTE, desk, until

from payments_async.bulk import ReconcileSettings, lift_quarantine, reconcile
from payments_async.journal import (
    HeldElsewhere,
    JournalBehind,
    JournalUnavailable,
    NotLookedFor,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
)
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing

BEFORE, AFTER, WAITING = 0, 1, 2  # orders sent before and after the copy was made, and one that is planned in it


@asynccontextmanager
async def opened(sandbox: Sandbox, path: Path, **journal: Any) -> AsyncIterator[tuple[SqliteJournal, Outbox]]:
    """An outbox on a journal."""
    async with AsyncExitStack() as stack:
        held = await stack.enter_async_context(SqliteJournal(path, **for_journal(journal)))
        payments = await stack.enter_async_context(session(sandbox))
        yield (
            held,
            await stack.enter_async_context(Outbox(payments, held, worker=WorkerSettings(settles=False, grace=0.0))),
        )


async def restored(sandbox: Sandbox, path: Path, **journal: Any) -> None:
    """A journal that is put back to a time at which it had one order sent and one planned."""
    async with opened(sandbox, path, **journal) as (_, outbox):
        await outbox.pay(payout(BEFORE), timeout=A_MINUTE)
        await outbox.pause("Ann", "lunch")
        await outbox.put(payout(WAITING))
    copy = await asyncio.to_thread(path.read_bytes)
    async with opened(sandbox, path, **journal) as (_, outbox):
        await outbox.resume("Ann", "back")
        await outbox.pay(payout(AFTER), timeout=A_MINUTE)
        await outbox.pay(payout(WAITING), timeout=A_MINUTE)
    await asyncio.to_thread(path.write_bytes, copy)


def files_in(folder: Path) -> dict[Path, bytes]:
    """All of a folder."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def bring_back(folder: Path, snapshot: dict[Path, bytes]) -> None:
    """Write them into the same files again, as the snapshot of a machine does."""
    for file in files_in(folder).keys() - snapshot.keys():
        file.unlink()
    for file, content in snapshot.items():
        file.write_bytes(content)


@pytest.mark.parametrize("memory", ["remembered", "not remembered"])
async def test_an_order_that_was_sent_after_the_copy_was_made(tmp_path: Path, memory: str, service: Sandbox) -> None:
    """Is in the service's list, which is read first: it is not sent again, put once or often; new ones are sent."""
    how = {} if memory == "remembered" else {"state_folder": None}
    path = tmp_path / "journal.db"
    await restored(service, path, **how)
    async with opened(service, path, **how) as (_, outbox):
        await outbox.resume("Ann", "the journal was restored")
        await outbox.pay(payout(7), timeout=A_MINUTE)
        entries = [await outbox.pay(payout(AFTER), timeout=A_MINUTE) for _ in range(3)]
        assert {True} == {entry.conflict is not None and entry.state in ("accepted", "successful") for entry in entries}
        assert "planned" != (await outbox.pay(payout(WAITING), timeout=A_MINUTE)).state
    assert [] == service.duplicates()
    assert 4 == len(service.ledger)


async def test_lifting_by_name_speaks_of_what_was_put_since_as_well(tmp_path: Path, service: Sandbox) -> None:
    """An order that is put into a restored outbox may have been sent before: nobody has said a word of it."""
    path = tmp_path / "journal.db"
    await restored(service, path, state_folder=None)
    async with (
        SqliteJournal(path, state_folder=None) as journal,
        session(service) as payments,
        Outbox(payments, journal, worker=WorkerSettings(sends=False)) as outbox,
    ):
        await outbox.put(payout(AFTER))
        named = [payout(WAITING).request_id]
        with pytest.raises(NotLookedFor, match=payout(AFTER).request_id):
            await lift_quarantine(journal, "outbox", "Ann", "statement", request_ids=named)
        both = [*named, payout(AFTER).request_id]
        assert 1 == await lift_quarantine(journal, "outbox", "Ann", "statement", request_ids=both)


async def test_a_folder_that_was_put_back_within_a_minute_on_a_machine_that_forgot(
    tmp_path: Path, service: Sandbox
) -> None:
    """The state folder is another one, as in a container that was begun anew: the list is read before it sends."""
    path = tmp_path / "journal.db"
    async with opened(service, path, state_folder=tmp_path / "state") as (_, outbox):
        await outbox.pay(payout(BEFORE), timeout=A_MINUTE)
        await outbox.pause("Ann", "lunch")
        await outbox.put(payout(WAITING))
    files = [path, path.with_name("journal.db-mark")]
    snapshot = [await asyncio.to_thread(file.read_bytes) for file in files]
    async with opened(service, path, state_folder=tmp_path / "state") as (_, outbox):
        await outbox.resume("Ann", "back")
        for number in (AFTER, WAITING):
            await outbox.pay(payout(number), timeout=A_MINUTE)
    for file, content in zip(files, snapshot, strict=True):
        await asyncio.to_thread(file.write_bytes, content)
    async with SqliteJournal(path, state_folder=tmp_path / "another"):
        pass  # as `outbox status` does: who looks at a journal has not read the list
    async with opened(service, path, state_folder=tmp_path / "another") as (journal, outbox):
        assert not await journal.is_known_here("outbox")
        assert not (await outbox.health()).counts["chunks_in_quarantine"]
        await outbox.resume("Ann", "back")
        for number in (WAITING, AFTER, 7):
            assert "planned" != (await outbox.pay(payout(number), timeout=A_MINUTE)).state
    async with opened(service, path, state_folder=tmp_path / "another") as (journal, outbox):
        looks = len(await journal.list_scans("outbox"))
        await outbox.pay(payout(8), timeout=A_MINUTE)
        assert (True, looks) == (await journal.is_known_here("outbox"), len(await journal.list_scans("outbox")))
    assert [] == service.duplicates()
    assert 5 == len(service.ledger)


@pytest.mark.parametrize("cancels", [False, True])
async def test_a_disk_that_was_put_back_with_all_that_would_tell(
    tmp_path: Path, cancels: bool, service: Sandbox
) -> None:
    """Journal, mark and state folder are as they were a while ago: the gap alone tells, and the list is read first.

    A person who cancels an order in the meantime tells nothing of what was sent.
    """
    path, state, ahead = tmp_path / "journal.db", tmp_path / "state", 300.0
    async with opened(service, path, state_folder=state) as (_, outbox):
        await outbox.pay(payout(BEFORE), timeout=A_MINUTE)
        await outbox.pause("Ann", "lunch")
        await outbox.put(payout(WAITING))
        await outbox.put(payout(8), not_before=datetime.now(UTC) + timedelta(days=1))
    snapshot = files_in(tmp_path)
    async with opened(service, path, state_folder=state) as (_, outbox):
        await outbox.resume("Ann", "back")
        await outbox.pay(payout(AFTER), timeout=A_MINUTE)
        await outbox.pay(payout(WAITING), timeout=A_MINUTE)
    bring_back(tmp_path, snapshot)
    async with SqliteJournal(path, state_folder=state, testing=Testing(now=lambda: time.time() + ahead)) as journal:
        if cancels:
            await journal.cancel(payout(8).request_id, who="Ann", why="put by mistake")
    async with (
        SqliteJournal(path, state_folder=state) as journal,
        session(service) as payments,
        Outbox(
            payments,
            journal,
            worker=WorkerSettings(settles=False),
            testing=Testing(now=lambda: time.time() + ahead),
        ) as outbox,
    ):
        assert (True, 0) == (
            await journal.is_known_here("outbox"),
            (await outbox.health()).counts["chunks_in_quarantine"],
        )
        await outbox.resume("Ann", "back")
        for number in (WAITING, AFTER, 7):
            assert "planned" != (await outbox.pay(payout(number), timeout=A_MINUTE)).state
    assert [] == service.duplicates()
    assert 4 == len(service.ledger)


@pytest.mark.parametrize("how", ["stood still", "slept"])
async def test_a_machine_that_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, service: Sandbox
) -> None:
    """Its clock jumps when it goes on: the list is read before anything more is sent.

    So it does where it has slept, though the clock of leases, which went on meanwhile, has jumped as far.
    """
    ahead = 0.0
    if how == "slept":
        gettime = getattr(time, "clock_gettime", None)
        if gettime is None:
            pytest.skip("no clock tells of sleep here")
        monkeypatch.setattr(time, "clock_gettime", lambda clock: gettime(clock) + ahead)
    async with (
        SqliteJournal(tmp_path / "journal.db") as journal,
        session(service) as payments,
        Outbox(
            payments, journal, worker=WorkerSettings(settles=False), testing=Testing(now=lambda: time.time() + ahead)
        ) as outbox,
    ):
        await outbox.pay(payout(0), timeout=A_MINUTE)
        looks = len(await journal.list_scans("outbox"))
        ahead = 300.0
        await until(partial(_looks, journal), looks + 1)
        assert "accepted" == (await outbox.pay(payout(1), timeout=A_MINUTE)).state


async def test_an_answer_that_came_after_the_machine_stood_still(tmp_path: Path, service: Sandbox) -> None:
    """It is one to an order of before, and tells nothing of the time between: the list is read all the same."""
    ahead, testing = 0.0, Testing(now=lambda: time.time() + ahead)
    worker = WorkerSettings(settles=False, lease=3600.0)
    async with (
        SqliteJournal(tmp_path / "journal.db", testing=testing) as journal,
        session(service) as payments,
        Outbox(payments, journal, worker=worker, testing=testing) as outbox,
    ):
        await until(partial(_looks, journal), 1)
        service.script(Fault.SLOW, on="payout", seconds=1.0)
        paying = asyncio.ensure_future(outbox.pay(payout(0), timeout=A_MINUTE))
        await until(partial(_carried_out, service), 1)
        ahead = 300.0
        assert "accepted" == (await paying).state
        await until(partial(_looks, journal), 2)


async def _carried_out(service: Sandbox) -> int:
    return len(service.ledger)


async def _looks(journal: SqliteJournal) -> int:
    return len([scan for scan in await journal.list_scans("outbox") if scan.is_complete])


async def test_an_order_put_before_the_list_was_read(tmp_path: Path, service: Sandbox) -> None:
    """Waits for that, and is found in it: one that only the list knows, put at every moment of the reading."""
    path = tmp_path / "journal.db"
    async with opened(service, path, state_folder=None) as (_, outbox):
        await asyncio.gather(*(outbox.pay(payout(number), timeout=A_MINUTE) for number in range(60)))
    async with opened(service, tmp_path / "new.db", state_folder=None) as (_, outbox):
        putting = []
        for number in range(60):
            putting.append(asyncio.ensure_future(outbox.pay(payout(number), timeout=A_MINUTE)))
            for _ in range(number % 7):
                await asyncio.sleep(0)
        entries = await asyncio.gather(*putting)
        assert {"accepted", "successful"} >= {entry.state.value for entry in entries}
    assert [] == service.duplicates()


async def test_an_order_that_no_list_shows_yet(tmp_path: Path, service: Sandbox) -> None:
    """Where this machine remembers it, it is refused, until a named person adopts it: then it is looked for."""
    path = tmp_path / "journal.db"
    async with opened(service, path) as (_, outbox):
        await outbox.pay(payout(BEFORE), timeout=A_MINUTE)
    copy = await asyncio.to_thread(path.read_bytes)
    async with opened(service, path) as (_, outbox):
        await outbox.pause("Ann", "lunch")
        await outbox.put(payout(AFTER))  # registered, and not sent
    await asyncio.to_thread(path.write_bytes, copy)
    async with opened(service, path) as (_, outbox):
        with pytest.raises(HeldElsewhere, match="this very journal"):
            await outbox.put(payout(AFTER))
        with pytest.raises(HeldElsewhere, match="this very journal"):
            await outbox.pay(payout(AFTER))
        adoption = TakeoverAuthorisation(who="Ann", why="it was paused")
        assert "unknown" == (await outbox.put(payout(AFTER), adoption=adoption)).state
        assert "unknown" == (await outbox.put(payout(AFTER))).state
    assert [] == service.duplicates()
    assert 1 == len(service.ledger)


class DiedPut:
    """The first put, once it is armed, is registered on this machine and gets no further."""

    is_armed = has_put = False

    def __call__(self, point: str) -> None:
        """What the journal calls at each point."""
        if self.is_armed and point == "put.written":
            self.is_armed, self.has_put = False, True
        elif self.has_put and point == "commit.begun":
            self.has_put = False
            raise sqlite3.OperationalError("the process dies here")


async def test_an_adoption_that_died_with_its_process(tmp_path: Path, service: Sandbox) -> None:
    """The machine has heard of it, and the journal has not: the order is refused as before, until it is adopted."""
    path, died, ann = tmp_path / "journal.db", DiedPut(), TakeoverAuthorisation(who="Ann", why="it was paused")
    async with opened(service, path) as (_, outbox):
        await outbox.pay(payout(BEFORE), timeout=A_MINUTE)
    copy = await asyncio.to_thread(path.read_bytes)
    async with opened(service, path) as (_, outbox):
        await outbox.pause("Ann", "lunch")
        await outbox.put(payout(AFTER))
    await asyncio.to_thread(path.write_bytes, copy)
    async with opened(service, path, crash_at=died) as (journal, outbox):
        await outbox.resume("Ann", "the journal was restored")
        died.is_armed = True
        with pytest.raises(JournalUnavailable):
            await outbox.put(payout(AFTER), adoption=ann)
        with pytest.raises(HeldElsewhere):
            await outbox.put(payout(AFTER))
        assert "unknown" == (await outbox.put(payout(AFTER), adoption=ann)).state
        found, doubted = (
            await journal.sent_since(None, (State.UNKNOWN,)),
            (await journal.run("outbox")).quarantined_at,
        )
        assert found is not None
        assert doubted is not None
        assert found < doubted  # since the journal that was put back held it first
    assert 1 == len(service.ledger)


async def test_a_put_that_died_in_a_journal_that_was_restored(tmp_path: Path, service: Sandbox) -> None:
    """It can be put again: it is known from what was registered before the journal was restored."""
    path, died = tmp_path / "journal.db", DiedPut()
    await restored(service, path)
    async with opened(service, path, crash_at=died) as (_, outbox):
        await outbox.resume("Ann", "the journal was restored")
        await outbox.pay(payout(7), timeout=A_MINUTE)
        died.is_armed = True
        with pytest.raises(JournalUnavailable):
            await outbox.put(payout(8))
        assert "accepted" == (await outbox.pay(payout(8), timeout=A_MINUTE)).state
        assert not died.is_armed
    async with opened(service, path) as (_, outbox):
        assert "accepted" == (await outbox.pay(payout(9), timeout=A_MINUTE)).state
    assert [] == service.duplicates()


@pytest.mark.parametrize("goes_on", ["with the copy", "with the original"])
async def test_orders_that_are_planned_in_a_copy(tmp_path: Path, goes_on: str, service: Sandbox) -> None:
    """Are in quarantine there: nothing of it is sent before a person has looked; what is put from then on is."""
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    async with opened(service, path) as (_, outbox):
        await outbox.pay(payout(BEFORE), timeout=A_MINUTE)
        await outbox.pause("Ann", "lunch")
        await outbox.put(payout(WAITING))
    await asyncio.to_thread(shutil.copyfile, path, copy)
    if goes_on == "with the original":
        async with opened(service, path) as (_, outbox):
            await outbox.resume("Ann", "back")
            await outbox.pay(payout(WAITING), timeout=A_MINUTE)
    async with opened(service, copy) as (journal, outbox):
        await outbox.resume("Ann", "back")
        assert 1 == (await outbox.health()).counts["chunks_in_quarantine"]
        await outbox.pay(payout(7), timeout=A_MINUTE)
        entry = await outbox.pay(payout(WAITING), timeout=0.3)
        if goes_on == "with the original":
            assert entry.conflict is None  # a copy expects to be told what it has forgotten
            assert entry.state in ("accepted", "successful")
        else:
            assert "planned" == entry.state
            async with session(service) as payments:
                await reconcile(payments, journal, "outbox", settings=ReconcileSettings(grace=0.0, interval=0.0))
            assert 1 == await lift_quarantine(journal, "outbox", "Ann", "none of it was sent")
            assert "accepted" == (await outbox.pay(payout(WAITING), timeout=A_MINUTE)).state
    assert [] == service.duplicates()
    assert 3 == len(service.ledger)


def backed_up(path: Path, copy: Path) -> None:
    """Copy a journal with all that is in its log."""
    with closing(sqlite3.connect(path)) as journal, closing(sqlite3.connect(copy)) as other:
        journal.backup(other)


async def test_a_copy_that_goes_on_beside_the_original(tmp_path: Path, service: Sandbox) -> None:
    """The original notices with a commit: it looks again, and knows then what the copy has sent."""
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    async with opened(service, path) as (_, outbox):
        await outbox.pay(payout(BEFORE), timeout=A_MINUTE)
        await asyncio.to_thread(backed_up, path, copy)
        async with opened(service, copy) as (_, other):
            for number in range(10, 30):
                await other.pay(payout(number), timeout=A_MINUTE)
        for number in range(10, 30):
            with pytest.raises(HeldElsewhere):
                await outbox.pay(payout(number))
        with pytest.raises(JournalBehind):
            await outbox.pay(payout(30))
        for number in range(10, 30):
            await until(partial(_is_known, outbox, number), True)
        assert "accepted" == (await outbox.pay(payout(31), timeout=A_MINUTE)).state
        assert [] == service.duplicates()
        assert 22 == len(service.ledger)


async def _is_known(outbox: Outbox, number: int) -> bool:
    """Whether it is known by now who sent it."""
    try:
        return (await outbox.pay(payout(number), timeout=A_MINUTE)).conflict is not None
    except HeldElsewhere:
        return False


async def test_two_journals_of_one_machine(tmp_path: Path, service: Sandbox) -> None:
    """An order belongs to the first that took it; the other refuses it, whichever has sent it."""
    async with (
        opened(service, tmp_path / "one.db") as (_, one),
        opened(service, tmp_path / "other.db", second_journal=TakeoverAuthorisation(who="Ann", why="two shops")) as (
            _,
            other,
        ),
    ):
        results = await asyncio.gather(
            *(where.pay(payout(number), timeout=A_MINUTE) for number in range(20) for where in (one, other)),
            return_exceptions=True,
        )
    refused = [result for result in results if isinstance(result, HeldElsewhere)]
    assert (20, 20) == (len(refused), len(results) - len(refused))
    assert [] == service.duplicates()
    assert 20 == len(service.ledger)


async def test_a_name_of_its_own_for_a_desk(tmp_path: Path) -> None:
    """The name of an outbox is not a part of an order: put into one, it is known in all of the journal."""
    async with desk(tmp_path) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        async with Outbox(here.payments, here.journal, "other") as other:
            assert "outbox" == (await other.pay(payout(0), timeout=A_MINUTE)).batch_id
        assert 1 == len(here.sandbox.ledger)

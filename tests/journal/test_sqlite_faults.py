"""What a SqliteJournal says of a file that is locked, read-only, full, damaged, too new, or no journal at all."""

import asyncio
import contextlib
import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from bulk.worlds import payout, session
from journal import postgres
from journal.factories import BATCH, IDENTITY, Clock, claimed, final_event, loaded, missed, order, orders, permitted

from payments_async._wire.notifications import read_notification
from payments_async.bulk import ReconcileSettings, RunProgress, RunSettings, reconcile, run_batch
from payments_async.journal import (
    JournalClosed,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalReadOnly,
    JournalTooNew,
    JournalUnavailable,
    NotAJournal,
    Signal,
    SqliteJournal,
    State,
)
from payments_async.journal._sqlite._opening import STEPS, migrate
from payments_async.journal._versions import Step
from payments_async.journal.contract import Arrival, Outcome, Permit, RawNotification
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing, notification


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a journal that does not exist yet."""
    return tmp_path / "journal.db"


async def refused(path: Path, error: type[JournalError]) -> str:
    """Opening the file fails like that; the message."""
    with pytest.raises(error) as caught:
        async with SqliteJournal(path, busy_timeout=0.05):
            pass
    assert error.remedy in str(caught.value)
    return str(caught.value)


async def made(path: Path) -> None:
    """A journal with three orders."""
    async with SqliteJournal(path) as journal:
        await loaded(journal)


async def test_money_is_written_durably(path: Path) -> None:
    """Write-ahead log, and an fsync for every commit."""
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        assert [("wal",)] == await _pragma(journal, "journal_mode")
        assert [(2,)] == await _pragma(journal, "synchronous")
        assert [(1,)] == await _pragma(journal, "fullfsync")
        await journal.check()


async def test_a_journal_is_readable_by_its_owner_alone(path: Path) -> None:
    """It names people and their numbers; so do the files beside it."""
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    (alive,) = (name for name in modes if name.startswith("journal.db-alive-"))
    assert dict.fromkeys(("journal.db", alive, "journal.db-mark", "journal.db-shm", "journal.db-wal"), 0o600) == modes


async def test_a_journal_in_memory_is_refused() -> None:
    """It would forget what was sent."""
    with pytest.raises(ValueError, match="forgets"):
        SqliteJournal(":memory:")


def test_no_database(path: Path) -> None:
    """A text file is left as it is."""
    path.write_bytes(b"request_id,amount\n" * 100)
    asyncio.run(refused(path, NotAJournal))
    assert path.read_bytes() == b"request_id,amount\n" * 100


async def test_a_database_of_something_else(path: Path) -> None:
    """Nothing is added to it."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE run (id INTEGER)")
    connection.close()
    await refused(path, NotAJournal)
    connection = sqlite3.connect(path)
    assert [("run",)] == connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()


async def test_a_directory_or_a_missing_one(tmp_path: Path) -> None:
    """Neither can be a journal."""
    await refused(tmp_path, JournalUnavailable)
    await refused(tmp_path / "missing" / "journal.db", JournalUnavailable)


async def test_a_newer_version_is_left_alone(path: Path) -> None:
    """An older package would not know its rules."""
    await made(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    connection.execute("UPDATE meta SET value = ? WHERE key = 'oldest'", (len(STEPS) + 1,))
    connection.commit()
    connection.close()
    assert f"version {len(STEPS) + 1}" in await refused(path, JournalTooNew)


async def test_a_journal_with_other_tables_is_left_alone(path: Path) -> None:
    """They are told apart before anything is read or sent."""
    await made(path)
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE progress RENAME TO tally")
    connection.execute("CREATE TABLE notes_of_somebody (text TEXT)")
    connection.commit()
    assert "no progress." in await refused(path, JournalCorrupt)
    connection.execute("ALTER TABLE tally RENAME TO progress")
    connection.commit()
    connection.close()
    async with SqliteJournal(path):
        pass


async def test_an_older_version_is_brought_up_to_date(path: Path) -> None:
    """Step by step, each once, in one transaction; a step that fails leaves the file as it was."""
    await made(path)
    connection = sqlite3.connect(path, isolation_level=None)
    red = "ALTER TABLE run ADD COLUMN colour TEXT", "UPDATE run SET colour = 'red'"
    steps = (*STEPS, Step(about="colours", statements=red, oldest=len(STEPS) + 1))
    fails = Step(about="none", statements=("no such statement",), oldest=len(STEPS) + 2)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, steps=(*steps, fails))
    assert (len(STEPS),) == connection.execute("PRAGMA user_version").fetchone()
    migrate(connection, steps=steps)
    migrate(connection, steps=steps)
    assert ("red",) == connection.execute("SELECT colour FROM run").fetchone()
    connection.close()
    await refused(path, JournalTooNew)


async def test_a_locked_file(path: Path) -> None:
    """Whoever asked for a permit has none, and can ask again later."""
    async with SqliteJournal(path, busy_timeout=0.05) as journal:
        chunk = await claimed(journal)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalLocked):
            await journal.permit(chunk, chunk.orders[0])
        assert 3 == (await journal.progress(BATCH)).counts["planned"]
        other.execute("COMMIT")
        other.close()
        await permitted(journal, chunk)


async def test_a_commit_that_waits_for_another_process(path: Path) -> None:
    """Whoever waits for news hears meanwhile that there may be some."""
    async with SqliteJournal(path, busy_timeout=120.0) as journal:
        chunk = await claimed(journal)
        seen = await journal.committed(0, timeout=0)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            permit = asyncio.ensure_future(journal.permit(chunk, chunk.orders[0]))
            for _ in range(10):
                await asyncio.sleep(0)  # until a thread has it
            assert seen < await journal.committed(seen, timeout=60, wanted=frozenset)
            assert not permit.done()
            other.execute("ROLLBACK")
        await permit


def test_a_file_we_may_not_write(path: Path) -> None:
    """It says so before anything is sent."""
    asyncio.run(made(path))
    path.chmod(0o400)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write everything")
    asyncio.run(refused(path, JournalReadOnly))


async def test_a_database_that_became_read_only(path: Path) -> None:
    """Nothing is granted."""
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal)
        await _pragma(journal, "query_only = ON")
        with pytest.raises(JournalReadOnly):
            await journal.permit(chunk, chunk.orders[0])
        assert State.PLANNED is await _state(journal, order(0).request_id)


async def test_a_full_database(path: Path) -> None:
    """What failed was not granted and did not happen; with room again, everything goes on."""
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal, 400)
        await _pragma(journal, "max_page_count = 1")  # as few as there are
        full = False
        for held in chunk.orders:
            try:
                permit = await journal.permit(chunk, held)
                assert isinstance(permit, Permit)
                await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN, message="x" * 2000))
            except JournalFull:
                full = True
                break
        assert full
        with pytest.raises(JournalFull):
            await loaded(journal, 2000, batch="second")
        assert 400 == (await journal.progress(BATCH)).total
        await _pragma(journal, "max_page_count = 1000000")
        assert State.PLANNED is await _state(journal, chunk.orders[-1].order.request_id)
        await permitted(journal, chunk, -1)
        await loaded(journal, 2000, batch="second")
        await journal.check()


async def test_a_disk_that_fails_at_the_commit(path: Path) -> None:
    """Everybody in that commit is told, nobody has a permit, and what is on disk agrees."""
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal, 100)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        with contextlib.closing(sqlite3.connect(path)) as other:  # else the log has room from before
            assert (0, 0, 0) == other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        size = path.with_name("journal.db-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8192, hard))  # room for two pages more
        try:
            answers = await asyncio.gather(
                *(journal.permit(chunk, held) for held in chunk.orders), return_exceptions=True
            )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        granted = [answer for answer in answers if isinstance(answer, Permit)]
        failed = [answer for answer in answers if isinstance(answer, JournalUnavailable)]
        assert failed
        assert 100 == len(granted) + len(failed)
        assert len(granted) == (await journal.progress(BATCH)).counts["sending"]
        await permitted(journal, chunk, -1)
        await journal.check()


async def hurried(seconds: float) -> None:
    """A quarter of the wait: nothing gets better meanwhile."""
    await asyncio.sleep(seconds / 4)


@contextmanager
def tiny_disk(place: Path) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """A file system of its own for a place; what it gives fills it to the last byte, for a while."""
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a file system can only be mounted by root: {mounted.stderr.decode().strip()}")

    @contextmanager
    def full() -> Iterator[None]:
        filler = place / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield
        filler.unlink()

    try:
        yield full
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.slow
async def test_a_file_system_that_is_mounted_read_only(tmp_path: Path) -> None:
    """As Linux does after an error of its disk: the rights of the file look well, so the remedy names the mount."""
    place = tmp_path / "disk"
    await asyncio.to_thread(place.mkdir)
    with tiny_disk(place):
        await made(place / "journal.db")
        for how in ("ro", "rw"):
            await asyncio.to_thread(subprocess.run, ["mount", "-o", f"remount,{how}", place], check=True)
            if how == "ro":
                assert "mounted for writing" in await refused(place / "journal.db", JournalReadOnly)
        async with SqliteJournal(place / "journal.db") as journal:
            assert 3 == (await journal.progress(BATCH)).total


@contextmanager
def limited_files(place: Path) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """No file may grow any more while what it gives lasts: as on a disk where the user's share is used up."""

    @contextmanager
    def full() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((place / "journal.db-wal").stat().st_size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    yield full


@pytest.mark.slow
@pytest.mark.parametrize(
    ("disk", "error", "words"),
    [
        pytest.param(tiny_disk, JournalFull, "the disk is full", id="a full disk"),
        pytest.param(limited_files, JournalUnavailable, "the disk could not be read or written", id="a used-up share"),
    ],
)
async def test_a_disk_that_gets_full_while_a_batch_is_sent(
    tmp_path: Path, disk: Callable[[Path], Any], error: type[JournalError], words: str
) -> None:
    """The run ends with the file's name and the remedy; with room again, every order has been sent exactly once."""
    orders = [payout(number) for number in range(400)]
    place = tmp_path / "disk"
    await asyncio.to_thread(place.mkdir)
    with disk(place) as full:
        async with Sandbox(processing_delay=0.01) as sandbox, session(sandbox, sleep=hurried) as payments:
            sandbox.script(Fault.SLOW, times=None, on="payout", seconds=0.02)
            times: list[int] = []
            with ExitStack() as filled:

                def fill(progress: RunProgress) -> None:
                    """While it is under way."""
                    if 0 < progress.sent < 400 and not times:
                        times.append(progress.sent)
                        filled.enter_context(full())

                async with SqliteJournal(place / "journal.db") as journal:
                    with pytest.raises(error, match=f"journal.db: {words}") as caught:
                        await run_batch(
                            payments,
                            journal,
                            BATCH,
                            orders,
                            settings=RunSettings(concurrency=4, lease=1.0),
                            progress=fill,
                        )
                assert caught.value.remedy in str(caught.value)
                sent = len(sandbox.ledger)
                assert 0 < sent < 400
            async with SqliteJournal(place / "journal.db") as journal:
                await journal.check()
                await run_batch(payments, journal, BATCH, orders, settings=RunSettings(lease=1.0))
                await sandbox.settle()
                await reconcile(payments, journal, BATCH, settings=ReconcileSettings(grace=0.0, interval=0.0))
                progress = await journal.progress(BATCH)
            assert (400, []) == (len(sandbox.ledger), sandbox.duplicates())
            assert {State.SUCCESSFUL: 400} == {state: count for state, count in progress.counts.items() if count}


async def test_a_full_disk_under_the_state_folder(path: Path, tmp_path: Path) -> None:
    """Nothing is loaded that the machine could not remember; with room again, the same load goes on."""
    place = tmp_path / "disk"
    await asyncio.to_thread(place.mkdir)
    with tiny_disk(place) as full:
        async with SqliteJournal(path, state_folder=place / "state") as journal:
            await journal.open_run(BATCH, IDENTITY)
            with full(), pytest.raises(JournalFull, match=r"registry\.sqlite"):
                await journal.load(BATCH, orders(3000), owner="loader")
            assert not (await journal.run(BATCH)).ready
            assert 3000 == (await journal.load(BATCH, orders(3000), owner="loader")).total
            chunk = await journal.claim_chunk(BATCH, "worker")
            assert chunk is not None
            with full():  # what was loaded is sent all the same
                await permitted(journal, chunk)


async def _state(journal: SqliteJournal, request_id: str) -> State | None:
    entry = await journal.entry(request_id)
    return None if entry is None else entry.state


async def _pragma(journal: SqliteJournal, words: str) -> list[tuple[object]]:
    """Set or read a pragma of the connection that writes."""
    return await journal._writer.submit("ask", lambda commit: commit.execute(f"PRAGMA {words}").fetchall())


def _overwrite(path: Path, start: int) -> None:
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(start)
        file.write(b"\xff" * (size - start))


async def test_a_damaged_file(path: Path) -> None:
    """Found where it is read, and by looking at the whole of it."""
    async with SqliteJournal(path) as journal:
        await loaded(journal, 2000)
    _overwrite(path, 4 * 4096)
    with pytest.raises(JournalCorrupt):
        async with SqliteJournal(path) as journal:
            await journal.check()


@pytest.mark.parametrize("damage", ["UPDATE meta SET value = 'x' WHERE key = 'commits'", "DELETE FROM meta"])
async def test_a_journal_that_has_lost_what_it_is_hangs_nobody(path: Path, damage: str) -> None:
    """Whatever goes wrong while it is opened, whoever opens it hears of it."""
    async with SqliteJournal(path) as journal:
        await loaded(journal)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(damage)
    async with asyncio.timeout(30):
        with pytest.raises(JournalUnavailable, match=r"could not be opened \((Key|Value)Error\)"):
            async with SqliteJournal(path):
                pass


async def test_an_order_that_was_edited_in_the_file_is_not_sent(path: Path) -> None:
    """Its digest tells."""
    await made(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE outbox SET amount = '999999' WHERE request_id = ?", (order(1).request_id,))
    connection.commit()
    connection.close()
    async with SqliteJournal(path) as journal:
        with pytest.raises(JournalCorrupt, match=order(1).request_id):
            await journal.claim_chunk(BATCH, "worker")


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE ipn_event SET status_code = 2", "UPDATE ipn_event SET body = x'7b7d'",
        "UPDATE ipn_event SET body = x'00'",
    ],
)  # fmt: skip
async def test_a_notification_that_was_edited_in_the_file_is_not_handled(
    path: Path, edit: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its event is read from the delivery, which does not say what the row says. It holds up no other."""
    came = notification()
    event = read_notification(came.body, came.query)
    delivery = RawNotification(body=came.body, query=came.query, peer="192.0.2.1", received_at=0.0)
    async with SqliteJournal(path) as journal:
        arrival = Arrival(delivery=delivery, event=event, lease=0, usual=True)
        await journal.receive_all((arrival,), owner="billing")
        assert event == (await journal.claim("billing", lease=0, limit=9))[0].event
    connection = sqlite3.connect(path)
    connection.execute(edit)
    connection.commit()
    connection.close()
    async with SqliteJournal(path) as journal:
        await journal.receive(delivery, attrs.evolve(event, status_code=1, request_id=None), owner="billing", lease=0)
        assert [2] == [stored.event_id for stored in await journal.claim("billing", lease=9, limit=9)]
        (dead,) = [stored async for stored in journal.dead_letters()]
        assert (1, event.transaction_id) == (dead.event_id, dead.event.transaction_id)
        assert "a stored notification cannot be read" in caplog.text
        assert await final_event(journal, event.request_id or "") is None


async def test_a_copied_file_is_quarantined(path: Path, clock: Clock) -> None:
    """A backup does not know what was sent since: nothing goes on before a person says that it was looked up."""
    async with SqliteJournal(path, testing=Testing(now=clock)) as journal:
        chunk = await claimed(journal)
        await permitted(journal, chunk)
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    async with SqliteJournal(copy, testing=Testing(now=clock)) as journal:
        assert 1 == (await journal.run(BATCH)).quarantined
        assert State.UNKNOWN is await _state(journal, order(0).request_id)
        assert not isinstance(await journal.permit(chunk, chunk.orders[1]), Permit)
        assert await journal.claim_chunk(BATCH, "worker") is None
        await missed(journal)
        assert 1 == await journal.lift_quarantine(BATCH, who="Ann", why="all looked up")
        assert await journal.claim_chunk(BATCH, "worker") is not None
    moved = await asyncio.to_thread(path.rename, path.with_name("moved.db"))
    async with SqliteJournal(moved, testing=Testing(now=clock)) as journal:
        assert 0 == (await journal.run(BATCH)).quarantined


@pytest.mark.parametrize("way", ["written over", "put in its place"])
async def test_a_restored_backup_is_quarantined(path: Path, way: str) -> None:
    """Also where it was written over the file, and when the process that wrote the file was never closed."""
    async with SqliteJournal(path) as journal:
        await loaded(journal)
    backup = path.read_bytes()  # noqa: ASYNC240 - nothing else runs
    async with SqliteJournal(path) as journal:
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
    if way == "put in its place":
        path.unlink()  # noqa: ASYNC240
    path.write_bytes(backup)  # noqa: ASYNC240
    async with SqliteJournal(path) as journal:
        assert 1 == (await journal.run(BATCH)).quarantined
        assert await journal.claim_chunk(BATCH, "worker") is None
        await missed(journal)
        await journal.lift_quarantine(BATCH, who="Ann", why="all looked up")
    async with SqliteJournal(path) as journal:
        assert 0 == (await journal.run(BATCH)).quarantined
        assert await journal.claim_chunk(BATCH, "worker") is not None


async def test_a_journal_can_be_opened_again(path: Path) -> None:
    """After it was closed, and after it could not be opened."""
    journal = SqliteJournal(path, busy_timeout=0.05)
    await made(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalLocked):
        await journal.__aenter__()
    other.close()
    for _ in range(2):
        async with journal:
            assert 3 == (await journal.progress()).total


async def test_a_journal_opened_again_while_its_last_commit_is_under_way(path: Path) -> None:
    """What is asked from then on has a connection of its own, and goes on beside that of before."""
    is_last, reached, go_on = threading.Event(), threading.Event(), threading.Event()

    def wait_at(point: str) -> None:
        if point == "commit.done" and is_last.is_set():
            is_last.clear()
            reached.set()
            go_on.wait(30)

    journal = SqliteJournal(path, testing=Testing(crash_at=wait_at))
    await journal.__aenter__()
    await loaded(journal)
    is_last.set()
    last = asyncio.ensure_future(journal.expire_chunks(BATCH))  # which commits, whatever is to be done
    closing = asyncio.ensure_future(journal.aclose())
    assert await asyncio.to_thread(reached.wait, 30)
    closing.cancel()  # as a second ctrl-c does
    await asyncio.wait({closing})
    async with journal:
        go_on.set()
        assert 0 == await last
        assert 3 == (await journal.progress()).total
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        assert isinstance(await permitted(journal, chunk), Permit)
    assert not await asyncio.to_thread(_threads_left)


def _threads_left() -> list[threading.Thread]:
    """Threads of journals that do not end though none is open."""
    postgres.end_sessions()
    found = [thread for thread in threading.enumerate() if thread.name == "journal"]
    for thread in found:
        thread.join(30)
    return [thread for thread in found if thread.is_alive()]


async def test_a_closed_journal(path: Path) -> None:
    """Says so, whatever is asked; what was queued before is written."""
    journal = SqliteJournal(path)
    with pytest.raises(JournalClosed):
        await journal.progress()
    async with journal:
        chunk = await claimed(journal)
        asked = [asyncio.ensure_future(journal.permit(chunk, held)) for held in chunk.orders]
        await asyncio.sleep(0)
    assert [Permit] * 3 == [type(await answer) for answer in asked]
    with pytest.raises(JournalClosed):
        await journal.permit(chunk, chunk.orders[0])
    async with SqliteJournal(path) as journal:
        assert 3 == (await journal.progress(BATCH)).counts["sending"]

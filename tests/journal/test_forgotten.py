"""A journal that forgot knows that it forgot: restored, copied, lost, empty, without its log, or one of two."""
# ruff: noqa: ASYNC221, ASYNC240 - nothing else runs in these loops

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import attrs
import pytest
from journal.factories import (
    BATCH,
    IDENTITY,
    Clock,
    claimed,
    delivery,
    event,
    in_outbox,
    loaded,
    order,
    orders,
    permitted,
)
from nested import for_journal

from payments_async import PayoutOrder
from payments_async.journal import (
    HeldElsewhere,
    JournalBehind,
    JournalCorrupt,
    JournalLocked,
    JournalLost,
    JournalUnavailable,
    LoadBusy,
    NotAJournal,
    OrdersDiffer,
    RegistryDamaged,
    Signal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
)
from payments_async.journal._machine._files import birth_of
from payments_async.journal._machine._memory import CommitCounter, Registry
from payments_async.journal._sqlite import _identity
from payments_async.journal._sqlite._opening import make
from payments_async.journal.contract import NotPermitted, Outcome, Permit
from payments_async.testing import Testing

ANN = TakeoverAuthorisation(who="Ann", why="the disk is broken")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the journal lies."""
    (tmp_path / "payroll").mkdir()
    return tmp_path / "payroll"


@pytest.fixture
def path(folder: Path) -> Path:
    """Of a journal that does not exist yet."""
    return folder / "journal.db"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What the machine remembers."""
    return tmp_path / "state" / "payments-async"


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a place that the tests know."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def sent(journal: SqliteJournal, count: int = 1) -> None:
    """So many orders are permitted and accepted, and the chunk is given back."""
    chunk = await journal.claim_chunk(BATCH, "worker")
    assert chunk is not None
    for place in range(count):
        await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=Signal.ACCEPTED))
    await journal.release_chunk(chunk)


async def made(path: Path, *, since: int = 0, **options: object) -> None:
    """A journal with three orders, of which so many were sent."""
    async with SqliteJournal(path, **for_journal(options)) as journal:
        await loaded(journal)
        if since:
            await sent(journal, since)


async def sends(path: Path, **options: object) -> bool:
    """Whether anything of the batch could be sent from this file."""
    async with SqliteJournal(path, **for_journal(options)) as journal:
        chunk = await journal.claim_chunk(BATCH, "another")
        assert (chunk is None) == bool((await journal.run(BATCH)).quarantined)
        if chunk is not None:
            await journal.release_chunk(chunk)
        return chunk is not None


def lift(path: Path) -> None:
    """As if somebody had looked."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE chunk SET state = 'open' WHERE state = 'quarantined'")
        file.execute("UPDATE run SET quarantined_at = NULL")
        file.commit()


# Restored and copied


def _copied_over(backup: Path, folder: Path) -> None:
    subprocess.run(["cp", "-a", f"{backup}/.", f"{folder}/"], check=True)


def _put_in_place(backup: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    subprocess.run(["cp", "-a", str(backup), str(folder)], check=True)


def _unpacked_over(backup: Path, folder: Path) -> None:
    subprocess.run(["tar", "-C", str(backup), "-cf", f"{backup}.tar", "."], check=True)
    subprocess.run(["tar", "-C", str(folder), "-xf", f"{backup}.tar"], check=True)


@pytest.mark.parametrize("restore", [_copied_over, _put_in_place, _unpacked_over])
async def test_a_backup_of_the_whole_folder_is_noticed(
    folder: Path, path: Path, tmp_path: Path, restore: Callable[[Path, Path], None]
) -> None:
    """The mark comes along, and the inode may come back: what the machine remembers outside of the folder does not."""
    await made(path)
    backup = tmp_path / "backup"
    subprocess.run(["cp", "-a", str(folder), str(backup)], check=True)
    async with SqliteJournal(path) as journal:
        await sent(journal, 2)
    restore(backup, folder)
    assert not await sends(path)
    async with SqliteJournal(path) as journal:
        assert 3 == (await journal.progress(BATCH)).counts["planned"]


async def test_a_restored_file_that_got_the_old_inode_is_noticed_by_its_birth(path: Path) -> None:
    """Also where nothing else remembers it."""
    if birth_of(path.parent) is None:
        pytest.skip("the file system tells no birth times")
    await made(path, state_folder=None)
    backup = path.read_bytes()
    path.unlink()
    path.write_bytes(backup)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (str(path.stat().st_ino),))
        file.commit()
    assert not await sends(path, state_folder=None)


async def test_a_copy_of_the_open_file_is_a_journal_that_forgot(path: Path) -> None:
    """The file alone has its tables, its identity and its orders as soon as they are loaded, whatever is in the log."""
    copy = path.with_name("copy.db")
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        await sent(journal)
        shutil.copyfile(path, copy)
    assert not await sends(copy)
    async with SqliteJournal(copy) as journal:
        assert 3 == (await journal.progress(BATCH)).total


@pytest.mark.parametrize("way", ["backup", "VACUUM INTO"])
async def test_a_copy_that_sqlite_makes_is_noticed(path: Path, way: str) -> None:
    """It is as old as it is."""
    await made(path)
    with closing(sqlite3.connect(path)) as file, closing(sqlite3.connect(path.with_name("other.db"))) as other:
        if way == "backup":
            file.backup(other)
        else:
            file.execute("VACUUM INTO ?", (str(path.with_name("other.db")),))
    assert not await sends(path.with_name("other.db"))
    assert await sends(path)


async def test_looking_into_a_copy_does_not_disturb_the_original(path: Path) -> None:
    """Only who sends goes on."""
    await made(path, since=1)
    shutil.copyfile(path, path.with_name("copy.db"))
    assert not await sends(path.with_name("copy.db"))
    assert await sends(path)


async def test_a_copy_that_goes_on_stops_the_original(path: Path) -> None:
    """At its very next permit, although nobody opens it anew; what it has sent is still written down."""
    copy = path.with_name("copy.db")
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal)
        permit = await permitted(journal, chunk)
        shutil.copyfile(path, copy)
        assert not await sends(copy)
        lift(copy)
        async with SqliteJournal(copy) as other:
            await sent(other)
        with pytest.raises(JournalBehind, match="has gone on"):
            await journal.permit(chunk, chunk.orders[1])
        assert isinstance(await journal.permit(chunk, chunk.orders[1]), NotPermitted)
        assert 1 == (await journal.run(BATCH)).quarantined
        await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
        entry = await journal.entry(permit.request_id)
        assert entry is not None
        assert State.ACCEPTED is entry.state
    assert not await sends(path)


async def test_what_somebody_may_have_written_off_since_is_kept_back_too(path: Path) -> None:
    """A chunk that is done but for a parked order: in what was forgotten it may have been written off, and sent."""
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal)
        for place, signal in enumerate((Signal.UNKNOWN, Signal.ACCEPTED, Signal.ACCEPTED)):
            await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=signal))
        await journal.park(order(0).request_id, detail="two list scans")
        await journal.release_chunk(chunk)
    shutil.copyfile(path, path.with_name("copy.db"))
    async with SqliteJournal(path.with_name("copy.db")) as journal:
        await journal.send_again(order(0).request_id, who="Ann", why="never arrived")
        assert await journal.claim_chunk(BATCH, "worker") is None
        assert 1 == (await journal.run(BATCH)).quarantined


async def test_events_after_a_backup_was_put_back_have_numbers_of_their_own(path: Path) -> None:
    """A handler that remembers what it has done by them passes by none, though the file has forgotten some."""
    copy = path.with_name("copy.db")
    numbers = []
    async with SqliteJournal(path) as journal:
        numbers.append((await journal.receive(delivery(b"1"), event(0, 1), owner="r", lease=60)).event_id)
    shutil.copyfile(path, copy)
    async with SqliteJournal(path) as journal:  # of what follows the backup knows nothing
        numbers.append((await journal.receive(delivery(b"2"), event(0, 2), owner="r", lease=60)).event_id)
    async with SqliteJournal(copy, state_folder=None) as journal:
        third, again = (
            await journal.receive(delivery(b"3"), event(0, 3), owner="r", lease=60),
            await journal.receive(delivery(b"1"), event(0, 1), owner="r", lease=60),
        )
        assert third.event_id not in numbers
        assert (True, False, numbers[0]) == (third.is_new, again.is_new, again.event_id)
        backlog = await journal.backlog()
        assert (2, 0, 2) == (backlog.pending, backlog.dead, await journal.unmatched_events())


async def test_when_it_was_quarantined_is_written_down(path: Path, clock: Clock) -> None:
    """And since when its orders may have been sent: since the batch was made."""
    await made(path, clock=clock)
    shutil.copyfile(path, path.with_name("copy.db"))
    clock.pass_(3600)
    assert not await sends(path.with_name("copy.db"), clock=clock)
    assert (1_003_600.0, 1_000_000.0) == _looked_for(path.with_name("copy.db"))


def _looked_for(path: Path) -> tuple[float, float]:
    with closing(sqlite3.connect(path)) as file:
        found: tuple[float, float] = file.execute("SELECT quarantined_at, look_since FROM run").fetchone()
    return found


async def test_a_batch_that_was_being_loaded_when_the_backup_was_made_is_kept_back(path: Path) -> None:
    """It had no chunks yet; those it gets are not to be sent before somebody has looked."""
    async with SqliteJournal(path) as journal:
        await journal.open_run(BATCH, IDENTITY)
    shutil.copyfile(path, path.with_name("copy.db"))
    async with SqliteJournal(path.with_name("copy.db"), state_folder=None) as journal:
        await journal.load(BATCH, orders(3), owner="loader")
        assert (1, None) == ((await journal.run(BATCH)).quarantined, await journal.claim_chunk(BATCH, "worker"))


# What is not suspicious


async def test_a_renamed_journal_stays_itself(path: Path, folder: Path) -> None:
    """The file, with or without its mark, and its folder."""
    await made(path, since=1)
    moved = await asyncio.to_thread(path.rename, path.with_name("moved.db"))
    assert await sends(moved)
    elsewhere = await asyncio.to_thread(folder.rename, folder.with_name("elsewhere"))
    assert await sends(elsewhere / "moved.db")


@pytest.mark.parametrize("way", ["moved", "deleted", "replaced"])
async def test_a_journal_that_is_not_in_its_place_any_more_while_it_is_open(path: Path, way: str) -> None:
    """What is written to it would be gone with its process: nothing is promised, and nothing is sent."""
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal, 3)
        await permitted(journal, chunk)
        moved = path.rename(path.with_name("moved.db"))
        if way == "replaced":
            shutil.copyfile(moved, path)
        if way != "moved":
            moved.unlink()
        with pytest.raises(JournalUnavailable, match="moved, deleted or replaced while it is open"):
            await journal.permit(chunk, chunk.orders[1])
        with pytest.raises(JournalUnavailable, match="moved, deleted or replaced while it is open"):
            await loaded(journal, 2, batch="another")
        if way == "moved":
            moved.rename(path)
            assert isinstance(await journal.permit(chunk, chunk.orders[1]), Permit)


@pytest.mark.parametrize("way", ["moved", "deleted", "replaced"])
async def test_a_notification_that_comes_when_the_journal_is_not_in_its_place(path: Path, way: str) -> None:
    """It would be gone with the process that has answered 200 to it: it is not stored, and so will be sent again."""
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        moved = path.rename(path.with_name("moved.db"))
        if way == "replaced":
            shutil.copyfile(moved, path)
        if way != "moved":
            moved.unlink()
        with pytest.raises(JournalUnavailable, match="moved, deleted or replaced while it is open"):
            await journal.receive(delivery(), event(0, 99), owner="receiver", lease=90.0)


async def test_a_folder_that_nobody_can_look_into_for_a_while(path: Path) -> None:
    """Nothing is promised while nobody can tell whether the file is in its place, and then all goes on as before."""
    away = path.parent.with_name("away")
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal, 3)
        path.parent.rename(away)
        path.parent.symlink_to(path.parent.name)  # to itself: whoever follows it is refused, even the system's master
        for _ in range(2):
            with pytest.raises(JournalUnavailable, match=r"whether journal\.db still is in its place cannot be seen"):
                await journal.permit(chunk, chunk.orders[0])
        path.parent.unlink()
        away.rename(path.parent)
        await permitted(journal, chunk)


def states_in_the_file(path: Path) -> list[str]:
    """Where orders stand by the file alone, whatever is in its log."""
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as file:
        return [state for (state,) in file.execute("SELECT state FROM outbox ORDER BY id")]


@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_the_log_of_a_journal_is_deleted_while_it_is_open(path: Path, end: str) -> None:
    """As a file that was left over, by somebody who tidies up: nothing is promised from then on, and nothing sent.

    What was committed before is brought into the file as soon as that is noticed, so nobody who opens it misses it.
    """
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal, 3)
        await permitted(journal, chunk)
        path.with_name(f"{path.name}{end}").unlink()
        with pytest.raises(JournalUnavailable, match=f"{end} was moved, deleted or replaced while it is open"):
            await journal.receive(delivery(), event(), owner="receiver", lease=90.0)
        with pytest.raises(JournalUnavailable, match=f"{end} was moved, deleted or replaced while it is open"):
            await journal.permit(chunk, chunk.orders[1])
        assert ["sending", "planned", "planned"] == states_in_the_file(path)
    async with SqliteJournal(path) as journal:
        assert 1 == (await journal.progress(BATCH)).counts[State.SENDING]


_MEANWHILE = """
import asyncio, sys
from journal.factories import BATCH, loaded
from payments_async.journal import SqliteJournal

async def main():
    async with SqliteJournal(sys.argv[1]) as journal:
        print((await journal.run(BATCH)).quarantined, "chunk in quarantine")
        await loaded(journal, 300, batch="meanwhile")

asyncio.run(main())
"""


async def test_somebody_goes_on_without_the_log_that_was_deleted(path: Path) -> None:
    """What was in it does not come into the file any more, which would be a mixture; the anchor tells that it lacks."""
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal, 3)
        await permitted(journal, chunk)
        for end in ("-wal", "-shm"):
            path.with_name(f"{path.name}{end}").unlink()
        tests = str(Path(__file__).parent.parent)
        done = subprocess.run(
            [sys.executable, "-c", _MEANWHILE, str(path)],
            env={**os.environ, "PYTHONPATH": tests},
            check=True,
            capture_output=True,
            text=True,
        )
        assert "1 chunk in quarantine" == done.stdout.strip()
        with pytest.raises(JournalUnavailable, match="while it is open"):
            await journal.permit(chunk, chunk.orders[1])
    with pytest.raises(JournalUnavailable, match="end whatever uses the journal and begin again"):
        await sends(path)
    copy = path.with_name("copy.db")
    for end in ("", "-wal"):
        shutil.copyfile(path.with_name(f"{path.name}{end}"), copy.with_name(f"{copy.name}{end}"))
    with closing(sqlite3.connect(copy)) as file:
        assert [("ok",)] == file.execute("PRAGMA integrity_check").fetchall()
        found = file.execute("SELECT state, count(*) FROM outbox GROUP BY id >> 28, state").fetchall()
        assert [("planned", 3), ("planned", 300)] == found


@pytest.mark.parametrize("folder_of_it", ["payroll", "elsewhere"])
async def test_a_journal_with_two_names_is_refused(path: Path, tmp_path: Path, folder_of_it: str) -> None:
    """Whoever opened it by the other one would have another log beside it, and both would send all of its orders."""
    await made(path)
    other = tmp_path / folder_of_it / "other.db"
    other.parent.mkdir(exist_ok=True)
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(JournalUnavailable, match=r"has 2 names \(hard links\)"):
            async with SqliteJournal(name):
                pass
    other.unlink()
    assert await sends(path)


async def test_whoever_made_a_journal_was_killed_before_it_lost_its_first_name(path: Path) -> None:
    """That name is taken away: nobody opens it by that."""
    await made(path)
    first = path.with_name(f".{path.name}-new-0011aabb")
    os.link(path, first)
    assert await sends(path)
    assert not first.exists()


_MOUNTED = """import asyncio, sys
from payments_async.journal import JournalUnavailable, SqliteJournal

async def main():
    try:
        async with SqliteJournal(sys.argv[1]):
            print("opened")
    except JournalUnavailable as error:
        print(error.message)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["journal.db", "the journal.db"])
async def test_a_journal_that_is_mounted_by_itself_is_refused(tmp_path: Path, name: str) -> None:
    """As containers are given single files: each would have a log of its own, and all would send all of its orders."""
    path = tmp_path / "outside" / name
    path.parent.mkdir()
    await made(path)
    inside = tmp_path / "inside" / name
    inside.parent.mkdir()
    inside.touch()
    script = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$2"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*command, str(path), str(inside), sys.executable, _MOUNTED], capture_output=True, text=True, check=False
    )
    if done.returncode or "Operation not permitted" in done.stderr:
        pytest.skip("no file can be mounted here")
    assert f"{inside} is mounted by itself" in done.stdout
    assert await sends(path)


async def test_another_user_of_the_machine_opens_it_without_a_word(path: Path, tmp_path: Path) -> None:
    """Whose state folder knows nothing; then the first one again, whose knowledge is behind."""
    await made(path)
    async with SqliteJournal(path, state_folder=tmp_path / "other") as journal:
        await sent(journal)
    assert await sends(path)


async def test_a_mark_and_an_anchor_that_lag_behind_are_none(path: Path, state: Path) -> None:
    """A process was killed after its commit, or the state folder came back from a backup."""
    await made(path, since=2)
    (anchor,) = (state / "anchors").iterdir()
    for file in (anchor, path.with_name("journal.db-mark")):
        file.write_bytes((1).to_bytes(8, "big") + file.read_bytes()[8:])
    assert await sends(path)


async def test_a_symbolic_link_and_its_target_are_one_journal(path: Path, tmp_path: Path) -> None:
    """It is known by where it is, and its mark lies there."""
    (tmp_path / "link.db").symlink_to(path)
    await made(tmp_path / "link.db", since=1)
    assert path.with_name("journal.db-mark").exists()
    assert not (tmp_path / "link.db-mark").exists()
    assert await sends(path)
    assert await sends(tmp_path / "link.db")


async def test_a_journal_that_has_another_name_now_and_whose_log_has_the_first(path: Path, tmp_path: Path) -> None:
    """SQLite looks for a log by the name: under the second one the file is behind."""
    killed(path, "sent", loses_log=False)
    second = tmp_path / "second.db"
    second.hardlink_to(path)
    with pytest.raises(JournalUnavailable, match="has 2 names"):
        await sends(second)
    path.unlink()
    assert not await sends(second)


# The mark


async def test_a_missing_mark_is_suspicious_once_commits_were_made(path: Path) -> None:
    """A restored backup often has none; a journal of which nothing was written down yet needs none."""
    async with SqliteJournal(path):
        pass
    mark = path.with_name("journal.db-mark")
    mark.unlink()
    await made(path)
    mark.unlink()
    assert not await sends(path)


async def test_a_journal_that_was_renamed_without_its_mark_where_nothing_remembers_it(path: Path) -> None:
    """Whether it was renamed or restored, nobody can tell."""
    await made(path, state_folder=None)
    moved = await asyncio.to_thread(path.rename, path.with_name("moved.db"))
    assert not await sends(moved, state_folder=None)


# Lost


@pytest.mark.parametrize("left", [(), ("-mark",), ("-mark", "-wal")])
async def test_a_journal_that_is_gone_is_not_begun_anew(path: Path, left: tuple[str, ...]) -> None:
    """Its mark remembers it, and so does the machine, which knows what was in it."""
    await made(path, since=1)
    path.with_name("journal.db-wal").touch()
    for end in {"", "-wal", "-mark"} - set(left):
        path.with_name(f"journal.db{end}").unlink()
    with pytest.raises(JournalLost, match=r"batch payroll \(3 orders, loaded \d") as caught:
        await sends(path)
    assert not path.exists()
    assert caught.value.remedy in str(caught.value)


async def test_a_journal_that_is_gone_where_only_its_mark_remembers_it(path: Path) -> None:
    """It is not begun anew either."""
    await made(path, state_folder=None)
    path.unlink()
    with pytest.raises(JournalLost, match=r"journal\.db-mark remembers"):
        await sends(path, state_folder=None)
    assert not path.exists()


@pytest.mark.parametrize("size", [0, 4096])
@pytest.mark.parametrize("mark", [True, False])
async def test_an_empty_file_where_a_journal_was(path: Path, size: int, mark: bool) -> None:
    """Zero bytes, or the first page of a database whose log is lost: it is refused and left as it is."""
    await made(path)
    path.unlink()
    if not mark:
        path.with_name("journal.db-mark").unlink()
    _write_empty(path, size)
    before = path.read_bytes()
    with pytest.raises(JournalLost, match="batch payroll"):
        await sends(path)
    assert before == path.read_bytes()


@pytest.mark.parametrize("size", [0, 4096])
async def test_an_empty_file_that_nobody_remembers(path: Path, size: int) -> None:
    """As ``mktemp`` makes it: it may be what is left of a journal, so it is refused, with the remedy."""
    _write_empty(path, size)
    with pytest.raises(NotAJournal, match="delete this one if it is empty"):
        await sends(path)
    path.unlink()
    await made(path)
    assert await sends(path)


def _write_empty(path: Path, size: int) -> None:
    path.touch()
    if size:
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA journal_mode = WAL")
        assert size == path.stat().st_size


async def test_another_journal_in_its_place(path: Path) -> None:
    """It knows nothing of what the first one sent; once that is opened where it was moved to, all is well."""
    await made(path)
    other = path.with_name("other.db")
    async with SqliteJournal(other):
        pass
    moved = await asyncio.to_thread(path.rename, path.with_name("moved.db"))
    await asyncio.to_thread(other.rename, path)
    with pytest.raises(JournalLost, match="batch payroll"):
        await sends(path)
    assert await sends(moved)
    async with SqliteJournal(path) as journal:
        assert 0 == (await journal.progress()).total


async def test_another_journal_in_its_place_where_only_the_mark_remembers(path: Path) -> None:
    """The mark says whose it is."""
    await made(path, state_folder=None)
    await made(path.with_name("other.db"), state_folder=None)
    await asyncio.to_thread(path.with_name("other.db").rename, path)
    with pytest.raises(JournalLost, match=r"journal\.db-mark remembers"):
        await sends(path, state_folder=None)


async def test_a_journal_that_never_held_an_order_may_go(path: Path) -> None:
    """Nothing is forgotten with it."""
    async with SqliteJournal(path) as journal:
        assert journal.is_new
    path.unlink()
    async with SqliteJournal(path) as journal:
        assert journal.is_new
    async with SqliteJournal(path) as journal:
        assert not journal.is_new


_KILLED = """
import asyncio, os, signal, sys
from journal.factories import BATCH, loaded, permitted
from payments_async.journal import Signal, SqliteJournal
from payments_async.journal.contract import Outcome

async def main():
    async with SqliteJournal(sys.argv[1]) as journal:
        if sys.argv[2] == "made":
            os.kill(os.getpid(), signal.SIGKILL)
        await loaded(journal, 300)
        chunk = await journal.claim_chunk(BATCH, "worker", lease=3600)  # four hundred commits may take their time
        for place in range(200 if sys.argv[2] == "sent" else 0):
            await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=Signal.ACCEPTED))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def killed(path: Path, when: str, *, loses_log: bool = True) -> None:
    """A process that works on the journal and is killed there; then its log is lost."""
    tests = str(Path(__file__).parent.parent)
    process = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path), when], check=False, env={**os.environ, "PYTHONPATH": tests}
    )
    assert -signal.SIGKILL == process.returncode
    if loses_log:
        path.with_name("journal.db-wal").unlink()
        path.with_name("journal.db-shm").unlink()


_LATER = """
import asyncio, os, signal, sys
from journal.factories import BATCH, permitted
from payments_async.journal import SqliteJournal

async def main():
    async with SqliteJournal(sys.argv[1]) as journal:
        chunk = await journal.claim_chunk(BATCH, "later")
        await permitted(journal, chunk, -1)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def killed_later(path: Path) -> None:
    """A process that sends one more and is killed, so that its log stays."""
    tests = str(Path(__file__).parent.parent)
    subprocess.run([sys.executable, "-c", _LATER, str(path)], check=False, env={**os.environ, "PYTHONPATH": tests})
    assert path.with_name("journal.db-wal").stat().st_size


async def test_a_backup_that_is_put_back_beside_the_log_of_later(path: Path) -> None:
    """A mixture of both: it counts as many commits as its mark, and has forgotten what the log does not hold."""
    async with SqliteJournal(path) as journal:
        await loaded(journal, 500)
    backup = path.read_bytes()
    async with SqliteJournal(path) as journal:
        await sent(journal, 5)
    killed_later(path)
    with path.open("r+b") as file:
        file.write(backup)
    with pytest.raises(JournalCorrupt, match="-wal beside it is that of another time"):
        await sends(path)


@pytest.mark.parametrize("known", [0, 1, 2])
async def test_a_small_backup_that_is_put_back_beside_the_log_of_later(path: Path, known: int) -> None:
    """All orders and sums are in the log, and an index is that of the backup: it finds no order by its request id."""
    async with SqliteJournal(path) as journal:
        for number in range(known):
            await journal.open_run(f"before {number}", IDENTITY)
            await journal.load(f"before {number}", orders(3, batch=f"before {number}"), owner="loader")
    backup = path.read_bytes()
    async with SqliteJournal(path) as journal:
        await loaded(journal)
    killed_later(path)
    with path.open("r+b") as file:
        file.write(backup)
    for _ in range(2):  # nor does refusing it bring the log into the file
        with pytest.raises(JournalCorrupt, match="-wal beside it is that of another time"):
            await sends(path)
    with closing(SqliteJournal(path)._database.open_examiner()):
        pass
    path.with_name("journal.db-wal").unlink()
    path.with_name("journal.db-shm").unlink()
    async with SqliteJournal(path) as journal:
        assert known == len([run for run in await journal.runs() if run.quarantined_at is not None])


async def test_a_backup_that_is_put_over_a_journal_while_it_is_open(path: Path) -> None:
    """What the process writes comes into another file than it has read: the next one does not take that for whole."""
    async with SqliteJournal(path):
        pass
    backup = path.read_bytes()
    async with SqliteJournal(path) as journal:
        await loaded(journal, 300)
    async with SqliteJournal(path) as journal:
        await sent(journal, 5)
        path.write_bytes(backup)  # as `cp` does
    for _ in range(2):
        with pytest.raises(JournalCorrupt, match="of another time"):
            await sends(path)


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("when", ["after it was killed", "while it is open"])
async def test_a_backup_that_is_put_over_a_journal_of_many_batches(path: Path, when: str) -> None:
    """Neither sums nor indices show it: what was sent since lies in pages that the log of later does not hold."""
    async with SqliteJournal(path) as journal:
        for number in (*range(200), None):
            name = BATCH if number is None else f"batch {number}"
            await journal.open_run(name, IDENTITY)
            await journal.load(name, orders(2, batch=name), owner="loader")
    backup = path.read_bytes()
    async with SqliteJournal(path) as journal:
        chunk = await journal.claim_chunk("batch 0", "worker")
        assert chunk is not None
        await journal.record(Outcome(permit=await permitted(journal, chunk, 0), signal=Signal.REJECTED))
        await journal.release_chunk(chunk)
    if when == "while it is open":
        async with SqliteJournal(path) as journal:
            await sent(journal)
            path.write_bytes(backup)
    else:
        killed_later(path)
        path.write_bytes(backup)
    for _ in range(2):
        with pytest.raises(JournalCorrupt, match="fewer commits than it did when that log began"):
            await sends(path)


@pytest.mark.slow(covered=True)
async def test_a_backup_taken_in_a_long_life_that_is_put_over_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was opened long before the backup: it sends nothing more, and leaves its log out of the file.

    Now and then its log tells how full the file was.
    """
    monkeypatch.setattr(_identity, "_OFTEN", 5)
    async with SqliteJournal(path) as journal:
        for number in (*range(200), None):
            name = BATCH if number is None else f"batch {number}"
            await journal.open_run(name, IDENTITY)
            await journal.load(name, orders(2, batch=name), owner="loader")
        backup = path.with_name("backup")
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        for number in range(10):  # the last commits lie in a log that began anew
            chunk = await journal.claim_chunk(f"batch {number}", "worker")
            assert chunk is not None
            await journal.record(Outcome(permit=await permitted(journal, chunk, 0), signal=Signal.REJECTED))
            await journal.release_chunk(chunk)
        path.write_bytes(backup.read_bytes())
        with pytest.raises(JournalUnavailable, match="written over the file while it is open"):
            await journal.claim_chunk("batch 10", "worker")
    for _ in range(2):
        with pytest.raises(JournalCorrupt, match="the file was restored"):
            await sends(path)


async def test_a_log_that_is_lost_after_orders_were_sent(path: Path) -> None:
    """Its orders are in the file, which knows that it is behind: nothing is sent again."""
    killed(path, "sent")
    assert not await sends(path)
    async with SqliteJournal(path) as journal:
        assert 300 == (await journal.progress(BATCH)).total


async def test_a_log_that_is_lost_after_the_load(path: Path) -> None:
    """The file alone holds the batch, and nothing was forgotten."""
    killed(path, "loaded")
    assert await sends(path)


async def test_a_log_that_is_lost_right_after_the_journal_was_made(path: Path) -> None:
    """The file alone has its tables and its identity."""
    killed(path, "made")
    async with SqliteJournal(path) as journal:
        assert (False, 0) == (journal.is_new, (await journal.progress()).total)


def test_processes_that_make_a_journal_at_once_make_one(path: Path) -> None:
    """Nobody ever sees half of it, and nothing is left beside it."""

    async def opened() -> int:
        journals = [SqliteJournal(path) for _ in range(8)]
        await asyncio.gather(*(journal.__aenter__() for journal in journals))
        await asyncio.gather(*(journal.aclose() for journal in journals))
        return sum(journal.is_new for journal in journals)

    assert 1 == asyncio.run(opened())
    assert {"journal.db", "journal.db-mark"} == {file.name for file in path.parent.iterdir()}


def test_processes_that_make_the_registry_at_once(tmp_path: Path) -> None:
    """The first two commands of a user, in the same moment: SQLite refuses one of them, and that one tries again."""

    def open_one(path: Path, begin: threading.Barrier) -> None:
        begin.wait(timeout=60)
        Registry(path, busy_timeout=60).close()

    for n in range(20):
        begin, path = threading.Barrier(4), tmp_path / f"registry-{n}.sqlite"
        with ThreadPoolExecutor(max_workers=4) as threads:
            for opened in [threads.submit(open_one, path, begin) for _ in range(4)]:
                opened.result()


def test_a_file_system_without_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty file keeps others away for the moment."""

    def link(*_: object) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "link", link)
    assert make(path, remembers=True)
    assert not make(path, remembers=True)
    assert [path] == list(path.parent.iterdir())


# Two journals for one batch


async def test_a_second_journal_for_the_same_orders(path: Path) -> None:
    """A mistyped name: the orders are refused, and where they are is said."""
    await made(path)
    async with SqliteJournal(path.with_name("jounral.db")) as second:
        await second.open_run("other", IDENTITY)
        with pytest.raises(HeldElsewhere, match=r"payroll-000000 and 2 more") as caught:
            await second.load("other", orders(3), owner="loader")
        assert "batch payroll (3 orders, loaded " in str(caught.value)
        assert str(path) in str(caught.value)
        assert caught.value.remedy in str(caught.value)
        assert (BATCH, tuple(order(n).request_id for n in range(3))) == (
            caught.value.batch_id,
            caught.value.request_ids,
        )
        assert not (await second.run("other")).ready


async def test_the_same_orders_for_another_account_are_others(path: Path) -> None:
    """Request ids are an account's own."""
    await made(path)
    for change in ({"base_address": "https://other.example"}, {"user_id": "8"}):
        known = {"base_address": IDENTITY.base_address, "key_fingerprint": "0123456789abcdef", "user_id": "7"}
        async with SqliteJournal(path.with_name(f"{next(iter(change))}.db")) as second:
            await second.open_run(BATCH, type(IDENTITY)(**(known | change)))
            assert 3 == (await second.load(BATCH, orders(3), owner="loader")).added


async def test_a_key_that_was_replaced_makes_no_other_account(path: Path) -> None:
    """The journal goes on with the new one, and a second journal hears of what was sent with the old one."""
    await made(path)
    replaced = attrs.evolve(IDENTITY, key_fingerprint="f" * 16)
    async with SqliteJournal(path.with_name("other.db")) as second:
        await second.open_run("other", replaced)
        with pytest.raises(HeldElsewhere, match=r"payroll-000000 and 2 more"):
            await second.load("other", orders(3), owner="loader")
    async with SqliteJournal(path) as journal:
        assert (await journal.open_run(BATCH, replaced)).ready


async def test_a_journal_restored_from_before_its_batch_was_loaded(path: Path, clock: Clock) -> None:
    """It does not hold the batch any more; the machine knows that it did."""
    async with SqliteJournal(path, testing=Testing(now=clock)):
        pass
    empty = path.read_bytes()
    await made(path, clock=clock, since=2)
    path.write_bytes(empty)
    async with SqliteJournal(path, testing=Testing(now=clock)) as journal:
        await journal.open_run(BATCH, IDENTITY)
        with pytest.raises(HeldElsewhere, match="this very journal, which was restored from before that"):
            await journal.load(BATCH, orders(3), owner="loader")


async def test_a_load_that_was_never_finished_gives_its_orders_up(path: Path) -> None:
    """None of them was ever sent; should it go on after all, it is refused."""

    def broken() -> object:
        yield from orders(2)
        raise ConnectionResetError

    async with SqliteJournal(path) as first, SqliteJournal(path.with_name("second.db")) as second:
        await first.open_run(BATCH, IDENTITY)
        with pytest.raises(ConnectionResetError):
            await first.load(BATCH, broken(), owner="loader")  # type: ignore[arg-type]
        await loaded(second)
        with pytest.raises(HeldElsewhere, match=r"second\.db"):
            await first.load(BATCH, orders(3), owner="loader")


async def test_a_load_whose_orders_another_one_takes_meanwhile(path: Path) -> None:
    """Only one of the two becomes ready."""
    async with SqliteJournal(path) as first, SqliteJournal(path.with_name("second.db")) as second:
        await first.open_run(BATCH, IDENTITY)

        async def interrupted() -> object:
            for number in range(1500):
                yield order(number)
            await loaded(second, 10)

        with pytest.raises(LoadBusy, match="another journal is loading orders of batch payroll"):
            await first.load(BATCH, interrupted(), owner="loader")  # type: ignore[arg-type]
        assert not (await first.run(BATCH)).ready


async def test_a_system_without_reads_and_writes_at_a_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has none: a journal is made there all the same, and notices that it was restored."""
    for name in ("pread", "pwrite"):
        monkeypatch.delattr(os, name)
    async with SqliteJournal(path) as journal:
        await loaded(journal)
    backup = path.read_bytes()
    async with SqliteJournal(path) as journal:
        await sent(journal)
    path.write_bytes(backup)
    async with SqliteJournal(path) as journal:
        assert 1 == (await journal.run(BATCH)).quarantined


async def test_two_loads_that_take_orders_from_each_other(path: Path) -> None:
    """Neither becomes ready: each has lost some of its orders to the other."""
    async with SqliteJournal(path) as first, SqliteJournal(path.with_name("second.db")) as second:
        await first.open_run(BATCH, IDENTITY)
        await second.open_run(BATCH, IDENTITY)
        has_begun, has_taken = asyncio.Event(), asyncio.Event()

        async def taking() -> AsyncIterator[PayoutOrder]:
            await has_begun.wait()
            for number in range(2000):
                yield order(number)
            has_taken.set()
            await asyncio.Event().wait()

        async def taken_from() -> AsyncIterator[PayoutOrder]:
            for number in range(1000):
                yield order(number)
            has_begun.set()
            await has_taken.wait()
            for number in range(1000, 2000):
                yield order(number)

        other = asyncio.ensure_future(second.load(BATCH, taking(), owner="second"))
        with pytest.raises(LoadBusy, match="another journal is loading orders of batch payroll"):
            await first.load(BATCH, taken_from(), owner="first")
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        assert not (await first.run(BATCH)).ready


async def test_an_order_that_a_corrected_file_leaves_out_is_free_again(path: Path) -> None:
    """It was registered by a load that was interrupted, and never became one of the batch."""

    def broken() -> object:
        yield from orders(1001)
        raise ConnectionResetError

    async with SqliteJournal(path) as journal:
        await journal.open_run(BATCH, IDENTITY)
        with pytest.raises(ConnectionResetError):
            await journal.load(BATCH, broken(), owner="loader")  # type: ignore[arg-type]
        await journal.load(BATCH, orders(3), owner="loader")
        await journal.open_run("rest", IDENTITY)
        assert 1 == (await journal.load("rest", [order(500)], owner="loader")).added


async def test_an_order_of_another_batch_of_the_same_journal_is_told_as_before(path: Path) -> None:
    """The journal itself holds it, and says in which batch."""
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        await journal.open_run("second", IDENTITY)
        with pytest.raises(OrdersDiffer, match="belongs to batch payroll already"):
            await journal.load("second", [order(0)], owner="loader")


async def test_orders_of_a_lost_journal_are_adopted_by_name(path: Path, clock: Clock) -> None:
    """They are in quarantine then, and are to be looked for since the other journal had them."""
    await made(path, clock=clock)
    clock.pass_(3600)
    second = path.with_name("second.db")
    async with SqliteJournal(second, testing=Testing(now=clock)) as journal:
        await journal.open_run("other", IDENTITY)
        with pytest.raises(HeldElsewhere):
            await journal.load("other", orders(4), owner="loader")
        assert 4 == (await journal.load("other", orders(4), owner="loader", adoption=ANN)).total
        assert 1 == (await journal.run("other")).quarantined
        assert await journal.claim_chunk("other", "worker") is None
    assert (1_003_600.0, 1_000_000.0) == _looked_for(second)
    with closing(sqlite3.connect(second)) as file:
        (kept,) = file.execute("SELECT kind, who, why, evidence FROM resolution").fetchall()
    assert ("adopted", "Ann", "the disk is broken") == kept[:3]
    assert "batch payroll" in kept[3]
    async with SqliteJournal(path, testing=Testing(now=clock)) as journal:  # it was not lost after all
        with pytest.raises(HeldElsewhere, match=r"were adopted by batch other \(4 orders.*second\.db"):
            await journal.claim_chunk(BATCH, "worker")


async def test_a_run_is_stopped_when_its_orders_are_adopted(path: Path) -> None:
    """It can renew none of its leases."""
    async with SqliteJournal(path) as first, SqliteJournal(path.with_name("second.db")) as second:
        chunk = await claimed(first)
        await second.open_run(BATCH, IDENTITY)
        await second.load(BATCH, orders(3), owner="loader", adoption=ANN)
        with pytest.raises(HeldElsewhere, match=r"second\.db"):
            await first.renew_chunk(chunk)


async def test_an_adoption_that_was_interrupted_is_in_quarantine_all_the_same(path: Path) -> None:
    """First of all the journal is told to keep the batch back; the next load needs no adoption any more."""
    await made(path)

    def broken() -> object:
        yield from orders(3)
        yield from orders(1000, batch="more")
        raise ConnectionResetError

    async with SqliteJournal(path.with_name("second.db")) as second:
        await second.open_run(BATCH, IDENTITY)
        with pytest.raises(ConnectionResetError):
            await second.load(BATCH, broken(), owner="loader", adoption=ANN)  # type: ignore[arg-type]
        await second.load(BATCH, orders(3), owner="loader")
        assert await second.claim_chunk(BATCH, "worker") is None
        assert (await second.run(BATCH)).quarantined


async def test_orders_are_adopted_back(path: Path) -> None:
    """By the journal that had them first: what it still had to send is in quarantine."""
    await made(path, since=1)
    async with SqliteJournal(path.with_name("second.db")) as second:
        await second.open_run(BATCH, IDENTITY)
        await second.load(BATCH, orders(3), owner="loader", adoption=ANN)
    async with SqliteJournal(path) as first:
        with pytest.raises(HeldElsewhere):
            await first.load(BATCH, orders(3), owner="loader")
        await first.load(BATCH, orders(3), owner="loader", adoption=ANN)
        assert await first.claim_chunk(BATCH, "worker") is None
        assert 1 == (await first.run(BATCH)).quarantined


async def test_a_state_folder_that_was_lost_learns_again(path: Path, state: Path) -> None:
    """From the next load of the same orders, which changes nothing else."""
    await made(path)
    shutil.rmtree(state)
    await made(path)
    async with SqliteJournal(path.with_name("second.db")) as second:
        await second.open_run(BATCH, IDENTITY)
        with pytest.raises(HeldElsewhere):
            await second.load(BATCH, orders(3), owner="loader")


# The state folder itself


async def test_the_state_folder_is_its_owners_alone(path: Path, state: Path) -> None:
    """It names orders and files."""
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        assert state == journal.remembered_in
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in state.rglob("*") if file.is_file()}
    assert 0o700 == stat.S_IMODE(state.stat().st_mode)
    assert {0o600} == set(modes.values())
    assert {"registry.sqlite"} < set(modes)


@pytest.mark.parametrize("hindrance", ["a file is there", "the registry cannot be written", "no anchor can be made"])
async def test_a_state_folder_that_cannot_be_written(
    path: Path, state: Path, hindrance: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal works, and says that this machine keeps no memory of it."""
    state.mkdir(parents=True)
    match hindrance:
        case "a file is there":
            state.rmdir()
            state.touch()
        case "the registry cannot be written":
            (state / "registry.sqlite").mkdir()
        case _:
            (state / "anchors").touch()
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        assert journal.remembered_in is None
        assert await journal.claim_chunk(BATCH, "worker") is not None
    (said,) = caplog.messages
    assert said.startswith("the state folder cannot be used; journals are remembered in their own folders only: ")


async def test_a_state_folder_deleted_while_a_journal_is_open_lets_it_take_no_order(path: Path, state: Path) -> None:
    """No other journal of this machine would learn of it: nothing is registered where nobody looks."""
    async with SqliteJournal(path) as first:
        await loaded(first)
        await first.open_outbox("shop", IDENTITY)
        shutil.rmtree(state)
        with pytest.raises(JournalUnavailable, match="was moved, deleted or replaced while it is open"):
            await first.load(BATCH, orders(4), owner="loader")
        with pytest.raises(JournalUnavailable, match="no other journal would learn what is sent from here"):
            await first.put("shop", order(9))
        async with SqliteJournal(path.with_name("second.db")) as second:  # which makes a new one
            await second.open_run(BATCH, IDENTITY)
            await second.load(BATCH, orders(3), owner="loader")
        with pytest.raises(JournalUnavailable):
            await first.put("shop", order(9))


async def test_a_user_without_a_home(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container with a user that nobody has heard of: nothing called `~` comes to be."""
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pwd.getpwuid", _nobody)
    async with SqliteJournal(path) as journal:
        await loaded(journal)
        assert journal.remembered_in is None
    assert not (tmp_path / "~").exists()


def _nobody(_: int) -> None:
    raise KeyError


async def test_a_registry_that_another_process_holds(path: Path, state: Path) -> None:
    """That is no reason to do without: nothing is loaded, and nothing sent."""
    async with SqliteJournal(path, busy_timeout=0.05) as journal:
        await journal.open_run(BATCH, IDENTITY)
        with closing(sqlite3.connect(state / "registry.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(JournalLocked, match=r"registry\.sqlite"):
                await journal.load(BATCH, orders(3), owner="loader")
        await journal.load(BATCH, orders(3), owner="loader")


@pytest.mark.parametrize("how", ["no database", "tables of something else", "damaged pages"])
async def test_a_registry_that_is_damaged(path: Path, state: Path, how: str) -> None:
    """What to do is said of that file, and no journal is called damaged; a new registry is begun without it."""
    await made(path)
    registry = state / "registry.sqlite"
    match how:
        case "no database":
            registry.write_bytes(b"not a database at all" * 100)
        case "tables of something else":
            registry.unlink()
            with closing(sqlite3.connect(registry)) as other:
                other.execute("CREATE TABLE journal (something TEXT)")
        case _:
            with registry.open("r+b") as pages:
                pages.seek(100)
                pages.write(b"\xff" * 4000)
    with pytest.raises(RegistryDamaged, match=r"registry\.sqlite.*move that file away"):
        await made(path)
    for end in ("", "-wal", "-shm"):
        registry.with_name(f"registry.sqlite{end}").unlink(missing_ok=True)
    await made(path)


async def test_a_journal_without_a_memory_stays_without(path: Path, state: Path) -> None:
    """Whoever makes one for a rehearsal does not want it to be remembered by the next command that looks into it."""
    await made(path, state_folder=None)
    async with SqliteJournal(path) as journal:
        assert journal.remembered_in is None
    for file in path.parent.iterdir():
        file.unlink()
    await made(path)


# Forks and clocks

_FORKED = """
import asyncio, multiprocessing, sys, warnings
from journal.factories import BATCH, claimed, permitted
from payments_async.journal import JournalClosed, SqliteJournal

warnings.simplefilter("ignore")
said = []

def child(journal, chunk, pipe):
    async def ask():
        told = []
        for asked in (journal.permit(chunk, chunk.orders[1]), journal.progress(), journal.claim_chunk(BATCH, "child")):
            try:
                await asyncio.wait_for(asked, 60)
            except JournalClosed as error:
                told.append("closed")
        await journal.aclose()
        elsewhere = SqliteJournal(sys.argv[1] + "2")  # which is remembered by the same registry
        for again in (journal, SqliteJournal(sys.argv[1]), SqliteJournal(sys.argv[1], state_folder=None), elsewhere):
            try:
                async with again:
                    told.append("opened")
            except JournalClosed as error:
                told.append("fork before you open" in error.message)
        return told
    pipe.send(asyncio.run(ask()))

async def main():
    async with SqliteJournal(sys.argv[1]) as journal:
        chunk = await claimed(journal)
        await permitted(journal, chunk)
        await journal.progress()
        ours, theirs = multiprocessing.Pipe()
        forked = multiprocessing.get_context("fork").Process(target=child, args=(journal, chunk, theirs))
        forked.start()
        print(await asyncio.to_thread(ours.recv))
        forked.join()
        await permitted(journal, chunk, 1)
        await journal.check()
        print((await journal.progress(BATCH)).counts["sending"], forked.exitcode)

asyncio.run(main())
"""


def test_a_process_that_was_forked_off_does_not_share_an_open_journal(path: Path) -> None:
    """It is told so, also where it opens a journal anew: SQLite takes over what the parent knew, and not the locks.

    Once the parent had closed its own, SQLite deleted the log under the child, that of the registry too.
    """
    tests = str(Path(__file__).parent.parent)
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORKED, str(path)],
        env={**os.environ, "PYTHONPATH": tests}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ("['closed', 'closed', 'closed', True, True, True, True]\n2 0\n", "") == (process.stdout, process.stderr)


def test_an_anchor_that_is_damaged_is_none(tmp_path: Path) -> None:
    """It cannot be read, which is not the same as a high count."""
    for content in (b"", b"123", b"\xff" * 24):
        (tmp_path / "mark").write_bytes(content)
        assert CommitCounter(tmp_path / "mark").read() is None


async def test_a_journal_put_back_with_the_state_folder_while_it_is_open(tmp_path: Path) -> None:
    """It remembers by itself how far it had come: the next commit is refused, and no order is sent a second time."""
    home, state = tmp_path / "home", tmp_path / "home" / "state"
    home.mkdir()
    async with SqliteJournal(home / "j.sqlite", state_folder=state) as journal:
        await in_outbox(journal, 1)
        subprocess.run(["cp", "-a", home, tmp_path / "backup"], check=True)
        await journal.put("shop", order(7))
        # into the same files, by another process: ours would lose its locks
        subprocess.run(["cp", "-R", f"{tmp_path / 'backup'}/.", home], check=True)
        with pytest.raises(JournalBehind, match="has gone on"):
            await journal.put("shop", order(8))
        assert await journal.claim_chunk("shop", "worker") is None

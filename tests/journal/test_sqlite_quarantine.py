"""A journal in quarantine, by each sign alone; and what a person decides of one order lets nothing else out."""

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from journal.factories import BATCH, IDENTITY, claimed, loaded, missed, order, permitted, swept, transaction_id

from payments_async.journal import JournalCorrupt, JournalLost, JournalUnavailable, NotLookedFor, Signal, SqliteJournal
from payments_async.journal.contract import Evidence, Outcome


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a journal that does not exist yet."""
    return tmp_path / "journal.db"


async def is_quarantined(path: Path) -> bool:
    """Whether nothing is sent from a file, which nothing remembers outside of its folder."""
    async with SqliteJournal(path, state_folder=None) as journal:
        return bool((await journal.run(BATCH)).quarantined) and await journal.claim_chunk(BATCH, "worker") is None


async def test_the_mark_alone_tells_that_a_file_forgot(path: Path) -> None:
    """A backup is written over the file: it is the same file, and nothing but the mark counted on."""
    async with SqliteJournal(path, state_folder=None) as journal:
        await loaded(journal)
    backup = path.read_bytes()  # noqa: ASYNC240 - nothing else runs
    async with SqliteJournal(path, state_folder=None) as journal:
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
    path.write_bytes(backup)  # noqa: ASYNC240
    assert await is_quarantined(path)


async def test_a_backup_that_is_written_over_the_file_under_two_programs(path: Path) -> None:
    """What it has forgotten is sent by neither, whatever pages each has read before."""
    backup = path.with_name("backup.db")
    async with SqliteJournal(path, state_folder=None) as journal:
        await loaded(journal)
    shutil.copyfile(path, backup)
    async with SqliteJournal(path, state_folder=None) as journal:
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
        await journal.release_chunk(chunk)
        async with SqliteJournal(path, state_folder=None) as other:
            subprocess.run(["cp", backup, path], check=True)  # noqa: ASYNC221 - our locks stay
            for one in (journal, other):
                with pytest.raises(JournalUnavailable, match="written over the file while it is open"):
                    await permitted(one, await claimed(one))
    with pytest.raises(JournalCorrupt, match="the -wal beside it is that of another time"):
        await is_quarantined(path)


async def test_the_inode_alone_tells_a_copy(path: Path) -> None:
    """On a file system that does not say when a file came to be; the mark was copied too."""
    async with SqliteJournal(path, state_folder=None) as journal:
        await loaded(journal)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE meta SET value = '' WHERE key = 'birth'")
    copy = path.with_name("copy.db")
    for end in ("", "-mark"):
        shutil.copyfile(f"{path}{end}", f"{copy}{end}")
    assert await is_quarantined(copy)


async def test_writing_an_order_off_does_not_lift_its_quarantine(path: Path) -> None:
    """Its neighbours may have been sent since the copy was made: only who lifts the quarantine says of all."""
    copy = path.with_name("copy.db")
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal)
        await permitted(journal, chunk)
    shutil.copyfile(path, copy)
    async with SqliteJournal(copy) as journal:
        await journal.park(order(0).request_id, detail="two list scans")
        await journal.send_again(order(0).request_id, who="Ann", why="the bank never saw it")
        assert 1 == (await journal.run(BATCH)).quarantined
        assert await journal.claim_chunk(BATCH, "worker") is None


async def test_what_the_list_shows_of_a_copy_is_expected(path: Path) -> None:
    """It counts without a conflict until the quarantine is lifted; a notification alone leaves it to a person."""
    copy = path.with_name("copy.db")
    async with SqliteJournal(path) as journal:
        await loaded(journal)
    shutil.copyfile(path, copy)
    async with SqliteJournal(copy) as journal:
        for number, signal in enumerate((Signal.LOOKED_UP_SUCCESSFUL, Signal.NOTIFIED_SUCCESSFUL)):
            await journal.apply_evidence(told(signal, number))
        await missed(journal)
        await journal.lift_quarantine(BATCH, who="Ann", why="looked for")
        await journal.apply_evidence(told(Signal.LOOKED_UP_SUCCESSFUL, 2))
        entries = [entry async for entry in journal.entries(BATCH)]
    assert ["successful", "parked", "successful"] == [entry.state for entry in entries]
    known, forgotten, unsent = (entry.conflict for entry in entries)
    assert None is known
    assert "which was restored or copied, does not know that it was sent" in str(forgotten)
    assert "it was never sent from here" in str(unsent)


def told(signal: Signal, number: int) -> Evidence:
    """What the service says of an order."""
    about = order(number)
    return Evidence(
        signal=signal,
        source="list",
        request_id=about.request_id,
        transaction_id=transaction_id(number),
        amount=about.amount,
        currency="UGX",
    )


async def test_lists_alone_release_nothing(path: Path) -> None:
    """They are what a person needs who lifts the quarantine: until then nothing is claimed."""
    copy = path.with_name("copy.db")
    async with SqliteJournal(path) as journal:
        await claimed(journal)
    shutil.copyfile(path, copy)
    async with SqliteJournal(copy) as journal:
        await missed(journal)
        assert ((await journal.run(BATCH)).awaits, await journal.claim_chunk(BATCH, "worker")) == (None, None)
        await journal.lift_quarantine(BATCH, who="Ann", why="looked for")
        assert await journal.claim_chunk(BATCH, "worker") is not None


async def test_what_is_put_into_an_outbox_that_was_copied_waits_for_two_lists(path: Path) -> None:
    """One is not enough, to claim it or to call the outbox looked for. No person is needed: it was put since."""
    copy = path.with_name("copy.db")
    async with SqliteJournal(path) as journal:
        await journal.open_outbox(BATCH, IDENTITY)
    shutil.copyfile(path, copy)
    async with SqliteJournal(copy) as journal:
        await journal.open_outbox(BATCH, IDENTITY)
        await journal.put(BATCH, order(0))
        for _ in range(2):
            assert await journal.claim_chunk(BATCH, "worker") is None
            assert not await journal.is_looked_for(BATCH)
            await swept(journal)
        assert await journal.is_looked_for(BATCH)
        assert await journal.claim_chunk(BATCH, "worker") is not None


async def test_a_quarantine_of_later_is_not_lifted_with_the_one_that_was_seen(path: Path, tmp_path: Path) -> None:
    """Who looked before the file was restored once more has not looked for what was sent in between."""
    copy = tmp_path / "copy.db"
    async with SqliteJournal(path) as journal:
        await claimed(journal)
    shutil.copyfile(path, copy)
    async with SqliteJournal(copy) as journal:
        seen = (await journal.run(BATCH)).quarantined_at
    again = tmp_path / "again.db"
    shutil.copyfile(copy, again)
    async with SqliteJournal(again) as journal:
        now = (await journal.run(BATCH)).quarantined_at
        await missed(journal)
        with pytest.raises(NotLookedFor, match="once more"):
            await journal.lift_quarantine(BATCH, who="Ann", why="looked for", seen=seen)
        assert 1 == await journal.lift_quarantine(BATCH, who="Ann", why="looked for", seen=now)


async def test_a_journal_that_no_machine_remembers_in_the_place_of_one_with_orders(path: Path, tmp_path: Path) -> None:
    """Is not that one: the machine knows what was there, whatever the file that lies there now wants of it."""
    async with SqliteJournal(path) as journal:
        await permitted(journal, await claimed(journal))
    other = tmp_path / "other.db"
    async with SqliteJournal(other, state_folder=None):
        pass
    path.with_name("journal.db-mark").unlink()
    other.replace(path)
    with pytest.raises(JournalLost, match="was here, and is not any more"):
        async with SqliteJournal(path):
            pass


async def test_a_file_that_is_put_back_to_before_its_first_batch(path: Path) -> None:
    """Holds no batch to put into quarantine, and its mark counts on: what is begun in it waits for two lists."""
    async with SqliteJournal(path, state_folder=None):
        pass
    backup = path.read_bytes()  # noqa: ASYNC240 - nothing else runs
    async with SqliteJournal(path, state_folder=None) as journal:
        await permitted(journal, await claimed(journal))
    path.write_bytes(backup)  # noqa: ASYNC240
    async with SqliteJournal(path, state_folder=None) as journal:
        await loaded(journal)
        assert (await journal.run(BATCH)).awaits is not None
        assert await journal.claim_chunk(BATCH, "worker") is None

"""What an examination of a journal finds: nothing where there is nothing, and each flaw in plain words."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import attrs
import psycopg
import pytest
from journal import postgres
from journal.conftest import Home, Opens
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
    permitted,
    transaction_id,
)

from payments_async.journal import (
    Journal,
    JournalCorrupt,
    JournalReadOnly,
    NotAJournal,
    PostgresJournal,
    Signal,
    SqliteJournal,
    State,
    VerificationReport,
    archive_orders,
    copy_journal,
)
from payments_async.journal._machine import _files
from payments_async.journal._statements._changes import UNWRITTEN
from payments_async.journal.contract import Evidence, Outcome


@attrs.frozen
class Kept:
    """A journal, and what changes its tables by other means."""

    unopened: Journal
    do: Callable[[str], None]


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """The journal of one test."""
    if request.param == "sqlite":
        path = tmp_path / "j.db"

        def in_file(sql: str) -> None:
            with closing(sqlite3.connect(path)) as file, file:
                file.execute(sql)

        yield Kept(SqliteJournal(path), in_file)
        return
    schema, dsn = postgres.new_schema(), postgres.dsn()

    def in_database(sql: str) -> None:
        with psycopg.connect(dsn, options=f"-c search_path={schema}") as connection:
            connection.execute(sql.encode())

    yield Kept(PostgresJournal(dsn, schema=schema), in_database)
    postgres.give_back()


async def furnish(journal: Journal) -> None:
    """A batch and an outbox, of which something has happened to each."""
    chunk = await claimed(journal, 4)
    for place, signal in enumerate((Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN)):
        permit = await permitted(journal, chunk, place)
        named = transaction_id(place) if signal is Signal.ACCEPTED else None
        await journal.record(Outcome(permit=permit, signal=signal, transaction_id=named))
    await journal.release_chunk(chunk)
    shop = await in_outbox(journal, 3)
    await journal.record(Outcome(permit=await permitted(journal, shop), signal=Signal.ACCEPTED))
    await journal.record(Outcome(permit=await permitted(journal, shop, 1), signal=Signal.REJECTED))
    await permitted(journal, shop, 2)
    await journal.receive(delivery(), event(0, 0), owner="receiver", lease=0)
    about = order(0)
    looked = Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="record", request_id=about.request_id,
                      amount=about.amount, currency="UGX")  # fmt: skip
    await journal.apply_evidence(looked)


async def test_a_journal_that_is_worked_is_sound(kept: Kept) -> None:
    """It is read as it is at one moment, while somebody holds a lease and writes."""
    told: list[tuple[int, int]] = []
    async with kept.unopened as journal:
        await furnish(journal)
        found = await journal.examine(progress=lambda read, total: told.append((read, total)))
    assert () == found.flaws
    assert (7, 1) == (found.orders, found.notifications)
    assert (7, 7) == told[-1]
    assert found.is_sound, found


FLAWS = {
    "UPDATE outbox SET amount = '7' WHERE id & 268435455 = 0": "orders that are not what they were",
    "UPDATE outbox SET body = {bytes} WHERE id & 268435455 = 1": "orders that are not what they were",
    "UPDATE outbox SET amount = 'much' WHERE id & 268435455 = 1": "orders whose amount is none",
    "UPDATE outbox SET state = 'planned' WHERE state = 'accepted'": "sums that are not those of the orders",
    "UPDATE progress SET count = count + 1 WHERE state = 'unknown'": "batch payroll counts 2 unknown of",
    "UPDATE progress SET total = '1' WHERE state = 'unknown'": "sums that are not those of the orders",
    "DELETE FROM outbox WHERE state = 'rejected'": "sums that are not those of the orders",
    "DELETE FROM chunk WHERE run = 1": "orders outside of any chunk, which would never be sent",
    "UPDATE chunk SET state = 'done' WHERE run = 1": "orders to be sent in a chunk that is done",
    "UPDATE chunk SET token = token + 1 WHERE run = 2": "under way by a permit that is worth nothing",
    "UPDATE outbox SET attempt = 0 WHERE state = 'rejected'": "rejected and were never permitted",
    "UPDATE evidence SET order_id = 7": "evidence about orders that are not there",
    "UPDATE change SET order_id = 7": "changes of orders that are not there",
    "DELETE FROM change WHERE state = 'rejected'": "whose last change was not written down",
    "UPDATE ipn_event SET id = 77": "notifications that wait for a handler and are not there",
    "UPDATE ipn_event SET order_id = 7": "notifications about orders that are not there",
    "UPDATE claim SET token = token + 9": "claims of chunks that are not there, or beyond",
    "DELETE FROM run WHERE id = 1": "orders of batches that are not there",
    "UPDATE run SET archived = 3 WHERE id = 1": "batches that count other orders than have left",
    "UPDATE meta SET value = 'many' WHERE key = 'commits'": "does not count its commits",
    "UPDATE meta SET value = 'x' WHERE key = 'journal_id'": "does not know its own name",
}


async def told_of(journal: Journal) -> list[str]:
    """What is wrong in a damaged one: each in plain words with an example, and with what to do."""
    found = await journal.examine()
    assert not found.is_sound
    assert all(flaw.remedy and flaw.count and flaw.examples for flaw in found.flaws)
    with pytest.raises(JournalCorrupt, match="the journal is damaged"):
        await journal.check()
    return [f"{flaw.about}: {flaw.count}, such as {', '.join(flaw.examples)}" for flaw in found.flaws]


async def test_what_was_changed_in_a_file_by_other_means(tmp_path: Path) -> None:
    """Each change is found by itself."""
    whole, path = tmp_path / "whole.db", tmp_path / "j.db"
    async with SqliteJournal(whole, state_folder=None) as journal:
        await furnish(journal)
    for damage, words in FLAWS.items():
        shutil.copyfile(whole, path)
        with closing(sqlite3.connect(path)) as file, file:
            file.execute(damage.format(bytes="x'00'"))
        told = await told_of(SqliteJournal(path, state_folder=None))
        assert [line for line in told if words in line], (damage, told)


@pytest.mark.parametrize("kept", ["postgres"], indirect=True)
async def test_what_was_changed_in_a_database_by_other_means(kept: Kept) -> None:
    """Several changes at once are found; the statements that find them are those of a file."""
    async with kept.unopened as journal:
        await furnish(journal)
    some = [damage for damage in FLAWS if not damage.startswith("DELETE") and "WHERE state" not in damage]
    for damage in some:
        kept.do(damage.format(bytes="'\\x00'::bytea"))
    told = await told_of(kept.unopened)
    assert [FLAWS[damage] for damage in some if not any(FLAWS[damage] in line for line in told)] == [], told


@pytest.mark.parametrize("kept", ["sqlite"], indirect=True)
async def test_a_file_that_lacks_a_unique_index(kept: Kept) -> None:
    """It is not opened, and ``check`` names the index: rows could be doubled."""
    async with kept.unopened as journal:
        await loaded(journal)
    kept.do("DROP INDEX outbox_request")
    for one in (kept.unopened.examine(), kept.unopened.__aenter__()):
        with pytest.raises(JournalCorrupt, match="no unique index outbox_request as version"):
            await one


async def test_archived_orders(opens: Opens, home: Home, clock: Clock, tmp_path: Path) -> None:
    """Count where they count, in the sums and in their archive."""
    async with opens() as journal:
        await loaded(journal, 3)
        for number in range(3):
            about = order(number)
            await journal.apply_evidence(
                Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="record", request_id=about.request_id,
                         amount=about.amount, currency="UGX")
            )  # fmt: skip
            await journal.acknowledge(about.request_id, who="A. Clerk", why="a test")
        clock.pass_(100 * 86_400)
        done = await archive_orders(journal, tmp_path / "old.gz", older_than=90 * 86_400, who="A. Clerk", why="rule 7")
        assert isinstance(journal, Journal)
        found = await journal.examine()
    assert (3, 3, ()) == (done.orders, found.orders, found.flaws)


async def test_a_journal_that_was_restored(home: Home, tmp_path: Path) -> None:
    """It is sound, and goes to another place as any other: the gap in the numbers of its notifications is no flaw."""
    async with home.opens() as journal:
        await loaded(journal, 3)
        await journal.receive(delivery(), event(0, 0), owner="receiver", lease=60)
    again = home.copied()()
    assert isinstance(again, Journal)
    async with again as journal:
        assert (await journal.run(BATCH)).quarantined
        found = await journal.examine()
    assert (True, ()) == (found.is_sound, found.flaws)
    assert (await copy_journal(again, SqliteJournal(tmp_path / "new.db"))).rows["outbox"] == 3


async def test_batches_that_another_program_deletes(kept: Kept) -> None:
    """An order that is left of one is named."""
    async with kept.unopened as journal:
        await loaded(journal)
        kept.do("DELETE FROM run")
        with pytest.raises(JournalCorrupt, match=f"has lost the batch of order {order(0).request_id}"):
            [entry async for entry in journal.entries()]


async def test_an_order_whose_batch_is_deleted_is_put_again(kept: Kept) -> None:
    """It is named, with the table that lost rows."""
    async with kept.unopened as journal:
        await journal.open_outbox("shop", IDENTITY)
        await journal.put("shop", order(1))
        kept.do("DELETE FROM run")
        with pytest.raises(JournalCorrupt, match=f"lost the batch of order {order(1).request_id}: .* table run"):
            await journal.put("shop", order(1))


async def test_chunks_that_another_program_deletes(kept: Kept) -> None:
    """An order that is left of one is named by the next put: nothing of the chunk would ever be sent."""
    async with kept.unopened as journal:
        await journal.open_outbox("shop", IDENTITY)
        await journal.put("shop", order(1))
        kept.do("DELETE FROM chunk")
        with pytest.raises(JournalCorrupt, match=f"lost the chunk of order {order(1).request_id}: .* table chunk"):
            await journal.put("shop", order(2))
        assert await journal.entry(order(2).request_id) is None


async def test_a_damaged_journal_goes_nowhere(kept: Kept, tmp_path: Path) -> None:
    """What is wrong in it would be wrong in the new place, and nobody would know since when."""
    async with kept.unopened as journal:
        await loaded(journal)
    kept.do("UPDATE outbox SET amount = '7'")
    with pytest.raises(JournalCorrupt, match="orders that are not what they were"):
        await copy_journal(kept.unopened, SqliteJournal(tmp_path / "new.db"))
    assert not (tmp_path / "new.db").exists()


async def test_a_journal_that_was_moved(kept: Kept, tmp_path: Path) -> None:
    """Can be examined still, and says where it went."""
    async with kept.unopened as journal:
        await loaded(journal)
    await copy_journal(kept.unopened, SqliteJournal(tmp_path / "new.db"))
    found = await kept.unopened.examine()
    assert found.is_sound
    assert f"moved to {(tmp_path / 'new.db').resolve()}" == about(found, "place")


async def test_there_is_no_journal(tmp_path: Path) -> None:
    """Nothing is made."""
    for journal in (SqliteJournal(tmp_path / "j.db"), PostgresJournal(postgres.dsn(), schema="nothing_here")):
        with pytest.raises(NotAJournal):
            await journal.examine()
        assert not await journal.exists()


def about(found: VerificationReport, name: str) -> str:
    """What was found of one circumstance."""
    return next(one.found for one in found.circumstances if one.name == name)


def wrong(found: VerificationReport) -> list[str]:
    """The circumstances that are wrong."""
    return [one.name for one in found.circumstances if one.is_wrong]


async def test_what_a_file_relies_on(tmp_path: Path) -> None:
    """Its permissions, its log, the disk, the folder."""
    path = tmp_path / "j.db"
    async with SqliteJournal(path, state_folder=tmp_path / "state") as journal:
        await loaded(journal)
        path.chmod(0o644)
        found = await journal.examine()
    assert ["chmod 600"] == [
        one.remedy.partition(": ")[2].partition(" /")[0] for one in found.circumstances if one.name == "permissions"
    ]
    assert (str(tmp_path / "state"), []) == (about(found, "state folder"), wrong(found))
    assert "none is wanted" == about(await SqliteJournal(path, state_folder=None).examine(), "state folder")
    assert "bytes free" in about(found, "disk")
    assert found.is_sound


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "ext4"])
async def test_a_file_that_other_machines_may_have_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A lock there may be none, and what SQLite shares in memory ends with the machine: whoever opens it is told."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/share {tmp_path} {kind} rw 0 0\n")
    monkeypatch.setattr(_files, "_MOUNTS", mounts)
    async with SqliteJournal(tmp_path / "journal.db"):
        pass
    told = [record.getMessage() for record in caplog.records]
    is_far = kind != "ext4"
    assert is_far == any(f"is on {kind} at {tmp_path}: a lock there may be none" in words for words in told)


@pytest.mark.parametrize("told", ["", "/dev/vda /elsewhere ext4 rw 0 0\n", None])
async def test_a_system_that_does_not_tell_where_a_file_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None
) -> None:
    """As within a folder that was made the root of its processes: the journal is opened all the same."""
    mounts = tmp_path / "mounts"
    if told is not None:
        mounts.write_text(told)
    monkeypatch.setattr(_files, "_MOUNTS", mounts)
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        assert "not told by this system" == about(await journal.examine(), "file system")


async def test_changes_are_found_by_their_order(tmp_path: Path) -> None:
    """Of 100,000 orders not one reads all changes: an index stands for that time, in place of a minute of search."""
    path = tmp_path / "j.db"
    async with SqliteJournal(path):
        pass
    with closing(sqlite3.connect(path)) as file:
        plan = [detail for *_, detail in file.execute(f"EXPLAIN QUERY PLAN SELECT o.id FROM {UNWRITTEN}")]  # noqa: S608
    assert 1 == sum("INDEX (order_id=? AND state=?)" in step for step in plan), plan


async def test_a_file_that_is_damaged(tmp_path: Path) -> None:
    """SQLite says where."""
    path = tmp_path / "j.db"
    async with SqliteJournal(path) as journal:
        await loaded(journal, 2000)
    with closing(sqlite3.connect(path)) as file:
        (page,) = file.execute("SELECT rootpage FROM sqlite_master WHERE name = 'outbox_request'").fetchone()
        (size,) = file.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as content:
        content.seek((page - 1) * size + 12)
        content.write(b"\xff" * 64)
    with pytest.raises(JournalCorrupt):
        await SqliteJournal(path).check()


async def test_what_a_database_relies_on() -> None:
    """Its server, its settings as any session of this user has them, and the user's rights."""
    dsn = postgres.new_database()
    async with PostgresJournal(dsn) as journal:
        await claimed(journal)
        found = await journal.examine()
        assert found.is_sound, found
        assert ("on", "UTF8", "our own") == tuple(
            about(found, name) for name in ("fsync", "server_encoding", "sessions")
        )
        assert "PostgreSQL 1" in about(found, "server")
        with psycopg.connect(dsn, autocommit=True) as connection:
            name = connection.info.dbname
            connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())
            connection.execute("ALTER TABLE payments.outbox DISABLE TRIGGER USER")
        found = await journal.examine()
        assert ("off", "outbox_changed may not fire") == (about(found, "synchronous_commit"), about(found, "triggers"))
        assert ["triggers"] == wrong(found)


async def test_a_user_who_lacks_a_right() -> None:
    """Is told which before anything is read."""
    dsn, role = postgres.new_database(), f"payments_reader_{id(object())}"
    async with PostgresJournal(dsn):
        pass
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA payments TO {role}".encode())
    try:
        with pytest.raises(JournalReadOnly, match=r"may not DELETE, INSERT, SELECT, UPDATE \w+"):
            await PostgresJournal(f"{dsn}&options=-c%20role%3D{role}").examine()
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


async def test_who_works_meanwhile_waits_for_nobody(kept: Kept) -> None:
    """Permits and outcomes are written while all of it is read, and what is read is one moment all the same."""
    async with kept.unopened as journal:
        chunk = await claimed(journal, 150, lease=3600.0)  # however long a busy machine takes for them

        async def work() -> None:
            for place in range(150):
                await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=Signal.ACCEPTED))

        async def look() -> list[VerificationReport]:
            return [await journal.examine() for _ in range(5)]

        _, found = await asyncio.gather(work(), look())
        assert [()] * 5 == [one.flaws for one in found]
        assert 150 == (await journal.progress()).counts[State.ACCEPTED]

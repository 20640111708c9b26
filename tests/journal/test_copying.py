"""A journal that goes to another place: all of it, the same one, and never two that may send."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pytest
from journal import lifetimes, postgres
from journal.factories import BATCH, IDENTITY, Clock, claimed, delivery, event, in_outbox, loaded, order, permitted
from nested import for_journal

from payments_async.journal import (
    Copied,
    HeldElsewhere,
    Journal,
    JournalCorrupt,
    JournalError,
    JournalLocked,
    JournalMoved,
    NotAJournal,
    Particulars,
    PlaceTaken,
    PostgresJournal,
    Signal,
    SqliteJournal,
    State,
    StillWorked,
    TakeoverAuthorisation,
    copy_journal,
)
from payments_async.journal.contract import Evidence, Outcome

TESTS = Path(__file__).parent.parent
WAYS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite")]
MEANT = TakeoverAuthorisation(who="A. Admin", why="two departments")
STAY = {"meta", "lease", "holder", "watch"}
_ALL = "SELECT {} FROM {} ORDER BY {}"
ONLY_THERE = {"tray", "told", "watch", "holder"}


@attrs.frozen
class Move:
    """Two places, and a journal in the first of them.

    Attributes:
        here, there: Give the journal in each, unopened.
        rows: What is in a table of the one or the other.
        lose: Does away with what is in the second.
    """

    here: Callable[..., Journal]
    there: Callable[..., Journal]
    kinds: tuple[str, str]
    rows: Callable[[Journal, str], list[Any]]
    lose: Callable[[], None]

    async def copied(self, **options: Any) -> Copied:
        """Copy it."""
        return await copy_journal(self.here(), self.there(), **options)


@pytest.fixture(params=WAYS, ids="-".join)
def move(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Move]:
    """Two places."""
    of: dict[str, Callable[..., Journal]] = {}
    dsn = postgres.dsn()
    schemas = [postgres.one_schema() for _ in range(2)]
    for place, kind in enumerate(request.param):
        if kind == "sqlite":
            where = tmp_path / f"{place}.db"
            of[str(place)] = lambda where=where, **options: SqliteJournal(where, **for_journal(options))
        else:
            schema = schemas[place]
            of[str(place)] = lambda schema=schema, **options: PostgresJournal(
                dsn, schema=schema, **for_journal(options)
            )

    def rows(journal: Journal, sql: str) -> list[Any]:
        if isinstance(journal, SqliteJournal):
            with closing(sqlite3.connect(journal.path)) as file:
                return file.execute(sql).fetchall()
        schema = journal.new_database()._schema  # type: ignore[attr-defined]
        with psycopg.connect(dsn, options=f"-c search_path={schema}") as connection:
            return connection.execute(sql.encode()).fetchall()

    def lose() -> None:
        for file in tmp_path.glob("1.db*"):
            file.unlink()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{schemas[1]}" CASCADE'.encode())

    yield Move(of["0"], of["1"], request.param, rows, lose)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for schema in (*schemas, "life_journal", "life_lost"):
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


async def furnish(move: Move, folder: Path, patch: pytest.MonkeyPatch) -> Move:
    """Do everything that is ever done with a journal, and leave something of each kind unfinished; where that is."""
    if move.kinds[0] == "postgres":
        patch.setenv(lifetimes.DATABASE, postgres.dsn())
    path = folder / "journal.db"
    await lifetimes.live(path, folder / "world")
    move = attrs.evolve(move, here=lambda: lifetimes.opened(path))
    later = lifetimes.clock_of(2 * lifetimes.AGE)
    async with lifetimes.opened(path, clock=later) as journal:
        await journal.hear("shop2", [State.ACCEPTED, State.UNKNOWN])
        chunk = await in_outbox(journal, 3, outbox="shop2", batch="shop2")
        await permitted(journal, chunk)
        await journal.release_chunk(chunk)
        await journal.receive(delivery(b"waits"), event(0, 77, amount="5"), owner="receiver", lease=0)
        for waits in await journal.claim("receiver", lease=60, limit=10):
            await journal.retry_later(waits.event_id, delay=60, error="a \0 and a half")
        await journal.note_observed([_sighting()])
        told = Particulars(file_row=2, cells={"Staff No": "E1017"})
        await journal.note_particulars([(order(1, batch="shop2").request_id, told)])
    return move


def _sighting() -> Evidence:
    return Evidence(
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        source="list",
        request_id="stranger-1",
        transaction_id="t-1",
        currency="UGX",
    )


def all_rows(move: Move, journal: Journal) -> dict[str, list[Any]]:
    """Every row of every table that goes along, as text can hold it."""
    database = journal.new_database()
    with database.retired() as connection:
        tables = database.tables(connection)
    return {
        name: [
            tuple(value.replace("\0", "\N{SYMBOL FOR NULL}") if isinstance(value, str) else value for value in row)
            for row in move.rows(journal, _ALL.format(", ".join(table.columns), name, ", ".join(table.key)))
        ]
        for name, table in tables.items()
        if name not in STAY | ONLY_THERE
    }


@pytest.mark.slow(covered=True)
async def test_everything_goes_along(move: Move, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of every table, which opening changes nothing of; the numbers that the database gives go on."""
    move = await furnish(move, tmp_path, monkeypatch)
    before = all_rows(move, move.here())
    done = await move.copied()
    assert before == all_rows(move, move.there())
    empty = {"ipn_delivery", "claim", "hearing", "sweep", "lease"}
    assert {name for name, rows in before.items() if not rows} <= empty
    assert {name: len(rows) for name, rows in before.items()} == {
        name: count for name, count in done.rows.items() if name not in ONLY_THERE
    }
    assert set(done.rows) == set(done.digests)
    async with move.there() as journal:
        assert not journal.is_new
        await journal.open_run("more", IDENTITY)
        await journal.load("more", [order(1, batch="more")], owner="loader")
        begun = await journal.begin_archive("b.gz", who="A. Clerk", why="rule 7")
        assert begun == 1 + max(number for number, *_ in before["archive"])
        chunk = await journal.claim_chunk("more", "worker")
        assert chunk is not None
        await permitted(journal, chunk)
        await journal.check()


async def test_the_old_place_says_where_it_went(move: Move) -> None:
    """Opened, it names the new one; nothing is written to it any more, by anybody."""
    async with move.here() as journal:
        await loaded(journal)
    await move.copied()
    words = f"the journal was moved to {move.there().new_database().address} on "
    with pytest.raises(JournalMoved) as caught:
        await move.here().__aenter__()
    assert words in str(caught.value)
    assert str(move.here().place) in str(caught.value)
    assert "was not finished" not in str(caught.value)
    with pytest.raises(JournalMoved):
        await move.here().migrate()
    with pytest.raises(JournalMoved):
        await move.copied()


async def test_whoever_has_it_open_hears_of_it(move: Move) -> None:
    """A put, a notification, an outcome: none is taken by the old place, each caller hears where it went."""
    async with move.here() as open_there:
        await loaded(open_there)
        await open_there.open_outbox("shop", IDENTITY)
        await move.copied()
        tries = {
            "put": lambda: open_there.put("shop", order(1, batch="shop")),
            "receive": lambda: open_there.receive(delivery(), event(), owner="receiver", lease=60),
            "claim": lambda: open_there.claim_chunk(BATCH, "worker"),
            "pause": lambda: open_there.pause("shop", who="A. Clerk", why="a test"),
            "duty": lambda: open_there.take_duty("settling", "worker", lease=60),
        }
        for attempt in tries.values():
            with pytest.raises(JournalMoved, match="the journal was moved to"):
                await attempt()  # type: ignore[no-untyped-call]
        assert 3 == (await open_there.progress(BATCH)).total


async def test_an_applications_own_transaction_hears_of_it() -> None:
    """Also one that began before, and sees the database as it was then."""
    schema, dsn = postgres.new_schema(), postgres.dsn()
    here = f"{schema}_tray"
    async with PostgresJournal(dsn, schema=here) as journal:
        await journal.open_outbox("shop", IDENTITY)
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await connection.execute("SELECT 1")
            await copy_journal(PostgresJournal(dsn, schema=here), PostgresJournal(dsn, schema=f"{schema}_new"))
            with pytest.raises(Exception, match="the journal was moved to"):
                await journal.lay("shop", order(1, batch="shop"), connection)


async def test_orders_in_the_tray() -> None:
    """Go along into another database; in a file there is no place for them, so they are taken first."""
    schema, dsn = postgres.new_schema(), postgres.dsn()
    here, there = f"{schema}_tray2", PostgresJournal(dsn, schema=f"{schema}_new2")
    async with PostgresJournal(dsn, schema=here) as journal:
        await journal.open_outbox("shop", IDENTITY)
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await journal.lay("shop", order(1, batch="shop"), connection)
    await copy_journal(PostgresJournal(dsn, schema=here), there)
    async with there:
        assert [order(1, batch="shop").request_id] == [laid.request_id for laid in await there.laid("shop")]


async def test_other_tables_beside_those_of_the_journal(tmp_path: Path) -> None:
    """Stay where they are, and can be written as before: they are somebody else's."""
    schema, dsn = postgres.one_schema(), postgres.dsn()
    async with PostgresJournal(dsn, schema=schema) as journal:
        await loaded(journal)
    with psycopg.connect(dsn, autocommit=True, options=f"-c search_path={schema}") as connection:
        connection.execute("CREATE TABLE queue (id BIGINT); INSERT INTO queue VALUES (1)")
        done = await copy_journal(PostgresJournal(dsn, schema=schema), SqliteJournal(tmp_path / "j.db"))
        assert "queue" not in done.rows
        connection.execute("INSERT INTO queue VALUES (2)")


async def test_a_tray_does_not_fit_into_a_file(tmp_path: Path) -> None:
    """Nothing was done: the journal is where it was."""
    schema, dsn = postgres.one_schema(), postgres.dsn()
    async with PostgresJournal(dsn, schema=schema) as journal:
        await journal.open_outbox("shop", IDENTITY)
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await journal.lay("shop", order(1, batch="shop"), connection)
    with pytest.raises(StillWorked, match="1 orders of applications' own transactions are still to be taken"):
        await copy_journal(PostgresJournal(dsn, schema=schema), SqliteJournal(tmp_path / "j.db"))
    assert not (tmp_path / "j.db").exists()
    async with PostgresJournal(dsn, schema=schema) as journal:
        await journal.pause("shop", who="A. Clerk", why="it can be written")


async def test_a_journal_that_is_worked(move: Move) -> None:
    """Stays where it is, until nobody has anything in hand."""
    async with move.here() as journal:
        chunk = await claimed(journal)
        with pytest.raises(StillWorked, match="worker sends chunk 0 of a batch"):
            await move.copied()
        await journal.release_chunk(chunk)
        await journal.receive(delivery(), event(0, 9), owner="receiver", lease=60)
        with pytest.raises(StillWorked, match="receiver handles notifications"):
            await move.copied()
        await journal.release("receiver")
        assert await journal.take_duty("settling", "worker", lease=60)
        with pytest.raises(StillWorked, match="worker has the duty of settling"):
            await move.copied()
        await journal.leave_duty("settling", "worker")
        chunk = await journal.claim_chunk(BATCH, "worker")  # type: ignore[assignment]
        await journal.release_chunk(chunk)
    await move.copied()


@pytest.mark.slow
async def test_whoever_has_died_keeps_nothing_where_it_is() -> None:
    """Their leases last an hour; what they had in hand is unknown in the new place, a moment after they were killed."""
    schema, dsn = postgres.new_schema(), postgres.dsn()
    here, there = PostgresJournal(dsn, schema=schema), PostgresJournal(dsn, schema=f"{schema}_heir")
    async with here:
        await loaded(here)
        await here.hear("shop", [State.ACCEPTED])
        chunk = await in_outbox(here, 1)
        await here.record(Outcome(permit=await permitted(here, chunk), signal=Signal.ACCEPTED))
        await here.release_chunk(chunk)
    holding = await asyncio.create_subprocess_exec(
        sys.executable, str(TESTS / "journal/holder.py"), dsn, schema, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )  # fmt: skip
    try:
        assert holding.stdout is not None
        async with asyncio.timeout(60):
            assert b"held\n" == await holding.stdout.readline()
        with pytest.raises(StillWorked):
            await copy_journal(here, there)
    finally:
        holding.kill()
        await holding.wait()
    await copy_journal(here, there)
    async with there:
        assert 1 == (await there.progress(BATCH)).counts[State.UNKNOWN]


async def test_an_expired_lease(move: Move, clock: Clock) -> None:
    """What was under way is unknown in the new place, as it would be in the old one."""
    async with move.here(clock=clock) as journal:
        await permitted(journal, await claimed(journal))
        clock.pass_(31)
        await copy_journal(move.here(clock=clock), move.there())
    async with move.there() as journal:
        counts = (await journal.progress(BATCH)).counts
        assert (1, 2) == (counts[State.UNKNOWN], counts[State.PLANNED])


async def test_a_place_that_is_taken(move: Move) -> None:
    """By a journal, or by anything else; nothing was done to either."""
    async with move.here() as journal:
        await loaded(journal)
    async with move.there(second_journal=MEANT) as journal:
        await loaded(journal, batch="another")
    with pytest.raises(PlaceTaken):
        await move.copied()
    with pytest.raises(PlaceTaken):
        await copy_journal(move.here(), move.here())
    for which, name in ((move.here, BATCH), (move.there, "another")):
        async with which() as journal:
            assert [name] == [run.batch_id for run in await journal.runs()]
            await journal.load(name, [order(n, batch=name) for n in range(3)], owner="loader")


async def test_a_file_that_is_named_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is told of by its whole path: who opens the old one may be in another folder."""
    monkeypatch.chdir(tmp_path)
    async with SqliteJournal("old.db") as journal:
        await loaded(journal)
    await copy_journal(SqliteJournal("old.db"), SqliteJournal("new.db"))
    with pytest.raises(JournalMoved, match=r"was moved to /.*/new\.db"):
        await SqliteJournal("old.db").__aenter__()


async def test_nothing_to_copy(move: Move) -> None:
    """Is said, and nothing is made."""
    with pytest.raises(NotAJournal):
        await move.copied()
    assert not await move.there().exists()


async def test_what_this_machine_remembers_counts_in_the_new_place(move: Move, tmp_path: Path) -> None:
    """The batches of the journal are its own still, and those that it sent are not sent again by a third one."""
    async with move.here() as journal:
        await loaded(journal, 3)
    await move.copied()
    async with move.there() as journal:
        again = await journal.load(BATCH, [order(n) for n in range(3)], owner="loader")
        assert (3, 0) == (again.total, again.added)
        assert journal.remembered_in is not None
    async with SqliteJournal(tmp_path / "third.db") as third:
        await third.open_run(BATCH, IDENTITY)
        with pytest.raises(HeldElsewhere, match="may have been sent already") as caught:
            await third.load(BATCH, [order(n) for n in range(3)], owner="loader")
    assert caught.value.path is not None
    assert ("namespace" in caught.value.path) == (move.kinds[1] == "postgres")


@pytest.mark.parametrize("is_remembered", [True, False])
async def test_a_backup_of_before_that_is_put_back(tmp_path: Path, is_remembered: bool) -> None:
    """Into the very file, by a tool that writes over it: it is noticed, and hands out nothing that the new one has."""
    file, backup = tmp_path / "payments.db", tmp_path / "backup.db"
    state = tmp_path / "state" if is_remembered else None
    there = SqliteJournal(tmp_path / "new.db", state_folder=state)
    async with SqliteJournal(file, state_folder=state) as journal:
        await loaded(journal, 3)
    shutil.copyfile(file, backup)
    await copy_journal(SqliteJournal(file, state_folder=state), there)
    shutil.copyfile(backup, file)
    async with SqliteJournal(file, state_folder=state) as journal, there:
        assert (None, 1) == (await journal.claim_chunk(BATCH, "a"), (await journal.chunks(BATCH)).quarantined)
        assert await there.claim_chunk(BATCH, "b") is not None


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("moment", ["copy.outbox", "copy.filled"])
async def test_a_copy_that_fails(move: Move, moment: str) -> None:
    """Leaves the journal where it was, and it can be worked again, or copied again."""
    async with move.here() as journal:
        await loaded(journal)

    def fail(point: str) -> None:
        if point == moment:
            raise JournalCorrupt("what was read again is not the same")

    with pytest.raises(JournalCorrupt):
        await move.copied(crash_at=fail)
    assert not await move.there().exists()
    async with move.here() as journal:
        assert await journal.claim_chunk(BATCH, "worker") is not None
        await journal.expire_chunks(owner="worker")
    await move.copied()


@pytest.mark.slow
async def test_a_place_that_is_taken_at_the_last_moment(move: Move) -> None:
    """By another journal: the copy fails, and the journal can be worked where it is."""
    async with move.here() as journal:
        await loaded(journal)
    other = loaded_elsewhere(move)

    def meanwhile(point: str) -> None:
        if point == "copy.sealed":
            other()

    with pytest.raises(PlaceTaken):
        await move.copied(crash_at=meanwhile)
    for which, name in ((move.here, BATCH), (move.there, "another")):
        async with which() as journal:
            assert [name] == [run.batch_id for run in await journal.runs()]
            assert await journal.claim_chunk(name, "worker") is not None


def loaded_elsewhere(move: Move) -> Callable[[], None]:
    """Makes another journal in the new place, in a thread of its own."""

    async def make() -> None:
        async with move.there(second_journal=MEANT) as journal:
            await loaded(journal, batch="another")

    def run() -> None:
        thread = threading.Thread(target=lambda: asyncio.run(make()))
        thread.start()
        thread.join()

    return run


class _Died(BaseException):
    """Whoever copied is gone, and has put nothing in order."""


@pytest.mark.parametrize("is_second", [False, True])
async def test_a_new_place_that_cannot_be_had(tmp_path: Path, is_second: bool) -> None:
    """Whoever tries first takes the seal off again; the next one does not: the one before may have died at the end."""
    schema, dsn = postgres.one_schema(), postgres.dsn()
    here, there = SqliteJournal(tmp_path / "j.db"), PostgresJournal(dsn, schema=schema, busy_timeout=0.2)
    async with here:
        await loaded(here)

    def die(point: str) -> None:
        if point == "copy.outbox":
            raise _Died

    if is_second:
        with pytest.raises(_Died):
            await copy_journal(here, there, crash_at=die)
    with psycopg.connect(dsn) as other:

        def hold(point: str) -> None:
            if point == ("copy.sealed", "")[is_second]:  # whoever wants that name waits until it is known who has it
                other.execute(f'CREATE SCHEMA "{schema}"'.encode())

        hold("")
        with pytest.raises(JournalLocked):
            await copy_journal(here, there, crash_at=hold)
        other.rollback()
    if is_second:
        with pytest.raises(JournalMoved, match="the same `journal copy` again"):
            await here.__aenter__()
        await copy_journal(here, there)
        assert await may_send(there)
    else:
        assert await may_send(here)


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("fails", [False, True])
async def test_a_new_place_that_is_lost_before_the_old_one_knew_of_it(move: Move, fails: bool) -> None:
    """Orders were sent from there, as nobody remembers: the same call again puts them in quarantine, or nowhere."""
    async with move.here() as journal:
        await loaded(journal)

    def die(point: str) -> None:
        if point == "copy.placed":
            raise _Died
        if point == "copy.outbox" and fails:
            raise JournalCorrupt("what was read again is not the same")

    with pytest.raises(_Died):
        await move.copied(crash_at=lambda point: die(point) if point == "copy.placed" else None)
    async with move.there(state_folder=None) as journal:
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await permitted(journal, chunk)
    move.lose()
    if fails:
        with pytest.raises(JournalCorrupt):
            await move.copied(crash_at=die)
        with pytest.raises(JournalMoved):
            await move.here().__aenter__()
    await move.copied()
    async with move.there() as journal:
        assert (None, 1) == (await journal.claim_chunk(BATCH, "other"), (await journal.chunks(BATCH)).quarantined)


async def test_a_row_that_is_another_one_there(tmp_path: Path) -> None:
    """Is noticed before anything counts, whatever has changed it on the way."""
    schema = postgres.one_schema()
    here, there = SqliteJournal(tmp_path / "j.db"), PostgresJournal(postgres.dsn(), schema=schema)
    async with here:
        await loaded(here)
    await there.migrate()
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(
            f"""CREATE FUNCTION "{schema}".swap() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN UPDATE "{schema}".outbox SET amount = '1' WHERE id = NEW.id; RETURN NULL; END$$;
            CREATE TRIGGER swap AFTER INSERT ON "{schema}".outbox FOR EACH ROW EXECUTE FUNCTION "{schema}".swap()
            """.encode()  # noqa: S608 - the namespace alone
        )
    with pytest.raises(JournalCorrupt, match="the table outbox has 3 rows"):
        await copy_journal(here, there)
    async with here:
        assert await here.claim_chunk(BATCH, "worker") is not None


async def test_several_that_copy_at_once(move: Move) -> None:
    """One of them does it; the others are told so, or wait until it is there. The journal is in one place."""
    async with move.here() as journal:
        await loaded(journal)
    done = await asyncio.gather(*(move.copied() for _ in range(3)), return_exceptions=True)
    assert 1 <= sum(isinstance(one, Copied) for one in done)
    assert all(isinstance(one, Copied | JournalError) for one in done)
    with pytest.raises(JournalMoved):
        await move.here().__aenter__()
    async with move.there() as journal:
        assert await journal.claim_chunk(BATCH, "worker") is not None


# Killed at every point


# of those before the old place is sealed, and of those after, one: nothing is written between them
POINTS = ("retire.written", "commit.done", "copy.outbox", "copy.filled", "copy.placed", "copy.noted", "copy.known")
_KILLED = """
import asyncio, os, signal, sys
from payments_async.journal import PostgresJournal, SqliteJournal, copy_journal
from payments_async.testing import Testing
point, *places = sys.argv[1:]
def crash(found):
    if found == point:
        os.kill(os.getpid(), signal.SIGKILL)
def at(place, **options):
    dsn, _, schema = place.rpartition("#")
    return PostgresJournal(dsn, schema=schema, **options) if dsn else SqliteJournal(place, **options)
here, there = places
asyncio.run(copy_journal(at(here, testing=Testing(crash_at=crash)), at(there), crash_at=crash))
"""


# from a file and from a database in turn: what comes after a kill is of one place alone
_STRUCK = [(WAYS[number % 2], point) for number, point in enumerate(POINTS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("move", "point"), _STRUCK, indirect=["move"], ids=["-".join([*way, point]) for way, point in _STRUCK]
)
async def test_killed_at_any_point_one_at_most_may_send(move: Move, point: str) -> None:
    """At once one of the two may, or none; and the same call again makes it the new one, with everything."""
    async with move.here() as journal:
        await loaded(journal, 700)
    names = []
    for journal in (move.here(), move.there()):
        schema = getattr(journal.new_database(), "_schema", None)
        names.append(str(journal.place) if schema is None else f"{postgres.dsn()}#{schema}")
    died = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", _KILLED, point, *names], capture_output=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )  # fmt: skip
    assert -signal.SIGKILL == died.returncode, died.stderr.decode()
    able = [await may_send(one) for one in (move.here(), move.there())]
    assert sum(able) <= 1, (point, able)
    assert able[0] == (point == "retire.written")
    assert able[1] == (point in ("copy.placed", "copy.noted", "copy.known"))
    if point not in ("copy.noted", "copy.known"):
        done = await move.copied()
        assert done.was_there == (point == "copy.placed")
    assert [False, True] == [await may_send(one) for one in (move.here(), move.there())]
    async with move.there() as journal:
        assert 700 == (await journal.progress(BATCH)).counts[State.PLANNED]
        assert [None] == [run.quarantined_at for run in await journal.runs()]


async def may_send(journal: Journal) -> bool:
    """Whether a permit is granted by a journal, if it is there; the order stays as it was."""
    if not await journal.exists():
        return False
    try:
        async with journal:
            chunk = await journal.claim_chunk(BATCH, "worker")
            if chunk is None:
                return False
            await journal.expire_chunks(owner="worker")
            return True
    except JournalMoved:
        return False


def delete(folder: Path, name: str) -> None:
    """Do away with a journal, and with all that is beside it."""
    for file in folder.glob(f"{name}*"):
        file.unlink()

"""A journal of one version and a package of another: side by side for one step, and never a guess."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pytest
from journal import postgres
from journal.factories import BATCH, IDENTITY, claimed, loaded, order, permitted, transaction_id

from payments_async._values.amounts import amount_text
from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import without_members, write_order
from payments_async._wire.orders import Order
from payments_async.journal import (
    Journal,
    JournalReadOnly,
    JournalTooNew,
    NotMigrated,
    OrdersArchived,
    OrdersDiffer,
    PostgresJournal,
    Signal,
    SqliteJournal,
    State,
)
from payments_async.journal._postgres import _schema
from payments_async.journal._postgres._connection import PgConnection
from payments_async.journal._records import body_digest, pack_transaction_id
from payments_async.journal._sqlite import _opening
from payments_async.journal._versions import Step
from payments_async.journal.contract import Evidence, Outcome

TESTS = Path(__file__).parent.parent
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"
NOW = len(_opening.STEPS)
# what a next version might bring, and what the one after that might take away
COLOURS = Step(about="a colour for each batch", statements=("ALTER TABLE {s}run ADD COLUMN colour TEXT",), oldest=NOW)
NO_NOTES = Step(about="no policies any more", statements=("ALTER TABLE {s}run DROP COLUMN policy",), oldest=NOW + 1)


def in_words(step: Step, place: str) -> Step:
    """A made-up step, in the words of one database."""
    return attrs.evolve(step, statements=tuple(text.replace("{s}", place) for text in step.statements))


def versions(kind: type[Journal], steps: Sequence[Step], place: str, *more: Step) -> Any:
    """A journal as a version of the package has it that knows more steps."""
    return type(kind.__name__, (kind,), {"_steps": (*steps, *(in_words(step, place) for step in more))})


@attrs.frozen
class Place:
    """Where a journal is, for packages of several versions.

    Attributes:
        of: Gives the journal, unopened, of a package that knows more steps than this one does.
        is_automatic: Opening it brings it up to date.
    """

    of: Callable[..., Journal]
    is_automatic: bool


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place."""
    if request.param == "sqlite":
        return Place(lambda *more: versions(SqliteJournal, _opening.STEPS, "", *more)(tmp_path / "j.db"), True)
    dsn, steps = postgres.new_database(), _schema.STEPS
    return Place(lambda *more: versions(PostgresJournal, steps, "{s}.", *more)(dsn), False)


def test_both_databases_have_the_same_steps() -> None:
    """A version is the same in a file and in a database: in number, in words, and in who may go on beside it."""
    assert [(step.about, step.oldest) for step in _opening.STEPS] == [
        (step.about, step.oldest) for step in _schema.STEPS
    ]


async def test_a_new_journal_has_all_steps(place: Place) -> None:
    """Of whichever version it is made."""
    async with place.of(COLOURS) as journal:
        assert journal.is_new
    assert () == (await place.of(COLOURS).migration()).steps


async def test_what_would_be_done_is_shown_and_not_done(place: Place) -> None:
    """With the words and the statements of each step."""
    async with place.of():
        pass
    for _ in range(2):
        todo = await place.of(COLOURS, NO_NOTES).migration()
        assert (NOW, NOW + 2, NOW + 1) == (todo.before, todo.after, todo.oldest)
        assert (COLOURS.about, NO_NOTES.about) == todo.steps
        assert 1 == sum("ADD COLUMN colour" in statement for statement in todo.statements)


async def test_a_worker_of_the_version_before_goes_on(place: Place) -> None:
    """While the journal is brought up to date, and afterwards, beside one of the new version; also one that comes."""
    async with place.of() as old:
        chunk = await claimed(old, 4)
        before = await permitted(old, chunk, 0)
        done = await place.of(COLOURS).migrate()
        assert (NOW, NOW + 1, (COLOURS.about,)) == (done.before, done.after, done.steps)
        await old.record(Outcome(permit=before, signal=Signal.ACCEPTED))
        async with place.of(COLOURS) as new, place.of() as late:
            await late.record(Outcome(permit=await permitted(new, chunk, 1), signal=Signal.ACCEPTED))
            await new.record(Outcome(permit=await permitted(old, chunk, 2), signal=Signal.ACCEPTED))
        assert 3 == (await old.progress(BATCH)).counts[State.ACCEPTED]


async def test_a_worker_two_versions_behind_gets_no_permit(place: Place) -> None:
    """What it relies on may be gone: it hears so, is granted nothing, and nothing that it asked for is half done."""
    async with place.of() as old:
        chunk = await claimed(old)
        assert NOW + 1 == (await place.of(COLOURS, NO_NOTES).migrate()).oldest
        with pytest.raises(JournalTooNew, match=f"which {NOW + 1} and later may use; this package knows {NOW}"):
            await old.permit(chunk, chunk.orders[0])
    with pytest.raises(JournalTooNew):
        await place.of().__aenter__()
    with pytest.raises(JournalTooNew):
        await place.of().migration()
    async with place.of(COLOURS, NO_NOTES) as journal:
        assert 3 == (await journal.progress(BATCH)).counts[State.PLANNED]


async def test_an_older_journal_that_is_opened(place: Place) -> None:
    """A file is brought up to date on the way; a database by whoever may, and its workers are told what to say."""
    async with place.of() as journal:
        await loaded(journal)
    newer = place.of(COLOURS)
    if not place.is_automatic:
        with pytest.raises(NotMigrated, match="payments-async journal migrate --journal") as caught:
            await newer.__aenter__()
        assert f"it is of version {NOW}, this package's is {NOW + 1}" in caught.value.message
        await newer.migrate()
    async with newer as journal:
        assert 3 == (await journal.progress(BATCH)).counts[State.PLANNED]
    assert () == (await newer.migrate()).steps


async def test_an_older_journal_that_is_examined(place: Place) -> None:
    """Its tables are not those that are examined: you are told to bring it up to date, not that a disk is broken."""
    async with place.of():
        pass
    with pytest.raises(NotMigrated, match=f"it is of version {NOW}, this package's is {NOW + 1}"):
        await place.of(COLOURS).examine()
    await place.of(COLOURS).migrate()
    assert () == (await place.of(COLOURS).examine()).flaws


async def test_several_that_bring_a_journal_up_to_date_at_once(place: Place) -> None:
    """One of them does it; the others find it done."""
    async with place.of():
        pass
    done = await asyncio.gather(*(place.of(COLOURS).migrate() for _ in range(4)))
    assert 1 == sum(bool(one.steps) for one in done)
    assert {NOW + 1} == {one.after for one in done}


async def test_a_step_that_fails(place: Place) -> None:
    """Leaves all as it was, also what the steps before it did."""
    async with place.of():
        pass
    wrong = Step(about="a mistake", statements=("ALTER TABLE {s}nothing ADD COLUMN colour TEXT",), oldest=NOW)
    with pytest.raises(Exception, match=r"nothing|tables are not there"):
        await place.of(COLOURS, wrong).migrate()
    assert (NOW, (COLOURS.about,)) == ((todo := await place.of(COLOURS).migration()).before, todo.steps)
    async with place.of():
        pass


_KILLED = """
import os, signal, sqlite3, sys
from journal.test_migrations import COLOURS, in_words
from payments_async.journal._postgres import _schema
from payments_async.journal._postgres._connection import PgConnection
from payments_async.journal._sqlite import _opening
kind, place = sys.argv[1:]
if kind == "sqlite":
    import sqlite3
    connection = sqlite3.connect(place, isolation_level=None)
    connection.set_trace_callback(lambda sql: os.kill(os.getpid(), signal.SIGKILL) if "user_version =" in sql else None)
    _opening.migrate(connection, steps=(*_opening.STEPS, in_words(COLOURS, "")))
else:
    from payments_async.journal._postgres._connection import connected
    connection = connected(place, place="here", name="killed", patience=60.0)
    connection.execute("BEGIN")
    _schema.migrate(connection, "payments", (*_schema.STEPS, in_words(COLOURS, "{s}.")))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_who_is_killed_in_the_middle_has_done_nothing(tmp_path: Path, kind: str) -> None:
    """The next one does all of it; whoever had the journal open goes on meanwhile."""
    where = postgres.new_database() if kind == "postgres" else str(tmp_path / "j.db")
    journals: dict[str, tuple[Any, Any, str]] = {
        "sqlite": (SqliteJournal, _opening.STEPS, ""),
        "postgres": (PostgresJournal, _schema.STEPS, "{s}."),
    }
    of, steps, words = journals[kind]
    async with of(where) as old:
        chunk = await claimed(old)
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        command = [sys.executable, "-c", _KILLED, kind, where]
        died = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True)
        assert -signal.SIGKILL == died.returncode, died.stderr.decode()
        await old.record(Outcome(permit=await permitted(old, chunk), signal=Signal.ACCEPTED))
        assert (COLOURS.about,) == (await versions(of, steps, words, COLOURS)(where).migrate()).steps
        await old.record(Outcome(permit=await permitted(old, chunk, 1), signal=Signal.ACCEPTED))


# Roles: one that the tables belong to, and one that works with them


OWNER, WORKER = f"payments_owner_{os.getpid()}", f"payments_worker_{os.getpid()}"  # of all databases of a server
GRANTS = (
    'GRANT USAGE ON SCHEMA payments TO "{role}"',
    'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA payments TO "{role}"',
    'GRANT EXECUTE ON FUNCTION pg_control_system() TO "{role}"',
)


@attrs.frozen
class Roles:
    """A database of one role, and another one that may connect to it."""

    dsn: str
    owner: PostgresJournal
    worker: PostgresJournal

    def do(self, *statements: str) -> None:
        """Do something as the administrator."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.format(role=WORKER).encode())


@pytest.fixture
def roles() -> Iterator[Roles]:
    """A namespace that is yet to be made by its owner."""
    dsn = postgres.new_database()

    def as_(role: str) -> PostgresJournal:
        return PostgresJournal(f"{dsn}&options=-c%20role%3D{role}", state_folder=None)

    roles = Roles(dsn, as_(OWNER), as_(WORKER))
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"CREATE ROLE {OWNER}; CREATE ROLE {WORKER}".encode())
        connection.execute(f'GRANT CREATE ON DATABASE "{name}" TO {OWNER}'.encode())
        connection.execute(f"GRANT EXECUTE ON FUNCTION pg_control_system() TO {OWNER}".encode())
    yield roles
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {OWNER}, {WORKER} CASCADE".encode())
        connection.execute(f"DROP ROLE {OWNER}, {WORKER}".encode())


async def test_the_owner_makes_the_tables_and_a_worker_works_with_them(roles: Roles) -> None:
    """By the documented grants, a role that may make nothing sends a whole batch, and hears notifications."""
    done = await roles.owner.migrate()
    assert (0, NOW) == (done.before, done.after)
    roles.do(*GRANTS)
    async with roles.worker as journal:
        assert journal.is_new
        chunk = await claimed(journal, 3)
        for position in range(3):
            permit = await permitted(journal, chunk, position)
            await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
        await journal.release_chunk(chunk)
        assert await journal.claim_chunk(BATCH, "another") is None
        assert 3 == (await journal.progress(BATCH)).counts[State.ACCEPTED]
        assert not await asyncio.to_thread(_may_make_a_table, roles.dsn)
    async with roles.worker as journal:
        assert not journal.is_new


def _may_make_a_table(dsn: str) -> bool:
    with psycopg.connect(f"{dsn}&options=-c%20role%3D{WORKER}") as connection:
        (found,) = connection.execute("SELECT has_schema_privilege('payments', 'CREATE')").fetchone() or (None,)
    return bool(found)


@pytest.mark.parametrize(
    ("grants", "words"),
    [
        ((), "may not use the namespace payments; .* GRANT USAGE ON SCHEMA"),
        (GRANTS[:1], "may not DELETE, INSERT, SELECT, UPDATE \\w+; .* GRANT SELECT, INSERT, UPDATE, DELETE ON ALL"),
        ((*GRANTS, "REVOKE UPDATE ON payments.chunk FROM {role}"), "may not UPDATE chunk. As the owner"),
        (
            (*GRANTS, "REVOKE EXECUTE ON FUNCTION payments.next_id FROM PUBLIC"),
            "may not EXECUTE next_id. As the owner of the tables: GRANT EXECUTE ON FUNCTION",
        ),
    ],
)
async def test_a_worker_that_lacks_a_right(roles: Roles, grants: Sequence[str], words: str) -> None:
    """Hears which, and what the owner has to say."""
    await roles.owner.migrate()
    roles.do(GRANTS[2], *grants)
    with pytest.raises(JournalReadOnly, match=words):
        await roles.worker.__aenter__()


async def test_tables_that_belong_to_another_role_from_now_on(roles: Roles) -> None:
    """Reads and writes of the one before say what it lacks, and go on once that is granted: nothing is gone."""
    async with roles.owner as journal:
        await loaded(journal)
        roles.do(f"REASSIGN OWNED BY {OWNER} TO {WORKER}")
        for does in (journal.progress(), journal.entry("7"), journal.claim_chunk(BATCH, "worker")):
            with pytest.raises(JournalReadOnly, match=rf"the user {OWNER} may not use the .*: GRANT USAGE ON SCHEMA"):
                await does
        roles.do(*(grant.replace("{role}", OWNER) for grant in GRANTS))
        assert 3 == (await journal.progress()).total
        assert await journal.claim_chunk(BATCH, "worker") is not None


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_worker_where_no_tables_are_yet(roles: Roles, is_there: bool) -> None:
    """Cannot make them, and says who can."""
    roles.do(GRANTS[2], *(["CREATE SCHEMA payments", GRANTS[0]] if is_there else []))
    with pytest.raises(JournalReadOnly, match=r"payments_worker_[0-9]+ may not make (one|any): .* journal migrate"):
        await roles.worker.__aenter__()


@pytest.mark.slow(covered=True)
async def test_a_worker_does_not_bring_the_tables_up_to_date(roles: Roles) -> None:
    """It may not, and names the command; the role that may uses it, and the worker goes on with the new tables."""
    await roles.owner.migrate()
    roles.do(*GRANTS)
    wider = Step(about="a table of colours", statements=("CREATE TABLE {s}.colour (name TEXT)",), oldest=NOW)
    newer = versions(PostgresJournal, _schema.STEPS, "{s}", wider)
    owner, worker = (newer(f"{roles.dsn}&options=-c%20role%3D{role}") for role in (OWNER, WORKER))
    with pytest.raises(NotMigrated):
        await worker.__aenter__()
    with pytest.raises(JournalReadOnly):
        await worker.migrate()
    await owner.migrate()
    with pytest.raises(JournalReadOnly, match="may not DELETE, INSERT, SELECT, UPDATE colour"):
        await worker.__aenter__()
    roles.do(*GRANTS)
    async with worker as journal:
        assert 0 == len(await journal.runs())


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_request_ids_of_a_version_without_keys(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each order gets its key; of two ids that are one from now on the second stands apart, and is named in the log."""
    with contextlib.ExitStack() as stack:
        if database == "sqlite":
            file = stack.enter_context(contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)))
            ask, place = file.execute, ""
            _opening.migrate(file, new=True, steps=_opening.STEPS[:1])
        else:
            raw = stack.enter_context(psycopg.connect(postgres.new_database()))
            there = PgConnection(raw)
            ask, place = there.execute, "payments."
            _schema.migrate(there, "payments", _schema.STEPS[:1])
        for number, one in enumerate(("Voucher-17", "voucher-17", "\u00c9a-1", "x")):
            ask(
                f"""INSERT INTO {place}outbox (id, request_id, amount, body, body_sha256, permitted_at, updated_at)
                VALUES (?, ?, '1', ?, ?, 0, 0)""",  # noqa: S608 - a name
                (number, one, b"{}", b"x"),
            )
        for one in ("SEEN-1", "seen-1"):
            ask(
                f"INSERT INTO {place}sighting (request_id, transaction_id, news, at) VALUES (?, 't', 'n', 0)",  # noqa: S608
                (one,),
            )
        if database == "sqlite":
            _opening.migrate(file)
        else:
            _schema.migrate(there, "payments")
        keys = ask(f"SELECT request_key FROM {place}outbox ORDER BY id").fetchall()  # noqa: S608 - a name
        assert [("voucher-17",), ("voucher-17\n1",), ("\u00e9a-1",), ("x",)] == [tuple(row) for row in keys]
        assert [("seen-1",)] == [tuple(row) for row in ask(f"SELECT request_key FROM {place}sighting").fetchall()]  # noqa: S608
    assert ["voucher-17"] == [one.request_id for one in caplog.records if "in letters alone" in one.getMessage()]


# What waited for handlers in two queues

_EVENT = "transaction_id, status_code, amount, event, body, query, peer, received_at"
_TWO_QUEUES = (
    "INSERT INTO {s}run (id, batch_id, base_address, key_fingerprint, user_id, epoch, uid, created_at, outbox) "
    "VALUES (1, 'shop', '', '', '', '', '', 0, 'shop')",
    "INSERT INTO {s}hearing (outbox, state, at) VALUES ('shop', 'accepted', 0)",
    "INSERT INTO {s}outbox (id, request_id, request_key, state, amount, body, body_sha256, permitted_at, updated_at) "
    "VALUES (268435456, 'shop-0', 'shop-0', 'sending', '1', ?, ?, 0, 0)",
    *(
        f"INSERT INTO {{s}}ipn_event (id, {_EVENT}, state, tries, done, error) "  # noqa: S608 - no value in it
        f"VALUES ({number}, 't-{number}', 0, '1', ?, ?, '', '192.0.2.7', 0, {standing})"
        for number, standing in enumerate(
            (
                "'handled', 0, NULL, NULL",  # over
                "'handled', 0, NULL, NULL",  # leased
                "'handled', 2, '[\"a\"]', 'it was late'",  # waits for its third round
                "'dead', 60, '[\"a\"]', 'it was never well'",
                "'disputed', 1, NULL, 'another amount'",
                "'handled', 3, NULL, NULL",  # over, after three rounds
            ),
            start=1,
        )
    ),
    "INSERT INTO {s}ipn_pending (event_id, owner, holder, due_at, failed) VALUES (2, 'r', 'h', 90, 0)",
    "INSERT INTO {s}ipn_pending (event_id, owner, holder, due_at, failed) VALUES (3, '', '', 70, 1)",
    *(
        "INSERT INTO {s}change (id, order_id, outbox, state, at, status, owner, holder, due_at, tries, done, error) "  # noqa: S608
        f"VALUES ({number}, 268435456, 'shop', 'accepted', 0, {standing})"
        for number, standing in enumerate(
            (
                "'seen', NULL, NULL, 0, 0, NULL, NULL",
                "'pending', NULL, NULL, 0, 0, NULL, NULL",
                "'pending', 'w', 'h', 90, 1, '[\"a\"]', 'no'",
                "'dead', NULL, NULL, 90, 60, '[\"a\"]', 'never'",
                "'handled', NULL, NULL, 0, 0, NULL, NULL",
                "'handled', NULL, NULL, 0, 2, NULL, NULL",
            ),
            start=11,
        )
    ),
)
_ONE_QUEUE = [
    ("inbox", 2, "", None, "pending", "r", "h", 90.0, 0, None, None),
    ("inbox", 3, "", None, "pending", "", "", 70.0, 2, '["a"]', "it was late"),
    ("inbox", 4, "", None, "dead", "", "", 0.0, 60, '["a"]', "it was never well"),
    ("inbox", 5, "", None, "done", "", "", 0.0, 1, None, None),
    ("inbox", 6, "", None, "done", "", "", 0.0, 3, None, None),
    ("outbox", 12, "accepted/shop", 268435456, "pending", "", "", 0.0, 0, None, None),
    ("outbox", 13, "accepted/shop", 268435456, "pending", "w", "h", 90.0, 1, '["a"]', "no"),
    ("outbox", 14, "accepted/shop", 268435456, "dead", "", "", 90.0, 60, '["a"]', "never"),
    ("outbox", 16, "accepted/shop", 268435456, "done", "", "", 0.0, 2, None, None),
]
_TRIGGER_BEFORE = """CREATE TRIGGER outbox_changed AFTER UPDATE OF state ON outbox BEGIN
    INSERT INTO change (id, order_id, outbox, state, at, status) SELECT 1, NEW.id, '', NEW.state, 0, 'pending'; END"""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_what_waited_in_two_queues(database: str) -> None:
    """It waits in one, with its lease, its rounds and who has finished; and so does what comes after that."""
    with contextlib.ExitStack() as stack:
        if database == "sqlite":
            file = stack.enter_context(contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)))
            ask, place = file.execute, ""
            _opening.migrate(file, new=True, steps=_opening.STEPS[:2])
            ask(_TRIGGER_BEFORE)
        else:
            raw = stack.enter_context(psycopg.connect(postgres.new_database()))
            there = PgConnection(raw)
            ask, place = there.execute, "payments."
            _schema.migrate(there, "payments", _schema.STEPS[:2])
        for statement in _TWO_QUEUES:
            ask(statement.replace("{s}", place), (b"", b"")[: statement.count("?")])
        if database == "sqlite":
            _opening.migrate(file)
        else:
            _schema.migrate(there, "payments")
            ask("SET search_path TO payments")
        columns = "queue, about, topic, order_id, status, owner, holder, due_at, tries, done, error"
        found = ask(f"SELECT {columns} FROM delivery ORDER BY queue, about").fetchall()  # noqa: S608 - no value in it
        assert _ONE_QUEUE == [tuple(row) for row in found]
        told = ask("SELECT id, state, error FROM ipn_event WHERE state <> 'handled' OR error IS NOT NULL").fetchall()
        assert [(5, "disputed", "another amount")] == [tuple(row) for row in told]
        ask("UPDATE outbox SET state = 'accepted', updated_at = 7 WHERE request_id = 'shop-0'")
        found = ask("SELECT topic, status FROM delivery WHERE about = 7000000").fetchall()
        assert [("accepted/shop", "pending")] == [tuple(row) for row in found]


@attrs.frozen
class Before:
    """A journal as an older version has it.

    Attributes:
        ask: A statement, committed at once.
        opens: Opens it as this version does.
        older: The same for a package that knows so many steps.
    """

    ask: Callable[..., Any]
    opens: Callable[[], Journal]
    older: Callable[[int], Journal]


@pytest.fixture(params=[(database, number) for database in ("sqlite", "postgres") for number in (1, 2, 3)])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Before]:
    """The tables of an older version, by default of one whose archived orders had their own; a file is still open."""
    database, number = request.param
    if database == "sqlite":
        path = tmp_path / "j.db"
        _opening.make(path, remembers=False, steps=_opening.STEPS[:number])
        with contextlib.closing(_opening.open_writer(path, busy_timeout=5.0)) as file:
            yield Before(
                file.execute,
                lambda: SqliteJournal(path, state_folder=None),
                lambda steps: versions(SqliteJournal, _opening.STEPS[:steps], "")(path, state_folder=None),
            )
        return
    dsn = postgres.new_database()
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=payments") as raw:
        there = PgConnection(raw)
        there.execute("BEGIN")
        _schema.migrate(there, "payments", _schema.STEPS[:number])
        there.commit()
        yield Before(
            there.execute,
            lambda: PostgresJournal(dsn, state_folder=None),
            lambda steps: versions(PostgresJournal, _schema.STEPS[:steps], "")(dsn, state_folder=None),
        )


async def test_archived_orders_of_a_version_that_had_a_table_for_them(before: Before, request: Any) -> None:
    """They are known again as before, whichever way they come; a package of that version is kept out."""
    version = request.node.callspec.params["before"][1]
    identity = (IDENTITY.base_address, IDENTITY.key_fingerprint, IDENTITY.user_id)
    before.ask(
        """INSERT INTO run (id, batch_id, base_address, key_fingerprint, user_id, epoch, uid, state, created_at,
        ready_at, archived) VALUES (1, ?, ?, ?, ?, 'e', 'u', 'ready', 1, 1, 4)""",
        (BATCH, *identity),
    )
    before.ask(
        "INSERT INTO archive (id, path, who, why, begun_at, ended_at, orders) VALUES (1, 'a.gz', 'A', 'w', 1, 1, 4)"
    )
    before.ask("INSERT INTO chunk (run, number, state, token) VALUES (1, 0, 'done', 1)")

    def write(table: str, place: int, about: Order, state: str) -> None:
        """An order, as the older version would have written it."""
        body, amount = write_order(about), amount_text(about.amount)
        values: dict[str, object] = {
            "id": (1 << 28) + place, "request_id": about.request_id, "state": state, "attempt": 1, "amount": amount,
            "body_sha256": body_digest(about.request_id, amount, body), "permitted_at": 5.0, "updated_at": 6.0,
            "transaction_id": pack_transaction_id(transaction_id(place)),
        }  # fmt: skip
        values |= (
            {"body": body} if table == "outbox" else {"about": without_members(body), "archive": 1, "sent_before": 0}
        )
        values |= {"request_key": plain_id(about.request_id)} if version > 1 else {}
        marks = ", ".join("?" * len(values))
        before.ask(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", list(values.values()))  # noqa: S608

    write("outbox", 0, order(0), "successful")
    for place in (1, 2, 3):
        write("archived", place, order(place), ("", "successful", "failed", "reversed")[place])
    letters = attrs.evolve(order(0), request_id=order(0).request_id.upper())
    write("archived", 4, letters, "successful")  # a version without keys took both
    if isinstance(before.opens(), PostgresJournal):
        write("outbox", 2, order(2), "unknown")  # put back from a backup of one table
    sums = {"successful": (0, 1, 4), "failed": (2,), "reversed": (3,)}
    for state, places in sums.items():
        total = sum(order(0 if place == 4 else place).amount for place in places)
        before.ask("INSERT INTO progress VALUES (1, ?, ?, ?)", (state, len(places), str(total)))
    if isinstance(before.opens(), PostgresJournal):
        await before.opens().migrate()
    async with before.opens() as journal:
        found = await journal.examine()
        assert ((), 5) == (found.flaws, found.orders)
        assert [order(0).request_id] == [entry.request_id async for entry in journal.entries()]
        ids = [order(place).request_id for place in range(4)]
        gone = await journal.archived_of(ids)
        assert dict(zip(ids[1:], ("successful", "failed", "reversed"), strict=True)) == {
            one: told.state for one, told in gone.items()
        }
        assert {("a.gz", "UGX", BATCH)} == {(one.archive.path, one.currency, one.batch_id) for one in gone.values()}
        await journal.open_outbox("shop", IDENTITY)
        for place in (1, 2, 3):
            placed = await journal.put("shop", order(place), owner="worker", permits=True)
            assert (False, None, gone[ids[place]].state) == (placed.is_new, placed.permit, placed.entry.state)
        with pytest.raises(OrdersDiffer):
            await journal.put("shop", letters)
        await journal.open_run("again", IDENTITY)
        with pytest.raises(OrdersArchived, match="ended long ago"):
            await journal.load("again", [order(place) for place in (1, 2, 3)], owner="loader")
        late = Evidence(signal=Signal.LOOKED_UP_REVERSED, source="list", transaction_id=transaction_id(1))
        told = await journal.apply_evidence(late)
        assert told is not None
        assert (ids[1], State.REVERSED) == (told.request_id, told.state)
    with pytest.raises(JournalTooNew):
        await before.older(version).__aenter__()


@pytest.mark.parametrize("before", [("sqlite", 7), ("postgres", 7)], indirect=True)
async def test_orders_of_a_version_without_correlation_ids(before: Before) -> None:
    """They go on, and a worker of that version beside this one too: neither is in the other's way."""
    is_server = isinstance(before.opens(), PostgresJournal)
    if not is_server:
        before.ask(_opening.WRITES_CHANGES)
    before.ask(
        """INSERT INTO run (id, batch_id, base_address, key_fingerprint, user_id, epoch, uid, state, created_at,
        ready_at, outbox, kind) VALUES (1, 'shop', ?, ?, ?, 'e', 'u', 'ready', 1, 1, 'shop', 'outbox')""",
        (IDENTITY.base_address, IDENTITY.key_fingerprint, IDENTITY.user_id),
    )
    about, body = order(0), write_order(order(0))
    before.ask(
        """INSERT INTO outbox (id, request_id, request_key, amount, body, body_sha256, permitted_at, updated_at)
        VALUES (?, ?, ?, ?, ?, ?, 5, 6)""",
        (
            *(1 << 28, about.request_id, plain_id(about.request_id), amount_text(about.amount), body),
            body_digest(about.request_id, amount_text(about.amount), body),
        ),
    )
    before.ask("INSERT INTO progress VALUES (1, 'planned', 1, ?)", (amount_text(about.amount),))
    before.ask("INSERT INTO chunk (run, number) VALUES (1, 0)")
    if is_server:
        before.ask("CREATE ROLE lays_orders")
        before.ask("GRANT EXECUTE ON FUNCTION payments.lay TO lays_orders")
        await before.opens().migrate()
    async with before.opens() as new, before.older(7) as old:
        await new.open_outbox("shop", IDENTITY)
        assert (await new.put("shop", order(1), traceparent=TRACEPARENT)).is_new
        chunk = await old.claim_chunk("shop", "worker")
        assert chunk is not None
        for place, name in ((0, "c-1"), (1, None)):
            outcome = Outcome(permit=await permitted(old, chunk, place), signal=Signal.ACCEPTED, correlation_id=name)
            await new.record(outcome)
        told = [(one.correlation_id, one.traceparent) async for one in new.entries()]
        assert [("c-1", None), (None, TRACEPARENT)] == told
        assert () == (await new.examine()).flaws
    if isinstance(before.opens(), PostgresJournal):
        may = before.ask(
            "SELECT has_function_privilege('lays_orders', p.oid, 'execute') FROM pg_proc p WHERE proname = 'lay'"
        )
        assert [(True,)] == [tuple(row) for row in may.fetchall()]
        before.ask("DROP OWNED BY lays_orders")
        before.ask("DROP ROLE lays_orders")


_VERSION_5 = [("sqlite", 5), ("postgres", 5)]


@pytest.mark.parametrize("before", _VERSION_5, indirect=True)
async def test_runs_of_a_version_that_named_an_outbox_after_itself(before: Before) -> None:
    """An outbox is one by its kind, a batch in it and one beside it are none, and all go on as they were."""
    for number, (name, outbox) in enumerate((("shop", "shop"), ("file", "shop"), (BATCH, None)), start=1):
        before.ask(
            """INSERT INTO run (id, batch_id, base_address, key_fingerprint, user_id, epoch, uid, state, created_at,
            ready_at) VALUES (?, ?, ?, ?, ?, 'e', 'u', 'ready', 1, 1)""",
            (number, name, IDENTITY.base_address, IDENTITY.key_fingerprint, IDENTITY.user_id),
        )
        if outbox is not None:
            if isinstance(before.opens(), SqliteJournal):
                before.ask(_opening.WRITES_CHANGES)
            before.ask("UPDATE run SET outbox = ? WHERE id = ?", (outbox, number))
    if isinstance(before.opens(), PostgresJournal):
        await before.opens().migrate()
    async with before.opens() as journal:
        runs = [(run.batch_id, run.is_outbox, run.outbox) for run in await journal.runs()]
        assert [("shop", True, "shop"), ("file", False, "shop"), (BATCH, False, None)] == runs
        await journal.open_outbox("shop", IDENTITY)
        assert (await journal.put("shop", order(1))).is_new
        with pytest.raises(OrdersDiffer, match="give the outbox another name"):
            await journal.open_outbox("file", IDENTITY)
    with pytest.raises(JournalTooNew):
        await before.older(5).__aenter__()


@pytest.mark.parametrize("before", _VERSION_5, indirect=True)
async def test_an_order_that_was_due_at_a_moment_that_never_comes(before: Before) -> None:
    """It is held back as before, and its chunk is found to be done; put again it is sent, and so is its neighbour."""
    before.ask(
        """INSERT INTO run (id, batch_id, base_address, key_fingerprint, user_id, epoch, uid, state, created_at,
        ready_at) VALUES (1, 'shop', ?, ?, ?, 'e', 'u', 'ready', 1, 1)""",
        (IDENTITY.base_address, IDENTITY.key_fingerprint, IDENTITY.user_id),
    )
    if is_file := isinstance(before.opens(), SqliteJournal):
        before.ask(_opening.WRITES_CHANGES)
    before.ask("UPDATE run SET outbox = 'shop'")
    for place, moment in ((0, 1e15), (1, 0.0), (500, 1e15)):
        about = order(place)
        body, amount = write_order(about), amount_text(about.amount)
        before.ask(
            """INSERT INTO outbox (id, request_id, request_key, state, attempt, amount, body, body_sha256, permitted_at,
            updated_at, not_before, conflict) VALUES (?, ?, ?, 'planned', 1, ?, ?, ?, 5, 6, ?, 'it cannot be sent')""",
            (
                *((1 << 28) + place, about.request_id, plain_id(about.request_id), amount, body),
                *(body_digest(about.request_id, amount, body), moment),
            ),
        )
    total = sum(order(place).amount for place in (0, 1, 500))
    before.ask("INSERT INTO progress VALUES (1, 'planned', 3, ?)", (str(total),))
    for number, due_at in enumerate((0.0, 1e15)):
        before.ask("INSERT INTO chunk (run, number, due_at) VALUES (1, ?, ?)", (number, due_at))
    if not is_file:
        await before.opens().migrate()
    async with before.opens() as journal:
        await journal.lift_quarantine("shop", who="Ann", why="it is here")
        chunk = await journal.claim_chunk("shop", "worker")
        assert chunk is not None
        assert [order(1).request_id] == [one.request_id for one in chunk.orders]
        assert await journal.claim_chunk("shop", "another") is None
        assert (0, 1, 1) == ((found := await journal.chunks("shop")).open, found.leased, found.done)
        placed = await journal.put("shop", order(500), owner="another", permits=True)
        assert (False, State.PLANNED) == (placed.is_new, placed.entry.state)
        chunk = await journal.claim_chunk("shop", "another")
        assert chunk is not None
        assert [(order(500).request_id, 0.0)] == [(one.request_id, one.not_before) for one in chunk.orders]
        assert () == (await journal.examine()).flaws

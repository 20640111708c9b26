"""How a database finds the rows that the journal asks for: by an index, however many there are."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from journal import postgres
from journal.conftest import Home, _postgres
from journal.factories import BATCH, Clock, claimed, delivery, event, in_outbox, order, permitted, swept, transaction_id

from payments_async.journal import Journal, Particulars, PostgresJournal, Signal, SqliteJournal, State
from payments_async.journal._postgres import _gathered
from payments_async.journal._postgres._connection import PgConnection, _numbered
from payments_async.journal._sqlite import _opening
from payments_async.journal._statements import _entries, _history
from payments_async.journal._statements._entries import add_amounts
from payments_async.journal.contract import Evidence, Outcome
from payments_async.testing import Testing

LARGE = (
    "outbox", "o", "evidence", "v", "attempt", "resolution", "ipn_event", "e", "ipn_delivery", "change",
    "delivery", "d",
)  # fmt: skip
STOPS_AT_ONCE = "EXISTS (SELECT 1 FROM outbox)"  # its plan is a scan, which ends at the first row
INDEXED = (State.UNKNOWN, State.PARKED, State.ACCEPTED, State.REJECTED)
Statements = dict[str, Sequence[object]]  # with values that each was asked with


class Recorded(sqlite3.Connection):
    """A connection that remembers what it was asked."""

    asked: set[str] = set()  # noqa: RUF012 - of all of them

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self.asked.add(sql)
        return super().execute(sql, *values)

    def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self.asked.add(sql)
        return super().executemany(sql, *values)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What journals ask from now on."""
    connect = sqlite3.connect
    monkeypatch.setattr(_opening.sqlite3, "connect", lambda *a, **options: connect(*a, factory=Recorded, **options))
    monkeypatch.setattr(Recorded, "asked", set())
    return Recorded.asked


def of_use(asked: set[str], *words: str) -> list[str]:
    """What was asked by a journal that has its tables."""
    made = {sql for step in _opening.STEPS for sql in step.statements}
    return [sql for sql in asked if sql not in made and sql.lstrip().startswith(words)]


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    """How SQLite goes about a statement."""
    found = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?"))
    return [words for *_, words in found]


@contextmanager
def an_empty_file() -> Iterator[sqlite3.Connection]:
    """All tables, without a row."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.create_function("add_amounts", 2, add_amounts)
        _opening.migrate(connection, new=True)
        yield connection


# What happens to orders and changes, on any database


async def changes_live(journal: Journal, asked: set[str] | Statements) -> None:
    """Waiting, claiming, retrying, finishing, reviving, forgetting."""
    chunk = await in_outbox(journal, 3)
    await journal.hear("shop", [State.ACCEPTED, State.REJECTED])
    asked.clear()
    for place in range(3):
        await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=Signal.ACCEPTED))
    for outbox in ("shop", None):
        assert 3 == len(await journal.changes_after(outbox, 0))
        assert 3 == (await journal.change_backlog(outbox)).pending
    assert frozenset({State.ACCEPTED}) == (await journal.states_since("shop", 0))[1]
    first, second, third = await journal.claim_changes("shop", [State.ACCEPTED], "w", lease=30, limit=10)
    assert third.id == await journal.last_change()
    await journal.note_change_done(first.id, "handler")
    await journal.retry_change(first.id, delay=0.0, error="no")
    await journal.finish_changes([second.id, third.id])
    await journal.claim_changes("shop", [State.ACCEPTED], "w", lease=30, limit=10)
    await journal.release_changes("w")
    await journal.finish_changes([first.id], "dead", error="no")
    assert [first.id] == [dead.id async for dead in journal.dead_changes()]
    assert 1 == await journal.revive_changes()
    await journal.prune_changes(older_than=1e-9)


async def orders_live(journal: Journal) -> None:
    """Loading, permits, answers, notifications, evidence, list scans and looking."""
    chunk = await claimed(journal, 6)
    first = await permitted(journal, chunk, 0)
    accepted = Outcome(permit=first, signal=Signal.ACCEPTED, transaction_id=transaction_id(0))
    second = await permitted(journal, chunk, 1, after=accepted)
    await journal.record(Outcome(permit=second, signal=Signal.UNKNOWN))
    third = await permitted(journal, chunk, 2)
    await journal.record(Outcome(permit=third, signal=Signal.NOT_SENT))
    await permitted(journal, chunk, 3)
    await journal.renew_chunk(chunk)
    await journal.release_chunk(chunk)
    await journal.expire_chunks()
    for number in (0, 1):
        await journal.receive(delivery(), event(0, number), owner="r", lease=30)
    await journal.park(order(3).request_id, detail="nowhere")
    await journal.apply_evidence(
        Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", transaction_id=transaction_id(0))
    )
    await journal.send_again(order(3).request_id, who="Grace", why="asked them")
    await journal.acknowledge(order(0).request_id, who="Grace", why="asked them")
    await swept(journal)
    await journal.entries_of([order(0).request_id])
    for batch in (None, BATCH):
        await journal.sent_since(batch, tuple(State))
        await journal.progress(batch)
        await journal.unheard_since(batch)
        for state in (None, *State):
            assert all([entry.batch_id == BATCH async for entry in journal.entries(batch, state)])
        assert [] == [entry async for entry in journal.conflicts(batch)]
    for state in (State.UNKNOWN, State.PARKED, State.ACCEPTED, State.FAILED):
        assert [] == [page async for page in journal.open_orders("shop", state)]
    await journal.is_looked_for(BATCH)
    await journal.account_currency(BATCH)
    await journal.final_events(order(0).request_id, transaction_id(0))
    await journal.history(order(0).request_id)
    await journal.note_particulars([(order(0).request_id, Particulars(file_row=2))])
    await journal.particulars(order(0).request_id)
    assert 6 == len([entry async for entry in journal.find("Grace", BATCH)])
    assert (await journal.receive(delivery(b'{"again": 1}'), event(2, 0), owner="r", lease=30)).conflict is not None


async def orders_leave(journal: Journal, clock: Clock, asked: set[str] | Statements) -> None:
    """Leaving for an archive, being told of later, and looked for."""
    chunk = await in_outbox(journal, 3)
    for place in range(3):
        await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=Signal.REJECTED))
    clock.pass_(1e7)
    asked.clear()
    archive = await journal.begin_archive("file", who="Grace", why="old")
    async for page in journal.old_orders(older_than=1e6):
        assert 3 == await journal.prune_orders(archive, page)
    await journal.end_archive(archive)
    gone = order(0, batch="shop")
    assert 1 == len(await journal.archived_of([gone.request_id.upper()]))
    late = Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", transaction_id=transaction_id(0))
    assert await journal.apply_evidence(late) is None
    assert (await journal.put("shop", gone)).entry.state is State.REJECTED
    await journal.oldest("shop")


# SQLite


async def test_nothing_that_happens_to_a_change_reads_a_whole_table(tmp_path: Path, asked: set[str]) -> None:
    """Waiting, claiming, retrying, finishing, reviving, forgetting: a million that are over cost nothing."""
    async with SqliteJournal(tmp_path / "journal.db", state_folder=None) as journal:
        await changes_live(journal, asked)
    with an_empty_file() as connection:
        words = ("SELECT", "UPDATE", "INSERT", "DELETE")
        about = [sql for sql in of_use(asked, *words) if "change" in sql or "delivery" in sql]
        scans = {sql: steps for sql in about if (steps := [step for step in plan(connection, sql) if _is_scan(step)])}
        (due,) = [plan(connection, sql) for sql in about if "ORDER BY due_at" in sql]
    assert len(about) > 15
    assert {} == scans
    assert ["SEARCH delivery USING INDEX delivery_due (queue=? AND topic=? AND due_at<?)"] == due  # none is sorted


async def test_nothing_that_happens_to_an_order_reads_a_whole_table(tmp_path: Path, asked: set[str]) -> None:
    """Loading, permits, answers, notifications, evidence, list scans and looking: no plan scans one that grows."""
    async with SqliteJournal(tmp_path / "journal.db", state_folder=None) as journal:
        await orders_live(journal)
    with an_empty_file() as connection:
        orders = of_use(asked, "SELECT", "UPDATE", "INSERT", "DELETE", "WITH")
        scans = {sql: [step for step in plan(connection, sql) if _is_scan(step)] for sql in orders}
    assert len(orders) > 50
    assert {} == {sql: steps for sql, steps in scans.items() if steps and not sql.endswith(STOPS_AT_ONCE)}


async def test_nothing_that_leaves_reads_a_whole_table(tmp_path: Path, asked: set[str]) -> None:
    """Leaving, being told of later, and looked for: a page costs the same, however many have left before it."""
    clock = Clock()
    async with SqliteJournal(tmp_path / "journal.db", state_folder=None, testing=Testing(now=clock)) as journal:
        await orders_leave(journal, clock, asked)
    with an_empty_file() as connection:
        words = ("SELECT", "UPDATE", "INSERT", "DELETE")
        plans = {sql: plan(connection, sql) for sql in of_use(asked, *words)}
        scans = {sql: steps for sql, found in plans.items() if (steps := [step for step in found if _is_scan(step)])}
    assert len(plans) > 25
    assert {} == scans


@pytest.mark.parametrize("state", INDEXED)
def test_orders_in_a_state_that_is_looked_for_are_found_by_its_own_index(asked: set[str], state: State) -> None:
    """A batch of a million with three unknown ones: few rows are read, for their entries and their first permit."""
    with an_empty_file() as connection:
        asked.clear()
        _entries.entries_after(None, state)(connection, after=-1)
        _history.sent_since(connection, None, [state], 0.0)
        steps = [step for sql in list(asked) if f"'{state.value}'" in sql for step in plan(connection, sql)]
    of_orders = [step for step in steps if step.startswith(("SCAN o ", "SEARCH o "))]
    assert len(of_orders) == 2
    assert all(step.startswith("SEARCH o USING INDEX outbox_") for step in of_orders), of_orders


def _is_scan(step: str) -> bool:
    """Whether a step reads every row of a table that grows; an index of a few of them may be read whole."""
    words = step.split()
    is_by_index = "INDEX" in words and any(name in words for name in _PARTIAL)
    return words[0] == "SCAN" and words[1] in LARGE and not is_by_index


_PARTIAL = (
    "outbox_conflict", "ipn_event_doubt", "ipn_event_nameless", "ipn_event_disputed", "delivery_due", "delivery_dead",
)  # fmt: skip


# PostgreSQL

_GROWS = frozenset({
    "outbox", "evidence", "attempt", "resolution", "ipn_event", "ipn_believed", "ipn_delivery", "change", "told",
    "sighting", "chunk", "claim", "tray", "delivery",
})  # fmt: skip
_PLANNED = ("SELECT", "UPDATE", "INSERT", "DELETE", "WITH")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """What journals in PostgreSQL ask from now on."""
    asked: Statements = {}
    execute, executemany = PgConnection.execute, PgConnection.executemany

    def recorded(self: PgConnection, sql: str, values: Sequence[object] = (), /) -> Any:
        asked[sql] = values
        return execute(self, sql, values)

    def recorded_many(self: PgConnection, sql: str, values: Any, /) -> Any:
        many = list(values)
        if many:
            asked[sql] = many[0]
        return executemany(self, sql, many)

    statement = _gathered.statement

    def recorded_with_its_answer(sql: str, values: Sequence[object] = ()) -> Any:
        asked[sql] = values
        return statement(sql, values)

    monkeypatch.setattr(_gathered, "statement", recorded_with_its_answer)
    monkeypatch.setattr(PgConnection, "execute", recorded)
    monkeypatch.setattr(PgConnection, "executemany", recorded_many)
    return asked


# Rows of all tables that grow, as many as numbers are given; orders of a batch of their own, which was paid long ago.
_CROWD = """
INSERT INTO outbox (id, request_id, request_key, state, attempt, amount, body, body_sha256, transaction_id,
    permitted_at, updated_at) SELECT (7::bigint << 28) + n, 'crowd-' || n, 'crowd-' || n,
    CASE n %% 1000 WHEN 0 THEN 'unknown' WHEN 1 THEN 'rejected'
    WHEN 2 THEN 'accepted' WHEN 3 THEN 'planned' ELSE 'successful' END, 1, '1', '{}', 'x',
    decode(md5(n::text), 'hex'), 1000, 1000 FROM generate_series(0, %(last)s) n;
INSERT INTO chunk (run, number, state) SELECT 7, n, CASE WHEN n %% 20 = 0 THEN 'open' ELSE 'done' END
    FROM generate_series(0, %(last)s / 10) n;
INSERT INTO claim (run, number, token, owner, at) SELECT 7, n, 1, 'w', 1000 FROM generate_series(0, %(last)s / 10) n;
INSERT INTO ipn_event (id, transaction_id, status_code, amount, request_key, event, body, query, peer, received_at,
    order_id) SELECT 1000 + n, md5(n::text), 0, '1', 'crowd-' || n, '', '{}', '', '192.0.2.7', 1000,
    (7::bigint << 28) + n FROM generate_series(0, %(last)s) n;
INSERT INTO evidence (order_id, at, news, source, before, after, before_at, event_id, last_at)
    SELECT (7::bigint << 28) + n, 1000, 'notified_successful', 'peer', 'accepted', 'successful', 1000, 1000 + n, 1000
    FROM generate_series(0, %(last)s) n;
INSERT INTO attempt (order_id, n, token, permitted_at, outcome, done_at)
    SELECT (7::bigint << 28) + n * 10, 1, 1, 1000, 'not_sent', 1000 FROM generate_series(0, %(last)s / 10) n;
INSERT INTO resolution (order_id, kind, who, why, at)
    SELECT (7::bigint << 28) + n * 100, 'acknowledged', 'Grace', 'seen', 1000 FROM generate_series(0, %(last)s / 10) n;
INSERT INTO ipn_believed (id, event_id) SELECT 1000 + n, 1000 + n FROM generate_series(0, %(last)s / 10) n;
INSERT INTO ipn_delivery (event_id, digest, body, query, peer, received_at)
    SELECT 1000 + n, 'x', '{}', '', '192.0.2.7', 1000 FROM generate_series(0, %(last)s) n;
INSERT INTO change (id, order_id, outbox, state, at)
    SELECT n, (7::bigint << 28) + n, 'shop', 'successful', 1000 FROM generate_series(0, %(last)s) n;
INSERT INTO delivery (queue, about, topic, order_id, status) SELECT 'outbox', n, 'successful/shop',
    (7::bigint << 28) + n, CASE n %% 100 WHEN 0 THEN 'pending' WHEN 1 THEN 'dead' ELSE 'done' END
    FROM generate_series(0, %(last)s, 10) n;
INSERT INTO delivery (queue, about, owner, holder, due_at)
    SELECT 'inbox', 1000 + n * 10, 'r', 'h', 1e9 FROM generate_series(0, %(last)s / 10) n;
INSERT INTO outbox (id, request_id, request_key, state, attempt, sent_before, amount, body, body_sha256,
    transaction_id, permitted_at, updated_at, archive)
    SELECT (6::bigint << 28) + n, 'gone-' || n, 'gone-' || n, 'successful', 1, 0, '1', '{}', 'x',
    decode(md5('gone' || n), 'hex'), 1000, 1000, 1 FROM generate_series(0, %(last)s) n;
INSERT INTO sighting (request_key, transaction_id, news, at)
    SELECT 'seen-' || n, md5(n::text), 'looked_up_successful', 1000 FROM generate_series(0, %(last)s) n;
"""
# of what waits or is open, however much there is of what is over
_FEW = (*_PARTIAL, "chunk_leased", "chunk_later", "chunk_open", "delivery_order", "outbox_open")
_STATISTICS = {
    "that nobody has looked at": "",
    "that was looked at while it was all but empty": "VACUUM ANALYZE",
}


class Planner:
    """Tells how PostgreSQL goes about a statement, on a connection as the journal has it.

    Args:
        connection: Whose settings are the journal's.
    """

    def __init__(self, connection: PgConnection) -> None:
        self.connection = connection

    def whole(self, sql: str, values: Sequence[object]) -> list[str]:
        """What a statement reads from its beginning to its end: a table, or an index of all its rows."""
        return list(_read_whole(self.plan(sql, values)))

    def plan(self, sql: str, values: Sequence[object]) -> Any:
        """How the server goes about it."""
        raw, numbered = self.connection.raw, _numbered(sql).decode()
        kinds = [raw.adapters.get_dumper(type(value), psycopg.adapt.PyFormat.AUTO).oid for value in values]
        names = [raw.adapters.types[kind].name if kind else "unknown" for kind in kinds]
        given = ", ".join(psycopg.sql.Literal(value).as_string(raw) for value in values)
        found = self.connection.script(
            f"PREPARE asked{_in_brackets(', '.join(names))} AS {numbered}; "
            f"EXPLAIN (FORMAT JSON) EXECUTE asked{_in_brackets(given)}"
        )
        self.connection.script("DEALLOCATE asked")
        assert found is not None
        return found[0][0]["Plan"]


def _in_brackets(text: str) -> str:
    return f"({text})" if text else ""


def _read_whole(node: Mapping[str, Any], *, ends_at_once: bool = False) -> Iterator[str]:
    """What a plan reads whole, of what grows; but for that of which the first row is enough."""
    kind, table, index = node["Node Type"], node.get("Relation Name"), node.get("Index Name", "")
    is_by_index = kind in ("Index Scan", "Index Only Scan", "Bitmap Index Scan")
    is_first = (ends_at_once or node.get("Parent Relationship") == "InitPlan") and "Filter" not in node
    if kind == "Seq Scan" and table in _GROWS and not is_first:
        yield f"table {table}"
    if is_by_index and "Index Cond" not in node and index not in _FEW and not is_first and index.startswith(_OF_THEM):
        yield f"index {index}"
    for below in node.get("Plans", ()):
        yield from _read_whole(below, ends_at_once=kind == "Limit" and node["Plan Rows"] == 1)


@pytest.fixture
def new_home() -> Iterator[Callable[[], Home]]:
    """Gives namespaces."""
    yield lambda: _postgres(Path())
    postgres.give_back()


@contextmanager
def connected(journal: Journal) -> Iterator[PgConnection]:
    """A connection as a journal has it."""
    assert isinstance(journal, PostgresJournal)
    with closing(journal._postgres._connected()) as connection:
        yield connection


@pytest.mark.slow
@pytest.mark.parametrize("before", _STATISTICS.values(), ids=_STATISTICS)
async def test_no_statement_reads_a_whole_table_of_a_database(
    new_home: Callable[[], Home], told: Statements, before: str, clock: Clock
) -> None:
    """A journal that has grown by ten thousand orders since: every statement finds its few rows by an index."""
    home = new_home()
    async with home.opens(state_folder=None) as journal:
        await orders_live(journal)
    async with new_home().opens(state_folder=None) as journal:
        await changes_live(journal, dict(told))
    async with new_home().opens(state_folder=None, clock=clock) as journal:
        await orders_leave(journal, clock, dict(told))
    asked = {sql: values for sql, values in told.items() if sql.lstrip().startswith(_PLANNED)}
    async with home.opens(state_folder=None) as journal:
        with connected(journal) as connection:
            planner = Planner(connection)
            connection.raw.execute(before.encode())
            connection.script(_CROWD % {"last": 10_000})
            unseen = {sql: found for sql, values in asked.items() if (found := planner.whole(sql, values))}
            connection.script("ANALYZE")
            seen = {sql: found for sql, values in asked.items() if (found := planner.whole(sql, values))}
    assert len(asked) > 150
    assert {} == unseen
    assert {} == seen


@pytest.mark.parametrize(
    ("signal", "before"), [*zip((Signal.ACCEPTED, Signal.REJECTED), _STATISTICS.values(), strict=True)]
)
async def test_ends_of_attempts_are_looked_up_one_by_one(told: Statements, before: str, signal: Signal) -> None:
    """Each of a thousand is found by its number, also in a table that was all but empty when the server saw it last."""
    outbox, _, _ = _CROWD.partition(";")
    schema = f"grows_{len(before)}_{signal}"  # another test may have had a look at one that is lent
    async with PostgresJournal(postgres.dsn(), schema=schema, state_folder=None) as journal:
        permit = await permitted(journal, await claimed(journal))
        await journal.record(Outcome(permit=permit, signal=signal, **_ENDED_AS[signal]))
        (sql,) = [sql for sql in told if "(UPDATE outbox SET state = " in sql and "unnest" in sql]
        now, *columns, answer = told[sql]
        with connected(journal) as connection:
            connection.raw.execute(before.encode())
            connection.script(outbox.replace("'planned'", "'accepted'") % {"last": 10_000})
            values = [now, *(column * 1000 for column in columns), answer]  # type: ignore[operator]
            plan = Planner(connection).plan(sql, values)
    (loop,) = [node for node in _nodes(plan) if node["Node Type"] == "Nested Loop"]
    outer, inner = loop["Plans"]
    looked_up = {(node.get("Index Name"), node["Index Cond"]) for node in _nodes(inner) if "Index Cond" in node}
    assert "Function Scan" == outer["Node Type"]
    assert ("outbox_pkey", "(id = given.column1)") in looked_up


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A plan and all that it is made of."""
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


_ENDED_AS: Mapping[Signal, dict[str, Any]] = {
    Signal.ACCEPTED: {"transaction_id": transaction_id(1)},
    Signal.REJECTED: {"code": 7, "message": "no"},
}


async def test_a_plan_is_made_anew_when_it_is_old() -> None:
    """One that was made while nothing was in a table is not kept for the million that comes in the next minutes."""
    now = 0.0
    # one that is lent holds the pages of what another test has put there
    async with PostgresJournal(postgres.dsn(), schema="never_filled", state_folder=None) as journal:
        with connected(journal) as usual:
            asked_at: list[tuple[str, float]] = []

            class Told(psycopg.Cursor):
                def execute(self, query: Any, *values: Any, **options: Any) -> Any:
                    asked_at.append((query, now))
                    return super().execute(query, *values, **options)

            usual.raw.cursor_factory = Told
            connection = PgConnection(usual.raw, clock=lambda: now)
            rows = "SELECT count(*) FROM ipn_event WHERE peer = ?"
            for _ in range(5):
                connection.execute(rows, ("192.0.2.7",))
            prepared = connection.execute("SELECT name FROM pg_prepared_statements WHERE statement LIKE '%peer%'")
            ((name,),) = prepared.fetchall()
            found = []
            for now in (0.0, 1.0, 60.0):
                plan = connection.script(f"EXPLAIN (FORMAT JSON) EXECUTE \"{name}\"('192.0.2.7')")
                assert plan is not None
                found.append(plan[0][0]["Plan"]["Plans"][0]["Plan Rows"])
                if now == 0.0:
                    connection.script(_CROWD % {"last": 1000})
    # the server may do so by itself before, as when another test makes many tables in a database of its own
    assert [60.0] == [at for asked, at in asked_at if asked == "DISCARD PLANS"]
    assert found[0] < found[2]


_OF_THEM = tuple(f"{table}_" for table in _GROWS)

"""How SQLite finds the rows that the journal asks for: by an index, however many there are."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from journal.factories import BATCH, Clock, claimed, delivery, event, in_outbox, order, permitted, swept, transaction_id

from payments_async.journal import News, SqliteJournal, State
from payments_async.journal._sqlite import _opening
from payments_async.journal._statements import _entries, _history
from payments_async.journal.contract import Evidence, Outcome

LARGE = (
    "outbox", "o", "evidence", "v", "attempt", "resolution", "ipn_event", "e", "ipn_delivery", "change", "archived",
)  # fmt: skip
STOPS_AT_ONCE = "EXISTS (SELECT 1 FROM outbox)"  # its plan is a scan, which ends at the first row
INDEXED = (State.UNKNOWN, State.PARKED, State.ACCEPTED, State.REJECTED)


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


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    """How SQLite goes about a statement."""
    found = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?"))
    return [words for *_, words in found]


@contextmanager
def an_empty_file() -> Iterator[sqlite3.Connection]:
    """All tables, without a row."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for sql in _opening._FIRST:
            connection.execute(sql)
        yield connection


async def test_nothing_that_happens_to_a_change_reads_a_whole_table(tmp_path: Path, asked: set[str]) -> None:
    """Waiting, claiming, retrying, finishing, reviving, forgetting: a million that are over cost nothing."""
    async with SqliteJournal(tmp_path / "journal.db", state_folder=None) as journal:
        chunk = await in_outbox(journal, 3)
        await journal.hear("shop", [State.ACCEPTED, State.REJECTED])
        asked.clear()
        for place in range(3):
            await journal.record(Outcome(permit=await permitted(journal, chunk, place), news=News.ACCEPTED))
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
    with an_empty_file() as connection:
        words = ("SELECT", "UPDATE", "INSERT", "DELETE")
        about = [sql for sql in asked if "change" in sql and sql.lstrip().startswith(words)]
        scans = {sql: steps for sql in about if (steps := [step for step in plan(connection, sql) if _is_scan(step)])}
        (due,) = [plan(connection, sql) for sql in about if "due_at <= ?" in sql]
    assert len(about) > 15
    assert {} == scans
    assert ["SEARCH change USING INDEX change_due (outbox=? AND state=? AND due_at<?)"] == due  # none is sorted


async def test_nothing_that_happens_to_an_order_reads_a_whole_table(tmp_path: Path, asked: set[str]) -> None:
    """Loading, permits, answers, notifications, evidence, sweeps and looking: no plan scans one that grows."""
    async with SqliteJournal(tmp_path / "journal.db", state_folder=None) as journal:
        chunk = await claimed(journal, 6)
        first = await permitted(journal, chunk, 0)
        accepted = Outcome(permit=first, news=News.ACCEPTED, transaction_id=transaction_id(0))
        second = await permitted(journal, chunk, 1, after=accepted)
        await journal.record(Outcome(permit=second, news=News.UNKNOWN))
        third = await permitted(journal, chunk, 2)
        await journal.record(Outcome(permit=third, news=News.NOT_SENT))
        await permitted(journal, chunk, 3)
        await journal.renew_chunk(chunk)
        await journal.release_chunk(chunk)
        await journal.expire_chunks()
        for number in (0, 1):
            await journal.receive(delivery(), event(0, number), owner="r", lease=30)
        await journal.park(order(3).request_id, detail="nowhere")
        await journal.apply_evidence(
            Evidence(news=News.LOOKED_UP_SUCCESSFUL, source="list", transaction_id=transaction_id(0))
        )
        await journal.write_off(order(3).request_id, who="Grace", why="asked them")
        await journal.acknowledge(order(0).request_id, who="Grace", why="asked them")
        await swept(journal)
        await journal.entries_of([order(0).request_id])
        await journal.entries_of([order(0).request_id], in_mixed_letters=True)
        for batch in (None, BATCH):
            await journal.sent_since(batch, tuple(State))
            await journal.progress(batch)
            for state in (None, *State):
                assert all([entry.batch_id == BATCH async for entry in journal.entries(batch, state)])
            assert [] == [entry async for entry in journal.conflicts(batch)]
        for state in (State.UNKNOWN, State.PARKED, State.ACCEPTED):
            assert [] == [page async for page in journal.open_orders("shop", state)]
        await journal.is_looked_for(BATCH)
        await journal.final_events(order(0).request_id, transaction_id(0))
        await journal.history(order(0).request_id)
    with an_empty_file() as connection:
        orders = [sql for sql in asked if sql.lstrip().startswith(("SELECT", "UPDATE", "INSERT", "DELETE", "WITH"))]
        scans = {sql: [step for step in plan(connection, sql) if _is_scan(step)] for sql in orders}
    assert len(orders) > 50
    assert {} == {sql: steps for sql, steps in scans.items() if steps and not sql.endswith(STOPS_AT_ONCE)}


async def test_nothing_that_leaves_reads_a_whole_table(tmp_path: Path, asked: set[str]) -> None:
    """Leaving, being told of later, and looked for: a page costs the same, however many have left before it."""
    clock = Clock()
    async with SqliteJournal(tmp_path / "journal.db", state_folder=None, clock=clock) as journal:
        chunk = await in_outbox(journal, 3)
        for place in range(3):
            await journal.record(Outcome(permit=await permitted(journal, chunk, place), news=News.REJECTED))
        clock.pass_(1e7)
        asked.clear()
        archive = await journal.begin_archive("file", who="Grace", why="old")
        async for page in journal.old_orders(older_than=1e6):
            assert 3 == await journal.prune_orders(archive, page)
        await journal.end_archive(archive)
        gone = order(0, batch="shop")
        assert 1 == len(await journal.archived_of([gone.request_id.upper()], in_any_letters=True))
        late = Evidence(news=News.LOOKED_UP_SUCCESSFUL, source="list", transaction_id=transaction_id(0))
        assert await journal.apply_evidence(late) is None
        assert (await journal.put("shop", gone)).entry.state is State.REJECTED
        await journal.oldest("shop")
    with an_empty_file() as connection:
        words = ("SELECT", "UPDATE", "INSERT", "DELETE")
        plans = {sql: plan(connection, sql) for sql in list(asked) if sql.lstrip().startswith(words)}
        scans = {sql: steps for sql, found in plans.items() if (steps := [step for step in found if _is_scan(step)])}
    assert len(plans) > 25
    assert {} == {sql: steps for sql, steps in scans.items() if "NOT EXISTS (SELECT 1 FROM archived)" not in sql}


@pytest.mark.parametrize("state", INDEXED)
def test_orders_in_a_state_that_is_looked_for_are_found_by_its_own_index(asked: set[str], state: State) -> None:
    """A batch of a million with three unknown ones: three rows are read, for their entries and their first permit."""
    with an_empty_file() as connection:
        asked.clear()
        _entries.entries_after(None, state)(connection, after=-1)
        _history.sent_since(connection, None, [state], 0.0)
        steps = [step for sql in list(asked) if f"'{state.value}'" in sql for step in plan(connection, sql)]
    of_orders = [step for step in steps if step.startswith(("SCAN o ", "SEARCH o "))]
    assert len(of_orders) == 3
    assert all(step.startswith("SEARCH o USING INDEX outbox_") for step in of_orders), of_orders


def _is_scan(step: str) -> bool:
    """Whether a step reads every row of a table that grows; an index of a few of them may be read whole."""
    words = step.split()
    is_by_index = "INDEX" in words and any(name in words for name in _PARTIAL)
    return words[0] == "SCAN" and words[1] in LARGE and not is_by_index


_PARTIAL = (
    "outbox_conflict", "ipn_event_doubt", "ipn_event_nameless", "ipn_event_dead", "ipn_event_disputed",
    "change_due", "change_dead",
)  # fmt: skip

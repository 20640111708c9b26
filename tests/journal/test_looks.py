"""A look into the queue finds what is due without reading what waits, however much that is."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payments_async.journal._sqlite._opening import migrate
from payments_async.journal._statements import _deliveries
from payments_async.journal._statements._deliveries import _OLDEST
from payments_async.journal._statements._events import _IS_DUE

NOW, WAITING = 100.0, 190.0


@pytest.fixture(scope="module")
def inbox() -> Iterator[sqlite3.Connection]:
    """A file's tables in memory."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, new=True)
        yield connection


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(due=st.lists(st.sampled_from([0.0, 50.0, NOW, NOW + 1e-6, WAITING, 1e9])), limit=st.integers(1, 20))
def test_what_is_due_is_taken_in_the_sequence_of_its_moments(
    inbox: sqlite3.Connection, due: Sequence[float], limit: int
) -> None:
    """First what never failed; and of a moment that no clock which is right has written nothing waits for that."""
    ordered = sorted((at, number) for number, at in enumerate(due, 1) if at <= NOW)[:limit]
    inbox.execute("DELETE FROM delivery")
    inbox.executemany("INSERT INTO delivery (queue, about, due_at, span) VALUES ('inbox', ?, ?, 60)", enumerate(due, 1))
    found = inbox.execute(_OLDEST, ("inbox", "", NOW, limit)).fetchall()
    (is_due,) = inbox.execute(_IS_DUE, _deliveries.due_at(NOW)).fetchone()
    assert ordered == found
    assert is_due == (bool(found) or 1e9 in due)


@pytest.mark.parametrize("sql", [_OLDEST, _IS_DUE], ids=["oldest", "any"])
def test_what_is_not_due_is_not_read(inbox: sqlite3.Connection, sql: str) -> None:
    """SQLite goes through the index on when something is due, and sorts nothing."""
    plan = [str(row[3]) for row in inbox.execute(f"EXPLAIN QUERY PLAN {sql}", (0,) * sql.count("?"))]
    read = [step for step in plan if "delivery" in step]
    assert read
    assert all(
        step.startswith("SEARCH delivery USING ") and "delivery_due (queue=? AND topic=? AND due_at" in step
        for step in read
    )
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan

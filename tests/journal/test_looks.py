"""A look into the inbox finds what is due without reading what waits, and the same however many are due."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payments_async.journal._sqlite._opening import migrate
from payments_async.journal._statements._pending import _CLAIM_OF_FEW, _CLAIM_OF_MANY, _COUNT_DUE

NOW, LEASED = 100.0, 190.0


@contextmanager
def inbox(due: Sequence[float] = ()) -> Iterator[sqlite3.Connection]:
    """A file's tables in memory, with events that are due at these moments."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, new=True)
        connection.executemany("INSERT INTO ipn_pending VALUES (?, '', '', ?, 0)", enumerate(due, 1))
        yield connection


def claimed(sql: str, due: Sequence[float], limit: int) -> tuple[list[int], list[tuple[int, str, float]]]:
    """Events that one way of claiming takes, and all that is pending afterwards."""
    with inbox(due) as connection:
        found = connection.execute(sql, ("me", "my process", LEASED, NOW, limit)).fetchall()
        left = connection.execute("SELECT event_id, owner, due_at FROM ipn_pending ORDER BY event_id").fetchall()
    return sorted(number for (number,) in found), left


@pytest.mark.slow(covered=True)
@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 50.0, NOW, NOW + 1e-6, LEASED, 1e9])), st.integers(1, 20))
def test_both_ways_of_claiming_take_the_oldest_that_are_due(due: Sequence[float], limit: int) -> None:
    """Through the index where few are due, and in the order of their numbers where many are."""
    oldest = [number for number, at in enumerate(due, 1) if at <= NOW][:limit]
    left = [(number, "me", LEASED) if number in oldest else (number, "", at) for number, at in enumerate(due, 1)]
    assert (oldest, left) == claimed(_CLAIM_OF_FEW, due, limit)
    assert (oldest, left) == claimed(_CLAIM_OF_MANY, due, limit)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (_COUNT_DUE, "SEARCH ipn_pending USING COVERING INDEX ipn_pending_due (due_at<?)"),
        (_CLAIM_OF_FEW, "SEARCH ipn_pending USING COVERING INDEX ipn_pending_due (due_at<?)"),
        (_CLAIM_OF_MANY, "SCAN ipn_pending"),
    ],
    ids=["count", "few", "many"],
)
def test_what_is_not_due_is_not_read(sql: str, expected: str) -> None:
    """SQLite goes through the index on when events are due; only where many are, in the order of their numbers."""
    with inbox() as connection:
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (0,) * sql.count("?"))]
    assert expected in plan
    assert (sql == _CLAIM_OF_FEW) == ("USE TEMP B-TREE FOR ORDER BY" in plan)

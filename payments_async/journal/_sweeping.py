"""Sweeps on record: which readings of the service's list were made, and whether one counts. Asks nobody."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any

from payments_async.journal._faults import RunUnknown
from payments_async.journal._records import Sweep
from payments_async.journal._rows import bounds
from payments_async.journal._states import State
from payments_async.journal._transaction import Transaction, Work

__all__ = ["begin_sweep", "doubt", "end_sweep", "has_looked", "is_looked_for", "sent_since", "sweeps"]

_UNFINISHED = "it was broken off"
_COLUMNS = "s.id, r.batch_id, s.since, s.until, s.begun_at, s.ended_at, s.rows, s.requests, s.counted, s.problem"
_MOST = 1000  # that are told of: whoever reconciles each minute makes half a million in a year
_TICK = 0.001  # seconds
_DOUBTED = "(SELECT coalesce(max(quarantined_at), 0) FROM run)"


def doubt(transaction: Transaction, runs: Iterable[int] | None = None) -> None:
    """What was sent since may be unknown to this file: no reading of the list of before counts any more.

    Args:
        runs: Those of which that is true; all by default.
    """
    # later than every doubt before, also where the clock was set back since: readings are told apart by that alone
    (moment,) = transaction.execute(
        f"SELECT iif({_DOUBTED} > ?, {_DOUBTED} + {_TICK}, ?)",
        (transaction.now, transaction.now),
    ).fetchone()
    if runs is None:
        transaction.execute("UPDATE run SET quarantined_at = ?", (moment,))
    else:
        transaction.connection.executemany(
            "UPDATE run SET quarantined_at = ? WHERE id = ?", [(moment, run) for run in runs]
        )


def begin_sweep(batch_id: str | None, since: date, until: date) -> Work[Sweep]:
    """A reading of the list begins; it counts once it has ended well, unless the journal is doubted meanwhile."""

    def work(transaction: Transaction) -> Sweep:
        run = None if batch_id is None else _number(transaction, batch_id)
        (number,) = transaction.execute(
            f"""INSERT INTO sweep (run, doubted_at, since, until, begun_at, problem)
            VALUES (?, {_DOUBTED}, ?, ?, ?, ?) RETURNING id""",  # noqa: S608 - no value in it
            (run, since.isoformat(), until.isoformat(), transaction.now, _UNFINISHED),
        ).fetchone()
        return Sweep(id=number, batch_id=batch_id, since=since, until=until, begun=transaction.now)

    return work


def end_sweep(sweep: Sweep) -> Work[None]:
    """It has ended, as the one who read says."""

    def work(transaction: Transaction) -> None:
        transaction.execute(
            "UPDATE sweep SET ended_at = ?, rows = ?, requests = ?, counted = ?, problem = ? WHERE id = ?",
            (transaction.now, sweep.rows, sweep.requests, sweep.counted, sweep.problem, sweep.id),
        )

    return work


def sweeps(connection: sqlite3.Connection, batch_id: str | None) -> Sequence[Sweep]:
    """The latest readings that were made for a batch, or for any; oldest first."""
    sql = f"SELECT {_COLUMNS} FROM sweep s LEFT JOIN run r ON r.id = s.run"  # noqa: S608 - no value in it
    if batch_id is None:
        found = connection.execute(f"{sql} ORDER BY s.id DESC LIMIT ?", (_MOST,)).fetchall()
    else:
        run = _number(connection, batch_id)
        found = connection.execute(f"{sql} WHERE s.run = ? ORDER BY s.id DESC LIMIT ?", (run, _MOST)).fetchall()
    return [_sweep(values) for values in reversed(found)]


def has_looked(connection: sqlite3.Connection, *, counted: bool) -> bool:
    """Whether any list was read to its end since the journal was made, and since it was last doubted."""
    found = connection.execute(
        f"""SELECT 1 FROM sweep WHERE ended_at IS NOT NULL AND problem IS NULL AND counted >= ?
        AND doubted_at >= {_DOUBTED} LIMIT 1""",  # noqa: S608 - no value in it
        (counted,),
    ).fetchone()
    return found is not None


def is_looked_for(connection: sqlite3.Connection | Transaction, batch_id: str, *, counted: bool) -> bool:
    """Whether the list of all days since a batch was made was read for it, and since it was last doubted.

    Args:
        counted: Only a reading that showed as many rows as the service says there are.
    """
    run, doubted_at, since = connection.execute(
        """SELECT id, coalesce(quarantined_at, 0), min(created_at, coalesce(look_since, created_at)) FROM run
        WHERE batch_id = ?""",
        (batch_id,),
    ).fetchone() or (None, 0.0, 0.0)
    if run is None:
        raise RunUnknown(f"the journal holds no batch {batch_id}")
    first = datetime.fromtimestamp(since, UTC).date()  # a reading begins a day earlier, whatever the time zone
    found = connection.execute(
        """SELECT 1 FROM sweep WHERE run = ? AND ended_at IS NOT NULL AND problem IS NULL AND counted >= ?
        AND doubted_at >= ? AND since <= ? LIMIT 1""",
        (run, counted, doubted_at, first.isoformat()),
    ).fetchone()
    return found is not None


def sent_since(
    connection: sqlite3.Connection, batch_id: str | None, states: Sequence[State], after: float
) -> float | None:
    """The first permit of any order in one of these states, of earlier attempts too; ``None`` where there is none.

    Args:
        after: Unix seconds; an order whose last permit is older is left out.
    """
    first, last = (0, (1 << 63) - 1) if batch_id is None else bounds(_number(connection, batch_id))
    moments = []
    for state in states:  # one at a time and written out, so that SQLite sees that a partial index covers it
        is_one = f"o.state = '{State(state).value}' AND o.attempt > 0 AND o.permitted_at > ? AND o.id BETWEEN ? AND ?"
        moments += connection.execute(
            f"""SELECT min(o.permitted_at) FROM outbox o WHERE {is_one}
            UNION ALL SELECT min(a.permitted_at) FROM outbox o JOIN attempt a ON a.order_id = o.id
            WHERE {is_one}""",  # noqa: S608 - states only
            (after, first, last, after, first, last),
        ).fetchall()
    return min((moment for (moment,) in moments if moment is not None), default=None)


def _number(connection: sqlite3.Connection | Transaction, batch_id: str) -> int:
    found = connection.execute("SELECT id FROM run WHERE batch_id = ?", (batch_id,)).fetchone()
    if found is None:
        raise RunUnknown(f"the journal holds no batch {batch_id}")
    return int(found[0])


def _sweep(values: Sequence[Any]) -> Sweep:
    number, batch_id, since, until, begun, ended, rows, requests, counted, problem = values
    return Sweep(
        id=number, batch_id=batch_id, since=date.fromisoformat(since), until=date.fromisoformat(until), begun=begun,
        ended=ended, rows=rows, requests=requests, counted=bool(counted), problem=problem,
    )  # fmt: skip

"""What a journal on SQLite shows: runs, entries, progress. Reads only, a page at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Protocol, TypeVar

from payments_async.journal._explaining import decision, decisions, known, persons
from payments_async.journal._faults import RunUnknown
from payments_async.journal._opening import snapshot
from payments_async.journal._records import Entry, Happening, Progress, Run, RunIdentity, Standing
from payments_async.journal._rows import COLUMNS, bounds, entry_of, loose, row_by_request, run_of
from payments_async.journal._schema import MIXED
from payments_async.journal._states import State

__all__ = [
    "PAGE",
    "Pages",
    "decided",
    "entries_after",
    "entries_of",
    "entry",
    "paid_after",
    "progress",
    "run",
    "runs",
    "standings_after",
    "uid",
]

T_co = TypeVar("T_co", covariant=True)
PAGE = 500  # entries in memory at once
_EXACT = Context(prec=100)
_MAY_BE_PAID = (State.PLANNED, State.SENDING, State.UNKNOWN, State.PARKED)
_PAID = (State.ACCEPTED, State.SUCCESSFUL)
_RUNS = (
    "id, batch_id, base_address, key_fingerprint, user_id, state, source_digest, policy, quarantined_at, "
    "min(created_at, coalesce(look_since, created_at))"
)


class Pages(Protocol[T_co]):
    """Reads a page: given the number of the last order before it, what is in it and the number of its last order."""

    def __call__(self, connection: sqlite3.Connection, /, *, after: int) -> tuple[Iterable[T_co], int]: ...


def runs(connection: sqlite3.Connection) -> Sequence[Run]:
    """All batches, oldest first."""
    found = connection.execute(f"SELECT {_RUNS} FROM run ORDER BY id").fetchall()  # noqa: S608 - no value in it
    return tuple(_run(connection, values) for values in found)


def run(connection: sqlite3.Connection, batch_id: str) -> Run:
    """One batch.

    Raises:
        RunUnknown: There is none of that name.
    """
    found = connection.execute(f"SELECT {_RUNS} FROM run WHERE batch_id = ?", (batch_id,)).fetchone()  # noqa: S608
    if found is None:
        raise RunUnknown(f"the journal holds no batch {batch_id}")
    return _run(connection, found)


def entry(connection: sqlite3.Connection, request_id: str) -> Entry | None:
    """One order."""
    row = row_by_request(connection, request_id)
    if row is None:
        return None
    return entry_of(row, _batches(connection)[run_of(row.id)], _unconfirmed(connection, [row]).get(request_id, 0))


def entries_of(
    connection: sqlite3.Connection, request_ids: Sequence[str], *, in_mixed_letters: bool = False
) -> Mapping[str, Entry]:
    """Those of these orders that there are.

    Args:
        in_mixed_letters: Only those whose ids have small and capital letters, whichever they have; by their own ids.
    """
    names, found = _batches(connection), dict[str, Entry]()
    where = f"{MIXED} AND lower(request_id)" if in_mixed_letters else "request_id"
    for first in range(0, len(request_ids), PAGE):
        some = request_ids[first : first + PAGE]
        if in_mixed_letters:
            some = [request_id.lower() for request_id in some]
        sql = f"SELECT {COLUMNS} FROM outbox WHERE {where} IN ({', '.join('?' * len(some))})"  # noqa: S608
        rows = list(map(loose, connection.execute(sql, some).fetchall()))
        doubted = _unconfirmed(connection, rows)
        for row in rows:
            found[row.request_id] = entry_of(row, names[run_of(row.id)], doubted.get(row.request_id, 0))
    return found


def decided(connection: sqlite3.Connection, batch_id: str) -> Sequence[Happening]:
    """What named persons decided about a batch as a whole."""
    return decisions(connection, _number(connection, batch_id))


def standings_after(batch_id: str) -> Pages[Standing]:
    """A reader of pages of the orders of a batch, each with what brought it to where it stands.

    An order is made of its row only when it is its turn: hundreds at once would wake the garbage collector.
    """
    sql = f"SELECT {COLUMNS} FROM outbox WHERE id > ? AND id <= ? ORDER BY id LIMIT {PAGE}"  # noqa: S608

    def read(connection: sqlite3.Connection, /, *, after: int) -> tuple[Iterable[Standing], int]:
        with snapshot(connection):
            first, last = bounds(_number(connection, batch_id))
            rows = connection.execute(sql, (max(after, first - 1), last)).fetchall()
            if not rows:
                return (), after
            beside, doubted = known(connection, rows[0][0], rows[-1][0]), _unconfirmed(connection, rows)
        found = (
            Standing(
                entry=entry_of(row, batch_id, doubted.get(row.request_id, 0)),
                decision=decision(row, beside),
                persons=persons(row, beside),
            )
            for row in map(loose, rows)
        )
        return found, rows[-1][0]

    return read


def paid_after(since: float, but: str | None) -> Pages[Entry]:
    """A reader of pages of orders that may be paid yet, or were paid since then, of all batches but one."""
    may_be, paid = (", ".join(f"'{state.value}'" for state in states) for states in (_MAY_BE_PAID, _PAID))
    sql = f"""SELECT {COLUMNS} FROM outbox WHERE id > ? AND id NOT BETWEEN ? AND ?
        AND (state IN ({may_be}) OR (state IN ({paid}) AND updated_at >= ?)) ORDER BY id LIMIT {PAGE}"""  # noqa: S608

    def read(connection: sqlite3.Connection, /, *, after: int) -> tuple[Iterable[Entry], int]:
        names = _batches(connection)
        first, last = next((bounds(run) for run, name in names.items() if name == but), (-1, -1))
        start = last if first <= after + 1 <= last else after  # the others of that batch need not be looked at
        rows = connection.execute(sql, (start, first, last, since)).fetchall()
        doubted = _unconfirmed(connection, rows)
        found = (entry_of(row, names[run_of(row.id)], doubted.get(row.request_id, 0)) for row in map(loose, rows))
        return found, rows[-1][0] if rows else after

    return read


def uid(connection: sqlite3.Connection, batch_id: str) -> str:
    """What tells a batch from one of the same name that a restored file does not hold any more.

    Raises:
        RunUnknown: There is none of that name.
    """
    found = connection.execute("SELECT uid FROM run WHERE batch_id = ?", (batch_id,)).fetchone()
    if found is None:
        raise RunUnknown(f"the journal holds no batch {batch_id}")
    return str(found[0])


def entries_after(batch_id: str | None, state: str | None, *, conflicts: bool = False) -> Pages[Entry]:
    """A reader of pages of entries, in the sequence they were loaded in."""
    where = ["o.id > ?", "o.id <= ?"]
    if state is not None:
        # written out, so that SQLite sees that a partial index covers it
        where.append(f"o.state = '{State(state).value}'")
    if conflicts:
        where.append("o.conflict IS NOT NULL")
    sql = f"SELECT {COLUMNS} FROM outbox o WHERE {' AND '.join(where)} ORDER BY o.id LIMIT {PAGE}"  # noqa: S608

    def read(connection: sqlite3.Connection, /, *, after: int) -> tuple[list[Entry], int]:
        first, last = (0, (1 << 63) - 1) if batch_id is None else bounds(_number(connection, batch_id))
        names = _batches(connection)
        rows = list(map(loose, connection.execute(sql, (max(after, first - 1), last)).fetchall()))
        doubted = _unconfirmed(connection, rows)
        found = [entry_of(row, names[run_of(row.id)], doubted.get(row.request_id, 0)) for row in rows]
        return found, rows[-1].id if rows else after

    return read


def progress(connection: sqlite3.Connection, batch_id: str | None) -> Progress:
    """Counts and sums by state."""
    counts = {str(state): 0 for state in State}
    sums = {str(state): Decimal(0) for state in State}
    first, last = 0, (1 << 63) - 1
    sql: str = "SELECT state, count, total FROM tally"
    values: tuple[int, ...] = ()
    if batch_id is not None:
        number = _number(connection, batch_id)
        first, last = bounds(number)
        sql, values = f"{sql} WHERE run = ?", (number,)
    for state, count, total in connection.execute(sql, values):
        counts[state] += count
        sums[state] = _EXACT.add(sums[state], Decimal(total))
    (conflicts,) = connection.execute(
        "SELECT count(*) FROM outbox WHERE conflict IS NOT NULL AND id BETWEEN ? AND ?", (first, last)
    ).fetchone()
    (unconfirmed,) = connection.execute(
        """SELECT count(DISTINCT o.id) FROM ipn_event e CROSS JOIN outbox o ON o.request_id = e.request_id
        WHERE e.doubt = 'unconfirmed' AND e.state <> 'disputed' AND o.id BETWEEN ? AND ?""",
        (first, last),
    ).fetchone()
    return Progress(counts=counts, sums=sums, conflicts=conflicts, unconfirmed=unconfirmed)


def _unconfirmed(connection: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> dict[str, int]:
    """How many notifications about each of these orders wait to be confirmed; only of those that have any."""
    (are_there,) = connection.execute("SELECT EXISTS (SELECT 1 FROM ipn_event WHERE doubt = 'unconfirmed')").fetchone()
    if not are_there or not rows:
        return {}
    sql = f"""SELECT request_id, count(*) FROM ipn_event WHERE doubt = 'unconfirmed' AND state <> 'disputed'
        AND request_id IN ({", ".join("?" * len(rows))}) GROUP BY request_id"""  # noqa: S608 - marks only
    return dict(connection.execute(sql, [row[1] for row in rows]).fetchall())


def _run(connection: sqlite3.Connection, values: Sequence[Any]) -> Run:
    number, batch_id, address, fingerprint, user_id, state, source_digest, policy, quarantined_at, since = values
    total, amount = 0, Decimal(0)
    for count, part in connection.execute("SELECT count, total FROM tally WHERE run = ?", (number,)):
        total, amount = total + count, _EXACT.add(amount, Decimal(part))
    (quarantined,) = connection.execute(
        "SELECT count(*) FROM chunk WHERE run = ? AND state = 'quarantined'", (number,)
    ).fetchone()
    return Run(
        batch_id=batch_id,
        identity=RunIdentity(base_address=address, key_fingerprint=fingerprint, user_id=user_id),
        ready=state == "ready",
        total=total,
        amount=amount,
        source_digest=source_digest,
        policy=policy,
        quarantined=quarantined,
        quarantined_at=quarantined_at,
        look_since=since,
    )


def _number(connection: sqlite3.Connection, batch_id: str) -> int:
    found = connection.execute("SELECT id FROM run WHERE batch_id = ?", (batch_id,)).fetchone()
    if found is None:
        raise RunUnknown(f"the journal holds no batch {batch_id}")
    return int(found[0])


def _batches(connection: sqlite3.Connection) -> dict[int, str]:
    return dict(connection.execute("SELECT id, batch_id FROM run"))

"""The tray: orders put within transactions of the application's own, until whoever works the outbox takes them.

They get there without a lock and without a word with those who write the journal, and are taken as any order is put:
with the same comparisons, sightings and registry, in a commit that lets them leave the tray as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import attrs

from payments_async._values.amounts import amount_text
from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import write_order
from payments_async._wire.orders import Order
from payments_async.journal._engine._quarantine import quarantine_all
from payments_async.journal._faults import (
    JournalCorrupt,
    JournalError,
    JournalUnavailable,
    LoadBusy,
    OrderUnknown,
)
from payments_async.journal._postgres._schema import changers
from payments_async.journal._records import (
    WATCHED,
    Entry,
    Placed,
    Staged,
    body_digest,
    check_named,
    order_of,
    proved,
)
from payments_async.journal._statements import _evidence, _puts
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit, marks_for
from payments_async.journal._statements._puts import PutRequest
from payments_async.journal._states import State

_COLUMNS = (
    "id, outbox, request_id, request_key, amount, body, body_sha256, not_before, priority, at, problem, traceparent"
)
_WRITTEN = "ARRAY[CAST('{s}.tray' AS regclass), CAST('{s}.told' AS regclass)]"


def _called(function: str, arguments: str) -> str:
    """What calls a function, unless a trigger or rule of another program may drop or change what it writes.

    Not even for nothing: what it prepares while a rule is there would write nothing after that.
    """
    return f"""SELECT a.*, f.changers FROM (SELECT {changers(_WRITTEN)} AS changers OFFSET 0) f
    LEFT JOIN LATERAL (SELECT * FROM {{s}}.{function}(CAST(? AS text), {arguments})
    WHERE f.changers IS NULL OFFSET 0) a ON TRUE"""  # noqa: S608


LAY = _called(
    "lay",
    """CAST(? AS text), CAST(? AS text), CAST(? AS text), CAST(? AS text), CAST(? AS bytea), CAST(? AS bytea),
    CAST(? AS double precision), CAST(? AS bigint), new_traceparent => CAST(? AS text)""",
)
LAY_ALL = _called(
    "lay_all",
    """CAST(? AS text), CAST(? AS text[]), CAST(? AS text[]), CAST(? AS text[]), CAST(? AS bytea[]), CAST(? AS bytea[]),
    CAST(? AS double precision), CAST(? AS bigint), CAST(? AS text)""",
)
MARK_TOLD = _called("mark_told", "CAST(? AS bigint), CAST(? AS text)")


# What makes a request of an order that lies there: where it is to go, and whether it is permitted.
Asks = Callable[[int, str, Order, float, int], PutRequest]


def laid(connection: Connection, outbox: str, after: int, limit: int, *, stuck: bool) -> Sequence[Staged]:
    """Orders in the tray after this one, oldest first: those that wait, or those that could not be taken."""
    found = connection.execute(
        f"""SELECT id, request_id, amount, not_before, at, problem FROM tray
        WHERE outbox = ? AND id > ? AND problem IS {"NOT NULL" if stuck else "NULL"} ORDER BY id LIMIT ?""",  # noqa: S608
        (outbox, after, limit),
    )
    return tuple(
        Staged(id=number, request_id=request_id, amount=_amount(amount), not_before=due, at=at, problem=problem)
        for number, request_id, amount, due, at, problem in found.fetchall()
    )


def counted(connection: Connection, outbox: str) -> tuple[int, int]:
    """How many orders of an outbox lie in the tray, and how many of them could not be taken."""
    found = connection.execute("SELECT count(*), count(problem) FROM tray WHERE outbox = ?", (outbox,))
    lying, stuck = found.fetchone()
    return lying, stuck


def entry(connection: Connection, request_id: str) -> Entry | None:
    """An order in the tray, as whoever put it was told: planned. Raises ``JournalCorrupt``."""
    found = connection.execute(f"SELECT {_COLUMNS} FROM tray WHERE request_key = ?", (plain_id(request_id),))  # noqa: S608
    if (values := found.fetchone()) is None:
        return None
    row = _Row(*values)
    return planned(row.outbox, row.order(), row.at)


def was_told(connection: Connection, change_id: int, handler: str) -> bool:
    """Whether a committed transaction has marked it."""
    found = connection.execute("SELECT 1 FROM told WHERE change_id = ? AND handler = ?", (change_id, handler))
    return found.fetchone() is not None


def planned(outbox: str, order: Order, at: float) -> Entry:
    """How an order stands that lies in the tray."""
    return Entry(
        request_id=order.request_id,
        batch_id=outbox,
        state=State.PLANNED,
        order=order,
        amount=order.amount,
        updated_at=at,
    )


def take(commit: Commit, outbox: str, numbers: Sequence[int], asks: Asks) -> Mapping[int, Placed | Exception]:
    """Take orders of an outbox that still lie in the tray: where each of them is now, or why it stays."""
    found = commit.execute(
        f"DELETE FROM tray WHERE outbox = ? AND id = ANY(CAST(? AS BIGINT[])) RETURNING {_COLUMNS}",  # noqa: S608
        (outbox, list(numbers)),
    )
    results = _place(commit, [_Row(*row) for row in found.fetchall()], asks)
    if any(isinstance(result, Placed) for result in results.values()):
        commit.execute(
            f"""INSERT INTO watch (outbox, until) VALUES (?, extract(epoch FROM clock_timestamp()) + {WATCHED})
            ON CONFLICT (outbox) DO UPDATE SET until = excluded.until""",  # noqa: S608 - a number
            (outbox,),
        )
    return results


def put_all(commit: Commit, requests: Sequence[PutRequest]) -> list[Placed | Exception]:
    """Put many orders in one commit; where one lies in the tray, that came first."""
    asked = {request.key: request for request in requests}
    marks, keys = marks_for(list(asked))
    found = commit.finds_none(f"DELETE FROM tray WHERE request_key IN ({marks}) RETURNING {_COLUMNS}", keys)  # noqa: S608

    def for_anybody(_: int, outbox: str, order: Order, not_before: float, priority: int) -> PutRequest:
        own = asked[plain_id(order.request_id)]
        return attrs.evolve(
            own,
            outbox=outbox,
            order=order,
            body=write_order(order),
            not_before=not_before,
            priority=priority,
            owner=None,
            chunk=None,
            permits=False,
        )

    if found:
        _place(commit, [_Row(*row) for row in found], for_anybody)
    return _puts.put_all(commit, requests)


def drop(commit: Commit, outbox: str, request_id: str, who: str, why: str) -> None:
    """Forget an order that could not be taken, says a named person. Raises ``OrderUnknown``."""
    check_named(who, why)
    gone = commit.execute(
        "DELETE FROM tray WHERE outbox = ? AND request_key = ? AND problem IS NOT NULL RETURNING problem",
        (outbox, plain_id(request_id)),
    ).fetchone()
    if gone is None:
        raise OrderUnknown(f"no order {request_id} of the outbox {outbox} could not be taken")
    (run,) = commit.execute("SELECT id FROM run WHERE batch_id = ?", (outbox,)).fetchone()
    _evidence.resolve(commit, "dropped", who, why, run=run, evidence=f"{request_id}: {gone[0]}")


def cancel(commit: Commit, request_id: str, who: str, why: str) -> None:
    """A planned order is not to be sent; one that lies in the tray is taken first."""
    found = commit.execute(
        f"DELETE FROM tray WHERE request_key = ? AND problem IS NULL RETURNING {_COLUMNS}",  # noqa: S608
        (plain_id(request_id),),
    ).fetchall()
    _place(commit, [_Row(*row) for row in found], _for_nobody)
    _evidence.cancel(commit, request_id, who, why)


def quarantine_everything(commit: Commit, *, is_behind: bool) -> None:
    """The database may have forgotten what was sent: of what it calls new some may have been taken once before.

    So nothing stays in the tray, and all that was there waits for a person with the rest.
    """
    found = commit.execute(f"DELETE FROM tray WHERE problem IS NULL RETURNING {_COLUMNS}").fetchall()  # noqa: S608
    _place(commit, [_Row(*row) for row in found], _for_nobody)
    quarantine_all(commit, is_behind=is_behind)


def _for_nobody(_: int, outbox: str, order: Order, not_before: float, priority: int) -> PutRequest:
    """What lies in the tray, to be put into the outbox without being sent."""
    return PutRequest(
        outbox=outbox,
        order=order,
        body=write_order(order),
        not_before=not_before,
        priority=priority,
        owner=None,
        holder="",
        chunk=None,
        lease=0.0,
        permits=False,
        register=None,
    )


class _Row(NamedTuple):
    """A row of the tray."""

    id: int
    outbox: str
    request_id: str
    request_key: str
    amount: str
    body: bytes
    body_sha256: bytes
    not_before: float
    priority: int
    at: float
    problem: str | None
    traceparent: str | None

    def order(self) -> Order:
        """What it says. Raises ``JournalCorrupt``."""
        proved(self.request_id, self.amount, self.body, self.body_sha256)
        try:
            return order_of(self.request_id, Decimal(self.amount), self.body)
        except (InvalidOperation, TypeError) as error:
            raise JournalCorrupt(f"order {self.request_id} cannot be read") from error


def _place(commit: Commit, rows: Sequence[_Row], asks: Asks) -> dict[int, Placed | Exception]:
    """Put orders that were taken out of the tray; what cannot be put is laid back, and holds up none of the others."""
    results: dict[int, Placed | Exception] = {}
    requests: dict[int, PutRequest] = {}
    rows = sorted(rows)
    for row in rows:
        try:
            requests[row.id] = _request(row, asks)
        except JournalCorrupt as error:
            results[row.id] = error
    results |= zip(requests, _put(commit, list(requests.values())), strict=True)
    for row in rows:
        if isinstance(result := results[row.id], Exception):
            _lay_back(commit, row, result)
    return results


def _request(row: _Row, asks: Asks) -> PutRequest:
    """What is asked for by a row. Raises ``JournalCorrupt``."""
    request = asks(row.id, row.outbox, row.order(), row.not_before, row.priority)
    request.traceparent = row.traceparent
    if body_digest(row.request_id, amount_text(request.order.amount), request.body) != row.body_sha256:
        raise JournalCorrupt(f"order {row.request_id} was written by another version, and is not what this one reads")
    return request


def _put(commit: Commit, requests: Sequence[PutRequest]) -> list[Placed | Exception]:
    """Put many; where one of them fails in a way that nobody foresaw, each by itself."""
    if not requests:
        return []
    try:
        return commit.undoing(lambda: _puts.put_all(commit, requests))
    except JournalUnavailable:
        raise
    except commit.database.Error as error:
        if not commit.goes_on(error):
            raise
        failure: Exception = error
    except Exception as error:  # noqa: BLE001 - whose it is shows when each is done by itself
        failure = error
    if len(requests) == 1:
        return [failure]
    return [placed for request in requests for placed in _put(commit, [request])]


def _lay_back(commit: Commit, row: _Row, error: Exception) -> None:
    """Lay an order back: until the batch that holds it was loaded, or with what is the matter with it."""
    problem = None
    if not isinstance(error, LoadBusy):
        problem = error.message if isinstance(error, JournalError) else f"it failed ({type(error).__name__})"
    commit.execute(
        f"INSERT INTO tray ({_COLUMNS}) VALUES ({', '.join('?' * len(row))})",  # noqa: S608
        row._replace(problem=problem),
    )


def _amount(text: str) -> Decimal:
    """An amount, as far as it is one."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return Decimal(0)
    return amount if amount.is_finite() else Decimal(0)

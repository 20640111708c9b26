"""One row of the outbox as Python sees it, how it changes, and how its number tells its run and chunk."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from payments_async.journal._bodies import order_of, pack_transaction_id, proved, unpack_transaction_id
from payments_async.journal._records import Entry
from payments_async.journal._states import State
from payments_async.journal._transaction import Transaction

__all__ = [
    "CHUNK",
    "COLUMNS",
    "MOST_ORDERS",
    "Row",
    "bounds",
    "change",
    "chunk_bounds",
    "chunk_of",
    "entry_of",
    "loose",
    "row_by_id",
    "row_by_request",
    "rows_by_transaction",
    "run_of",
]

CHUNK = 500  # orders in one lease
_SHIFT = 28
MOST_ORDERS = 1 << _SHIFT
_STATES = {state.value: state for state in State}  # a tenth of the time that asking the enumeration takes
COLUMNS = (
    "id, request_id, state, token, attempt, sent_before, amount, body, body_sha256, transaction_id, code, message, "
    "conflict, permitted_at, updated_at"
)
_BY_ID = f"SELECT {COLUMNS} FROM outbox WHERE id = ?"  # noqa: S608 - no value in it
_BY_REQUEST = f"SELECT {COLUMNS} FROM outbox WHERE request_id = ?"  # noqa: S608
# the second condition, written out, lets SQLite use the index of those that have one
_BY_TRANSACTION = f"""SELECT {COLUMNS} FROM outbox WHERE transaction_id = ?
    AND transaction_id <> x'00000000000000000000000000000000' LIMIT 2"""  # noqa: S608
_CHANGE = """UPDATE outbox SET state = ?, transaction_id = coalesce(?, transaction_id), code = coalesce(?, code),
    message = coalesce(?, message), conflict = coalesce(conflict, ?), sent_before = max(sent_before, ?), updated_at = ?
    WHERE id = ?"""


class Row(NamedTuple):
    """The columns of an order, as stored."""

    id: int
    request_id: str
    state: State
    token: int
    attempt: int
    sent_before: bool
    amount: str
    body: bytes
    body_sha256: bytes
    transaction_id: bytes | str
    code: int | None
    message: str | None
    conflict: str | None
    permitted_at: float
    updated_at: float


def bounds(run: int) -> tuple[int, int]:
    """First and last number an order of this run can have."""
    return run << _SHIFT, ((run + 1) << _SHIFT) - 1


def chunk_bounds(run: int, number: int) -> tuple[int, int]:
    """First and last number an order of this chunk can have."""
    first = (run << _SHIFT) + number * CHUNK
    return first, first + CHUNK - 1


def run_of(order_id: int) -> int:
    """The run an order belongs to."""
    return order_id >> _SHIFT


def chunk_of(order_id: int) -> int:
    """The number of its chunk within the run."""
    return (order_id & (MOST_ORDERS - 1)) // CHUNK


def loose(values: Sequence[Any]) -> Row:
    """A row of ``COLUMNS``."""
    return Row(values[0], values[1], _STATES[values[2]], *values[3:])


def row_by_id(connection: sqlite3.Connection | Transaction, order_id: int) -> Row | None:
    """One order by its number."""
    found = connection.execute(_BY_ID, (order_id,)).fetchone()
    return None if found is None else loose(found)


def row_by_request(connection: sqlite3.Connection | Transaction, request_id: str) -> Row | None:
    """One order by its request id."""
    found = connection.execute(_BY_REQUEST, (request_id,)).fetchone()
    return None if found is None else loose(found)


def rows_by_transaction(connection: sqlite3.Connection | Transaction, transaction_id: str) -> list[Row]:
    """The orders that carry a transaction id: one, none, or two where the service contradicts itself."""
    return list(map(loose, connection.execute(_BY_TRANSACTION, (pack_transaction_id(transaction_id),))))


def entry_of(row: Row, batch_id: str, unconfirmed: int = 0) -> Entry:
    """A row as an entry, with the number of notifications about it that are not confirmed."""
    amount = Decimal(row.amount)
    body = proved(row.request_id, row.amount, row.body, row.body_sha256)
    return Entry(
        request_id=row.request_id,
        batch_id=batch_id,
        state=row.state,
        order=order_of(row.request_id, amount, body),
        amount=amount,
        attempt=row.attempt,
        transaction_id=unpack_transaction_id(row.transaction_id),
        code=row.code,
        message=row.message,
        conflict=row.conflict,
        sent_before=bool(row.sent_before),
        permitted_at=row.permitted_at if row.attempt else None,
        updated_at=row.updated_at,
        unconfirmed=unconfirmed,
    )


def change(
    transaction: Transaction,
    row: Row,
    state: State,
    *,
    transaction_id: str | None = None,
    code: int | None = None,
    message: str | None = None,
    conflict: str | None = None,
    sent_before: bool = False,
) -> None:
    """Write down what the table of states answered. ``None`` leaves a column as it is; the first conflict stands."""
    packed = pack_transaction_id(transaction_id)
    transaction.execute(_CHANGE, (state, packed, code, message, conflict, sent_before, transaction.now, row.id))
    if state is not row.state:
        amount, run = Decimal(row.amount), run_of(row.id)
        transaction.count(run, row.state, -1, amount.copy_negate())  # exact: unary minus would round
        transaction.count(run, state, 1, amount)

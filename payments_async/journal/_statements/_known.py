"""Orders as they are asked for by their request ids: those that are here, and those whose story is in an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import currency_of
from payments_async.journal._records import Archive, ArchivedOrder, Entry, Row, unpack_transaction_id
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import COLUMNS, PAGE, readable, row_of, run_of
from payments_async.journal._statements._history import late_happenings

_ARCHIVES = "SELECT id, path, who, why, begun_at, ended_at, orders FROM archive"


def orders_of(connection: Connection, request_ids: Sequence[str]) -> Mapping[str, Entry | ArchivedOrder]:
    """Those of these orders that the journal knows, by the ids asked for; a damaged one is logged and left out."""
    found: dict[str, Entry | ArchivedOrder] = {}
    for first in range(0, len(request_ids), PAGE):
        asked = {request_id: plain_id(request_id) for request_id in request_ids[first : first + PAGE]}
        sql = f"SELECT {COLUMNS} FROM outbox WHERE request_key IN ({', '.join('?' * len(asked))})"  # noqa: S608
        here: list[Sequence[Any]] = []
        gone: list[Row] = []
        for values in connection.execute(sql, list(asked.values())).fetchall():
            row = row_of(values)
            if row.archive is None:
                here.append(values)
            else:
                gone.append(row)
        orders: list[Entry | ArchivedOrder] = [*readable(connection, here)]
        orders += [_archived(connection, row) for row in gone]
        known = {plain_id(order.request_id): order for order in orders}
        found |= {request_id: known[key] for request_id, key in asked.items() if key in known}
    return found


def archives(connection: Connection) -> Sequence[Archive]:
    """All archives, oldest first."""
    return tuple(map(_archive, connection.execute(f"{_ARCHIVES} ORDER BY id").fetchall()))


def _archived(connection: Connection, row: Row) -> ArchivedOrder:
    """What is still known of an archived order."""
    (batch_id,) = connection.execute("SELECT batch_id FROM run WHERE id = ?", (run_of(row.id),)).fetchone()
    return ArchivedOrder(
        request_id=row.request_id,
        batch_id=batch_id,
        state=row.state,
        amount=Decimal(row.amount),
        currency=currency_of(row.body),
        transaction_id=unpack_transaction_id(row.transaction_id),
        updated_at=row.updated_at,
        archive=_archive(connection.execute(f"{_ARCHIVES} WHERE id = ?", (row.archive,)).fetchone()),
        late=late_happenings(connection, row.id),
    )


def _archive(values: Sequence[Any]) -> Archive:
    number, path, who, why, begun, ended, orders = values
    return Archive(id=number, path=path, who=who, why=why, begun=begun, ended=ended, orders=orders)

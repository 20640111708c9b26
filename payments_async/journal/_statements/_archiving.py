"""How old orders leave for an archive: which may, all that is known of each on a line, and what stays and is found."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs
import msgspec

from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import currency_of, request_of, without_members
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._records import (
    Archive,
    ArchivedOrder,
    Entry,
    Happening,
    OldOrder,
    Row,
    check_named,
    proved,
    unpack_transaction_id,
)
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import (
    COLUMNS,
    FAILED_BY_NOTIFICATION,
    IS_HERE,
    OUTBOX,
    PAGE,
    Commit,
    PageReader,
    among,
    batch_columns,
    bounds,
    chunk_bounds,
    chunk_of,
    readable,
    row_by_id,
    row_of,
    run_of,
    snapshot,
)
from payments_async.journal._statements._history import late_happenings, story_of
from payments_async.journal._statements._particulars import of_order
from payments_async.journal._states import FINAL

_ARCHIVES = "SELECT id, path, who, why, begun_at, ended_at, orders FROM archive"
_log = logging.getLogger("payments_async.journal")
_PAGE = 250  # orders that leave in one commit, so that nobody else waits for long
# an event that waits for a handler, that failed or that is to be confirmed keeps its order
_WAITS = """((e.doubt = 'unconfirmed' AND e.state <> 'disputed') OR EXISTS (SELECT 1 FROM delivery d
    WHERE d.queue = 'inbox' AND d.about = e.id AND d.status <> 'done'))"""
_IS_OLD = f"""o.state {among(FINAL)} AND o.conflict IS NULL AND o.updated_at < ? AND NOT ({FAILED_BY_NOTIFICATION})
    AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.order_id = o.id AND d.status <> 'done')
    AND NOT EXISTS (SELECT 1 FROM ipn_event e WHERE e.request_key = o.request_key AND {_WAITS})
    AND NOT EXISTS (SELECT 1 FROM evidence v JOIN ipn_event e ON e.id = v.event_id
        WHERE v.order_id = o.id AND {_WAITS})"""  # noqa: S608 - no value in it
_FIRST = f"SELECT o.id FROM outbox o WHERE o.id > ? AND o.{IS_HERE} AND {_IS_OLD} ORDER BY o.id LIMIT 1"  # noqa: S608
_OTHER = f"SELECT 1 FROM outbox o WHERE o.id BETWEEN ? AND ? AND o.{IS_HERE} AND NOT ({_IS_OLD}) LIMIT 1"  # noqa: S608
_OLD = f"""SELECT {COLUMNS} FROM outbox o WHERE o.id BETWEEN ? AND ? AND o.{IS_HERE} AND {_IS_OLD}
    ORDER BY o.id LIMIT {_PAGE}"""  # noqa: S608 - no value in it
# Deleted and written anew, 250 at a time: then SQLite frees more than half of the pages, for any new row. An UPDATE
# frees none of them, for their rows stay where they are: 457 bytes for an archived order in place of 197.
_KEEP = """INSERT INTO outbox (id, request_key, request_id, state, attempt, sent_before, amount, body, body_sha256,
    transaction_id, permitted_at, updated_at, archive) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_LEAVE = (
    "DELETE FROM attempt WHERE order_id = ?",
    "DELETE FROM evidence WHERE order_id = ?",
    "DELETE FROM resolution WHERE order_id = ?",
    "DELETE FROM particulars WHERE order_id = ?",
    # what a list has shown of it before it was put; that of an order which nobody has put stays, and warns of it
    "DELETE FROM sighting WHERE request_key IN (SELECT request_key FROM outbox WHERE id = ?)",
    "DELETE FROM outbox WHERE id = ?",
)
_encode = msgspec.json.Encoder().encode
_names = [field.name for field in attrs.fields(Happening)]


def begin_archive(commit: Commit, path: str, who: str, why: str) -> int:
    """Note a file that orders will leave for; tells its number."""
    check_named(who, why)
    (number,) = commit.execute(
        "INSERT INTO archive (path, who, why, begun_at) VALUES (?, ?, ?, ?) RETURNING id", (path, who, why, commit.now)
    ).fetchone()
    return int(number)


def end_archive(commit: Commit, archive: int) -> None:
    """Nothing more leaves for it."""
    commit.execute("UPDATE archive SET ended_at = ? WHERE id = ?", (commit.now, archive))


def old_after(before: float) -> PageReader[OldOrder]:
    """A reader of pages of orders that may leave: final, not contradicted, unchanged since then, and nobody waits.

    Single orders of an outbox leave one by one. A batch leaves as a whole: when every order of it may.
    """
    through: dict[int, bool] = {}

    def read(connection: Connection, /, *, after: int) -> tuple[list[OldOrder], int]:
        with snapshot(connection):
            while (found := connection.execute(_FIRST, (after, before)).fetchone()) is not None:
                first, run = found[0], run_of(found[0])
                if run not in through:
                    through[run] = _may_leave(connection, run, before)
                if not through[run]:
                    after = bounds(run)[1]
                    continue
                end = chunk_bounds(run, chunk_of(first))[1]  # what lies beside an order is read with it
                rows = [row_of(values) for values in connection.execute(_OLD, (first, end, before)).fetchall()]
                return [old for row in rows if (old := _old(connection, row)) is not None], rows[-1].id
        return [], after

    return read


def prune_orders(commit: Commit, archive: int, orders: Sequence[OldOrder]) -> int:
    """Let those of these orders leave of which nothing more is known than what was archived; tells how many."""
    leaving = [row for old in orders if (row := _unchanged(commit, old)) is not None]
    if not leaving:
        return 0
    thin = [_thinned(commit, row, archive) for row in leaving]
    for sql in _LEAVE:
        commit.connection.executemany(sql, [(row.id,) for row in leaving])
    commit.connection.executemany(_KEEP, thin)
    for run, count in Counter(run_of(row.id) for row in leaving).items():
        commit.execute("UPDATE run SET archived = archived + ? WHERE id = ?", (count, run))
    commit.execute("UPDATE archive SET orders = orders + ? WHERE id = ?", (len(leaving), archive))
    return len(leaving)


def _unchanged(commit: Commit, old: OldOrder) -> Row | None:
    """An order that may leave, unless it has left, or more is known of it than what was archived."""
    row = row_by_id(commit, old.id)
    if row is None or row.archive is not None or row.state not in FINAL:
        return None
    return row if _line(commit.connection, row) == old.line else None


def _thinned(commit: Commit, row: Row, archive: int) -> Sequence[object]:
    """What stays of an order that leaves: by what it is known again, so that it is never sent again."""
    (key,) = commit.execute("SELECT request_key FROM outbox WHERE id = ?", (row.id,)).fetchone()
    return (
        *(row.id, key, row.request_id, row.state, row.attempt, row.sent_before, row.amount),
        *(without_members(row.body), row.body_sha256, row.transaction_id, row.permitted_at, row.updated_at, archive),
    )


def _may_leave(connection: Connection, run: int, before: float) -> bool:
    """Whether orders of a run may leave one by one, or may all of them."""
    kind, state = connection.execute("SELECT kind, state FROM run WHERE id = ?", (run,)).fetchone()
    if kind == OUTBOX:
        return True
    return state == "ready" and connection.execute(_OTHER, (*bounds(run), before)).fetchone() is None


def _old(connection: Connection, row: Row) -> OldOrder | None:
    """An order with all that is known of it; ``None`` where that cannot be read: then it stays."""
    try:
        return OldOrder(id=row.id, request_id=row.request_id, line=_line(connection, row))
    except JournalCorrupt as error:
        _log.error(
            "order %s cannot be archived: %s",
            row.request_id,
            error,
            extra={"request_id": row.request_id, "error": str(error)},
        )
        return None


def _line(connection: Connection, row: Row) -> bytes:
    """All that is known of an order, the same bytes as long as nothing more is. Raises ``JournalCorrupt``."""
    body = proved(row.request_id, row.amount, row.body, row.body_sha256)
    try:
        kind, request = request_of(row.request_id, Decimal(row.amount), body)
        currency = currency_of(body)
    except ValueError as error:
        raise JournalCorrupt(f"order {row.request_id} cannot be read") from error
    (batch_id,) = batch_columns(connection, row)
    told = of_order(connection, row.id)
    return _encode(
        {
            "request_id": row.request_id,
            "batch_id": batch_id,
            **({} if told is None else {"file_row": told.file_row, "cells": told.cells}),
            "kind": kind,
            "state": row.state,
            "amount": row.amount,
            "currency": currency,
            "transaction_id": unpack_transaction_id(row.transaction_id),
            "attempt": row.attempt,
            "sent_before": bool(row.sent_before),
            "code": row.code,
            "message": row.message,
            "correlation_id": row.correlation_id,
            "permitted_at": row.permitted_at if row.attempt else None,
            "updated_at": row.updated_at,
            "order": msgspec.Raw(request),
            "story": [_told(happening) for happening in story_of(connection, row)],
        }
    )


def _told(happening: Happening) -> dict[str, Any]:
    return {name: value for name in _names if (value := getattr(happening, name)) is not None}


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
    (batch_id,) = batch_columns(connection, row)
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

"""Orders that have left for an archive: what stays of them, so that none is sent again and each is known again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import currency_of
from payments_async.journal._faults import OrdersArchived
from payments_async.journal._records import Archive, ArchivedOrder, Row, pack_transaction_id, unpack_transaction_id
from payments_async.journal._statements._database import NO_TRANSACTION, Connection
from payments_async.journal._statements._entries import PAGE, Commit, run_of
from payments_async.journal._statements._history import late_happenings
from payments_async.journal._states import State

_COLUMNS = (
    "id, request_id, state, attempt, sent_before, amount, about, body_sha256, transaction_id, permitted_at, updated_at"
)
_BY_REQUEST = f"SELECT {_COLUMNS} FROM archived WHERE request_key = ?"  # noqa: S608 - no value in it
_BY_TRANSACTION = f"""SELECT {_COLUMNS} FROM archived WHERE transaction_id = ?
    AND transaction_id <> {NO_TRANSACTION} LIMIT 2"""  # noqa: S608 - no value in it
_ARCHIVES = "SELECT id, path, who, why, begun_at, ended_at, orders FROM archive"
_SHOWN = 5  # request ids named in an error


def find_archived(connection: Connection | Commit, request_id: str | None, transaction_id: str | None) -> Row | None:
    """The archived order that evidence is about: found as one that is here would be. Of its body the kind is left."""
    found = None if request_id is None else connection.execute(_BY_REQUEST, (plain_id(request_id),)).fetchone()
    if found is None and transaction_id is not None:
        rows = connection.execute(_BY_TRANSACTION, (pack_transaction_id(transaction_id),)).fetchall()
        found = rows[0] if len(rows) == 1 else None
    return None if found is None else _row(found)


def archived_among(connection: Connection | Commit, request_ids: Sequence[str]) -> dict[str, Row]:
    """Those of these orders that have left, by the ids asked for."""
    asked = {request_id: plain_id(request_id) for request_id in request_ids}
    if not asked:
        return {}
    sql = f"SELECT {_COLUMNS} FROM archived WHERE request_key IN ({','.join('?' * len(asked))})"  # noqa: S608 - marks
    gone = {plain_id(row.request_id): row for row in map(_row, connection.execute(sql, list(asked.values())))}
    return {request_id: gone[key] for request_id, key in asked.items() if key in gone}


def check_not_archived(commit: Commit, request_ids: Sequence[str]) -> None:
    """Refuse orders that have ended long ago. Raises ``OrdersArchived``."""
    gone = archived_among(commit, request_ids)
    if not gone:
        return
    first = next(iter(gone.values()))
    (path,) = commit.execute(
        "SELECT a.path FROM archived o JOIN archive a ON a.id = o.archive WHERE o.id = ?", (first.id,)
    ).fetchone()
    more = f" and {len(gone) - 1} or more" if len(gone) > 1 else ""
    raise OrdersArchived(
        f"request id {first.request_id}{more} of these orders ended long ago ({first.state}) and left the journal for "
        f"the archive {path}; nothing is sent again",
        list(gone)[:_SHOWN],
    )


def archived_of(connection: Connection, request_ids: Sequence[str]) -> Mapping[str, ArchivedOrder]:
    """Those of these orders that have left, by the ids asked for."""
    if connection.execute("SELECT NOT EXISTS (SELECT 1 FROM archived)").fetchone()[0]:
        return {}
    found: dict[str, Row] = {}
    for start in range(0, len(request_ids), PAGE):
        found |= archived_among(connection, request_ids[start : start + PAGE])
    return {asked: _told(connection, row) for asked, row in found.items()}


def archives(connection: Connection) -> Sequence[Archive]:
    """All archives, oldest first."""
    return tuple(map(_archive, connection.execute(f"{_ARCHIVES} ORDER BY id").fetchall()))


def _told(connection: Connection, row: Row) -> ArchivedOrder:
    """What is still known of an order."""
    batch_id, number = connection.execute(
        "SELECT r.batch_id, o.archive FROM archived o JOIN run r ON r.id = ? WHERE o.id = ?", (run_of(row.id), row.id)
    ).fetchone()
    archive = connection.execute(f"{_ARCHIVES} WHERE id = ?", (number,)).fetchone()
    return ArchivedOrder(
        request_id=row.request_id,
        batch_id=batch_id,
        state=row.state,
        amount=Decimal(row.amount),
        currency=currency_of(row.body),
        transaction_id=unpack_transaction_id(row.transaction_id),
        updated_at=row.updated_at,
        archive=_archive(archive),
        late=late_happenings(connection, row.id),
    )


def _archive(values: Sequence[Any]) -> Archive:
    number, path, who, why, begun, ended, orders = values
    return Archive(id=number, path=path, who=who, why=why, begun=begun, ended=ended, orders=orders)


def _row(values: Sequence[Any]) -> Row:
    number, request_id, state, attempt, sent_before, amount, about, digest, transaction_id, permitted, updated = values
    return Row(
        id=number,
        request_id=request_id,
        state=State(state),
        token=0,
        attempt=attempt,
        sent_before=bool(sent_before),
        amount=amount,
        body=about,
        body_sha256=digest,
        transaction_id=transaction_id,
        code=None,
        message=None,
        conflict=None,
        permitted_at=permitted,
        updated_at=updated,
    )

"""Events that wait to be handled: leased, retried, given back, closed and revived. Stores no notification."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from payments_async.journal._bodies import read_event
from payments_async.journal._evidence import keep
from payments_async.journal._inbox import Backlog, StoredEvent
from payments_async.journal._records import Evidence
from payments_async.journal._rows import change, row_by_id
from payments_async.journal._states import News
from payments_async.journal._transaction import Transaction, Work

__all__ = [
    "BLOCK",
    "backlog",
    "claim",
    "close",
    "dead_after",
    "finish",
    "hold",
    "note_done",
    "release",
    "retry_later",
    "revive",
]

BLOCK = 40  # rows in one statement: every number of them is a statement of its own to prepare and to remember
_COLUMNS = "id, peer, received_at, tries, done, error, conflict, transaction_id, status_code, event, body, query"
_STATES = frozenset({"handled", "dead", "disputed"})
_PENDING = "INSERT INTO ipn_pending (owner, due_at, event_id) SELECT ?, ?, column1 FROM (VALUES "
_PENDINGS = [f"{_PENDING}{','.join(['(?)'] * ids)})" for ids in range(BLOCK + 1)]
_CLOSE = "DELETE FROM ipn_pending WHERE event_id IN ("
_CLOSES = [f"{_CLOSE}{','.join('?' * ids)})" for ids in range(BLOCK + 1)]
_HAS_FAILED = "SELECT EXISTS (SELECT 1 FROM ipn_pending WHERE failed)"
_FORGET = (
    "UPDATE ipn_event SET error = NULL WHERE id IN (SELECT event_id FROM ipn_pending WHERE failed AND event_id = ?)"
)
_names = msgspec.json.Decoder(list[str]).decode


def hold(transaction: Transaction, numbers: Sequence[int], owner: str, lease: float) -> None:
    """Make new events pending.

    Args:
        lease: Seconds they are leased to ``owner`` for; 0 leaves them to anybody.
    """
    held = (owner, transaction.now + lease) if lease > 0 else ("", transaction.now)
    for start in range(0, len(numbers), BLOCK):
        block = numbers[start : start + BLOCK]
        transaction.execute(_PENDINGS[len(block)], (*held, *block))


def close(transaction: Transaction, handled: Sequence[int]) -> None:
    """Events are handled; those that failed before have no error any more."""
    (has_failed,) = transaction.execute(_HAS_FAILED).fetchone()
    if has_failed:
        transaction.connection.executemany(_FORGET, [(number,) for number in handled])
    for start in range(0, len(handled), BLOCK):
        block = handled[start : start + BLOCK]
        transaction.execute(_CLOSES[len(block)], block)


def claim(owner: str, lease: float, limit: int) -> Work[Sequence[StoredEvent]]:
    """Lease due events, oldest first."""

    def work(transaction: Transaction) -> Sequence[StoredEvent]:
        found = transaction.execute(
            """UPDATE ipn_pending SET owner = ?, due_at = ? WHERE event_id IN (
            SELECT event_id FROM ipn_pending WHERE due_at <= ? ORDER BY event_id LIMIT ?) RETURNING event_id""",
            (owner, transaction.now + lease, transaction.now, limit),
        ).fetchall()
        select = f"SELECT {_COLUMNS} FROM ipn_event WHERE id = ?"  # noqa: S608 - no value in it
        return tuple(_stored("pending", transaction.execute(select, number).fetchone()) for number in sorted(found))

    return work


def release(owner: str) -> Work[None]:
    """Give back the leases of an owner."""

    def work(transaction: Transaction) -> None:
        transaction.execute(
            "UPDATE ipn_pending SET owner = '', due_at = ? WHERE owner = ?",
            (transaction.now, owner),
        )

    return work


def note_done(event_id: int, handler: str) -> Work[None]:
    """Remember that one handler has finished."""

    def work(transaction: Transaction) -> None:
        row = transaction.execute("SELECT done FROM ipn_event WHERE id = ?", (event_id,)).fetchone()
        if row is not None:
            done = sorted({handler, *_names(row[0] or "[]")})
            transaction.execute(
                "UPDATE ipn_event SET done = ? WHERE id = ?", (msgspec.json.encode(done).decode(), event_id)
            )

    return work


def finish(event_id: int, state: str, error: str | None) -> Work[None]:
    """Close a pending event; a disputed one is shown at its order too, which it may have settled wrongly."""
    if state not in _STATES:
        raise ValueError(f"state: an event ends as one of {', '.join(sorted(_STATES))}")

    def work(transaction: Transaction) -> None:
        if not transaction.execute("DELETE FROM ipn_pending WHERE event_id = ?", (event_id,)).rowcount:
            return
        closed = transaction.execute(
            "UPDATE ipn_event SET state = ?, error = ? WHERE id = ? RETURNING order_id, peer, transaction_id",
            (state, error, event_id),
        ).fetchall()
        for order_id, peer, transaction_id in closed:
            row = None if order_id is None else row_by_id(transaction, order_id)
            if state == "disputed" and row is not None:
                words = f"the service's record disagrees with a notification: {error}"
                change(transaction, row, row.state, conflict=words)
                disputed = Evidence(
                    news=News.LOOKED_UP_PROCESSING, source=f"record against notification {peer}",
                    request_id=row.request_id, transaction_id=transaction_id,
                )  # fmt: skip
                keep(transaction, row, disputed, row.state, words)

    return work


def retry_later(event_id: int, delay: float, error: str) -> Work[None]:
    """Count a round and make the event due again later."""

    def work(transaction: Transaction) -> None:
        later = transaction.execute(
            "UPDATE ipn_pending SET owner = '', due_at = ?, failed = 1 WHERE event_id = ?",
            (transaction.now + delay, event_id),
        )
        if later.rowcount:
            transaction.execute("UPDATE ipn_event SET tries = tries + 1, error = ? WHERE id = ?", (error, event_id))

    return work


def revive(event_id: int | None) -> Work[int]:
    """Make dead events pending again."""

    def work(transaction: Transaction) -> int:
        transaction.execute(
            """INSERT INTO ipn_pending (event_id, owner, due_at, failed)
            SELECT id, '', ?, 1 FROM ipn_event WHERE state = 'dead' AND coalesce(? = id, TRUE)""",
            (transaction.now, event_id),
        )
        return transaction.execute(
            "UPDATE ipn_event SET state = 'handled', tries = 0 WHERE state = 'dead' AND coalesce(? = id, TRUE)",
            (event_id,),
        ).rowcount

    return work


def dead_after(connection: sqlite3.Connection, after: int, limit: int) -> list[StoredEvent]:
    """Dead events after this one, oldest first."""
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM ipn_event WHERE state = 'dead' AND id > ? ORDER BY id LIMIT ?",  # noqa: S608
        (after, limit),
    )
    return [_stored("dead", values) for values in found.fetchall()]


def backlog(connection: sqlite3.Connection) -> Backlog:
    """How much is waiting."""
    (pending,) = connection.execute("SELECT count(*) FROM ipn_pending").fetchone()
    (dead,) = connection.execute("SELECT count(*) FROM ipn_event WHERE state = 'dead'").fetchone()
    oldest = connection.execute(
        "SELECT received_at FROM ipn_event WHERE id = (SELECT min(event_id) FROM ipn_pending)"
    ).fetchone()
    return Backlog(pending=pending, dead=dead, oldest=None if oldest is None else oldest[0])


def _stored(state: str, values: Sequence[Any]) -> StoredEvent:
    event_id, peer, received_at, tries, done, error, conflict, *stored = values
    return StoredEvent(
        event_id=event_id,
        event=read_event(*stored),
        peer=peer,
        received_at=received_at,
        state=state,
        tries=tries,
        done=frozenset(_names(done or "[]")),
        error=error,
        conflict=conflict,
    )

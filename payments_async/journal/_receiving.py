"""The inbox on SQLite: deliveries stored, events leased, handled and revived. Decides nothing of orders itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import msgspec

from payments_async._events import TransactionEvent
from payments_async.journal._bodies import pack_event, read_event
from payments_async.journal._evidence import apply_event, find, keep
from payments_async.journal._inbox import Backlog, Delivery, Receipt, StoredEvent
from payments_async.journal._records import Evidence
from payments_async.journal._rows import change, row_by_id
from payments_async.journal._states import News
from payments_async.journal._writer import Transaction, Work

__all__ = [
    "backlog",
    "claim",
    "dead_after",
    "final_event",
    "finish",
    "note_done",
    "receive",
    "release",
    "retry_later",
    "revive",
    "unmatched",
]

_EXACT = Context(prec=1000)  # an amount in a notification is bounded, but not to the usual 28 digits
_COLUMNS = "id, transaction_id, status_code, event, peer, received_at, state, tries, done, error, conflict"
_FINAL = (0, 2)
_STATES = frozenset({"handled", "dead", "disputed"})
_names = msgspec.json.Decoder(list[str]).decode


def receive(delivery: Delivery, event: TransactionEvent, owner: str, lease: float) -> Work[Receipt]:
    """Store a delivery and its event, and let it settle its order."""

    def work(transaction: Transaction) -> Receipt:
        fact = (event.transaction_id, event.status_code, _magnitude(event.amount))
        known = transaction.execute(
            "SELECT id, conflict FROM ipn_event WHERE transaction_id = ? AND status_code = ? AND amount = ?", fact
        ).fetchone()
        if known is not None:
            _store(transaction, delivery, known[0])
            return Receipt(event_id=known[0], is_new=False, conflict=known[1])
        conflict = _contradiction(transaction, event)
        held = (owner, transaction.now + lease) if lease > 0 else (None, transaction.now)
        event_id = transaction.execute(
            """INSERT INTO ipn_event (transaction_id, status_code, amount, request_id, event, peer, received_at,
            conflict, owner, due_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (*fact, event.request_id, pack_event(event), delivery.peer, delivery.received_at, conflict, *held),
        ).lastrowid
        assert event_id is not None
        transaction.known.clear()
        _store(transaction, delivery, event_id)
        transaction.passed("receive.stored")
        row = find(transaction, event.request_id, event.transaction_id)
        if row is not None:
            at = delivery.received_at
            finding = apply_event(transaction, row, event, event_id=event_id, peer=delivery.peer, at=at)
            if conflict is None and finding.conflict is not None:
                conflict = finding.conflict
                transaction.execute("UPDATE ipn_event SET conflict = ? WHERE id = ?", (conflict, event_id))
        return Receipt(event_id=event_id, is_new=True, conflict=conflict)

    return work


def claim(owner: str, lease: float, limit: int) -> Work[Sequence[StoredEvent]]:
    """Lease due events, oldest first."""

    def work(transaction: Transaction) -> Sequence[StoredEvent]:
        found = transaction.execute(
            f"""UPDATE ipn_event SET owner = ?, due_at = ? WHERE id IN (
            SELECT id FROM ipn_event WHERE state = 'pending' AND due_at <= ? ORDER BY id LIMIT ?)
            RETURNING {_COLUMNS}""",  # noqa: S608 - no value in it
            (owner, transaction.now + lease, transaction.now, limit),
        ).fetchall()
        return tuple(_stored(values) for values in sorted(found, key=lambda values: int(values[0])))

    return work


def release(owner: str) -> Work[None]:
    """Give back the leases of an owner."""

    def work(transaction: Transaction) -> None:
        transaction.execute(
            "UPDATE ipn_event SET owner = NULL, due_at = ? WHERE owner = ? AND state = 'pending'",
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
        closed = transaction.execute(
            """UPDATE ipn_event SET state = ?, error = ?, owner = NULL WHERE id = ? AND state = 'pending'
            RETURNING order_id, status_code, peer, transaction_id""",
            (state, error, event_id),
        ).fetchall()
        for order_id, _status, peer, transaction_id in closed:
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
        transaction.execute(
            """UPDATE ipn_event SET tries = tries + 1, owner = NULL, due_at = ?, error = ?
            WHERE id = ? AND state = 'pending'""",
            (transaction.now + delay, error, event_id),
        )

    return work


def revive(event_id: int | None) -> Work[int]:
    """Make dead events pending again."""

    def work(transaction: Transaction) -> int:
        return transaction.execute(
            """UPDATE ipn_event SET state = 'pending', tries = 0, owner = NULL, due_at = ?
            WHERE state = 'dead' AND coalesce(? = id, TRUE)""",
            (transaction.now, event_id),
        ).rowcount

    return work


def dead_after(connection: sqlite3.Connection, after: int, limit: int) -> list[StoredEvent]:
    """Dead events after this one, oldest first."""
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM ipn_event WHERE state = 'dead' AND id > ? ORDER BY id LIMIT ?",  # noqa: S608
        (after, limit),
    )
    return list(map(_stored, found.fetchall()))


def final_event(connection: sqlite3.Connection, request_id: str) -> TransactionEvent | None:
    """The first final event of an order that nothing contradicts."""
    found = connection.execute(
        """SELECT transaction_id, status_code, event FROM ipn_event WHERE request_id = ? AND status_code IN (0, 2)
        AND state <> 'disputed' AND conflict IS NULL ORDER BY id LIMIT 1""",
        (request_id,),
    ).fetchone()
    return None if found is None else read_event(*found)


def backlog(connection: sqlite3.Connection) -> Backlog:
    """How much is waiting."""
    (pending,) = connection.execute("SELECT count(*) FROM ipn_event WHERE state = 'pending'").fetchone()
    (dead,) = connection.execute("SELECT count(*) FROM ipn_event WHERE state = 'dead'").fetchone()
    oldest = connection.execute(
        "SELECT received_at FROM ipn_event WHERE state = 'pending' ORDER BY id LIMIT 1"
    ).fetchone()
    return Backlog(pending=pending, dead=dead, oldest=None if oldest is None else oldest[0])


def unmatched(connection: sqlite3.Connection) -> int:
    """Events of orders the outbox does not hold."""
    (count,) = connection.execute("SELECT count(*) FROM ipn_event WHERE order_id IS NULL").fetchone()
    return int(count)


def _store(transaction: Transaction, delivery: Delivery, event_id: int) -> None:
    transaction.execute(
        """INSERT INTO ipn_delivery (digest, body, query, peer, received_at, event_id, last_at)
        VALUES (?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (digest) DO UPDATE SET times = times + 1, last_at = excluded.last_at""",
        (
            delivery.digest, delivery.body, delivery.query, delivery.peer, delivery.received_at, event_id,
            delivery.received_at,
        ),
    )  # fmt: skip


def _contradiction(transaction: Transaction, event: TransactionEvent) -> str | None:
    final = transaction.execute(
        """SELECT status_code, amount FROM ipn_event WHERE transaction_id = ? AND status_code IN (0, 2)
        AND state <> 'disputed' AND conflict IS NULL ORDER BY id LIMIT 1""",
        (event.transaction_id,),
    ).fetchone()
    if final is None:
        return None
    status_code, amount = final
    if event.status_code in _FINAL and event.status_code != status_code:
        return f"status code {event.status_code} after the final {status_code}"
    magnitude = _magnitude(event.amount)
    if magnitude and amount and magnitude != amount:
        return f"amount {magnitude} after {amount}"
    return None


def _magnitude(amount: Decimal | None) -> str:
    """Equal texts for equal magnitudes: payouts are negative in records, and 500 is 500.00."""
    return "" if amount is None else format(_EXACT.normalize(_EXACT.abs(amount)), "f")


def _stored(values: Sequence[Any]) -> StoredEvent:
    event_id, transaction_id, status_code, packed, peer, received_at, state, tries, done, error, conflict = values
    return StoredEvent(
        event_id=event_id,
        event=read_event(transaction_id, status_code, packed),
        peer=peer,
        received_at=received_at,
        state=state,
        tries=tries,
        done=frozenset(_names(done or "[]")),
        error=error,
        conflict=conflict,
    )

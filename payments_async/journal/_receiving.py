"""The inbox on SQLite: deliveries stored, events leased, handled and revived. Decides nothing of orders itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import msgspec

from payments_async._events import TransactionEvent
from payments_async.journal._bodies import pack_event, read_event
from payments_async.journal._evidence import apply_event, find, keep
from payments_async.journal._inbox import Arrival, Backlog, Delivery, Receipt, StoredEvent
from payments_async.journal._opening import translated
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
    "receive_all",
    "release",
    "retry_later",
    "revive",
    "unmatched",
]

T = TypeVar("T")
_EXACT = Context(prec=1000)  # an amount in a notification is bounded, but not to the usual 28 digits
_COLUMNS = "id, transaction_id, status_code, event, peer, received_at, state, tries, done, error, conflict"
_FINAL = (0, 2)
_STATES = frozenset({"handled", "dead", "disputed"})
_BLOCK = 40  # rows in one statement: every number of them is a statement of its own to prepare and to remember
_DELIVERY = "INSERT INTO ipn_delivery (digest, body, query, peer, received_at, event_id, last_at) VALUES "
_ONE_DELIVERY = "(?, ?, ?, ?, ?, ?, ?)"
_AGAIN = f"""{_DELIVERY} {_ONE_DELIVERY}
    ON CONFLICT (event_id, digest) DO UPDATE SET times = times + 1, last_at = excluded.last_at"""
_EVENT = """INSERT INTO ipn_event (id, transaction_id, status_code, amount, request_id, event, peer, received_at, state,
    owner, due_at) VALUES """
_ONE_EVENT = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CLOSE = "UPDATE ipn_event SET state = 'handled', error = NULL, owner = NULL WHERE state = 'pending' AND id IN ("
_DELIVERIES = [_DELIVERY + ",".join([_ONE_DELIVERY] * rows) for rows in range(_BLOCK + 1)]
_EVENTS = [
    f"{_EVENT}{','.join([_ONE_EVENT] * rows)} ON CONFLICT (transaction_id, status_code, amount) DO NOTHING"
    for rows in range(_BLOCK + 1)
]
_CLOSES = [f"{_CLOSE}{','.join('?' * ids)})" for ids in range(_BLOCK + 1)]
_STANDING = "SELECT coalesce(max(id), 0), EXISTS (SELECT 1 FROM outbox) FROM ipn_event"
_SAID_BEFORE = """SELECT id FROM ipn_event AS new WHERE id >= ? AND EXISTS (
    SELECT 1 FROM ipn_event AS old WHERE old.transaction_id = new.transaction_id AND old.id < new.id)"""
_encode = msgspec.json.Encoder().encode
_names = msgspec.json.Decoder(list[str]).decode


def receive_all(arrivals: Sequence[Arrival], owner: str, handled: Sequence[int]) -> Work[Sequence[Receipt | Exception]]:
    """Store deliveries and their events, and let them settle their orders; close events that were handled."""

    def work(transaction: Transaction) -> Sequence[Receipt | Exception]:
        for block in _blocks(handled):
            transaction.execute(_CLOSES[len(block)], block)
        if not arrivals:
            return ()
        try:
            return transaction.undoing(partial(_store_all, transaction, arrivals, owner))
        except Exception as error:
            if isinstance(error, sqlite3.Error) and not transaction.goes_on(error):
                raise
        return [_store_one(transaction, arrival, owner) for arrival in arrivals]

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


def _store_one(transaction: Transaction, arrival: Arrival, owner: str) -> Receipt | Exception:
    """Of several that cannot be stored together: by itself, so that its failure is its own."""
    try:
        return transaction.undoing(partial(_store_all, transaction, (arrival,), owner))[0]
    except sqlite3.Error as error:
        if not transaction.goes_on(error):
            raise
        fault = translated(error)
        fault.__cause__ = error
        return fault
    except Exception as error:  # noqa: BLE001 - each arrival's failure is its own
        return error


def _store_all(transaction: Transaction, arrivals: Sequence[Arrival], owner: str) -> list[Receipt]:
    """A few statements for all: each one hands the interpreter over and back, which costs more than the row."""
    transaction.known.clear()
    last, has_orders = transaction.execute(_STANDING).fetchone()
    coming = dict(enumerate(arrivals, last + 1))
    rows = [_event_row(transaction, number, arrival, owner) for number, arrival in coming.items()]
    if len(rows) == sum(transaction.execute(_EVENTS[len(block)], _flat(block)).rowcount for block in _blocks(rows)):
        new = coming
    else:
        found = transaction.execute("SELECT id FROM ipn_event WHERE id > ? ORDER BY id", (last,)).fetchall()
        new = {number: coming[number] for (number,) in found}
    for block in _blocks([_delivery_row(arrival.delivery, number) for number, arrival in new.items()]):
        transaction.execute(_DELIVERIES[len(block)], _flat(block))
    transaction.passed("receive.stored")
    conflicts = _settle(transaction, new, owner, has_orders=has_orders) if new else {}
    return [
        Receipt(event_id=number, is_new=True, conflict=conflicts.get(number))
        if number in new
        else _repeat(transaction, arrival)
        for number, arrival in coming.items()
    ]


def _settle(transaction: Transaction, new: Mapping[int, Arrival], owner: str, *, has_orders: bool) -> dict[int, str]:
    """Let new events settle their orders, and tell which of them contradict what."""
    again = {number for (number,) in transaction.execute(_SAID_BEFORE, (min(new),)).fetchall()}
    conflicts = {}
    for number in new if has_orders else sorted(again):
        event, delivery = new[number].event, new[number].delivery
        conflict = _contradiction(transaction, event, number) if number in again else None
        row = find(transaction, event.request_id, event.transaction_id) if has_orders else None
        if row is not None:
            peer, at = delivery.peer, delivery.received_at
            finding = apply_event(transaction, row, event, event_id=number, peer=peer, at=at)
            conflict = finding.conflict if conflict is None else conflict
        if conflict is not None:
            conflicts[number] = conflict
            transaction.execute(
                "UPDATE ipn_event SET conflict = ?, state = 'pending', owner = ?, due_at = ? WHERE id = ?",
                (conflict, *_held(transaction, new[number].lease, owner), number),
            )
    return conflicts


def _repeat(transaction: Transaction, arrival: Arrival) -> Receipt:
    """A delivery of an event that is known: the same again is counted, other words for it are kept."""
    event_id, conflict = transaction.execute(
        "SELECT id, conflict FROM ipn_event WHERE transaction_id = ? AND status_code = ? AND amount = ?",
        _fact(arrival.event),
    ).fetchone()
    transaction.execute(_AGAIN, _delivery_row(arrival.delivery, event_id))
    return Receipt(event_id=event_id, is_new=False, conflict=conflict)


def _event_row(transaction: Transaction, number: int, arrival: Arrival, owner: str) -> tuple[object, ...]:
    delivery, event = arrival.delivery, arrival.event
    held = (None, transaction.now) if arrival.unheard else _held(transaction, arrival.lease, owner)
    return (
        number, *_fact(event), event.request_id, _packed(event), delivery.peer, delivery.received_at,
        "handled" if arrival.unheard else "pending", *held,
    )  # fmt: skip


def _delivery_row(delivery: Delivery, event_id: int) -> tuple[object, ...]:
    at = delivery.received_at
    return delivery.digest, delivery.body, delivery.query, delivery.peer, at, event_id, at


def _held(transaction: Transaction, lease: float, owner: str) -> tuple[str | None, float]:
    return (owner, transaction.now + lease) if lease > 0 else (None, transaction.now)


def _fact(event: TransactionEvent) -> tuple[str, int, str]:
    return event.transaction_id, event.status_code, _magnitude(event.amount)


def _flat(rows: Sequence[tuple[object, ...]]) -> list[object]:
    return list(chain.from_iterable(rows))


def _blocks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(rows), _BLOCK):
        yield rows[start : start + _BLOCK]


def _packed(event: TransactionEvent) -> bytes:
    """What ``pack_event`` gives, of an event without gaps in half the time."""
    members = event.__dict__.copy()
    del members["transaction_id"], members["status_code"], members["event_id"]
    return pack_event(event) if members.pop("extra") or None in members.values() else _encode(members)


def _contradiction(transaction: Transaction, event: TransactionEvent, event_id: int) -> str | None:
    final = transaction.execute(
        """SELECT status_code, amount FROM ipn_event WHERE transaction_id = ? AND status_code IN (0, 2)
        AND id < ? AND state <> 'disputed' AND conflict IS NULL ORDER BY id LIMIT 1""",
        (event.transaction_id, event_id),
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

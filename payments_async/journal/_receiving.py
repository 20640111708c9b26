"""The inbox on SQLite: what came is stored and settles its order. Hands nothing to a handler."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from payments_async._amounts import magnitude_text
from payments_async._events import TransactionEvent
from payments_async.journal._bodies import pack_event, read_event
from payments_async.journal._evidence import apply_event, find
from payments_async.journal._inbox import Arrival, Receipt
from payments_async.journal._opening import translated
from payments_async.journal._pending import BLOCK, close, hold
from payments_async.journal._transaction import Transaction

__all__ = ["Receiving", "final_event", "receive_all", "unmatched"]

_FINAL = (0, 2)
_made = tuple.__new__  # what calling the class of a named tuple gives, in a tenth of the time
# What is bound is text, a number or a bytearray. Anything else, None and bytes included, goes through sqlite3's
# adapters: dearer than all the rest of the row.
_EVENT = """INSERT INTO ipn_event (transaction_id, status_code, amount, request_id, event, body, query, peer,
    received_at) VALUES """
_ONE_EVENT = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EVENTS = [
    f"{_EVENT}{','.join([_ONE_EVENT] * rows)} ON CONFLICT (transaction_id, status_code, amount) DO NOTHING"
    for rows in range(BLOCK + 1)
]
_AGAIN = """INSERT INTO ipn_delivery (event_id, digest, body, query, peer, received_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (event_id, digest) DO UPDATE SET times = times + 1, last_at = excluded.received_at"""
# Of so many new events: the newest, those whose transaction was told of before, and whether there are orders at all.
_STANDING = """SELECT (SELECT max(id) FROM ipn_event), (SELECT group_concat(new.id) FROM ipn_event AS new
        WHERE new.id > (SELECT max(id) FROM ipn_event) - ? AND EXISTS (
            SELECT 1 FROM ipn_event AS old WHERE old.transaction_id = new.transaction_id AND old.id < new.id)),
    EXISTS (SELECT 1 FROM outbox)"""


class Receiving:
    """Store deliveries and their events, and let them settle their orders; close events that were handled.

    Args:
        handled: The events to be closed.
    """

    __slots__ = ("arrivals", "handled", "owner")

    def __init__(self, arrivals: Sequence[Arrival], owner: str, handled: Sequence[int]) -> None:
        self.arrivals = arrivals
        self.owner = owner
        self.handled = handled

    def __call__(self, transaction: Transaction) -> Sequence[Receipt | Exception]:
        """Do it, each arrival by itself: the failure of one is its own."""
        if self.handled:
            close(transaction, self.handled)
        return [_store_one(transaction, arrival, self.owner) for arrival in self.arrivals]

    def at_once(self, transaction: Transaction) -> Sequence[Receipt]:
        """Do it; when one arrival fails, all of it has failed."""
        if self.handled:
            close(transaction, self.handled)
        return _store_all(transaction, self.arrivals, self.owner) if self.arrivals else ()


def receive_all(transaction: Transaction, receiving: Sequence[Receiving]) -> Sequence[Sequence[Receipt]]:
    """Do that for all that were asked for at once."""
    return [one.at_once(transaction) for one in receiving]


def final_event(connection: sqlite3.Connection, request_id: str) -> TransactionEvent | None:
    """The first final event of an order that nothing contradicts."""
    found = connection.execute(
        """SELECT transaction_id, status_code, event, body, query FROM ipn_event WHERE request_id = ?
        AND status_code IN (0, 2) AND state <> 'disputed' AND conflict IS NULL ORDER BY id LIMIT 1""",
        (request_id,),
    ).fetchone()
    return None if found is None else read_event(*found)


def unmatched(connection: sqlite3.Connection) -> int:
    """Events of orders the outbox does not hold."""
    (count,) = connection.execute(
        """SELECT (SELECT count(*) FROM ipn_event WHERE request_id IS NOT NULL AND order_id IS NULL)
        + (SELECT count(*) FROM ipn_event WHERE request_id IS NULL AND order_id IS NULL)"""
    ).fetchone()
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
    stored = 0
    for start in range(0, len(arrivals), BLOCK):
        values: list[object] = []
        block = arrivals[start : start + BLOCK]
        for arrival in block:
            delivery, event = arrival.delivery, arrival.event
            values += (
                event.transaction_id, event.status_code, magnitude_text(event.amount), event.request_id,
                "" if arrival.usual else pack_event(event), bytearray(delivery.body), delivery.query, delivery.peer,
                delivery.received_at,
            )  # fmt: skip
        stored += transaction.execute(_EVENTS[len(block)], values).rowcount
    newest, told_before, has_orders = transaction.execute(_STANDING, (stored,)).fetchone()
    numbers: Sequence[int | None] = range(newest - stored + 1, newest + 1)  # nobody else writes meanwhile
    if stored < len(arrivals):
        numbers = _numbers(transaction, arrivals, after=newest - stored)
    transaction.passed("receive.stored")
    conflicts: Mapping[int, str] = {}
    if told_before or has_orders:
        again = {int(number) for number in told_before.split(",")} if told_before else frozenset()
        new = {number: arrival for number, arrival in zip(numbers, arrivals, strict=True) if number is not None}
        conflicts = _settle(transaction, new, again, has_orders=has_orders)
    _hold(transaction, numbers, arrivals, conflicts, owner)
    return [
        _repeat(transaction, arrival) if number is None else _made(Receipt, (number, True, conflicts.get(number)))
        for number, arrival in zip(numbers, arrivals, strict=True)
    ]


def _numbers(transaction: Transaction, arrivals: Sequence[Arrival], *, after: int) -> Sequence[int | None]:
    """The event each arrival became, or ``None`` where one was known; of those that repeat each other, the first."""
    found = transaction.execute("SELECT transaction_id, status_code, amount, id FROM ipn_event WHERE id > ?", (after,))
    new = {tuple(fact): number for *fact, number in found.fetchall()}
    return [new.pop(_fact(arrival.event), None) for arrival in arrivals]


def _settle(
    transaction: Transaction, new: Mapping[int, Arrival], again: Collection[int], *, has_orders: bool
) -> dict[int, str]:
    """Let new events settle their orders, and tell which of them contradict what.

    Args:
        again: Those whose transaction was told of before.
    """
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
            transaction.execute("UPDATE ipn_event SET conflict = ? WHERE id = ?", (conflict, number))
    return conflicts


def _hold(
    transaction: Transaction,
    numbers: Sequence[int | None],
    arrivals: Sequence[Arrival],
    conflicts: Mapping[int, str],
    owner: str,
) -> None:
    """Make pending what somebody would handle, and what contradicts."""
    waiting: dict[float, list[int]] = {}
    for number, arrival in zip(numbers, arrivals, strict=True):
        if (not arrival.unheard or number in conflicts) and number is not None:
            waiting.setdefault(arrival.lease, []).append(number)
    for lease, held in waiting.items():
        hold(transaction, held, owner, lease)


def _repeat(transaction: Transaction, arrival: Arrival) -> Receipt:
    """A delivery of an event that is known: the same again is counted, other words for it are kept."""
    delivery = arrival.delivery
    body, at = bytearray(delivery.body), delivery.received_at
    event_id, conflict, is_same = transaction.execute(
        """SELECT id, conflict, body = ? AND query = ? FROM ipn_event
        WHERE transaction_id = ? AND status_code = ? AND amount = ?""",
        (body, delivery.query, *_fact(arrival.event)),
    ).fetchone()
    if is_same:
        transaction.execute("UPDATE ipn_event SET times = times + 1, last_at = ? WHERE id = ?", (at, event_id))
    else:
        words = (delivery.digest, body, delivery.query, delivery.peer, at)
        transaction.execute(_AGAIN, (event_id, *words))
    return Receipt(event_id=event_id, is_new=False, conflict=conflict)


def _fact(event: TransactionEvent) -> tuple[str, int, str]:
    return event.transaction_id, event.status_code, magnitude_text(event.amount)


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
    magnitude = magnitude_text(event.amount)
    if magnitude and amount and magnitude != amount:
        return f"amount {magnitude} after {amount}"
    return None

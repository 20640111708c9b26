"""The inbox on SQLite: what came is stored and settles its order. Hands nothing to a handler."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence, Set
from functools import partial

from payments_async._amounts import magnitude_text
from payments_async._events import TransactionEvent
from payments_async.journal._bodies import pack_body, pack_event, read_event
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._inbox import Arrival, Doubt, Receipt
from payments_async.journal._matching import fact_of, repeat, settle
from payments_async.journal._opening import translated
from payments_async.journal._pending import BLOCK, close, hold
from payments_async.journal._transaction import Transaction

__all__ = ["Receiving", "final_events", "receive_all", "unmatched"]

_log = logging.getLogger("payments_async.journal")
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
_BELIEVED = "state <> 'disputed' AND doubt IS NULL AND conflict IS NULL"
_FINALS = "SELECT id, transaction_id, status_code, event, body, query FROM ipn_event WHERE status_code IN (0, 2) AND"
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

    __slots__ = ("arrivals", "handled", "holder", "owner")

    def __init__(self, arrivals: Sequence[Arrival], owner: str, holder: str, handled: Sequence[int]) -> None:
        self.arrivals = arrivals
        self.owner = owner
        self.holder = holder
        self.handled = handled

    def __call__(self, transaction: Transaction) -> Sequence[Receipt | Exception]:
        """Do it, each arrival by itself: the failure of one is its own."""
        if self.handled:
            close(transaction, self.handled)
        return [self._store_one(transaction, arrival) for arrival in self.arrivals]

    def at_once(self, transaction: Transaction) -> Sequence[Receipt]:
        """Do it; when one arrival fails, all of it has failed."""
        if self.handled:
            close(transaction, self.handled)
        return _store_all(transaction, self.arrivals, self.owner, self.holder) if self.arrivals else ()

    def _store_one(self, transaction: Transaction, arrival: Arrival) -> Receipt | Exception:
        """Of several that cannot be stored together: by itself, so that its failure is its own."""
        try:
            return transaction.undoing(partial(_store_all, transaction, (arrival,), self.owner, self.holder))[0]
        except sqlite3.Error as error:
            if not transaction.goes_on(error):
                raise
            fault = translated(error)
            fault.__cause__ = error
            return fault
        except Exception as error:  # noqa: BLE001 - each arrival's failure is its own
            return error


def receive_all(transaction: Transaction, receiving: Sequence[Receiving]) -> Sequence[Sequence[Receipt]]:
    """Do that for all that were asked for at once."""
    return [one.at_once(transaction) for one in receiving]


def final_events(
    connection: sqlite3.Connection, request_id: str, transaction_id: str | None, most: int
) -> list[TransactionEvent]:
    """The first final events of an order, or of a transaction of it, that are evidence and that nothing contradicts."""
    if transaction_id is None:
        found = connection.execute(
            f"{_FINALS} request_id = ? AND {_BELIEVED} ORDER BY id",
            (request_id,),
        )
    else:
        found = connection.execute(
            f"{_FINALS} transaction_id = ? AND coalesce(request_id, ?) = ? AND {_BELIEVED} ORDER BY id",
            (transaction_id, request_id, request_id),
        )
    events: list[TransactionEvent] = []
    for event_id, *stored in found:
        try:
            events.append(read_event(*stored))
        except JournalCorrupt as error:  # it is made a dead letter when somebody wants to handle it
            _log.error("a stored notification cannot be read", extra={"event_id": event_id, "error": str(error)})
        if len(events) == most:
            break
    return events


def unmatched(connection: sqlite3.Connection) -> int:
    """Events of orders the outbox does not hold."""
    (count,) = connection.execute(
        """SELECT (SELECT count(*) FROM ipn_event WHERE request_id IS NOT NULL AND order_id IS NULL)
        + (SELECT count(*) FROM ipn_event WHERE request_id IS NULL AND order_id IS NULL)
        - (SELECT count(*) FROM ipn_event WHERE doubt IS NOT NULL AND order_id IS NULL)"""
    ).fetchone()
    return int(count)


def _store_all(transaction: Transaction, arrivals: Sequence[Arrival], owner: str, holder: str) -> list[Receipt]:
    """A few statements for all: each one hands the interpreter over and back, which costs more than the row."""
    transaction.known.clear()
    stored, is_doubted = 0, False
    for start in range(0, len(arrivals), BLOCK):
        values: list[object] = []
        block = arrivals[start : start + BLOCK]
        for arrival in block:
            delivery, event = arrival.delivery, arrival.event
            is_doubted |= arrival.doubt is not None
            values += (
                event.transaction_id, event.status_code, magnitude_text(event.amount), event.request_id,
                "" if arrival.usual else pack_event(event), pack_body(delivery.body), delivery.query, delivery.peer,
                delivery.received_at,
            )  # fmt: skip
        stored += transaction.execute(_EVENTS[len(block)], values).rowcount
    newest, told_before, has_orders = transaction.execute(_STANDING, (stored,)).fetchone()
    numbers: Sequence[int | None] = range(newest - stored + 1, newest + 1)  # nobody else writes meanwhile
    if stored < len(arrivals):
        numbers = _numbers(transaction, arrivals, after=newest - stored)
    if is_doubted:
        for number, arrival in zip(numbers, arrivals, strict=True):
            if arrival.doubt is not None and number is not None:
                transaction.execute("UPDATE ipn_event SET doubt = ? WHERE id = ?", (arrival.doubt, number))
    transaction.passed("receive.stored")
    conflicts: Mapping[int, str] = {}
    if told_before or has_orders:
        again = {int(number) for number in told_before.split(",")} if told_before else frozenset()
        new = {
            number: arrival
            for number, arrival in zip(numbers, arrivals, strict=True)
            if number is not None and arrival.doubt is None
        }
        conflicts = _settle(transaction, new, again, has_orders=has_orders)
    _hold(transaction, numbers, arrivals, conflicts, owner, holder)
    return [
        repeat(transaction, arrival, owner, holder)
        if number is None
        else _made(Receipt, (number, True, conflicts.get(number)))
        for number, arrival in zip(numbers, arrivals, strict=True)
    ]


def _numbers(transaction: Transaction, arrivals: Sequence[Arrival], *, after: int) -> Sequence[int | None]:
    """The event each arrival became, or ``None`` where one was known; of those that repeat each other, the first."""
    found = transaction.execute("SELECT transaction_id, status_code, amount, id FROM ipn_event WHERE id > ?", (after,))
    new = {tuple(fact): number for *fact, number in found.fetchall()}
    return [new.pop(fact_of(arrival.event), None) for arrival in arrivals]


def _settle(
    transaction: Transaction, new: Mapping[int, Arrival], again: Set[int], *, has_orders: bool
) -> dict[int, str]:
    """Let new events settle their orders, and tell which of them contradict what.

    Args:
        again: Those whose transaction was told of before.
    """
    conflicts = {}
    for number in new if has_orders else sorted(again & new.keys()):
        (delivery, event, *_), is_again = new[number], number in again
        conflict = settle(
            transaction, number, event, delivery.peer, delivery.received_at, told_before=is_again,
            has_orders=has_orders, is_new=True,
        )  # fmt: skip
        if conflict is not None:
            conflicts[number] = conflict
    return conflicts


def _hold(
    transaction: Transaction,
    numbers: Sequence[int | None],
    arrivals: Sequence[Arrival],
    conflicts: Mapping[int, str],
    owner: str,
    holder: str,
) -> None:
    """Make pending what somebody would handle, and what contradicts."""
    waiting: dict[float, list[int]] = {}
    for number, arrival in zip(numbers, arrivals, strict=True):
        is_wanted = not arrival.unheard or number in conflicts
        if is_wanted and number is not None and arrival.doubt != Doubt.REPORTED:
            waiting.setdefault(arrival.lease, []).append(number)
    for lease, held in waiting.items():
        hold(transaction, held, owner, holder, lease)

"""Which order a notification is about, and what it says that the same one did not say before. Stores no new one."""

from __future__ import annotations

from typing import NamedTuple

from payments_async._amounts import magnitude_text
from payments_async._events import TransactionEvent
from payments_async.journal._bodies import pack_body, pack_event, read_event, unpack_body
from payments_async.journal._evidence import apply_event, find
from payments_async.journal._inbox import Arrival, Doubt, Receipt
from payments_async.journal._pending import hold
from payments_async.journal._rows import row_by_request
from payments_async.journal._transaction import Transaction, Work

__all__ = ["confirm", "fact_of", "repeat", "settle"]

_FINAL = (0, 2)
_LAST = (1 << 63) - 1
_DOUBTS = (None, Doubt.UNCONFIRMED, Doubt.REPORTED)  # the more believed first
_AGAIN = """INSERT INTO ipn_delivery (event_id, digest, body, query, peer, received_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (event_id, digest) DO UPDATE SET times = times + 1, last_at = excluded.received_at"""


class _Known(NamedTuple):
    """The event that a delivery tells of again."""

    id: int
    conflict: str | None
    state: str
    doubt: str | None
    request_id: str | None
    order_id: int | None
    is_same: bool


def fact_of(event: TransactionEvent) -> tuple[str, int, str]:
    """What makes an event the same event."""
    return event.transaction_id, event.status_code, magnitude_text(event.amount)


def settle(
    transaction: Transaction, number: int, event: TransactionEvent, peer: str, at: float, *,
    told_before: bool = True, has_orders: bool = True, is_new: bool = False,
) -> str | None:  # fmt: skip
    """Let an event settle its order, and note and tell what it contradicts.

    Args:
        told_before: Whether its transaction may have been told of before.
        has_orders: Whether there are any orders.
        is_new: Whether it came just now, so that only what came before it can be contradicted by it.
    """
    conflict = _contradiction(transaction, event, number, is_new=is_new) if told_before else None
    row = find(transaction, event.request_id, event.transaction_id) if has_orders else None
    if row is not None:
        finding = apply_event(transaction, row, event, event_id=number, peer=peer, at=at)
        conflict = finding.conflict if conflict is None else conflict
    if conflict is not None:
        transaction.execute("UPDATE ipn_event SET conflict = ? WHERE id = ?", (conflict, number))
    return conflict


def confirm(event_id: int) -> Work[str | None]:
    """An event is evidence from now on."""

    def work(transaction: Transaction) -> str | None:
        found = transaction.execute(
            """UPDATE ipn_event SET doubt = NULL, tries = 0, error = NULL WHERE id = ? AND doubt IS NOT NULL
            RETURNING peer, received_at, transaction_id, status_code, event, body, query""",
            (event_id,),
        ).fetchall()
        for peer, at, *stored in found:
            return settle(transaction, event_id, read_event(*stored), peer, at)
        known = transaction.execute("SELECT conflict FROM ipn_event WHERE id = ?", (event_id,)).fetchone()
        return None if known is None else known[0]

    return work


def repeat(transaction: Transaction, arrival: Arrival, owner: str, holder: str) -> Receipt:
    """A delivery of an event that is known: the same again is counted, other words for it are kept.

    Where it is believed more than the first, or names the request id that the first left out, it takes its place.
    """
    known = _known(transaction, arrival)
    event, at = arrival.event, arrival.delivery.received_at
    is_better = _DOUBTS.index(arrival.doubt) < _DOUBTS.index(known.doubt)
    is_as_good = arrival.doubt == known.doubt
    says_more = is_as_good and known.request_id is None and event.request_id is not None
    says_other = (
        is_as_good and None not in (known.request_id, event.request_id) and known.request_id != event.request_id
    )
    # the record spoke against those words, not against these; and it may have been mended since
    is_undisputed = is_as_good and known.state == "disputed" and known.doubt is not None
    if not (is_better or says_more or is_undisputed):
        _count(transaction, arrival, known)
        conflict = _contest(transaction, arrival, known) if says_other and arrival.doubt is None else known.conflict
        return Receipt(event_id=known.id, is_new=False, conflict=conflict)
    _replace(transaction, arrival, known, anew=is_better or is_undisputed)
    conflict = known.conflict
    if arrival.doubt is None:
        conflict = settle(transaction, known.id, event, arrival.delivery.peer, at)
    is_new = known.doubt == Doubt.REPORTED or is_undisputed
    if is_new and (conflict is not None or not arrival.unheard):
        hold(transaction, [known.id], owner, holder, arrival.lease)
    return Receipt(event_id=known.id, is_new=is_new, conflict=conflict)


def _known(transaction: Transaction, arrival: Arrival) -> _Known:
    delivery = arrival.delivery
    return _Known(
        *transaction.execute(
            """SELECT id, conflict, state, doubt, request_id, order_id, body = ? AND query = ? FROM ipn_event
            WHERE transaction_id = ? AND status_code = ? AND amount = ?""",
            (pack_body(delivery.body), delivery.query, *fact_of(arrival.event)),
        ).fetchone()
    )


def _count(transaction: Transaction, arrival: Arrival, known: _Known) -> None:
    delivery = arrival.delivery
    if known.is_same:
        transaction.execute(
            "UPDATE ipn_event SET times = times + 1, last_at = ? WHERE id = ?", (delivery.received_at, known.id)
        )
    else:
        words = (delivery.digest, pack_body(delivery.body), delivery.query, delivery.peer, delivery.received_at)
        transaction.execute(_AGAIN, (known.id, *words))


def _replace(transaction: Transaction, arrival: Arrival, known: _Known, *, anew: bool) -> None:
    """Let a delivery take the place of the first; the words of the first are kept beside it."""
    delivery, event = arrival.delivery, arrival.event
    body, query, peer, at = transaction.execute(
        "SELECT body, query, peer, received_at FROM ipn_event WHERE id = ?", (known.id,)
    ).fetchone()
    first = delivery._replace(body=unpack_body(body), query=query)
    transaction.execute(_AGAIN, (known.id, first.digest, bytearray(body), query, peer, at))
    transaction.execute(
        """UPDATE ipn_event SET request_id = ?, event = ?, body = ?, query = ?, peer = ?, received_at = ?, doubt = ?,
        conflict = NULL, state = iif(?, 'handled', state), error = iif(?, NULL, error) WHERE id = ?""",
        (
            event.request_id, "" if arrival.usual else pack_event(event), pack_body(delivery.body), delivery.query,
            delivery.peer, delivery.received_at, arrival.doubt, anew, anew, known.id,
        ),
    )  # fmt: skip


def _contest(transaction: Transaction, arrival: Arrival, known: _Known) -> str | None:
    """The same notification under another request id: a contradiction, for the order it names now as well."""
    event, delivery = arrival.event, arrival.delivery
    row = None if event.request_id is None else row_by_request(transaction, event.request_id)
    if row is None or row.id == known.order_id:
        return known.conflict
    said = transaction.execute(
        "SELECT conflict FROM evidence WHERE order_id = ? AND event_id = ?", (row.id, known.id)
    ).fetchone()
    if said is not None:
        return str(said[0])
    words = f"transaction {event.transaction_id} was notified of before, as that of request id {known.request_id}"
    return apply_event(
        transaction, row, event, event_id=known.id, peer=delivery.peer, at=delivery.received_at, against=words
    ).conflict


def _contradiction(transaction: Transaction, event: TransactionEvent, event_id: int, *, is_new: bool) -> str | None:
    final = transaction.execute(
        """SELECT status_code, amount FROM ipn_event WHERE transaction_id = ? AND status_code IN (0, 2)
        AND id <> ? AND id < ? AND state <> 'disputed' AND doubt IS NULL AND conflict IS NULL ORDER BY id LIMIT 1""",
        (event.transaction_id, event_id, event_id if is_new else _LAST),
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

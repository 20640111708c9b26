"""What is found out about an order, from anybody: whether it counts, what it changes, and that it is kept."""

from __future__ import annotations

import logging
from decimal import Decimal

from payments_async._amounts import amount_text
from payments_async._events import TransactionEvent
from payments_async._wire.orders import currency_of
from payments_async.journal._bodies import pack_transaction_id, read_event, unpack_transaction_id
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._records import Evidence, Finding
from payments_async.journal._rows import Row, change, row_by_request, rows_by_transaction
from payments_async.journal._states import EVIDENCE, SAID, News, State, Verdict, next_state
from payments_async.journal._transaction import Transaction

__all__ = ["apply", "apply_event", "apply_loose_events", "bury", "contradiction", "find", "is_unsent", "keep"]

_log = logging.getLogger("payments_async.journal")
_NOTIFIED = {0: News.NOTIFIED_SUCCESSFUL, 1: News.NOTIFIED_PROCESSING, 2: News.NOTIFIED_FAILED}
_SETTLING = frozenset(
    {
        News.NOTIFIED_SUCCESSFUL, News.NOTIFIED_FAILED, News.NOTIFIED_REVERSED,
        News.LOOKED_UP_SUCCESSFUL, News.LOOKED_UP_FAILED, News.LOOKED_UP_REVERSED,
    }
)  # fmt: skip
_TOLD = EVIDENCE - {News.ACCEPTED, News.SWEPT_CLEAN_TWICE}  # notified or looked up
# until the service has confirmed the order, a transaction id is a hint: an unusable answer may have named a wrong one
_CONFIRMED = frozenset({State.ACCEPTED, State.SUCCESSFUL, State.FAILED, State.REVERSED})
# two selects, for SQLite looks for an index for each; an OR would read the whole table
_LOOSE = """SELECT id, peer, received_at, transaction_id, status_code, event, body, query FROM ipn_event
    WHERE order_id IS NULL AND state <> 'disputed' AND doubt IS NULL AND request_id = ?
    UNION ALL SELECT id, peer, received_at, transaction_id, status_code, event, body, query FROM ipn_event
    WHERE order_id IS NULL AND state <> 'disputed' AND doubt IS NULL AND request_id IS NULL AND transaction_id = ?
    ORDER BY id"""


def find(transaction: Transaction, request_id: str | None, transaction_id: str | None) -> Row | None:
    """The order that evidence is about: by its request id, else by the transaction if only one order carries it."""
    row = None if request_id is None else row_by_request(transaction, request_id)
    if row is None and transaction_id is not None:
        rows = rows_by_transaction(transaction, transaction_id)
        row = rows[0] if len(rows) == 1 else None
    return row


def apply(
    transaction: Transaction, row: Row, evidence: Evidence, *, event_id: int | None = None, against: str | None = None
) -> Finding:
    """Weigh evidence, let the table decide, and keep both.

    Args:
        against: Words, where something else than the evidence itself speaks against it.
    """
    if row.sent_before and _is_decided(transaction, row, evidence):
        keep(transaction, row, evidence, row.state, None, event_id=event_id)
        return Finding(request_id=row.request_id, before=row.state, state=row.state)
    words = against or _disagreement(row, evidence)
    if words is not None:
        verdict = Verdict(State.PARKED if row.state is State.PLANNED else row.state, conflict=True)
    else:
        unsent = is_unsent(transaction, row)
        verdict = next_state(row.state, evidence.news, sent_before=bool(row.sent_before), unsent=unsent)
        if verdict.conflict:
            words = contradiction(evidence.news, evidence.source, row.state, unsent=unsent and not row.attempt)
    learned = None if verdict.conflict and verdict.state in (row.state, State.PARKED) else evidence.transaction_id
    is_new = keep(transaction, row, evidence, verdict.state, words, event_id=event_id)
    flaw = words if is_new else None  # the same again was seen by whoever acknowledged it
    if verdict.state is not row.state or flaw is not None or _is_news(row, learned):
        change(transaction, row, verdict.state, transaction_id=learned, conflict=flaw)
    return Finding(request_id=row.request_id, before=row.state, state=verdict.state, conflict=words)


def is_unsent(transaction: Transaction, row: Row) -> bool:
    """Whether a planned or parked order was never sent: no attempt was made, or each is proved not to have left."""
    if row.state not in (State.PLANNED, State.PARKED) or not row.attempt:
        return row.state in (State.PLANNED, State.PARKED)
    (proved,) = transaction.execute(
        "SELECT count(*) FROM attempt WHERE order_id = ? AND outcome = ?", (row.id, News.NOT_SENT)
    ).fetchone()
    return bool(proved == row.attempt)


def apply_event(
    transaction: Transaction, row: Row, event: TransactionEvent, *, event_id: int, peer: str, at: float,
    against: str | None = None,
) -> Finding:  # fmt: skip
    """A notification as evidence; ties the event to its order, unless something speaks against that."""
    if against is None:
        transaction.execute("UPDATE ipn_event SET order_id = ? WHERE id = ?", (row.id, event_id))
    evidence = Evidence(
        news=_NOTIFIED.get(event.status_code, News.NOTIFIED_UNRECOGNISED),
        source=f"notification {peer}",
        request_id=event.request_id,
        transaction_id=event.transaction_id,
        amount=event.amount,
        currency=event.currency_code or None,
        at=at,
    )
    return apply(transaction, row, evidence, event_id=event_id, against=against)


def apply_loose_events(transaction: Transaction, row: Row) -> None:
    """Notifications that came before the journal knew whose they were."""
    found = transaction.execute(
        _LOOSE,
        (row.request_id, unpack_transaction_id(row.transaction_id)),
    ).fetchall()
    for event_id, peer, at, *stored in found:
        try:
            event = read_event(*stored)
        except JournalCorrupt as error:
            _set_aside(transaction, row, event_id, error)
        else:
            finding = apply_event(transaction, row, event, event_id=event_id, peer=peer, at=at)
            if finding.conflict is not None:
                transaction.execute(
                    "UPDATE ipn_event SET conflict = coalesce(conflict, ?) WHERE id = ?", (finding.conflict, event_id)
                )
        latest = row_by_request(transaction, row.request_id)
        assert latest is not None
        row = latest


def bury(transaction: Transaction, event_id: int, error: Exception) -> None:
    """Make a dead letter of an event that cannot be read, so that it holds up nothing."""
    _log.error("a stored notification cannot be read", extra={"event_id": event_id, "error": str(error)})
    transaction.execute("DELETE FROM ipn_pending WHERE event_id = ?", (event_id,))
    transaction.execute("UPDATE ipn_event SET state = 'dead', error = ? WHERE id = ?", (str(error), event_id))


def _set_aside(transaction: Transaction, row: Row, event_id: int, error: JournalCorrupt) -> None:
    """A notification that cannot be read says one thing all the same: somebody told of this order."""
    bury(transaction, event_id, error)
    transaction.execute("UPDATE ipn_event SET order_id = ? WHERE id = ?", (row.id, event_id))
    state = State.PARKED if row.state is State.PLANNED else row.state
    change(transaction, row, state, conflict=f"a notification about it (event {event_id}) cannot be read")


def contradiction(news: News, source: str, state: State, *, unsent: bool = False) -> str:
    """What contradicts what, as a sentence for the person who has to find out what is true."""
    who = source.replace("notification ", "a notification from ", 1) if source.startswith("notification ") else source
    known = "it was never sent from here" if unsent else f"it was known to be {state}"
    return f"{who} says that {SAID.get(news, news)}, but {known}"


def keep(
    transaction: Transaction, row: Row, evidence: Evidence, after: State, conflict: str | None, *,
    event_id: int | None = None,
) -> bool:  # fmt: skip
    """Write evidence down. The same again, when it changes nothing, is counted in one row: sweeps repeat themselves.

    Tells whether it is new.
    """
    amount = None if evidence.amount is None else amount_text(evidence.amount)
    at = transaction.now if evidence.at is None else evidence.at
    if after is row.state and event_id is None:
        again = transaction.execute(
            """UPDATE evidence SET times = times + 1, last_at = ? WHERE order_id = ? AND news = ? AND source = ?
            AND transaction_id IS ? AND amount IS ? AND currency IS ? AND detail IS ? AND before = ? AND after = ?
            AND conflict IS ?""",
            (
                at, row.id, evidence.news, evidence.source, evidence.transaction_id, amount, evidence.currency,
                evidence.detail, row.state, after, conflict,
            ),
        )  # fmt: skip
        if again.rowcount:
            return False
    transaction.execute(
        """INSERT INTO evidence (order_id, at, news, source, transaction_id, amount, currency, detail, before, after,
        before_at, conflict, event_id, last_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            row.id, at, evidence.news, evidence.source, evidence.transaction_id, amount, evidence.currency,
            evidence.detail, row.state, after, row.updated_at, conflict, event_id, at,
        ),
    )  # fmt: skip
    return True


def _is_decided(transaction: Transaction, row: Row, evidence: Evidence) -> bool:
    """Whether a person knew of this very evidence when they wrote the order off, and so called it false."""
    if evidence.news not in _TOLD:
        return False
    amount = None if evidence.amount is None else amount_text(evidence.amount)
    known = transaction.execute(
        """SELECT 1 FROM evidence WHERE order_id = ? AND decided IS NOT NULL AND news = ? AND transaction_id IS ?
        AND amount IS ? AND currency IS ? LIMIT 1""",
        (row.id, evidence.news, evidence.transaction_id, amount, evidence.currency),
    ).fetchone()
    return known is not None


def _disagreement(row: Row, evidence: Evidence) -> str | None:
    confirmed = row.state in _CONFIRMED and unpack_transaction_id(row.transaction_id) is not None
    same_transaction = confirmed and pack_transaction_id(evidence.transaction_id) == row.transaction_id
    if evidence.request_id is not None and evidence.request_id != row.request_id:
        return f"the transaction of this order is said to be of request id {evidence.request_id}"
    if evidence.request_id is None and not same_transaction:
        return "it names no request id, and its transaction was never confirmed to be this order's"
    if confirmed and evidence.transaction_id is not None and not same_transaction:
        return f"another transaction, {evidence.transaction_id}, for the same request id"
    if evidence.amount is None:
        if evidence.news in _SETTLING and not same_transaction:
            return "it names no amount, and its transaction was never confirmed to be this order's"
    elif evidence.amount.copy_abs() != Decimal(row.amount):
        return f"its amount is {amount_text(evidence.amount.copy_abs())}, the order's {row.amount}"
    if evidence.currency is not None:
        ours = currency_of(row.body)
        if ours is not None and ours.upper() != evidence.currency.strip().upper():
            return f"its currency is {evidence.currency}, the order's {ours}"
    return None


def _is_news(row: Row, transaction_id: str | None) -> bool:
    return transaction_id is not None and pack_transaction_id(transaction_id) != row.transaction_id

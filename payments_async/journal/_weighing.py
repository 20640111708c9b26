"""Whether evidence counts for an order, and what it says of it: pure, from what is known and what was found alone."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from payments_async._values.amounts import amount_text, currency_key
from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import currency_of
from payments_async._wire.events import TransactionEvent
from payments_async._wire.status_codes import STATUS_CODES, UNRECOGNISED
from payments_async.journal._records import Evidence, Row, pack_transaction_id, unpack_transaction_id
from payments_async.journal._states import CONFIRMED, SAID, Signal, State, Transition, next_state

_NOTIFIED = {code: Signal(row.signal) for code, row in STATUS_CODES.items()}
_UNRECOGNISED = Signal(UNRECOGNISED.signal)
_BY_NOTIFICATION = frozenset({*_NOTIFIED.values(), _UNRECOGNISED})
_SETTLING = frozenset(
    {
        Signal.NOTIFIED_SUCCESSFUL,
        Signal.NOTIFIED_FAILED,
        Signal.NOTIFIED_REVERSED,
        Signal.LOOKED_UP_SUCCESSFUL,
        Signal.LOOKED_UP_FAILED,
        Signal.LOOKED_UP_REVERSED,
    }
)


class Weighed(NamedTuple):
    """What evidence does to an order.

    Attributes:
        state: Where the order stands from now on.
        conflict: What contradicts what, in words; ``None`` where nothing does.
        transaction_id: The service's name for it, where that is learned.
    """

    state: State
    conflict: str | None = None
    transaction_id: str | None = None


def weigh(
    row: Row,
    evidence: Evidence,
    *,
    unsent: bool,
    may_be_forgotten: bool = False,
    against: str | None = None,
    parks: bool = False,
) -> Weighed:
    """Let the table decide on what counts for the order; what does not is a contradiction, and moves nothing.

    An order that was never sent is parked by what contradicts that.

    Args:
        unsent: As in ``next_state``.
        may_be_forgotten: The journal was restored or copied, and waits for the list to tell what it has sent: what was
            looked up counts as it does for an order that was sent. A notification still parks it.
        against: Words, where something else than the evidence itself speaks against it.
        parks: A person has to look at what it contradicts.
    """
    is_same = pack_transaction_id(evidence.transaction_id) == row.transaction_id
    words = against or _disagreement(row, evidence, is_same_transaction=is_same)
    if words is not None:
        verdict = Transition(State.PARKED if parks or row.state is State.PLANNED else row.state, conflict=True)
    else:
        is_expected = may_be_forgotten and evidence.signal not in _BY_NOTIFICATION
        verdict = next_state(
            row.state,
            evidence.signal,
            sent_before=bool(row.sent_before) or is_expected,
            unsent=unsent and not is_expected,
        )
        if verdict.conflict:
            truth = f"it was known to be {row.state}"
            if may_be_forgotten:
                truth = "the journal, which was restored or copied, does not know that it was sent"
            elif unsent and not row.attempt:
                truth = "it was never sent from here"
            words = f"{_teller(evidence)} says that {SAID.get(evidence.signal, evidence.signal)}, but {truth}"
    is_believed = not verdict.conflict or verdict.state not in (row.state, State.PARKED)
    is_learned = is_believed and evidence.transaction_id is not None and not is_same
    return Weighed(verdict.state, words, evidence.transaction_id if is_learned else None)


def weigh_answer(row: Row, signal: Signal, *, unsent: bool) -> Weighed:
    """Let the table decide on the answer to the attempt that was made last."""
    verdict = next_state(row.state, signal, sent_before=bool(row.sent_before), unsent=unsent)
    words = f"{signal} (own answer) for an order that is {row.state}" if verdict.conflict else None
    return Weighed(verdict.state, words)


def evidence_of(event: TransactionEvent, *, peer: str, at: float) -> Evidence:
    """What a notification says, as evidence.

    Args:
        peer: Address of its sender.
        at: Unix seconds when it came.
    """
    return Evidence(
        signal=_NOTIFIED.get(event.status_code, _UNRECOGNISED),
        source=f"notification {peer}",
        request_id=event.request_id or None,
        transaction_id=event.transaction_id,
        amount=event.amount,
        currency=event.currency_code or None,
        at=at,
    )


def _disagreement(row: Row, evidence: Evidence, *, is_same_transaction: bool) -> str | None:
    """Why evidence is not about this order, or about another one of the same name: ids, magnitude, currency."""
    # before the service has confirmed the order, a transaction id is a hint: an unusable answer may name a wrong one
    is_confirmed = row.state in CONFIRMED and unpack_transaction_id(row.transaction_id) is not None
    is_same = is_confirmed and is_same_transaction
    if evidence.request_id is not None and plain_id(evidence.request_id) != plain_id(row.request_id):
        return f"the transaction of this order is said to be of request id {evidence.request_id}"
    if evidence.request_id is None and not is_same:
        return "it names no request id, and its transaction was never confirmed to be this order's"
    if is_confirmed and evidence.transaction_id is not None and not is_same:
        return f"another transaction, {evidence.transaction_id}, for the same request id"
    if evidence.amount is None:
        if evidence.signal in _SETTLING and not is_same:
            return "it names no amount, and its transaction was never confirmed to be this order's"
    elif evidence.amount.copy_abs() != Decimal(row.amount):
        return f"its amount is {amount_text(evidence.amount.copy_abs())}, the order's {row.amount}"
    if evidence.currency is not None:
        ours = currency_of(row.body)
        if ours is not None and currency_key(ours) != currency_key(evidence.currency):
            return f"its currency is {evidence.currency}, the order's {ours}"
    return None


def _teller(evidence: Evidence) -> str:
    """Who says so, for the person who has to find out what is true."""
    who, sender, address = evidence.source.partition("notification ")
    return f"a notification from {address}" if sender and not who else evidence.source

"""What is known of each order of a batch, and what says so. Pure: sends nothing, shows nothing."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from decimal import Decimal

import attrs

from payments_async import (
    Acceptance,
    AuthenticationFailed,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    PayoutOrder,
    Transaction,
    TransactionStatus,
)
from payments_async.ipn import TransactionEvent, TransactionFailed, TransactionSucceeded

__all__ = ["FINAL", "Line", "Outcome", "Tally"]


class Outcome(enum.StrEnum):
    """Where an order stands, in the order of the final table."""

    SUCCESSFUL = "successful"
    FAILED = "failed"
    REVERSED = "reversed"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    NOT_SENT = "not sent"


FINAL = frozenset({Outcome.SUCCESSFUL, Outcome.FAILED, Outcome.REVERSED})
_BY_STATUS = {
    TransactionStatus.SUCCESSFUL: Outcome.SUCCESSFUL,
    TransactionStatus.FAILED: Outcome.FAILED,
    TransactionStatus.REVERSED: Outcome.REVERSED,
}
_MAY_BECOME: dict[Outcome, Set[Outcome]] = {
    Outcome.NOT_SENT: frozenset(Outcome),
    Outcome.UNKNOWN: frozenset({Outcome.ACCEPTED, *FINAL}),
    Outcome.ACCEPTED: FINAL,
    Outcome.SUCCESSFUL: frozenset({Outcome.REVERSED}),
    Outcome.FAILED: frozenset(),
    Outcome.REVERSED: frozenset(),
    Outcome.REJECTED: frozenset(),
}
# Later news that an outcome need not fear: what came before it, and the same again.
_NO_CONTRADICTION: dict[Outcome, Set[Outcome]] = {
    Outcome.NOT_SENT: frozenset(Outcome),
    Outcome.UNKNOWN: frozenset(Outcome),
    Outcome.ACCEPTED: frozenset(Outcome),
    Outcome.SUCCESSFUL: frozenset({Outcome.SUCCESSFUL, Outcome.ACCEPTED, Outcome.UNKNOWN}),
    Outcome.FAILED: frozenset({Outcome.FAILED, Outcome.ACCEPTED, Outcome.UNKNOWN}),
    Outcome.REVERSED: frozenset({Outcome.REVERSED, Outcome.SUCCESSFUL, Outcome.ACCEPTED, Outcome.UNKNOWN}),
    Outcome.REJECTED: frozenset({Outcome.REJECTED}),
}


@attrs.define(kw_only=True)
class Line:
    """One order.

    Attributes:
        told_by: What the outcome rests on: the answer, a notification or a list.
    """

    order: PayoutOrder
    outcome: Outcome = Outcome.NOT_SENT
    told_by: str = ""


class Tally:
    """All orders of a batch.

    Attributes:
        doubtful: Orders that at some time had no usable answer.
        conflicts: News that contradict what is known, in words.
    """

    def __init__(self, orders: Iterable[PayoutOrder]) -> None:
        self._lines = {order.request_id: Line(order=order) for order in orders}
        self._counts = dict.fromkeys(Outcome, 0)
        zero = sum((line.order.amount for line in self), Decimal(0)) * 0  # with as many decimals as the finest amount
        self._sums = dict.fromkeys(Outcome, zero)
        for line in self:
            self._book(line, 1)
        self.doubtful = 0
        self.conflicts: list[str] = []

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines.values())

    def __len__(self) -> int:
        return len(self._lines)

    def orders(self, outcome: Outcome) -> list[PayoutOrder]:
        """The orders that stand so."""
        return [line.order for line in self if line.outcome is outcome]

    def count(self, *outcomes: Outcome) -> int:
        """How many orders stand so."""
        return sum(self._counts[outcome] for outcome in outcomes)

    def total(self, *outcomes: Outcome) -> Decimal:
        """The sum of the orders that stand so; of all orders without an argument."""
        return sum((self._sums[outcome] for outcome in outcomes or Outcome), Decimal(0))

    def evidence(self, outcome: Outcome) -> Counter[str]:
        """How often each source told this outcome."""
        return Counter(line.told_by for line in self if line.outcome is outcome and line.told_by)

    def answer(self, order: PayoutOrder, result: Acceptance | PaymentsError) -> None:
        """Take the answer to a payout."""
        match result:
            case Acceptance():
                outcome = Outcome.ACCEPTED
            case OutcomeUnknown():
                self.doubtful += 1
                self._move(order.request_id, Outcome.UNKNOWN, "no answer, in no list")
                return
            case NotSent() | AuthenticationFailed():
                outcome = Outcome.NOT_SENT  # it was turned away unread: safe to send again
            case _:
                outcome = Outcome.REJECTED
        self._move(order.request_id, outcome, "answer")

    def hear(self, event: TransactionEvent) -> None:
        """Take a notification."""
        line = self._lines.get(event.request_id or "")
        if line is None:
            return
        if event.amount is not None and abs(event.amount) != line.order.amount:
            self.conflicts.append(f"{line.order.request_id}: a notification names another amount")
            return
        match event:
            case TransactionSucceeded():
                self._move(line.order.request_id, Outcome.SUCCESSFUL, "notification")
            case TransactionFailed():
                self._move(line.order.request_id, Outcome.FAILED, "notification")
            case _:
                pass

    def show(self, transaction: Transaction, status: TransactionStatus | None = None) -> bool:
        """Take a row of the transaction list, and the status whose filter showed it. Tells whether it was news."""
        line = self._lines.get(transaction.request_id or "")
        if line is None:
            return False
        if transaction.amount is not None and abs(transaction.amount) != line.order.amount:
            self.conflicts.append(f"{line.order.request_id}: the list shows another amount")
            return False
        before = line.outcome
        self._move(
            line.order.request_id,
            Outcome.ACCEPTED if status is None else _BY_STATUS.get(status, Outcome.ACCEPTED),
            "list",
        )
        return line.outcome is not before

    def _move(self, request_id: str, outcome: Outcome, told_by: str) -> None:
        line = self._lines[request_id]
        if outcome in _MAY_BECOME[line.outcome]:
            self._set(line, outcome, told_by)
        elif outcome not in _NO_CONTRADICTION[line.outcome]:
            self.conflicts.append(f"{request_id}: {line.outcome}, but a {told_by} says {outcome}")

    def _set(self, line: Line, outcome: Outcome, told_by: str) -> None:
        self._book(line, -1)
        line.outcome, line.told_by = outcome, told_by
        self._book(line, 1)

    def _book(self, line: Line, sign: int) -> None:
        self._counts[line.outcome] += sign
        self._sums[line.outcome] += sign * line.order.amount

"""What came lately, where no inbox remembers: duplicates and contradictions as far back as it reaches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from decimal import Decimal

from payments_async._events import TransactionEvent

__all__ = ["Recent"]

Fact = tuple[int, Decimal | None]  # status code and amount
_FINAL = (0, 2)  # Spec: "0 success, 1 processing, 2 error"
_MOST_FACTS = 32  # about one transaction


class Recent:
    """The last transactions that were notified of, forgotten in the order in which they came.

    Of a transaction only status codes and amounts are kept; whole events would cost a tenth of the throughput.

    Args:
        transactions: How many are kept.
        finals: How many final events are kept for those who ask for one later.
    """

    def __init__(self, *, transactions: int, finals: int) -> None:
        self._most_transactions = transactions
        self._most_finals = finals
        # OrderedDict, for a dict finds its first key ever more slowly
        self._said: OrderedDict[str, tuple[Fact, ...]] = OrderedDict()
        self._finals: OrderedDict[str, TransactionEvent] = OrderedDict()

    def note(self, event: TransactionEvent) -> str | None:
        """Remember what an event says of its transaction.

        Returns:
            ``None`` when the same was said before, otherwise what it contradicts in words, or ``""``.
        """
        fact = (event.status_code, event.amount)
        said = self._said.get(event.transaction_id)
        if said is None:
            self._said[event.transaction_id] = (fact,)
            if len(self._said) > self._most_transactions:
                self._said.popitem(last=False)
            return ""
        if fact in said:
            return None
        self._said[event.transaction_id] = (*said[:_MOST_FACTS], fact)
        return _contradiction(said, fact)

    def forget(self, event: TransactionEvent) -> None:
        """Forget what an event said: the next delivery that says it is new again."""
        fact = (event.status_code, event.amount)
        rest = tuple(known for known in self._said.pop(event.transaction_id, ()) if known != fact)
        if rest:
            self._said[event.transaction_id] = rest

    def keep(self, event: TransactionEvent) -> None:
        """Keep an event that is believed, if it is final and the first of its order."""
        if event.status_code in _FINAL and event.request_id is not None:
            self._finals.setdefault(event.request_id, event)
            if len(self._finals) > self._most_finals:
                self._finals.popitem(last=False)

    def final_event(self, request_id: str) -> TransactionEvent | None:
        """The first final event of an order that is remembered."""
        return self._finals.get(request_id)


def _contradiction(said: Iterable[Fact], fact: Fact) -> str:
    final = next((known for known in said if known[0] in _FINAL), None)
    if final is None:
        return ""
    (final_code, final_amount), (code, amount) = final, fact
    if code in _FINAL and code != final_code:
        return f"status code {code} after the final {final_code}"
    # payouts are negative in records: magnitudes are compared
    if amount is not None and final_amount is not None and abs(amount) != abs(final_amount):
        return f"amount {abs(amount)} after {abs(final_amount)}"
    return ""

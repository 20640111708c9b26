"""What came lately, where no inbox remembers: duplicates and contradictions as far back as it reaches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from payments_async._amounts import magnitude_text
from payments_async._events import TransactionEvent

__all__ = ["Recent", "Words", "fact_of"]

V = TypeVar("V")
_FINAL = ("0 ", "2 ")  # Spec: "0 success, 1 processing, 2 error"
_MOST_FACTS = 32  # about one transaction
_MOST_FINALS = 8  # of one order


class Words(NamedTuple):
    """A notification as it came: body and query."""

    body: bytes
    query: str


class Recent:
    """The last transactions that were notified of.

    What lies long in memory is paid for by every notification, with memory that is not in the processor's cache. So
    one short text is kept of a transaction, and of a final event the words it can be read from again.

    Args:
        transactions: How many are kept, at least.
        finals: How many final events are kept, at least, for those who ask for one later.
    """

    def __init__(self, *, transactions: int, finals: int) -> None:
        self._said: _Lately[str] = _Lately(transactions)  # facts, oldest first
        self._finals: _Lately[tuple[Words, ...]] = _Lately(2 * finals)  # by request id, and by transaction

    def note(self, transaction_id: str, fact: str) -> str | None:
        """Remember what is said of a transaction.

        Returns:
            ``None`` when the same was said before, otherwise what it contradicts in words, or ``""``.
        """
        said = self._said.get(transaction_id)
        if said is None:
            self._said.put(transaction_id, fact)
            return ""
        if fact == said:
            return None
        facts = said.split(",")
        if fact in facts:
            return None
        self._said.put(transaction_id, ",".join((*facts[:_MOST_FACTS], fact)))
        return _contradiction(facts, fact)

    def forget(self, transaction_id: str, fact: str) -> None:
        """Forget what was said: the next delivery that says it is new again."""
        said = self._said.pop(transaction_id)
        rest = [] if said is None else [known for known in said.split(",") if known != fact]
        if rest:
            self._said.put(transaction_id, ",".join(rest))

    def stands(self, transaction_id: str, fact: str) -> bool:
        """Whether this is the first final thing that was said of a transaction."""
        said = self._said.get(transaction_id)
        return said is not None and next((f for f in said.split(",") if f.startswith(_FINAL)), None) == fact

    def keep(self, event: TransactionEvent, words: Words) -> None:
        """Keep an event that is believed, if it is final."""
        if event.status_code not in (0, 2):
            return
        for key in _keys(event.request_id, event.transaction_id):
            kept = self._finals.get(key) or ()
            if len(kept) < _MOST_FINALS and words not in kept:
                self._finals.put(key, (*kept, words))

    def final_events(self, request_id: str, transaction_id: str | None = None) -> tuple[Words, ...]:
        """The words of the final events of an order or a transaction that are remembered, oldest first."""
        key = f"r{request_id}" if transaction_id is None else f"t{transaction_id}"
        return self._finals.get(key) or ()


class _Lately(Generic[V]):
    """The last values that were put, from ``most`` to twice as many.

    Half are dropped at once: one after the other would leave memory full of small holes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._new: dict[str, V] = {}
        self._old: dict[str, V] = {}

    def get(self, key: str) -> V | None:
        value = self._new.get(key)
        return self._old.get(key) if value is None else value

    def put(self, key: str, value: V) -> None:
        if len(self._new) >= self._most:
            self._old, self._new = self._new, {}
        self._new[key] = value

    def pop(self, key: str) -> V | None:
        old = self._old.pop(key, None)
        return self._new.pop(key, old)


def _keys(request_id: str | None, transaction_id: str) -> Iterable[str]:
    return (f"t{transaction_id}",) if request_id is None else (f"r{request_id}", f"t{transaction_id}")


def fact_of(event: TransactionEvent) -> str:
    """What it says of its transaction: status code and magnitude."""
    return f"{event.status_code} {magnitude_text(event.amount)}"


def _contradiction(said: Iterable[str], fact: str) -> str:
    final = next((known for known in said if known.startswith(_FINAL)), None)
    if final is None:
        return ""
    (final_code, final_amount), (code, amount) = final.split(" "), fact.split(" ")
    if fact.startswith(_FINAL) and code != final_code:
        return f"status code {code} after the final {final_code}"
    return f"amount {amount} after {final_amount}" if amount and final_amount and amount != final_amount else ""

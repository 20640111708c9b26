"""Orders that are looked for, and what the service's list shows of them: as many as there are, in little memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

import attrs

from payments_async._values.amounts import currency_key
from payments_async._values.spill import PAGE, Columns, SpillTable
from payments_async._wire.models import Transaction
from payments_async.journal import Journal
from payments_async.journal._records import Entry
from payments_async.journal._states import CONFIRMED, OPEN, State

SOUGHT = (*OPEN, State.FAILED)  # of the failed ones those that a notification alone says have failed
_PORTION = 200_000  # orders looked for at once


@attrs.define(eq=False, weakref_slot=False)
class ReconcileTarget:
    """An order that is looked for, or that the list shows.

    Attributes:
        first, state: When it was looked for, and as far as we know it by now.
        at: Unix seconds of its last permit.
        listed: The number of the last list scan that showed it, whatever it said of it.
        unconfirmed: A notification alone says that it failed.
    """

    request_id: str
    first: State
    state: State
    amount: Decimal
    currency: str | None
    transaction_id: str | None
    at: float
    listed: int = 0
    unconfirmed: bool = False

    @classmethod
    def of(cls, entry: Entry) -> ReconcileTarget:
        """An order as the journal has it."""
        return cls(
            request_id=entry.request_id,
            first=entry.state,
            state=entry.state,
            amount=entry.amount,
            currency=entry.order.currency,
            transaction_id=entry.transaction_id,
            at=entry.updated_at if entry.permitted_at is None else entry.permitted_at,
            unconfirmed=entry.failed_by_notification,
        )

    @classmethod
    def unpack(cls, request_id: str, columns: Columns) -> ReconcileTarget:
        """An order as it was packed."""
        state, first, amount, currency, transaction_id, at, listed, unconfirmed = columns
        known = (Decimal(amount), currency, transaction_id, at, listed, bool(unconfirmed))
        return cls(request_id, _STATE[first], _STATE[state], *known)

    def pack(self) -> Columns:
        """All of it but its id, the state before the others."""
        return (
            self.state._value_,  # as ``value``, which takes five times as long
            self.first._value_,
            str(self.amount),
            self.currency,
            self.transaction_id,
            self.at,
            self.listed,
            self.unconfirmed,
        )

    @property
    def is_open(self) -> bool:
        """Whether it still has no final outcome."""
        return self.state in OPEN

    @property
    def is_sought(self) -> bool:
        """Whether the list is read for it: it is open, or a notification alone says how it ended."""
        return self.state in OPEN or self.unconfirmed

    def agrees(self, record: Transaction) -> bool:
        """Whether a record is about the same amount and currency, as far as it names them."""
        same = record.amount is None or record.amount.copy_abs() == self.amount
        if self.currency is not None and record.currency is not None:
            same = same and currency_key(self.currency) == currency_key(record.currency)
        return same

    @property
    def may_change(self) -> bool:
        """Whether the list under each status has something to say: it is open, or it is looked at again."""
        return self.is_sought or self.first is State.SUCCESSFUL


_STATE = {state.value: state for state in State}


def reconcile_targets(orders: Iterable[ReconcileTarget] = ()) -> SpillTable[ReconcileTarget]:
    """Orders by request id. There may be hundreds of thousands."""
    table = SpillTable(ReconcileTarget.pack, ReconcileTarget.unpack, 8)
    put_back(table, orders)
    return table


def put_back(sought: SpillTable[ReconcileTarget], orders: Iterable[ReconcileTarget]) -> None:
    """Write down how these orders stand by now."""
    sought.put({order.request_id: order for order in orders})


class ListedTransaction(NamedTuple):
    """A sought order as the unfiltered list shows it."""

    request_id: str
    amount: Decimal | None
    currency: str | None

    def pack(self) -> Columns:
        """All of it."""
        return self.request_id, None if self.amount is None else str(self.amount), self.currency

    @classmethod
    def unpack(cls, _transaction_id: str, columns: Columns) -> ListedTransaction:
        """As it was packed."""
        request_id, amount, currency = columns
        return cls(request_id, None if amount is None else Decimal(amount), currency)


def listed_transactions() -> SpillTable[ListedTransaction]:
    """What a list shows, by transaction id."""
    return SpillTable(ListedTransaction.pack, ListedTransaction.unpack, 3)


async def collect(
    journal: Journal, batch_id: str | None, *, states: Sequence[State] = SOUGHT, portion: int = _PORTION
) -> AsyncIterator[SpillTable[ReconcileTarget]]:
    """Orders of some states, so many at a time: unknown and parked ones all at first, then the others.

    Of failed ones those that a notification alone says have failed.
    """
    found = reconcile_targets()
    waiting: list[ReconcileTarget] = []  # to be put there a page at a time
    for state in states:
        async for entry in journal.entries(batch_id, state):
            if state is State.FAILED and not entry.failed_by_notification:
                continue
            if state in CONFIRMED and len(found) + len(waiting) >= portion:
                put_back(found, waiting)
                yield found
                found, waiting = reconcile_targets(), []
            waiting.append(ReconcileTarget.of(entry))
            if len(waiting) >= PAGE:
                put_back(found, waiting)
                waiting.clear()
    put_back(found, waiting)
    if found:
        yield found

"""What the journal already holds that a plan has to know: request ids that are taken, and who was paid of late."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from payments_async._orders import CollectionOrder, PayoutOrder
from payments_async.bulk._concerns import Fault
from payments_async.journal._contract import Journal
from payments_async.journal._records import Entry, Run

__all__ = ["DAY", "Earlier"]

DAY = 86_400.0


class Earlier:
    """The journal as the plan of one batch sees it. ``begin`` first.

    Attributes:
        run: The batch itself, when the journal has it.
    """

    def __init__(
        self, journal: Journal | None, batch_id: str | None, recent: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._journal = journal
        self._batch_id = batch_id
        self._recent = recent
        self._clock = clock
        self._is_empty = True
        self.run: Run | None = None

    async def begin(self) -> None:
        """Find out what there is."""
        runs = await self._journal.runs() if self._journal is not None else ()
        self._is_empty = not runs
        self.run = next((run for run in runs if run.batch_id == self._batch_id), None)

    async def entries(self, orders: Sequence[PayoutOrder]) -> Mapping[str, Entry]:
        """What the journal holds under these request ids."""
        if self._journal is None or self._is_empty:
            return {}
        return await self._journal.entries_of([order.request_id for order in orders])

    def is_recorded(self, order: PayoutOrder, entry: Entry | None) -> bool:
        """Whether this very order is in this very batch already."""
        return entry is not None and entry.batch_id == self._batch_id and entry.order == order

    def fault(self, order: PayoutOrder, entry: Entry | None) -> Fault | None:
        """Why the journal would refuse an order that is not recorded."""
        if entry is None and self.run is not None and self.run.ready:
            remedy = f"batch {self.run.batch_id} was approved without this order; put it into a batch of its own"
            return Fault("request_id", "", remedy)
        if entry is None:
            return None
        if entry.batch_id != self._batch_id:
            remedy = f"the journal holds this id in batch {entry.batch_id}, {entry.state}; leave the order out"
        elif entry.amount != order.amount:
            remedy = f"this batch holds it with the amount {entry.amount:f}; restore it, or give the order a new id"
        else:
            remedy = "this batch holds it with other details; restore them, or give the order a new id"
        return Fault("request_id", order.request_id, remedy)

    async def paid(self) -> AsyncIterator[Iterable[Entry]]:
        """Payouts of other batches that were paid of late, or may be paid yet, some hundreds at a time."""
        if self._journal is None or self._is_empty:
            return
        since = self._clock() - self._recent
        async for entries in self._journal.paid_since(since, but=self._batch_id):
            yield (entry for entry in entries if not isinstance(entry.order, CollectionOrder))

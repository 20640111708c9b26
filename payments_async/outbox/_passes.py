"""One pass over what is open: looked up in notifications, records and the list, with what it teaches for the next."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

import attrs

from payments_async._values.errors import PaymentsError
from payments_async._values.frozen import field, frozen
from payments_async._values.spill import paged
from payments_async.journal._records import OpenOrder
from payments_async.journal._states import State
from payments_async.outbox._absences import Absences
from payments_async.outbox._reconcile import STATUSLESS, Reconciler, tell_the_session
from payments_async.outbox._scans import DateRange, ListScanner
from payments_async.outbox._targets import ReconcileTarget, put_back, reconcile_targets

_STATUSLESS_FOR = 3600.0  # seconds for which it is remembered that records carry no status
_MOST = 200_000  # orders looked for at once


@frozen(kw_only=True)
class SettlingPass:
    """One time that open orders were looked up.

    Attributes:
        at, took: Unix seconds at which it began, and its seconds.
        due: Orders it was made for.
        looked_for: Orders that were looked for in the list, those that were not due included.
        requests: What it asked of the service.
        settled: How many orders left where they stood, by their state now.
        parked: Request ids of orders that it parked.
        sent_again: Request ids of those that it planned again by a person's word (``give_listing_deadline``).
        doubles: Request ids of orders with more than one transaction.
        strangers: Transactions in the list whose orders the journal does not hold.
        notes: What hindered: lists that show too little to prove anything, filters the service ignores.
    """

    at: float
    took: float
    due: int
    looked_for: int = 0
    requests: int = 0
    settled: Mapping[State, int] = field(factory=dict)
    parked: tuple[str, ...] = ()
    sent_again: tuple[str, ...] = ()
    doubles: tuple[str, ...] = ()
    unknown_transactions: int = 0
    notes: tuple[str, ...] = ()


@attrs.define(eq=False)
class DueQueue:
    """All open orders, and when each is looked up next, for as long as this process has the duty.

    Attributes:
        absences: Which lists have missed them.
        orders: By request id, each with the first of its permits that was ever heard of.
        dues: When each is looked up next, in seconds that only grow; it is changed by ``schedule`` alone.
        pages: How many the list of the last pass had.
        statusless_until: Records carried no status: they are not asked for one before, in seconds that only grow.
    """

    absences: Absences
    orders: dict[str, OpenOrder] = attrs.field(init=False, factory=dict)
    dues: dict[str, float] = attrs.field(init=False, factory=dict)
    pages: int = attrs.field(init=False, default=1)
    statusless_until: float = attrs.field(init=False, default=float("-inf"))
    _line: list[tuple[float, str]] = attrs.field(init=False, factory=list)  # the next one first

    def note(self, orders: Iterable[OpenOrder], due: Callable[[OpenOrder], float]) -> None:
        """These orders are open: they wait as before, or newly where they have changed their state."""
        for order in orders:
            before = self.orders.get(order.request_id)
            sent_at = order.sent_at if before is None else min(order.sent_at, before.sent_at)
            self.orders[order.request_id] = order._replace(sent_at=sent_at)
            if before is None or before.state is not order.state:
                self.schedule(order.request_id, due(order))
            if before is not None and before.since != order.since:
                self.absences.of.pop(order.request_id, None)  # it may have been sent again since

    def drop(self, request_ids: Iterable[str]) -> None:
        """These orders are open no more."""
        for request_id in request_ids:
            for held in (self.orders, self.dues, self.absences.of):
                held.pop(request_id, None)

    def keep(self, request_ids: Collection[str]) -> None:
        """No others are open."""
        self.drop([request_id for request_id in self.orders if request_id not in request_ids])
        self._line = [(due, request_id) for request_id, due in self.dues.items()]
        heapq.heapify(self._line)

    def schedule(self, request_id: str, due: float) -> None:
        """Say when an order is looked up next, in seconds that only grow."""
        if request_id in self.orders:
            self.dues[request_id] = due
            heapq.heappush(self._line, (due, request_id))

    def due_by(self, now: float) -> dict[str, OpenOrder]:
        """The orders that are due by now; each is to be scheduled anew, or stays due."""
        found: dict[str, OpenOrder] = {}
        while self.next_due <= now:
            _, request_id = heapq.heappop(self._line)
            found[request_id] = self.orders[request_id]
        return found

    @property
    def next_due(self) -> float:
        """When the next order is due."""
        line = self._line
        while line and self.dues.get(line[0][1]) != line[0][0]:
            heapq.heappop(line)  # it was settled, or scheduled anew
        return line[0][0] if line else float("inf")


class ReconcilePass:
    """One pass: for orders that are due, with those beside them that the same list may show.

    Attributes:
        findings: What it found out.
        over: Orders that are open no more: settled meanwhile, or planned again by a person.
    """

    def __init__(self, scanner: ListScanner, queue: DueQueue, due: Mapping[str, OpenOrder]) -> None:
        self._queue = queue
        self._due = due
        self._scanner = scanner
        self.findings = scanner.findings
        self._search = Reconciler(scanner, queue.absences, by_status=False)
        self._orders = reconcile_targets()
        self.over: list[str] = []
        self._missing: list[str] = []  # that are damaged: they are asked for again no sooner than the others
        self._looked_for = 0

    async def make(self) -> PaymentsError | None:
        """Look everywhere; what the list failed with, if it could not be read.

        Raises:
            AuthenticationFailed: The service refused our credentials.
            JournalError: The journal cannot be read or written. What was written down until then stays so.
        """
        await self._take_up(self._due)
        try:
            await self._search.look_in_notifications(self._orders)
            told = await self._by_id()
            return await self._in_list(told)
        finally:
            tell_the_session(self._scanner.payments, (one for one in self._orders.each() if one.state is not one.first))

    def served(self) -> Iterable[tuple[str, State]]:
        """The orders that were looked up, or would have been, and in which state they were before."""
        for order in self._orders.each():
            if order.request_id in self._due or order.first is not State.ACCEPTED or self._search.by_status:
                yield order.request_id, order.first
        for request_id in self._missing:
            yield request_id, self._due[request_id].state

    def told(self, at: float, took: float) -> SettlingPass:
        """What it came to."""
        settled = Counter(order.state for order in self._orders.each() if order.state is not order.first)
        del settled[State.PARKED]
        return SettlingPass(
            at=at,
            took=took,
            due=len(self._due),
            looked_for=self._looked_for,
            requests=self._scanner.reader.requests + self._search.records,
            settled=dict(settled),
            parked=tuple(self.findings.parked),
            sent_again=tuple(self.findings.sent_again),
            doubles=tuple(self.findings.doubles),
            unknown_transactions=self.findings.strangers_seen,
            notes=(*self.findings.unread, *self.findings.notes),
        )

    async def _take_up(self, request_ids: Iterable[str]) -> None:
        """See how these orders stand by now."""
        for some in paged(islice(request_ids, _MOST - len(self._orders))):
            found = await self._scanner.journal.entries_of(some)
            self._missing += [id_ for id_ in some if id_ in self._due and id_ not in found]
            orders = [ReconcileTarget.of(entry) for entry in found.values()]
            self.over += [order.request_id for order in orders if not order.is_sought]
            put_back(self._orders, (order for order in orders if order.is_sought))

    def _open(self) -> Iterator[ReconcileTarget]:
        return (order for order in self._orders.each() if order.is_sought)

    def _records_tell(self) -> bool:
        """Whether a record may tell a status, as far as is known."""
        return self._queue.absences.ticks() >= self._queue.statusless_until

    async def _by_id(self) -> set[str]:
        """Look at the records of a few accepted orders, where records tell a status; who was told of by them."""
        known = (order for order in self._open() if order.state is State.ACCEPTED and order.transaction_id)
        few = list(islice(known, self._queue.pages + 1))
        if not few or len(few) > self._queue.pages or not self._records_tell():
            return set()
        await self._look_up(few)
        return {order.request_id for order in few} if self._records_tell() else set()

    async def _look_up(self, orders: list[ReconcileTarget]) -> None:
        """Look at the record of each, and note whether records carry a status at all."""
        if await self._search.look_up(self._orders, orders):
            self._queue.statusless_until = self._queue.absences.ticks() + _STATUSLESS_FOR

    async def _in_list(self, told: set[str]) -> PaymentsError | None:
        """Read the list once, from the first permit of any that is open, for all that were sent since.

        Args:
            told: Of whom everything is known.
        """
        opened, search = self._queue.orders, self._search
        left = {order.request_id: order.state for order in self._open() if order.request_id not in told}
        if not left:
            return None
        first = min(self._due[request_id].sent_at for request_id in left)
        await self._take_up([id_ for id_, order in opened.items() if order.sent_at >= first and id_ not in self._due])
        search.by_status = not {State.ACCEPTED, State.FAILED}.isdisjoint(left.values())
        zone = self._scanner.payments.dialect.timezone
        window = DateRange.to_now(first, self._queue.absences.clock(), zone, self._orders)
        self._looked_for = sum(1 for _ in self._open())
        reading = await search.scan_window(window)
        self._queue.pages = max(1, -(-reading.rows // self._scanner.reader.size))
        if reading.failure is None:
            await self._look_up_unlisted()
        return reading.failure

    async def _look_up_unlisted(self) -> None:
        """Look at the records of orders that no list has told of: of no more of them than the list has pages."""

        def known(*, accepted: bool) -> Iterator[ReconcileTarget]:
            for order in self._open():
                is_asked = order.transaction_id and order.request_id in self._due and order.state is order.first
                if is_asked and (order.state is State.ACCEPTED) is accepted:
                    yield order

        left = known(accepted=False)
        if self._records_tell():
            left = chain(left, self._search.unlisted(known(accepted=True)))
        if few := list(islice(left, min(STATUSLESS, self._queue.pages))):
            await self._look_up(few)

"""The rule for what no list shows: how many complete lists have missed an order, and when that parks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import attrs

from payments_async._session.session import PaymentsSession
from payments_async._values.amounts import currency_key
from payments_async._values.spill import paged
from payments_async.journal._records import GRACE, INTERVAL, LATE, LISTS
from payments_async.journal._states import State
from payments_async.outbox._scans import DateRange, ListScanner, ReconcileTarget, day_of, put_back

_UNPROVEN = "absence from the list of {days} proves nothing"
_YET_TO_COME = 60.0  # seconds by which the clocks of machines that share a journal may differ
_SET_BACK = (
    "orders were sent at moments that are yet to come by this machine's clock, which was wrong then or is wrong now: "
    "no list that misses them counts, and they are not parked before those moments are over"
)


class Absence(NamedTuple):
    """Complete lists in a row that did not show an order.

    Attributes:
        lists: How many.
        at: When the last of them ended, in seconds that only grow.
        since: Unix seconds by the service's clock at which the first of them began; 0 where that is not known.
    """

    lists: int = 0
    at: float = float("-inf")
    since: float = 0.0


_NEVER = Absence()


@attrs.define(eq=False, kw_only=True)
class Absences:
    """Unknown orders that complete lists have missed; enough of them, an interval apart, park an order.

    A list counts for an order if it was read to its end, began after the order's period of grace, and shows an order
    of ours of those days.

    Attributes:
        grace: Seconds after its last permit within which an order may still arrive.
        lists: Complete lists, 2 or more, that have to miss an order.
        interval: Seconds between two that count.
        clock: Unix seconds.
        ticks: Seconds that only grow.
        of: What is counted, by request id.
    """

    payments: PaymentsSession
    grace: float = GRACE
    lists: int = LISTS
    interval: float = INTERVAL
    clock: Callable[[], float]
    ticks: Callable[[], float]
    of: dict[str, Absence] = attrs.field(init=False, factory=dict)
    _deadlines: dict[str, float] | None = attrs.field(init=False, default=None)  # by currency; ``None``: no word at all

    def __attrs_post_init__(self) -> None:
        if self.lists < 2:
            raise ValueError("list_scans: must be 2 or more; one list that misses an order says too little")

    def may_be_parked(self, order: ReconcileTarget) -> bool:
        """Whether its period of grace is over."""
        return order.state is State.UNKNOWN and order.at + max(self.grace, self._deadline(order)) <= self._now()

    def count(self, window: DateRange, began: float, ticks: float) -> list[str]:
        """Count a list that was read to its end for the orders it should have shown; tells what hinders.

        Args:
            began: Unix seconds at which it began to be read.
            ticks: The same in seconds that only grow.
        """
        ahead, notes = self.payments.clock_difference, dict[str, None]()  # the answers to this very list have told
        told, began = 0.0 if ahead is None else began + ahead, began + max(0.0, ahead or 0.0)
        ended, now, zone = self.ticks(), self._now(), self.payments.dialect.timezone
        for order in window.sought.each(State.UNKNOWN):
            before = self.of.get(order.request_id, _NEVER)
            if order.at > now + _YET_TO_COME:
                notes[_SET_BACK] = None
            if order.listed == window.list_scans:
                self.of.pop(order.request_id, None)
            elif order.at + self.grace > began or self._is_early(order, told):
                continue
            elif not window.shows(day_of(order.at, zone)):
                notes[f"{unproven(window)}: it shows no order known to be of these days"] = None
            elif ticks - before.at >= self.interval:
                first = not before.lists or self._is_early(order, before.since)
                self.of[order.request_id] = Absence(
                    1 if first else before.lists + 1, ended, told if first else before.since
                )
        return list(notes)

    async def park(self, window: DateRange, scanner: ListScanner, began: float) -> None:
        """Park the orders that enough lists did not show, after one that was counted.

        Of those that failed as a notification alone has told it is put on record that a list of a day later misses
        them.

        Args:
            began: Unix seconds at which the list began to be read.
        """
        last = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="seconds")
        detail = f"not in {self.lists} complete lists of {window}, the last one read at {last}"
        lost = (order for order in window.sought.each(State.UNKNOWN) if self._is_enough(order))
        for page in paged(lost):
            try:
                await asyncio.gather(*(self._park(order, detail, scanner) for order in page))
            finally:
                put_back(window.sought, page)
        detail = f"not in the complete list of {window}"
        for page in paged(order for order in window.sought.each(State.FAILED) if order.unconfirmed):
            late = [one for one in page if one.at + LATE <= began and one.listed != window.list_scans]
            await asyncio.gather(*(scanner.findings.park(one, detail) for one in late))
            put_back(window.sought, late)

    def _is_enough(self, order: ReconcileTarget) -> bool:
        return self.may_be_parked(order) and self.of.get(order.request_id, _NEVER).lists >= self.lists

    async def _park(self, order: ReconcileTarget, detail: str, scanner: ListScanner) -> None:
        """Park an order, or have it sent again by a person's word where no row of the list may be its own."""
        since = None if self._deadlines is None else self.of[order.request_id].since
        if since is not None and self._deadline(order) and scanner.may_show(order):
            words = "a transaction of its amount, or of an id that its own begins with, is listed as no known order's"
            since, detail = None, f"{detail}; it is not sent again by the listing deadline: {words}"
        await scanner.findings.park(order, detail, since)

    async def heed_words(self, scanner: ListScanner) -> None:
        """Know how long the service may take to list an order, as persons have said who answer for it."""
        words = await scanner.journal.listing_words()
        held = {currency_key(one.deadline.currency): one.deadline.waits for one in words if one.over is None}
        self._deadlines = held if words else None
        scanner.notes_unclaimed = bool(held)
        if held:
            self.interval = max(self.interval, INTERVAL)

    def _deadline(self, order: ReconcileTarget) -> float:
        """Seconds after its last permit from which on a list shows an order, by a person's word; 0 where none holds."""
        return (self._deadlines or {}).get(currency_key(order.currency), 0.0)

    def _is_early(self, order: ReconcileTarget, at: float) -> bool:
        """Whether a list that began at a moment need not show an order yet, by a person's word; not where it is 0."""
        deadline = self._deadline(order)
        return bool(deadline) and 0 < at < order.at + deadline

    def _now(self) -> float:
        """Unix seconds by our clock, or by the service's where that is ahead: permits are dated by it then."""
        return self.clock() + max(0.0, self.payments.clock_difference or 0.0)


def unproven(window: DateRange) -> str:
    """That a list says nothing of what it does not show; why is to follow."""
    return _UNPROVEN.format(days=window)

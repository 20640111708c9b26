"""Reconcile: settle what is open from what the service shows, and report what needs a person."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import chain, islice
from typing import NamedTuple

import attrs

from payments_async._session.lists import Reader
from payments_async._session.session import PaymentsSession, executor_of
from payments_async._session.statuses import Statuses, read_statuses
from payments_async._values.amounts import currency_key
from payments_async._values.errors import AuthenticationFailed, PaymentsError
from payments_async._values.frozen import frozen
from payments_async._values.observing import watched
from payments_async._values.spill import PAGE, SpillTable, ids, paged
from payments_async._wire.events import TransactionEvent
from payments_async._wire.models import Acceptance, Transaction, TransactionStatus
from payments_async._wire.status_codes import STATUS_CODES
from payments_async.journal import Journal, ListingDeadline, NotApproved, OrderUnknown, Signature
from payments_async.journal._records import GRACE, INTERVAL, LATE, LISTS, Entry, Evidence, Sweep
from payments_async.journal._states import CONFIRMED, OPEN, News, State
from payments_async.outbox._sweeps import (
    LOOKED_UP,
    PAGES_ABREAST,
    STATES,
    Difference,
    Findings,
    Shown,
    SoughtOrder,
    Sweeper,
    Window,
    check_account,
    collect,
    day_of,
    put_back,
    shown_orders,
    sought_orders,
)

_FEW = 20_000  # orders looked up before a run goes on; the others wait for reconcile
_READS = 10  # looks at single transactions
_TOLD = 5_000  # orders that a session did not send, and is told of all the same: each costs it some 700 bytes
_OF_THE_LIST = "absence from the list of {days} proves nothing"
_YET_TO_COME = 60.0  # seconds by which the clocks of machines that share a journal may differ
_SET_BACK = (
    "orders were sent at moments that are yet to come by this machine's clock, which was wrong then or is wrong now: "
    "no list that misses them counts, and they are not parked before those moments are over"
)
STATUSLESS = 20  # records without a status, after which looking at more of them says nothing new
_ENDS = {LOOKED_UP[status]: state for status, state in STATES.items()}
_NOTIFIED = {code: News(row.news) for code, row in STATUS_CODES.items() if row.is_final}


@frozen(kw_only=True)
class SearchProgress:
    """How far a search for open orders is.

    Attributes:
        pages: Of the service's lists, read until now.
        records: Transactions looked at one by one.
        waits: Seconds until the list is read again, where that is all there is to do; else 0.
    """

    pages: int = 0
    records: int = 0
    waits: float = 0.0


@frozen(kw_only=True)
class Double:
    """An order of which the service shows more than one transaction: it may have been paid more than once.

    Attributes:
        transaction_ids: Those that were seen, the one we knew first.
    """

    request_id: str
    transaction_ids: tuple[str, ...]


@frozen(kw_only=True)
class Reconciliation:
    """What became of open orders, and what needs a person.

    Attributes:
        found: How many orders the list showed that were planned as far as the journal knew: they are not sent.
        settled: How many orders left ``unknown``, ``parked`` or ``accepted``, by their state now.
        unknown: Request ids of orders that are still unknown.
        parked: Request ids of orders parked by this very call.
        sent_again: Request ids of those that it planned again by a person's word (``give_listing_deadline``).
        conflicts: Request ids with a contradiction that nobody has acknowledged.
        stuck: Request ids accepted longer ago than ``stuck_after`` and without an end.
        strangers: Records in the list whose request id the journal does not hold, at most 1,000 of them.
        strangers_seen: How many there were, counted once for each time the days they are in were read.
        differences: Records whose amount or currency is not the order's.
        doubles: Orders with more than one transaction.
        unread: What is not settled because a list could not be read to its end; reconcile again when it can be.
        notes: What hindered, that included: filters the service ignores, lists that show too little to prove anything.
    """

    settled: Mapping[State, int]
    found: int = 0
    unknown: tuple[str, ...] = ()
    parked: tuple[str, ...] = ()
    sent_again: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    strangers: tuple[Transaction, ...] = ()
    strangers_seen: int = 0
    differences: tuple[Difference, ...] = ()
    doubles: tuple[Double, ...] = ()
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def reconcile(
    payments: PaymentsSession,
    journal: Journal,
    batch_id: str | None = None,
    *,
    request_id: str | None = None,
    grace: float = GRACE,
    sweeps: int = LISTS,
    interval: float = INTERVAL,
    stuck_after: float = 86_400.0,
    reversals: bool = False,
    patience: float = 300.0,
    progress: Callable[[SearchProgress], object] | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Reconciliation:
    """Settle unknown and accepted orders: by stored notifications, by the list, and by their transaction ids.

    Only what the service says of an order settles it. Not being found settles nothing: an unknown order that clean
    sweeps did not show is parked for a person, and never sent again by itself. A sweep is clean when the list was
    read to its end and shows an order of ours of those days. The more often the list shows orders under a status, the
    fewer are left to look up; statuses are believed only from filters that the service demonstrably knows.

    The list is read from the first permit of any open order until today. So it shows whatever became of other orders of
    these days as well: a second transaction, or one of an order that was rejected. Orders that were rejected, or that
    failed as a notification alone has told, are looked for until a complete list that began a day later is on record.
    Where a journal was copied or restored, all days since the batch was made are read, and what the list shows is never
    sent again, planned or not. The same clean sweeps after the same grace time are what lifting a quarantine asks for.

    Args:
        batch_id: ``None`` for all batches.
        request_id: Only this order, whatever its batch: the list is read from its own first permit on.
        grace: Seconds after its last permit within which an order may still arrive, and is not parked; and as many
            since the journal was found to be copied or restored.
        sweeps: Clean sweeps, 2 or more, that have to miss an unknown order before it is parked.
        interval: Seconds between two of them. They are made only where an order might be parked, or a quarantine be
            lifted.
        stuck_after: Seconds after which an accepted order without an end is reported.
        reversals: Also look whether a successful order was reversed since, which no documented notification tells.
        patience: Seconds for which a page of the list that cannot be had is asked for again.
        progress: Hears of each page and each record that was read, and of each wait.
        clock: Unix seconds.
        sleep: Waits for seconds.

    Raises:
        AuthenticationFailed: The service refused our credentials. What was settled until then stays so.
        JournalUnavailable: The journal cannot be read or written.
        LocalFault: Thousands of orders are open, and there is no room for them in a temporary file. What was settled
            until then stays so, and nothing was concluded from what was not looked for.
        OrderUnknown: The journal holds no order ``request_id``.
        WrongAccount: The session is one of another account, whose list would prove nothing here.
    """
    if sweeps < 2:
        raise ValueError("sweeps: must be 2 or more; one list that misses an order says too little")
    await check_account(payments, journal)
    findings = Findings(journal)
    reader = Reader(payments.transactions.page, clock=clock, sleep=sleep, patience=patience, abreast=PAGES_ABREAST)
    search = Search(payments, journal, findings, reader, grace=grace, interval=interval, clock=clock, progress=progress)
    observer = executor_of(payments).observer
    with watched(observer, "reconciliation", batch_id=batch_id, request_id=request_id) as work:
        if request_id is not None:
            done = await _reconcile_one(
                journal, request_id, search, findings, sweeps=sweeps, stuck=clock() - stuck_after
            )
        else:
            done = await _reconcile_all(
                journal,
                batch_id,
                search,
                findings,
                sweeps=sweeps,
                stuck_after=stuck_after,
                reversals=reversals,
            )
        work.tell(settled=sum(done.settled.values()), unknown=len(done.unknown), parked=len(done.parked))
        work.tell(found=done.found, conflicts=len(done.conflicts))
        return done


async def _reconcile_all(
    journal: Journal,
    batch_id: str | None,
    search: Search,
    findings: Findings,
    *,
    sweeps: int,
    stuck_after: float,
    reversals: bool,
) -> Reconciliation:
    """Settle all open orders, of a batch or of the journal."""
    clock, sleep = search.clock, search.reader.sleep
    await search.begin(batch_id)
    if search.is_doubted:  # what the list shows of what the journal forgot is open from then on
        await search.sweep()
    told = 0
    async for sought in collect(journal, batch_id):
        await search.look(sought, sweeps=sweeps, sleep=sleep)
        for order in sought.each():
            findings.sum_up(order, clock() - stuck_after)
            told += tell_the_session(search.payments, order, told=told)
    if not search.has_swept:  # orders that are not open are looked for too
        await search.sweep()
    await search.see_awaited(sleep)
    if reversals:
        async for sought in collect(journal, batch_id, states=(State.SUCCESSFUL,)):
            await search.sweep(sought)
            for order in sought.each():
                findings.sum_up(order, clock() - stuck_after)
    return await _report(journal, findings, batch_id)


async def _reconcile_one(
    journal: Journal, request_id: str, search: Search, findings: Findings, *, sweeps: int, stuck: float
) -> Reconciliation:
    """Settle one order, if it is open.

    Args:
        stuck: Unix seconds; what was accepted before is reported.
    """
    entry = await journal.entry(request_id)
    if entry is None:
        raise OrderUnknown(f"the journal holds no order {request_id}")
    if entry.state in OPEN or entry.failed_by_notification:
        sought = sought_orders([SoughtOrder.of(entry)])
        await search.look(sought, sweeps=sweeps, sleep=search.reader.sleep)
        for order in sought.each():
            findings.sum_up(order, stuck)
            tell_the_session(search.payments, order, told=0)
        entry = await journal.entry(request_id) or entry
    return attrs.evolve(_found(findings), conflicts=(request_id,) if entry.conflict is not None else ())


async def _report(journal: Journal, findings: Findings, batch_id: str | None) -> Reconciliation:
    """All that was found, and the contradictions that nobody has acknowledged."""
    conflicts = tuple([entry.request_id async for entry in journal.conflicts(batch_id)])
    return attrs.evolve(_found(findings), conflicts=conflicts)


def _found(findings: Findings) -> Reconciliation:
    return Reconciliation(
        settled=dict(findings.settled),
        found=findings.found,
        unknown=tuple(findings.unknown),
        parked=tuple(findings.parked),
        sent_again=tuple(findings.sent_again),
        stuck=tuple(findings.stuck),
        strangers=tuple(findings.strangers.values()),
        strangers_seen=findings.strangers_seen,
        differences=tuple(findings.differences.values()),
        doubles=tuple(Double(request_id=id_, transaction_ids=tuple(seen)) for id_, seen in findings.doubles.items()),
        unread=tuple(findings.unread),
        notes=(*findings.unread, *findings.notes),
    )


def tell_the_session(payments: PaymentsSession, order: SoughtOrder, *, told: int) -> bool:
    """What was found of an order that the session may have sent; it is not sent again by it.

    A session does not give up for it what it remembers of its own: of those that it has not under way it is told of
    so many at most.

    Args:
        told: Of how many it was told before.

    Returns:
        Whether it was told of this one.
    """
    executor = executor_of(payments)
    if executor.observer is not None and order.state is not order.first:
        executor.observer.note("settled", request_id=order.request_id, state=order.state)
    if told >= _TOLD and not executor.books.is_open(order.request_id):
        return False
    if order.state in CONFIRMED and order.transaction_id is not None:
        found = Acceptance(request_id=order.request_id, transaction_id=order.transaction_id)
        executor.note_evidence(order.request_id, found)
        return True
    if order.state is State.REJECTED:
        executor.note_evidence(order.request_id)
    return False


async def look_up_open(payments: PaymentsSession, journal: Journal, batch_id: str) -> None:
    """Look once whether what an earlier run left open has arrived. Parks nothing, waits for nothing.

    How it ended is left to ``reconcile``, unless the records say it: that would be a list for each status more.
    """
    executor = executor_of(payments)
    reader = Reader(payments.transactions.page, clock=executor.clock, sleep=executor.sleep)
    findings = Findings(journal)
    clock = time.time
    search = Search(payments, journal, findings, reader, grace=GRACE, interval=INTERVAL, clock=clock, by_status=False)
    await search.begin(batch_id)
    async for sought in collect(journal, batch_id, states=OPEN, portion=_FEW):
        await search.look(sought, sweeps=1, sleep=asyncio.sleep)
        return


@asynccontextmanager
async def proposing(journal: Journal) -> AsyncIterator[None]:
    """Propose a decision that others have to approve, unless a person has; the ``NotApproved`` goes on."""
    try:
        yield
    except NotApproved as refusal:
        if refusal.proposal is not None and not await journal.proposals(refusal.proposal.digest):
            await journal.propose(refusal.proposal)
        raise


async def write_off(
    journal: Journal, request_id: str, who: str | Signature, why: str, *, seen: float | None = None
) -> Entry:
    """State, as a named person, that a parked order never arrived: it is planned again, and sent by the next run.

    What contradicted that until now, such as a forged notification, is called false with it. Evidence that comes later
    still counts: should both arrive, the journal shows a conflict.

    Args:
        seen: ``Entry.updated_at`` of the order as that person saw it.

    Raises:
        NotApproved: The journal asks for approvals: the decision is proposed now. Once as many others as the rule says
            have approved it, the same call carries it out, unless something was learned of the order meanwhile.
        NotParked: It is not parked, or something was learned of it since it was seen.
        OrderUnknown: The journal holds no such order.
    """
    async with proposing(journal):
        return await journal.write_off(request_id, who=who, why=why, seen=seen)


async def write_off_all(
    journal: Journal,
    request_ids: Sequence[str],
    who: str | Signature,
    why: str,
    *,
    seen: Mapping[str, float] | None = None,
) -> Sequence[Entry]:
    """Write off several orders in one decision, as ``write_off`` does one: all of them or none.

    Args:
        seen: ``Entry.updated_at`` of the orders as that person saw them, by request id.

    Raises:
        NotApproved, NotParked, OrderUnknown: As ``write_off``.
    """
    async with proposing(journal):
        return await journal.write_off_all(request_ids, who=who, why=why, seen=seen)


async def acknowledge(journal: Journal, request_id: str, who: str, why: str, *, seen: float | None = None) -> Entry:
    """State, as a named person, that the contradiction about an order was looked into: it is shown no more.

    The same evidence again is no new contradiction; any other is.

    Args:
        seen: ``Entry.updated_at`` of the order as that person saw it: one that came since then stands.

    Raises:
        OrderUnknown: The journal holds no such order.
    """
    return await journal.acknowledge(request_id, who=who, why=why, seen=seen)


async def lift_quarantine(
    journal: Journal,
    batch_id: str,
    who: str | Signature,
    why: str,
    *,
    seen: float | None = None,
    request_ids: Collection[str] | None = None,
) -> int:
    """State, as a named person, that the orders in quarantine were looked up: they may be sent. Tells how many chunks.

    Args:
        seen: ``Run.quarantined_at`` of the batch as that person saw it: one that came since then stands.
        request_ids: The planned orders, each by name, of which that person knows that the service never had them.
            Nothing is awaited then (``Run.awaits``), and that is recorded.

    Raises:
        NotApproved: As ``write_off``.
        NotLookedFor: Something is still awaited, or planned orders were not named.
        RunUnknown: The journal holds no such batch.
    """
    async with proposing(journal):
        return await journal.lift_quarantine(batch_id, who=who, why=why, seen=seen, request_ids=request_ids)


async def give_listing_deadline(journal: Journal, deadline: ListingDeadline, who: str | Signature, why: str) -> None:
    """State, as a named person, that the service lists in time what it has carried out.

    From then on an unknown order that two clean lists after that time do not show is sent again, once, by that word.
    Where the word is wrong, it is paid twice.

    Raises:
        NotApproved: As ``write_off``.
    """
    async with proposing(journal):
        await journal.give_listing_deadline(deadline, who=who, why=why)


class ListRead(NamedTuple):
    """What is left of a list that was read.

    Attributes:
        rows: Different ones that it showed.
        failure: What ended the reading before its end, or ``None``.
    """

    rows: int
    failure: PaymentsError | None


@attrs.define
class Search:
    """One search for open orders.

    Attributes:
        by_status: Also read the list of each status.
        remembers: What the list shows of orders that the journal does not hold is kept there, for they may come yet.
        progress: Hears how far it is.
        is_doubted: The journal was copied or restored, and may have forgotten orders.
        has_swept: The list was read.
    """

    payments: PaymentsSession
    journal: Journal
    findings: Findings
    reader: Reader
    grace: float = attrs.field(kw_only=True)
    interval: float = attrs.field(kw_only=True)
    clock: Callable[[], float] = attrs.field(kw_only=True)
    by_status: bool = attrs.field(kw_only=True, default=True)
    remembers: bool = attrs.field(kw_only=True, default=False)
    progress: Callable[[SearchProgress], object] | None = attrs.field(kw_only=True, default=None)
    _records: int = attrs.field(init=False, default=0)  # looked at one by one
    _sweeper: Sweeper = attrs.field(init=False)
    _batches: list[str | None] = attrs.field(init=False, factory=list)  # for whom sweeps are put on record
    _first: float | None = attrs.field(init=False, default=None)  # the first moment that matters, beside the open ones
    _sent_before: float | None = attrs.field(init=False, default=None)  # the first permit of any open one
    is_doubted: bool = attrs.field(init=False, default=False)
    has_swept: bool = attrs.field(init=False, default=False)
    _shown: SpillTable[Shown] = attrs.field(init=False, factory=shown_orders)  # by the last sweep
    _statused: Statuses = attrs.field(init=False, factory=Statuses)  # what the lists of each status have shown
    _deadlines: dict[str, float] | None = attrs.field(init=False, default=None)  # by currency; ``None``: no word at all

    def __attrs_post_init__(self) -> None:
        self._sweeper = Sweeper(
            self.payments,
            self.journal,
            self.findings,
            self.reader,
            remembers=self.remembers,
            grace=self.grace,
            interval=self.interval,
        )
        if self.progress is not None:
            self.reader.tell = self._tell

    def _tell(self, waits: float = 0.0) -> None:
        """Tell how far it is, to whoever wants to hear it."""
        if self.progress is not None:
            self.progress(SearchProgress(pages=self.reader.requests, records=self._records, waits=waits))

    async def begin(self, batch_id: str | None) -> None:
        """Find out from which moment on the list matters, for orders that are not open too."""
        runs = [await self.journal.run(batch_id)] if batch_id is not None else await self.journal.runs()
        # of an outbox what is put from now on waits, whether or not something is in quarantine
        quarantined = [run for run in runs if run.quarantined or (run.awaits and run.is_outbox)]
        self.is_doubted = bool(quarantined)
        self._batches = [batch_id] if batch_id is not None else [None, *(run.batch_id for run in quarantined)]
        sweeps = await self.journal.sweeps(batch_id)
        after = _last_complete(sweeps, batch_id, self.clock()) - LATE
        moments = [
            await self.journal.sent_since(batch_id, (State.REJECTED,), after=after),
            *(run.look_since for run in quarantined),
        ]
        self._first = min((moment for moment in moments if moment is not None), default=None)
        # earlier attempts of open orders, too: what was written off may have been carried out
        self._sent_before = await self.journal.sent_since(batch_id, OPEN)

    async def see_awaited(self, sleep: Callable[[float], Awaitable[object]]) -> None:
        """Read the list again where that is all that a quarantine still needs, until two have counted."""
        for _ in range(LISTS):
            runs = [await self.journal.run(batch_id) for batch_id in self._batches if batch_id is not None]
            due = [run.awaits.due(self.grace, self.interval) for run in runs if run.awaits is not None]
            wait = max(min(due, default=float("inf")) - self.clock(), 0.0)
            if wait > self.interval:
                return
            self._tell(waits=wait)
            await sleep(wait)
            await self.sweep()

    async def look(
        self, sought: SpillTable[SoughtOrder], *, sweeps: int, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        """Look everywhere. With fewer than two sweeps nothing is parked."""
        await self.look_in_notifications(sought)
        window = self._window(sought, (order.at for order in sought.each() if order.is_sought))
        for turn in range(sweeps):
            if turn:
                self._tell(waits=self.interval)
                await sleep(self.interval)
            if window is not None:
                await self.sweep_window(window)
            if not turn:
                await self._by_id(window, sought)
            if window is None or not any(map(self._may_be_parked, sought.each(State.UNKNOWN))):
                return
        if sweeps > 1 and window is not None:
            await self.park(window, sweeps)

    async def sweep(self, sought: SpillTable[SoughtOrder] | None = None) -> None:
        """Read the list once, for these orders and for all others that matter, if there are any."""
        moments = () if sought is None else (order.at for order in sought.each())
        if (window := self._window(sought, moments)) is not None:
            await self.sweep_window(window)

    def _window(self, sought: SpillTable[SoughtOrder] | None, moments: Iterable[float]) -> Window | None:
        """The days of these orders, and of all others that matter; ``None`` when there are none.

        Args:
            moments: Those that matter for these orders, in Unix seconds.
        """
        first = min(moments, default=None)
        if first is not None and self._sent_before is not None:
            first = min(first, self._sent_before)
        if self._first is not None:
            first = self._first if first is None else min(first, self._first)
        if first is None:
            return None
        return Window.to_now(first, self.clock(), self.payments.dialect.timezone, sought)

    async def look_in_notifications(self, sought: SpillTable[SoughtOrder]) -> None:
        """Settle what notifications that are stored already tell."""
        for page in sought.pages():
            open_ = [request_id for request_id, order in page.items() if order.is_open]
            events = await self.journal.final_events_of(open_)
            told = [(page[request_id], events[request_id]) for request_id in open_ if request_id in events]
            try:
                await asyncio.gather(*(self._notified(order, event) for order, event in told))
            finally:
                put_back(sought, (order for order, _ in told))

    async def _notified(self, order: SoughtOrder, event: TransactionEvent) -> None:
        """Settle an order by the notification of its end."""
        if (news := _NOTIFIED.get(event.status_code)) is not None:
            evidence = Evidence(
                news=news,
                source="stored notification",
                request_id=event.request_id,
                transaction_id=event.transaction_id,
                amount=event.amount,
                currency=event.currency_code or None,
            )
            await self.findings.apply(order, evidence)

    async def _heed_words(self) -> None:
        """Know how long the service may take to list an order, as persons have said who answer for it."""
        words = await self.journal.listing_words()
        held = {currency_key(one.deadline.currency): one.deadline.waits for one in words if one.over is None}
        self._deadlines = held if words else None
        self._sweeper.notes_unclaimed = bool(held)
        if held:
            self.interval = max(self.interval, INTERVAL)

    def deadline_of(self, order: SoughtOrder) -> float:
        """Seconds after its last permit from which on a list shows an order, by a person's word; 0 where none holds."""
        return (self._deadlines or {}).get(currency_key(order.currency), 0.0)

    def is_early(self, order: SoughtOrder, at: float) -> bool:
        """Whether a list that began at a moment need not show an order yet, by a person's word; not where it is 0."""
        deadline = self.deadline_of(order)
        return bool(deadline) and 0 < at < order.at + deadline

    def _now(self) -> float:
        """Unix seconds by our clock, or by the service's where that is ahead: permits are dated by it then."""
        return self.clock() + max(0.0, self.payments.clock_difference or 0.0)

    async def sweep_window(self, window: Window) -> ListRead:
        """Read the list once, and count whom it did not show."""
        await self._heed_words()
        began, self.has_swept, self._shown = self.clock(), True, shown_orders()
        reading, self._shown = await self._sweeper.sweep(window, self._batches)
        problem, counted, read = reading.problem, reading.counted, ListRead(reading.rows, reading.failure)
        del reading  # it knows every row
        if problem is not None:
            self.findings.unread[f"{_OF_THE_LIST.format(days=window)}: {problem}"] = None
        if self.by_status:
            await self._statuses(window)
        if counted:
            self._count_clean(window, began)
            await self._end_search(window, began)
        elif problem is None:
            self.findings.note(f"{_OF_THE_LIST.format(days=window)}: the service does not say how many rows there are")
        return read

    async def _statuses(self, window: Window, *, under_way: bool = False) -> None:
        """Read the list under each status, and settle the orders that one of them shows.

        Args:
            under_way: Also where nothing has ended, to know who is still under way.
        """
        if next(self._may_change(window), None) is None:
            return
        wanted = self._may_change(window)
        self._statused = await read_statuses(self.reader, window.since, window.until, wanted, under_way=under_way)
        for note in self._statused.notes:
            self.findings.note(note)
        for page in paged(self._ended()):
            told: dict[str, list[Evidence]] = {}
            for transaction_id, row, status in page:
                end = Evidence(
                    news=LOOKED_UP[status],
                    source=f"list {status}",
                    request_id=row.request_id,
                    transaction_id=transaction_id,
                    amount=row.amount,
                    currency=row.currency,
                )
                told.setdefault(row.request_id, []).append(end)
            orders = window.sought.find(told)
            try:
                await asyncio.gather(*(self._end(order, told[id_]) for id_, order in orders.items()))
            finally:
                put_back(window.sought, orders.values())

    def _may_change(self, window: Window) -> Iterator[str]:
        """The transactions that the last sweep has shown, of orders of which a status has something to say."""
        for page in self._shown.pages():
            orders = window.sought.find({row.request_id for row in page.values()})
            yield from (id_ for id_, row in page.items() if orders[row.request_id].may_change)

    def _ended(self) -> Iterator[tuple[str, Shown, TransactionStatus]]:
        """Those of them that the list of a status shows, with that status."""
        for page in self._shown.pages():
            found = self._statused.found.find({id_.lower() for id_ in page})
            yield from ((id_, row, found[id_.lower()]) for id_, row in page.items() if id_.lower() in found)

    async def _end(self, order: SoughtOrder, told: list[Evidence]) -> None:
        """Settle an order by the end of its transaction; of each one, where it has several."""
        for evidence in told:
            if order.unconfirmed or _ENDS[evidence.news] is not order.state:
                await self.findings.apply(order, evidence)

    async def _by_id(self, window: Window | None, sought: SpillTable[SoughtOrder]) -> None:
        """Look up transactions that are known, those of unknown orders first; nobody that is listed as under way.

        Where the first records tell a status, the lists of each status tell it of hundreds at once.
        """
        before, looked_up = self._statused, ids()

        def unknown() -> Iterator[SoughtOrder]:
            others = (state for state in OPEN if state is not State.ACCEPTED)
            for page in paged(order for order in sought.each(*others) if order.transaction_id):
                looked_up.put(dict.fromkeys(order.request_id for order in page))
                yield from page

        def accepted() -> Iterator[SoughtOrder]:
            known = (order for order in sought.each(State.ACCEPTED) if order.transaction_id)
            for page in paged(_unlisted(known, before)):
                gone = looked_up.find(order.request_id for order in page)
                yield from (order for order in page if order.request_id not in gone)

        few = list(islice(accepted(), STATUSLESS))
        looked_up.put(dict.fromkeys(order.request_id for order in few))
        statusless = await self.look_up(sought, chain(unknown(), few))
        if statusless < STATUSLESS and next(accepted(), None) is not None:
            if window is not None:
                await self._statuses(window, under_way=True)
            await self.look_up(sought, self.unlisted(accepted()), statusless)

    def unlisted(self, orders: Iterable[SoughtOrder]) -> Iterator[SoughtOrder]:
        """Those of these orders that no list shows as under way."""
        return _unlisted(orders, self._statused)

    async def look_up(self, sought: SpillTable[SoughtOrder], orders: Iterable[SoughtOrder], statusless: int = 0) -> int:
        """Look at the record of each; tells how many had no status, with those of before.

        Args:
            sought: Where these orders are.
            statusless: Of the records of before.
        """

        def worth_it() -> Iterator[SoughtOrder]:
            for order in orders:
                if order.state is not State.ACCEPTED or statusless < STATUSLESS:
                    yield order

        async def look(order: SoughtOrder) -> Transaction:
            return await self.payments.transactions.get(order.transaction_id or "")

        found: list[tuple[SoughtOrder, Transaction]] = []
        try:
            async for order, record in self.payments.map(look, worth_it(), concurrency=_READS):
                self._records += 1
                self._tell()
                match record:
                    case Transaction():
                        statusless += record.status is None
                        found.append((order, record))
                        if len(found) == PAGE:
                            await self._apply_records(sought, found)
                    case AuthenticationFailed():
                        raise record
                    case PaymentsError():
                        pass  # no such transaction, or not now: that says nothing of the order
                    case _:
                        raise record
        finally:  # what was told before it failed stands
            await self._apply_records(sought, found)
        return statusless

    async def _apply_records(
        self, sought: SpillTable[SoughtOrder], found: list[tuple[SoughtOrder, Transaction]]
    ) -> None:
        """Write down what these records say, which are done with then."""
        try:
            await asyncio.gather(*(self.findings.apply_record(order, record, "record") for order, record in found))
        finally:
            put_back(sought, (order for order, _ in found))
        found.clear()

    def _may_be_parked(self, order: SoughtOrder) -> bool:
        """Whether its period of grace is over."""
        return order.state is State.UNKNOWN and order.at + max(self.grace, self.deadline_of(order)) <= self._now()

    def _count_clean(self, window: Window, began: float) -> None:
        """Count a sweep for the orders it should have shown, if enough time has passed since the one before."""
        ahead = self.payments.clock_difference  # the answers to this very list have told
        told, began = 0.0 if ahead is None else began + ahead, began + max(0.0, ahead or 0.0)
        if window.swept_at is not None and began - window.swept_at < self.interval:
            return
        window.swept_at = now = self._now()
        for page in window.sought.pages(State.UNKNOWN):
            for order in page.values():
                if order.at > now + _YET_TO_COME:
                    self.findings.note(_SET_BACK)
                if order.at + self.grace > began or self.is_early(order, told):
                    continue
                if not window.shows(day_of(order.at, self.payments.dialect.timezone)):
                    words = "it shows no order known to be of these days"
                    self.findings.note(f"{_OF_THE_LIST.format(days=window)}: {words}")
                    continue
                if not order.clean or self.is_early(order, order.since):
                    order.clean, order.since = 0, told
                order.clean = 0 if order.listed == window.sweeps else order.clean + 1
            put_back(window.sought, page.values())

    async def _end_search(self, window: Window, began: float) -> None:
        """Put on record which failed orders a list that was read a day later does not show."""
        detail = f"not in the complete list of {window}"
        for page in window.sought.pages(State.FAILED):
            late = [one for one in page.values() if one.unconfirmed and one.at + LATE <= began]
            await asyncio.gather(*(self.findings.park(one, detail) for one in late if one.listed != window.sweeps))
            put_back(window.sought, late)

    async def park(self, window: Window, sweeps: int) -> None:
        """Park the orders that enough clean sweeps did not show."""
        last = datetime.fromtimestamp(window.swept_at or 0.0, UTC).isoformat(timespec="seconds")
        detail = f"not in {sweeps} complete lists of {window}, the last one read at {last}"
        lost = (
            order for order in window.sought.each(State.UNKNOWN) if self._may_be_parked(order) and order.clean >= sweeps
        )
        for page in paged(lost):
            try:
                await asyncio.gather(*(self._park(order, detail) for order in page))
            finally:
                put_back(window.sought, page)

    async def _park(self, order: SoughtOrder, detail: str) -> None:
        """Park an order, or have it sent again by a person's word where no row of the list may be its own."""
        since = None if self._deadlines is None else order.since
        if since is not None and self.deadline_of(order) and self._sweeper.may_show(order):
            words = "a transaction of its amount, or of an id that its own begins with, is listed as no known order's"
            since, detail = None, f"{detail}; it is not sent again by the listing deadline: {words}"
        await self.findings.park(order, detail, since)


def _last_complete(sweeps: Sequence[Sweep], batch_id: str | None, now: float) -> float:
    """When the last complete sweep for a batch began; 0 where there is none.

    One that began later than another that was made after it, or than now, began at no moment that counts: the clock
    was wrong then.
    """
    for sweep in reversed(sweeps):
        if sweep.begun <= now and sweep.is_complete and sweep.batch_id == batch_id:
            return sweep.begun
        now = min(now, sweep.begun)
    return 0.0


def _unlisted(orders: Iterable[SoughtOrder], statuses: Statuses) -> Iterator[SoughtOrder]:
    """Those of these orders whose transactions the lists of the statuses do not show as under way."""
    for page in paged(orders):
        listed = statuses.under_way.find({(order.transaction_id or "").lower() for order in page})
        yield from (order for order in page if (order.transaction_id or "").lower() not in listed)

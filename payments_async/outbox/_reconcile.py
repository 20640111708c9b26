"""Reconcile: settle what is open from what the service shows, and report what needs a person."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain, islice

import attrs

from payments_async._session.lists import Reader, Reading
from payments_async._session.session import PaymentsSession, check_session, executor_of
from payments_async._session.statuses import Statuses, read_statuses
from payments_async._values.checks import check_instance
from payments_async._values.errors import AuthenticationFailed, PaymentsError
from payments_async._values.frozen import frozen
from payments_async._values.observing import watched
from payments_async._values.spill import PAGE, SpillTable, paged
from payments_async._values.testing import NOT_TESTING, Testing
from payments_async._wire.events import TransactionEvent
from payments_async._wire.models import Acceptance, Transaction, TransactionStatus
from payments_async._wire.status_codes import STATUS_CODES
from payments_async.journal import Journal, ListingDeadline, NotApproved, OrderUnknown, Signature
from payments_async.journal._places import check_journal
from payments_async.journal._records import LATE, LISTS, Entry, Evidence, ListScan
from payments_async.journal._states import CONFIRMED, OPEN, Signal, State
from payments_async.outbox._absences import Absences, unproven
from payments_async.outbox._scans import (
    LOOKED_UP,
    PAGES_ABREAST,
    STATES,
    DateRange,
    Difference,
    ListedTransaction,
    ListScanner,
    ReconcileTarget,
    check_account,
    collect,
    put_back,
    reconcile_targets,
)
from payments_async.outbox._settings import ReconcileSettings

_FEW = 20_000  # orders looked up before a run goes on; the others wait for reconcile
_READS = 10  # looks at single transactions
_TOLD = 5_000  # orders that a session did not send, and is told of all the same: each costs it some 700 bytes
STATUSLESS = 20  # records without a status, after which looking at more of them says nothing new
_ENDS = {LOOKED_UP[status]: state for status, state in STATES.items()}
_NOTIFIED = {code: Signal(row.signal) for code, row in STATUS_CODES.items() if row.is_final}


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
        conflicts: Request ids with a contradiction that was not acknowledged.
        stuck: Request ids accepted longer ago than ``stuck_after`` and without an end.
        strangers: Records in the list whose request id the journal does not hold, at most 1,000 of them.
        strangers_seen: How many there were; a record that was read twice counts once.
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
    unknown_transactions: tuple[Transaction, ...] = ()
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
    reversals: bool = False,
    progress: Callable[[SearchProgress], object] | None = None,
    settings: ReconcileSettings = ReconcileSettings(),  # noqa: B008 - frozen
    testing: Testing = NOT_TESTING,
) -> Reconciliation:
    """Settle unknown and accepted orders: by stored notifications, by the list, and by their transaction ids.

    Only what the service says of an order settles it. Not being found settles nothing: an unknown order that clean
    list scans did not show is parked for a person, and never sent again by itself. A list scan is clean when the list
    was read to its end and shows an order of ours of those days. The more often the list shows orders under a status,
    the fewer are left to look up; statuses are believed only from filters that the service demonstrably knows.

    The list is read from the first permit of any open order until today. So it shows whatever became of other orders of
    these days as well: a second transaction, or one of an order that was rejected. Orders that were rejected, or that
    failed as a notification alone has told, are looked for until a complete list that began a day later is on record.
    Where a journal was copied or restored, all days since the batch was made are read, and what the list shows is never
    sent again, planned or not. Lifting a quarantine asks for the same clean list scans after the same grace time.

    Args:
        batch_id: ``None`` for all batches.
        request_id: Only this order, whatever its batch: the list is read from its own first permit on.
        reversals: Also look whether a successful order was reversed since, which no documented notification tells.
        progress: Called for each page and each record that was read, and for each wait.
        settings: How thoroughly open orders are looked for.
        testing: Another clock, for tests.

    Raises:
        AuthenticationFailed: The service refused our credentials. What was settled until then stays so.
        JournalUnavailable: The journal cannot be read or written.
        LocalFault: Thousands of orders are open, and there is no room for them in a temporary file. What was settled
            until then stays so, and nothing was concluded from what was not looked for.
        OrderUnknown: The journal holds no order ``request_id``.
        WrongAccount: The session is one of another account, whose list would prove nothing here.
    """
    check_session(payments)
    check_journal(journal)
    check_instance("settings", settings, ReconcileSettings, "ReconcileSettings(...)")
    check_instance("testing", testing, Testing, "Testing(now=...)")
    await check_account(payments, journal)
    clock, sleep = testing.now or time.time, testing.sleep or asyncio.sleep
    grace, list_scans, interval = settings.grace, settings.list_scans, settings.interval
    reader = Reader(
        payments.transactions.page, clock=clock, sleep=sleep, patience=settings.patience, abreast=PAGES_ABREAST
    )
    absences = Absences(payments=payments, grace=grace, lists=list_scans, interval=interval, clock=clock, ticks=clock)
    scanner = ListScanner(payments, journal, reader, grace=grace, interval=interval)
    search, findings = Reconciler(scanner, absences, progress=progress), scanner.findings
    observer = executor_of(payments).observer
    with watched(observer, "reconciliation", batch_id=batch_id, request_id=request_id) as work:
        if request_id is not None:
            conflicts = await _reconcile_one(search, request_id, stuck_after=settings.stuck_after)
        else:
            await reconcile_all(search, batch_id, stuck_after=settings.stuck_after, reversals=reversals)
            conflicts = tuple([entry.request_id async for entry in journal.conflicts(batch_id)])
        work.tell(settled=findings.settled.total(), unknown=len(findings.unknown), parked=len(findings.parked))
        work.tell(found=findings.found, conflicts=len(conflicts))
    doubles = (Double(request_id=id_, transaction_ids=tuple(seen)) for id_, seen in findings.doubles.items())
    return Reconciliation(
        settled=dict(findings.settled),
        found=findings.found,
        unknown=tuple(findings.unknown),
        parked=tuple(findings.parked),
        sent_again=tuple(findings.sent_again),
        conflicts=conflicts,
        stuck=tuple(findings.stuck),
        unknown_transactions=tuple(findings.unknown_transactions.values()),
        strangers_seen=findings.strangers_seen,
        differences=tuple(findings.differences.values()),
        doubles=tuple(doubles),
        unread=tuple(findings.unread),
        notes=(*findings.unread, *findings.notes),
    )


async def reconcile_all(search: Reconciler, batch_id: str | None, *, stuck_after: float, reversals: bool) -> None:
    """Settle all open orders, of a batch or of the journal."""
    journal, told = search.scanner.journal, 0
    await search.begin(batch_id)
    if search.is_doubted:  # what the list shows of what the journal forgot is open from then on
        await search.scan()
    async for sought in collect(journal, batch_id):
        await search.look(sought)
        search.scanner.findings.sum_up(sought.each(), search.absences.clock() - stuck_after)
        told = tell_the_session(search.scanner.payments, sought.each(), told)
    if not search.has_scanned:  # orders that are not open are looked for too
        await search.scan()
    await search.see_awaited()
    if reversals:
        async for sought in collect(journal, batch_id, states=(State.SUCCESSFUL,)):
            await search.scan(sought)
            search.scanner.findings.sum_up(sought.each(), search.absences.clock() - stuck_after)


async def _reconcile_one(search: Reconciler, request_id: str, *, stuck_after: float) -> tuple[str, ...]:
    """Settle one order, if it is open; tells whether it has a contradiction that was not acknowledged."""
    journal = search.scanner.journal
    entry = await journal.entry(request_id)
    if entry is None:
        raise OrderUnknown(f"the journal holds no order {request_id}")
    if entry.state in OPEN or entry.failed_by_notification:
        sought = reconcile_targets([ReconcileTarget.of(entry)])
        await search.look(sought)
        search.scanner.findings.sum_up(sought.each(), search.absences.clock() - stuck_after)
        tell_the_session(search.scanner.payments, sought.each())
        entry = await journal.entry(request_id) or entry
    return (request_id,) if entry.conflict is not None else ()


def tell_the_session(payments: PaymentsSession, orders: Iterable[ReconcileTarget], told: int = 0) -> int:
    """What was found of orders that the session may have sent; they are not sent again by it.

    A session does not give up for it what it remembers of its own: of those that it has not under way it is told of
    so many at most.

    Args:
        told: Of how many it was told before.

    Returns:
        Of how many it was told.
    """
    executor = executor_of(payments)
    for order in orders:
        if executor.observer is not None and order.state is not order.first:
            executor.observer.note("settled", request_id=order.request_id, state=order.state)
        if told >= _TOLD and not executor.books.is_open(order.request_id):
            continue
        if order.state in CONFIRMED and order.transaction_id is not None:
            found = Acceptance(request_id=order.request_id, transaction_id=order.transaction_id)
            executor.note_evidence(order.request_id, found)
            told += 1
        elif order.state is State.REJECTED:
            executor.note_evidence(order.request_id)
    return told


async def look_up_unknown(payments: PaymentsSession, journal: Journal, batch_id: str, *, is_listed: bool) -> None:
    """Look once whether what an earlier run left unknown has arrived. Parks nothing, waits for nothing.

    How it ended is left to ``reconcile``, unless the records say it: that would be a list for each status more.

    Args:
        is_listed: What the list shows of it was taken from there a moment ago.

    Raises:
        AuthenticationFailed: The service refused our credentials.
    """
    if not (await journal.progress(batch_id)).counts[State.UNKNOWN]:
        return
    executor = executor_of(payments)
    reader = Reader(payments.transactions.page, clock=executor.clock, sleep=executor.sleep)
    absences = Absences(payments=payments, clock=time.time, ticks=executor.clock)
    search = Reconciler(ListScanner(payments, journal, reader), absences, by_status=False)
    await search.begin(batch_id)
    try:
        async for sought in collect(journal, batch_id, states=OPEN, portion=_FEW):
            await search.look_once(sought, is_listed=is_listed)
            return
    except AuthenticationFailed:
        raise
    except PaymentsError:
        pass  # a service that cannot be read: what is unknown stays unknown


@attrs.define(eq=False)
class Reconciler:
    """Looks for open orders in stored notifications, in the service's lists and in its records.

    Attributes:
        by_status: Also read the list of each status.
        progress: Hears how far it is.
        is_doubted: The journal was copied or restored, and may have forgotten orders.
        has_scanned: The list was read.
    """

    scanner: ListScanner
    absences: Absences
    by_status: bool = attrs.field(kw_only=True, default=True)
    progress: Callable[[SearchProgress], object] | None = attrs.field(kw_only=True, default=None)
    records: int = attrs.field(init=False, default=0)
    is_doubted: bool = attrs.field(init=False, default=False)
    has_scanned: bool = attrs.field(init=False, default=False)
    _batches: list[str | None] = attrs.field(init=False, factory=list)  # for whom lists are put on record
    _first: float | None = attrs.field(init=False, default=None)  # the first moment that matters, beside the open ones
    _sent_before: float | None = attrs.field(init=False, default=None)  # the first permit of any open one
    _statused: Statuses = attrs.field(init=False, factory=Statuses)  # what the lists of each status have shown

    def __attrs_post_init__(self) -> None:
        if self.progress is not None:
            self.scanner.reader.tell = self._tell

    def _tell(self, waits: float = 0.0) -> None:
        """Tell how far it is, to whoever wants to hear it."""
        if self.progress is not None:
            self.progress(SearchProgress(pages=self.scanner.reader.requests, records=self.records, waits=waits))

    async def _wait(self, seconds: float) -> None:
        self._tell(waits=seconds)
        await self.scanner.reader.sleep(seconds)

    async def begin(self, batch_id: str | None) -> None:
        """Find out from which moment on the list matters, for orders that are not open too."""
        journal = self.scanner.journal
        runs = [await journal.run(batch_id)] if batch_id is not None else await journal.runs()
        # of an outbox what is put from now on waits, whether or not something is in quarantine
        quarantined = [run for run in runs if run.quarantined or (run.awaits and run.is_outbox)]
        self.is_doubted = bool(quarantined)
        self._batches = [batch_id] if batch_id is not None else [None, *(run.batch_id for run in quarantined)]
        after = _last_complete(await journal.list_scans(batch_id), batch_id, self.absences.clock()) - LATE
        moments = [
            await journal.sent_since(batch_id, (State.REJECTED,), after=after),
            *(run.look_since for run in quarantined),
        ]
        self._first = min((moment for moment in moments if moment is not None), default=None)
        # earlier attempts of open orders, too: what a person had sent again may have been carried out
        self._sent_before = await journal.sent_since(batch_id, OPEN)

    async def see_awaited(self) -> None:
        """Read the list again where that is all that a quarantine still needs, until two have counted."""
        scanner = self.scanner
        for _ in range(LISTS):
            runs = [await scanner.journal.run(batch_id) for batch_id in self._batches if batch_id is not None]
            due = [run.awaits.due(scanner.grace, scanner.interval) for run in runs if run.awaits is not None]
            wait = max(min(due, default=float("inf")) - self.absences.clock(), 0.0)
            if wait > scanner.interval:
                return
            await self._wait(wait)
            await self.scan()

    async def look(self, sought: SpillTable[ReconcileTarget]) -> None:
        """Look everywhere, again where one list more may park an order."""
        window = await self.look_once(sought)
        for _ in range(1, self.absences.lists):
            if window is None or not any(map(self.absences.may_be_parked, sought.each(State.UNKNOWN))):
                return
            await self._wait(self.absences.interval)
            await self.scan_window(window)

    async def look_once(self, sought: SpillTable[ReconcileTarget], *, is_listed: bool = False) -> DateRange | None:
        """Look everywhere, but not in a list that was read a moment ago; tells which days were read."""
        await self.look_in_notifications(sought)
        moments = (order.at for order in sought.each() if order.is_sought)
        window = None if is_listed else self._window(sought, moments)
        if window is not None:
            await self.scan_window(window)
        await self._by_id(window, sought)
        return window

    async def scan(self, sought: SpillTable[ReconcileTarget] | None = None) -> None:
        """Read the list once, for these orders and for all others that matter, if there are any."""
        moments = () if sought is None else (order.at for order in sought.each())
        if (window := self._window(sought, moments)) is not None:
            await self.scan_window(window)

    def _window(self, sought: SpillTable[ReconcileTarget] | None, moments: Iterable[float]) -> DateRange | None:
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
        return DateRange.to_now(first, self.absences.clock(), self.scanner.payments.dialect.timezone, sought)

    async def look_in_notifications(self, sought: SpillTable[ReconcileTarget]) -> None:
        """Settle what notifications that are stored already tell."""
        for page in sought.pages():
            open_ = [request_id for request_id, order in page.items() if order.is_open]
            events = await self.scanner.journal.final_events_of(open_)
            told = [(page[request_id], events[request_id]) for request_id in open_ if request_id in events]
            try:
                await asyncio.gather(*(self._notified(order, event) for order, event in told))
            finally:
                put_back(sought, (order for order, _ in told))

    async def _notified(self, order: ReconcileTarget, event: TransactionEvent) -> None:
        """Settle an order by the notification of its end."""
        if (signal := _NOTIFIED.get(event.status_code)) is not None:
            evidence = Evidence(
                signal=signal,
                source="stored notification",
                request_id=event.request_id,
                transaction_id=event.transaction_id,
                amount=event.amount,
                currency=event.currency_code or None,
            )
            await self.scanner.findings.apply(order, evidence)

    async def scan_window(self, window: DateRange) -> Reading:
        """Read the list once, and park the orders that it was one too many to miss."""
        absences, scanner = self.absences, self.scanner
        await absences.heed_words(scanner)
        began, ticks, self.has_scanned = absences.clock(), absences.ticks(), True
        reading = await scanner.scan(window, self._batches)
        if reading.problem is not None:
            scanner.findings.unread[f"{unproven(window)}: {reading.problem}"] = None
        if self.by_status:
            await self._statuses(window)
        if reading.counted:
            for note in absences.count(window, began, ticks):
                scanner.findings.note(note)
            await absences.park(window, scanner, began)
        elif reading.problem is None:
            scanner.findings.note(f"{unproven(window)}: the service does not say how many rows there are")
        return reading

    async def _statuses(self, window: DateRange, *, under_way: bool = False) -> None:
        """Read the list under each status, and settle the orders that one of them shows.

        Args:
            under_way: Also where nothing has ended, to know who is still under way.
        """
        if next(self._may_change(window), None) is None:
            return
        wanted = self._may_change(window)
        self._statused = await read_statuses(
            self.scanner.reader, window.since, window.until, wanted, under_way=under_way
        )
        for note in self._statused.notes:
            self.scanner.findings.note(note)
        for page in paged(self._ended()):
            told: dict[str, list[Evidence]] = {}
            for transaction_id, row, status in page:
                end = Evidence(
                    signal=LOOKED_UP[status],
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

    def _may_change(self, window: DateRange) -> Iterator[str]:
        """The transactions that the last list scan has shown, of orders of which a status has something to say."""
        for page in self.scanner.shown.pages():
            orders = window.sought.find({row.request_id for row in page.values()})
            yield from (id_ for id_, row in page.items() if orders[row.request_id].may_change)

    def _ended(self) -> Iterator[tuple[str, ListedTransaction, TransactionStatus]]:
        """Those of them that the list of a status shows, with that status."""
        for page in self.scanner.shown.pages():
            found = self._statused.found.find({id_.lower() for id_ in page})
            yield from ((id_, row, found[id_.lower()]) for id_, row in page.items() if id_.lower() in found)

    async def _end(self, order: ReconcileTarget, told: list[Evidence]) -> None:
        """Settle an order by the end of its transaction; of each one, where it has several."""
        for evidence in told:
            if order.unconfirmed or _ENDS[evidence.signal] is not order.state:
                await self.scanner.findings.apply(order, evidence)

    async def _by_id(self, window: DateRange | None, sought: SpillTable[ReconcileTarget]) -> None:
        """Look up transactions that are known, those of unknown orders first; nobody that is listed as under way.

        Where the first records tell a status, the lists of each status tell it of hundreds at once.
        """
        few: list[ReconcileTarget] = []

        def accepted() -> Iterator[ReconcileTarget]:
            asked = {order.request_id for order in few}
            known = (order for order in sought.each(State.ACCEPTED) if order.transaction_id)
            return self.unlisted(order for order in known if order.request_id not in asked)

        few = list(islice(accepted(), STATUSLESS))
        others = (state for state in OPEN if state is not State.ACCEPTED)
        unknown = (order for order in sought.each(*others) if order.transaction_id)
        statusless = await self.look_up(sought, chain(unknown, few))
        if statusless < STATUSLESS and next(accepted(), None) is not None:
            if window is not None:
                await self._statuses(window, under_way=True)
            await self.look_up(sought, accepted(), statusless)

    def unlisted(self, orders: Iterable[ReconcileTarget]) -> Iterator[ReconcileTarget]:
        """Those of these orders that no list shows as under way."""
        for page in paged(orders):
            listed = self._statused.under_way.find({(order.transaction_id or "").lower() for order in page})
            yield from (order for order in page if (order.transaction_id or "").lower() not in listed)

    async def look_up(
        self, sought: SpillTable[ReconcileTarget], orders: Iterable[ReconcileTarget], statusless: int = 0
    ) -> int:
        """Look at the record of each; tells how many had no status, with those of before.

        Args:
            sought: Where these orders are.
            statusless: Of the records of before.
        """

        def worth_it() -> Iterator[ReconcileTarget]:
            for order in orders:
                if order.state is not State.ACCEPTED or statusless < STATUSLESS:
                    yield order

        async def look(order: ReconcileTarget) -> Transaction:
            return await self.scanner.payments.transactions.get(order.transaction_id or "")

        found: list[tuple[ReconcileTarget, Transaction]] = []
        try:
            async for order, record in self.scanner.payments.map(look, worth_it(), concurrency=_READS):
                self.records += 1
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
        self, sought: SpillTable[ReconcileTarget], found: list[tuple[ReconcileTarget, Transaction]]
    ) -> None:
        """Write down what these records say, which are done with then."""
        try:
            await asyncio.gather(
                *(self.scanner.findings.apply_record(order, record, "record") for order, record in found)
            )
        finally:
            put_back(sought, (order for order, _ in found))
        found.clear()


def _last_complete(list_scans: Sequence[ListScan], batch_id: str | None, now: float) -> float:
    """When the last complete list scan for a batch began; 0 where there is none.

    One that began later than another that was made after it, or than now, began at no moment that counts: the clock
    was wrong then.
    """
    for scan in reversed(list_scans):
        if scan.begun <= now and scan.is_complete and scan.batch_id == batch_id:
            return scan.begun
        now = min(now, scan.begun)
    return 0.0


@asynccontextmanager
async def proposing(journal: Journal) -> AsyncIterator[None]:
    """Propose a decision that others have to approve, unless a person has; the ``NotApproved`` goes on."""
    try:
        yield
    except NotApproved as refusal:
        made = () if refusal.proposal is None else await journal.proposals(refusal.proposal.digest)
        if refusal.proposal is not None and all(one.withdrawn is not None for one in made):
            await journal.propose(refusal.proposal)
        raise


async def send_again(
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
        return await journal.send_again(request_id, who=who, why=why, seen=seen)


async def send_again_all(
    journal: Journal,
    request_ids: Sequence[str],
    who: str | Signature,
    why: str,
    *,
    seen: Mapping[str, float] | None = None,
) -> Sequence[Entry]:
    """Have several orders sent again by one decision, as ``send_again`` does one: all of them or none.

    Args:
        seen: ``Entry.updated_at`` of the orders as that person saw them, by request id.

    Raises:
        NotApproved, NotParked, OrderUnknown: As ``send_again``.
    """
    async with proposing(journal):
        return await journal.send_again_all(request_ids, who=who, why=why, seen=seen)


async def acknowledge(journal: Journal, request_id: str, who: str, why: str, *, seen: float | None = None) -> Entry:
    """State, as a named person, that the contradiction about an order was looked into: it is shown no more.

    The same evidence again is not a new contradiction; any other is.

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
        NotApproved: As ``send_again``.
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
        NotApproved: As ``send_again``.
    """
    async with proposing(journal):
        await journal.give_listing_deadline(deadline, who=who, why=why)

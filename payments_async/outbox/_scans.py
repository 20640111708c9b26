"""A list scan: the service's list of some days, read to its end, compared with the journal, and put on record there."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import NamedTuple

import attrs

from payments_async._session.lists import Reader, Reading
from payments_async._session.session import PaymentsSession, executor_of
from payments_async._values.amounts import currency_key, magnitude_text
from payments_async._values.frozen import frozen
from payments_async._values.request_ids import plain_id
from payments_async._values.spill import PAGE, Columns, SpillTable, ids
from payments_async._wire.models import Transaction, TransactionStatus
from payments_async.journal import Journal
from payments_async.journal._faults import WrongAccount
from payments_async.journal._records import GRACE, INTERVAL, ArchivedOrder, Entry, Evidence, RunIdentity
from payments_async.journal._states import CONFIRMED, OPEN, Signal, State, next_state

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


_log = logging.getLogger("payments_async")

_MOST_DAYS = 25_000  # that a clock may be wrong by: one that begins in 1970 is
_MARGIN = timedelta(days=1)  # the service names no time zone, and its clock is not ours

PAGES_ABREAST = 4  # of a list, asked for side by side; the rest of the session's places are for sending
_MOST = 1000  # records nobody sent that are kept in the report; the others are counted
LOOKED_UP: Mapping[TransactionStatus, Signal] = {
    TransactionStatus.ENQUEUED: Signal.LOOKED_UP_PROCESSING,
    TransactionStatus.PROCESSING: Signal.LOOKED_UP_PROCESSING,
    TransactionStatus.SUCCESSFUL: Signal.LOOKED_UP_SUCCESSFUL,
    TransactionStatus.FAILED: Signal.LOOKED_UP_FAILED,
    TransactionStatus.REVERSED: Signal.LOOKED_UP_REVERSED,
}
_ENDS = frozenset({Signal.LOOKED_UP_SUCCESSFUL, Signal.LOOKED_UP_FAILED, Signal.LOOKED_UP_REVERSED})
STATES: Mapping[TransactionStatus, State] = {  # in which an order ends that the list shows so
    status: next_state(State.UNKNOWN, signal).state for status, signal in LOOKED_UP.items() if signal in _ENDS
}
_WRONG_CLOCK = "this machine's clock is days away from the service's: set it; the list of its days was read too"
_DATE_KEYS = "the service may not know days as they are written; compare Dialect.date_keys"


@attrs.define(eq=False)
class DateRange:
    """Days of the list, and what is looked for in them.

    Attributes:
        since, until: First and last day, in the service's time zone, with a margin around them.
        sought: By request id.
        list_scans: How many times the list of them was read.
        days: Those of orders that the last list scan has shown, and that are known to be of these days.
        earlier, later: How many days were taken in before and after, since the service's clock is not ours.
    """

    since: date
    until: date
    sought: SpillTable[ReconcileTarget] = attrs.field(factory=reconcile_targets)
    list_scans: int = 0
    days: set[date] = attrs.field(factory=set)
    earlier: int = 0
    later: int = 0

    @classmethod
    def to_now(
        cls, first: float, now: float, zone: tzinfo, sought: SpillTable[ReconcileTarget] | None = None
    ) -> DateRange:
        """All days from a moment until today: what was sent once may turn up on any day after, and twice.

        Args:
            first, now: Unix seconds.
        """
        return cls(
            since=day_of(min(first, now), zone) - _MARGIN,
            until=day_of(now, zone) + _MARGIN,
            sought=reconcile_targets() if sought is None else sought,
        )

    def follow(self, difference: float | None) -> bool:
        """Take in what these days are by the service's clock as well. Tells whether they were not in it already.

        Args:
            difference: Seconds by which that is ahead of ours.
        """
        days = max(-_MOST_DAYS, min(_MOST_DAYS, round((difference or 0.0) / 86_400.0)))
        earlier, later = min(days, self.earlier), max(days, self.later)
        if (earlier, later) == (self.earlier, self.later):
            return False
        self.since += timedelta(days=earlier - self.earlier)
        self.until += timedelta(days=later - self.later)
        self.earlier, self.later = earlier, later
        return True

    def shows(self, day: date) -> bool:
        """Whether the last list scan has shown an order of ours of about this day, so that absence says something."""
        return any(abs(day - known) <= _MARGIN for known in self.days)

    def __str__(self) -> str:
        return f"{self.since.isoformat()} to {self.until.isoformat()}"


def day_of(at: float, zone: tzinfo) -> date:
    """The day of a moment where the service is."""
    return datetime.fromtimestamp(at, UTC).astimezone(zone).date()


@frozen(kw_only=True)
class Difference:
    """A record of the service that carries the request id of an order, and another amount or currency.

    Attributes:
        ours, theirs: Magnitudes.
    """

    request_id: str
    transaction_id: str
    ours: Decimal
    theirs: Decimal | None
    our_currency: str | None = None
    their_currency: str | None = None


@attrs.define(eq=False, repr=False)
class Findings:
    """Puts evidence into the journal and remembers what there is to report; see ``Reconciliation``."""

    journal: Journal
    settled: Counter[State] = attrs.field(factory=Counter)
    found: int = 0
    unknown: list[str] = attrs.field(factory=list)
    parked: list[str] = attrs.field(factory=list)
    sent_again: list[str] = attrs.field(factory=list)  # or will be, by a listing deadline
    stuck: list[str] = attrs.field(factory=list)
    unknown_transactions: dict[str, Transaction] = attrs.field(factory=dict)
    _strangers: SpillTable[None] = attrs.field(init=False, factory=ids)  # transaction ids
    differences: dict[str, Difference] = attrs.field(factory=dict)
    doubles: dict[str, dict[str, None]] = attrs.field(factory=dict)  # transaction ids, in the order they were seen in
    contradicted: dict[str, str] = attrs.field(factory=dict)  # failed as a notification alone has told: by what
    unread: dict[str, None] = attrs.field(factory=dict)
    notes: dict[str, None] = attrs.field(factory=dict)

    @property
    def strangers_seen(self) -> int:
        """Different records that nobody here has sent, however often the days they are in were read."""
        return len(self._strangers)

    def note(self, words: str) -> None:
        """Something that hinders."""
        self.notes[words] = None

    async def apply(self, order: ReconcileTarget, evidence: Evidence) -> bool:
        """Write evidence about an order down; tells whether it agrees with the order."""
        finding = await self.journal.apply_evidence(evidence)
        if finding is None or finding.request_id != order.request_id:
            return False
        order.state = finding.state
        if order.unconfirmed and finding.conflict is not None:
            self.contradicted[order.request_id] = finding.conflict
        order.unconfirmed &= evidence.signal not in _ENDS
        if (finding.conflict is None or finding.state in CONFIRMED) and evidence.transaction_id is not None:
            order.transaction_id = evidence.transaction_id
        return finding.conflict is None

    async def apply_record(self, order: ReconcileTarget, record: Transaction, source: str) -> bool:
        """Write down what a record says of an order, at least that the service has it."""
        if not order.agrees(record):
            self.differences[record.transaction_id] = Difference(
                request_id=order.request_id,
                transaction_id=record.transaction_id,
                ours=order.amount,
                theirs=None if record.amount is None else record.amount.copy_abs(),
                our_currency=order.currency,
                their_currency=record.currency,
            )
        return await self.apply(order, evidence_of(record, source))

    async def park(self, order: ReconcileTarget, detail: str, since: float | None = None) -> None:
        """Nothing shows an order: a person has to decide, or has decided by a listing deadline."""
        finding = await self.journal.park(order.request_id, detail=detail, sent_at=order.at, since=since)
        order.state = finding.state
        order.unconfirmed = False
        if finding.state is State.PARKED and finding.before is not State.PARKED:
            self.parked.append(order.request_id)
        if finding.state is State.PLANNED and finding.before is State.UNKNOWN:
            self.sent_again.append(order.request_id)

    def double(self, request_id: str, *transaction_ids: str) -> None:
        """More than one transaction of one order."""
        self.doubles.setdefault(request_id, {}).update(dict.fromkeys(transaction_ids))

    def stranger(self, record: Transaction) -> None:
        """A record nobody here has sent."""
        self._strangers.put({record.transaction_id: None})
        if len(self.unknown_transactions) < _MOST:
            self.unknown_transactions.setdefault(record.transaction_id, record)

    def sum_up(self, orders: Iterable[ReconcileTarget], before: float) -> None:
        """These have been looked for everywhere.

        Args:
            before: Unix seconds; what was accepted earlier than that should have ended by now.
        """
        for order in orders:
            if order.state is not order.first and order.state is not State.PARKED:
                self.settled[order.state] += 1
            if order.state is State.UNKNOWN:
                self.unknown.append(order.request_id)
            if order.state is State.ACCEPTED and order.at <= before:
                self.stuck.append(order.request_id)


def evidence_of(record: Transaction, source: str) -> Evidence:
    """What a record says, word for word; without a status that is known, that the service has the order."""
    signal = None if record.status is None else LOOKED_UP.get(record.status)
    return Evidence(
        signal=signal or Signal.LOOKED_UP_PROCESSING,
        source=source,
        request_id=record.request_id,
        transaction_id=record.transaction_id,
        amount=record.amount,
        currency=record.currency,
    )


@attrs.define(eq=False)
class ListScanner:
    """Reads the service's lists, and takes from each row what it says of any order of the journal.

    Attributes:
        remembers: What a list shows of orders that the journal does not hold is kept there, for they may come yet.
        grace, interval: Seconds, as in ``reconcile``: of which lists the journal notes that they are clean.
        unclaimed: Rows of the last list that no order is known to have, by what they may be of: an id, or an amount.
        notes_unclaimed: They are noted.
        tell: Called after each page.
        findings: What it found out.
        shown: Transactions of sought orders that the last list has shown.
        rows: How many it has shown until now.
    """

    payments: PaymentsSession
    journal: Journal
    reader: Reader
    remembers: bool = attrs.field(default=False, kw_only=True)
    grace: float = attrs.field(default=GRACE, kw_only=True)
    interval: float = attrs.field(default=INTERVAL, kw_only=True)
    tell: Callable[[], object] | None = attrs.field(init=False, default=None)
    findings: Findings = attrs.field(init=False)
    unclaimed: SpillTable[None] = attrs.field(factory=ids, init=False)
    notes_unclaimed: bool = attrs.field(default=False, init=False)
    shown: SpillTable[ListedTransaction] = attrs.field(init=False, factory=listed_transactions)
    rows: int = attrs.field(init=False, default=0)
    _first: dict[str, str] = attrs.field(init=False, factory=dict)  # transactions of orders that have none
    _ours: int = attrs.field(init=False, default=0)  # orders of the journal that the last list has shown

    def __attrs_post_init__(self) -> None:
        self.findings = Findings(self.journal)

    async def scan(self, window: DateRange, batches: Sequence[str | None] = ()) -> Reading:
        """Read a list, apply what each row says of any order of the journal, and note that for these batches.

        Returns:
            What the list is worth.
        """
        begun = [
            await self.journal.begin_list_scan(batch_id, since=window.since, until=window.until) for batch_id in batches
        ]
        requests, self.shown, self.unclaimed, self._ours = self.reader.requests, listed_transactions(), ids(), 0
        window.list_scans += 1
        window.days.clear()
        reading = await self._read_window(window)
        if reading.problem is None and not self._ours and await self._is_beyond(window):
            self.findings.note(f"the list of {window} shows no order of ours, the list of all days does: {_DATE_KEYS}")
            reading = await self._read(window, None, None)
        for scan in begun:
            ended = attrs.evolve(
                scan,
                rows=reading.rows,
                requests=self.reader.requests - requests,
                counted=reading.counted,
                clean=bool(window.days),
                problem=reading.problem,
            )
            await self.journal.end_list_scan(ended, grace=self.grace, interval=self.interval)
        return reading

    async def _read_window(self, window: DateRange) -> Reading:
        """Read the list of its days, of those by the service's clock as well."""
        window.follow(self.payments.clock_difference)
        while True:
            reading = await self._read(window, window.since, window.until)
            if not window.follow(self.payments.clock_difference):  # the first answer of a session tells of it
                break
        if window.earlier or window.later:
            self.findings.note(_WRONG_CLOCK)
            _log.warning(_WRONG_CLOCK, extra={"earlier": window.earlier, "later": window.later})
        return reading

    async def _read(self, window: DateRange, since: date | None, until: date | None) -> Reading:
        """Read a list to its end, page by page."""
        reading, self.rows = self.reader.read(since, until, probes=True), 0
        async with aclosing(reading.pages()) as pages:
            async for rows in pages:
                await self._take(window, rows)
                self.rows += len(rows)
                if self.tell is not None:
                    self.tell()
        return reading

    async def _is_beyond(self, window: DateRange) -> bool:
        """Whether the list of all days shows orders that belong into this window, or that were never sent from here.

        A service may understand days in another way than they are written, and show nothing of any. So where a list
        shows no order of ours, the first and the last transactions of all days are looked at.
        """
        known = self.findings.found
        window.days.clear()
        await self._take(window, await self.reader.edges())
        return self.findings.found > known or any(window.since < day < window.until for day in window.days)

    async def _take(self, window: DateRange, rows: list[Transaction]) -> None:
        """Take from some rows what they say of orders of the journal, whatever batch they are in."""
        named = _grouped(rows)
        sought = window.sought.find(named)
        seen: dict[str, ListedTransaction] = {}
        try:
            await self._take_of(window, rows, named, sought, seen)
        finally:  # what was written down stands
            put_back(window.sought, sought.values())
        self.shown.put(seen)

    async def _take_of(
        self,
        window: DateRange,
        rows: list[Transaction],
        named: Mapping[str, list[Transaction]],
        sought: dict[str, ReconcileTarget],
        seen: dict[str, ListedTransaction],
    ) -> None:
        """Take from some rows what they say.

        Args:
            named: Those that name an order, by its id.
            sought: The sought orders among them; those that are named in other letters come to stand there too.
            seen: Comes to hold what they show of sought orders, by transaction id.
        """
        for order in sought.values():
            order.listed = window.list_scans
        orders = dict(sought)
        found = await self.journal.orders_of([request_id for request_id in named if request_id not in orders])
        gone = {listed: order for listed, order in found.items() if isinstance(order, ArchivedOrder)}
        others = {listed: entry for listed, entry in found.items() if isinstance(entry, Entry)}
        if renamed := {entry.request_id: listed for listed, entry in others.items() if entry.request_id != listed}:
            words = "the list has request ids in other letters than they were sent in, such as"
            self.findings.note(f"{words} {next(iter(renamed.values()))}")
            for request_id, order in window.sought.find(one for one in renamed if one not in sought).items():
                order.listed = window.list_scans
                sought[request_id] = order
        known = {entry.request_id: ReconcileTarget.of(entry) for entry in others.values()} | sought
        orders |= {listed: known[entry.request_id] for listed, entry in others.items()}
        self._ours += len(orders) + len(gone)
        await asyncio.gather(
            *(self._nameless(row, gone) for row in rows if row.request_id not in orders),
            *(  # of ids that begin alike the longer first: what is told of them says whose the shorter is
                self._all_of(orders[request_id], named[request_id], window, sought, seen)
                for request_id in sorted(orders, key=len, reverse=True)
            ),
        )
        if self.remembers:
            unheard = [row for one, rows_ in named.items() if one not in orders and one not in gone for row in rows_]
            await self.journal.note_observed([evidence_of(row, "list") for row in unheard])

    async def _all_of(
        self,
        order: ReconcileTarget,
        rows: Iterable[Transaction],
        window: DateRange,
        sought: Mapping[str, ReconcileTarget],
        seen: dict[str, ListedTransaction],
    ) -> None:
        """All rows of one order, one after the other: more than one is more than one payment."""
        for row in rows:
            known = order.transaction_id if order.state in CONFIRMED else None
            first = known or self._first.setdefault(order.request_id, row.transaction_id)
            if first.lower() != row.transaction_id.lower():
                self.findings.double(order.request_id, first, row.transaction_id)
            is_about = await self._is_about(order, row)
            if order.state in CONFIRMED and order.transaction_id is not None:
                self._first.pop(order.request_id, None)  # the journal knows now
            if not is_about:
                self._leave(row, is_named=order.state is State.SENDING)
            if is_about:
                window.days.add(day_of(order.at, self.payments.dialect.timezone))
                if order.request_id in sought:
                    seen[row.transaction_id] = ListedTransaction(order.request_id, row.amount, row.currency)

    async def _is_about(self, order: ReconcileTarget, row: Transaction) -> bool:
        """Whether a row is about this order indeed, after taking from it what it says."""
        if order.state is State.SENDING:
            return False  # its own answer is under way
        final = row.status is not None and row.status.is_final
        same = order.state in CONFIRMED and _is_same(row, order) and order.agrees(row)
        if (
            same
            and not order.unconfirmed
            and (row.status is None or not final or STATES.get(row.status) is order.state)
        ):
            return True
        before = order.state
        if row.request_id != order.request_id:
            row = attrs.evolve(row, request_id=order.request_id)  # in the letters in which it was sent
        agrees = await self.findings.apply_record(order, row, "list")
        if before is State.PLANNED and order.state is not State.PLANNED:
            self.findings.found += 1
        return agrees

    async def _nameless(self, row: Transaction, gone: Mapping[str, ArchivedOrder]) -> None:
        """A row whose request id the journal does not hold any more, or never did, or that has none.

        Args:
            gone: Orders that have left for an archive, by the ids in the list.
        """
        finding = None
        order = None if row.request_id is None else gone.get(row.request_id)
        if order is not None:
            row = attrs.evolve(row, request_id=order.request_id)  # in the letters in which it was sent
        if row.request_id is None or order is not None:
            finding = await self.journal.apply_evidence(evidence_of(row, "list"))
        if finding is None or finding.conflict is not None:
            self._leave(row)
        if finding is None:
            self.findings.stranger(row)
        elif order is not None and (finding.conflict is not None or finding.state is not finding.before):
            words = finding.conflict or f"it is {finding.state} now"
            self.findings.note(f"order {order.request_id}, which is in the archive {order.archive.path}: {words}")

    def _leave(self, row: Transaction, *, is_named: bool = False) -> None:
        """Note a row that no order is known to have.

        Args:
            is_named: Its id is that of an order whose own it may well be; still it may be the beginning of another.
        """
        if self.notes_unclaimed:
            amount = () if is_named else (magnitude_text(row.amount),)
            named = (f"#{plain_id(row.request_id)}",) if row.request_id else ()
            self.unclaimed.put(dict.fromkeys((*amount, *named)))

    def may_show(self, order: ReconcileTarget) -> bool:
        """Whether the last list may show an order in a row that names it wrongly, or not at all."""
        key = plain_id(order.request_id)
        beginnings = (f"#{key[:length]}" for length in range(1, len(key) + 1))
        return bool(self.unclaimed.find([magnitude_text(order.amount), magnitude_text(None), *beginnings]))


def _grouped(rows: Iterable[Transaction]) -> dict[str, list[Transaction]]:
    """Rows by their request id."""
    groups: dict[str, list[Transaction]] = {}
    for row in rows:
        if row.request_id is not None:
            groups.setdefault(row.request_id, []).append(row)
    return groups


def _is_same(row: Transaction, order: ReconcileTarget) -> bool:
    """Whether it is the transaction that the order is known to have."""
    return order.transaction_id is not None and row.transaction_id.lower() == order.transaction_id.lower()


def account_of(payments: PaymentsSession) -> RunIdentity:
    """The account a session logs in to."""
    who = executor_of(payments).credentials
    return RunIdentity.of(payments.base_url, app_key=who.app_key, user_id=who.user_id)


async def check_account(payments: PaymentsSession, journal: Journal) -> None:
    """Refuse to ask one account about the orders of another: its list shows none of them, or others of the same ids.

    Raises:
        WrongAccount: The journal is about another one.
    """
    ours = account_of(payments)
    for run in await journal.runs():
        if run.identity != ours:
            raise WrongAccount(
                f"the journal belongs to user {run.identity.user_id} at {run.identity.base_address}, and the session "
                f"is one of user {ours.user_id} at {ours.base_address}"
            )

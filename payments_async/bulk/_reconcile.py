"""Reconcile: settle what is open from what the service shows, and report what needs a person. Sends no order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime

import attrs

from payments_async._errors import AuthenticationFailed, PaymentsError
from payments_async._events import TransactionFailed, TransactionSucceeded
from payments_async._models import Transaction
from payments_async._session import PaymentsSession
from payments_async.bulk._findings import LOOKED_UP, Findings, Reconciliation, evidence_of
from payments_async.bulk._sweeps import Reading, Shown, read_list, read_statuses
from payments_async.bulk._window import CONFIRMED, Wanted, Window, collect, day_of, windows
from payments_async.journal._contract import Journal
from payments_async.journal._records import Entry, Evidence
from payments_async.journal._states import News, State

__all__ = ["look_up_open", "reconcile", "write_off"]

_FEW = 20_000  # orders looked up before a run goes on; the others wait for reconcile
_AT_ONCE = 50  # questions to the journal
_READS = 10  # looks at single transactions
_STATUSLESS = 20  # records without a status, after which looking at more of them says nothing new
_NOTIFIED = {TransactionSucceeded: News.NOTIFIED_SUCCESSFUL, TransactionFailed: News.NOTIFIED_FAILED}


async def reconcile(
    payments: PaymentsSession,
    journal: Journal,
    batch_id: str | None = None,
    *,
    grace: float = 900.0,
    sweeps: int = 2,
    interval: float = 60.0,
    stuck_after: float = 86_400.0,
    reversals: bool = False,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Reconciliation:
    """Settle unknown and accepted orders: by stored notifications, by the list, and by their transaction ids.

    Only what the service says of an order settles it. Not being found settles nothing: an unknown order that clean
    sweeps did not show is parked for a person, and never sent again by itself. A sweep is clean when the list was
    read to its end and shows an order of ours of those days. The more often the list shows orders under a status, the
    fewer are left to look up; statuses are believed only from filters that the service demonstrably knows.

    Args:
        batch_id: ``None`` for all batches.
        grace: Seconds after its last permit within which an order may still arrive, and is not parked.
        sweeps: Clean sweeps, 2 or more, that have to miss an unknown order before it is parked.
        interval: Seconds between two of them. They are made only where an order might be parked.
        stuck_after: Seconds after which an accepted order without an end is reported.
        reversals: Also look whether a successful order was reversed since, which no documented notification tells.
        clock: Unix seconds.
        sleep: Waits for seconds.

    Raises:
        AuthenticationFailed: The service refused our credentials. What was settled until then stays so.
        JournalUnavailable: The journal cannot be read or written.
    """
    if sweeps < 2:
        raise ValueError("sweeps: must be 2 or more; one list that misses an order says too little")
    findings = Findings(journal)
    search = _Search(payments, journal, findings, grace=grace, interval=interval, clock=clock)
    async for wanted in collect(journal, batch_id):
        await search.look(wanted, sweeps=sweeps, sleep=sleep)
        for order in wanted.values():
            findings.sum_up(order, clock() - stuck_after)
            if order.state is not State.UNKNOWN:
                payments.note_evidence(order.request_id)
    if reversals:
        async for wanted in collect(journal, batch_id, states=(State.SUCCESSFUL,)):
            await search.look_again(wanted)
            for order in wanted.values():
                findings.sum_up(order, clock() - stuck_after)
    return await findings.report(batch_id)


async def look_up_open(payments: PaymentsSession, journal: Journal, batch_id: str) -> None:
    """Look once whether what an earlier run left open has arrived. Parks nothing, waits for nothing.

    How it ended is left to ``reconcile``, unless the records say it: that would be five lists more.
    """
    search = _Search(payments, journal, Findings(journal), grace=0.0, interval=0.0, clock=time.time, by_status=False)
    async for wanted in collect(journal, batch_id, portion=_FEW):
        await search.look(wanted, sweeps=1, sleep=asyncio.sleep)
        return


async def write_off(journal: Journal, request_id: str, who: str, why: str, *, seen: float | None = None) -> Entry:
    """State, as a named person, that a parked order never arrived: it is planned again, and sent by the next run.

    What contradicted that until now, such as a forged notification, is called false with it. Evidence that comes later
    still counts: should both arrive, the journal shows a conflict.

    Args:
        seen: ``Entry.updated_at`` of the order as that person saw it.

    Raises:
        NotParked: It is not parked, or something was learned of it since it was seen.
        OrderUnknown: The journal holds no such order.
    """
    return await journal.write_off(request_id, who=who, why=why, seen=seen)


@attrs.define
class _Search:
    """One search for open orders."""

    payments: PaymentsSession
    journal: Journal
    findings: Findings
    grace: float = attrs.field(kw_only=True)
    interval: float = attrs.field(kw_only=True)
    clock: Callable[[], float] = attrs.field(kw_only=True)
    by_status: bool = attrs.field(kw_only=True, default=True)

    async def look(
        self, wanted: Mapping[str, Wanted], *, sweeps: int, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        """Look everywhere. With fewer than two sweeps nothing is parked."""
        await self._in_notifications(list(wanted.values()))
        places = windows((order for order in wanted.values() if order.is_open), self.payments.dialect.timezone)
        for turn in range(sweeps):
            if turn:
                await sleep(self.interval)
            for window in places:
                await self._sweep(window)
            if not turn:
                await self._by_id([order for order in wanted.values() if order.is_open and order.transaction_id])
            places = [window for window in places if any(map(self._may_be_parked, window.wanted.values()))]
            if not places:
                return
        if sweeps > 1:
            await self._park(places, sweeps)

    async def look_again(self, wanted: Mapping[str, Wanted]) -> None:
        """Look through the list whether orders that ended well are shown under another status by now."""
        for window in windows(wanted.values(), self.payments.dialect.timezone):
            await self._sweep(window)

    async def _in_notifications(self, orders: list[Wanted]) -> None:
        for first in range(0, len(orders), _AT_ONCE):
            some = orders[first : first + _AT_ONCE]
            events = await asyncio.gather(*(self.journal.final_event(order.request_id) for order in some))
            for order, event in zip(some, events, strict=True):
                news = None if event is None else _NOTIFIED.get(type(event))
                if event is None or news is None:
                    continue
                evidence = Evidence(
                    news=news, source="stored notification", request_id=event.request_id,
                    transaction_id=event.transaction_id, amount=event.amount, currency=event.currency_code or None,
                )  # fmt: skip
                await self.findings.apply(order, evidence)

    async def _sweep(self, window: Window) -> None:
        began, reading, shown, known = self.clock(), Reading(), dict[str, Shown](), False
        listed: set[str] = set()
        async for rows in read_list(self.payments, window, reading):
            ours = [row for row in rows if row.request_id in window.wanted]
            for row in ours:
                order = window.wanted[row.request_id or ""]
                listed.add(order.request_id)
                if await self._is_shown(order, row):
                    shown[row.transaction_id] = Shown(order.request_id, row.amount, row.currency)
                    known = True
            known = await self._others(window, [row for row in rows if row.request_id not in window.wanted]) or known
        await self._statuses(window, shown)
        if reading.problem is None and known:
            self._count_clean(window, listed, began)
        elif any(order.state is State.UNKNOWN for order in window.wanted.values()):
            why = reading.problem or "it shows no order known to be of these days"
            self.findings.note(f"absence from the list of {window} proves nothing: {why}")

    async def _is_shown(self, order: Wanted, row: Transaction) -> bool:
        """Whether a row is about this order indeed, after taking from it what it says."""
        final = row.status is not None and row.status.is_final
        if order.state in CONFIRMED and not final and _is_same(row, order.transaction_id) and _agrees(row, order):
            return True
        return await self.findings.apply_record(order, row, "list")

    async def _others(self, window: Window, rows: list[Transaction]) -> bool:
        """Rows that nobody looks for. Tells whether one of them is known to be of these days."""
        known = False
        entries = await asyncio.gather(*(self._entry(row) for row in rows))
        for row, entry in zip(rows, entries, strict=True):
            if entry is None:
                await self._unnamed(row)
            elif await self._is_known(entry, row):
                day = None if entry.permitted_at is None else day_of(entry.permitted_at, self.payments.dialect.timezone)
                known = known or (day is not None and window.since <= day <= window.until)
        return known

    async def _entry(self, row: Transaction) -> Entry | None:
        return None if row.request_id is None else await self.journal.entry(row.request_id)

    async def _unnamed(self, row: Transaction) -> None:
        finding = None
        if row.request_id is None:
            finding = await self.journal.apply_evidence(evidence_of(row, News.LOOKED_UP_PROCESSING, "list"))
        if finding is None:
            self.findings.stranger(row)

    async def _is_known(self, entry: Entry, row: Transaction) -> bool:
        if entry.state is State.SENDING:
            return False  # its own answer is under way
        news = News.LOOKED_UP_PROCESSING if row.status is None else LOOKED_UP.get(row.status)
        same = entry.state in CONFIRMED and _is_same(row, entry.transaction_id) and _agrees_with_entry(row, entry)
        if same and (row.status is None or not row.status.is_final or _STATES.get(row.status) is entry.state):
            return True
        self.findings.compare(entry.request_id, entry.amount, entry.order.currency, row)
        await self.journal.apply_evidence(evidence_of(row, news or News.LOOKED_UP_PROCESSING, "list"))
        return same

    async def _statuses(self, window: Window, shown: dict[str, Shown]) -> None:
        orders = {id_: row for id_, row in shown.items() if window.wanted[row.request_id].may_change}
        if not orders or not self.by_status:
            return
        statuses = await read_statuses(self.payments, window, orders, self.findings.note)
        for transaction_id, status in statuses.items():
            row = orders[transaction_id]
            if status.is_final and _STATES[status] is not window.wanted[row.request_id].state:
                evidence = Evidence(
                    news=LOOKED_UP[status], source=f"list {status}", request_id=row.request_id,
                    transaction_id=transaction_id, amount=row.amount, currency=row.currency,
                )  # fmt: skip
                await self.findings.apply(window.wanted[row.request_id], evidence)

    async def _by_id(self, orders: list[Wanted]) -> None:
        statusless = 0

        def worth_it() -> Iterator[Wanted]:
            for order in sorted(orders, key=lambda order: order.state is State.ACCEPTED):
                if order.state is not State.ACCEPTED or statusless < _STATUSLESS:
                    yield order

        async def look(order: Wanted) -> Transaction:
            return await self.payments.transactions.get(order.transaction_id or "")

        async for order, record in self.payments.map(look, worth_it(), concurrency=_READS):
            match record:
                case Transaction():
                    statusless += record.status is None
                    await self.findings.apply_record(order, record, "record")
                case AuthenticationFailed():
                    raise record
                case PaymentsError():
                    pass  # no such transaction, or not now: that says nothing of the order
                case _:
                    raise record

    def _may_be_parked(self, order: Wanted) -> bool:
        return order.state is State.UNKNOWN and order.at + self.grace <= self.clock()

    def _count_clean(self, window: Window, listed: set[str], began: float) -> None:
        if window.swept_at is not None and began - window.swept_at < self.interval:
            return
        window.swept_at = self.clock()
        for order in window.wanted.values():
            if order.state is State.UNKNOWN and order.at + self.grace <= began:
                order.clean = 0 if order.request_id in listed else order.clean + 1

    async def _park(self, places: list[Window], sweeps: int) -> None:
        for window in places:
            last = datetime.fromtimestamp(window.swept_at or 0.0, UTC).isoformat(timespec="seconds")
            detail = f"not in {sweeps} complete lists of {window}, the last one read at {last}"
            for order in window.wanted.values():
                if self._may_be_parked(order) and order.clean >= sweeps:
                    await self.findings.park(order, detail)


_STATES = {
    status: {
        News.LOOKED_UP_SUCCESSFUL: State.SUCCESSFUL,
        News.LOOKED_UP_FAILED: State.FAILED,
        News.LOOKED_UP_REVERSED: State.REVERSED,
    }.get(news)
    for status, news in LOOKED_UP.items()
}


def _is_same(row: Transaction, transaction_id: str | None) -> bool:
    return transaction_id is not None and row.transaction_id.lower() == transaction_id.lower()


def _agrees(row: Transaction, order: Wanted) -> bool:
    return _is_sum(row, order.currency) and (row.amount is None or row.amount.copy_abs() == order.amount)


def _agrees_with_entry(row: Transaction, entry: Entry) -> bool:
    return _is_sum(row, entry.order.currency) and (row.amount is None or row.amount.copy_abs() == entry.amount)


def _is_sum(row: Transaction, currency: str | None) -> bool:
    return currency is None or row.currency is None or row.currency.strip().upper() == currency.upper()

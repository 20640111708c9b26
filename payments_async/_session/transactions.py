"""Transactions: what the service made of our orders (sections 8 and 9)."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Protocol

import attrs

from payments_async._session.executor import Executor
from payments_async._session.lists import Listing, Reader
from payments_async._session.statuses import listed, read_statuses
from payments_async._values.amounts import currency_key
from payments_async._values.checks import check_instance, check_patience
from payments_async._values.errors import (
    AuthenticationFailed,
    IncompleteListing,
    Rejected,
    ServiceFault,
    SeveralTransactions,
)
from payments_async._values.fanout import fan_out
from payments_async._values.frozen import frozen
from payments_async._values.public import warn
from payments_async._values.request_ids import plain_id
from payments_async._wire import endpoints
from payments_async._wire.events import TransactionEvent
from payments_async._wire.models import Acceptance, Page, Transaction, TransactionStatus
from payments_async._wire.orders import Order
from payments_async._wire.status_codes import STATUS_CODES

_POLL_INITIAL = 1.0  # seconds between two looks at the lists, growing
_POLL_MAX = 30.0
_LOOKS = 10  # orders asked for by their path at a time
_FILTERS_REMEMBERED = 60.0  # seconds for which it is remembered whether the service filters by status
_MOST = 25_000 * 86_400.0  # seconds by which a clock may be wrong: one that begins in 1970 is
_NOTIFIED = {code: TransactionStatus[row.status] for code, row in STATUS_CODES.items() if row.is_final and row.status}


@frozen(kw_only=True)
class Settlement:
    """How an order ended, and what says so.

    Attributes:
        status: A final status.
        evidence: The notification's event, the record that carried a status, or the name of the filtered list.
    """

    status: TransactionStatus
    evidence: TransactionEvent | Transaction | str

    @property
    def is_successful(self) -> bool:
        """Whether the money was paid."""
        return self.status is TransactionStatus.SUCCESSFUL


class Notified(Protocol):
    """What ``settled`` needs of a receiver."""

    async def wait_for(
        self,
        request_id: str,
        timeout: float | None = None,
        *,
        transaction_id: str | None = None,
        when: Callable[[TransactionEvent], bool] | None = None,
    ) -> TransactionEvent:
        """The final event of an order; of one transaction of it, and for which ``when`` holds."""


class Transactions:
    """What the service made of our orders."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._filters: bool | None = None  # whether the service was seen to filter by status
        self._filters_until = 0.0

    async def get(self, transaction_id: str) -> Transaction:
        """One transaction by the service's id. It usually carries no status: the list filter tells it.

        The answer is given as it came: compare its ``transaction_id`` first.

        Raises:
            Rejected, ServiceFault: The read was refused (no such transaction), or failed for now.
        """
        return await self._executor.execute(endpoints.get_transaction(transaction_id, self._executor.dialect))

    async def page(
        self,
        *,
        number: int = 1,
        size: int = 50,
        since: date | None = None,
        until: date | None = None,
        status: str | None = None,
    ) -> Page[Transaction]:
        """One page of transactions.

        Args:
            number: From 1.
            size: Rows of a page; the largest the service takes is not documented.
            since: First day, in ``Dialect.timezone``.
            until: Last day.
            status: Only this one: a ``TransactionStatus``, or another word that the service has for it.
        """
        dialect = self._executor.dialect
        call = endpoints.list_transactions(
            number=number, size=size, since=since, until=until, status=status, dialect=dialect
        )
        return await self._executor.execute(call)

    def iterate(
        self,
        *,
        since: date | None = None,
        until: date | None = None,
        status: TransactionStatus | None = None,
        size: int = 50,
    ) -> Listing[Transaction]:
        """All transactions of a window, each once, for ``async for``.

        The window's end is pinned: without ``until`` it is today, so that the list does not grow for ever below the
        reader. ``Listing.incomplete`` tells after the loop whether rows went missing.
        """
        return self._listing(since, until, status, size, warns=True)

    async def find(
        self, request_id: str, *, since: date | None = None, until: date | None = None
    ) -> Transaction | None:
        """The transaction of an order, or ``None`` where the lists do not show it, which proves nothing.

        The list has no filter for the request id, so all rows of the window are read; name a narrow one. Rows that
        went missing are told by an ``IncompleteListing`` warning. Where there are several, it is the first that the
        list shows, and a ``SeveralTransactions`` warning names all: it may have been paid twice.
        """
        found = await self._find_by_path(request_id)
        if found is None:
            several, missing = await self._find_in_list(request_id, since, until)
            if several:
                found = several[0]  # presence is evidence, whatever is missing
            elif missing is not None:
                warn(missing)
            if len(several) > 1:
                warn(_several(request_id, several))
        if found is not None:
            self._executor.note_evidence(request_id, found)
        return found

    async def find_many(
        self, request_ids: Iterable[str], *, since: date | None = None, until: date | None = None
    ) -> Mapping[str, Transaction]:
        """The transactions of many orders, by the request ids that were given, for one reading of the list.

        That the lists do not show an order, which is then left out, proves nothing. It warns as ``find`` does: once of
        rows that went missing, where an order was not found, and for each order that has several transactions. Of the
        list nothing is kept but what was asked for. Where ``Dialect.find_by_request_path`` is set, what the list does
        not show is asked for one by one.

        Raises:
            TypeError: One text in place of many.
        """
        if isinstance(request_ids, str):
            raise TypeError("request_ids: several ids are wanted; for one there is find")
        asked = list(dict.fromkeys(request_ids))
        found, missing = await self._find_in_lists(asked, since, until)
        absent = [request_id for request_id in asked if not found[request_id]]
        for request_id, transaction in (await self._find_by_paths(absent)).items():
            found[request_id].append(transaction)
        if missing is not None and not all(found.values()):
            warn(missing)
        for request_id, several in found.items():
            if len(several) > 1:
                warn(_several(request_id, several))
            if several:
                self._executor.note_evidence(request_id, several[0])
        return {request_id: several[0] for request_id, several in found.items() if several}

    async def find_all(
        self, request_id: str, *, since: date | None = None, until: date | None = None
    ) -> tuple[Transaction, ...]:
        """All transactions of an order, as the list shows them: more than one is more than one payment.

        All rows of the window are read; rows that went missing are told by an ``IncompleteListing`` warning.
        """
        by_path = await self._find_by_path(request_id)
        found, missing = await self._find_in_list(request_id, since, until)
        if by_path is not None and all(one.transaction_id != by_path.transaction_id for one in found):
            found.insert(0, by_path)
        if missing is not None:
            warn(missing)
        if found:
            self._executor.note_evidence(request_id, found[0])
        return tuple(found)

    async def _find_in_list(
        self, request_id: str, since: date | None, until: date | None
    ) -> tuple[list[Transaction], IncompleteListing | None]:
        found, missing = await self._find_in_lists([request_id], since, until)
        return found[request_id], missing

    async def _find_in_lists(
        self, request_ids: Iterable[str], since: date | None, until: date | None
    ) -> tuple[dict[str, list[Transaction]], IncompleteListing | None]:
        """All transactions of each order, and what is missing of the list."""
        found: dict[str, list[Transaction]] = {}
        shown: dict[str, list[Transaction]] = {}  # a service may show an id in other letters than it was sent in
        for request_id in request_ids:
            found[request_id] = shown.setdefault(plain_id(request_id), [])
        if not found:
            return found, None
        rows = self._listing(since, until, None, 50, warns=False)
        async for row in rows:
            if row.request_id is not None and (those := shown.get(plain_id(row.request_id))) is not None:
                those.append(row)
        books = self._executor.books
        owners = books.owners() if any(shown.values()) else {}
        unseen = books.open_among(key for key, those in shown.items() if not those)

        def is_of(key: str, row: Transaction) -> bool:
            """Whether it is of this order, and not of another one whose id the list may have cut off."""
            if (owner := owners.get(row.transaction_id.lower())) is not None:
                return owner == key
            place = bisect_right(unseen, key)
            return not (place < len(unseen) and unseen[place].startswith(key))

        theirs = {one: [row for row in those if is_of(plain_id(one), row)] for one, those in found.items()}
        return theirs, rows.incomplete

    async def _find_by_paths(self, request_ids: list[str]) -> dict[str, Transaction]:
        """Those of these orders that the service shows by their path, where it has one."""
        found: dict[str, Transaction] = {}
        if self._executor.dialect.find_by_request_path is None or not request_ids:
            return found
        async for request_id, one in fan_out(self._find_by_path, request_ids, _LOOKS):
            if isinstance(one, Exception):
                raise one
            if one is not None:
                found[request_id] = one
        return found

    async def settled(
        self,
        acceptance: Acceptance | str,
        *,
        receiver: Notified | None = None,
        order: Order | None = None,
        since: date | None = None,
        timeout: float = 120.0,
    ) -> Settlement:
        """Wait until an order has ended, by whichever tells first: its notification, its record or the filtered lists.

        A notification counts if it is final and of this very transaction. A record that tells a status is believed:
        then no list is read.

        Args:
            acceptance: What ``payouts.send`` or ``collections.request`` gave, or the request id where that was lost:
                the transaction is then looked for first, in the list where the session does not remember it.
            order: What was sent: then a notification or a record of another amount or currency does not count.
            receiver: A ``payments_async.ipn.Receiver`` that hears the notifications, if there is one.
            since: The first day, in ``Dialect.timezone``, on which it may have been sent. Without it that is the day
                before the acceptance, or yesterday where there is only a request id.
            timeout: Seconds.

        Raises:
            TimeoutError: When nothing told a final status in time. The order may end at any time after.
        """
        check_patience("timeout", timeout)
        check_instance("acceptance", acceptance, (Acceptance, str), "an Acceptance, or the request id")
        sought = self._sought(acceptance, order, since)
        try:
            async with asyncio.timeout(timeout):
                settlement = await self._first_to_tell(sought, receiver)
        except TimeoutError as error:
            words = f"order {sought.request_id} has no final status after {timeout} s: wait again, never send it again"
            raise TimeoutError(words) from error
        if (accepted := sought.found(settlement)) is not None:
            self._executor.note_evidence(sought.request_id, accepted)
        return settlement

    def _sought(self, acceptance: Acceptance | str, order: Order | None, since: date | None) -> _Sought:
        """What ``settled`` looks for, with all that is known of it by now."""
        if isinstance(acceptance, str):
            request_id, accepted = acceptance, self._executor.books.acceptance(acceptance)
        else:
            request_id, accepted = acceptance.request_id, acceptance
        zone = self._executor.dialect.timezone
        around = accepted and accepted.created_on
        earlier, later = (around, around) if around else self._now()
        first, last = ((at + timedelta(days=days)).astimezone(zone).date() for at, days in ((earlier, -1), (later, 1)))
        if since is not None:
            first = min(first, since - timedelta(days=1))
        return _Sought(request_id=request_id, accepted=accepted, order=order, since=first, until=last)

    def _now(self) -> tuple[datetime, datetime]:
        """Now by our clock and by the service's, by which its list goes, as far as it told; the earlier one first."""
        ours, theirs = datetime.now(UTC), self._executor.transport.other_clock
        if theirs is None:
            return ours, ours
        ahead = max(-_MOST, min(_MOST, theirs - ours.timestamp()))
        other = ours + timedelta(seconds=ahead)
        return min(ours, other), max(ours, other)

    def _listing(
        self, since: date | None, until: date | None, status: TransactionStatus | None, size: int, *, warns: bool
    ) -> Listing[Transaction]:
        end = until or self._now()[1].astimezone(self._executor.dialect.timezone).date()

        async def fetch(number: int) -> Page[Transaction]:
            return await self.page(number=number, size=size, since=since, until=end, status=status)

        return Listing(fetch, lambda transaction: transaction.transaction_id, warns=warns)

    async def _status_in(self, transaction_id: str, since: date, until: date) -> TransactionStatus | None:
        """The final status whose list of these days shows a transaction."""
        now = self._executor.clock()
        if self._filters is False and now < self._filters_until:
            return None
        reader = Reader(self.page, clock=self._executor.clock, sleep=self._executor.sleep)
        if not await listed(reader.read(since, until), {transaction_id.lower()}):
            return None
        is_known = bool(self._filters) and now < self._filters_until
        statuses = await read_statuses(reader, since, until, {transaction_id}, is_known=is_known)
        if not is_known or statuses.are_filters is not True:
            self._filters, self._filters_until = statuses.are_filters, now + _FILTERS_REMEMBERED
        return statuses.found.get(transaction_id.lower())

    async def _first_to_tell(self, sought: _Sought, receiver: Notified | None) -> Settlement:
        looks = self._look_until_final(sought)
        if receiver is None:
            return await looks
        tasks = [asyncio.ensure_future(looks), asyncio.ensure_future(_notified(receiver, sought))]
        try:
            pending = set(tasks)
            while True:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if told := [task for task in done if not task.cancelled() or not pending]:
                    # a failed look does not outweigh a notification that came at the same moment
                    return min(told, key=lambda task: task.cancelled() or task.exception() is not None).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_until_final(self, sought: _Sought) -> Settlement:
        pause = _POLL_INITIAL
        while True:
            try:
                if (settlement := await self._look(sought)) is not None:
                    return settlement
            except AuthenticationFailed:
                raise
            except (ServiceFault, Rejected):
                pass  # not shown yet, or not now; whoever waits has set a timeout
            await self._executor.sleep(pause)
            pause = min(_POLL_MAX, pause * 2)

    async def _look(self, sought: _Sought) -> Settlement | None:
        if sought.accepted is None:
            record = await self._look_for(sought)
            if record is None:
                return None
            transaction_id = record.transaction_id
        else:
            transaction_id = sought.accepted.transaction_id
            record = await self.get(transaction_id)
            if record.transaction_id.casefold() != transaction_id.casefold():
                record = None
        if record is not None and record.status is not None:
            return Settlement(status=record.status, evidence=record) if record.status.is_final else None
        status = await self._status_in(transaction_id, sought.since, sought.until)
        if status is not None and status.is_final:
            return Settlement(status=status, evidence=f"the list of {status} transactions")
        return None

    async def _look_for(self, sought: _Sought) -> Transaction | None:
        """The record of an order whose transaction nobody knows yet; from then on it is known."""
        found = await self._find_by_path(sought.request_id)
        several = [] if found is None else [found]
        if found is None:
            several, _ = await self._find_in_list(sought.request_id, sought.since, sought.until)
        several = [record for record in several if sought.is_about(record.amount, record.currency)]
        if not several:
            return None
        if len(several) > 1:
            warn(_several(sought.request_id, several))
        first = several[0]
        sought.accepted = Acceptance(
            request_id=sought.request_id, transaction_id=first.transaction_id, created_on=first.created_on
        )
        return first

    async def _find_by_path(self, request_id: str) -> Transaction | None:
        path = self._executor.dialect.find_by_request_path
        if path is None:
            return None
        try:
            found = await self._executor.execute(endpoints.find_transaction(request_id, path, self._executor.dialect))
        except Rejected:
            return None
        return found if plain_id(found.request_id or "") == plain_id(request_id) else None


@attrs.define(kw_only=True)
class _Sought:
    """An order whose end is waited for.

    Attributes:
        accepted: What is known of its transaction by now.
        order: What was sent, where that is known.
        since, until: The days in which the lists show it.
    """

    request_id: str
    accepted: Acceptance | None
    order: Order | None
    since: date
    until: date

    def is_about(self, amount: Decimal | None, currency: str | None) -> bool:
        """Whether something of this amount and currency may be it."""
        if self.order is None:
            return True
        same_amount = amount is None or amount.copy_abs() == self.order.amount
        currencies = {currency_key(text) for text in (currency, self.order.currency) if text}
        return same_amount and len(currencies) < 2

    def found(self, settlement: Settlement) -> Acceptance | None:
        """Its acceptance, as far as it is known by now."""
        evidence = settlement.evidence
        if self.accepted is None and isinstance(evidence, TransactionEvent) and evidence.transaction_id:
            return Acceptance(request_id=self.request_id, transaction_id=evidence.transaction_id)
        return self.accepted


def _several(request_id: str, transactions: Iterable[Transaction]) -> SeveralTransactions:
    return SeveralTransactions(request_id, [transaction.transaction_id for transaction in transactions])


async def _notified(receiver: Notified, sought: _Sought) -> Settlement:
    def is_of(event: TransactionEvent) -> bool:
        return event.status_code in _NOTIFIED and sought.is_about(event.amount, event.currency_code)

    transaction_id = None if sought.accepted is None else sought.accepted.transaction_id or None
    event = await receiver.wait_for(sought.request_id, None, transaction_id=transaction_id, when=is_of)
    if event.status_code not in _NOTIFIED:
        await asyncio.get_running_loop().create_future()  # neither success nor failure: the lists decide, or time
    return Settlement(status=_NOTIFIED[event.status_code], evidence=event)

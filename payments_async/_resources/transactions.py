"""Transactions: what the service made of our orders (sections 8 and 9)."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

import attrs

from payments_async._errors import AuthenticationFailed, IncompleteListing, Rejected, ServiceFault, SeveralTransactions
from payments_async._events import TransactionEvent
from payments_async._executor import Executor
from payments_async._models import Acceptance, Page, Transaction, TransactionStatus
from payments_async._orders import Order
from payments_async._resources.lists import Listing, Reader
from payments_async._resources.statuses import listed, read_statuses
from payments_async._status_codes import STATUS_CODES
from payments_async._wire import endpoints

_POLL_INITIAL = 1.0  # seconds between two looks at the lists, growing
_POLL_MAX = 30.0
_FILTERS_REMEMBERED = 60.0  # seconds for which it is remembered whether the service filters by status
_NOTIFIED = {code: TransactionStatus[row.status] for code, row in STATUS_CODES.items() if row.is_final and row.status}


@attrs.frozen(kw_only=True)
class Settlement:
    """How an order ended, and what says so.

    Attributes:
        status: A final status.
        evidence: The notification's event, the record that carried a status, or the name of the filtered list.
    """

    status: TransactionStatus
    evidence: TransactionEvent | Transaction | str


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

        What comes back is given as it is; whoever believes it looks at its ``transaction_id`` first.

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
                warnings.warn(missing, stacklevel=2)
            if len(several) > 1:
                names = [transaction.transaction_id for transaction in several]
                warnings.warn(SeveralTransactions(request_id, names), stacklevel=2)
        if found is not None:
            self._executor.note_evidence(request_id, found)
        return found

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
            warnings.warn(missing, stacklevel=2)
        if found:
            self._executor.note_evidence(request_id, found[0])
        return tuple(found)

    async def _find_in_list(
        self, request_id: str, since: date | None, until: date | None
    ) -> tuple[list[Transaction], IncompleteListing | None]:
        rows = self._listing(since, until, None, 50, warns=False)
        sent = request_id.strip().lower()  # a service may show it in other letters than it was sent in
        return [row async for row in rows if (row.request_id or "").strip().lower() == sent], rows.incomplete

    async def settled(
        self,
        acceptance: Acceptance,
        *,
        receiver: Notified | None = None,
        order: Order | None = None,
        timeout: float = 120.0,
    ) -> Settlement:
        """Wait until an accepted order has ended, by whichever tells first: its notification or the filtered lists.

        A notification counts if it is final and of this very transaction.

        Args:
            acceptance: What ``payouts.send`` or ``collections.request`` gave.
            order: What was sent: then a notification of another amount or currency does not count.
            receiver: A ``payments_async.ipn.Receiver`` that hears the notifications, if there is one.
            timeout: Seconds.

        Raises:
            TimeoutError: When nothing told a final status in time. The order may end at any time after.
        """
        async with asyncio.timeout(timeout):
            settlement = await self._first_to_tell(acceptance, receiver, order)
        self._executor.note_evidence(acceptance.request_id, acceptance)
        return settlement

    def _listing(
        self, since: date | None, until: date | None, status: TransactionStatus | None, size: int, *, warns: bool
    ) -> Listing[Transaction]:
        end = until or datetime.now(self._executor.dialect.timezone).date()

        async def fetch(number: int) -> Page[Transaction]:
            return await self.page(number=number, size=size, since=since, until=end, status=status)

        return Listing(fetch, lambda transaction: transaction.transaction_id, warns=warns)

    async def status_by_lists(self, transaction_id: str, around: datetime) -> TransactionStatus | None:
        """The final status whose filtered list shows a transaction, where the service is seen to filter.

        Args:
            transaction_id: Which one.
            around: About when it was accepted; the days before and after are looked at too.
        """
        now = self._executor.clock()
        if self._filters is False and now < self._filters_until:
            return None
        zone = self._executor.dialect.timezone
        since, until = ((around + timedelta(days=days)).astimezone(zone).date() for days in (-1, 1))
        reader = Reader(self.page, clock=self._executor.clock, sleep=self._executor.sleep)
        if not await listed(reader.read(since, until), {transaction_id.lower()}):
            return None
        is_known = bool(self._filters) and now < self._filters_until
        statuses = await read_statuses(reader, since, until, {transaction_id}, is_known=is_known)
        if not is_known or statuses.are_filters is not True:
            self._filters, self._filters_until = statuses.are_filters, now + _FILTERS_REMEMBERED
        return statuses.found.get(transaction_id.lower())

    async def _first_to_tell(
        self, acceptance: Acceptance, receiver: Notified | None, order: Order | None
    ) -> Settlement:
        looks = self._look_until_final(acceptance)
        if receiver is None:
            return await looks
        tasks = [asyncio.ensure_future(looks), asyncio.ensure_future(_notified(receiver, acceptance, order))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # a failed look does not outweigh a notification that came at the same moment
            return min(done, key=lambda task: task.exception() is not None).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_until_final(self, acceptance: Acceptance) -> Settlement:
        around = acceptance.created_on or datetime.now(UTC)
        pause = _POLL_INITIAL
        while True:
            try:
                if (settlement := await self._look(acceptance.transaction_id, around)) is not None:
                    return settlement
            except AuthenticationFailed:
                raise
            except (ServiceFault, Rejected):
                pass  # not shown yet, or not now; whoever waits has set a timeout
            await self._executor.sleep(pause)
            pause = min(_POLL_MAX, pause * 2)

    async def _look(self, transaction_id: str, around: datetime) -> Settlement | None:
        record = await self.get(transaction_id)
        is_it = record.transaction_id.casefold() == transaction_id.casefold()
        if is_it and record.status is not None and record.status.is_final:
            return Settlement(status=record.status, evidence=record)
        status = await self.status_by_lists(transaction_id, around)
        if status is not None and status.is_final:
            return Settlement(status=status, evidence=f"the list of {status} transactions")
        return None

    async def _find_by_path(self, request_id: str) -> Transaction | None:
        path = self._executor.dialect.find_by_request_path
        if path is None:
            return None
        try:
            found = await self._executor.execute(endpoints.find_transaction(request_id, path, self._executor.dialect))
        except Rejected:
            return None
        return found if found.request_id == request_id else None


async def _notified(receiver: Notified, acceptance: Acceptance, order: Order | None) -> Settlement:
    def is_of(event: TransactionEvent) -> bool:
        if order is None:
            return event.status_code in _NOTIFIED
        same_amount = event.amount is None or abs(event.amount) == order.amount
        currencies = {text.strip().upper() for text in (event.currency_code, order.currency) if text}
        return event.status_code in _NOTIFIED and same_amount and len(currencies) < 2

    transaction_id = acceptance.transaction_id or None
    event = await receiver.wait_for(acceptance.request_id, None, transaction_id=transaction_id, when=is_of)
    if event.status_code not in _NOTIFIED:
        await asyncio.get_running_loop().create_future()  # neither success nor failure: the lists decide, or time
    return Settlement(status=_NOTIFIED[event.status_code], evidence=event)

"""The lists of the service, read to their end, however they shift, lag and fail meanwhile.

A ``Listing`` gives whoever loops over it each row once, and tells what went missing. A ``Reading`` is for whoever
draws conclusions: it reads again, in smaller pages, and tells what absence from it is worth.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from datetime import date
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

import attrs

from payments_async._values.errors import AuthenticationFailed, IncompleteListing, PaymentsError, Rejected
from payments_async._values.public import warn
from payments_async._values.spill import SpillTable, ids
from payments_async._wire.models import Page, Transaction

T = TypeVar("T")

_MOST_STALE = 2  # pages in a row with nothing new: the service ignores the page number, or shows the end again
_SIZES = (500, 100, 50, 20)  # rows of a page; the largest that the service takes is not documented
_PASSES = 3  # times through the list while rows are missing
_WAIT_FIRST = 1.0  # seconds before a page is asked for again, doubled each time
_WAIT_MOST = 30.0
_TRIES = 2  # failures of a page after which smaller ones are asked for


class Listing(AsyncIterator[T], Generic[T]):
    """Rows of all pages, each once. An async iterator, for one loop.

    Page-number paging runs over a list that grows meanwhile: rows repeat and rows go missing between pages. Repeats
    are dropped by id. The end is where a page is empty or nothing new comes, whatever ``nextPage`` says. When fewer
    rows came than the service counted, ``incomplete`` says so and an ``IncompleteListing`` warning is issued.

    Attributes:
        incomplete: After the end: ``None``, or what is missing. Absence from an incomplete listing is not proof.
        seen: Different rows so far.
    """

    def __init__(
        self, fetch: Callable[[int], Awaitable[Page[T]]], identify: Callable[[T], str], *, warns: bool = True
    ) -> None:
        self._fetch = fetch
        self._identify = identify
        self._warns = warns
        self._ids = ids()
        self._rows: list[T] = []  # of the page in hand, last first
        self._number = 0
        self._stale = 0
        self._expected = 0
        self._ended = False
        self.incomplete: IncompleteListing | None = None

    @property
    def seen(self) -> int:
        """Different rows so far."""
        return len(self._ids)

    async def __anext__(self) -> T:
        while not self._rows:
            if self._ended:
                self._tell()
                raise StopAsyncIteration
            await self._turn()
        return self._rows.pop()

    async def _turn(self) -> None:
        page = await self._fetch(self._number + 1)
        fresh = _fresh(page.collection, self._identify, self._ids)
        self._number += 1
        self._rows = fresh[::-1]
        self._expected = max(self._expected, page.total_count or 0)
        self._stale = 0 if fresh else self._stale + 1
        self._ended = self._is_last(page)

    def _is_last(self, page: Page[T]) -> bool:
        if not page.collection or self._stale >= _MOST_STALE:
            return True
        if page.total_pages:
            # nextPage lies both ways, and so may the count of pages: rows that are missing are asked for once more
            over = not page.next_page and self.seen >= self._expected
            return self._number >= page.total_pages and (over or self._stale > 0)
        if page.next_page is None:
            return self._expected > 0 and self.seen >= self._expected
        return not page.next_page and self.seen >= self._expected

    def _tell(self) -> None:
        if self.seen < self._expected and self.incomplete is None:
            self.incomplete = IncompleteListing(self._expected, self.seen)
            if self._warns:
                warn(self.incomplete)


def _fresh(rows: Iterable[T], identify: Callable[[T], str], seen: SpillTable[None]) -> list[T]:
    """The rows that were not seen before, each once; they are seen now."""
    named: dict[str, T] = {}
    for row in rows:
        named.setdefault(identify(row), row)
    known = seen.find(named)
    fresh = {identity: row for identity, row in named.items() if identity not in known}
    seen.put(dict.fromkeys(fresh))
    return list(fresh.values())


_transaction_id = attrgetter("transaction_id")


class _Pages(Protocol):
    """Asks for one page of transactions, with the retries that any read gets."""

    async def __call__(
        self, *, number: int, size: int, since: date | None, until: date | None, status: str | None
    ) -> Page[Transaction]: ...


@attrs.define
class Reader:
    """Reads lists, and remembers how large a page the service gives.

    Attributes:
        patience: Seconds for which a page that cannot be had is asked for again.
        clock: Seconds that only grow.
        abreast: Pages of a list asked for side by side, where it is known how many there are.
        requests: Pages asked for until now.
        tell: Hears of each page that came.
        size: Rows of the next page.
        is_tried: A page of this size, or of a larger one, was given.
    """

    page: _Pages
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]]
    patience: float = 0.0
    abreast: int = attrs.field(default=1, kw_only=True)
    tell: Callable[[], object] | None = attrs.field(default=None, kw_only=True)
    requests: int = attrs.field(init=False, default=0)
    size: int = attrs.field(init=False, default=_SIZES[0])
    is_tried: bool = attrs.field(init=False, default=False)

    def read(
        self, since: date | None, until: date | None, status: str | None = None, *, probes: bool = False
    ) -> Reading:
        """The rows of these days, from the first to the last.

        Args:
            status: Only of this status, in whatever word the service has for it.
            probes: Ask beyond the last page as well: a service may count fewer rows than it has.
        """
        return Reading(self, since, until, status, probes=probes)

    async def edges(self) -> list[Transaction]:
        """The first and the last page of all days; nothing where they cannot be had at once."""
        hasty = Reader(self.page, self.clock, self.sleep)
        hasty.size, hasty.is_tried = self.size, self.is_tried
        try:
            return await hasty._edges()
        except AuthenticationFailed:
            raise
        except PaymentsError:
            return []
        finally:
            self.requests += hasty.requests

    async def _edges(self) -> list[Transaction]:
        reading = Reading(self, None, None, None, probes=False)
        while (first := await reading.page(1)) is None:
            pass  # pages are smaller now
        if not first.collection:
            return []
        last = -(-(first.total_count or 0) // len(first.collection))
        end = await reading.page(last) if last > 1 else None
        return [*first.collection, *(() if end is None else end.collection)]

    def shrink(self) -> bool:
        """Ask for smaller pages from now on; tells whether there are any."""
        smaller = next((size for size in _SIZES if size < self.size), None)
        if smaller is None:
            return False
        self.size = smaller
        return True

    def fits(self, page: Page[Transaction]) -> bool:
        """Learn from a first page how many rows the service gives; tells whether the next one follows it."""
        given = len(page.collection)
        if not given or given >= self.size or page.total_count is None or page.total_count <= given:
            return True
        smaller = next((size for size in _SIZES if size < self.size), 0)
        if given < smaller:  # it may have fallen back to a usual size, and give more of a smaller one
            self.size = smaller
            return False
        self.size = given
        return True


class Reading:
    """One list, for one ``async for`` over ``pages``. It tells afterwards what it is worth.

    The list is read to where it shows nothing new, and again where rows are missing. It has been read to its end when a
    page came by which all rows were seen that the service counted at that moment; where it counts none, when a page
    was empty, or a smaller one than before came again.

    Attributes:
        problem: Why absence from it proves nothing, or ``None`` when all of it was read.
        counted: The service said how many rows there are, all of them were seen, and there is no problem.
        refused: The service took the very question for wrong.
        failure: What a page failed with, where that ended the reading.
        rows, expected: Different rows that were seen, and how many the service counted.
    """

    def __init__(
        self, reader: Reader, since: date | None, until: date | None, status: str | None, *, probes: bool
    ) -> None:
        self._reader = reader
        self._days = since, until
        self._status = status
        self._probes = probes
        self._seen = ids()
        self._largest = 0  # rows of a page
        self._goes_round = False  # it ended with a page as large as any that showed nothing new
        self._is_short = False  # the last page had fewer rows than there is room for
        self._reached = False  # all rows that the service counted at some moment were seen
        self._ahead: dict[int, asyncio.Task[Page[Transaction]]] = {}  # pages asked for before it is their turn
        self.failure: PaymentsError | None = None
        self.expected: int | None = None
        self.refused: bool = False
        self.problem: str | None = "it was not read to its end"

    @property
    def counted(self) -> bool:
        """Whether the service said how many rows there are, and showed as many; not where a page failed after that."""
        return self._reached and self.problem is None

    @property
    def rows(self) -> int:
        """Different rows so far."""
        return len(self._seen)

    async def pages(self) -> AsyncGenerator[list[Transaction], None]:
        """The rows that are new, a page's worth at a time.

        Raises:
            AuthenticationFailed: The service refused our credentials. Whatever else fails is told by ``problem``.
        """
        try:
            for turn in range(_PASSES):
                async with aclosing(self._once(probes=self._probes and not turn)) as pages:
                    async for fresh in pages:
                        yield fresh
                await self._drop_ahead()
                if self._reached or self.expected is None:
                    break
        except AuthenticationFailed:
            raise
        except PaymentsError as error:
            self.failure, self.refused = error, isinstance(error, Rejected)
            self.problem = f"it could not be read: {error.message}"
        else:
            missing = self.expected is not None and not self._reached
            self.problem = f"it showed {self.rows:,} of {self.expected:,} rows" if missing else None
            if self.expected is None and self._goes_round:  # every page may be the first one
                self.problem = "it shows the same page again, and does not say how many rows there are"
        finally:
            await self._drop_ahead()

    async def _once(self, *, probes: bool) -> AsyncGenerator[list[Transaction], None]:
        number = stale = 0
        known = self.rows  # in a list that was read before, pages without new rows are to be expected
        while True:
            page = await self.page(number + 1)
            if page is None:
                if self._reached and number:
                    return  # there is no such page
                await self._drop_ahead()
                number, stale, known = 0, 0, self.rows  # all pages are of another size now
                continue
            fresh = self._fresh(page)
            if fresh:
                yield fresh
            self._largest = max(self._largest, len(page.collection))
            self._is_short = len(page.collection) < self._reader.size
            stale = stale + 1 if not fresh and (number + 1) * self._reader.size >= known else 0
            if not page.collection or stale >= _MOST_STALE or (self._reached and not probes):
                self._goes_round = bool(page.collection) and len(page.collection) == self._largest
                return
            if number or self._status is not None or self._reader.fits(page):
                number += 1
            else:
                stale, known = 0, self.rows

    def _fresh(self, page: Page[Transaction]) -> list[Transaction]:
        fresh = _fresh(page.collection, _transaction_id, self._seen)
        if page.total_count is not None:
            self.expected = max(self.expected or 0, page.total_count)
            # by this very page: rows that come later are of orders sent later
            self._reached = (self._reached and not fresh) or self.rows >= page.total_count
        return fresh

    async def page(self, number: int) -> Page[Transaction] | None:
        """A page; ``None`` where there is none of this number, or where pages are smaller from now on."""
        return await self._from_ahead(number) or await self._alone(number)

    async def _alone(self, number: int) -> Page[Transaction] | None:
        """Ask for a page, again and again for as long as there is patience."""
        reader = self._reader
        begun, wait, failures = reader.clock(), _WAIT_FIRST, 0
        while True:
            try:
                return await self._asked(number)
            except AuthenticationFailed:
                raise
            except Rejected:
                if (number > 1 and self._reached) or (self._status is None and reader.shrink()):
                    return None
                raise
            except PaymentsError:
                if number > 1 and self._reached and self._is_short:
                    return None  # nobody promised a page beyond the last
                if not reader.is_tried and reader.size == _SIZES[0] and reader.shrink():
                    return None  # so large a page may be more than the service can do
                failures += 1
                if reader.clock() - begun >= reader.patience:
                    raise
                await reader.sleep(wait)
                wait = min(_WAIT_MOST, 2 * wait)
                if failures >= _TRIES and reader.shrink():
                    return None

    async def _from_ahead(self, number: int) -> Page[Transaction] | None:
        """A page that was asked for beside others; ``None`` where it has to be asked for by itself."""
        reader = self._reader
        if reader.abreast < 2 or number < 2 or not self.expected:
            return None
        last, size = -(-self.expected // reader.size), reader.size
        for one in range(number, min(number + reader.abreast, last + 1)):
            if one not in self._ahead:
                self._ahead[one] = asyncio.ensure_future(self._asked(one))
        if number not in self._ahead:
            return None
        try:
            page = await self._ahead.pop(number)
        except AuthenticationFailed:
            raise
        except asyncio.CancelledError:
            reading = asyncio.current_task()
            if reading is None or reading.cancelling():
                raise
            return None  # something cancelled that page alone: it is asked for again
        except PaymentsError:
            await self._drop_ahead()  # whatever it is, it is met again, alone
            return None
        return page if size == reader.size else None

    async def _drop_ahead(self) -> None:
        """Ask for no further page; those of another size, or of another time through the list, say nothing here."""
        pages, self._ahead = list(self._ahead.values()), {}
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)

    async def _asked(self, number: int) -> Page[Transaction]:
        reader, (since, until) = self._reader, self._days
        reader.requests += 1
        page = await reader.page(number=number, size=reader.size, since=since, until=until, status=self._status)
        reader.is_tried = True
        if reader.tell is not None:
            reader.tell()
        return page

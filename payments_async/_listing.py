"""Listing: the rows of a paged collection that grows and shifts while it is read. Knows pages, not what they hold."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from payments_async._errors import IncompleteListing
from payments_async._models import Page

__all__ = ["Listing"]

T = TypeVar("T")

_MOST_STALE_PAGES = 2  # pages in a row with nothing new: the service ignores the page number, or shows the end again


class Listing(AsyncIterator[T], Generic[T]):
    """Rows of all pages, each once. An async iterator, for one loop.

    Page-number paging runs over a list that grows meanwhile: rows repeat and rows go missing between pages. Repeats
    are dropped by id. The end is where a page is empty or nothing new comes, whatever ``nextPage`` says. When fewer
    rows came than the service counted, ``incomplete`` says so and an ``IncompleteListing`` warning is issued.

    Attributes:
        incomplete: After the end: ``None``, or what is missing. Absence from an incomplete listing is no proof.
        seen: Different rows so far.
    """

    def __init__(
        self, fetch: Callable[[int], Awaitable[Page[T]]], identify: Callable[[T], str], *, warns: bool = True
    ) -> None:
        self._fetch = fetch
        self._identify = identify
        self._warns = warns
        self._ids: set[str] = set()
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
        self._number += 1
        fresh = []
        for row in page.collection:
            identity = self._identify(row)
            if identity not in self._ids:
                self._ids.add(identity)
                fresh.append(row)
        self._rows = fresh[::-1]
        self._expected = max(self._expected, page.total_count or 0)
        self._stale = 0 if fresh else self._stale + 1
        self._ended = self._is_last(page)

    def _is_last(self, page: Page[T]) -> bool:
        if not page.collection or self._stale >= _MOST_STALE_PAGES:
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
                warnings.warn(self.incomplete, stacklevel=3)

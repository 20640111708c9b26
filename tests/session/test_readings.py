"""A whole list: read to its end however it shifts and fails, in as few pages as the service allows."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import attrs
import pytest
from session.wires import Times

from payments_async import Page, Rejected, ServiceFault, Transaction
from payments_async._session.lists import Reader, Reading


def row(number: int) -> Transaction:
    """One transaction."""
    return Transaction(transaction_id=f"t-{number}", request_id=f"r-{number}", amount=Decimal(1))


@attrs.define
class Shelf:
    """A list as a service might keep it, oldest first.

    Attributes:
        cap, fallback: The largest page, and what it gives where more is asked for; ``None`` refuses that.
        error: By how much it counts wrongly.
        grows: Rows that come with each page read.
        turned: Newest first.
        faults: Raised in turn, before the pages.
        before: Called with the number of each page.
    """

    rows: int
    cap: int = 100
    fallback: int | None = 100
    error: int | None = 0
    grows: int = 0
    turned: bool = False
    faults: list[Exception] = attrs.field(factory=list)
    pages: list[tuple[int, int]] = attrs.field(factory=list)
    before: Callable[[int, int], None] = lambda number, size: None

    async def page(self, *, number: int, size: int, since: Any, until: Any, status: str | None) -> Page[Transaction]:
        """One page."""
        self.pages.append((number, size))
        if self.faults:
            raise self.faults.pop(0)
        self.before(number, size)
        if size > self.cap:
            if self.fallback is None:
                raise Rejected("pageSize is too large")
            size = self.fallback
        self.rows += self.grows
        numbers = range(self.rows - 1, -1, -1) if self.turned else range(self.rows)
        shown = tuple(row(one) for one in numbers[(number - 1) * size : number * size])
        total = None if self.error is None else self.rows + self.error
        return Page(collection=shown, total_count=total)


async def read(shelf: Any, times: Times, *, patience: float = 0.0, probes: bool = True) -> tuple[Reading, list[str]]:
    """Read all of it."""
    reader = Reader(shelf.page, clock=times.clock, sleep=times.sleep, patience=patience)
    reading = reader.read(None, None, probes=probes)
    seen = [one.transaction_id async for rows in reading.pages() for one in rows]
    assert len(shelf.pages) == reader.requests
    return reading, seen


SIZES = {
    "as large as asked for": (Shelf(1203, cap=1000), [500]),
    "cut to a hundred": (Shelf(1203), [500, 100]),
    "back to twenty when too large": (Shelf(1203, cap=100, fallback=20), [500, 100]),
    "an odd size": (Shelf(1203, cap=240, fallback=240), [500, 240]),
    "refused": (Shelf(1203, cap=50, fallback=None), [500, 100, 50]),
}


@pytest.mark.parametrize("how", SIZES)
async def test_pages_as_large_as_the_service_gives_them(times: Times, how: str) -> None:
    """The first page tells; no row is missed by the change."""
    shelf, sizes = SIZES[how]
    reading, seen = await read(shelf, times)
    assert (1203, None, True) == (len(seen), reading.problem, reading.counted)
    assert sizes == list(dict.fromkeys(size for _, size in shelf.pages))


@pytest.mark.parametrize("turned", [False, True])
async def test_a_list_that_grows_by_a_row_with_each_page(times: Times, turned: bool) -> None:
    """It comes to an end, and holds every row that was there when it began."""
    shelf = Shelf(1000, grows=1, turned=turned)
    reading, seen = await read(shelf, times)
    assert (None, True) == (reading.problem, reading.counted)
    assert {f"t-{number}" for number in range(1000)} <= set(seen)
    assert len(seen) == len(set(seen))
    assert len(shelf.pages) < 40


async def test_rows_that_went_missing_are_read_again(times: Times) -> None:
    """A page that began one row too late: the list is read again from the first page."""

    def shift(number: int, size: int) -> None:
        shelf.turned = number == 3 and len(shelf.pages) < 6  # once, a page of the other end

    shelf = Shelf(600, before=shift)
    reading, seen = await read(shelf, times)
    assert (600, None) == (len(seen), reading.problem)


@pytest.mark.parametrize(
    ("shelf", "problem"),
    [
        (Shelf(0, error=5), "it showed 0 of 5 rows"),
        (Shelf(250, error=3), "it showed 250 of 253 rows"),
    ],
)
async def test_a_service_that_counts_more_than_it_shows(times: Times, shelf: Shelf, problem: str) -> None:
    """It is read three times, and told."""
    reading, _ = await read(shelf, times)
    assert (problem, False) == (reading.problem, reading.counted)


@pytest.mark.parametrize("error", [-1100, -150, None])
async def test_a_service_that_counts_less_or_nothing(times: Times, error: int | None) -> None:
    """All rows are read, for the page beyond the last is asked for; what is not counted is told."""
    reading, seen = await read(Shelf(1203, error=error), times)
    assert (1203, None, error is not None) == (len(seen), reading.problem, reading.counted)


async def test_a_service_that_answers_every_page_with_the_first(times: Times) -> None:
    """It comes to an end, and what is missing is told."""
    first = Shelf(1000)

    class Stuck:
        pages = first.pages

        @staticmethod
        async def page(**asked: Any) -> Page[Transaction]:
            return await first.page(**{**asked, "number": 1})

    reading, seen = await read(Stuck, times)
    assert (100, "it showed 100 of 1,000 rows") == (len(seen), reading.problem)
    assert len(first.pages) < 15


async def test_no_page_beyond_the_last(times: Times) -> None:
    """A service that refuses it has shown everything."""

    def refuse(number: int, size: int) -> None:
        if number > 3:
            raise Rejected("there is no such page")

    reading, seen = await read(Shelf(250, before=refuse), times)
    assert (250, None) == (len(seen), reading.problem)


async def test_a_page_beyond_the_last_that_fails(times: Times) -> None:
    """More rows than were counted may be there: as many as were counted were seen, and the list counts for nothing."""

    def fail(number: int, size: int) -> None:
        if number > 2:
            raise ServiceFault("not now")

    reading, seen = await read(Shelf(200, before=fail), times)
    assert (200, "it could not be read: not now", False) == (len(seen), reading.problem, reading.counted)


async def test_a_page_that_fails_for_minutes(times: Times) -> None:
    """It is asked for again with growing pauses, and smaller pages are asked for."""
    faults: list[Exception] = [ServiceFault("not now")] * 5
    shelf = Shelf(1203, faults=faults)
    reading, seen = await read(shelf, times, patience=300.0)
    assert (1203, None) == (len(seen), reading.problem)
    assert [1.0, 2.0] == times.slept[:2]
    assert 20 == shelf.pages[-1][1]


async def test_pages_that_are_more_than_the_service_can_do(times: Times) -> None:
    """The largest is given up at once, without any patience."""

    def fail(number: int, size: int) -> None:
        if size > 100:
            raise ServiceFault("it took too long")

    reading, seen = await read(Shelf(1203, cap=500, before=fail), times)
    assert (1203, None, []) == (len(seen), reading.problem, times.slept)


async def test_a_page_that_fails_in_the_middle(times: Times) -> None:
    """What was seen is not given twice, and nothing is passed over."""

    def fail(number: int, size: int) -> None:
        if number == 9 and size == 100:
            raise ServiceFault("not now")

    reading, seen = await read(Shelf(1203, before=fail), times, patience=300.0)
    assert (1203, 1203, None) == (len(seen), len(set(seen)), reading.problem)


async def test_a_page_that_stays_away(times: Times) -> None:
    """After so many seconds it is given up, and said why."""
    shelf = Shelf(1203, faults=[ServiceFault("not now")] * 1000)
    reading, seen = await read(shelf, times, patience=300.0)
    assert ([], "it could not be read: not now") == (seen, reading.problem)
    assert 300 <= sum(times.slept) < 360


@pytest.mark.slow(covered=True)
async def test_a_list_of_a_hundred_thousand(times: Times) -> None:
    """So many pages as there have to be, and one more."""
    shelf = Shelf(100_000, cap=500)
    _, seen = await read(shelf, times)
    assert (100_000, 201) == (len(seen), len(shelf.pages))


async def test_a_reader_that_leaves_early(times: Times) -> None:
    """What was not read to its end says so."""
    reader = Reader(Shelf(500).page, clock=times.clock, sleep=times.sleep)
    reading = reader.read(None, None)
    pages = reading.pages()
    await anext(pages)
    await pages.aclose()
    assert "it was not read to its end" == reading.problem


async def test_the_first_and_the_last_page(times: Times) -> None:
    """Whatever the size of a page; of a short list it is one, and of one that cannot be had none."""
    edges = []
    for shelf in (
        Shelf(250),
        Shelf(30),
        Shelf(0),
        Shelf(99, cap=50, fallback=None),
        Shelf(9, faults=[ServiceFault("")] * 2),
    ):
        reader = Reader(shelf.page, clock=times.clock, sleep=times.sleep)
        edges.append([one.transaction_id for one in await reader.edges()])
    assert [150, 30, 0, 99, 0] == [len(found) for found in edges]
    assert ("t-0", "t-249") == (edges[0][0], edges[0][-1])


async def test_a_short_list_of_one_status_says_nothing_of_the_size_of_pages(times: Times) -> None:
    """It counts more than it shows: the next list is read in large pages all the same."""
    shelf = Shelf(3, cap=500, error=7)
    reader = Reader(shelf.page, clock=times.clock, sleep=times.sleep)
    reading = reader.read(None, None, "FAILED")
    assert 3 == len([one async for rows in reading.pages() for one in rows])
    assert ("it showed 3 of 10 rows", 500) == (reading.problem, reader.size)

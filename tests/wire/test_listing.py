"""Listings: a list that grows, repeats, lies about its pages, or loses rows while it is read."""

import json
import warnings
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session.wires import Request, Wire, raw_reply
from wire.conftest import Open

from payments_async import PaymentsError, PaymentsSession, ServiceFault, Transaction
from payments_async._session.lists import Listing
from payments_async._values.errors import IncompleteListing
from payments_async._wire.models import Page

SIZE = 2
Meanwhile = Callable[["Shelf", int], None]


class Shelf:
    """Rows of the service, newest first, shown page by page.

    Attributes:
        ids: Transaction ids, as they stand now.
        lies: Members of the page that say something else, or ``None`` for members that are left out.
        meanwhile: Is run after each page, with its number.
        asked: Page numbers, in the order they were asked for.
    """

    def __init__(self, ids: str, *, meanwhile: Meanwhile = lambda shelf, number: None, **lies: Any) -> None:
        self.ids = list(ids)
        self.lies = lies
        self.meanwhile = meanwhile
        self.asked: list[int] = []
        self.ignores_the_number = False
        self.last_page_again = False

    def page(self, number: int) -> dict[str, Any]:
        """The ``data`` of one page."""
        self.asked.append(number)
        pages = -(-len(self.ids) // SIZE)
        shown = 1 if self.ignores_the_number else min(number, pages) if self.last_page_again else number
        rows = [{"transactionId": row, "requestId": f"r-{row}"} for row in self.ids[(shown - 1) * SIZE : shown * SIZE]]
        data: dict[str, Any] = {"collection": rows, "totalCount": len(self.ids), "pageSize": SIZE}
        data |= {"currentPage": number, "totalPages": pages, "nextPage": number < pages}
        data = {name: item for name, item in (data | self.lies).items() if item is not None}
        self.meanwhile(self, number)
        return data

    async def answer(self, request: Request) -> bytes | None:
        """What the service answers."""
        number = int(parse_qs(urlsplit(request.path).query)["pageNumber"][0])
        return raw_reply(json.dumps({"code": 0, "message": "ok", "data": self.page(number)}).encode())


async def read(payments: PaymentsSession, wire: Wire, shelf: Shelf) -> tuple[str, Listing[Transaction]]:
    """The ids that a listing shows, and the listing; a warning is an error here."""
    wire.answer = shelf.answer
    listing = payments.transactions.iterate(size=SIZE)
    return "".join([transaction.transaction_id async for transaction in listing]), listing


@pytest.fixture
async def payments(opened: Open) -> PaymentsSession:
    """A session to the faked service."""
    return await opened()


@pytest.mark.parametrize("ids", ["", "a", "ab", "abc", "abcdefg"])
async def test_an_honest_list(payments: PaymentsSession, wire: Wire, ids: str) -> None:
    """Every row comes once, in the service's order, and no page too many is asked for."""
    shelf = Shelf(ids)
    shown, listing = await read(payments, wire, shelf)
    assert (ids, None, len(ids)) == (shown, listing.incomplete, listing.seen)
    assert list(range(1, max(1, -(-len(ids) // SIZE)) + 1)) == shelf.asked


async def test_a_list_that_grows_at_its_head(payments: PaymentsSession, wire: Wire) -> None:
    """Rows that were pushed to the next page come once. A new row is not shown, and that is told."""

    def grow(shelf: Shelf, number: int) -> None:
        if number == 1:
            shelf.ids.insert(0, "N")

    shelf = Shelf("abcde", meanwhile=grow)
    with pytest.warns(IncompleteListing, match="counted 6 rows but showed 5") as warned:
        shown, listing = await read(payments, wire, shelf)
    assert "abcde" == shown
    assert listing.incomplete is not None
    assert ((6, 5), 1) == ((listing.incomplete.expected, listing.incomplete.seen), len(warned))


async def test_a_list_that_grows_for_ever(payments: PaymentsSession, wire: Wire) -> None:
    """A whole page of new rows pushes the old ones down: pages with nothing new are not read without end."""

    def grow(shelf: Shelf, number: int) -> None:
        shelf.ids[:0] = [f"N{number}a", f"N{number}b"]

    shelf = Shelf("abcd", meanwhile=grow)
    with pytest.warns(IncompleteListing):
        shown, _ = await read(payments, wire, shelf)
    assert ("ab", [1, 2, 3]) == (shown, shelf.asked)


async def test_a_list_that_loses_rows(payments: PaymentsSession, wire: Wire) -> None:
    """A row that slipped to a page already read is missing, and that is told."""

    def lose(shelf: Shelf, number: int) -> None:
        if number == 1:
            shelf.ids.remove("a")

    shelf = Shelf("abcde", meanwhile=lose)
    with pytest.warns(IncompleteListing, match="counted 5 rows but showed 4"):
        shown, _ = await read(payments, wire, shelf)
    assert "abde" == shown


async def test_rows_that_repeat_within_a_page(payments: PaymentsSession, wire: Wire) -> None:
    """They come once."""
    shown, _ = await read(payments, wire, Shelf("aabab", totalCount=2))
    assert "ab" == shown


@pytest.mark.parametrize("pages", [0, 1, 2, 3, 9, None])
@pytest.mark.parametrize("next_page", [True, False, None])
@pytest.mark.parametrize("ids", ["abcde", "abcdef"])
async def test_a_page_that_lies(
    payments: PaymentsSession, wire: Wire, ids: str, next_page: bool | None, pages: int | None
) -> None:
    """Whatever it says of pages to come, all rows are shown while it counts them right."""
    shown, listing = await read(payments, wire, Shelf(ids, nextPage=next_page, totalPages=pages))
    assert (ids, None) == (shown, listing.incomplete)


@pytest.mark.parametrize("next_page", [True, None])
async def test_a_page_that_counts_nothing(payments: PaymentsSession, wire: Wire, next_page: bool | None) -> None:
    """Without any count the end is an empty page."""
    shelf = Shelf("abcde", totalCount=None, totalPages=None, nextPage=next_page)
    shown, listing = await read(payments, wire, shelf)
    assert ("abcde", None, [1, 2, 3, 4]) == (shown, listing.incomplete, shelf.asked)


@pytest.mark.parametrize("lies", [{}, {"nextPage": True}, {"nextPage": None, "totalPages": None}, {"totalPages": 99}])
async def test_a_service_that_ignores_the_page_number(
    payments: PaymentsSession, wire: Wire, lies: dict[str, Any]
) -> None:
    """The first page for ever: it ends, and what is missing is told."""
    shelf = Shelf("abcde", **lies)
    shelf.ignores_the_number = True
    with pytest.warns(IncompleteListing, match="counted 5 rows but showed 2"):
        shown, _ = await read(payments, wire, shelf)
    assert ("ab", True) == (shown, len(shelf.asked) <= 4)


async def test_a_service_that_shows_the_end_again(payments: PaymentsSession, wire: Wire) -> None:
    """Past the last page comes the last page: nothing is shown twice, and it ends."""
    shelf = Shelf("abcde", nextPage=True, totalPages=None)
    shelf.last_page_again = True
    shown, listing = await read(payments, wire, shelf)
    assert ("abcde", None, True) == (shown, listing.incomplete, len(shelf.asked) <= 5)


@pytest.mark.parametrize("count", [7, "7", 7.0])
async def test_a_count_that_is_never_reached(payments: PaymentsSession, wire: Wire, count: object) -> None:
    """Rows that the service counts and does not show are told, whatever type the count is."""
    with pytest.warns(IncompleteListing, match="counted 7 rows but showed 3"):
        shown, _ = await read(payments, wire, Shelf("abc", totalCount=count))
    assert "abc" == shown


async def test_a_warning_that_is_an_error(payments: PaymentsSession, wire: Wire) -> None:
    """It comes after the last row, so that none is lost to it."""
    wire.answer = Shelf("abc", totalCount=4).answer
    rows: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteListing)
        with pytest.raises(IncompleteListing):
            await gather(payments.transactions.iterate(size=SIZE), rows)
    assert ["a", "b", "c"] == rows


async def gather(listing: Listing[Transaction], rows: list[str]) -> None:
    """Add the ids to the rows."""
    async for transaction in listing:
        rows.append(transaction.transaction_id)  # noqa: PERF401 - what came before an error counts


async def test_the_place_of_a_warning(payments: PaymentsSession, wire: Wire) -> None:
    """It points to the loop that reads the listing, once, however often the end is asked for."""
    wire.answer = Shelf("abc", totalCount=4).answer
    listing = payments.transactions.iterate(size=SIZE)
    with pytest.warns(IncompleteListing) as warned:
        await gather(listing, [])
    await gather(listing, [])
    assert [__file__] == [warning.filename for warning in warned]


async def test_a_loop_that_is_left_early(payments: PaymentsSession, wire: Wire) -> None:
    """No further page is asked for, and nothing is told of what was not looked at."""
    shelf = Shelf("abcdef", totalCount=99)
    wire.answer = shelf.answer
    async for transaction in payments.transactions.iterate(size=SIZE):
        if transaction.transaction_id == "c":
            break
    assert [1, 2] == shelf.asked


async def test_a_row_that_is_found_in_an_incomplete_list(payments: PaymentsSession, wire: Wire) -> None:
    """Presence is evidence: no warning takes it away."""
    wire.answer = Shelf("abc", totalCount=4).answer
    found = await payments.transactions.find("r-c")
    assert found is not None
    assert "c" == found.transaction_id


async def test_a_row_that_is_not_found_in_an_incomplete_list(payments: PaymentsSession, wire: Wire) -> None:
    """Absence proves nothing, and the warning says so."""
    wire.answer = Shelf("abc", totalCount=4).answer
    with pytest.warns(IncompleteListing, match="absence from this listing is not proof"):
        assert await payments.transactions.find("r-x") is None


async def test_a_page_that_fails(payments: PaymentsSession, wire: Wire) -> None:
    """The error is the page's; asking on reads that page again, and no row is lost."""
    shelf, failures = Shelf("abcd"), iter([False, True, False])

    async def answer(request: Request) -> bytes | None:
        return raw_reply(b"", 503) if next(failures, False) else await shelf.answer(request)

    wire.answer = answer
    listing = payments.transactions.iterate(size=SIZE)
    rows: list[str] = []
    with pytest.raises(ServiceFault):
        await gather(listing, rows)
    await gather(listing, rows)
    assert (["a", "b", "c", "d"], [1, 2]) == (rows, shelf.asked)


async def test_a_row_nobody_can_read(payments: PaymentsSession, wire: Wire) -> None:
    """The page is unreadable: a listing that passes over a row would prove an absence that is none."""

    async def answer(_: Request) -> bytes | None:
        return raw_reply(b'{"code": 0, "data": {"collection": [{"transactionId": "t-1"}, {"requestId": "r-2"}]}}')

    wire.answer = answer
    with pytest.raises(PaymentsError, match="transaction_id is missing"):
        await gather(payments.transactions.iterate(), [])


CHANGES = st.lists(st.sampled_from(["grow", "lose", "rest"]), max_size=6)


@given(
    st.integers(min_value=0, max_value=9),
    CHANGES,
    st.sampled_from([True, False, None]),
    st.sampled_from([0, 1, 5, None]),
    st.sampled_from([0, 3, None]),
)
async def test_any_list(
    rows: int, changes: list[str], next_page: bool | None, pages: int | None, count: int | None
) -> None:
    """It ends, and shows no row twice; a list that rested and counted its rows is shown whole, or said not to be."""

    def change(shelf: Shelf, number: int) -> None:
        what = changes[number - 1] if number <= len(changes) else "rest"
        if what == "grow":
            shelf.ids.insert(0, f"n{number}")
        elif what == "lose" and shelf.ids:
            del shelf.ids[0]

    truth = {} if count is None else {"totalCount": count}
    shelf = Shelf("abcdefghi"[:rows], meanwhile=change, nextPage=next_page, totalPages=pages, **truth)
    before = list(shelf.ids)

    async def fetch(number: int) -> Page[str]:
        data = shelf.page(number)
        return Page(
            collection=tuple(row["transactionId"] for row in data["collection"]),
            total_count=data.get("totalCount"),
            total_pages=data.get("totalPages"),
            next_page=data.get("nextPage"),
        )

    listing: Listing[str] = Listing(fetch, str, warns=False)
    shown = [row async for row in listing]
    assert len(set(shown)) == len(shown) == listing.seen
    assert len(shelf.asked) <= rows + len(changes) + 6
    if count is None and not {"grow", "lose"} & set(changes):
        assert (before, None) == (shown, listing.incomplete)

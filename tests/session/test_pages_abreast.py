"""Pages of a list asked for side by side: the same rows in the same sequence, in less time."""

import asyncio
from typing import Any

import attrs
import pytest
from session.test_readings import Shelf
from session.wires import Times

from payments_async import AuthenticationFailed, Page, ServiceFault, Transaction
from payments_async._session.lists import Reader, Reading


@attrs.define
class Busy:
    """A shelf whose pages take a few turns, and that counts how many are under way.

    Attributes:
        fails: Raised once for a page of this number.
    """

    shelf: Shelf
    fails: dict[int, Exception] = attrs.field(factory=dict)
    under_way: int = 0
    most: int = 0

    async def page(self, **asked: Any) -> Page[Transaction]:
        """One page."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            for _ in range(3 + asked["number"] % 2):
                await asyncio.sleep(0)
            if (error := self.fails.pop(asked["number"], None)) is not None:
                raise error
            return await self.shelf.page(**asked)
        finally:
            self.under_way -= 1


async def read(busy: Busy, times: Times, abreast: int) -> tuple[Reading, list[str], Reader]:
    """Read all of it."""
    reader = Reader(busy.page, clock=times.clock, sleep=times.sleep, patience=60.0, abreast=abreast)
    reading = reader.read(None, None, probes=True)
    return reading, [one.transaction_id async for rows in reading.pages() for one in rows], reader


SHELVES: list[dict[str, Any]] = [
    {}, {"cap": 1000}, {"fallback": 20}, {"cap": 50, "fallback": None}, {"error": None}, {"error": 7}, {"turned": True},
]  # fmt: skip


@pytest.mark.parametrize("how", SHELVES)
async def test_the_same_rows(times: Times, how: dict[str, Any]) -> None:
    """Whatever the service makes of a page's size; and what the reading is worth."""
    one, rows, alone = await read(Busy(Shelf(1203, **how)), times, 1)
    busy = Busy(Shelf(1203, **how))
    several, same, reader = await read(busy, times, 4)
    assert (rows, one.problem, one.counted) == (same, several.problem, several.counted)
    assert alone.requests <= reader.requests <= alone.requests + 3
    assert busy.most == (1 if how.get("error", 0) is None else min(4, -(-1203 // reader.size) - 1))


@pytest.mark.parametrize("number", [2, 3, 4, 12])
async def test_a_page_that_fails(times: Times, number: int) -> None:
    """It is asked for again, alone; nothing is passed over."""
    busy = Busy(Shelf(1203), fails={number: ServiceFault("not now")})
    reading, rows, _ = await read(busy, times, 4)
    assert (None, [f"t-{one}" for one in range(1203)]) == (reading.problem, rows)


async def test_credentials_that_are_refused_meanwhile(times: Times) -> None:
    """That ends the reading, and what was asked for ahead with it."""
    busy = Busy(Shelf(1203), fails={3: AuthenticationFailed("no")})
    with pytest.raises(AuthenticationFailed):
        await read(busy, times, 4)
    assert 0 == busy.under_way


async def test_a_reader_that_has_enough(times: Times) -> None:
    """Whoever leaves early leaves nothing under way."""
    busy = Busy(Shelf(1203))
    reader = Reader(busy.page, clock=times.clock, sleep=times.sleep, abreast=4)
    pages = reader.read(None, None).pages()
    for _ in range(2):
        await anext(pages)
    await pages.aclose()
    assert 0 == busy.under_way


async def test_what_the_last_page_failed_with(times: Times) -> None:
    """A list that could not be read says with what, apart from one that shows too little."""
    shelf = Shelf(1203, faults=[ServiceFault("not now")] * 200)
    broken = Reader(shelf.page, clock=times.clock, sleep=times.sleep).read(None, None)
    short, _, _ = await read(Busy(Shelf(1203, error=7)), times, 1)
    assert [] == [rows async for rows in broken.pages()]
    assert (True, None) == (isinstance(broken.failure, ServiceFault), short.failure)

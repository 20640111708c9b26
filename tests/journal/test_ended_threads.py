"""The thread that writes a journal ends before its time: all who wait hear of it, and what to do."""

from __future__ import annotations

import asyncio

import pytest
from journal.conftest import Opens
from journal.factories import IDENTITY, orders

from payments_async.journal import JournalUnavailable


class Ended(BaseException):
    """What nobody foresaw."""


async def test_the_thread_that_writes_ends(opens: Opens) -> None:
    """What is under way, what waits and what comes fails with a remedy; opened again, the journal goes on."""
    breaks = False

    def crash(point: str) -> None:
        if breaks and point == "commit.begun":
            raise Ended

    async with opens(crash_at=crash) as journal:
        await journal.open_run("salaries", IDENTITY)
        breaks = True
        loads = [asyncio.ensure_future(journal.load("salaries", orders(3), owner=f"{n}")) for n in range(3)]
        done, _ = await asyncio.wait(loads, timeout=60)
        assert 3 == len(done), "somebody waits for a thread that has ended"
        for load in loads:
            with pytest.raises(JournalUnavailable, match=r"ended .*: open the journal again"):
                load.result()
        with pytest.raises(JournalUnavailable, match="open the journal again"):
            await journal.open_run("bonus", IDENTITY)
    breaks = False
    async with opens() as journal:
        assert 3 == (await journal.load("salaries", orders(3), owner="later")).total

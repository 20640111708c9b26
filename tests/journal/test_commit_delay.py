"""Callers that come again and again share their commits, though they began at different times."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from journal.factories import IDENTITY, order

from payments_async.journal import SqliteJournal
from payments_async.journal._engine._commit_delay import CommitDelay
from payments_async.testing import Testing

SHOP = "shop"
LONG = 0.1  # seconds of each commit
TURNS = 20  # of the event loop until a caller comes again


class Desk:
    """A journal whose commits end when the test says so, in an event loop whose time stands still.

    Attributes:
        seconds: The time of the event loop.
        commits: How many were made, or are on their way.
        begun: One is on its way.
        may_end: It may end.
    """

    def __init__(self, place: Path) -> None:
        self.seconds, self.commits = 1000.0, 0
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()
        self.journal = SqliteJournal(
            place / "journal.db", state_folder=None, testing=Testing(crash_at=self.passed), busy_timeout=1.0
        )

    def passed(self, point: str) -> None:
        """A commit takes its time."""
        if point == "commit.begun":
            self.commits += 1
            self.begun.set()
            assert self.may_end.wait(60)
            self.seconds += LONG

    async def calls(self, *numbers: int) -> None:
        """A caller, who puts one order after the other, and needs a moment in between."""
        for number in numbers:
            await self.journal.put(SHOP, order(number))
            await turns()

    def called(self, *orders: tuple[int, ...]) -> list[asyncio.Task[None]]:
        """Several callers."""
        return [asyncio.create_task(self.calls(*numbers)) for numbers in orders]

    @asynccontextmanager
    async def under_way(self, *orders: tuple[int, ...]) -> AsyncIterator[list[asyncio.Task[None]]]:
        """While the first commit of some callers is on its way."""
        self.may_end.clear()
        self.begun.clear()
        callers = self.called(*orders)
        await asyncio.to_thread(self.begun.wait, 60)
        self.commits = 1
        yield callers
        self.may_end.set()


async def turns() -> None:
    """A moment, in which the time of the event loop may stand still."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def ended(callers: Iterable[asyncio.Task[None]]) -> None:
    """All of them were answered; no timer tells it, for the time of the event loop may stand still."""
    for _ in range(20_000):
        if all(caller.done() for caller in callers):
            await asyncio.gather(*callers)
            return
        await asyncio.to_thread(time.sleep, 0.001)
    raise AssertionError("they wait still")


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    """Open, with an outbox."""
    desk = Desk(tmp_path)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: desk.seconds)  # before the journal asks for it
    async with desk.journal as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        yield desk
        monkeypatch.undo()


async def test_two_groups_become_one(desk: Desk) -> None:
    """Those who were just answered come again in a moment, and the others wait so long: one commit for all."""
    async with desk.under_way((1, 11), (2, 12), (3, 13)) as callers:
        callers += desk.called((4,), (5,))
        await turns()
    await ended(callers)
    assert 2 == desk.commits


async def test_a_caller_that_does_not_come_again_is_not_waited_for(desk: Desk) -> None:
    """The others wait for a fifth of a commit, and 20 ms at most."""
    async with desk.under_way((1, 11), (2,), (3,)) as callers:
        callers += desk.called((4,), (5,))
        await turns()
    await ended(callers[1:3])
    await turns()
    assert 1 == desk.commits
    desk.seconds += 0.021
    await ended(callers)
    assert 2 == desk.commits


async def test_a_journal_that_is_closed_waits_for_no_caller(desk: Desk) -> None:
    """What waits is written at once."""
    async with desk.under_way((1,), (2,)) as callers:
        callers += desk.called((4,), (5,))
        await turns()
    await ended(callers[:2])
    assert 1 == desk.commits
    await desk.journal.aclose()
    await ended(callers)
    assert 2 == desk.commits


def waits(delay: CommitDelay, *, takes: float, waiting: int, gains: int, answered: int) -> float:
    """Seconds that the next commit waits, after one that took so long."""
    now = delay._clock()
    delay.begin(answered)
    delay._clock = lambda: now + takes
    delay.end(answered)
    seconds = delay.seconds(waiting)
    delay._clock = lambda: now + takes + seconds
    delay.begin(waiting + gains)
    return seconds


@pytest.mark.parametrize(
    ("takes", "waiting", "answered", "seconds"),
    [(0.005, 1, 4, 0.001), (0.005, 4, 1, 0.001), (0.0009, 1, 4, 0.0), (10.0, 1, 4, 0.02), (0.005, 1, 0, 0.0)],
)
def test_how_long_a_commit_waits(takes: float, waiting: int, answered: int, seconds: float) -> None:
    """A fifth of what the last one took; not where that was short, nor long where it waited for its server."""
    delay = CommitDelay(lambda: 0.0)
    assert seconds == pytest.approx(waits(delay, takes=takes, waiting=waiting, gains=1, answered=answered))


def test_a_lone_caller_never_waits() -> None:
    """The last commit answered that caller alone, and there is none to wait for."""
    delay = CommitDelay(lambda: 0.0)
    for _ in range(10):
        delay.begin(1)
        delay.end(1)
        assert delay.came()
        assert 0.0 == delay.seconds(1)


@pytest.mark.parametrize(("gains", "waited"), [(1, 500), (0, 12)])
def test_waits_that_gain_nothing_become_rare(gains: int, waited: int) -> None:
    """Where callers do come again each commit waits for them; where they do not, one of 64 tries it."""
    delay = CommitDelay(lambda: 0.0)
    assert waited == sum(waits(delay, takes=0.01, waiting=4, gains=gains, answered=4) > 0.0 for _ in range(500))

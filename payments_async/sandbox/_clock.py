"""What time it is in the sandbox, how to wait, and all that is due later."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

Action = Callable[[], object]


class Clock(Protocol):
    """A source of time. Both methods belong to one event loop."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds of this clock."""
        ...


class SystemClock:
    """The computer's own clock."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until it is moved, for tests that must not sleep.

    >>> clock = ManualClock()
    >>> begun = clock.now()
    >>> clock.advance(60.0)
    >>> (clock.now() - begun).total_seconds()
    60.0
    """

    def __init__(self, start: datetime = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError("start names no zone: give an aware datetime")
        self._now = start.astimezone(UTC)
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._ticket = itertools.count()

    def now(self) -> datetime:
        """Return the instant the clock was last moved to."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been moved by that many seconds."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.after(seconds), next(self._ticket), woken))
        await woken

    def after(self, seconds: float) -> datetime:
        """Return the instant that many seconds from now."""
        return self._now + timedelta(seconds=seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock forward by that many seconds and wake the sleepers that are due."""
        self.advance_to(self.after(seconds))

    def advance_to(self, instant: datetime) -> None:
        """Move the clock forward to an instant; an earlier one leaves it where it is."""
        self._now = max(self._now, instant)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)


class Scheduler:
    """Run actions when the clock says so, in order of their time and then of their arrival.

    A heap, not a task for each order: a hundred thousand orders under way cost a hundred thousand small tuples, and a
    test can run everything that is due without handing control to the event loop.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[datetime, int, Action]] = []
        self._ticket = itertools.count()
        self._nap: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def next_due(self) -> datetime | None:
        """When the earliest action is due, or None with nothing to do."""
        return self._heap[0][0] if self._heap else None

    def after(self, seconds: float, action: Action) -> int:
        """Run the action that many seconds from now; what is returned drops it."""
        due, ticket = self._clock.now() + timedelta(seconds=seconds), next(self._ticket)
        heapq.heappush(self._heap, (due, ticket, action))
        self._empty.clear()
        if self._heap[0][0] == due and self._nap is not None:
            self._nap.cancel()  # it sleeps until something later
        return ticket

    def drop(self, ticket: int) -> None:
        """Let an action that was scheduled not be run."""
        self._heap = [one for one in self._heap if one[1] != ticket]
        heapq.heapify(self._heap)
        if not self._heap:
            self._empty.set()

    async def sleep(self, seconds: float) -> None:
        """Wait as one of the scheduled actions, so that whoever moves the clock finds the sleeper here."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.after(seconds, partial(_wake, woken))
        await woken

    def run_due(self) -> None:
        """Run everything that is due by now, including what the actions themselves make due."""
        while self._heap and self._heap[0][0] <= self._clock.now():
            _, _, action = heapq.heappop(self._heap)
            action()
        if not self._heap:
            self._empty.set()

    async def run(self) -> None:
        """Run actions as they become due, until cancelled."""
        while True:
            self.run_due()
            nap = self._nap = asyncio.get_running_loop().create_task(self._until_due())
            try:
                await asyncio.wait({nap})
            finally:
                nap.cancel()

    async def join(self) -> None:
        """Wait until nothing is scheduled any more."""
        await self._empty.wait()

    def clear(self) -> None:
        """Forget everything scheduled."""
        self._heap.clear()
        self._empty.set()

    async def _until_due(self) -> None:
        if (due := self.next_due) is None:
            await asyncio.Event().wait()  # until after() cancels it
        else:
            await self._clock.sleep((due - self._clock.now()).total_seconds())


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():  # who slept may have been cancelled
        sleeper.set_result(None)

"""What time it is in the sandbox, and how to wait. Knows nothing of what is waited for."""

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta
from typing import Protocol


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
    """A clock that stands still until it is moved, for tests that must not sleep."""

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
        """Move the clock forward by that many seconds and wake whoever is due."""
        self.advance_to(self.after(seconds))

    def advance_to(self, instant: datetime) -> None:
        """Move the clock forward to an instant; an earlier one leaves it where it is."""
        self._now = max(self._now, instant)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)

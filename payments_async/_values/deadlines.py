"""One timer for many exchanges that may all take the same time: cheaper than a timer for each."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

# the clock that goes on while the machine sleeps; where none is known, the usual one does, or nobody can tell
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC if sys.platform == "darwin" else None)


# Seconds that only rise, those in which the machine slept included: leases and tokens ran out meanwhile. Asked five
# times for each order, so it is a function in C.
steady_seconds: Callable[[], float] = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)


def waking_clock(clock: Callable[[], float]) -> Callable[[], float]:
    """The clock; for ``steady_seconds`` one that stands still while the machine sleeps, where there is one."""
    return time.monotonic if clock is steady_seconds else clock


class Deadlines:
    """Gives every ``with`` block the same number of seconds; whoever stays longer gets ``TimeoutError``.

    What ``asyncio.timeout`` does, with its treatment of cancellation from elsewhere; but blocks that began first are
    due first, so one timer at the oldest serves all.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.stays: dict[_Stay, None] = {}  # oldest first
        self.timer: asyncio.TimerHandle | None = None

    def stay(self) -> _Stay:
        """A block that may last as long as all others."""
        return _Stay(self)

    def close(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """Break off the blocks that are due, and wait for the next one."""
        now = loop.time()
        self.timer = None
        while self.stays:
            stay = next(iter(self.stays))
            if stay.due > now:
                self.timer = loop.call_at(stay.due, self.ring, loop)
                return
            del self.stays[stay]
            stay.is_late = True
            stay.task.cancel()


class _Stay:
    """One block, in one task."""

    __slots__ = ("_cancelling", "_deadlines", "due", "is_late", "task")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines

    def __enter__(self) -> None:
        deadlines, loop = self._deadlines, asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("must be used within a task")
        self.task: asyncio.Task[Any] = task
        self.due: float = loop.time() + deadlines.seconds
        self.is_late: bool = False
        self._cancelling = task.cancelling()
        deadlines.stays[self] = None
        if deadlines.timer is None:  # a block that ends leaves it to find out by itself
            deadlines.timer = loop.call_at(self.due, deadlines.ring, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._deadlines.stays.pop(self, None)
        # Only our own cancellation becomes a timeout: a cancellation from elsewhere as well wins.
        if self.is_late and self.task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError(f"not done within {self._deadlines.seconds:g} s") from error

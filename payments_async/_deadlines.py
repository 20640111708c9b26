"""One timer for many exchanges that may all take the same time: cheaper than a timer for each. Knows no HTTP."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import TracebackType

__all__ = ["Deadlines"]


class Deadlines:
    """Gives every ``async with`` block the same number of seconds; whoever stays longer gets ``TimeoutError``.

    What ``asyncio.timeout`` does, with its treatment of cancellation from elsewhere; but blocks that began first are
    due first, so one timer at the oldest serves all.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stays: OrderedDict[_Stay, None] = OrderedDict()  # oldest first
        self._timer: asyncio.TimerHandle | None = None

    def stay(self) -> _Stay:
        """A block that may last as long as all others."""
        return _Stay(self)

    def begin(self, stay: _Stay) -> None:
        """A block begins."""
        loop = asyncio.get_running_loop()
        stay.due = loop.time() + self._seconds
        self._stays[stay] = None
        if self._timer is None:
            self._timer = loop.call_at(stay.due, self._ring, loop)

    def end(self, stay: _Stay) -> None:
        """A block has ended; the timer is left to find out by itself."""
        self._stays.pop(stay, None)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._timer = None
        while self._stays:
            stay = next(iter(self._stays))
            if stay.due > now:
                self._timer = loop.call_at(stay.due, self._ring, loop)
                return
            del self._stays[stay]
            stay.is_late = True
            stay.task.cancel()


class _Stay:
    """One block, in one task."""

    __slots__ = ("_cancelling", "_deadlines", "due", "is_late", "task")

    def __init__(self, deadlines: Deadlines) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("must be used within a task")
        self.task = task
        self.due = 0.0
        self.is_late = False
        self._deadlines = deadlines
        self._cancelling = task.cancelling()

    async def __aenter__(self) -> None:
        self._deadlines.begin(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._deadlines.end(self)
        # Only our own cancellation becomes a timeout: a cancellation from elsewhere as well wins.
        if self.is_late and self.task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

"""Tells an event loop that something was committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from payments_async.journal._states import State

Wanted = Callable[[], Collection[State]]  # the states that matter to one who waits, asked with each commit


class Tally:
    """A number that rises with everything that is heard of, and for which an event loop waits.

    Attributes:
        loop: Where it rises.
        count: The number; 1 at first, so that 0 is the past of everyone.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.count = 1
        self._latest = 1  # of what may concern everyone
        self._entered: dict[str, int] = {}  # the latest of each state
        self._waiting: dict[asyncio.Future[None], Wanted | None] = {}

    def rise(self, entered: Collection[str] | None = None) -> None:
        """Something was heard of.

        Args:
            entered: The states that orders came to, where nothing else has happened; ``None`` where it may have.
        """
        self.count += 1
        if entered is None:
            self._latest = self.count
        else:
            self._entered.update(dict.fromkeys(entered, self.count))
        for waiting, wanted in self._waiting.items():
            if not waiting.done() and (entered is None or wanted is None or not set(entered).isdisjoint(wanted())):
                waiting.set_result(None)

    def rise_soon(self, entered: Collection[str] | None = None) -> None:
        """In another thread: something was heard of, as for ``rise``."""
        if self.loop is not None:
            with suppress(RuntimeError):  # it is closed: none waits
                self.loop.call_soon_threadsafe(self.rise, entered)

    def is_beyond(self, seen: int, wanted: Wanted | None = None) -> bool:
        """Whether anything was heard of since it was this number."""
        if wanted is None:
            return self.count > seen
        return self._latest > seen or any(self._entered.get(state, 0) > seen for state in wanted())

    async def beyond(self, seen: int, timeout: float, wanted: Wanted | None = None) -> int:
        """Wait until it is higher than this, for so many seconds at most; tells it.

        Args:
            wanted: Which states count, where orders came to others and nothing else has happened; ``None`` for all.
        """
        if timeout > 0 and not self.is_beyond(seen, wanted):
            risen = asyncio.get_running_loop().create_future()
            self._waiting[risen] = wanted
            try:
                await asyncio.wait([risen], timeout=timeout)
            finally:
                del self._waiting[risen]
        return self.count

"""Pace: when the next order may go while the service does badly, and when to give up. Sends nothing itself."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["Pace"]

_TOLERANCE = 10  # failures in a row, then one order at a time feels its way
_IN_VAIN = 3  # orders that felt their way and failed, after which nothing is expected of the next
_WAIT_INITIAL = 0.5  # seconds, doubled with every order that felt its way and failed
_WAIT_MAX = 30.0
_LONGEST_PAUSE = 900.0  # seconds that are believed when the service asks for a pause; then somebody asks again


class Pace:
    """How fast orders may go.

    Nobody is held up by a failure now and then. After ten in a row, without one answer in between, one order at a
    time goes, after growing pauses, until one is answered. So a service that is down is not flooded, and one that
    swallows orders makes a handful unknown, not all. A pause that the service asks for is kept by everybody.

    Args:
        patience: Seconds without any answer after which ``gave_up`` says why.
        clock: Monotonic seconds.
        chance: Draws from [0, 1).

    Attributes:
        gave_up: Why nothing more should be tried, or ``None``.
    """

    def __init__(
        self, patience: float, *, clock: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._chance = chance
        self._in_row = 0
        self._rounds = 0
        self._troubled_since: float | None = None
        self._until = 0.0
        self._probing = False
        self.gave_up: str | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether many failed in a row, and after growing pauses some alone as well."""
        return self._rounds > _IN_VAIN

    def may_go(self) -> bool:
        """Whether an order may go now. While the service does badly, one that may is the only one."""
        if not self._in_row and not self._until:
            return True
        if self._until:
            if self._clock() < self._until:
                return False
            self._until = 0.0
        if self._in_row < _TOLERANCE:
            return True
        if self._probing:
            return False
        self._probing = True
        return True

    def did_not_go(self) -> None:
        """An order that might have gone was kept back: another may go in its place."""
        self._probing = False

    def answered(self) -> None:
        """The service answered an order, with yes or no."""
        self._in_row = self._rounds = 0
        self._troubled_since = None
        self._probing = False

    def failed(self, words: str, *, retry_after: float | None = None) -> None:
        """An order, or the login before it, came to nothing.

        Args:
            words: What happened.
            retry_after: Seconds of pause that the service asked everybody for.
        """
        now = self._clock()
        self._probing = False
        if self._troubled_since is None:
            self._troubled_since = now
        if retry_after is not None:  # it is up, and says when to come again
            self._until = max(self._until, now + min(retry_after, _LONGEST_PAUSE))
        else:
            self._in_row += 1
            self._feel_the_way(now, self._troubled_since + self._patience - now)
        seconds = now - self._troubled_since
        if seconds >= self._patience:
            self.gave_up = f"nothing was answered for {seconds:.0f} seconds: {words}"

    def _feel_the_way(self, now: float, left: float) -> None:
        if self._in_row < _TOLERANCE or now < self._until:
            return  # a failure now and then; or it left before the pause, with many others
        grown = min(_WAIT_MAX, _WAIT_INITIAL * 2.0 ** min(self._rounds, 60)) * (0.5 + self._chance() / 2)
        self._until = now + max(0.0, min(grown, left))  # when patience ends, somebody tries for the last time
        self._rounds += 1

    def again_after(self, tries: int, retry_after: float | None) -> float:
        """Seconds until one order that was not sent is tried again, with full jitter."""
        own = self._chance() * min(_WAIT_MAX, _WAIT_INITIAL * 2.0 ** min(tries - 1, 60))
        return max(own, min(retry_after or 0.0, _LONGEST_PAUSE))

"""The turns that this process has reserved of the rate of all who send from one journal."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile

from payments_async.journal._records import RateSlots

MOMENT = 0.25  # seconds for which a turn is good; later ones of others are near, and both would be a burst
_SPELL = 0.1  # seconds for which turns are kept in hand, beside what a reservation takes
_MOST = 0.2  # ... however long that is: the last of them must be used in its moment
_SHORTEST = 0.02  # seconds over which use is measured at least
_AGAIN = 0.5  # seconds until turns are asked for again at most: the rate may be another one by then


class Reserve:
    """Turns in hand: one for each order that is begun, at its moment or not at all.

    As many are asked for as are used in a moment: what one has and does not use, nobody has.

    Args:
        clock: Monotonic seconds.

    Attributes:
        rate: Orders a second of all together; infinity without a limit.
        missed: Orders that could have gone at once if there had been a turn, since some were asked for last.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.rate = math.inf
        self.is_limited = False  # an attribute: it is asked for with every order
        self.missed = 0
        self._turns: deque[float] = deque()  # monotonic seconds of those in hand, the next one first
        self._low = 0  # so few are left that it is time to ask for more
        self._used = 0  # since some were asked for last
        self._asked_at = clock()
        self._took = 0.0  # seconds that a reservation took of late
        self._not_before = 0.0  # when it is worth asking again

    def follow(self, rate: float | None) -> None:
        """This is the rate of all from now on; ``None`` without a limit."""
        rate = math.inf if rate is None else rate
        if rate != self.rate:
            self.rate, self.is_limited = rate, math.isfinite(rate)
            self._not_before = 0.0
            if not self.is_limited:
                self._turns.clear()

    @property
    def runs_low(self) -> bool:
        """Whether it is time to ask for more, if orders go on as they did."""
        return len(self._turns) <= self._low

    def is_due(self) -> bool:
        """Whether a turn in hand is good now."""
        now = self._clock()
        self._forget(now)
        return bool(self._turns) and self._turns[0] <= now

    def take(self) -> None:
        """An order is begun in the turn that is due."""
        self._turns.popleft()
        self._used += 1

    def count_due(self) -> int:
        """How many turns are good now."""
        now = self._clock()
        self._forget(now)
        return sum(1 for _ in takewhile(lambda at: at <= now, self._turns))

    def wanted(self, waiting: int) -> int:
        """How many to ask for now, if any.

        Args:
            waiting: Orders that wait for a turn and for nothing else.
        """
        now = self._clock()
        if now < self._not_before:
            return 0
        self._forget(now)
        speed = self._used / max(now - self._asked_at, _SHORTEST)
        expected = int(speed * min(_SPELL + self._took, _MOST))
        at_once = min(max(waiting, self.missed), math.ceil(self.rate * _SPELL))
        return max(0, expected + at_once - len(self._turns))

    def add(self, turns: RateSlots, asked_at: float) -> None:
        """Turns were reserved, or none yet.

        Args:
            asked_at: Monotonic seconds.
        """
        now = self._clock()
        self.follow(turns.pace.rate)
        self._took = max(now - asked_at, self._took * 0.9)
        self._used = self.missed = 0
        self._asked_at = now
        if not self.is_limited:
            return
        if turns.count:
            first = now + turns.starts_in
            self._turns.extend(first + place * turns.interval for place in range(turns.count))
            self._low = len(self._turns) // 2
        else:
            self._not_before = now + min(turns.again_in, _AGAIN)

    def next_in(self) -> float | None:
        """Seconds until the next turn in hand, or until it is worth asking for some; ``None`` where it is now."""
        now = self._clock()
        self._forget(now)
        times = list(islice(self._turns, 1))
        if self._not_before > now:
            times.append(self._not_before)
        return max(0.0, min(times) - now) if times else None

    def _forget(self, now: float) -> None:
        """Let turns go whose moment is over."""
        while self._turns and self._turns[0] < now - MOMENT:
            self._turns.popleft()

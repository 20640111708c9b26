"""How patient calls are: the tries of one, how much is under way of all, and the cool-down after a 429."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from payments_async._values.checks import check_number, check_whole
from payments_async._values.frozen import frozen

Sleep = Callable[[float], Awaitable[object]]

_LONGEST_PAUSE = 900.0  # seconds of cool-down that are believed; then somebody asks again


@frozen(kw_only=True)
class Limits:
    """What one session allows itself.

    Attributes:
        concurrency: Calls under way at once. The wait for a place is not part of any timeout.
        rate: Calls begun per second, evenly spread; ``None`` for no limit.
        reply_bytes: Largest body of an answer that is read.
        remembered: Accepted orders whose acceptance is remembered, so that a repeat is not sent; the latest ones.
            100,000 take about 75 MB.

    >>> Limits(concurrency=20, rate=10.0).rate
    10.0
    """

    concurrency: int = 100
    rate: float | None = None
    reply_bytes: int = 8 * 2**20
    remembered: int = 100_000

    def __attrs_post_init__(self) -> None:
        check_whole("concurrency", self.concurrency, 1)
        if self.rate is not None:
            check_number("rate", self.rate, above_zero=True, unit="calls a second, or None for no limit")
        check_whole("reply_bytes", self.reply_bytes, 1024)
        check_whole("remembered", self.remembered, 1)


class Gate:
    """Lets calls through as ``Limits`` allow. One for a session, shared by all its tasks.

    Attributes:
        rate: Calls begun per second at most; ``None`` for no limit.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float], sleep: Sleep) -> None:
        self._free = limits.concurrency  # places; while somebody waits, none
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.rate = limits.rate
        self._interval = 0.0 if limits.rate is None else 1.0 / limits.rate
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0  # when the next call may begin, by the rate
        self._cool_until = 0.0

    async def enter(self, patience: float) -> float:
        """Wait for a place, for the rate and for the end of a cool-down; ``leave()`` gives the place back.

        Args:
            patience: Seconds of cool-down that are waited for.

        Returns:
            0 with a place, or the seconds of a cool-down that outlasts the patience, without a place.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait_for_place()
        if not self._interval and not self._cool_until:
            return 0.0
        pause = 1.0
        try:
            pause = await self._wait_for_turn(patience)
        finally:
            if pause:
                self.leave()
        return pause

    def leave(self) -> None:
        """Give a place back: whoever has waited longest has it at once, and nobody can come in between."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else its task was cancelled, and has not run since
                waiter.set_result(None)
                return
        self._free += 1

    def cool_down(self, seconds: float) -> None:
        """Let nobody through for a while; the longest of several cool-downs counts."""
        self._cool_until = max(self._cool_until, self._clock() + min(seconds, _LONGEST_PAUSE))

    async def _wait_for_place(self) -> None:
        """Wait in line; who has just been given a place, and is broken off, hands it on."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.leave()
            with suppress(ValueError):  # not in line: it was given a place, or one has passed it over
                self._waiting.remove(waiter)
            raise

    async def _wait_for_turn(self, patience: float) -> float:
        while True:
            while (delay := self._cool_until - self._clock()) > 0:
                if delay > patience:
                    return delay
                patience -= delay
                await self._sleep(delay)
            self._cool_until = 0.0
            if not self._interval:
                return 0.0
            now = self._clock()
            turn = max(self._next, now)
            self._next = turn + self._interval
            if turn > now:
                await self._sleep(turn - now)
            if not self._cool_until:  # else turns went by in the cool-down: taking them now would be a burst
                return 0.0


@frozen(kw_only=True)
class RetryPolicy:
    """How often and how patiently a call is repeated.

    Reads are repeated after faults, disconnects and timeouts. A call that moves money is repeated only where the
    service turned it away unread (HTTP 401 and 429), never once it may have been carried out.

    The wait before attempt *n* + 1 is drawn evenly from 0 to ``min(wait_max, wait_initial * 2 ** (n - 1))`` seconds;
    a ``Retry-After`` of the service is waited for in full, if ``total`` allows.

    Attributes:
        attempts: Attempts in all, the first included; 1 never repeats.
        total: Seconds from the first attempt within which a further one may begin.
        wait_initial: Seconds: upper bound of the first wait.
        wait_max: Seconds: upper bound of any wait we choose ourselves.

    >>> RetryPolicy(attempts=5, total=60.0).attempts
    5
    """

    attempts: int = 3
    total: float = 30.0
    wait_initial: float = 0.2
    wait_max: float = 10.0

    def __attrs_post_init__(self) -> None:
        check_whole("attempts", self.attempts, 1)
        for name in ("total", "wait_initial", "wait_max"):
            check_number(name, getattr(self, name))

    def wait(
        self,
        attempt: int,
        elapsed: float,
        *,
        retry_after: float | None = None,
        chance: Callable[[], float] = random.random,
    ) -> float | None:
        """Seconds to wait before the next attempt, or ``None`` to give up.

        Args:
            attempt: Attempts made so far.
            elapsed: Seconds since the first began.
            retry_after: Seconds the service asked for.
            chance: Draws from [0, 1).
        """
        if attempt >= self.attempts:
            return None
        ceiling = min(self.wait_max, self.wait_initial * 2.0 ** min(attempt - 1, 60))
        seconds = chance() * ceiling if retry_after is None else retry_after
        return seconds if elapsed + seconds <= self.total else None

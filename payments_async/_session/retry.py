"""RetryPolicy: how often a call is tried, and how long to wait before the next time."""

from __future__ import annotations

import random
from collections.abc import Callable

from payments_async._values.checks import check_number, check_whole
from payments_async._values.frozen import frozen


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

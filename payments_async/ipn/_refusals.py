"""What a receiver refused, by address and reason: counted, and told to the log now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from payments_async._values.observing import Observer

_log = logging.getLogger("payments_async.ipn")
_MOST = 1000  # addresses and reasons that are told apart
_OTHERS = "others"
_QUIET = 10.0  # seconds
_LINES = 10  # in the log, in so many seconds


class Refusal(NamedTuple):
    """How often somebody was refused for one reason."""

    address: str
    why: str
    times: int


class Refusals:
    """Counts refusals. Each new address and reason is logged, but only so many lines in a while: a flood fills no disk.

    Args:
        clock: Gives Unix seconds.
        observer: Told of each, if anybody watches.
    """

    def __init__(self, clock: Callable[[], float], observer: Observer | None = None) -> None:
        self._clock = clock
        self._observer = observer
        self._counts: dict[tuple[str, str], int] = {}
        self._told: dict[tuple[str, str], float] = {}
        self._since = 0.0
        self._lines = 0
        self._unsaid = 0

    def note(self, address: str, why: str, message: str = "a request is refused", **facts: object) -> None:
        """One more.

        Args:
            message: For the log.
        """
        if self._observer is not None:
            self._observer.count("refusal", reason=message)
        key = (address, why)
        if key not in self._counts and len(self._counts) >= _MOST:
            key = (_OTHERS, why)
        self._counts[key] = count = self._counts.get(key, 0) + 1
        now = self._clock()
        if not self._since <= now < self._since + _QUIET:
            self._since, self._lines = now, 0
        if self._lines >= _LINES or 0 <= now - self._told.get(key, now - _QUIET) < _QUIET:
            self._unsaid += 1
            return
        self._told[key] = now
        self._lines += 1
        unsaid, self._unsaid = self._unsaid, 0
        extra = {"sender": address, "why": why, "count": count, "not_logged_since": unsaid}
        words = message + ": %s: %s (%d times by now)"
        _log.warning(words, address, why, count, extra={**extra, **facts})

    def all(self) -> tuple[Refusal, ...]:
        """All so far, the most frequent first."""
        found = (Refusal(address, why, count) for (address, why), count in self._counts.items())
        return tuple(sorted(found, key=lambda refusal: -refusal.times))

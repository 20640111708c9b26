"""How long a commit waits for the callers that the last one has answered."""

from __future__ import annotations

from collections.abc import Callable

_SHORT = 0.001  # seconds of a commit that is not waited for: a timer of the event loop is no finer
_PART = 5.0  # of the last commit's time, one part is waited
_LONGEST = 0.02  # seconds, where the last commit waited for a lock or for its server
_RARELY = 64  # commits until the next wait, where waiting gains nothing


class CommitDelay:
    """Lets callers that pay in turns share each commit, as ``commit_delay`` of PostgreSQL does.

    They would form two groups. While the commit of one group is on its way, the other waits, and leaves at the moment
    at which the first is answered. So each caller would wait for two commits each time.

    A lone caller never waits. A wait ends when all have come again. It has to be worth its while: what came meanwhile
    would else have waited for a whole commit. Where it is not, twice as many commits leave without one each time.

    Args:
        clock: Seconds, of the event loop.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = self._took = 0.0
        self._expected = 0  # callers that the last commit has answered, and that have not come again
        self._held: tuple[int, float] | None = None  # how many wait, and since when
        self._without = self._losses = 0  # commits that leave without a wait; waits in a row that were not worth it

    def came(self) -> bool:
        """One caller asks for a commit. Whether all are there now."""
        self._expected -= 1
        return self._expected <= 0

    def seconds(self, waiting: int) -> float:
        """Seconds that so many operations wait now; 0.0 where they are to leave."""
        if self._held is not None or self._expected <= 0 or self._took < _SHORT:
            return 0.0
        if self._without:
            self._without -= 1
            return 0.0
        self._held = waiting, self._clock()
        return min(self._took / _PART, _LONGEST)

    def begin(self, leaving: int) -> None:
        """A commit leaves, with so many operations."""
        self._begun = self._clock()
        if self._held is not None:
            waited, since = self._held
            gained, lost = (leaving - waited) * self._took, waited * (self._begun - since)
            self._losses = 0 if gained >= lost else self._losses + 1
            self._without = min(2**self._losses, _RARELY) - 1
            self._held = None

    def end(self, answered: int) -> None:
        """It is made, and so many callers are answered."""
        self._took = self._clock() - self._begun
        self._expected = answered

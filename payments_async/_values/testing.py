"""What a test puts in the place of time and chance: one value for every part that takes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from payments_async._values.checks import check_callable
from payments_async._values.frozen import frozen


@frozen(kw_only=True)
class Testing:
    """Time and chance, for tests. What is not given is the machine's.

    Attributes:
        clock: Gives seconds that only rise.
        now: Gives Unix seconds. Without it, a ``PostgresJournal`` asks its database.
        sleep: Waits for seconds.
        random: Gives jitter, in [0, 1).
        crash_at: Called with the name of each point between two steps of a journal (``CRASH_POINTS``).

    >>> journal = SqliteJournal("payments.sqlite", testing=Testing(now=lambda: 1_800_000_000.0))
    """

    __test__ = False  # pytest collects by the beginning of a name

    clock: Callable[[], float] | None = None
    now: Callable[[], float] | None = None
    sleep: Callable[[float], Awaitable[None]] | None = None
    random: Callable[[], float] | None = None
    crash_at: Callable[[str], None] | None = None

    def __attrs_post_init__(self) -> None:
        for name, remedy in _REMEDIES.items():
            if (given := getattr(self, name)) is not None:
                check_callable(name, given, remedy)


_REMEDIES = {
    "clock": "a function that gives monotonic seconds",
    "now": "a function that gives Unix seconds",
    "sleep": "an async function that waits for seconds",
    "random": "a function that gives numbers in [0, 1)",
    "crash_at": "a function that is called with a name",
}
NOT_TESTING = Testing()

"""How far the reading and planning of a file is, and the writing of a report, in words."""

from collections.abc import Callable

from payments_async.bulk import PlanProgress

_WORDS = {
    "orders": "looking at orders",
    "other batch": "comparing with the other batch",
    "paid of late": "looking at who was paid of late",
    "summed up": "summing up",
}


class LatestWords:
    """What is done now; the words may change in any thread, and are read by who shows them.

    Args:
        words: Of the first step.
    """

    def __init__(self, words: str) -> None:
        self._words = words

    def __call__(self) -> str:
        return self._words

    def rows(self, name: str) -> Callable[[int], None]:
        """What takes the number of rows that were read of a file."""

        def take(rows: int) -> None:
            self._words = f"reading {name}: {rows:,} rows"

        return take

    def orders(self, total: int) -> Callable[[int], None]:
        """What takes the number of orders that were written, of so many."""

        def take(written: int) -> None:
            self._words = f"writing the report: {written:,} of {total:,} orders"

        return take

    def plan(self, progress: PlanProgress) -> None:
        """Take how far a plan is."""
        words = _WORDS[progress.step]
        if progress.done:
            words += f": {progress.done:,}"
        if progress.done and progress.total:
            words += f" of {progress.total:,}"
        self._words = words

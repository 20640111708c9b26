"""What a command does that lasts: said on standard error until it is done, with how far it is and the seconds."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.spinner import Spinner

from payments_async import PaymentsSession
from payments_async._cli.screen import Screen, clean

if TYPE_CHECKING:  # a help imports no more than it shows
    from payments_async.bulk import PlanProgress

_LONG = 2.0  # seconds after which a wait is worth a word on a terminal
_PIPED = 10.0  # ... and in a pipe, again and again
_SILENT = 5.0  # seconds without an answer that are worth a word
_TICK = 0.25  # seconds between two looks


def silence(payments: PaymentsSession | None) -> str:
    """That the service does not answer, and since when; empty where it does."""
    seconds = 0.0 if payments is None else payments.silent_for
    return f"the service has not answered for {seconds:.0f} s, trying again" if seconds >= _SILENT else ""


@asynccontextmanager
async def working(
    screen: Screen,
    words: str | Callable[[], str],
    payments: PaymentsSession | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncIterator[None]:
    """Say what is done for as long as the block runs: a line that moves on a terminal, one now and then in a pipe.

    It is on standard error, so with ``--json`` and into a file it is said too. What takes no two seconds is not said.

    Args:
        words: What is done, or what gives it as it goes on.
        payments: Whose silence is told.
    """
    begun = clock()

    def line() -> str:
        said = clean(words if isinstance(words, str) else words())
        # the silence first: a terminal of 80 columns shows no more of the line than that
        return "; ".join(filter(None, (silence(payments), f"{said} ({clock() - begun:.0f} s)")))

    say = _say_live if screen.err.is_terminal else _say_piped
    async with beside(say(screen, line, sleep)):
        yield


async def _say_live(screen: Screen, line: Callable[[], str], sleep: Callable[[float], Awaitable[object]]) -> None:
    await sleep(_LONG)
    spinner = Spinner("line", line(), style="dim")
    with Live(spinner, console=screen.err, transient=True, refresh_per_second=8):
        screen.err.show_cursor(True)  # it was hidden, and a kill -9 would leave the terminal without one
        while True:
            spinner.update(text=line())
            await sleep(_TICK)


async def _say_piped(screen: Screen, line: Callable[[], str], sleep: Callable[[float], Awaitable[object]]) -> None:
    while True:
        await sleep(_PIPED)
        screen.note(line())


@asynccontextmanager
async def beside(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Do it for as long as the block runs; what broke it is raised at the end."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


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

    def plan(self, progress: "PlanProgress") -> None:
        """Take how far a plan is."""
        words = _WORDS[progress.step]
        if progress.done:
            words += f": {progress.done:,}"
        if progress.done and progress.total:
            words += f" of {progress.total:,}"
        self._words = words

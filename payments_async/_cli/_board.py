"""The live view of a demo: bars on a terminal, a line now and then in a pipe, nothing with --json. Decides nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from payments_async._cli._bulk_board import line_of, words_of
from payments_async._cli._screen import Screen
from payments_async.journal import FINAL, Journal, JournalError, Progress, State

__all__ = ["Board"]

_LINES_PIPED = 4  # progress lines for the sending
_MARGIN = 3  # columns on the right, where a terminal writes its ^C: in the next line it would break the view
_LOOK = 0.1  # seconds between two looks into the journal


class Board:
    """Shows how far a batch is. Use it with ``with``.

    Args:
        total: Orders of the batch.
        currency: Of the sums.
        clock: Monotonic seconds.
    """

    def __init__(
        self, screen: Screen, total: int, currency: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen = screen
        self._total = total
        self._currency = currency
        self._clock = clock
        self._progress: Progress | None = None
        self._began: tuple[float, int] | None = None
        self._rate = 0.0
        self._doing = ""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._screen.is_live:
            self._live = Live(get_renderable=self._draw, console=self._screen.out, refresh_per_second=12)
            self._live.start()
            self._screen.out.show_cursor(True)  # it was hidden, and a kill -9 would leave the terminal without one
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._doing = ""
            self._live.stop()

    @asynccontextmanager
    async def watching(self, journal: Journal, batch_id: str) -> AsyncIterator[None]:
        """Show what the journal says of a batch, for as long as the block runs."""

        async def watch() -> None:
            while True:
                with suppress(JournalError):  # not loaded yet; and whoever needs the journal complains of it
                    self.show(await journal.progress(batch_id))
                await asyncio.sleep(_LOOK)

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()  # a broken display says so

    def doing(self, words: str) -> None:
        """Say what is done now, or waited for. The rate counts from then on."""
        self._doing, self._began = words, None
        if self._live is None:
            self._screen.say(words)

    def show(self, progress: Progress) -> None:
        """Take news."""
        sent, before = _sent(progress), 0 if self._progress is None else _sent(self._progress)
        self._progress = progress
        if self._began is None:
            self._began = self._clock(), sent
        elif sent > before:
            since, at_first = self._began
            self._rate = (sent - at_first) / max(self._clock() - since, 1e-9)
        quarter = max(1, -(-self._total // _LINES_PIPED))
        if self._live is None and sent > before and (sent // quarter > before // quarter or sent == self._total):
            self._screen.say(f"sent {sent:,} of {self._total:,}: {', '.join(self._words(progress))}")

    def settled(self, progress: Progress) -> None:
        """Take the last news."""
        self.show(progress)
        if self._live is None:
            self._screen.say(f"settled {_final(progress):,} of {self._total:,}")

    def _words(self, progress: Progress) -> list[str]:
        words = words_of(progress, self._currency)
        return [*words, f"{self._rate:,.0f}/s"] if self._rate else words

    def _draw(self) -> Table:
        whole = Table.grid()
        whole.width = max(1, self._screen.out.width - _MARGIN)
        progress = self._progress
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True, width=9)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True, justify="right", width=13)
        done = {
            "sent": 0 if progress is None else _sent(progress),
            "settled": 0 if progress is None else _final(progress),
        }
        for name, count in done.items():
            bar = ProgressBar(total=max(self._total, 1), completed=count)
            grid.add_row(name, bar, Text(f"{count:,}/{self._total:,}", style="bold"))
        whole.add_row(grid)
        if progress is not None:
            whole.add_row(line_of(self._words(progress)))
        if self._doing:
            whole.add_row(Text(self._doing, "dim", no_wrap=True, overflow="ellipsis"))
        return whole


def _sent(progress: Progress) -> int:
    return progress.total - progress.counts[State.PLANNED] - progress.counts[State.SENDING]


def _final(progress: Progress) -> int:
    return sum(progress.counts[state] for state in FINAL)

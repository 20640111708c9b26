"""The live view of a batch on its way: bars on a terminal, a line now and then in a pipe, nothing with --json."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import attrs
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from payments_async._cli._screen import Screen, money
from payments_async._cli._tally import FINAL, Outcome, Tally

__all__ = ["STYLES", "Board"]

STYLES = {
    Outcome.SUCCESSFUL: "green",
    Outcome.FAILED: "red",
    Outcome.REVERSED: "yellow",
    Outcome.ACCEPTED: "cyan",
    Outcome.REJECTED: "red",
    Outcome.UNKNOWN: "magenta",
    Outcome.NOT_SENT: "yellow",
}
_WORD_STYLES = (STYLES[Outcome.ACCEPTED], STYLES[Outcome.REJECTED], STYLES[Outcome.UNKNOWN], "bold", "dim")
_LINES_PIPED = 4  # progress lines for the sending


@attrs.define
class _Step:
    name: str
    done: int = 0
    total: int = 0


class Board:
    """Shows how far a batch is. Use it with ``with``.

    Args:
        tally: Read whenever the view is drawn.
        currency: Of the sums.
        clock: Monotonic seconds.
    """

    def __init__(
        self, screen: Screen, tally: Tally, currency: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen = screen
        self._tally = tally
        self._currency = currency
        self._clock = clock
        self._began = clock()
        self._rate = 0.0
        self._steps = [_Step("sent", 0, len(tally)), _Step("found"), _Step("settled")]
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._screen.is_live:
            self._live = Live(get_renderable=self._draw, console=self._screen.out, refresh_per_second=12)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def rate(self) -> float:
        """Answers a second while the orders were sent."""
        return self._rate

    def sent(self, answers: int) -> None:
        """So many orders have been answered, one way or another."""
        step = self._steps[0]
        self._rate = answers / max(self._clock() - self._began, 1e-9)
        quarter = max(1, -(-step.total // _LINES_PIPED))
        if answers > step.done and (answers // quarter > step.done // quarter or answers == step.total):
            self._print(f"sent {answers:,} of {step.total:,}: {', '.join(self._words())}")
        step.done = answers

    def looked_up(self, found: int, doubtful: int) -> None:
        """The transaction list shows so many of the orders without a usable answer."""
        if doubtful and (self._steps[1].done, self._steps[1].total) != (found, doubtful):
            self._print(f"looked up {doubtful:,} orders without a usable answer: {found:,} found")
        self._steps[1].done, self._steps[1].total = found, doubtful

    def settled(self) -> None:
        """The tally has heard news."""
        step, done = self._steps[2], self._tally.count(*FINAL)
        step.total = done + self._tally.count(Outcome.ACCEPTED)
        if self._live is None and done != step.done and done == step.total:
            self._print(f"settled {done:,} of {step.total:,}")
        step.done = done

    def _print(self, line: str) -> None:
        if self._live is None:
            self._screen.say(line)

    def _words(self) -> list[str]:
        # an order that was notified already has been accepted as well
        accepted = self._tally.count(Outcome.ACCEPTED, *FINAL)
        sent = self._tally.total(Outcome.ACCEPTED, *FINAL)
        return [
            f"accepted {accepted}",
            f"rejected {self._tally.count(Outcome.REJECTED)}",
            f"unknown {self._tally.count(Outcome.UNKNOWN)}",
            money(sent, self._currency),
            f"{self._rate:,.0f}/s",
        ]

    def _draw(self) -> Table:
        self.settled()
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True, width=9)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True, justify="right", width=13)
        for step in self._steps:
            bar = ProgressBar(total=max(step.total, 1), completed=step.done)
            grid.add_row(step.name, bar, Text(f"{step.done:,}/{step.total:,}" if step.total else "", style="bold"))
        whole = Table.grid(expand=True)
        whole.add_row(grid)
        whole.add_row(self._counts())
        return whole

    def _counts(self) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        for words, style in zip(self._words(), _WORD_STYLES, strict=True):
            text.append(words, style).append("   ")
        return text

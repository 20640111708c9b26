"""The live view of a run: a bar on a terminal, a line now and then in a pipe, nothing with --json. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from payments_async._cli._screen import Screen, clean, counted, money
from payments_async.bulk import FirstLook, RunProgress
from payments_async.journal import Progress, State

__all__ = ["STYLES", "RunBoard", "line_of", "looking", "remaining", "waiting", "words_of"]

STYLES = {
    State.SUCCESSFUL: "green",
    State.ACCEPTED: "cyan",
    State.SENDING: "cyan",
    State.PLANNED: "dim",
    State.REJECTED: "red",
    State.FAILED: "red",
    State.REVERSED: "yellow",
    State.UNKNOWN: "magenta",
    State.PARKED: "magenta",
}
_TAKEN = (State.ACCEPTED, State.SUCCESSFUL, State.FAILED, State.REVERSED)  # what is final now was accepted once
_WORD_STYLES = ("cyan", "red", "magenta", "bold", "dim", "dim")
_LINES_PIPED = 10
_WAIT_PIPED = 10  # seconds between two lines about a wait


class RunBoard:
    """Shows how far a run is. Use it with ``with``; call it with every progress.

    Args:
        total: Orders of the batch.
        currency: Of the sums.
    """

    def __init__(self, screen: Screen, total: int, currency: str | None) -> None:
        self._screen = screen
        self._total = total
        self._currency = currency
        self._progress: RunProgress | None = None
        self._told = -1
        self._waited = -1  # how often it was told for what it waits
        self._looked: FirstLook | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._screen.is_live:
            self._live = Live(get_renderable=self._draw, console=self._screen.out, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: RunProgress) -> None:
        """Take news."""
        self._progress = progress
        if progress.looked is not None and self._looked is not progress.looked and not progress.sent:
            self._looked = progress.looked
            if self._live is None and progress.looked.problem is not None:
                self._screen.say(escape(clean(looking(progress.looked))))
                return
        if progress.waits_for is not None:
            self._tell_wait(progress)
            return
        self._waited = -1
        step = _done(progress) * _LINES_PIPED // max(progress.total, 1)
        if self._live is None and step > self._told:
            self._told = step
            self._screen.say(f"{_done(progress):,} of {progress.total:,} done: {', '.join(self._words(progress))}")

    def _tell_wait(self, progress: RunProgress) -> None:
        """In a pipe, a line when the waiting begins and every ten seconds of it."""
        turn = int(progress.lease_left) // _WAIT_PIPED
        if self._live is None and turn != self._waited:
            self._waited = turn
            self._screen.say(escape(clean(waiting(progress))))

    def _draw(self) -> Table:
        progress = self._progress
        whole = Table.grid(expand=True)
        if progress is None:
            whole.add_row(Text(f"writing {self._total:,} orders down", style="dim"))
            return whole
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        bar = ProgressBar(total=max(progress.total, 1), completed=_done(progress))
        grid.add_row(bar, Text(f"{_done(progress):,}/{progress.total:,}", style="bold"))
        whole.add_row(grid)
        whole.add_row(line_of(self._words(progress)))
        if progress.looked is not None and not progress.sent:
            whole.add_row(Text(clean(looking(progress.looked)), style="dim"))
        if progress.waits_for is not None:
            whole.add_row(Text(clean(waiting(progress)), style="yellow"))
        return whole

    def _words(self, progress: RunProgress) -> list[str]:
        words = words_of(progress, self._currency)
        if progress.sent and progress.seconds > 0:
            words.append(f"{progress.sent / progress.seconds:,.0f}/s")
            if left := remaining(progress):
                words.append(f"{left} left")
        return words


def line_of(words: Sequence[str]) -> Text:
    """These words in their colours, cut where the terminal ends."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for word, style in zip(words, _WORD_STYLES, strict=False):
        line.append(word, style).append("   ")
    return line


def words_of(progress: Progress, currency: str | None) -> list[str]:
    """How a batch stands, in four words."""
    counts = progress.counts
    total = sum((progress.sums[state] for state in _TAKEN), start=progress.sums[State.ACCEPTED] * 0)
    return [
        f"accepted {sum(counts[state] for state in _TAKEN):,}",
        f"rejected {counts[State.REJECTED]:,}",
        f"unknown {counts[State.UNKNOWN] + counts[State.PARKED]:,}",
        money(total, currency),
    ]


def looking(looked: FirstLook) -> str:
    """What was looked for before anything was sent, what it cost, and what it found."""
    cost = f"{counted(looked.requests, 'request')}, {looked.seconds:.1f} s"
    words = f"looked first: {counted(looked.rows, 'transaction')} of {counted(looked.days, 'day')}, {cost}"
    if looked.found:
        words += (
            f"; {looked.found:,} of these orders were there already and are not sent (a list may show others late: is "
            "anybody else sending this batch?)"
        )
    if looked.problem is not None:
        words += "; not to the end of the list"
    elif not looked.counted:
        words += "; the service does not say how many there are, so some may be missing"
    return words


def waiting(progress: RunProgress) -> str:
    """What a run waits for that has nothing else left to do."""
    return (
        f"waiting for the lease of {progress.waits_for}, {progress.lease_left:.0f} s left: it works on the rest of the "
        "batch; if it died, what it was sending is looked up after that, and the others are sent"
    )


def remaining(progress: RunProgress) -> str:
    """How long the rest takes at this pace, in hours, minutes and seconds; empty when nothing is left or known."""
    left = progress.counts[State.PLANNED]
    if not left or not progress.sent:
        return ""
    seconds = round(left * progress.seconds / progress.sent)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


def _done(progress: RunProgress) -> int:
    return progress.total - progress.counts[State.PLANNED] - progress.counts[State.SENDING]

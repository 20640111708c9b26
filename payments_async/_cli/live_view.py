"""The live view of a batch: bars on a terminal, a line now and then in a pipe, nothing with --json."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from payments_async import PaymentsSession
from payments_async._cli.screen import Screen, clean, counted, money, quoted
from payments_async._cli.story import worker_of
from payments_async._cli.working import beside, silence
from payments_async.journal import FINAL, UNSETTLED, Journal, JournalError, Progress, State

if TYPE_CHECKING:  # a help imports no more than it shows
    from payments_async.bulk import FirstLook, RunProgress

_WORD_STYLES = ("cyan", "red", "magenta", "bold", "dim", "dim")
_WAIT_PIPED = 10  # seconds between two lines about a wait
_UNTOLD = 6  # such waits in which a pipe heard nothing: then it hears how far it is
_MARGIN = 3  # columns on the right, where a terminal writes its ^C: in the next line it would break the view
_LOOK = 0.1  # seconds between two looks into the journal


class Display(ABC):
    """A part of a terminal that is drawn anew for as long as the block runs. Into a pipe nothing is drawn.

    Args:
        rate: Times a second.
    """

    def __init__(self, screen: Screen, *, rate: float = 4) -> None:
        self._screen = screen
        self._refreshes = rate
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._screen.is_live:
            out = self._screen.out
            self._live = Live(get_renderable=self._draw, console=out, refresh_per_second=self._refreshes)
            self._live.start()
            out.show_cursor(True)  # it was hidden, and a kill -9 would leave the terminal without one
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @abstractmethod
    def _draw(self) -> Table:
        """What is shown now."""


class LiveView(Display):
    """Shows how far a batch is. Use it with ``with``; call it with every progress of its run.

    Args:
        total: Orders of the batch.
        currency: Of the sums.
        settles: It is followed until its orders have ended: a second bar, and fewer lines in a pipe.
        payments: Whose silence is told.
    """

    def __init__(
        self,
        screen: Screen,
        total: int,
        currency: str | None,
        *,
        settles: bool = False,
        payments: PaymentsSession | None = None,
    ) -> None:
        super().__init__(screen, rate=12 if settles else 4)
        self._payments = payments
        self._total = total
        self._currency = currency
        self._settles = settles
        self._progress: Progress | None = None
        self._run: RunProgress | None = None  # the latest news of the run itself
        self._doing = ""
        self._told = 0 if settles else -1
        self._waited = -1  # how often it was told for what it waits
        self._looked: FirstLook | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._doing = ""
        super().__exit__(kind, error, traceback)

    def __call__(self, progress: "RunProgress") -> None:
        """Take news of the run."""
        self._run = self._progress = progress
        looked = progress.looked
        if looked is not None and looked is not self._looked and not progress.sent:
            self._looked = looked
            if self._live is None and looked.problem is not None:
                self._screen.say(quoted(looking(looked)))
                return
        if progress.waits_for is None:
            self._waited = -1
            self.show(progress)
            return
        turn = int(progress.lease_left) // _WAIT_PIPED
        if self._live is None and turn != self._waited:  # when the waiting begins, and every ten seconds of it
            self._waited = turn
            self._screen.say(quoted(_waiting(progress)))

    def show(self, progress: Progress) -> None:
        """Take news of the orders."""
        self._progress = progress
        step = _sent(progress) * (4 if self._settles else 10) // max(self._total, 1)
        if self._live is None and step > self._told:
            self._told = step
            self._screen.say(self._how_far(progress))

    def _how_far(self, progress: Progress) -> str:
        done = f"{_sent(progress):,} of {self._total:,}"
        return f"{f'sent {done}' if self._settles else f'{done} done'}: {', '.join(self._words(progress))}"

    def settled(self, progress: Progress) -> None:
        """Take the last news."""
        self.show(progress)
        if self._live is None:
            self._screen.say(f"settled {_final(progress):,} of {self._total:,}")

    def doing(self, words: str) -> None:
        """Say what is done now, or waited for."""
        self._doing = words
        if self._live is None:
            self._screen.say(words)

    @asynccontextmanager
    async def attending(self, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> AsyncIterator[None]:
        """Say now and then in a pipe how far it is, or that the service does not answer; a terminal shows both."""

        async def attend() -> None:
            told = unchanged = 0
            while True:
                await sleep(_WAIT_PIPED)
                unchanged = 0 if told != self._told else unchanged + 1
                told = self._told
                if words := silence(self._payments):
                    self._screen.note(words)
                elif self._progress is not None and unchanged >= _UNTOLD and self._waited < 0:
                    unchanged = 0
                    self._screen.note(self._how_far(self._progress))

        if self._live is not None:
            yield
            return
        async with beside(attend()):
            yield

    @asynccontextmanager
    async def watching(self, journal: Journal, batch_id: str) -> AsyncIterator[None]:
        """Show what the journal says of a batch, for as long as the block runs."""

        async def watch() -> None:
            while True:
                with suppress(JournalError):  # not loaded yet; and whoever needs the journal complains of it
                    self.show(await journal.progress(batch_id))
                await asyncio.sleep(_LOOK)

        async with beside(watch()):
            yield

    def _draw(self) -> Table:
        whole = Table.grid()
        whole.width = max(1, self._screen.out.width - _MARGIN)
        progress, run = self._progress, self._run
        if progress is None:
            whole.add_row(Text(f"writing {self._total:,} orders down", style="dim"))
        else:
            grid = Table.grid(padding=(0, 1), expand=True)
            if self._settles:
                grid.add_column(no_wrap=True)
            grid.add_column(ratio=1)
            grid.add_column(no_wrap=True, justify="right")
            bars = {"sent": _sent(progress)} | ({"settled": _final(progress)} if self._settles else {})
            for name, count in bars.items():
                bar = ProgressBar(total=max(self._total, 1), completed=count)
                named = [name] if self._settles else []
                grid.add_row(*named, bar, Text(f"{count:,}/{self._total:,}", style="bold"))
            whole.add_row(grid)
            whole.add_row(line_of(zip(self._words(progress), _WORD_STYLES, strict=False)))
        if run is not None and run.looked is not None and not run.sent:
            whole.add_row(Text(clean(looking(run.looked)), style="dim"))
        if run is not None and run.waits_for is not None:
            whole.add_row(Text(clean(_waiting(run)), style="yellow"))
        if words := silence(self._payments):
            whole.add_row(Text(words, style="yellow"))
        if self._doing:
            whole.add_row(Text(self._doing, "dim", no_wrap=True, overflow="ellipsis"))
        return whole

    def _words(self, progress: Progress) -> list[str]:
        """How the batch stands, and how fast it goes."""
        counts = progress.counts
        taken = [state for state in State if state.meaning.is_confirmed]  # what is final now was accepted once
        total = sum((progress.sums[state] for state in taken), start=progress.sums[State.ACCEPTED] * 0)
        words = [
            f"accepted {sum(counts[state] for state in taken):,}",
            f"rejected {counts[State.REJECTED]:,}",
            f"unknown {sum(counts[state] for state in UNSETTLED):,}",
            money(total, self._currency),
        ]
        if self._run is not None and self._run.sent and self._run.seconds > 0:
            words.append(f"{self._run.sent / self._run.seconds:,.0f}/s")
            if left := _remaining(progress, self._run):
                words.append(f"{left} left")
        return words


def _sent(progress: Progress) -> int:
    return progress.total - progress.counts[State.PLANNED] - progress.counts[State.SENDING]


def _final(progress: Progress) -> int:
    return sum(progress.counts[state] for state in FINAL)


def line_of(words: Iterable[tuple[str, str]]) -> Text:
    """These words, each in its colour, cut where the terminal ends."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for word, style in words:
        line.append(word, style).append("   ")
    return line


def looking(looked: "FirstLook") -> str:
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


def _waiting(progress: "RunProgress") -> str:
    """What a run waits for that has nothing else left to do."""
    return (
        f"waiting for the lease of {worker_of(progress.waits_for or '')}, {progress.lease_left:.0f} s left: "
        "it works on the rest of the batch; if it died, what it was sending is looked up after that, and the others "
        "are sent"
    )


def _remaining(progress: Progress, run: "RunProgress") -> str:
    """How long the rest takes at this pace, in hours, minutes and seconds; empty when nothing is left."""
    left = progress.counts[State.PLANNED]
    if not left:
        return ""
    seconds = round(left * run.seconds / run.sent)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"

"""Who reads the service's list: the package's own ``reconcile``, stopped before every step and begun again from a log.

A coroutine cannot be copied. So it is run anew at each of its steps: what it was told before is told again, from the
log, until it asks for something new; that is done, and everything after it up to the next step. Then it is thrown away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import UTC, date
from types import SimpleNamespace
from typing import Any, NamedTuple

from explorer.journals import MemoryJournal

from payments_async._wire.models import Transaction
from payments_async.outbox import _reconcile
from payments_async.outbox._absences import Absence, Absences
from payments_async.outbox._reconcile import Reconciler
from payments_async.outbox._scans import DateRange, ListScanner

_DAY = date(1970, 1, 12)  # on which the service says that orders were sent: its days begin three hours later
STEPS = {"page", "sleep", "park"}
FINE_STEPS = STEPS | {"apply_evidence", "end_list_scan"}
_WRITES = {"begin_list_scan", "note_observed", "apply_evidence", "end_list_scan", "park"}
_READS = {
    "run",
    "runs",
    "list_scans",
    "sent_since",
    "entries_of",
    "archived_of",
    "orders_of",
    "final_events_of",
    "entry",
    "listing_words",
}
_STREAMS = {"entries", "conflicts"}


class Stopped(BaseException):
    """The next step is another one's."""


class Lister(NamedTuple):
    """A run of ``reconcile`` between two of its steps.

    Attributes:
        log: What it was told, in turn.
        step: What it does next; ``None`` where it is over.
        sought: How the orders that it looks for stand, as it knows.
        absences: Which lists have missed them.
        list_scans: How often it has read these days.
        began: When it began to read them, the last time.
        asked: What it has asked the journal since it was shown a page, or slept; a number of calls.
        shown: The transactions of the last page.
        waits_until: Unix seconds.
        is_doubted: As it knows, the journal may have forgotten something.
    """

    log: tuple[Any, ...] = ()
    step: str | None = "begin"
    sought: tuple[tuple[Any, ...], ...] = ()
    absences: tuple[tuple[str, Absence], ...] = ()
    list_scans: int = 0
    began: float = 0.0
    asked: int = 0
    shown: tuple[str, ...] = ()
    waits_until: float = 0.0
    is_doubted: bool = False


class _Page:
    """A list that the service shows: all of it, or a refusal."""

    problem: str | None = None
    failure = None
    refused = False
    rows = 0

    def __init__(self, told: _Told, *, shows: bool) -> None:
        self._told = told
        self._shows = shows

    @property
    def counted(self) -> bool:
        return self.problem is None

    async def pages(self) -> AsyncIterator[list[Transaction]]:
        shown: list[Transaction] | None = await self._told.ask("page", self._told.page)
        if shown is None:
            self.problem = "it could not be read"
            return
        shown = shown if self._shows else []
        self.rows = len(shown)
        yield shown


class _Reader:
    """In place of the reader of the wire."""

    requests = 0
    tell: Any = None

    def __init__(self, told: _Told) -> None:
        self._told = told
        self.sleep = told.sleep

    def read(self, since: date | None, until: date | None, *, probes: bool) -> _Page:
        self.requests += 1
        return _Page(self._told, shows=since is None or since <= _DAY)

    async def edges(self) -> list[Transaction]:
        return []


class _Told:
    """Answers from the log, then once from the world, then stops."""

    def __init__(self, lister: Lister, journal: MemoryJournal, page: Callable[[], Any], steps: Collection[str]) -> None:
        self.log = list(lister.log)
        self._place = 0
        self._may_go = lister.step != "begin"
        self._journal = journal
        self._page = page
        self._steps = steps
        self.stopped_at: str | None = None
        self.until = 0.0
        self.asked = 0
        self.shown: tuple[str, ...] = ()

    async def page(self) -> Any:
        return self._page()

    async def sleep(self, seconds: float) -> None:
        began = self.clock()
        self.until = began + seconds

        async def over() -> None:
            return

        await self.ask("sleep", over)

    def clock(self) -> float:
        """A moment, the same when it is asked again."""
        if self._place < len(self.log):
            now: float = self.log[self._place]
        else:
            now = self._journal.moment.now
            self.log.append(now)
        self._place += 1
        return now

    async def ask(self, name: str, do: Callable[[], Any]) -> Any:
        if self._place < len(self.log):
            result = self.log[self._place]
        else:
            if self.stopped_at is not None:
                raise Stopped
            if name in self._steps:
                if not self._may_go:
                    self.stopped_at = name
                    raise Stopped
                self._may_go = False
            result = await do()
            self.log.append(result)
        self._place += 1
        self.asked = 0 if name in ("page", "sleep") else self.asked + 1
        if name == "page" and result is not None:
            self.shown = tuple(row.transaction_id for row in result)
        if isinstance(result, Exception):
            raise result
        return result

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._journal, name)
        if name in _STREAMS:

            def stream(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
                async def all_of_it() -> Any:
                    return [one async for one in method(*arguments, **options)]

                async def told() -> AsyncIterator[Any]:
                    for one in await self.ask(name, all_of_it):
                        yield one

                return told()

            return stream
        if name not in _READS | _WRITES:
            raise AttributeError(name)

        async def asked(*arguments: Any, **options: Any) -> Any:
            async def do() -> Any:
                try:
                    return await method(*arguments, **options)
                except Exception as error:  # noqa: BLE001 - it is told again
                    return error

            return await self.ask(name, do)

        return asked


class _Reconciler(Reconciler):
    """Keeps the days that are read, to be looked at."""

    async def scan_window(self, window: DateRange) -> Any:
        self.window = window
        self.began = self.absences.clock()  # a moment before the one that it will be told
        return await super().scan_window(window)


async def _no_records(*_: object, **__: object) -> AsyncIterator[Any]:
    for none in ():
        yield none


_PAYMENTS = SimpleNamespace(
    dialect=SimpleNamespace(timezone=UTC),
    clock_difference=0.0,
    map=_no_records,
    _executor=SimpleNamespace(observer=None, note_evidence=lambda *_: None),  # a session that has sent nothing
)
_LOOP: list[asyncio.AbstractEventLoop] = []


def step(
    lister: Lister,
    journal: MemoryJournal,
    page: Callable[[], Sequence[Transaction] | None],
    *,
    steps: Collection[str] = STEPS,
) -> Lister:
    """Do the next step of a run, and all up to the step after it.

    Args:
        page: What the service shows; ``None`` where it refuses.
        steps: Which calls are a step of their own; the others are done with the one before.
    """
    if not _LOOP:
        _LOOP.append(asyncio.new_event_loop())
    told = _Told(lister, journal, page, steps)
    search = _Reconciler(
        ListScanner(_PAYMENTS, told, _Reader(told), remembers=True),  # type: ignore[arg-type]
        Absences(payments=_PAYMENTS, clock=told.clock, ticks=told.clock),  # type: ignore[arg-type]
        by_status=False,
    )

    async def run() -> bool:
        try:
            await _reconcile.reconcile_all(search, None, stuck_after=86_400.0, reversals=False)
        except Stopped:
            return False
        return True

    is_over = _LOOP[0].run_until_complete(run())
    window: DateRange | None = getattr(search, "window", None)
    if is_over:
        return Lister(tuple(told.log), None)
    return Lister(
        tuple(told.log),
        told.stopped_at,
        () if window is None else tuple((one.request_id, *one.pack()) for one in window.sought.each()),
        tuple(search.absences.of.items()),
        0 if window is None else window.list_scans,
        getattr(search, "began", 0.0),
        told.asked,
        told.shown,
        told.until,
        search.is_doubted,
    )

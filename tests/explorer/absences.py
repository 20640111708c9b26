"""All sequences of a few lists that miss an order, show it, or show nothing, and when they park it.

Beside what the package counts, each list is kept with when it was read; which of them count is said here once more, in
the words of the promise: complete lists that began after the period of grace, an interval apart, in a row.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import attrs
from explorer.desks import NOON, Report
from journal.factories import order

from payments_async._wire.dialect import Dialect
from payments_async.journal import State
from payments_async.journal._records import INTERVAL, OpenOrder
from payments_async.outbox._absences import Absences
from payments_async.outbox._scans import DateRange, ReconcileTarget, day_of, put_back, reconcile_targets
from payments_async.outbox._settling import DueQueue

ONE = attrs.evolve(order(1), currency="UGX")
GRACE, WITHIN = 100.0, 400.0  # seconds: of grace; within which the service lists an order, by a person's word
MISSES, SHOWS, NOTHING = "a list misses it", "a list shows it", "a list shows none of ours"
AGAIN = "it was surely not sent, and is sent again without an answer"
WAITS = {"half a minute passes": 30.0, "a minute passes": INTERVAL + 1, "much time passes": WITHIN}
STEPS = (MISSES, SHOWS, NOTHING, AGAIN, *WAITS)
_LONGEST, _LASTS = 5, 2.0  # steps; seconds that a list is read for


@attrs.frozen
class Case:
    """What holds in a sequence: a word, the service's clock, whether a row may be the order's own, the interval."""

    has_word: bool = False
    ahead: float = 0.0
    may_show: bool = False
    interval: float = INTERVAL

    @property
    def apart(self) -> float:
        """Seconds between two lists that count."""
        return max(self.interval, INTERVAL) if self.has_word else self.interval


CASES = (
    Case(), Case(interval=0.0), Case(ahead=200.0), Case(has_word=True, ahead=-300.0),
    Case(has_word=True, may_show=True), Case(has_word=True, interval=0.0),
)  # fmt: skip


class _World:
    """An order without an answer, and lists."""

    def __init__(self, case: Case) -> None:
        self.case, self.now = case, NOON
        self.lists: list[tuple[float, float, str]] = []
        self.parked: list[float | None] = []
        self.order = ReconcileTarget(
            request_id=ONE.request_id, first=State.UNKNOWN, state=State.UNKNOWN, amount=ONE.amount,
            currency=ONE.currency, transaction_id=None, at=NOON,
        )  # fmt: skip
        self.window = DateRange.to_now(NOON, NOON, Dialect().timezone, reconcile_targets([self.order]))
        payments: Any = SimpleNamespace(clock_difference=case.ahead, dialect=Dialect())
        self.absences = Absences(
            payments=payments, grace=GRACE, interval=case.interval, clock=lambda: self.now, ticks=lambda: self.now
        )
        self.queue, self.sent_at = DueQueue(self.absences), NOON
        self._note()
        self.scanner: Any = SimpleNamespace(
            journal=self, findings=self, may_show=lambda _: case.may_show, notes_unclaimed=False
        )

    def _note(self) -> None:
        """Whoever looks orders up hears of it."""
        heard = OpenOrder(ONE.request_id, State.UNKNOWN, self.sent_at, NOON)
        self.queue.note([heard], lambda _: self.now)

    def send_again(self) -> None:
        """Its last attempt was never made, and another has no answer."""
        self.sent_at = self.now
        (found,) = self.window.sought.each()
        put_back(self.window.sought, [attrs.evolve(found, at=self.now)])
        self._note()

    async def listing_words(self) -> Sequence[Any]:
        """A person's word, or none."""
        word = SimpleNamespace(over=None, deadline=SimpleNamespace(currency="UGX", waits=WITHIN))
        return [word] if self.case.has_word else []

    async def park(self, _order: ReconcileTarget, _detail: str, since: float | None = None) -> None:
        """The order is parked, or sent again where lists count since a moment."""
        self.parked.append(since)

    async def read(self, kind: str) -> None:
        """Read a list to its end."""
        began, window = self.now, self.window
        await self.absences.heed_words(self.scanner)
        window.list_scans += 1
        today = day_of(NOON, Dialect().timezone)
        window.days = set() if kind == NOTHING else {today - timedelta(days=1)}
        if kind == SHOWS:
            (found,) = window.sought.each()
            found.listed = window.list_scans
            put_back(window.sought, [found])
        self.now += _LASTS
        self.lists.append((began, self.now, kind))
        self.absences.count(window, began, began)
        await self.absences.park(window, self.scanner, began)

    def wrong(self) -> Iterator[str]:
        """Why the order was not to be parked; or not to be sent again."""
        case = self.case
        last = max((place for place, one in enumerate(self.lists) if one[2] == SHOWS), default=-1)
        count = [
            (began, ended) for began, ended, kind in self.lists[last + 1 :]
            if kind == MISSES and began + max(0.0, case.ahead) >= self.sent_at + GRACE
            and (not case.has_word or began + case.ahead >= self.sent_at + WITHIN)
        ]  # fmt: skip
        if not any(second[0] - first[1] >= case.apart for first, second in itertools.combinations(count, 2)):
            yield f"it is parked by {len(count)} lists that count"
        since = self.parked[-1]
        if since is not None and case.may_show:
            yield "it is sent again, and a row may be its own"
        if since is not None and case.has_word and since not in [began + case.ahead for began, _ in count]:
            yield "it is sent again by lists since a moment at which none was begun by the service's clock"


async def _run(case: Case, steps: Sequence[str]) -> str:
    world = _World(case)
    for step in steps:
        if step in WAITS:
            world.now += WAITS[step]
        elif step == AGAIN:
            world.send_again()
        else:
            await world.read(step)
        if world.parked:
            return next(world.wrong(), "")
    return ""


async def _search() -> Report:
    began, count = time.perf_counter(), 0
    for case in CASES:
        for steps in itertools.product(STEPS, repeat=_LONGEST):
            # to wait twice, or at the end, changes nothing
            if (
                steps[-1] != MISSES
                or steps.count(AGAIN) > 1
                or any(one in WAITS and two in WAITS for one, two in itertools.pairwise(steps))
            ):
                continue
            count += 1
            if wrong := await _run(case, steps):
                seconds = time.perf_counter() - began
                return Report(name=f"lists, {case}", states=count, seconds=seconds, wrong=wrong, history=steps)
    return Report(name="lists", states=count, seconds=time.perf_counter() - began)


def search() -> Report:
    """See all sequences; the first by which an order is parked too early."""
    return asyncio.run(_search())

"""How an outbox does: one list of problems, which any process reads in the journal."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Self

from payments_async._values.frozen import frozen
from payments_async._values.health import HealthProblem
from payments_async.journal import Journal
from payments_async.journal._faults import RunUnknown
from payments_async.journal._inbox import Backlog
from payments_async.journal._records import ListingWord, Progress, SharedRate
from payments_async.journal._states import State
from payments_async.outbox._settling import SettlingProgress


class _Kind(NamedTuple):
    """One kind of problem: what to do, and whether it stops the sending, or needs a person."""

    what_to_do: str
    stops: bool = False
    needs_person: bool = False


KINDS: Mapping[str, _Kind] = {
    "paused": _Kind("find out why, then resume it: outbox resume", stops=True, needs_person=True),
    "hindered": _Kind("wait, or run doctor: it goes on by itself once this has ended", stops=True),
    "awaits_lists": _Kind("wait, or run bulk reconcile --watch; then lift the quarantine"),
    "chunks_in_quarantine": _Kind("bulk reconcile, then bulk lift-quarantine", needs_person=True),
    "batches_not_loaded": _Kind("put the file again, as it was: outbox put", needs_person=True),
    "parked": _Kind("ask the service; if it surely never had one: bulk send-again", needs_person=True),
    "conflicts": _Kind("ask the service; once you know what is true: bulk acknowledge", needs_person=True),
    "orders_untaken": _Kind("correct the cause and restart the worker, or outbox drop", needs_person=True),
    "failed_handlers": _Kind("mend the handlers, then outbox replay", needs_person=True),
    "failing_handlers": _Kind("mend the handler that is named; it is tried again"),
    "orphaned_changes": _Kind("start the application that has the handler, or outbox forget"),
    "unknown_transactions": _Kind("find out which other program pays from this account"),
    "unmatched_notifications": _Kind("explain REQUEST_ID tells what is known: ipn list --unknown"),
    "slowed": _Kind("do what the message says"),
}


@frozen(kw_only=True)
class OutboxHealth:
    """How an outbox does.

    Attributes:
        name: Of the outbox.
        problems: What keeps it from sending, or waits for a person; the most urgent first.
        progress: Its orders by state, of every process.
        handlers: Changes that wait for a handler, and dead letters.
        staged: Orders of the application's own transactions that no worker has taken yet.
        pace: The rate of all processes of the journal, and until when the service asked for a pause.
        deadlines: Persons' words that the service lists in time.
        is_open: Whether this process works on it.
        settling: How far open orders are looked up; ``None`` if this process never opened it.
    """

    name: str
    problems: tuple[HealthProblem, ...]
    progress: Progress
    handlers: Backlog
    staged: int
    pace: SharedRate
    deadlines: Sequence[ListingWord]
    is_open: bool = False
    settling: SettlingProgress | None = None

    @classmethod
    async def of(cls, journal: Journal, name: str, *, now: Callable[[], float] = time.time) -> Self:
        """How an outbox does by its journal, whichever process works it.

        Args:
            now: Unix seconds.

        Raises:
            JournalUnavailable: The journal cannot be read.
        """
        handlers, progress = await journal.change_backlog(name), await journal.progress(outbox=name)
        staged, untaken = await journal.count_laid(name)
        found = [one async for one in _held_up(journal, name)]
        found += [one async for one in _counted(journal, name, progress, handlers, untaken)]
        found += [one async for one in _handling(journal, name, handlers, now)]
        return cls(
            name=name,
            problems=in_order(found),
            progress=progress,
            handlers=handlers,
            staged=staged - untaken,
            pace=await journal.pace(),
            deadlines=await journal.listing_words(),
        )

    @property
    def is_well(self) -> bool:
        """Whether this process sends. A paused outbox takes orders all the same: do not take it out of a balancer."""
        return self.is_open and not any(one.stops for one in self.problems)

    @property
    def needs(self) -> Mapping[str, int]:
        """What stays until a person acts: how much of each kind, zeros included."""
        return {code: count for code, count in self.counts.items() if KINDS[code].needs_person}

    @property
    def counts(self) -> Mapping[str, int]:
        """How much there is of each kind of problem, zeros included."""
        return {code: sum(one.count for one in self.problems if one.code == code) for code in KINDS}

    def problem(self, code: str) -> HealthProblem | None:
        """The problem of one kind, if there is one."""
        return next((one for one in self.problems if one.code == code), None)


def in_order(problems: Iterable[HealthProblem]) -> tuple[HealthProblem, ...]:
    """The most urgent first."""
    order = list(KINDS)
    return tuple(sorted(problems, key=lambda one: order.index(one.code)))


def problem(
    code: str, what: str, count: int = 1, *, since: float | None = None, subjects: tuple[str, ...] = ()
) -> HealthProblem:
    """A problem of one kind."""
    kind = KINDS[code]
    return HealthProblem(
        code=code,
        count=count,
        what=what,
        what_to_do=kind.what_to_do,
        since=since,
        stops=kind.stops,
        needs_person=kind.needs_person,
        subjects=subjects,
    )


async def _held_up(journal: Journal, name: str) -> AsyncIterator[HealthProblem]:
    """What keeps orders from being sent."""
    if (paused := await journal.paused(name)) is not None:
        yield problem(
            "paused",
            f"by {paused.who} since {_moment(paused.at)}: {paused.why}",
            since=paused.at,
            subjects=(paused.who,),
        )
    try:
        awaits = (await journal.run(name)).awaits
    except RunUnknown:
        awaits = None  # no process has opened it yet
    if awaits is not None:
        found_on = f"the journal was restored or copied, found on {_moment(awaits.at)}, and may have forgotten orders"
        yield problem("awaits_lists", f"{found_on}; {awaits.words()}", since=awaits.at)
    held_up = await journal.held_up(name)
    if held_up.quarantined:
        yield problem("chunks_in_quarantine", counted(held_up.quarantined, "chunk"), held_up.quarantined)
    if held_up.unloaded:
        names = ", ".join(held_up.unloaded)
        yield problem("batches_not_loaded", names, len(held_up.unloaded), subjects=held_up.unloaded)
    if held_up.slowed:
        yield problem("slowed", held_up.slowed)


async def _counted(
    journal: Journal, name: str, progress: Progress, handlers: Backlog, untaken: int
) -> AsyncIterator[HealthProblem]:
    """What there is a number of."""
    figures = {
        "parked": (progress.counts[State.PARKED], "order", "in no complete list of the service"),
        "conflicts": (progress.conflicts, "order", "with evidence against evidence"),
        "orders_untaken": (untaken, "order", "of your transactions could not be taken"),
        "failed_handlers": (handlers.dead, "change", "whose handlers failed too often"),
        "unknown_transactions": (await journal.unknown_transactions(name), "order", "in the service's list, not here"),
        "unmatched_notifications": (await journal.unmatched_events(), "notification", "of orders that are not here"),
    }
    for code, (count, noun, words) in figures.items():
        if count:
            yield problem(code, f"{counted(count, noun)} {words}", count)


async def _handling(
    journal: Journal, name: str, handlers: Backlog, now: Callable[[], float]
) -> AsyncIterator[HealthProblem]:
    """What is wrong with handlers."""
    if handlers.trouble is not None:
        yield problem("failing_handlers", handlers.trouble, handlers.failing, since=handlers.failing_since)
    if handlers.pending:
        orphans = [one for one in await journal.subscriptions(name) if one.is_orphaned(now())]
        for one in orphans:
            what = f"{counted(one.pending, 'change')} to {one.state} without a process that handles them"
            yield problem("orphaned_changes", what, one.pending, since=one.at, subjects=(one.state,))


def counted(count: int, noun: str) -> str:
    """A number and what it counts."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"

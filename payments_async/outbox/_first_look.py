"""Looking first: before the first order of a batch is sent, what the service shows of it already is read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Literal, get_args

import attrs

from payments_async._resources.lists import Reader, Reading
from payments_async._session import PaymentsSession, executor_of
from payments_async.journal import Journal
from payments_async.journal._records import Run
from payments_async.journal._states import State
from payments_async.outbox._sweeps import Findings, Sweeper, Window

__all__ = ["ASKED_TO_STOP", "FirstLook", "LookFirst", "check_look_first", "is_look_due", "look_first"]

ASKED_TO_STOP = "it was asked to stop"
LookFirst = Literal["always", "in_doubt", "never"]
_TELL_EVERY = 1.0  # seconds
_STEP = 1.0  # seconds of a wait after which it is looked whether the run was asked to stop


@attrs.frozen(kw_only=True)
class FirstLook:
    """What a run did before it sent anything: it read the service's list, for the journal may have forgotten.

    That an order is not in the list proves nothing: a list may show it minutes late.

    Attributes:
        since, until: The days that were asked for.
        rows, requests, seconds: Transactions that were seen, and what that took.
        found: Orders that were there already although the journal had them as planned. They are not sent.
        counted: The service said how many transactions there are, and showed as many.
        problem: Why the list was not read to its end, or ``None``.
    """

    since: date
    until: date
    rows: int = 0
    requests: int = 0
    seconds: float = 0.0
    found: int = 0
    counted: bool = False
    problem: str | None = None

    @property
    def days(self) -> int:
        """How many days the list was asked for."""
        return (self.until - self.since).days + 1


def check_look_first(value: str) -> None:
    """Refuse anything that is not one of the ways to look first."""
    if value not in get_args(LookFirst):
        raise ValueError(f"look_first: must be one of {', '.join(get_args(LookFirst))}, not {value!r}")


async def is_look_due(journal: Journal, run: Run, way: LookFirst, *, back: float) -> bool:
    """Whether a run has to look before it sends: there is something to send, and no look of before is relied on.

    One of an earlier run says nothing of what was sent since, neither by another journal, nor by this one before its
    whole machine went back to a snapshot of the midst of the batch, state folder and all. A journal that may have
    forgotten is in doubt for as long as the list of ``back`` seconds reaches to what it forgot: a look compares only
    the orders that the journal has by then.

    Args:
        back: Seconds before the batch was made from which on the list is read.
    """
    if way == "never":
        return False
    chunks = await journal.chunks(run.batch_id)
    if not chunks.open and not chunks.leased:
        return False  # what is in quarantine waits for a person
    if way == "in_doubt":
        if await journal.is_looked_for(run.batch_id):
            return False
        return not await journal.is_looked_for() or run.look_since - await _forgot_until(journal) < back
    if not await journal.is_looked_for(run.batch_id):
        return True
    return (await journal.progress(run.batch_id)).counts[State.PLANNED] > 0


async def _forgot_until(journal: Journal) -> float:
    """Unix seconds until which the journal may have forgotten: when it was made, or was last copied or restored."""
    runs = await journal.runs()
    return max(min(run.look_since for run in runs), *(run.quarantined_at or 0.0 for run in runs))


async def look_first(
    payments: PaymentsSession,
    journal: Journal,
    run: Run,
    *,
    back: float,
    patience: float,
    now: Callable[[], float],
    stop: asyncio.Event | None = None,
    tell: Callable[[FirstLook], object] | None = None,
) -> FirstLook:
    """Read the list of all days in which orders of a batch may have been sent; what it shows is not sent again.

    Args:
        back: Seconds before the batch was made, for another journal may have sent it.
        patience: Seconds for which a page that cannot be had is asked for again.
        now: Unix seconds.
        stop: Set it to break off.
        tell: Hears about once a second how far it is.

    Raises:
        AuthenticationFailed: The service refused our credentials.
    """
    clock = executor_of(payments).clock
    begun = told = clock()
    reader = Reader(payments.transactions.page, clock=clock, sleep=_until(stop, payments), patience=patience)
    window = Window.to_now(min(run.look_since, now()) - back, now(), payments.dialect.timezone)
    findings = Findings(journal)
    sweeper = Sweeper(payments, journal, findings, reader)

    def looked(reading: Reading) -> FirstLook:
        return FirstLook(
            since=window.since,
            until=window.until,
            rows=reading.rows,
            requests=reader.requests,
            seconds=clock() - begun,
            found=findings.found,
            counted=reading.counted,
            problem=reading.problem,
        )

    def told_of(reading: Reading) -> None:
        nonlocal told
        if stop is not None and stop.is_set():
            raise _Stopped
        if tell is not None and clock() - told >= _TELL_EVERY:
            told = clock()
            tell(looked(reading))

    try:
        reading, _ = await sweeper.sweep(window, [run.batch_id], tell=told_of)
    except _Stopped:
        return FirstLook(since=window.since, until=window.until, requests=reader.requests, problem=ASKED_TO_STOP)
    return looked(reading)


class _Stopped(Exception):
    """Whoever runs the batch wants it to end."""


def _until(stop: asyncio.Event | None, payments: PaymentsSession) -> Callable[[float], Awaitable[None]]:
    """Sleep in short turns, and break off when the run is to stop."""

    async def sleep(seconds: float) -> None:
        left = seconds
        while left > 0:
            if stop is not None and stop.is_set():
                raise _Stopped
            await executor_of(payments).sleep(min(left, _STEP))
            left -= _STEP

    return sleep

"""What a fleet does: chunks of batches, handed out by PGQueuer to outboxes, and what is due by the clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping

from payments_async._values.checks import check_number, check_whole
from payments_async._values.frozen import frozen
from payments_async._wire.orders import Order
from payments_async.fleet._jobs import Jobs, Later, Queued
from payments_async.journal import Journal, JournalUnavailable, PostgresJournal
from payments_async.journal._records import Loaded, Waiting
from payments_async.outbox import Outbox
from payments_async.outbox._standing import ChunkEnd

_log = logging.getLogger("payments_async")

_WINDOW = 50  # jobs of one batch at a time; each is for a chunk of 500 orders
_REFILL = "* * * * * */2"  # when further ones are enqueued, by one of all workers: every two seconds
_AT_ONCE = 0.1  # seconds until others have what was given back
_AGAIN, _AGAIN_MAX = 1.0, 15.0  # ... until it is tried again where nothing may be sent, doubled each time


async def run_worker(outbox: Outbox, *, stop: asyncio.Event, chunks: int = 2, redelivery: float = 6.0) -> None:
    """Work the chunks of batches that PGQueuer hands out, until it is to stop; then close the outbox.

    Single orders of the outbox are sent as usual, by any worker. A job names a batch, and says that one
    more chunk of it is to be worked; which one, and who may send what, the journal says. So a job that is lost, comes
    twice or is called done too early costs time at most: every two seconds one of the workers has jobs made for the
    chunks that are not done.

    Args:
        outbox: Open, on a ``PostgresJournal``, and made with ``claims_batches=False``.
        stop: Set to finish what is under way, give back the rest, and return. Cancelled, it breaks that off.
        chunks: Worked at once in this process; two keep it busy while one ends.
        redelivery: Seconds without a sign of life from a worker after which another one gets its jobs. The same in all.

    Raises:
        FleetNotReady: The tables of PGQueuer are not there and may not be made, or are of another version.
        JournalUnavailable: The database cannot be reached at the beginning.
    """
    if outbox.claims_batches:
        raise ValueError("outbox: it takes batches by itself; make it with claims_batches=False")
    check_whole("chunks", chunks, 1)
    check_number("redelivery", redelivery, unit="seconds")
    journal = _shared(outbox.journal)
    if not (await outbox.health()).is_open:
        raise RuntimeError("outbox: this one is not open; use it within 'async with Outbox(...)'")
    jobs = Jobs(journal, redelivery=redelivery)

    async def work(batch_id: str) -> None:
        match await outbox.work_chunk(batch_id):
            case ChunkEnd.WORKED | ChunkEnd.NONE_LEFT:
                return
            case ChunkEnd.GIVEN_BACK:
                raise Later(_AT_ONCE)
            case ChunkEnd.NOT_NOW:
                if await journal.paused(outbox.name) is None:  # else jobs are made again once somebody resumes it
                    raise Later(_AGAIN, most=_AGAIN_MAX)

    async def refill() -> None:
        await _refill(outbox.name, journal, jobs)

    jobs.handle(_entrypoint(outbox.name), work, at_once=chunks)
    jobs.schedule(f"refill {outbox.name}", _REFILL, refill)
    await refill()
    await jobs.run_until(stop, leave=outbox.aclose)


async def submit(
    outbox: Outbox,
    batch_id: str,
    orders: Iterable[Order] | AsyncIterable[Order],
    *,
    source_digest: str | None = None,
) -> Loaded:
    """Put a batch into an outbox, as ``Outbox.put_batch`` does, and wake the workers of the fleet.

    The batch is on disk before anybody is woken; where that fails, a worker finds it within seconds by itself.

    Raises:
        FleetNotReady: The batch was put; the tables of PGQueuer are not there and may not be made.
        OrdersDiffer, HeldElsewhere, LoadBusy, NotCompared: As ``Outbox.put_batch``. Nothing was put.
    """
    journal = _shared(outbox.journal)
    loaded = await outbox.put_batch(batch_id, orders, source_digest=source_digest)
    try:
        await _refill(outbox.name, journal, Jobs(journal))
    except JournalUnavailable as error:
        words = "NOTIFY failed for batch %s; workers poll instead (%s)"
        _log.warning(words, batch_id, error.message, extra={"batch_id": batch_id, "why": error.message})
    return loaded


@frozen(kw_only=True)
class FleetStatus:
    """How the jobs of a fleet stand. How the orders stand, the journal says.

    Attributes:
        queued, picked: Jobs that wait, and that a worker has in hand, by outbox.
        workers: Processes that have one in hand.
        due: When what was scheduled is due next, by name, as ISO 8601 has it.
    """

    queued: Mapping[str, int]
    picked: Mapping[str, int]
    workers: int
    due: Mapping[str, str]


async def status(journal: PostgresJournal) -> FleetStatus:
    """How the jobs of all outboxes of a journal stand. Raises ``FleetNotReady``, ``JournalUnavailable``."""
    found = await Jobs(_shared(journal)).counts()
    counts = {
        entrypoint.removeprefix(_PREFIX): states
        for entrypoint, states in found.by_entrypoint.items()
        if entrypoint.startswith(_PREFIX)
    }
    return FleetStatus(
        queued={name: states.get("queued", 0) for name, states in counts.items()},
        picked={name: states.get("picked", 0) for name, states in counts.items()},
        workers=found.workers,
        due=found.due,
    )


async def metrics(journal: PostgresJournal) -> str:
    """What PGQueuer tells Prometheus of the jobs, in its text format. Raises ``FleetNotReady``."""
    return await Jobs(_shared(journal)).metrics()


_PREFIX = "outbox "


def _entrypoint(name: str) -> str:
    """What the jobs of an outbox are called."""
    return f"{_PREFIX}{name}"


async def _refill(name: str, journal: Journal, jobs: Jobs) -> None:
    """Enqueue a job for each chunk that is not done, a window of each batch at a time."""
    if await journal.paused(name) is None:
        waiting = await journal.waiting(name)
        await jobs.enqueue([job for run in waiting if run.batch_id != name for job in _jobs_of(name, run)])


def _jobs_of(name: str, run: Waiting) -> list[Queued]:
    """As many jobs of a batch as it has chunks that are not done; those that are there already are not made again."""
    return [
        Queued(
            entrypoint=_entrypoint(name),
            payload=run.batch_id,
            key=f"{name}/{run.run}/{number}",
            priority=run.priority,
        )
        for number in range(min(run.free + run.leased, _WINDOW))
    ]


def _shared(journal: object) -> PostgresJournal:
    """A journal that many machines share."""
    if not isinstance(journal, PostgresJournal):
        raise TypeError(f"journal: a fleet shares a PostgresJournal, not a {type(journal).__name__}")
    return journal


@frozen(kw_only=True)
class Routine:
    """Something that is done again and again, such as reconciling, reporting and pruning.

    Attributes:
        name: The same in all processes that would do it.
        when: As cron has it, in UTC: minute, hour, day, month and weekday, and seconds as a sixth.
        run: Does it. What it raises is logged, and it is done again when it is due again.
    """

    name: str
    when: str
    run: Callable[[], Awaitable[None]]


async def run_schedule(journal: PostgresJournal, routines: Iterable[Routine], *, stop: asyncio.Event) -> None:
    """Do what is due until it is to stop; what is under way is finished.

    Any number of processes may do so for one journal: each time a thing is due, one of them does it. What a process was
    doing that died, another one does again.

    Raises:
        ValueError: There is nothing to be done, or ``when`` is not a cron expression.
        FleetNotReady: The tables of PGQueuer are not there and may not be made, or are of another version.
    """
    jobs = Jobs(journal)
    for routine in routines:
        jobs.schedule(routine.name, routine.when, routine.run)
    if jobs.is_idle:
        raise ValueError("routines: name one at least")
    await jobs.run_until(stop)

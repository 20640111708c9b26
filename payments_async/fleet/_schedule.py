"""What is done by the clock, once for all machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from payments_async._values.frozen import frozen
from payments_async.fleet._jobs import Jobs
from payments_async.journal import PostgresJournal


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
        ValueError: There is nothing to be done, or ``when`` is no cron expression.
        FleetNotReady: The tables of PGQueuer are not there and may not be made, or are of another version.
    """
    jobs = Jobs(journal)
    for routine in routines:
        jobs.schedule(routine.name, routine.when, routine.run)
    if jobs.is_idle:
        raise ValueError("routines: name one at least")
    await jobs.run_until(stop)

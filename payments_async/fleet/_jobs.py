"""All of PGQueuer that a fleet uses: enqueue, handle, retry later, schedule; and how its jobs stand."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Self

from pgqueuer import PgQueuer
from pgqueuer.adapters.drivers.psycopg import PsycopgDriver
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.domain.errors import RetryRequested
from pgqueuer.domain.models import Job, Schedule
from pgqueuer.domain.settings import DBSettings
from pgqueuer.domain.types import Channel
from pgqueuer.metrics.prometheus import collect_metrics
from pgqueuer.ports.driver import Driver

from payments_async._values.errors import PaymentsError
from payments_async._values.frozen import frozen
from payments_async.journal import JournalError, JournalReadOnly, PostgresJournal

_log = logging.getLogger("payments_async")

_NAMESPACE = re.compile(r"[a-z_][a-z0-9_]*")  # PGQueuer writes it without quotes
_AGAIN_INITIAL, _AGAIN_MAX = 0.5, 15.0  # seconds until it is tried again after the connection was lost
_ASK_AGAIN = 5.0  # ... until it is looked for jobs again, whatever was heard
_CANCEL_AGAIN = 0.5  # ... until what is broken off is told so once more
# Another clock has put this off: no job of ours waits for as long, nor does anything that is due.
_PUT_OFF = 60.0  # seconds
_MEND_JOBS = """DELETE FROM {queue} WHERE greatest(execute_after, heartbeat)
    > now() + make_interval(secs => $1)"""  # they are made anew by whoever refills
_MEND_SCHEDULE = """UPDATE {schedules} SET next_run = now(), heartbeat = now() WHERE entrypoint = $1
    AND greatest(next_run - $2::interval, heartbeat) > now() + make_interval(secs => $3)"""


class FleetNotReady(RuntimeError):
    """The tables of PGQueuer are not there, or not those of the version that is installed; it says what makes them."""


class Later(Exception):
    """What a handler raises to have its job again in so many seconds, or in twice as many each time, up to the most."""

    def __init__(self, seconds: float, *, most: float | None = None) -> None:
        super().__init__(f"again in {seconds:g} s")
        self.seconds = seconds
        self.most = seconds if most is None else most


@frozen(kw_only=True)
class Queued:
    """A job to be enqueued, unless one of the same key is there.

    Attributes:
        entrypoint: Which handler it is for.
        payload: What it is about.
        key: No two jobs that are not done have the same.
        priority: Higher ones go first.
    """

    entrypoint: str
    payload: str
    key: str
    priority: int = 0


@frozen(kw_only=True)
class JobCounts:
    """How jobs stand.

    Attributes:
        by_entrypoint: How many of each are ``queued`` and ``picked``.
        workers: Processes that hold one.
        due: When what was scheduled is due next, by name, as ISO 8601 has it.
    """

    by_entrypoint: Mapping[str, Mapping[str, int]]
    workers: int
    due: Mapping[str, str]


Handler = Callable[[str], Awaitable[None]]


class Jobs:
    """PGQueuer's jobs in the database of a journal, in the namespace of its tables. They hold no order.

    Args:
        redelivery: Seconds without a sign of life from a worker, after which another one gets its job.
        failed_again: Seconds until a job that failed is handled again.
    """

    def __init__(self, journal: PostgresJournal, *, redelivery: float = 6.0, failed_again: float = 5.0) -> None:
        if not isinstance(journal, PostgresJournal):
            raise TypeError(f"journal: a fleet shares a PostgresJournal, not a {type(journal).__name__}")
        if not _NAMESPACE.fullmatch(journal.schema):
            raise ValueError("journal: PGQueuer needs a namespace of a-z, 0-9 and _, such as payments")
        self._journal = journal
        self._redelivery = redelivery
        self._failed_again = failed_again
        # spelled out, so that variables meant for another PGQueuer lead nowhere else
        self._settings = DBSettings(db_schema=journal.schema, prefix="")
        self._handlers: dict[str, tuple[Handler, int]] = {}
        self._schedules: list[tuple[str, str, Callable[[], Awaitable[None]]]] = []
        self._at_work: set[asyncio.Task[object]] = set()
        self._stop = asyncio.Event()
        self._queuer: PgQueuer | None = None

    # what a fleet does with it

    async def enqueue(self, jobs: Sequence[Queued]) -> None:
        """Have jobs done, once each, by whoever handles them. Raises ``FleetNotReady``, ``JournalUnavailable``."""
        if jobs:
            async with self._opened() as queries:
                await queries.enqueue(
                    [job.entrypoint for job in jobs],
                    [job.payload.encode() for job in jobs],
                    [job.priority for job in jobs],
                    dedupe_key=[job.key for job in jobs],
                    on_conflict="skip",
                )

    def handle(self, entrypoint: str, handler: Handler, *, at_once: int) -> None:
        """Have jobs done by this function, so many at once; what it raises ``Later`` for is done later."""
        self._handlers[entrypoint] = handler, at_once

    def schedule(self, name: str, when: str, run: Callable[[], Awaitable[None]]) -> None:
        """Have something done when it is due, by one of all processes that have scheduled it.

        Raises:
            ValueError: ``when`` is not a cron expression.
        """
        try:
            PgQueuer.in_memory().schedule(name, when)  # which says it now, and not once it runs
        except ValueError as error:
            raise ValueError(f"when: {when} is nothing that cron knows; as in */30 * * * *") from error
        self._schedules.append((name, when, run))

    async def run_until(self, stop: asyncio.Event, *, leave: Callable[[], Awaitable[None]] | None = None) -> None:
        """Handle jobs and what is due until it is to stop; what has begun is waited for.

        Args:
            leave: Ends what handlers wait for, once nothing more is begun.

        Raises:
            FleetNotReady: The tables are missing or of another version.
        """
        running, stopping = asyncio.ensure_future(self._run_again()), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            self._stop.set()
            if self._queuer is not None:
                self._queuer.shutdown.set()
            if leave is not None:
                await leave()
            await running
        finally:
            running.cancel()
            stopping.cancel()
            pending = {running, stopping}
            while pending:  # broken off: PGQueuer waits for its handlers, and what they wait for may take very long
                for handling in self._at_work:
                    handling.cancel()
                _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing that it could do."""
        return not self._handlers and not self._schedules

    # how it stands

    async def counts(self) -> JobCounts:
        """How they stand. Raises ``FleetNotReady``, ``JournalUnavailable``."""
        async with self._opened() as queries:
            sizes, workers = await queries.queue_size(), await queries.active_workers()
            schedules = await queries.peek_schedule()
        counts: dict[str, dict[str, int]] = {}
        for size in sizes:
            states = counts.setdefault(size.entrypoint, {})
            states[size.status] = states.get(size.status, 0) + size.count
        due = {str(one.entrypoint): one.next_run.isoformat() for one in schedules}
        return JobCounts(by_entrypoint=counts, workers=len(workers), due=due)

    async def metrics(self) -> str:
        """What PGQueuer tells Prometheus."""
        async with self._opened() as queries:
            return await collect_metrics(queries)

    # within

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Queries]:
        """A connection, with tables that are made unless they are there.

        Raises:
            FleetNotReady: This user may not make them.
            JournalUnavailable: The database cannot be reached any more.
        """
        is_made, remedy = False, self._command("install")
        try:
            async with self._journal.session() as connection:
                settings = self._settings
                queries = Queries(
                    PsycopgDriver(connection),
                    qbe=QueryBuilderEnvironment(settings),
                    qbq=QueryQueueBuilder(settings),
                    qbs=QuerySchedulerBuilder(settings),
                )
                if not await self._is_whole(queries):
                    if await queries.schema_is_installed():
                        remedy = f"{self._command('uninstall')}, then {remedy}"
                    await self._install(queries, connection)
                is_made = True
                yield queries
        except JournalReadOnly as error:
            if is_made:
                raise
            raise FleetNotReady(
                f"{self._journal.place} lacks tables of PGQueuer, and this user may not make them; "
                f"as one who may: {remedy}"
            ) from error

    async def _is_whole(self, queries: Queries) -> bool:
        """Whether all tables are there."""
        names = self._settings
        tables = names.queue_table, names.queue_table_log, names.statistics_table, names.schedules_table
        return all([await queries.has_table(table) for table in tables])

    async def _install(self, queries: Queries, connection: Any) -> None:
        """Make the tables, unless somebody else does at this moment; what is left of dropped ones goes first.

        No job holds an order, and all are made again by whoever works.
        """
        async with connection.transaction():
            await connection.execute("LOCK TABLE archive IN SHARE ROW EXCLUSIVE MODE")  # as whoever writes the journal
            if not await self._is_whole(queries):
                if await queries.schema_is_installed():
                    _log.warning("tables of PGQueuer were gone, and are made anew with all jobs")
                    await queries.uninstall()
                await queries.install()

    def _command(self, name: str) -> str:
        """What does something to the tables."""
        return f"pgq --pg-dsn DSN --schema {self._journal.schema} {name}"

    @asynccontextmanager
    async def _hearing(self, queries: Queries) -> AsyncIterator[Queries]:
        """The same with a second connection that listens: on one alone a question waits for seconds while it does."""
        async with self._journal.session() as connection:
            queries.driver = _TwoSessions(queries.driver, PsycopgDriver(connection))
            yield queries

    async def _run_again(self) -> None:
        """Handle jobs and what is due, by new connections whenever the last ones are lost."""
        delay = _AGAIN_INITIAL
        while not self._stop.is_set():
            try:
                async with self._opened() as queries, self._hearing(queries) as both:
                    delay = _AGAIN_INITIAL
                    await self._run(both)
            except FleetNotReady:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the driver says: the connection is made anew
                why = error.message if isinstance(error, JournalError) else type(error).__name__
                _log.warning("the fleet's jobs cannot be read: %s", why, extra={"why": why, "again_in": delay})
                await self._wait(delay)
                delay = min(_AGAIN_MAX, 2 * delay)

    async def _run(self, queries: Queries) -> None:
        """Handle jobs by these connections until it is to stop, or they fail."""
        queuer = PgQueuer(connection=queries.driver, queries=queries, channel=Channel(self._settings.channel))
        try:
            await queuer.qm.verify_structure()
        except RuntimeError as error:
            raise FleetNotReady(
                f"{self._journal.place}: the tables of PGQueuer are of another version than it; "
                f"as one who may change them: {self._command('upgrade')}"
            ) from error
        for entrypoint, (handler, _) in self._handlers.items():
            queuer.entrypoint(entrypoint, accepts_context=False)(self._handling(entrypoint, handler))
        for name, when, run in self._schedules:
            # clean_old: whoever was started last says when
            queuer.schedule(name, when, clean_old=True, accepts_context=False)(_running(name, run))
        self._queuer = queuer
        mending = asyncio.ensure_future(self._mend_again(queuer, queries))
        try:
            if self._stop.is_set():
                return
            if not self._handlers:
                await queuer.sm.run()
                return
            await queuer.run(
                batch_size=1,  # so that nobody holds what others could begin
                max_concurrent_tasks=max(2, sum(at_once for _, at_once in self._handlers.values())),
                dequeue_timeout=timedelta(seconds=_ASK_AGAIN),
                heartbeat_timeout=timedelta(seconds=self._redelivery),
                shutdown_on_listener_failure=True,
            )
        finally:
            self._queuer = None
            mending.cancel()
            failure, *_ = await asyncio.gather(mending, return_exceptions=True)
        if isinstance(failure, Exception):
            raise failure

    async def _mend_again(self, queuer: PgQueuer, queries: Queries) -> None:
        """Put back what is lost of the schedule, and let go what a clock that was ahead has put off.

        What hinders it ends the run: by new connections, tables that were dropped are made anew.
        """
        names, schedules = self._settings, queuer.sm.registry
        try:
            while True:
                if not await self._is_whole(queries):
                    raise LookupError("the tables of PGQueuer are gone")
                await queries.insert_schedule({key: one.next_in() for key, one in schedules.items()})
                await queries.driver.execute(_MEND_JOBS.format(queue=names.queue_table), _PUT_OFF)
                for key, one in schedules.items():
                    sql = _MEND_SCHEDULE.format(schedules=names.schedules_table)
                    await queries.driver.execute(sql, key.entrypoint, one.next_in(), _PUT_OFF)
                await asyncio.sleep(_ASK_AGAIN)
        finally:
            queuer.shutdown.set()

    def _handling(self, entrypoint: str, handler: Handler) -> Callable[[Job], Awaitable[None]]:
        """A handler as PGQueuer calls it. It keeps tracebacks of what it is told, so it is told of nothing but time."""

        async def handle(job: Job) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._at_work.add(task)
            try:
                await handler((job.payload or b"").decode())
            except Later as later:
                seconds = min(later.most, later.seconds * 2.0 ** min(job.attempts, 30))
            except Exception as error:  # noqa: BLE001 - nothing is lost of a job that fails
                seconds = self._failed_again
                _log_failure(entrypoint, error)
            else:
                return
            finally:
                self._at_work.discard(task)
            raise RetryRequested(timedelta(seconds=seconds), "there is more to do, or it is in other hands")

        return handle

    async def _wait(self, seconds: float) -> None:
        """Wait for so long, or until it is to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


class _TwoSessions:
    """A driver that asks by one connection and listens by another: on one, a question waits while it listens."""

    def __init__(self, asks: Driver, hears: PsycopgDriver) -> None:
        self.fetch = asks.fetch
        self.execute = asks.execute
        self.notify = asks.notify
        self.add_listener = hears.add_listener
        self._hears = hears

    @property
    def shutdown(self) -> asyncio.Event:
        return self._hears.shutdown

    @property
    def tm(self) -> Any:
        return self._hears.tm

    async def __aenter__(self) -> Self:
        await self._hears.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        for listening in list(self._hears.tm.tasks):
            listening.cancel()  # it would take a second to see that nobody listens any more
        await self._hears.__aexit__(*failure)


def _running(name: str, run: Callable[[], Awaitable[None]]) -> Callable[[Schedule], Awaitable[None]]:
    """What is due as PGQueuer calls it."""

    async def due(_: Schedule) -> None:
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - it is due again
            _log_failure(name, error)

    return due


def _log_failure(name: str, error: Exception) -> None:
    """Say what failed, without what an error of somebody else's may quote."""
    why = error.message if isinstance(error, JournalError | PaymentsError) else type(error).__name__
    _log.error("the fleet's %s failed, and is done again: %s", name, why, extra={"job": name, "why": why})

"""`payments-async fleet`: workers on many machines, batches for them, and what is done by the clock."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import attrs
import typer

from payments_async import PaymentsSession
from payments_async._cli.batch_file import FormatOptions, RowOptions
from payments_async._cli.batch_plan import PlanChecks
from payments_async._cli.batch_state import show_progress
from payments_async._cli.commands.outbox.put import Put, put_file
from payments_async._cli.commands.outbox.run import Dispatch, Work, work_outbox
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import JournalFile, JournalPlace, opened, seconded, seconds_of
from payments_async._cli.limits import OutboxLimits
from payments_async._cli.outbox_state import AnyOutbox, OutboxName, chosen_outbox, exit_after, health_document
from payments_async._cli.screen import Screen, clean, command_line, counted, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.signals import draining
from payments_async.bulk import reconcile, report
from payments_async.journal import Journal, PostgresJournal, SqliteJournal, archive_orders
from payments_async.outbox import Outbox, OutboxHealth


@contextmanager
def asking_fleet() -> Iterator[None]:
    """Use the fleet.

    Raises:
        BadInput: Its extra is not installed, or its tables are not there and may not be made.
    """
    try:
        from payments_async.fleet import FleetNotReady
    except ModuleNotFoundError as error:
        raise BadInput(str(error)) from error
    try:
        yield
    except FleetNotReady as error:
        raise BadInput(f"--journal: {error}") from error


@asynccontextmanager
async def opened_shared(place: JournalPlace | None, *, new: bool = False) -> AsyncIterator[Journal]:
    """The journal that the machines share.

    Raises:
        BadInput: As ``opened``; or it is a file.
    """
    check_shared(place)
    async with opened(place, new=new) as held:
        yield held


def check_shared(place: JournalPlace | None) -> None:
    """Raise ``BadInput`` for a journal that is a file."""
    if place is not None and isinstance(place.unopened(), SqliteJournal):
        raise BadInput("--journal: a fleet shares a journal in PostgreSQL; name its DSN (postgresql://...)")


def _when(about: str) -> object:
    return typer.Option(metavar="CRON", help=f"{about}; as cron has it, in UTC.")


@attrs.frozen(kw_only=True)
class Routines:
    """What is done when, and what that needs."""

    reconcile: Annotated[str | None, _when("Settle all that is open by the service's list, and look for reversals")] = (
        None
    )
    report: Annotated[str | None, _when("Write a report of each batch of the outbox")] = None
    reports: Annotated[Path | None, typer.Option(help="The folder of the reports.")] = None
    prune: Annotated[str | None, _when("Move old orders into a new archive")] = None
    archives: Annotated[Path | None, typer.Option(help="The folder of the archives.")] = None
    older_than: Annotated[str, typer.Option(help="Age of orders that are moved, as in 90d or 48h.")] = "90d"
    who: Annotated[str | None, typer.Option(help="Your name: you answer for what is moved.")] = None
    why: Annotated[str | None, typer.Option(help="The reason, such as your rule on keeping data; kept.")] = None

    def check(self) -> None:
        """Raise ``BadInput`` where something is missing."""
        if not (self.reconcile or self.report or self.prune):
            raise BadInput("name at least one of --reconcile, --report and --prune, as in --reconcile '*/30 * * * *'")
        if self.report and (self.reports is None or not self.reports.is_dir()):
            raise BadInput("--reports: name the folder of the reports; it has to be there")
        if self.prune and (self.archives is None or not self.archives.is_dir()):
            raise BadInput("--archives: name the folder of the archives; it has to be there")
        if self.prune and not (self.who and self.why):
            raise BadInput("--who and --why: say who wants orders to be moved, and why; both are kept")
        seconds_of(self.older_than)


async def fleet_schedule(
    screen: Screen,
    settings: ConnectionSettings,
    journal: JournalFile = None,
    name: OutboxName = "outbox",
    routines: Routines = Routines(),
) -> Exit:
    """Reconcile, report and prune by the clock, once for all machines, until Ctrl-C or SIGTERM.

    Start it on as many machines as you like: whenever a thing is due, one of them does it, and what one was doing that
    died, another one does again. Folders are those of the machine that does it, so share them, or start it on one.
    Workers settle what is open by themselves; --reconcile finds reversals as well, which nothing else tells. Each
    archive is a file of its own, and no report but its own is replaced.

    Example: payments-async fleet schedule --reconcile '*/30 * * * *' --report '0 5 * * *' --reports /srv/reports
    """
    routines.check()
    with asking_fleet():
        from payments_async import fleet

        async with opened_shared(journal) as held, settings.session() as payments:
            assert isinstance(held, PostgresJournal)
            known = _known(held, payments, name, routines)
            todo = [
                fleet.Routine(name=f"{what} {name}", when=when, run=_told(screen, what, run))
                for what, (when, run) in known.items()
                if when
            ]
            screen.note(f"by the clock: {', '.join(what for what, (when, _) in known.items() if when)}; Ctrl-C stops")
            with draining(screen) as stop:
                try:
                    await fleet.run_schedule(held, todo, stop=stop.drain)
                except ValueError as error:
                    wrong = [f"--{what}" for what, (when, _) in known.items() if when and f" {when} " in str(error)]
                    raise BadInput(f"{', '.join(wrong)}: {clean(str(error)).removeprefix('when: ')}") from error
    return Exit.STOPPED if stop.is_hard else Exit.FINE


_Routine = Callable[[], Awaitable[str]]


def _known(
    journal: PostgresJournal, payments: PaymentsSession, name: str, routines: Routines
) -> dict[str, tuple[str | None, _Routine]]:
    """What can be done, when, and how; each tells in words what came of it."""

    async def settle() -> str:
        found = await reconcile(payments, journal, reversals=True)
        settled = ", ".join(f"{count:,} {state}" for state, count in found.settled.items() if count)
        needing = f"; {counted(len(found.parked), 'order')} parked for a person" if found.parked else ""
        return f"settled: {settled or 'nothing'}{needing}"

    async def tell() -> str:
        assert routines.reports is not None
        count = 0
        for run in await journal.runs():
            if run.outbox == name and not run.is_outbox:
                csv, html = (routines.reports / f"{_stem(run.batch_id)}-report.{kind}" for kind in ("csv", "html"))
                await report(journal, run.batch_id, csv=csv, html=html, overwrite=True)
                count += 1
        return f"{counted(count, 'report')} written"

    async def move() -> str:
        assert routines.archives is not None
        file = routines.archives / f"orders-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl.gz"
        seconds, who, why = seconds_of(routines.older_than), routines.who or "", routines.why or ""
        done = await archive_orders(journal, file, older_than=seconds, who=who, why=why)
        return "nothing is that old" if done.path is None else f"{counted(done.orders, 'order')} moved into {done.path}"

    return {
        "reconcile": (routines.reconcile, settle),
        "report": (routines.report, tell),
        "prune": (routines.prune, move),
    }


def _stem(batch_id: str) -> str:
    """A name of a file for a batch, which no other batch has."""
    stem = re.sub(r"[^\w.-]", "_", batch_id).lstrip(".")
    return stem if stem == batch_id else f"{stem}-{hashlib.sha256(batch_id.encode()).hexdigest()[:8]}"


def _told(screen: Screen, what: str, run: _Routine) -> Callable[[], Awaitable[None]]:
    """Do it, and say what came of it."""

    async def do() -> None:
        words = await run()
        at = datetime.now(UTC)
        if screen.as_json:
            screen.line(json.dumps({"at": at.timestamp(), "routine": what, "words": words}))
        else:
            screen.line(f"{at:%H:%M:%S}  {what}: {words}")

    return do


async def fleet_worker(
    screen: Screen,
    settings: ConnectionSettings,
    work: Work = Work(),
    limits: OutboxLimits = OutboxLimits(),
    chunks: Annotated[int, typer.Option(min=1, max=100, help="Chunks of 500 orders worked at once.")] = 2,
    redelivery: Annotated[
        float, typer.Option(min=1, help="Seconds of silence after which another worker gets the jobs of one.")
    ] = 6.0,
    health_host: Annotated[str, typer.Option(help="At which address of this machine; 0.0.0.0 for all.")] = "127.0.0.1",
) -> Exit:
    """Work an outbox on one of many machines: PGQueuer hands out the chunks of batches, in the journal's database.

    The worker that hears first of a single order sends it, as `outbox run` does. Start as many workers as you like; one
    that dies is replaced within seconds, and what it was sending is looked up, never sent again. PGQueuer holds no
    order: the journal alone says who may send what. The first Ctrl-C or SIGTERM finishes what is under way and gives
    the rest to the others; a second one breaks it off.

    With --health PORT, GET /health is 200 for as long as the process works, GET /ready while orders are sent, and GET
    /metrics is for Prometheus.

    Example: payments-async fleet worker --journal postgresql://pay@db/pay --max-per-day 5000000 --health 8081
    """
    if (journal := seconded(work.journal, work.second_journal)) is None:
        raise BadInput("--journal: name the DSN of the journal's database, or set PAYMENTS_JOURNAL")
    check_shared(journal)
    with asking_fleet():
        from payments_async import fleet

        async def run(outbox: Outbox, stop: asyncio.Event) -> None:
            await fleet.run_worker(outbox, stop=stop, chunks=chunks, redelivery=redelivery)

        dispatch = Dispatch(check=fleet.status, run=run, metrics=fleet.metrics, host=health_host)
        return await work_outbox(screen, settings, journal, work, limits, command="fleet worker", dispatch=dispatch)


async def fleet_submit(
    screen: Screen,
    settings: ConnectionSettings,
    what: Put,
    rows: RowOptions = RowOptions(),
    checks: PlanChecks = PlanChecks(),
    file_format: FormatOptions = FormatOptions(),
) -> Exit:
    """Put a file into an outbox, and wake the workers of the fleet. The same again adds nothing.

    As `outbox put`: nothing is put unless every row is good (or --skip-bad leaves bad ones out), the digest is the
    approved one (--plan) and you say yes. All of it is put or nothing. Workers that cannot be woken find it by
    themselves within seconds.

    Example: payments-async fleet submit payroll.csv --batch-id payroll-2026-11 --journal postgresql://pay@db/pay
    """
    journal = seconded(what.journal, what.second_journal)
    with asking_fleet():
        from payments_async import fleet

        if journal is not None and await journal.exists():
            async with opened_shared(journal) as held:
                assert isinstance(held, PostgresJournal)
                await fleet.status(held)  # says what it lacks before anything is put

        return await put_file(
            screen, settings, journal, what, rows, checks, file_format, put=fleet.submit, works="fleet worker"
        )


async def fleet_status(screen: Screen, journal: JournalFile = None, name: AnyOutbox = None) -> Exit:
    """Show the jobs of the fleet, what is due when, and how the outbox stands.

    A job stands for a chunk of a batch, and holds no order; `outbox status` tells all that the journal knows. Exit
    status: as that of `outbox status`.

    Example: payments-async fleet status --journal postgresql://pay@db/pay
    """
    with asking_fleet():
        from payments_async import fleet

        async with opened_shared(journal) as held:
            assert isinstance(held, PostgresJournal)
            name = await chosen_outbox(held, name)
            state, jobs, schema = await OutboxHealth.of(held, name), await fleet.status(held), held.schema
    queued, picked = jobs.queued.get(name, 0), jobs.picked.get(name, 0)
    screen.say(f"[bold]{quoted(name)}[/]: {counted(state.progress.total, 'order')}\n")
    show_progress(screen, state.progress, None)
    screen.say()
    paused = state.problem("paused")
    screen.fields(
        [
            ("paused", None if paused is None else paused.what),
            ("jobs", f"{queued:,} wait, {picked:,} in hand"),
            ("at work", counted(jobs.workers, "worker") if jobs.workers else "no worker has a job in hand"),
            *((f"due: {one}", at) for one, at in sorted(jobs.due.items()) if not one.startswith("refill ")),
        ]
    )
    assert journal is not None
    screen.say("\nWhat the journal knows, and what needs a person:")
    screen.command(command_line("outbox status", journal=journal, name=name))
    screen.say("PGQueuer's own view of its jobs, with the DSN:")
    screen.command(f"pgq --pg-dsn DSN --schema {schema} dashboard")
    screen.document(
        {
            **health_document(state),
            "jobs": {"queued": queued, "picked": picked},
            "workers": jobs.workers,
            "due": dict(jobs.due),
            "exit_status": exit_after(state),
        }
    )
    return exit_after(state)

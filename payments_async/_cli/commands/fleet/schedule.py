"""`payments-async fleet schedule`: what is done by the clock, once for all machines."""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import attrs
import typer

from payments_async import PaymentsSession
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.fleet import asking_fleet, opened_shared
from payments_async._cli.journal import JournalFile, seconds_of
from payments_async._cli.outbox_state import OutboxName
from payments_async._cli.screen import Screen, clean, counted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.signals import draining
from payments_async.bulk import reconcile, report
from payments_async.journal import PostgresJournal, archive_orders


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


Work = Callable[[], Awaitable[str]]


def _known(
    journal: PostgresJournal, payments: PaymentsSession, name: str, routines: Routines
) -> dict[str, tuple[str | None, Work]]:
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


def _told(screen: Screen, what: str, run: Work) -> Callable[[], Awaitable[None]]:
    """Do it, and say what came of it."""

    async def do() -> None:
        words = await run()
        at = datetime.now(UTC)
        if screen.as_json:
            screen.line(json.dumps({"at": at.timestamp(), "routine": what, "words": words}))
        else:
            screen.line(f"{at:%H:%M:%S}  {what}: {words}")

    return do

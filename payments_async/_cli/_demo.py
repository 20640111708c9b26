"""`payments-async demo`: a whole batch through the simulated service, with faults on, and the ledger as its judge."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import attrs
import typer
from rich.markup import escape

from payments_async import PaymentsError
from payments_async._cli._batch import read_orders
from payments_async._cli._bulk_state import show_progress
from payments_async._cli._command import command
from payments_async._cli._demo_begin import (
    CONCURRENCY,
    FAULTS,
    FOLDER,
    SEED,
    Begun,
    begun,
    go_on_with,
    new_trial,
    unfinished,
)
from payments_async._cli._demo_place import Place, held
from payments_async._cli._demo_service import ServiceGone
from payments_async._cli._exits import BadInput, Exit
from payments_async._cli._rehearsal import BATCH, Judged, Rehearsal, Setup
from payments_async._cli._report import show_report
from payments_async._cli._screen import Screen, clean, money
from payments_async._cli._trouble import Faults
from payments_async.bulk import report
from payments_async.journal import JournalError

__all__ = ["add_demo"]


def add_demo(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo")(demo)


async def demo(
    screen: Screen,
    file: Annotated[Path | None, typer.Option(help="A batch file (CSV); else the sample of 200 payouts.")] = None,
    seed: Annotated[int, typer.Option(help="Decides which orders the faults strike.")] = SEED,
    faults: Annotated[Faults, typer.Option(help="How much goes wrong.")] = FAULTS,
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Payouts under way at once.")] = CONCURRENCY,
    folder: Annotated[Path, typer.Option("--dir", help="Where the journal and the report go.")] = FOLDER,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew; an unfinished run is put aside.")] = False,
) -> Exit:
    """Pay a batch on a simulated service that loses answers, and prove that nothing was paid twice or lost.

    Kill it in the middle, and run it again: it goes on. Nothing leaves this machine: service, money and people are
    made up. The exit status is 0 only if the service's ledger and our journal agree in every order.
    """
    batch = await read_orders(screen, file)
    setup = Setup(orders=batch.orders, digest=batch.digest, seed=seed, faults=faults, concurrency=concurrency)
    name = "the sample batch" if file is None else file.name
    screen.say(
        f"[bold]payments-async demo[/]: {len(setup.orders):,} payouts of {escape(name)}, "
        f"[bold]{money(setup.total, setup.currency)}[/]"
    )
    screen.say(f"[dim]simulated service on this machine, {concurrency} at a time, faults: {faults}, seed: {seed}[/]")
    screen.say(f"[dim]journal in {escape(str(folder))}: kill this in the middle, and run it again[/]")
    again = go_on_with(
        None if file is None else str(file), seed=seed, faults=faults, concurrency=concurrency, folder=folder
    )
    with held(folder) as place:
        return await _Demo(screen=screen, setup=setup, place=place, again=again).carry_out(file, fresh=fresh)


@attrs.frozen(kw_only=True)
class _Demo:
    """A demo in a directory that is ours.

    Attributes:
        again: The command that goes on with it.
    """

    screen: Screen
    setup: Setup
    place: Place
    again: str

    async def carry_out(self, file: Path | None, *, fresh: bool) -> Exit:
        """Begin it or go on with it, and show what came of it."""
        try:
            last = await unfinished(self.screen, self.place, self.setup, fresh=fresh)
            trial = last or new_trial(self.setup, file)
            if last is None:
                self.place.note(trial)  # from now on the directory is known to be ours
            async with begun(self.screen, self.setup, self.place, trial) as made:
                return await self._run(made, goes_on=last is not None)
        except JournalError as error:
            raise BadInput(f"--dir {self.place.folder}: {error}") from error
        except ServiceGone as error:
            return self._stopped(f"the simulated service is gone, and what it did with it ({error})", "begin anew")

    async def _run(self, made: Begun, *, goes_on: bool) -> Exit:
        began = time.monotonic()
        async with made.service.session(self.setup.concurrency) as payments:
            rehearsal = Rehearsal(
                self.setup, self.screen, journal=made.journal, payments=payments, service=made.service
            )
            try:
                judged = await rehearsal.run(goes_on=goes_on)
            except PaymentsError as error:
                if await made.service.is_there():
                    raise
                raise ServiceGone(error.message) from error
        if judged is None:
            if not self.screen.is_live:  # where a table begins with an empty line
                self.screen.say()
            show_progress(self.screen, await made.journal.progress(BATCH), self.setup.currency)
            return self._stopped(rehearsal.stopped or "")
        return await self._finish(made, judged, seconds=time.monotonic() - began, goes_on=goes_on)

    async def _finish(self, made: Begun, judged: Judged, *, seconds: float, goes_on: bool) -> Exit:
        place = self.place
        personal = self.screen.show_personal
        try:
            await report(made.journal, BATCH, csv=place.csv, html=place.html, personal=personal, overwrite=True)
        except ValueError as error:
            raise BadInput(f"--dir: {clean(str(error))}; move it away, and the same command goes on") from error
        place.note(attrs.evolve(made.trial, finished=True))
        await made.service.end()
        if made.started is not None:
            await made.started.over()
        show_report(self.screen, self.setup, place, judged, seconds=seconds, goes_on=goes_on)
        return Exit.FINE if judged.verdict.agrees else Exit.FAILED

    def _stopped(self, why: str, then: str = "go on") -> Exit:
        self.screen.trouble(f"stopped: {why}", f"{then} with: {self.again}")
        self.screen.document({"stopped": why, "go_on_with": self.again, "exit_status": Exit.STOPPED})
        return Exit.STOPPED

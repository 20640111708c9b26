"""`payments-async demo`: a whole batch through the simulated service, with faults on, and the ledger as its judge."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from payments_async._cli._batch import read_orders
from payments_async._cli._command import command
from payments_async._cli._exits import Exit
from payments_async._cli._rehearsal import Rehearsal, Setup
from payments_async._cli._report import show_report
from payments_async._cli._screen import Screen, money
from payments_async._cli._trouble import Faults

__all__ = ["add_demo"]


def add_demo(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo")(demo)


async def demo(
    screen: Screen,
    file: Annotated[Path | None, typer.Option(help="A batch file (CSV); else the sample of 200 payouts.")] = None,
    seed: Annotated[int, typer.Option(help="Decides which orders the faults strike.")] = 1,
    faults: Annotated[Faults, typer.Option(help="How much goes wrong.")] = Faults.SOME,
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Payouts under way at once.")] = 50,
) -> Exit:
    """Pay a batch on a simulated service that loses answers, and prove that nothing was paid twice or lost.

    Nothing leaves this machine: service, accounts, money and people are made up. The exit status is 0 only if the
    service's ledger and our table agree in every order.
    """
    orders = await read_orders(screen, file)
    setup = Setup(orders=orders, seed=seed, faults=faults, concurrency=concurrency)
    name = "the sample batch" if file is None else file.name
    screen.say(
        f"[bold]payments-async demo[/]: {len(orders):,} payouts of {name}, "
        f"[bold]{money(setup.total, setup.currency)}[/]"
    )
    screen.say(f"[dim]simulated service on this machine, {concurrency} at a time, faults: {faults}, seed: {seed}[/]\n")
    began = datetime.now(UTC)
    rehearsal = Rehearsal(setup, screen)
    verdict = await rehearsal.run()
    seconds = (datetime.now(UTC) - began).total_seconds()
    show_report(screen, setup, rehearsal, verdict, seconds)
    return Exit.FINE if verdict.agrees else Exit.FAILED

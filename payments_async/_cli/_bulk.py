"""`payments-async bulk`: its commands, gathered, and what their exit statuses mean."""

from __future__ import annotations

import typer

from payments_async._cli._bulk_decide import add_decisions
from payments_async._cli._bulk_plan import add_plan
from payments_async._cli._bulk_run import add_run
from payments_async._cli._bulk_state import add_states

__all__ = ["add_bulk"]

_HELP = "Batches of payouts from a file: planned, approved, run, reconciled, reported. Never paid twice, never lost."
_EXIT_CODES = (
    "Exit status: 0 nothing rejected, failed, reversed, unknown, parked or in conflict; 2 bad input; 3 some rejected, "
    "failed or reversed; 4 some unknown, parked or in conflict; 5 stopped: by the fuse, by a signal, by refused "
    "credentials, by a journal that cannot be written, or by a no. The highest counts."
)


def add_bulk(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help=_HELP, epilog=_EXIT_CODES, no_args_is_help=True)
    for add in (add_plan, add_run, add_states, add_decisions):
        add(group)
    app.add_typer(group, name="bulk")

"""`payments-async bulk plan`: what a file would do, for whoever makes it and whoever approves it. Sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import typer
from rich.markup import escape

from payments_async import PaymentsSession
from payments_async._cli._bulk_file import (
    Acknowledge,
    BatchFile,
    BatchId,
    Currency,
    Delimiter,
    Derive,
    Encoding,
    FileKind,
    Reading,
    Sheet,
    SkipBad,
    Validate,
)
from payments_async._cli._bulk_journal import JournalFile, existing, is_there
from payments_async._cli._command import command
from payments_async._cli._exits import BadInput, Exit
from payments_async._cli._screen import Screen, clean, counted, money, plain
from payments_async._cli._settings import Settings
from payments_async.bulk import Batch, BatchChanged, Duplicate, Issue, Plan, Share, plan
from payments_async.journal import SqliteJournal

__all__ = ["add_plan", "make_plan", "plan_document", "show_plan"]

_SHOWN = 20


def add_plan(group: typer.Typer) -> None:
    """Add the command."""
    command(group, "plan")(bulk_plan)


async def bulk_plan(
    screen: Screen,
    settings: Settings,
    file: BatchFile,
    batch_id: BatchId,
    journal: JournalFile = None,
    validate: Validate = False,
    skip_bad: SkipBad = False,
    acknowledge: Acknowledge = False,
    derive_request_ids: Derive = False,
    kind: FileKind = None,
    currency: Currency = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    sheet: Sheet = None,
) -> Exit:
    """Show what a file would do: sums, problems, duplicates, balance, and a digest to approve. Sends nothing.

    Whoever approves it hands on the digest; `bulk run --plan DIGEST` then sends exactly these payments or nothing.

    Example: payments-async bulk plan payroll.csv --batch-id payroll-2026-11 --journal payroll.sqlite
    """
    reading = Reading(
        batch_id=batch_id, derive_request_ids=derive_request_ids, kind=kind, currency=currency, encoding=encoding,
        delimiter=delimiter, sheet=sheet,
    )  # fmt: skip
    session = settings.session()  # what is missing there is told before a long file is read
    batch = await reading.read(screen, file)
    async with existing(journal) as held, session as payments:
        made = await make_plan(
            payments, batch, batch_id, held, validate=validate, skip_bad=skip_bad, acknowledge=acknowledge
        )
    show_plan(screen, made, f"{file.name}, batch {batch_id}")
    status = Exit.FINE if made.is_clean else Exit.BAD_INPUT
    if made.is_clean:
        screen.say("\nTo send exactly this, once it is approved:")
        new = journal is None or not is_there(journal)
        again = reading.command_line(
            file, journal, skip_bad=skip_bad, acknowledge=acknowledge, plan=made.digest, new_journal=new
        )
        screen.say(f"  {escape(again)}")
    screen.document({"batch_id": batch_id, **plan_document(made), "exit_status": status})
    return status


async def make_plan(
    payments: PaymentsSession,
    batch: Batch,
    batch_id: str,
    journal: SqliteJournal | None,
    *,
    validate: bool,
    skip_bad: bool,
    acknowledge: bool,
    concurrency: int = 50,
    rate: float | None = None,
) -> Plan:
    """The plan of a batch.

    Raises:
        BadInput: The file was changed meanwhile.
    """
    try:
        return await plan(
            payments, batch, batch_id=batch_id, journal=journal, validate=validate, skip_bad=skip_bad,
            acknowledged=acknowledge, concurrency=concurrency, rate=rate,
        )  # fmt: skip
    except BatchChanged as error:
        raise BadInput("the file was changed while it was read; begin again") from error


def show_plan(screen: Screen, made: Plan, title: str) -> None:
    """Write the summary of a plan."""
    total = escape(money(made.total, made.currency))
    screen.say(f"[bold]{escape(clean(title))}[/]: {counted(made.count, 'payout')}, [bold]{total}[/]")
    screen.say()
    for name, shares in (("Kind", made.by_kind), ("Item", made.by_item)):
        _show_shares(screen, name, shares, made)
    screen.fields(
        [
            ("balance", f"{money(made.balance, made.currency)}"),
            ("left after", money(made.balance - made.open_total, made.currency)),
            ("recorded", f"{made.recorded:,} in the journal" if made.recorded else None),
            ("to be sent", f"{made.open_count:,}, {money(made.open_total, made.currency)}" if made.recorded else None),
            ("takes about", _duration(made.seconds)),
            ("digest", made.digest),
        ]
    )
    _show_concerns(
        screen, f"{counted(made.problem_count, 'problem')}: nothing can be sent as it is", "red", made.problems
    )
    looked = "looked at" if made.acknowledged else "look at it; nothing is sent without --acknowledge"
    _show_concerns(screen, f"{counted(len(made.concerns), 'concern')}: {looked}", "yellow", made.concerns)
    _show_concerns(screen, f"{made.left_out:,} left out", "yellow", made.skipped)
    _show_duplicates(screen, made)
    _show_concerns(screen, "Look at this", "yellow", made.warnings)


def plan_document(made: Plan) -> dict[str, object]:
    """A plan for machines."""
    names = (
        "count", "total", "currency", "balance", "by_kind", "by_item", "problem_count", "problems", "concerns",
        "acknowledged", "left_out", "skipped", "warnings", "duplicates", "recorded", "open_count", "open_total",
        "seconds", "digest",
    )  # fmt: skip
    document: dict[str, object] = plain({name: getattr(made, name) for name in names})
    return {"clean": made.is_clean, **document}


def _show_shares(screen: Screen, name: str, shares: Mapping[str, Share], made: Plan) -> None:
    total = f"Sum {made.currency}" if made.currency else "Sum"
    rows = [[key, f"{share.count:,}", money(share.total)] for key, share in shares.items()]
    if rows:
        screen.table([name, "Orders", total], rows, right=["Orders", total])
        screen.say()


def _show_concerns(screen: Screen, title: str, style: str, concerns: Sequence[Issue]) -> None:
    if not concerns:
        return
    screen.say(f"\n[bold {style}]{title}[/]")
    _show_lines(screen, map(str, concerns), len(concerns))


def _show_duplicates(screen: Screen, made: Plan) -> None:
    found = made.duplicates
    if not found.shown:
        return
    screen.say(
        f"\n[bold yellow]Paid twice?[/] Same beneficiary and amount: {found.same_amount:,}; "
        f"same beneficiary, another amount: {found.other_amount:,}"
    )
    _show_lines(screen, map(_duplicate, found.shown), found.same_amount + found.other_amount)


def _duplicate(one: Duplicate) -> str:
    where = f" of batch {one.batch_id}, {one.state}" if one.batch_id else ""
    again = "the same amount" if one.same_amount else "another amount"
    return f"{one.request_id}: {one.amount:,f} to {one.payee}, and {again} by {one.other}{where}"


def _show_lines(screen: Screen, lines: Iterable[str], count: int) -> None:
    for number, line in enumerate(lines):
        if number == _SHOWN:
            screen.say(f"  and {count - _SHOWN:,} more; --json shows them")
            return
        screen.say(f"  {escape(clean(line))}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"

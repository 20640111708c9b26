"""`payments-async bulk status` and `report`: how a batch stands, on the screen and on paper. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

import attrs
import typer
from rich.markup import escape
from rich.text import Text

from payments_async._cli._bulk_board import STYLES
from payments_async._cli._bulk_journal import UNFORTUNATE, AnyBatch, JournalFile, chosen_batch, exit_after, opened
from payments_async._cli._command import command
from payments_async._cli._exits import BadInput, Exit
from payments_async._cli._explain import sentence
from payments_async._cli._program import command_line
from payments_async._cli._screen import Screen, clean, counted, money, plain
from payments_async.bulk import report
from payments_async.journal import Entry, Progress, SqliteJournal, State

__all__ = ["add_states", "currency_of", "progress_document", "show_progress", "tell_next"]

_SHOWN = 20


def add_states(group: typer.Typer) -> None:
    """Add the commands."""
    command(group, "status")(bulk_status)
    command(group, "report")(bulk_report)


async def bulk_status(screen: Screen, journal: JournalFile = None, batch_id: AnyBatch = None) -> Exit:
    """Show how a batch stands, and the orders that need a person; without --batch-id, all batches of the journal.

    Example: payments-async bulk status --journal payroll.sqlite --batch-id payroll-2026-11
    """
    async with opened(journal) as held:
        runs = await held.runs()
        if batch_id is None and len(runs) != 1:
            return await _show_all(screen, held)
        name = await chosen_batch(held, batch_id)
        run, progress = await held.run(name), await held.progress(name)
        needing = [entry async for entry in _needing(held, name)]
        unpaid = await unpaid_of(held, name, progress)
        strangers = await held.unmatched_events()
        currency = await currency_of(held, name)
    loaded = "" if run.ready else "; not all of it is written down yet: run it again"
    screen.say(
        f"[bold]{escape(clean(name))}[/]: {counted(run.total, 'payout')}, {money(run.amount, currency)}{loaded}\n"
    )
    show_progress(screen, progress, currency)
    _show_needing(screen, needing)
    show_unpaid(screen, unpaid, progress)
    if strangers:
        screen.say(f"\nNotifications about orders that this journal never sent: {strangers:,}")
    assert journal is not None
    tell_next(screen, progress, journal, name, quarantined=run.quarantined, unpaid_are_shown=True)
    status = exit_after(progress)
    screen.document(
        {
            "batch_id": name,
            "ready": run.ready,
            "digest": run.source_digest,
            "progress": progress_document(progress),
            "need_a_person": [
                {"request_id": one.request_id, "state": one.state, "amount": one.amount, "conflict": one.conflict}
                for one in needing
            ],
            "not_paid": [
                {
                    "request_id": one.entry.request_id,
                    "state": one.entry.state,
                    "amount": one.entry.amount,
                    "why": one.why,
                }
                for one in unpaid
            ],
            "unmatched_notifications": strangers,
            "chunks_in_quarantine": run.quarantined,
            "exit_status": status,
        }
    )
    return status


async def bulk_report(
    screen: Screen,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    csv: Annotated[
        Path | None, typer.Option(help="The table; BATCH-report.csv by default.", show_default=False)
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="The page; BATCH-report.html by default.", show_default=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace reports that are there.")] = False,
) -> Exit:
    """Write what became of every order: a CSV table, and one HTML page to print and to file.

    Names and numbers are masked in both, unless --show-personal is given. The page shows the first 10,000 orders, and
    as many of those that need a person or were not paid; its totals are of all of them, and the table has every one.
    Only a report is ever replaced (--overwrite): never the journal, a batch file or anything else.

    Example: payments-async bulk report --journal payroll.sqlite --batch-id payroll-2026-11
    """
    async with opened(journal) as held:
        name = await chosen_batch(held, batch_id)
        both = csv is None and html is None
        stem = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "batch"
        try:
            written = await report(
                held, name, csv=Path(f"{stem}-report.csv") if both else csv,
                html=Path(f"{stem}-report.html") if both else html,
                personal=screen.show_personal, overwrite=overwrite,
            )  # fmt: skip
        except FileExistsError as error:
            raise BadInput(
                f"{clean(str(error)).partition(';')[0]}; nothing was written; --overwrite replaces it"
            ) from error
        except ValueError as error:
            raise BadInput(f"{clean(str(error))}; nothing was written") from error
        except OSError as error:
            raise BadInput(f"the report cannot be written: {clean(str(error))}") from error
        progress = await held.progress(name)
        unpaid = await unpaid_of(held, name, progress)
    for path in filter(None, (written.csv, written.html)):
        screen.say(f"wrote {escape(str(path))}")
    count = sum(share.count for share in written.by_state.values())
    style = "green" if written.standing == "final" and not (written.needing or written.unpaid) else "yellow"
    screen.say(f"{counted(count, 'order')}, [bold {style}]{written.standing}[/]")
    screen.say(f"not paid: {written.unpaid:,}; needing a person: {written.needing:,}")
    show_unpaid(screen, unpaid, progress)
    status = exit_after(progress)
    screen.document({"report": {**plain(written), "standing": written.standing}, "exit_status": status})
    return status


@attrs.frozen
class Unpaid:
    """An order that ended without being paid, and why."""

    entry: Entry
    why: str


async def unpaid_of(journal: SqliteJournal, batch_id: str, progress: Progress) -> list[Unpaid]:
    """The first orders of a batch that were refused, the first that failed and the first that came back."""
    found: list[Unpaid] = []
    for state in UNFORTUNATE:
        left = min(progress.counts[state], _SHOWN)
        if not left:
            continue
        async for entry in journal.entries(batch_id, state):
            found.append(Unpaid(entry, await _why(journal, entry)))
            left -= 1
            if not left:
                break
    return found


def show_unpaid(screen: Screen, unpaid: Sequence[Unpaid], progress: Progress) -> None:
    """Write the orders that were not paid, and why."""
    if not unpaid:
        return
    count = sum(progress.counts[state] for state in UNFORTUNATE)
    screen.say(f"\n[bold]Not paid, and why: {count:,}[/]")
    rows: list[list[str | Text]] = [
        [
            one.entry.request_id,
            Text(one.entry.state, STYLES[one.entry.state]),
            money(one.entry.amount, one.entry.order.currency),
            screen.person(one.entry.order.beneficiary.name),
            one.why,
        ]
        for one in unpaid
    ]
    screen.table(["Request id", "Outcome", "Amount", "Beneficiary", "Why"], rows, right=["Amount"])
    if count > len(unpaid):
        screen.say(f"and {count - len(unpaid):,} more; the files of `payments-async bulk report` have them all")


async def _why(journal: SqliteJournal, entry: Entry) -> str:
    """The service's words, or what told of the end where there are none."""
    words = " ".join(filter(None, ("" if entry.code is None else f"code {entry.code}:", entry.message or "")))
    if words:
        return words
    turns = [one for one in await journal.history(entry.request_id) if one.state is entry.state]
    return sentence(turns[0]) if turns else ""


def show_progress(screen: Screen, progress: Progress, currency: str | None) -> None:
    """Write the orders of a batch by state."""
    total = f"Sum {currency}" if currency else "Sum"
    rows: list[list[str | Text]] = [
        [Text(state, STYLES[state]), f"{progress.counts[state]:,}", money(progress.sums[state])]
        for state in State
        if progress.counts[state]
    ]
    sums = sum((progress.sums[state] for state in State), start=progress.sums[State.PLANNED] * 0)
    rows.append([Text("all", "bold"), f"{progress.total:,}", money(sums)])
    screen.table(["Outcome", "Orders", total], rows, right=["Orders", total])


def tell_next(
    screen: Screen,
    progress: Progress,
    journal: Path,
    batch_id: str | None,
    *,
    quarantined: int = 0,
    unpaid_are_shown: bool = False,
) -> None:
    """Write what is to be done next about a batch that stands so.

    Args:
        quarantined: Its chunks that wait for a person.
        unpaid_are_shown: Those that were not paid have been named already.
    """
    counts = progress.counts
    unpaid = sum(counts[state] for state in UNFORTUNATE)
    if unpaid and not unpaid_are_shown:
        screen.say(f"\nOrders that were not paid: {unpaid:,}. Which, and why:")
        screen.command(command_line("bulk status", journal=journal, batch_id=batch_id))
    open_ = counts[State.ACCEPTED] + counts[State.UNKNOWN]
    if open_ and not quarantined:
        line = command_line("bulk reconcile", journal=journal, batch_id=batch_id)
        screen.say(f"\nOrders without a final outcome yet: {open_:,}. To look them up:")
        screen.command(line)
    if progress.unconfirmed:
        screen.say(
            f"\nOrders notified, not confirmed: {progress.unconfirmed:,}. They move once the service's own record "
            "bears the notification out; the receiver asks for it again and again."
        )
    if counts[State.PARKED]:
        line = f"{command_line('bulk write-off', journal=journal)} REQUEST_ID --who NAME --why REASON"
        screen.say(
            f"\nOrders that were not found, or never sent and yet told of: {counts[State.PARKED]:,}. Ask the service "
            "about each; for one that it surely never had:"
        )
        screen.command(line)
    if progress.conflicts:
        line = f"{command_line('bulk acknowledge', journal=journal)} REQUEST_ID --who NAME --why REASON"
        screen.say(
            f"\nOrders with evidence against evidence: {progress.conflicts:,}. Ask the service about each; once you "
            "know what is true:"
        )
        screen.command(line)
    if quarantined:
        screen.say(
            "\nChunks in quarantine, since the journal was copied or restored, or its orders were adopted: "
            f"{quarantined:,}. What it calls planned may have been sent. Look for all of it:"
        )
        screen.command(command_line("bulk reconcile", journal=journal, batch_id=batch_id))
        screen.say("Then, for what the service never had:")
        line = command_line("bulk lift-quarantine", journal=journal, batch_id=batch_id)
        screen.command(f"{line} --who NAME --why REASON")


def progress_document(progress: Progress) -> dict[str, object]:
    """Counts and sums for machines."""
    outcomes = {state: {"orders": progress.counts[state], "sum": progress.sums[state]} for state in State}
    return {
        "orders": progress.total,
        "conflicts": progress.conflicts,
        "unconfirmed": progress.unconfirmed,
        "outcomes": outcomes,
    }


async def _show_all(screen: Screen, journal: SqliteJournal) -> Exit:
    rows, batches = [], []
    for run in await journal.runs():
        progress = await journal.progress(run.batch_id)
        standing = ", ".join(f"{progress.counts[state]:,} {state}" for state in State if progress.counts[state])
        rows.append([run.batch_id, f"{run.total:,}", money(run.amount), standing])
        batches.append({"batch_id": run.batch_id, "ready": run.ready, "progress": progress_document(progress)})
    screen.table(["Batch", "Orders", "Sum", "Outcomes"], rows, right=["Orders", "Sum"])
    status = exit_after(await journal.progress())
    screen.document({"batches": batches, "exit_status": status})
    return status


async def currency_of(journal: SqliteJournal, batch_id: str) -> str | None:
    """What the first order of a batch is in; the others are too, or its plan would have had a problem."""
    async for entry in journal.entries(batch_id):
        return entry.order.currency
    return None


async def _needing(journal: SqliteJournal, batch_id: str) -> AsyncIterator[Entry]:
    told: set[str] = set()
    for entries in (
        journal.conflicts(batch_id),
        journal.entries(batch_id, State.PARKED),
        journal.entries(batch_id, State.UNKNOWN),
    ):
        async for entry in entries:
            if len(told) == _SHOWN:
                return
            if entry.request_id not in told:
                told.add(entry.request_id)
                yield entry


def _show_needing(screen: Screen, entries: list[Entry]) -> None:
    if not entries:
        return
    screen.say("\n[bold magenta]Need a person[/]")
    rows: list[list[str | Text]] = [
        [
            entry.request_id,
            Text(entry.state, STYLES[entry.state]),
            money(entry.amount, entry.order.currency),
            screen.person(entry.order.beneficiary.name),
            entry.conflict or entry.message or "",
        ]
        for entry in entries
    ]
    screen.table(["Request id", "Outcome", "Amount", "Beneficiary", "Why"], rows, right=["Amount"])
    if len(entries) == _SHOWN:
        screen.say("there may be more; `payments-async bulk report` shows them all")

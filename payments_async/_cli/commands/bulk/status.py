"""`payments-async bulk status`: how a batch stands."""

from collections.abc import Sequence
from typing import Annotated

import typer

from payments_async._cli.batch_state import (
    BATCH_COLUMNS,
    batch_row,
    currency_of,
    deadlines_in_words,
    exit_after,
    progress_document,
    reasons,
    reasons_document,
    show_archives,
    show_progress,
    show_reasons,
    silence,
    tell_next,
)
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.finding import found_by, found_document, show_found
from payments_async._cli.journal import AnyBatch, JournalFile, JournalPlace, chosen_batch, named, opened
from payments_async._cli.screen import Screen, clean, command_line, counted, money, quoted
from payments_async.journal import Journal

_ROOM = 8  # lines of a screen of 25 for reasons


async def bulk_status(
    screen: Screen,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    find: Annotated[
        str | None, typer.Option(metavar="PERSON", help="Orders of a name, a telephone or staff number.")
    ] = None,
) -> Exit:
    """Show how a batch stands, and why orders need a person or are not paid; without --batch-id, all batches.

    Example: payments-async bulk status --journal payroll.sqlite --batch-id payroll-2026-11
    """
    journal = named(journal)
    async with opened(journal) as held:
        runs = await held.runs()
        if find is not None:
            return await _found(screen, held, find, batch_id)
        forgotten = await held.forgotten()
        _tell_forgotten(screen, forgotten)
        if batch_id is None and len(runs) != 1:
            return await _show_all(screen, held, forgotten, journal)
        name = await chosen_batch(held, batch_id)
        run, progress = await held.run(name), await held.progress(name)
        needing = await reasons(held, name, "needs a person", progress)
        unpaid = await reasons(held, name, "not paid", progress)
        unknown_transactions = await held.unmatched_events()
        currency = await currency_of(held, name)
        kept, deadlines = await held.archives(), await held.listing_words()
        unheard = await silence(held, name)
    loaded = "" if run.ready else "; it is not complete, so nothing of it is sent: run its file again, or cancel it"
    screen.say(f"[bold]{quoted(name)}[/]: {counted(run.total, 'payout')}, {money(run.amount, currency)}{loaded}")
    show_progress(screen, progress, currency)
    if run.archived:
        screen.say(f"\nOf these, {counted(run.archived, 'order')} ended long ago and left the journal for an archive:")
        show_archives(screen, kept)
    show_reasons(screen, needing, unpaid, room=_ROOM)
    if needing or unpaid:
        screen.say("Each of them, in a table and on a page: `bulk report`; of one: `explain`")
    if unheard:
        screen.say(f"[yellow]{quoted(unheard)}[/]")
    if deadlines:
        screen.say(f"\nListing deadline: {quoted(deadlines_in_words(deadlines) or '')}")
    if unknown_transactions:
        screen.say(f"\nNotifications about orders that this journal never sent: {unknown_transactions:,}")
    tell_next(screen, progress, journal, name, quarantined=run.quarantined, unpaid_are_shown=True)
    status = exit_after(progress, quarantined=run.quarantined or len(forgotten))
    return screen.ended(
        status,
        {
            "batch_id": name,
            "forgotten": forgotten,
            "ready": run.ready,
            "digest": run.source_digest,
            "progress": progress_document(progress),
            "need_a_person": reasons_document(needing),
            "not_paid": reasons_document(unpaid),
            "unmatched_notifications": unknown_transactions,
            "silence": unheard,
            "listing_deadlines": deadlines,
            "chunks_in_quarantine": run.quarantined,
            "archived": run.archived,
        },
    )


async def _found(screen: Screen, journal: Journal, text: str, batch_id: str | None) -> Exit:
    """Show the orders of a person. Raises ``BadInput`` where there are none."""
    found = await found_by(journal, text, batch_id and await chosen_batch(journal, batch_id))
    if not found:
        raise BadInput(f"--find: the journal pays no person of this name or number: {clean(text)}")
    await show_found(screen, journal, found)
    return screen.ended(Exit.FINE, {"found": found_document(found)})


def _tell_forgotten(screen: Screen, forgotten: Sequence[str]) -> None:
    """Say which batches the journal lacks that this machine saw in it, and what to do."""
    if not forgotten:
        return
    screen.say(
        f"[bold red]This journal has forgotten {quoted(', '.join(forgotten))}[/]: a backup was put back, or it is a "
        "copy. What it forgot may have been paid. Go on with the newer file; without one, look in the service's list:"
    )
    screen.command(command_line("transactions"))
    screen.say()


async def _show_all(screen: Screen, journal: Journal, forgotten: Sequence[str], place: JournalPlace | None) -> Exit:
    rows, batches, runs = [], [], await journal.runs()
    for run in runs:
        progress = await journal.progress(run.batch_id)
        rows.append(await batch_row(journal, run, progress))
        batches.append(
            {
                "batch_id": run.batch_id,
                "ready": run.ready,
                "progress": progress_document(progress),
                "chunks_in_quarantine": run.quarantined,
            }
        )
    screen.table(BATCH_COLUMNS, rows, right=["Orders", "Sum"])
    if any(run.quarantined for run in runs):
        screen.say("\nIn quarantine: the journal was copied or restored, or orders were adopted. Look for all of them:")
        screen.command(command_line("bulk reconcile", journal=place))
    status = exit_after(await journal.progress(), quarantined=len(forgotten) + sum(run.quarantined for run in runs))
    return screen.ended(status, {"batches": batches, "forgotten": forgotten})

"""`payments-async outbox status`: how an outbox stands, whoever works it."""

import time
from collections.abc import Mapping

from payments_async._cli.batch_state import (
    BATCH_COLUMNS,
    SHOWN,
    batch_row,
    common_currency,
    deadlines_in_words,
    first,
    needing,
    show_archives,
    show_entries,
    show_progress,
    silence,
)
from payments_async._cli.exit_codes import Exit
from payments_async._cli.journal import JournalFile, JournalPlace, opened
from payments_async._cli.outbox_state import (
    AnyOutbox,
    chosen_outbox,
    exit_after,
    health_document,
    moment,
    rate_in_words,
)
from payments_async._cli.screen import Screen, command_line, counted, quoted
from payments_async.journal import State
from payments_async.outbox import OutboxHealth

_LABELS = {
    "paused": "paused",
    "awaits_lists": "sends nothing yet",
    "chunks_in_quarantine": "in quarantine",
    "batches_not_loaded": "not loaded whole",
    "unknown_transactions": "not of this journal",
    "unmatched_notifications": "heard of",
    "failing_handlers": "trouble",
    "orphaned_changes": "without a handler",
    "slowed": "slowed",
}


async def outbox_status(screen: Screen, journal: JournalFile = None, name: AnyOutbox = None) -> Exit:
    """Show how an outbox stands: its orders, who paused it and why, since when what waits, and what needs a person.

    Exit status: 0 nothing needs a person; 4 some orders are unknown, parked, in conflict, in quarantine, or could not
    be taken, a batch is not loaded whole, or handlers failed too often; 5 it is paused. Refused and failed orders alone
    are 0: an outbox keeps them.

    Example: payments-async outbox status --journal shop.sqlite --json
    """
    async with opened(journal) as held:
        name = await chosen_outbox(held, name)
        state, oldest = await OutboxHealth.of(held, name), await held.oldest(name)
        runs = [run for run in await held.runs() if run.outbox == name]
        currency = await common_currency(held, runs)
        others = [run for run in runs if run.batch_id != name]
        batches = [await batch_row(held, run, await held.progress(run.batch_id)) for run in others]
        found = await needing(held, [run.batch_id for run in runs], [State.PARKED])
        dead = await first(change async for change in held.dead_changes() if change.outbox == name)
        kept = await held.archives()
        untaken = await held.laid(name, limit=SHOWN, stuck=True)
        unheard = await silence(held)
    _show(screen, state, oldest, currency)
    if unheard:
        screen.say(f"[yellow]{quoted(unheard)}[/]")
    if archived := sum(run.archived for run in runs):
        screen.say(f"Of these, {counted(archived, 'order')} ended long ago and left the journal for an archive:")
        show_archives(screen, kept)
    if batches:
        screen.table(BATCH_COLUMNS, batches, right=["Orders", "Sum"])
    if found:
        screen.say("\n[bold magenta]Need a person[/]")
        show_entries(screen, found, currency)
    lines = (f"{change.id:>8}  {change.request_id}  {change.state}  {change.error or ''}" for change in dead)
    screen.listing("\n[bold red]Handlers failed too often[/]", lines, state.handlers.dead)
    lines = (f"{one.request_id}  {one.problem}" for one in untaken)
    screen.listing("\n[bold red]Put, and could not be taken[/]", lines, state.counts["orders_untaken"])
    assert journal is not None
    _tell_next(screen, state, journal)
    status = exit_after(state)
    return screen.ended(
        status,
        {
            **health_document(state),
            "silence": unheard,
            "oldest": {one: {"since": at, "seconds": time.time() - at} for one, at in oldest.items()},
            "dead": [
                {"id": one.id, "request_id": one.request_id, "state": one.state, "error": one.error} for one in dead
            ],
            "untaken_orders": [
                {"request_id": one.request_id, "amount": one.amount, "why": one.problem} for one in untaken
            ],
            "archived": sum(run.archived for run in runs),
            "batches": [run.batch_id for run in others],
            "need_a_person": [
                {"request_id": one.request_id, "state": one.state, "amount": one.amount, "conflict": one.conflict}
                for one, _ in found
            ],
        },
    )


def _show(screen: Screen, state: OutboxHealth, oldest: Mapping[State, float], currency: str | None) -> None:
    """Write the figures."""
    screen.say(f"[bold]{quoted(state.name)}[/]: {counted(state.progress.total, 'order')}\n")
    show_progress(screen, state.progress, currency)
    screen.say()
    cools = state.pace.cools_until
    screen.fields(
        [
            *((_LABELS[one.code], one.what) for one in state.problems if one.code in _LABELS),
            ("rate", rate_in_words(state.pace)),
            ("listing deadline", deadlines_in_words(state.deadlines)),
            ("the service wants a pause", None if cools is None else f"until {moment(cools)}: {state.pace.why}"),
            ("waits since", _since(oldest, State.PLANNED)),
            ("unknown since", _since(oldest, State.UNKNOWN)),
            ("parked since", _since(oldest, State.PARKED)),
            ("in staging", counted(state.staged, "order") if state.staged else None),
            ("for handlers", counted(state.handlers.pending, "change") if state.handlers.pending else None),
        ]
    )


def _subjects(state: OutboxHealth, code: str) -> list[str]:
    """What the problems of one kind are about."""
    return [name for one in state.problems if one.code == code for name in one.subjects]


def _since(oldest: Mapping[State, float], state: State) -> str | None:
    return None if state not in oldest else f"{moment(oldest[state])} (the oldest)"


def _tell_next(screen: Screen, state: OutboxHealth, journal: JournalPlace) -> None:
    """Write what is to be done next."""
    signed, counts = "--who NAME --why REASON", state.progress.counts
    if state.problem("paused"):
        screen.say("\nIt is paused, and sends nothing. Once it may go on:")
        screen.command(f"{command_line('outbox resume', journal=journal, name=state.name)} {signed}")
    if counts[State.PARKED]:
        screen.say("\nParked orders were not found. Ask the service about each; for one that it surely never had:")
        screen.command(f"{command_line('bulk send-again', journal=journal)} REQUEST_ID {signed}")
    if state.progress.conflicts:
        screen.say("\nOf evidence against evidence, ask the service; once you know what is true:")
        screen.command(f"{command_line('bulk acknowledge', journal=journal)} REQUEST_ID {signed}")
    if state.problem("chunks_in_quarantine") or state.problem("awaits_lists"):
        screen.say("\nThe journal was copied or restored; what it calls planned may have been sent. Look for it:")
        screen.command(f"{command_line('bulk reconcile', journal=journal)} --batch-id {state.name}")
        screen.say("Then, for what the service never had (and so for each of its batches in quarantine):")
        screen.command(f"{command_line('bulk lift-quarantine', journal=journal)} --batch-id {state.name} {signed}")
    for batch_id in _subjects(state, "batches_not_loaded"):
        words = "has broken off, and nothing of it is sent. Put its file again, as it was:"
        screen.say(f"\nLoading batch {quoted(batch_id)} {words}")
        screen.command(command_line("outbox put", "FILE", journal=journal, name=state.name, batch_id=batch_id))
    if state.problem("unmatched_notifications"):
        screen.say("\nOf a notification of an order that is not here, `explain` tells what is known by its request id:")
        screen.command(command_line("ipn list", journal=journal, unknown=True))
    if state.problem("orders_untaken"):
        screen.say(
            "\nOf orders that could not be taken: correct the cause, and begin to work the outbox again; or, for"
        )
        screen.say("one that shall not be sent, once what the application did for it is undone:")
        screen.command(f"{command_line('outbox drop', journal=journal, name=state.name)} REQUEST_ID {signed}")
    if state.handlers.dead:
        screen.say("\nOnce the application's handlers are mended, have them hear of it again:")
        screen.command(command_line("outbox replay", journal=journal, name=state.name))
    for one in _subjects(state, "orphaned_changes"):
        screen.say(f"\nChanges to {one} wait for a handler that no process has. Start the application that has it;")
        screen.say("only if none has one any more, let them go:")
        screen.command(f"{command_line('outbox forget', one, journal=journal, name=state.name)} {signed}")

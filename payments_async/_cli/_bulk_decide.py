"""`payments-async bulk reconcile`, and what a named person decides: `write-off`, `acknowledge`, `lift-quarantine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from payments_async._cli._bulk_journal import UNFORTUNATE, AnyBatch, JournalFile, chosen_batch, exit_after, opened
from payments_async._cli._bulk_state import currency_of, progress_document, show_progress, tell_next
from payments_async._cli._command import command
from payments_async._cli._exits import BadInput, Exit
from payments_async._cli._program import command_line
from payments_async._cli._question import confirmed
from payments_async._cli._screen import Screen, clean, counted, money
from payments_async._cli._settings import Settings
from payments_async.bulk import Reconciliation, reconcile, write_off
from payments_async.journal import Entry, Happening, JournalRefused, SqliteJournal, State

__all__ = ["add_decisions"]

Who = Annotated[str, typer.Option(help="Your name: you answer for it.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]
_SHOWN = 20


def add_decisions(group: typer.Typer) -> None:
    """Add the commands."""
    command(group, "reconcile")(bulk_reconcile)
    command(group, "write-off")(bulk_write_off)
    command(group, "acknowledge")(bulk_acknowledge)
    command(group, "lift-quarantine")(bulk_lift_quarantine)


async def bulk_reconcile(
    screen: Screen,
    settings: Settings,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds in which a sent order may still show up.")] = 900.0,
    sweeps: Annotated[int, typer.Option(min=2, help="Clean looks through the list before an order is parked.")] = 2,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between them.")] = 60.0,
    reversals: Annotated[bool, typer.Option("--reversals", help="Also look for successful orders reversed.")] = False,
) -> Exit:
    """Settle what is open by what the service shows. Sends nothing; what it cannot find is parked for a person.

    Example: payments-async bulk reconcile --journal payroll.sqlite --batch-id payroll-2026-11
    """
    async with opened(journal) as held, settings.session() as payments:
        name = None if batch_id is None else await chosen_batch(held, batch_id)
        before = await held.progress(name)
        runs = await held.runs()
        quarantined = [run.batch_id for run in runs if run.quarantined and name in (None, run.batch_id)]
        if quarantined:
            screen.note(
                f"{', '.join(map(clean, quarantined))}: in quarantine, since the journal was copied or restored; all "
                "orders are looked for in all days since they were written down, also those that seem not to be sent"
            )
        screen.note(
            f"looking for {before.counts[State.ACCEPTED]:,} accepted and {before.counts[State.UNKNOWN]:,} unknown "
            f"orders; an order that is not found is looked for {sweeps} times, {interval:g} s apart"
        )
        found = await reconcile(
            payments, held, name, grace=grace, sweeps=sweeps, interval=interval, reversals=reversals
        )
        progress = await held.progress(name)
        only = name or (runs[0].batch_id if len(runs) == 1 else None)
        currency = None if only is None else await currency_of(held, only)
        liftable = [one for one in quarantined if await held.is_looked_for(one, counted=True)]
    _show(screen, found)
    show_progress(screen, progress, currency)
    assert journal is not None
    if progress.conflicts or any(progress.counts[state] for state in (State.PARKED, *UNFORTUNATE)):
        tell_next(screen, progress, journal, name)
    for one in liftable:
        screen.say(f"\nBatch {escape(clean(one))} was looked for; what the list did not show may be sent again:")
        screen.command(f"{command_line('bulk lift-quarantine', journal=journal, batch_id=one)} --who NAME --why REASON")
        screen.say("A list may show an order minutes late: if one may have been sent just now, reconcile again first.")
    status = exit_after(progress)
    if found.unread:
        status = Exit.STOPPED
        screen.trouble(
            "; ".join(found.unread), f"go on with: {command_line('bulk reconcile', journal=journal, batch_id=name)}"
        )
    document = {
        "settled": found.settled,
        "found": found.found,
        "unknown": found.unknown,
        "parked": found.parked,
        "conflicts": found.conflicts,
        "stuck": found.stuck,
        "strangers": [{"transaction_id": one.transaction_id, "request_id": one.request_id} for one in found.strangers],
        "strangers_seen": found.strangers_seen,
        "differences": found.differences,
        "doubles": found.doubles,
        "unread": found.unread,
        "notes": found.notes,
        "progress": progress_document(progress),
        "exit_status": status,
    }
    screen.document(document)
    return status


async def bulk_write_off(
    screen: Screen,
    request_id: Annotated[str, typer.Argument(help="A parked order.", show_default=False)],
    who: Who,
    why: Annotated[str, typer.Option(help="What makes you sure, such as the service's letter.")],
    journal: JournalFile = None,
    yes: Yes = False,
) -> Exit:
    """State that a parked order never reached the service. The next run sends it again.

    Ask the service first: if it has the order after all, it will be paid twice. A notification about it that was known
    until now is thereby called false.

    Example: payments-async bulk write-off PAY-17 --who "A. Clerk" --why "letter of 3 May" --journal payroll.sqlite
    """
    _check(who, why)
    async with opened(journal) as held:
        entry = await _shown(screen, held, request_id)
        if entry.state is not State.PARKED:
            raise BadInput(f"{request_id} is {entry.state}; only a parked order can be written off: reconcile first")
        contradictions = _contradictions(await held.history(request_id)) if entry.conflict is not None else []
        for words in contradictions:
            screen.say(f"[bold red]called false by this[/]  {escape(clean(words))}")
        if not yes and not confirmed(screen, "Did it surely never reach the service? It will be sent again."):
            return _unchanged(screen, request_id=request_id)
        try:
            now = await write_off(held, request_id, who, why, seen=entry.updated_at)
        except JournalRefused as error:
            raise BadInput(str(error)) from error
    screen.say(
        f"{escape(clean(request_id))} is {now.state} again, as {escape(clean(who))} states: {escape(clean(why))}"
    )
    screen.say(f"The next run of batch {escape(clean(now.batch_id))} sends it. Its whole story:")
    screen.command(command_line("explain", request_id, journal=journal))
    screen.document({"request_id": request_id, "state": now.state, "who": who, "why": why, "exit_status": Exit.FINE})
    return Exit.FINE


async def bulk_acknowledge(
    screen: Screen,
    request_id: Annotated[str, typer.Argument(help="An order with evidence against evidence.", show_default=False)],
    who: Who,
    why: Annotated[str, typer.Option(help="What is true, and how you know, such as the service's letter.")],
    journal: JournalFile = None,
    yes: Yes = False,
) -> Exit:
    """State that you have seen the contradiction about an order. It is counted no more; its story keeps it.

    Nothing is sent, and the order stays as it is. Ask the service first what is true.

    Example: payments-async bulk acknowledge PAY-17 --who "A. Clerk" --why "letter of 3 May" --journal payroll.sqlite
    """
    _check(who, why)
    async with opened(journal) as held:
        entry = await _shown(screen, held, request_id)
        if entry.conflict is None:
            raise BadInput(f"nothing contradicts {request_id}, or somebody has acknowledged it; see `explain`")
        contradictions = _contradictions(await held.history(request_id)) or [entry.conflict]
        for words in contradictions:
            screen.say(f"[bold red]contradiction[/]  {escape(clean(words))}")
        if not yes and not confirmed(screen, f"Do you know what is true, and may it stay {entry.state}?"):
            return _unchanged(screen, request_id=request_id)
        now = await held.acknowledge(request_id, who=who, why=why, seen=entry.updated_at)
    screen.say(f"{escape(clean(request_id))} stays {now.state}, as {escape(clean(who))} states: {escape(clean(why))}")
    if now.conflict is not None:
        screen.trouble(f"meanwhile there is another contradiction, to be acknowledged as well: {clean(now.conflict)}")
    status = Exit.FINE if now.conflict is None else Exit.UNKNOWN
    screen.document(
        {
            "request_id": request_id, "state": now.state, "contradictions": contradictions, "who": who, "why": why,
            "later_contradiction": now.conflict, "exit_status": status,
        }
    )  # fmt: skip
    return status


async def bulk_lift_quarantine(
    screen: Screen,
    who: Who,
    why: Annotated[str, typer.Option(help="How the orders were looked up, such as the service's statement.")],
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    yes: Yes = False,
) -> Exit:
    """State that the orders of a batch were looked up after its journal was copied or restored. It may go on then.

    An older journal does not know what was sent since: an order that it calls planned may have been paid. So reconcile
    first: it looks for all of them, and without that nothing is lifted. Then compare what is still planned with the
    service's own statement, for a list may show an order late; what was paid after all is paid again.

    Example: payments-async bulk lift-quarantine --who "A. Clerk" --why "statement of 3 May" --journal payroll.sqlite
    """
    _check(who, why)
    async with opened(journal) as held:
        name = await chosen_batch(held, batch_id)
        run, progress = await held.run(name), await held.progress(name)
        if not run.quarantined:
            raise BadInput(f"no chunk of batch {clean(name)} is in quarantine; nothing was changed")
        if not await held.is_looked_for(name, counted=True):
            assert journal is not None
            raise BadInput(
                f"batch {clean(name)} was not looked for since the journal was copied or restored: an order that it "
                "calls planned may have been paid. Nothing was changed. Look for them first:\n"
                f"  {command_line('bulk reconcile', journal=journal, batch_id=name)}"
            )
        screen.fields([("batch", name), ("chunks in quarantine", f"{run.quarantined:,}")])
        show_progress(screen, progress, await currency_of(held, name))
        planned = progress.counts[State.PLANNED]
        question = f"Was none of these planned orders sent since: {planned:,}? The next run sends them."
        if not yes and not confirmed(screen, question):
            return _unchanged(screen, batch_id=name)
        lifted = await held.lift_quarantine(name, who=who, why=why)
    screen.say(f"{counted(lifted, 'chunk')} may be sent again, as {escape(clean(who))} states: {escape(clean(why))}")
    screen.document({"batch_id": name, "chunks": lifted, "who": who, "why": why, "exit_status": Exit.FINE})
    return Exit.FINE


def _check(who: str, why: str) -> None:
    if not who.strip() or not why.strip():
        raise BadInput("--who and --why: say who states it, and what makes you sure; both are kept")


async def _shown(screen: Screen, journal: SqliteJournal, request_id: str) -> Entry:
    """The order that is to be decided on, after it was shown."""
    entry = await journal.entry(request_id)
    if entry is None:
        raise BadInput(f"the journal holds no order {clean(request_id)}; check the id")
    screen.fields(
        [
            ("order", entry.request_id),
            ("amount", money(entry.amount, entry.order.currency)),
            ("beneficiary", screen.person(entry.order.beneficiary.name)),
            ("batch", entry.batch_id),
            ("stands", entry.state),
        ]
    )
    return entry


def _contradictions(story: Sequence[Happening]) -> list[str]:
    """All that nobody has acknowledged yet."""
    found: list[str] = []
    for happening in story:
        if happening.what == "resolution" and happening.news is None:
            found = []
        elif happening.conflict and happening.conflict not in found:
            found.append(happening.conflict)
    return found


def _unchanged(screen: Screen, **about: str) -> Exit:
    screen.trouble("nothing was changed")
    screen.document({**about, "exit_status": Exit.STOPPED})
    return Exit.STOPPED


def _show(screen: Screen, found: Reconciliation) -> None:
    settled = ", ".join(f"{count:,} {state}" for state, count in found.settled.items() if count)
    screen.say(f"settled: {settled or 'nothing'}\n")
    if found.found:
        screen.say(f"already there, unknown to this journal, and not sent: {counted(found.found, 'order')}\n")
    _names(screen, "parked now: not found, a person has to decide", found.parked)
    _names(screen, "still unknown: never send them again", found.unknown)
    _names(screen, "in conflict: evidence contradicts", found.conflicts)
    _names(screen, "accepted long ago and not final: ask the service", found.stuck)
    differences = [
        f"{one.request_id}: {money(one.ours, one.our_currency)} here, {money(one.theirs, one.their_currency)} there"
        for one in found.differences
    ]
    _names(screen, "amounts that differ", differences)
    doubles = [f"{one.request_id}: {', '.join(one.transaction_ids)}" for one in found.doubles]
    _names(screen, "more than one transaction: it may have been paid twice; ask the service", doubles)
    strangers = [f"{one.transaction_id} ({one.request_id or 'no request id'})" for one in found.strangers]
    _names(screen, f"{counted(found.strangers_seen, 'transaction')} that this journal never sent", strangers)
    for note in found.notes:
        if note not in found.unread:  # that is said at the end
            screen.note(note)


def _names(screen: Screen, title: str, names: tuple[str, ...] | list[str]) -> None:
    if not names:
        return
    screen.say(f"[bold]{escape(title)}[/]")
    for name in names[:_SHOWN]:
        screen.say(f"  {escape(clean(name))}")
    if len(names) > _SHOWN:
        screen.say(f"  and {len(names) - _SHOWN:,} more; --json shows them")
    screen.say()

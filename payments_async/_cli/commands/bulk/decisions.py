"""`payments-async bulk write-off`, `acknowledge` and `lift-quarantine`: what a named person decides."""

from collections.abc import Sequence
from typing import Annotated

import typer

from payments_async._cli.batch_state import currency_of, show_progress
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import AnyBatch, JournalFile, chosen_batch, opened
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen, clean, counted, money, quoted
from payments_async.bulk import acknowledge, lift_quarantine, write_off
from payments_async.journal import Entry, Happening, Journal, JournalRefused, State

Who = Annotated[str, typer.Option(help="Your name: you answer for it.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


async def bulk_write_off(
    screen: Screen,
    request_id: Annotated[str, typer.Argument(help="A parked order.")],
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
            screen.say(f"[bold red]called false by this[/]  {quoted(words)}")
        if not yes and not screen.confirmed("Did it surely never reach the service? It will be sent again."):
            return _unchanged(screen, request_id=request_id)
        try:
            now = await write_off(held, request_id, who, why, seen=entry.updated_at)
        except JournalRefused as error:
            raise BadInput(str(error)) from error
    screen.say(f"{quoted(request_id)} is {now.state} again, as {quoted(who)} states: {quoted(why)}")
    screen.say(f"The next run of batch {quoted(now.batch_id)} sends it. Its whole story:")
    screen.command(command_line("explain", request_id, journal=journal))
    screen.document({"request_id": request_id, "state": now.state, "who": who, "why": why, "exit_status": Exit.FINE})
    return Exit.FINE


async def bulk_acknowledge(
    screen: Screen,
    request_id: Annotated[str, typer.Argument(help="An order with evidence against evidence.")],
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
            screen.say(f"[bold red]contradiction[/]  {quoted(words)}")
        if not yes and not screen.confirmed(f"Do you know what is true, and may it stay {entry.state}?"):
            return _unchanged(screen, request_id=request_id)
        now = await acknowledge(held, request_id, who, why, seen=entry.updated_at)
    screen.say(f"{quoted(request_id)} stays {now.state}, as {quoted(who)} states: {quoted(why)}")
    if now.conflict is not None:
        screen.trouble(f"meanwhile there is another contradiction, to be acknowledged as well: {clean(now.conflict)}")
    status = Exit.FINE if now.conflict is None else Exit.UNKNOWN
    screen.document(
        {
            "request_id": request_id,
            "state": now.state,
            "contradictions": contradictions,
            "who": who,
            "why": why,
            "later_contradiction": now.conflict,
            "exit_status": status,
        }
    )
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
        if not yes and not screen.confirmed(question):
            return _unchanged(screen, batch_id=name)
        lifted = await lift_quarantine(held, name, who, why)
    screen.say(f"{counted(lifted, 'chunk')} may be sent again, as {quoted(who)} states: {quoted(why)}")
    screen.document({"batch_id": name, "chunks": lifted, "who": who, "why": why, "exit_status": Exit.FINE})
    return Exit.FINE


def _check(who: str, why: str) -> None:
    """Refuse a decision that nobody answers for, or without a reason."""
    if not who.strip() or not why.strip():
        raise BadInput("--who and --why: say who states it, and what makes you sure; both are kept")


async def _shown(screen: Screen, journal: Journal, request_id: str) -> Entry:
    """The order that is to be decided on, after it was shown."""
    entry = await journal.entry(request_id)
    if entry is None:
        gone = (await journal.archived_of([request_id])).get(request_id)
        if gone is not None:
            raise BadInput(f"{clean(request_id)} ended long ago ({gone.state}), and is in an archive: see `explain`")
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

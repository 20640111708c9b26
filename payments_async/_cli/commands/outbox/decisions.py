"""What a person decides about an outbox: `outbox pause`, `resume`, `cancel`, `replay`, `forget` and `drop`."""

from typing import Annotated

import typer

from payments_async._cli.agreement import cancel_all
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import JournalFile, opened
from payments_async._cli.outbox_state import AnyOutbox, chosen_outbox, moment, pause_document
from payments_async._cli.screen import Screen, counted, quoted
from payments_async.journal import JournalRefused, State

Who = Annotated[str, typer.Option(help="Your name: you answer for it.")]


async def outbox_pause(
    screen: Screen,
    who: Who,
    why: Annotated[str, typer.Option(help="The reason, for the people who find it paused.")],
    journal: JournalFile = None,
    name: AnyOutbox = None,
) -> Exit:
    """Let nothing more be sent from an outbox, by any process, until somebody resumes it. Orders are taken as ever.

    What is under way is finished. It takes each process a second to hear of it.

    Example: payments-async outbox pause --who "A. Clerk" --why "the account is checked" --journal shop.sqlite
    """
    async with opened(journal) as held:
        name = await chosen_outbox(held, name)
        before = await held.paused(name)
        await held.pause(name, who=who, why=why)
        paused = await held.paused(name)
    if before is None:
        screen.say(f"{quoted(name)} is paused, as {quoted(who)} states: {quoted(why)}")
    else:
        by = f"by {quoted(before.who)} on {moment(before.at)}"
        screen.say(f"{quoted(name)} was paused already, {by}: {quoted(before.why)}")
    return screen.ended(Exit.FINE, {"outbox": name, "paused": pause_document(paused), "was_paused": before is not None})


async def outbox_resume(
    screen: Screen,
    who: Who,
    why: Annotated[str, typer.Option(help="Why it may send again; kept.")],
    journal: JournalFile = None,
    name: AnyOutbox = None,
) -> Exit:
    """Let an outbox send again, as a named person: also after a rule such as --max-per-day has paused it.

    What was sent today counts no more for --max-per-day, nor the failures of before for --max-error-rate.

    Example: payments-async outbox resume --who "A. Clerk" --why "the service is up again" --journal shop.sqlite
    """
    async with opened(journal) as held:
        name = await chosen_outbox(held, name)
        before = await held.paused(name)
        was_paused = await held.resume(name, who=who, why=why)
    if before is not None and was_paused:
        screen.say(f"paused by {quoted(before.who)}: {quoted(before.why)}")
        screen.say(f"{quoted(name)} goes on, as {quoted(who)} states: {quoted(why)}")
    else:
        screen.say(f"{quoted(name)} was not paused; nothing was changed")
    return screen.ended(Exit.FINE, {"outbox": name, "was_paused": was_paused, "paused": pause_document(before)})


async def outbox_cancel(
    screen: Screen,
    request_ids: Annotated[list[str], typer.Argument(metavar="REQUEST_ID", help="Orders that were not sent yet.")],
    who: Who,
    why: Annotated[str, typer.Option(help="The reason, such as a customer who has left; kept.")],
    journal: JournalFile = None,
) -> Exit:
    """Cancel orders that were not sent yet, also those for a later moment: they are never sent.

    What may have left cannot be called back: it is named with its state, and the exit status is 3. Each order is
    decided by itself.

    Example: payments-async outbox cancel W-17 --who "A. Clerk" --why "ordered twice" --journal shop.sqlite
    """
    async with opened(journal) as held:
        return await cancel_all(screen, held, list(dict.fromkeys(request_ids)), who=who, why=why)


async def outbox_drop(
    screen: Screen,
    request_id: Annotated[str, typer.Argument(help="As `outbox status` shows it.")],
    who: Who,
    why: Annotated[str, typer.Option(help="What became of it instead; kept.")],
    journal: JournalFile = None,
    name: AnyOutbox = None,
) -> Exit:
    """Forget an order of an application's own transaction that could not be taken: it is never sent.

    What the application did for it, such as a debit, is not undone by this.

    Example: payments-async outbox drop W-17 --who "A. Clerk" --why "credited again" --journal postgresql://db/shop
    """
    async with opened(journal) as held:
        name = await chosen_outbox(held, name)
        try:
            await held.discard_staged(name, request_id, who=who, why=why)
        except JournalRefused as error:
            raise BadInput(f"REQUEST_ID: {error.message}") from error
    screen.say(f"{quoted(request_id)} is forgotten, as {quoted(who)} states: {quoted(why)}")
    return screen.ended(Exit.FINE, {"outbox": name, "request_id": request_id})


async def outbox_replay(
    screen: Screen,
    change_id: Annotated[int | None, typer.Argument(help="As `outbox status` shows it; else all.")] = None,
    journal: JournalFile = None,
    name: AnyOutbox = None,
) -> Exit:
    """Have handlers that failed too often hear of a change again, or of all of them: the application handles them.

    Example: payments-async outbox replay 17 --journal shop.sqlite
    """
    async with opened(journal) as held:
        name = await chosen_outbox(held, name)
        dead = [change.id async for change in held.dead_changes() if change.outbox == name]
        if change_id is not None and change_id not in dead:
            raise BadInput(f"CHANGE_ID: no dead letter {change_id}; `payments-async outbox status` shows them")
        count = sum([await held.revive_changes(one) for one in (dead if change_id is None else [change_id])])
    screen.say(f"waiting again, for the application on this journal: {counted(count, 'change')}")
    return screen.ended(Exit.FINE, {"waiting_again": count})


async def outbox_forget(
    screen: Screen,
    state: Annotated[State, typer.Argument(help="Which state, as `outbox status` shows it.")],
    who: Who,
    why: Annotated[str, typer.Option(help="Why no handler needs to run; kept.")],
    journal: JournalFile = None,
    name: AnyOutbox = None,
) -> Exit:
    """Let changes go that wait for handlers of a state, where no application has such a handler any more.

    It is refused as long as a process asks for them. The orders themselves stay as they are.

    Example: payments-async outbox forget rejected --who "A. Clerk" --why "release 4 has no such handler"
    """
    async with opened(journal) as held:
        name = await chosen_outbox(held, name)
        try:
            count = await held.forget_changes(name, state, who=who, why=why)
        except ValueError as error:
            raise BadInput(f"STATE: {str(error).removeprefix('state: ')}") from error
    screen.say(f"let go, as {quoted(who)} states: {counted(count, 'change')} to {state}")
    return screen.ended(Exit.FINE, {"outbox": name, "state": state, "let_go": count})

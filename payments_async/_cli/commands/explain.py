"""`payments-async explain`: the whole story of one order in time, in sentences for somebody who was woken up."""

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import attrs
import typer

from payments_async import CollectionOrder
from payments_async._cli.batch_state import order_currency
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.finding import beside, found_by, show_found
from payments_async._cli.journal import JournalFile, named, opened
from payments_async._cli.next_steps import NextStep, may_be_paid_again, meaning_of, steps_for
from payments_async._cli.screen import Screen, clean, command_line, counted, money, quoted
from payments_async._cli.story import sentence
from payments_async.journal import ArchivedOrder, Happening, State

_NOT_OURS = "No: it may have been paid. Find out who ordered it before anybody pays it, under whatever id."
_FORGOTTEN = "No: it may have been paid. Not under another id either: find out what became of this one first."


async def explain(
    screen: Screen,
    request_id: Annotated[
        str, typer.Argument(metavar="ORDER|PERSON", help="Its id; or a name, a telephone or staff number.")
    ],
    journal: JournalFile = None,
) -> Exit:
    """Tell the whole story of one order: planned, sent, answered, notified, looked up, and which rule decided.

    At the end it says how the order stands, what is to be done, and whether it may be paid again. Of an order that the
    journal does not hold it tells what else is known: status 4 is that there is something, and 2 that there is not.
    A person is found by name, number, or a cell of the batch file; of several orders one is named by its id.

    Example: payments-async explain PAY-2611-000017 --journal payroll.sqlite
    """
    place = named(journal)
    async with opened(journal) as held:
        if (entry := await held.entry(request_id)) is None:
            gone = await held.archived_of([request_id])
            if request_id in gone:
                left = gone[request_id]
                again = await may_be_paid_again(held, left, left.late)
                return _tell_of_archived(screen, left, again)
            if traces := await held.traces(request_id):
                return _tell_of_stranger(screen, traces, request_id)
            found = await found_by(held, request_id)
            if not found:
                raise BadInput(
                    f"the journal holds no order {clean(request_id)}; check the id, and the journal. It pays no person "
                    "of this name or number either"
                )
            if len(found) > 1:
                await show_found(screen, held, found)
                raise BadInput(f"{counted(len(found), 'order')} found: name one by its id")
            (entry,) = found
        request_id = entry.request_id  # in the letters in which it was put
        story = await held.history(request_id)
        run = await held.run(entry.batch_id)
        paused = None if run.outbox is None else await held.paused(run.outbox)
        again = await may_be_paid_again(held, entry, story)
        particulars = await beside(screen, held, entry, run)
        currency = await order_currency(held, entry)
    order = entry.order
    direction = "from" if isinstance(order, CollectionOrder) else "to"
    screen.say(
        f"[bold]{quoted(request_id)}[/], {quoted(money(entry.amount, currency))} {direction} "
        f"{quoted(screen.person(order.beneficiary.name))}, batch {quoted(entry.batch_id)}: "
        f"[bold {entry.state.meaning.colour}]{entry.state}[/]"
    )
    if particulars:
        screen.say(quoted(particulars))
    _tell_all(screen, story)
    screen.say()
    screen.hanging("[bold]Now[/]  ", meaning_of(entry))
    if entry.conflict is not None:
        screen.hanging("     ", f"[bold red]Evidence contradicts[/]: {quoted(entry.conflict)}.")
    steps = steps_for(entry, run, paused, place)
    _tell_next(screen, steps, again)
    names = "request_id batch_id state amount attempt transaction_id code correlation_id conflict updated_at"
    known = {name: getattr(entry, name) for name in names.split()}
    known |= {"currency": currency, "meaning": meaning_of(entry), "pay_again": again}
    screen.document({**known, "next": steps, "story": story})
    return Exit.FINE


def _tell_next(screen: Screen, steps: Sequence[NextStep], again: str) -> None:
    """Tell what is to be done, and whether it may be paid once more."""
    for step in steps:
        screen.hanging("[bold]Do[/]   ", quoted(step.words))
        for line in step.commands:
            screen.command(f"   {line}")
    screen.hanging("[bold]Pay it again?[/]  ", quoted(again))


def _tell_of_stranger(screen: Screen, traces: Sequence[Happening], request_id: str) -> Exit:
    """Tell what is known of an order that the journal does not hold."""
    screen.say(f"[bold]{quoted(request_id)}[/]: the journal holds no such order, and yet it was heard of.")
    _tell_all(screen, traces)
    kinds = {"forgotten" if one.what == "registered" and one.by is None else one.what for one in traces}
    steps = [
        NextStep(words="Look for it with the service:", commands=(command_line("transactions", request_id=request_id),))
    ]
    if "registered" in kinds:
        steps.append(NextStep(words="Ask the journal that has it: the same command, with its --journal."))
    if "forgotten" in kinds:
        words = (
            "A list proves no absence, and this journal forgot what it sent: ask the service. Only an order that it "
            "surely never had may be put again, adopted by name: what is adopted is in quarantine first."
        )
        steps.append(NextStep(words=words))
    if "laid" in kinds:
        steps.append(NextStep(words="A worker of the outbox ingests it; `outbox status` tells what hinders."))
    again = _FORGOTTEN if "forgotten" in kinds else State.PLANNED.meaning.again if kinds == {"laid"} else _NOT_OURS
    screen.say()
    _tell_next(screen, steps, again)
    known = {"request_id": request_id, "state": None, "pay_again": again}
    return screen.ended(Exit.UNKNOWN, {**known, "next": steps, "story": traces})


def _tell_of_archived(screen: Screen, gone: ArchivedOrder, again: str) -> Exit:
    """Tell how an order ended that has left the journal, where its story is, and what was told of it since."""
    kept, ended = gone.archive, datetime.fromtimestamp(gone.updated_at, UTC)
    meaning = meaning_of(gone)
    screen.say(
        f"[bold]{quoted(gone.request_id)}[/], {quoted(money(gone.amount, gone.currency))}, batch "
        f"{quoted(gone.batch_id)}: [bold {gone.state.meaning.colour}]{gone.state}[/] "
        f"since {ended:%d %B %Y %H:%M:%S} UTC"
    )
    screen.say(f"\nIt left the journal for the archive {quoted(kept.path)}, which has its whole story:")
    screen.command(f"zcat {shlex.quote(kept.path)} | grep -F {shlex.quote(json.dumps(gone.request_id))}")
    for happening in gone.late:
        _tell(screen, datetime.fromtimestamp(happening.at, UTC), happening, gone.state)
    screen.say()
    screen.hanging("[bold]Now[/]  ", f"{meaning} It is never sent again.")
    screen.hanging("[bold]Pay it again?[/]  ", quoted(again))
    known = {**attrs.asdict(gone, recurse=False), "meaning": meaning, "pay_again": again}
    return screen.ended(Exit.FINE, {**known})


def _tell_all(screen: Screen, story: Sequence[Happening]) -> None:
    """Tell a story in time, with a line for each day."""
    day, before = "", None
    for happening in story:
        at = datetime.fromtimestamp(happening.at, UTC)
        if (today := f"{at:%A, %d %B %Y}, UTC") != day:
            day = today
            screen.say(f"\n[bold]{day}[/]")
        _tell(screen, at, happening, before)
        before = happening.state or before


def _tell(screen: Screen, at: datetime, happening: Happening, before: State | None) -> None:
    arrow = f" -> {happening.state}" if happening.state not in (None, before) else ""
    lead = f"  {at:%H:%M:%S}.{at.microsecond // 1000:03}  "
    screen.hanging(lead, f"{quoted(sentence(happening))}[bold]{arrow}[/]")
    space = " " * 16
    if happening.conflict:
        screen.hanging(space, f"[bold red]This contradicts what was known[/]: {quoted(happening.conflict)}.")
        screen.hanging(space, "It is kept, and never overwrites; a person has to find out what is true.")
    if happening.rule:
        screen.hanging(space, f"[dim]rule: {quoted(happening.rule)}[/]")

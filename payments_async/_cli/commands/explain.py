"""`payments-async explain`: the whole story of one order in time, in sentences for somebody who was woken up."""

import json
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import attrs
import typer

from payments_async import CollectionOrder
from payments_async._cli.batch_state import STYLES
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import JournalFile, opened
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen, clean, money, quoted
from payments_async._cli.story import sentence
from payments_async.journal import ArchivedOrder, Happening, State

_MEANS: Mapping[State, str] = {
    State.PLANNED: "It was not sent, or surely did not arrive. The next run of its batch sends it.",
    State.SENDING: "A worker holds the permit to send it, or died with it. Run its batch again to find out.",
    State.ACCEPTED: "The service has it; its end is not known yet. A notification or `bulk reconcile` settles it.",
    State.SUCCESSFUL: "It was paid.",
    State.FAILED: "The service took it, and then it failed: it was not paid.",
    State.REVERSED: "It was paid, and the money came back.",
    State.REJECTED: "The service refused it: it was not paid.",
    State.UNKNOWN: "It may have been paid. Never send it again under another id: `bulk reconcile` looks for it.",
    State.PARKED: "It may have been paid, and was not found. Ask the service; then `bulk write-off`, or wait.",
}


async def explain(
    screen: Screen, request_id: Annotated[str, typer.Argument(help="The order.")], journal: JournalFile = None
) -> Exit:
    """Tell the whole story of one order: planned, sent, answered, notified, looked up, and which rule decided.

    Example: payments-async explain PAY-2611-000017 --journal payroll.sqlite
    """
    async with opened(journal) as held:
        entry = await held.entry(request_id)
        if entry is None:
            gone = await held.archived_of([request_id])
            if request_id in gone:
                return _tell_of_archived(screen, gone[request_id])
            raise BadInput(f"the journal holds no order {clean(request_id)}; check the id, and the journal")
        story = await held.history(request_id)
    order = entry.order
    direction = "from" if isinstance(order, CollectionOrder) else "to"
    screen.say(
        f"[bold]{quoted(request_id)}[/], {quoted(money(entry.amount, order.currency))} {direction} "
        f"{quoted(screen.person(order.beneficiary.name))}, batch {quoted(entry.batch_id)}: "
        f"[bold {STYLES[entry.state]}]{entry.state}[/]"
    )
    day, before = "", None
    for happening in story:
        moment = datetime.fromtimestamp(happening.at, UTC)
        if (today := f"{moment:%A, %d %B %Y}, UTC") != day:
            day = today
            screen.say(f"\n[bold]{day}[/]")
        _tell(screen, moment, happening, before)
        before = happening.state or before
    screen.say(f"\n[bold]Now[/]  {_MEANS[entry.state]}")
    if entry.conflict:
        screen.say(f"     [bold red]Evidence contradicts[/]: {quoted(entry.conflict)}. Ask the service; then:")
        line = command_line("bulk acknowledge", request_id, journal=journal)
        screen.command(f"   {line} --who NAME --why REASON")
    names = ("request_id", "batch_id", "state", "amount", "attempt", "transaction_id", "code", "conflict", "updated_at")
    known = {name: getattr(entry, name) for name in names}
    screen.document({**known, "currency": order.currency, "meaning": _MEANS[entry.state], "story": story})
    return Exit.FINE


def _tell_of_archived(screen: Screen, gone: ArchivedOrder) -> Exit:
    """Tell how an order ended that has left the journal, where its story is, and what was told of it since."""
    kept, ended = gone.archive, datetime.fromtimestamp(gone.updated_at, UTC)
    screen.say(
        f"[bold]{quoted(gone.request_id)}[/], {quoted(money(gone.amount, gone.currency))}, batch "
        f"{quoted(gone.batch_id)}: [bold {STYLES[gone.state]}]{gone.state}[/] since {ended:%d %B %Y %H:%M:%S} UTC"
    )
    screen.say(f"\nIt left the journal for the archive {quoted(kept.path)}, which has its whole story:")
    screen.command(f"zcat {shlex.quote(kept.path)} | grep -F {shlex.quote(json.dumps(gone.request_id))}")
    for happening in gone.late:
        _tell(screen, datetime.fromtimestamp(happening.at, UTC), happening, gone.state)
    screen.say(f"\n[bold]Now[/]  {_MEANS[gone.state]} It is never sent again.")
    screen.document({**attrs.asdict(gone, recurse=False), "meaning": _MEANS[gone.state], "exit_status": Exit.FINE})
    return Exit.FINE


def _tell(screen: Screen, moment: datetime, happening: Happening, before: State | None) -> None:
    arrow = f" -> {happening.state}" if happening.state not in (None, before) else ""
    screen.say(f"  {moment:%H:%M:%S}.{moment.microsecond // 1000:03}  {quoted(sentence(happening))}[bold]{arrow}[/]")
    space = " " * 16
    if happening.conflict:
        screen.say(f"{space}[bold red]This contradicts what was known[/]: {quoted(happening.conflict)}.")
        screen.say(f"{space}It is kept, and never overwrites; a person has to find out what is true.")
    if happening.rule:
        screen.say(f"{space}[dim]rule: {quoted(happening.rule)}[/]")

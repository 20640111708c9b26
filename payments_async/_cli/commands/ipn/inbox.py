"""`payments-async ipn list`, `replay` and `prune`: looks after what an inbox holds."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import JournalFile, opened, seconds_of
from payments_async._cli.screen import Screen, counted, money, quoted
from payments_async._cli.working import working
from payments_async.journal.contract import StoredEvent


async def ipn_list(
    screen: Screen,
    journal: JournalFile = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Also those of orders that the journal does not hold: who ordered them?")
    ] = False,
) -> Exit:
    """Tell what an inbox has waiting, and list what is wrong in it.

    Dead letters: events whose handlers failed too often. Unconfirmed: the service's own record has not borne them out
    yet. Reported: from somebody who is not known to be a sender. Disputed: the record, or a person, says otherwise.
    Only dead letters are run again by `ipn replay`; the others move no order and are heard by no handler.

    Example: payments-async ipn list --journal payroll.sqlite
    """
    async with opened(journal) as inbox:
        backlog = await inbox.backlog()
        dead = [stored async for stored in inbox.dead_letters()]
        dubious = [stored async for stored in inbox.dubious() if stored.state != "dead"]
        unmatched = await inbox.unmatched_events()
        unknown_transactions = [stored async for stored in inbox.unmatched()] if unknown else []
    screen.say(f"events that wait to be handled: {backlog.pending:,}; dead letters: {backlog.dead:,}")
    if backlog.trouble is not None:
        screen.line(quoted(backlog.trouble))
    screen.say(f"{backlog.unconfirmed:,} are not confirmed, {backlog.reported:,} only reported of unknown senders")
    for stored in (*dead, *dubious):
        event = stored.event
        words = f"{event.request_id or '(no request id)'}  {event.transaction_id}  code {event.status_code}"
        why = f"after {stored.tries} tries: {stored.error}" if stored.tries else stored.error or f"from {stored.peer}"
        screen.line(quoted(f"{stored.event_id:>8}  {_standing(stored):<11}  {words}  {why}"))
    if unmatched:
        more = "; `explain` tells what is known of one" if unknown else "; --unknown lists them"
        screen.say(f"{unmatched:,} are of orders that this journal does not hold{more}")
    for stored in unknown_transactions:
        event = stored.event
        at = f"{datetime.fromtimestamp(stored.received_at, UTC):%Y-%m-%d %H:%M:%S}"
        name = event.request_id or "(no request id)"
        amount = money(event.amount, event.currency_code)
        screen.line(f"{stored.event_id:>8}  {at}  {name}  {event.transaction_id}  code {event.status_code}  {amount}")
    known = {
        "pending": backlog.pending,
        "failing": backlog.failing,
        "trouble": backlog.trouble,
        "dead": list(map(_told, dead)),
        "dubious": list(map(_told, dubious)),
    }
    listed = {"unknown": list(map(_told, unknown_transactions))} if unknown else {}
    screen.document({**known, "of_unknown_orders": unmatched, **listed})
    return Exit.FAILED if dead else Exit.FINE


def _standing(stored: StoredEvent) -> str:
    if stored.doubt is None or stored.state in ("dead", "disputed"):
        return stored.state
    return stored.doubt


def _told(stored: StoredEvent) -> dict[str, object]:
    event = stored.event
    known = {name: getattr(stored, name) for name in ("event_id", "tries", "error", "peer")}
    about = {"request_id": event.request_id, "transaction_id": event.transaction_id}
    return {**known, **about, "standing": _standing(stored)}


async def ipn_prune(
    screen: Screen,
    older_than: Annotated[str, typer.Option(help="As in 90d or 48h: counted from when it came the last time.")],
    journal: JournalFile = None,
) -> Exit:
    """Forget old notifications that nothing needs any more, so that the journal does not grow for ever.

    Kept whatever their age: what waits or is a dead letter, and what is about an order without a final outcome or with
    a contradiction. One that is forgotten and sent again is new. The file does not shrink; its room is used again.

    Example: payments-async ipn prune --older-than 90d --journal payroll.sqlite
    """
    seconds = seconds_of(older_than)
    async with opened(journal) as inbox, working(screen, "forgetting old notifications"):
        pruned = await inbox.prune_inbox(older_than=seconds)
    screen.say(f"{counted(pruned.events, 'notification')} forgotten")
    screen.document({"events": pruned.events, "deliveries": pruned.deliveries})
    return Exit.FINE


async def ipn_replay(
    screen: Screen,
    event_id: Annotated[int | None, typer.Argument(help="As `ipn list` shows it; else all.")] = None,
    journal: JournalFile = None,
) -> Exit:
    """Make a dead letter, or all of them, wait again: the receiver on this journal handles them.

    Example: payments-async ipn replay 17 --journal payroll.sqlite
    """
    async with opened(journal) as inbox:
        count = await inbox.revive(event_id)
    if event_id is not None and not count:
        raise BadInput(f"EVENT_ID: there is no dead letter {event_id}; `payments-async ipn list` shows them")
    screen.say(f"waiting again, for the receiver on this journal: {counted(count, 'event')}")
    screen.document({"waiting_again": count})
    return Exit.FINE

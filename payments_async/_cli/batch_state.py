"""How a batch stands: its outcomes, what was not paid and why, and what is to be done next."""

from collections.abc import AsyncIterable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from rich.text import Text

from payments_async._cli.exit_codes import Exit
from payments_async._cli.journal import JournalPlace
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen, money, quoted
from payments_async._cli.story import sentence, service_words
from payments_async.bulk import LaterTry, later_tries
from payments_async.journal import UNPAID, UNSETTLED, Archive, Entry, Journal, Progress, State
from payments_async.journal.contract import ListingWord

T = TypeVar("T")
SHOWN = 20  # orders of a kind


def exit_after(progress: Progress, stopped: str | None = None, *, quarantined: int = 0) -> Exit:
    """The exit status that a batch deserves as it stands.

    Args:
        quarantined: Its chunks that wait for a person.
    """
    counts = progress.counts
    if stopped is not None:
        return Exit.STOPPED
    if quarantined or progress.conflicts or any(counts[state] for state in UNSETTLED):
        return Exit.UNKNOWN
    return Exit.FAILED if any(counts[state] for state in UNPAID) else Exit.FINE


def in_words(progress: Progress) -> str:
    """How many orders stand how."""
    return (
        ", ".join(f"{progress.counts[state]:,} {state}" for state in State if progress.counts[state]) or "no order yet"
    )


async def first(many: AsyncIterable[T], count: int = SHOWN) -> list[T]:
    """The first of many."""
    found: list[T] = []
    async for one in many:
        found.append(one)
        if len(found) == count:
            break
    return found


async def needing(
    journal: Journal, batch_ids: Iterable[str | None], states: Iterable[State]
) -> list[tuple[Entry, str]]:
    """The first orders of batches that need a person, each with the reason: contradicted, or in these states."""
    found: dict[str, Entry] = {}
    for batch_id in batch_ids:
        for entries in (journal.conflicts(batch_id), *(journal.entries(batch_id, state) for state in states)):
            if len(found) < SHOWN:
                found |= {entry.request_id: entry for entry in await first(entries)}
    return [(entry, entry.conflict or entry.message or "") for entry in list(found.values())[:SHOWN]]


async def unpaid_of(journal: Journal, batch_id: str, progress: Progress) -> list[tuple[Entry, str]]:
    """The first orders of a batch that were refused, that failed and that came back, each with the reason."""
    states = [state for state in UNPAID if progress.counts[state]]
    found = [entry for state in states for entry in await first(journal.entries(batch_id, state))]
    later = await later_tries(journal, [entry.request_id for entry in found])
    return [(entry, await _why(journal, entry, later.get(entry.request_id))) for entry in found]


def show_unpaid(screen: Screen, unpaid: Sequence[tuple[Entry, str]], progress: Progress) -> None:
    """Write the orders that were not paid, and why."""
    if not unpaid:
        return
    count = sum(progress.counts[state] for state in UNPAID)
    screen.say(f"\n[bold]Not paid, and why: {count:,}[/]")
    show_entries(screen, unpaid)
    if count > len(unpaid):
        screen.say(f"and {count - len(unpaid):,} more; the files of `payments-async bulk report` have them all")


def show_entries(screen: Screen, entries: Iterable[tuple[Entry, str]]) -> None:
    """Write orders, each with the reason why it is shown."""
    rows: list[list[str | Text]] = [
        [
            entry.request_id,
            Text(entry.state, entry.state.meaning.colour),
            money(entry.amount, entry.order.currency),
            screen.person(entry.order.beneficiary.name),
            why,
        ]
        for entry, why in entries
    ]
    screen.table(["Request id", "Outcome", "Amount", "Beneficiary", "Why"], rows, right=["Amount"])


async def _why(journal: Journal, entry: Entry, later: LaterTry | None) -> str:
    """Whether it was tried again; then the service's words, or what told of the end where there are none."""
    if later is not None:
        return str(later)
    if words := service_words(entry):
        return words
    turns = [one for one in await journal.history(entry.request_id) if one.state is entry.state]
    return sentence(turns[0]) if turns else ""


def show_archives(screen: Screen, archives: Sequence[Archive]) -> None:
    """Write the files that orders have left for."""
    for one in archives[-SHOWN:]:
        screen.say(f"  {quoted(one.path)}: {one.orders:,}, {datetime.fromtimestamp(one.begun, UTC):%Y-%m-%d}")


def deadlines_in_words(words: Sequence[ListingWord]) -> str | None:
    """The listing deadlines that persons have given, with what became of each."""
    told = [
        f"{one.deadline}: {one.who} ({one.why}), {one.sent} orders sent again, {money(one.spent)}"
        + (f"; over: {one.over}" if one.over else "")
        for one in words
    ]
    return "; ".join(told) or None


def show_progress(screen: Screen, progress: Progress, currency: str | None) -> None:
    """Write the orders of a batch by state."""
    total = f"Sum {currency}" if currency else "Sum"
    rows: list[list[str | Text]] = [
        [Text(state, state.meaning.colour), f"{progress.counts[state]:,}", money(progress.sums[state])]
        for state in State
        if progress.counts[state]
    ]
    sums = sum((progress.sums[state] for state in State), start=progress.sums[State.PLANNED] * 0)
    rows.append([Text("all", "bold"), f"{progress.total:,}", money(sums)])
    screen.table(["Outcome", "Orders", total], rows, right=["Orders", total])


def tell_next(
    screen: Screen,
    progress: Progress,
    journal: JournalPlace,
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
    unpaid = sum(counts[state] for state in UNPAID)
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


async def currency_of(journal: Journal, batch_id: str) -> str | None:
    """What the first order of a batch is in; the others are too, or its plan would have had a problem."""
    return next((entry.order.currency for entry in await first(journal.entries(batch_id), 1)), None)

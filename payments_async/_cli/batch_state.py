"""How a batch stands: its outcomes, what was not paid and why, and what is to be done next."""

import re
import time
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import attrs
from rich.text import Text

from payments_async._cli.exit_codes import Exit
from payments_async._cli.journal import JournalPlace
from payments_async._cli.screen import Screen, command_line, counted, duration, money, quoted, shortened
from payments_async._cli.story import sentence, service_words
from payments_async.bulk import LaterTry, later_tries
from payments_async.journal import UNPAID, UNSETTLED, Archive, Entry, Journal, Progress, Run, State
from payments_async.journal.contract import ListingWord

T = TypeVar("T")
SHOWN = 20  # orders of a kind
_LOOKED_AT = 10_000
_SILENT = 600.0  # seconds without a notification that are worth a word
_LONG_SILENT = 2 * 86_400.0  # seconds of which a wrong clock is as likely a cause
_REASONS = _EXAMPLES = 3
_LONGEST = 150  # characters of a reason
_CALL = re.compile(r"\b(?:GET|POST) /\S+: ")  # an error's beginning: which call it was
DIGITS = re.compile(r"[0-9]+")  # what is told of one order alone


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


@attrs.define(kw_only=True)
class Reason:
    """Orders that stand so for one reason.

    Attributes:
        words: The reason; what the service said is quoted as its words.
        orders: How many.
        first: The first of them.
    """

    state: State
    words: str
    orders: int = 0
    first: list[Entry] = attrs.field(factory=list)


async def reasons(
    journal: Journal, batch_id: str, figure: str, progress: Progress, *, keep: int = SHOWN
) -> list[Reason]:
    """Why orders of a batch are not paid, or need a person: alike ones together, the greatest number first.

    An order with a contradiction needs a person, however it stands. Of a state the first 10,000 orders are looked at;
    those after them are one reason, which says so.

    Args:
        keep: How many orders of each reason.
    """
    chosen = [one for one in State if one.meaning.figure == figure and progress.counts[one]]
    walks = [(journal.entries(batch_id, one), one, progress.counts[one]) for one in chosen]
    if is_need := figure == "needs a person":
        walks = [(journal.conflicts(batch_id), State.PARKED, progress.conflicts), *walks]
    found: dict[tuple[str, str], Reason] = {}
    contradicted = set[str]()
    for walk, state, count in walks:
        looked = await first(walk, _LOOKED_AT)
        if len(looked) == _LOOKED_AT < count:
            words = f"after the first {_LOOKED_AT:,}, with reasons that are not counted here"
            found[state, words] = Reason(state=state, words=words, orders=count - _LOOKED_AT)
        entries = [one for one in looked if one.request_id not in contradicted]
        tries = {} if is_need else await later_tries(journal, [one.request_id for one in entries])
        for entry in entries:
            words = _tried_again(tries.get(entry.request_id)) or _refusal(entry)
            if is_need and entry.conflict is not None:
                contradicted.add(entry.request_id)
                words = entry.conflict
            reason = found.setdefault((entry.state, DIGITS.sub("0", words)), Reason(state=entry.state, words=words))
            reason.orders += 1
            reason.first += [entry] if len(reason.first) < keep else []
    for reason in found.values():
        if not reason.words:
            story = await journal.history(reason.first[0].request_id)
            told = (sentence(one).partition(":")[0] for one in story if one.state is reason.state)
            reason.words = next(told, reason.state.meaning.now)
    return sorted(found.values(), key=lambda reason: -reason.orders)


def _refusal(entry: Entry) -> str:
    said = _CALL.sub("", service_words(entry))
    return f'the service says "{said}"' if said and entry.state in UNPAID else said


def _tried_again(later: LaterTry | None) -> str:
    if later is None:
        return ""
    warning = "; do not pay it in another way" if later.may_be_paid else ""
    return f"tried again in batch {later.batch_id}, where it is {later.state}{warning}"


def show_reasons(screen: Screen, needing: Sequence[Reason], unpaid: Sequence[Reason], *, room: int) -> None:
    """Write why orders need a person or are not paid: the first reasons, with the first three orders of each.

    Args:
        room: Lines of a terminal; where they do not do, each reason has a line, without its orders.
    """

    def write(most: int, *, is_short: bool) -> None:
        _show_reasons(screen, "Need a person", "magenta", needing, most, is_short=is_short)
        _show_reasons(screen, "Not paid, and why", "red", unpaid, most, is_short=is_short)

    screen.fit(room, [partial(write, _REASONS, is_short=False), partial(write, 2, is_short=True)])


def _show_reasons(
    screen: Screen, title: str, style: str, found: Sequence[Reason], most: int, *, is_short: bool
) -> None:
    if not found:
        return
    screen.say(f"\n[bold {style}]{title}: {sum(one.orders for one in found):,}[/]")
    width = max(40, screen.out.width - 9) if is_short and screen.is_live else _LONGEST
    for one in found[:most]:
        screen.hanging(f"{one.orders:>7,} ", quoted(shortened(f"{one.state}: {one.words}", width)))
        if not is_short and (names := [_named(screen, entry) for entry in one.first[:_EXAMPLES]]):
            more = f" and {one.orders - len(names):,} more" if one.orders > len(names) else ""
            screen.hanging(" " * 8, f"[dim]{quoted(', '.join(names))}{more}[/]")
    if rest := found[most:]:
        screen.say(f"{sum(one.orders for one in rest):>7,} for {counted(len(rest), 'other reason')}")


def _named(screen: Screen, entry: Entry) -> str:
    """The id of an order, and whom it pays where that may be shown."""
    name = screen.person(entry.order.beneficiary.name) if screen.shows_people(is_asked=False) else ""
    return f"{entry.request_id} {name}".rstrip()


def reasons_document(found: Sequence[Reason]) -> list[dict[str, object]]:
    """Reasons for machines, with the first twenty orders of each."""
    return [
        {
            "state": one.state,
            "why": one.words,
            "orders": one.orders,
            "first": [{"request_id": entry.request_id, "amount": entry.amount} for entry in one.first],
        }
        for one in found
    ]


BATCH_COLUMNS = ("Batch", "Orders", "Sum", "Outcomes")


async def batch_row(journal: Journal, run: Run, progress: Progress) -> list[str | Text]:
    """One of several batches, in these columns."""
    waiting = f"; {counted(run.quarantined, 'chunk')} in quarantine" if run.quarantined else ""
    total = money(run.amount, await currency_of(journal, run.batch_id))
    return [run.batch_id, f"{run.total:,}", total, f"{in_words(progress)}{waiting}"]


def show_entries(screen: Screen, entries: Iterable[tuple[Entry, str]], currency: str | None) -> None:
    """Write orders, each with the reason why it is shown.

    Args:
        currency: Of those that name none.
    """
    rows: list[list[str | Text]] = [
        [
            entry.request_id,
            Text(entry.state, entry.state.meaning.colour),
            money(entry.amount, entry.order.currency or currency),
            screen.person(entry.order.beneficiary.name),
            why,
        ]
        for entry, why in entries
    ]
    screen.table(["Request id", "Outcome", "Amount", "Beneficiary", "Why"], rows, right=["Amount"])


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
    """Write the four figures of a batch: what is paid, on the way, not paid, and what needs a person."""
    total = f"Sum {currency}" if currency else "Sum"
    rows: list[list[str | Text]] = []
    for figure, (count, amount) in progress.figures.items():
        states = [state for state in State if state.meaning.figure == figure and progress.counts[state]]
        stand = ", ".join(f"{progress.counts[state]:,} {state}" for state in states)
        style = f"bold {states[0].meaning.colour}" if states else "dim"
        rows.append([Text(figure, style), f"{count:,}", money(amount), stand])
    if progress.conflicts:
        rows.append([Text("contradicted", "bold magenta"), f"{progress.conflicts:,}", "", "of those above"])
    screen.table(["Outcome", "Orders", total, "Stands"], rows, right=["Orders", total])


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
    counts, named = progress.counts, {"journal": journal, "batch_id": batch_id}
    signed = "--who NAME --why REASON"
    screen.say()
    if (unpaid := sum(counts[state] for state in UNPAID)) and not unpaid_are_shown:
        screen.say(f"{counted(unpaid, 'order')} not paid. Which, and why:")
        screen.command(command_line("bulk status", **named))
    if (open_ := counts[State.ACCEPTED] + counts[State.UNKNOWN]) and not quarantined:
        screen.say(f"{counted(open_, 'order')} without a final outcome yet. To look them up:")
        screen.command(command_line("bulk reconcile", **named))
    if progress.unconfirmed:
        screen.say(
            f"{counted(progress.unconfirmed, 'order')} notified, not confirmed: the receiver asks the service again."
        )
    if quarantined:  # what the list shows comes first: it settles most of what needs a person
        screen.say(
            f"{counted(quarantined, 'chunk')} in quarantine: the journal was copied or restored, or its orders were "
            "adopted. What it calls planned may have been sent. Look for all of it:"
        )
        screen.command(command_line("bulk reconcile", **named))
        screen.say("Then, for what the service never had:")
        screen.command(f"{command_line('bulk lift-quarantine', **named)} {signed}")
        return
    if counts[State.PARKED] > progress.conflicts:
        words = "Ask the service; for one that it surely never had:"
        screen.say(f"{counted(counts[State.PARKED], 'order')} not found. {words}")
        screen.command(f"{command_line('bulk send-again', journal=journal)} REQUEST_ID {signed}")
    if progress.conflicts:
        words = "Ask the service; once you know what is true:"
        screen.say(f"{counted(progress.conflicts, 'order')} with evidence against evidence. {words}")
        is_many = progress.conflicts > 1
        which = {"batch_id": batch_id or "BATCH", "reason": "WORDS"} if is_many else {}
        line = command_line("bulk acknowledge", journal=journal, **which)
        screen.command(f"{line}{'' if is_many else ' REQUEST_ID'} {signed}")


async def silence(
    journal: Journal, batch_id: str | None = None, *, clock: Callable[[], float] = time.time
) -> str | None:
    """That no notification is heard though orders are accepted, in words; ``None`` where all is well."""
    since = await journal.unheard_since(batch_id)
    seconds = 0.0 if since is None else clock() - since
    if seconds <= -_SILENT:
        return (
            f"This machine's clock is or was wrong: by it, orders were accepted {duration(-seconds)} from now; set it "
            "(NTP), and let `doctor` compare it"
        )
    if since is None or seconds < _SILENT:
        return None
    looks = ["that a receiver runs (`ipn serve`, `bulk run --listen`)", "that the portal has its address"]
    looks += ["that this machine's clock is right (`doctor`)"] if seconds >= _LONG_SILENT else []
    return (
        f"No notification heard for {duration(seconds)}, though orders are accepted: see {', '.join(looks[:-1])}, and "
        f"{looks[-1]}"
    )


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
    entry = next(iter(await first(journal.entries(batch_id), 1)), None)
    return None if entry is None else await order_currency(journal, entry)


async def common_currency(journal: Journal, runs: Iterable[Run]) -> str | None:
    """What all of these batches are in; ``None`` where it is not known, or they are in several."""
    found = {await currency_of(journal, run.batch_id) for run in runs} - {None}
    return found.pop() if len(found) == 1 else None


async def order_currency(journal: Journal, entry: Entry) -> str | None:
    """What one order is in: as it says, else that of the account."""
    return entry.order.currency or await journal.account_currency(entry.batch_id)


async def order_money(journal: Journal, entry: Entry) -> str:
    """The amount of one order with its currency."""
    return money(entry.amount, await order_currency(journal, entry))

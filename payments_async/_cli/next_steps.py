"""What became of a payment, what is to be done about it, and whether it may be paid again: an answer for each state."""

from collections.abc import Iterator, Sequence

import attrs

from payments_async._cli.journal import JournalPlace
from payments_async._cli.outbox_state import moment
from payments_async._cli.screen import clean, command_line
from payments_async.bulk import later_tries, retried_id
from payments_async.journal import ArchivedOrder, Entry, Happening, Journal, Run, Signal, State
from payments_async.journal.contract import Pause

SIGNED = "--who NAME --why REASON"
IN_DOUBT = "No: the evidence is against itself. Find out first what is true."


def meaning_of(order: Entry | ArchivedOrder) -> str:
    """How an order stands, in words; where that is in doubt, first of all that it may have been paid."""
    if is_contradicted(order) and order.state.meaning.may_be_paid_again:
        return f"It may have been paid: it is called {order.state}, and evidence contradicts that."
    if isinstance(order, Entry) and order.failed_by_notification:
        return (
            "A notification alone says that it failed. Until the service's list shows the same it may have been paid."
        )
    return order.state.meaning.sentence


def is_contradicted(order: Entry | ArchivedOrder) -> bool:
    """Whether evidence speaks against how an order stands, and no person has acknowledged that."""
    if isinstance(order, ArchivedOrder):
        return any(one.conflict is not None for one in order.late)
    return order.conflict is not None


async def may_be_paid_again(journal: Journal, order: Entry | ArchivedOrder, story: Sequence[Happening]) -> str:
    """Whether an order may be paid once more, for whoever asks what became of it.

    Args:
        journal: Which has the order, or had it.
        story: All that is known of the order itself.

    Raises:
        JournalUnavailable: The journal cannot be read.
    """
    if is_contradicted(order):
        return IN_DOUBT
    later = (await later_tries(journal, [order.request_id])).get(order.request_id)
    if later is not None:
        return f"No: it was {clean(str(later))}. Ask about that one."
    is_shown = order.state is not State.FAILED or any(one.signal is Signal.LOOKED_UP_FAILED for one in story)
    if isinstance(order, Entry) and order.unconfirmed:
        return "No: a notification about it is not confirmed yet. Reconcile first."
    again = order.state.meaning.again
    if not order.state.meaning.may_be_paid_again:
        return again
    retried = retried_id(order.request_id)
    if await journal.entry(retried) is not None:  # of another row of its batch, or it were a later try
        retried = retried_id(order.request_id, is_row=True)
    if await journal.traces(retried):
        return f"No: {clean(retried)} was heard of, which tries it again, though not from here. Ask about that one."
    again += f" Take {clean(retried)}: whoever does it too takes the same, and it is paid once."
    if said := [f"{one.by} {one.detail}" for one in story if one.is_acknowledgement]:
        return f"Only if it surely was not paid: evidence was against itself, and {clean(said[-1])}. Then: {again}"
    if isinstance(order, ArchivedOrder) and not is_shown:
        return f"Only if its story in the archive has a list or a record that shows that it failed. Then: {again}"
    if not is_shown:
        return f"Not before the service itself says that it failed: until now a notification alone does. Then: {again}"
    return again


@attrs.frozen(kw_only=True)
class NextStep:
    """Something to do: words, and commands that can be typed."""

    words: str
    commands: tuple[str, ...] = ()


def steps_for(entry: Entry, run: Run, paused: Pause | None, journal: JournalPlace) -> list[NextStep]:
    """What is to be done about an order that stands so.

    Args:
        run: Its batch.
        paused: Whether the outbox that sends it is.
    """
    if entry.conflict is not None:
        line = f"{command_line('bulk acknowledge', entry.request_id, journal=journal)} {SIGNED}"
        return [NextStep(words="Ask the service; once you know what is true:", commands=(line,))]
    if entry.state in (State.PLANNED, State.SENDING):
        return [_until_it_is_sent(entry, run, paused, journal)]
    return list(_once_it_was_sent(entry, run, journal))


def _until_it_is_sent(entry: Entry, run: Run, paused: Pause | None, journal: JournalPlace) -> NextStep:
    named = {"journal": journal, "batch_id": run.batch_id}
    if not run.ready:
        words = (
            f"Nothing of batch {run.batch_id} is sent before all of it is here. Its loading is under way, has broken "
            "off, or was refused because its plan does not know another batch. Put or run its file again: what is here "
            "already is not there twice."
        )
        return NextStep(words=words)
    if run.quarantined or run.awaits:
        awaits = "Look for it" if run.awaits is None else f"{run.awaits.words()}. Look for it until then"
        words = (
            f"The journal was copied or restored, and what it calls planned may have been sent. {awaits}; then, for "
            "what the service never had, lift the quarantine:"
        )
        lift = f"{command_line('bulk lift-quarantine', **named)} {SIGNED}"
        return NextStep(words=words, commands=(command_line("bulk reconcile", **named), lift))
    if run.outbox is None:
        words = "The next run of its batch sends it, or finds out what became of it:"
        return NextStep(words=words, commands=(command_line("bulk run", "FILE", **named),))
    if paused is not None and entry.state is State.PLANNED:
        words = f"The outbox was paused by {paused.who} on {moment(paused.at)}: {paused.why}. Once it may go on:"
        line = f"{command_line('outbox resume', journal=journal, name=run.outbox)} {SIGNED}"
        return NextStep(words=words, commands=(line,))
    words = f"Whoever works the outbox {run.outbox} sends it, or finds out what became of it. See that somebody does:"
    return NextStep(words=words, commands=(command_line("outbox status", journal=journal, name=run.outbox),))


def _once_it_was_sent(entry: Entry, run: Run, journal: JournalPlace) -> Iterator[NextStep]:
    named = {"journal": journal, "batch_id": run.batch_id}
    match entry.state:
        case State.ACCEPTED | State.UNKNOWN:
            yield NextStep(
                words="A notification settles it, or a worker of its outbox, or `bulk reconcile`:",
                commands=(command_line("bulk reconcile", **named),),
            )
        case State.PARKED:
            line = command_line("transactions", request_id=entry.request_id)
            yield NextStep(words="Look once more, and ask the service:", commands=(line,))
            line = f"{command_line('bulk send-again', entry.request_id, journal=journal)} {SIGNED}"
            yield NextStep(words="Once the service says that it surely never had it:", commands=(line,))
        case State.FAILED if entry.failed_by_notification:
            yield NextStep(
                words="A worker of its outbox looks for it in the service's list, and so does `bulk reconcile`:",
                commands=(command_line("bulk reconcile", **named),),
            )
        case State.FAILED | State.REJECTED if not run.is_outbox:
            line = command_line("bulk retry-file", **named)
            yield NextStep(words="For a file of all of its batch that surely was not paid:", commands=(line,))
        case State.SUCCESSFUL:
            line = command_line("bulk receipt", entry.request_id, journal=journal)
            yield NextStep(words="For the proof of it:", commands=(line,))
        case _:
            assert entry.state.meaning.may_be_paid_again, entry.state
            yield NextStep(words="The person who ordered it decides: it is not sent again by itself.")

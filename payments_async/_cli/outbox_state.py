"""How an outbox stands: which one was meant, what hinders it, and the exit status that it deserves."""

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import attrs
import typer

from payments_async._cli.batch_state import in_words
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.screen import clean
from payments_async.journal import UNSETTLED, Journal, Progress
from payments_async.journal.contract import Awaited, Backlog, Hearing, HeldUp, ListingWord, Pause, SharedPace

OutboxName = Annotated[str, typer.Option("--name", help="Which outbox; processes with the same name share the work.")]
AnyOutbox = Annotated[str | None, typer.Option("--name", help="Which outbox; not needed where there is one.")]
NewJournal = Annotated[
    bool, typer.Option("--new-journal", help="Make the journal if there is none. It knows no earlier payment.")
]


@attrs.frozen(kw_only=True)
class OutboxState:
    """How an outbox stands by its journal, whoever works it.

    Attributes:
        progress: All of its orders, by state.
        paused: Who paused it, or ``None``.
        held_up: Chunks that wait for a person, and batches that were not loaded to their end.
        unmatched: Notifications of orders that the journal does not hold.
        restored_at: When it was last found that the journal was copied or restored, or ``None``.
        awaits: What has to be seen since before anything that is put is sent, or ``None``.
        handlers: Changes that wait for a handler, and dead letters.
        unheard: States whose changes wait for handlers that no process seems to have any more.
        strangers: Orders that lists have shown and the journal does not hold.
        in_tray, untaken: Orders of an application's own transactions that nobody has taken yet, or that cannot be.
        pace: How fast all may send who share the journal.
        deadlines: Persons' words that the service lists in time, by which orders are sent again.
    """

    name: str
    progress: Progress
    paused: Pause | None
    held_up: HeldUp
    unmatched: int
    restored_at: float | None
    awaits: Awaited | None
    handlers: Backlog
    strangers: int
    unheard: tuple[Hearing, ...]
    in_tray: int
    untaken: int
    pace: SharedPace
    deadlines: Sequence[ListingWord]

    @property
    def exit_status(self) -> Exit:
        """What a script has to know."""
        counts = self.progress.counts
        if self.paused is not None:
            return Exit.STOPPED
        is_open = any(counts[state] for state in UNSETTLED)
        held_up = self.awaits or self.held_up.quarantined or self.held_up.unloaded or self.untaken
        if is_open or self.progress.conflicts or held_up or self.handlers.dead:
            return Exit.UNKNOWN
        return Exit.FINE

    @property
    def words(self) -> str:
        """How many orders stand how."""
        return in_words(self.progress) or "no order yet"


async def state_of(journal: Journal, name: str) -> OutboxState:
    """How an outbox stands now."""
    laid, untaken = await journal.count_laid(name)
    run = await journal.run(name)
    return OutboxState(
        name=name,
        progress=await journal.progress(outbox=name),
        paused=await journal.paused(name),
        held_up=await journal.held_up(name),
        unmatched=await journal.unmatched_events(),
        restored_at=run.quarantined_at,
        awaits=run.awaits,
        handlers=await journal.change_backlog(name),
        strangers=await journal.strangers(name),
        unheard=tuple(one for one in await journal.hearings(name) if one.is_of_nobody(time.time())),
        in_tray=laid - untaken,
        untaken=untaken,
        pace=await journal.pace(),
        deadlines=await journal.listing_words(),
    )


async def outboxes_in(journal: Journal) -> list[str]:
    """The names of all outboxes, oldest first."""
    return [run.batch_id for run in await journal.runs() if run.outbox == run.batch_id]


async def chosen_outbox(journal: Journal, name: str | None) -> str:
    """The outbox that was named, or the only one.

    Raises:
        BadInput: There is none of that name, or more than one to choose from.
    """
    names = await outboxes_in(journal)
    if name in names:
        return name or ""
    if name is None and len(names) == 1:
        return names[0]
    held = f"the journal holds {', '.join(map(clean, names))}" if names else "the journal holds none"
    if name is None and names:
        raise BadInput(f"--name: name one; {held}")
    begun = "an outbox begins with `payments-async outbox run`, or with the application that opens it"
    what = "there is no outbox yet" if name is None else f"there is no outbox {clean(name)}; {held}"
    raise BadInput(f"--name: {what}; {begun}")


async def check_new_outbox(journal: Journal, name: str, *, is_wanted: bool) -> None:
    """Refuse a name that may be mistyped: what is put into an outbox that nobody works waits for ever.

    Args:
        is_wanted: Somebody said that a further outbox is to be made.

    Raises:
        BadInput: The name is none, is that of a batch, or of no outbox where there are others.
    """
    if not name.strip():
        raise BadInput("--name: must not be empty")
    if any(run.batch_id == name and run.outbox != name for run in await journal.runs()):
        raise BadInput(f"--name: {clean(name)} is a batch of this journal; give the outbox another name")
    names = await outboxes_in(journal)
    if names and name not in names and not is_wanted:
        raise BadInput(
            f"--name: there is no outbox {clean(name)}; the journal holds {', '.join(map(clean, names))}. If a further "
            "one is meant, add --new-outbox to `payments-async outbox run`"
        )


async def metrics_of(journal: Journal, name: str) -> str:
    """How the orders of an outbox stand, and what of it waits for a person, for Prometheus."""
    state = await state_of(journal, name)
    label = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    ours = f'outbox="{label}"'
    lines = [
        "# TYPE payments_orders gauge",
        *(f'payments_orders{{{ours},state="{one}"}} {count}' for one, count in state.progress.counts.items()),
        "# TYPE payments_changes gauge",
        f'payments_changes{{{ours},state="pending"}} {state.handlers.pending}',
        f'payments_changes{{{ours},state="dead"}} {state.handlers.dead}',
    ]
    levels = {
        "payments_paused": int(state.paused is not None),
        "payments_conflicts": state.progress.conflicts,
        "payments_chunks_in_quarantine": state.held_up.quarantined,
        "payments_batches_not_loaded": len(state.held_up.unloaded),
        "payments_orders_in_tray": state.in_tray,
        "payments_orders_untaken": state.untaken,
        "payments_strangers": state.strangers,
    }
    for level, value in levels.items():
        lines += [f"# TYPE {level} gauge", f"{level}{{{ours}}} {value}"]
    return "\n".join(lines)


def pause_document(paused: Pause | None) -> dict[str, object] | None:
    """A pause for machines."""
    return None if paused is None else {"at": paused.at, "who": paused.who, "why": paused.why}


def pace_document(pace: SharedPace) -> dict[str, object]:
    """How fast all may send, for machines. Infinity, which JSON has no word for, is ``null``: no limit."""
    cools = {"until": pace.cools_until, "seconds": pace.cools_for, "why": pace.why}
    return {
        "rate": pace.rate,
        "rates_asked_for": [None if math.isinf(rate) else rate for rate in pace.named],
        "cools_down": None if pace.cools_until is None else cools,
    }


def rate_in_words(pace: SharedPace) -> str | None:
    """The rate that counts, and that others are asked for."""
    if pace.rate is None:
        return None
    words = f"{pace.rate:,g} orders a second, of all processes on the journal"
    if len(pace.named) > 1:
        higher = ", ".join("no limit" if math.isinf(rate) else f"{rate:,g}" for rate in pace.named[1:])
        words += f" (others of them ask for {higher}: the lowest counts)"
    return words


def moment(at: float) -> str:
    """A moment for people."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"

"""How an outbox stands: which one was meant, what hinders it, and the exit status that it deserves."""

import math
from datetime import UTC, datetime
from typing import Annotated

import typer

from payments_async._cli.batch_state import progress_document
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.screen import clean
from payments_async.journal import Journal, State
from payments_async.journal.contract import Pause, SharedRate
from payments_async.outbox import OutboxHealth

OutboxName = Annotated[str, typer.Option("--name", help="Which outbox; processes with the same name share the work.")]
AnyOutbox = Annotated[str | None, typer.Option("--name", help="Which outbox; not needed where there is one.")]
NewJournal = Annotated[
    bool, typer.Option("--new-journal", help="Make the journal if there is none. It knows no earlier payment.")
]


def exit_after(health: OutboxHealth) -> Exit:
    """The exit status that an outbox deserves as it stands."""
    if health.problem("paused") is not None:
        return Exit.STOPPED
    is_open = health.problem("awaits_lists") or health.progress.counts[State.UNKNOWN]
    return Exit.UNKNOWN if is_open or any(health.needs.values()) else Exit.FINE


async def outboxes_in(journal: Journal) -> list[str]:
    """The names of all outboxes, oldest first."""
    return [run.batch_id for run in await journal.runs() if run.is_outbox]


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
    if any(run.batch_id == name and not run.is_outbox for run in await journal.runs()):
        raise BadInput(f"--name: {clean(name)} is a batch of this journal; give the outbox another name")
    names = await outboxes_in(journal)
    if names and name not in names and not is_wanted:
        raise BadInput(
            f"--name: there is no outbox {clean(name)}; the journal holds {', '.join(map(clean, names))}. If a further "
            "one is meant, add --new-outbox to `payments-async outbox run`"
        )


def metrics_of(health: OutboxHealth) -> str:
    """How the orders of an outbox stand, and what of it waits for a person, for Prometheus."""
    label = health.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    ours = f'outbox="{label}"'
    lines = [
        "# TYPE payments_orders gauge",
        *(f'payments_orders{{{ours},state="{one}"}} {count}' for one, count in health.progress.counts.items()),
        "# TYPE payments_changes gauge",
        f'payments_changes{{{ours},state="pending"}} {health.handlers.pending}',
        f'payments_changes{{{ours},state="failing"}} {health.handlers.failing}',
        f'payments_changes{{{ours},state="dead"}} {health.handlers.dead}',
    ]
    levels = {**health.counts, "orders_staged": health.staged}
    for level, value in levels.items():
        lines += [f"# TYPE payments_{level} gauge", f"payments_{level}{{{ours}}} {value}"]
    return "\n".join(lines)


def health_document(health: OutboxHealth) -> dict[str, object]:
    """How an outbox does, for machines."""
    pace = health.pace
    cools = {"until": pace.cools_until, "seconds": pace.cools_for, "why": pace.why}
    return {
        "outbox": health.name,
        "problems": [one.document() for one in health.problems],
        "progress": progress_document(health.progress),
        "handlers": {
            "waiting": health.handlers.pending,
            "failing": health.handlers.failing,
            "failure": health.handlers.failure,
            "dead": health.handlers.dead,
        },
        "staged": health.staged,
        "rate": pace.rate,
        # infinity, which JSON has no word for, is null: no limit
        "rates_asked_for": [None if math.isinf(rate) else rate for rate in pace.named],
        "cools_down": None if pace.cools_until is None else cools,
        "listing_deadlines": health.deadlines,
    }


def pause_document(paused: Pause | None) -> dict[str, object] | None:
    """A pause for machines."""
    return None if paused is None else {"at": paused.at, "who": paused.who, "why": paused.why}


def rate_in_words(pace: SharedRate) -> str | None:
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

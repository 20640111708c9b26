"""The end of the demo: what became of the orders, what the ledger says, and where to look. Shows what others found."""

from __future__ import annotations

from rich.markup import escape
from rich.text import Text

from payments_async._cli._bulk_board import STYLES
from payments_async._cli._demo_place import Place
from payments_async._cli._program import command_line
from payments_async._cli._rehearsal import Judged, Setup
from payments_async._cli._screen import Screen, clean, money
from payments_async._cli._tally import Tally
from payments_async._cli._verdict import Verdict
from payments_async.journal import State

__all__ = ["show_report"]

_SHOWN = 10
# In the order of the table: from what is over to what is not.
_STATES = (
    State.SUCCESSFUL, State.FAILED, State.REVERSED, State.ACCEPTED, State.REJECTED, State.UNKNOWN, State.PARKED,
    State.SENDING, State.PLANNED,
)  # fmt: skip


def show_report(screen: Screen, setup: Setup, place: Place, judged: Judged, *, seconds: float, goes_on: bool) -> None:
    """Write the final table, or the JSON document.

    Args:
        seconds: What it took, without earlier processes.
        goes_on: Whether there were any.
    """
    tally = judged.tally
    if not screen.is_live:  # where a table begins with an empty line
        screen.say()
    rows = [_row(tally, state) for state in _STATES if tally.count(state)]
    rows.append([Text("all", "bold"), Text(f"{len(tally):,}", "bold"), Text(money(tally.total()), "bold"), Text()])
    screen.table(
        ["Outcome", "Orders", f"Sum {setup.currency}", "Known from"], rows, right=["Orders", f"Sum {setup.currency}"]
    )
    if not screen.is_live:
        screen.say()
    rate = f", {judged.rate:,.0f} a second" if judged.rate else ""
    screen.say(
        f"{len(tally):,} payouts{rate}; {judged.books.notified:,} notifications heard; "
        f"{seconds:.1f} s in all{' since it was started again' if goes_on else ''}."
    )
    _say_doubt(screen, tally)
    _say_verdict(screen, setup, judged)
    _say_where(screen, place, tally)
    screen.document(_document(setup, place, judged, seconds=seconds, goes_on=goes_on))


def _row(tally: Tally, state: State) -> list[Text]:
    sources = ", ".join(f"{source} {count:,}" for source, count in tally.evidence(state).most_common())
    style = STYLES[state]
    return [Text(state, style), Text(f"{tally.count(state):,}", style), Text(money(tally.total(state))), Text(sources)]


def _say_doubt(screen: Screen, tally: Tally) -> None:
    doubtful = tally.doubtful
    if doubtful:
        left = sum(line.state in (State.UNKNOWN, State.PARKED) for line in doubtful)
        screen.say(
            f"{len(doubtful):,} orders had no usable answer and were not sent again: {len(doubtful) - left:,} were "
            f"found, {left:,} were not and wait for a person."
        )


def _say_verdict(screen: Screen, setup: Setup, judged: Judged) -> None:
    verdict, total = judged.verdict, len(judged.tally)
    screen.say()
    counts = f"{verdict.twice:,} paid twice, {verdict.lost:,} lost"
    if verdict.agrees:
        screen.say(
            f"[bold green]The ledger agrees[/] in every order: [bold]{counts}[/]. {verdict.executed:,} were carried "
            f"out, each once; {total - verdict.executed:,} not at all; "
            f"[bold]{money(verdict.paid, setup.currency)}[/] paid."
        )
        return
    screen.say(f"[bold red]The ledger disagrees[/] in {len(verdict.disagreements):,} points: [bold]{counts}[/].")
    for line in verdict.disagreements[:_SHOWN]:
        screen.say(f"  {escape(clean(line))}")


def _say_where(screen: Screen, place: Place, tally: Tally) -> None:
    screen.say(f"\nWhat became of every order is in {escape(str(place.html))} and {place.csv.name}. To look further:")
    for command in _commands(place, tally):
        screen.command(command)


def _commands(place: Place, tally: Tally) -> list[str]:
    named = place.folder / "names.html"
    doubtful = [line for line in tally.doubtful if line.state not in (State.UNKNOWN, State.PARKED)]
    shown = next(iter([*doubtful, *tally]))  # one with a story, if there is one
    return [
        command_line("bulk status", journal=place.journal),
        command_line("bulk report", journal=place.journal, html=named, show_personal=True, overwrite=True),
        command_line("explain", shown.request_id, journal=place.journal),
    ]


def _document(setup: Setup, place: Place, judged: Judged, *, seconds: float, goes_on: bool) -> dict[str, object]:
    tally = judged.tally
    return {
        "orders": len(tally),
        "sum": tally.total(),
        "currency": setup.currency,
        "faults": setup.faults,
        "seed": setup.seed,
        "concurrency": setup.concurrency,
        "outcomes": {
            state: {
                "orders": tally.count(state),
                "sum": tally.total(state),
                "known_from": dict(tally.evidence(state)),
            }
            for state in _STATES
        },
        "without_usable_answer": len(tally.doubtful),
        "unknown": [*tally.ids(State.UNKNOWN), *tally.ids(State.PARKED)],
        "notifications": judged.books.notified,
        "rate": round(judged.rate, 1),
        "seconds": round(seconds, 2),
        "went_on": goes_on,
        "ledger": _verdict(judged.verdict),
        "journal": str(place.journal),
        "report": {"csv": str(place.csv), "html": str(place.html)},
        "look_further": _commands(place, tally),
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {
        "agrees": verdict.agrees,
        "carried_out": verdict.executed,
        "paid_twice": verdict.twice,
        "lost": verdict.lost,
        "paid": verdict.paid,
        "disagreements": list(verdict.disagreements),
    }

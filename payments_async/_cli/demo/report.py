"""The end of a demo on the screen: what became of the orders, what the ledger says, and where to look."""

from __future__ import annotations

from collections import Counter

from rich.markup import escape
from rich.text import Text

from payments_async._cli.batch_state import STYLES
from payments_async._cli.demo.folder import DemoFolder
from payments_async._cli.demo.run import DemoSetup, JudgedRun
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen, clean, money
from payments_async.journal import State

_SHOWN = 10
_OPEN = (State.UNKNOWN, State.PARKED)
# In the order of the table: from what is over to what is not.
_STATES = (
    *(State.SUCCESSFUL, State.FAILED, State.REVERSED, State.ACCEPTED, State.REJECTED),
    *(*_OPEN, State.SENDING, State.PLANNED),
)


def show_demo(
    screen: Screen, setup: DemoSetup, folder: DemoFolder, judged: JudgedRun, *, seconds: float, goes_on: bool
) -> None:
    """Write the final table, or the JSON document.

    Args:
        seconds: What it took, without earlier processes.
        goes_on: Whether there were any.
    """
    progress, verdict, count = judged.progress, judged.verdict, len(judged.orders)
    doubtful = [one for one in judged.orders if one.was_doubtful]
    found = [one for one in doubtful if one.entry.state not in _OPEN]
    told_by = {state: Counter(_sources(judged, state)) for state in _STATES}
    if not screen.is_live:  # where a table begins with an empty line
        screen.say()
    rows = [
        [
            Text(state, STYLES[state]),
            Text(f"{progress.counts[state]:,}", STYLES[state]),
            Text(money(progress.sums[state])),
            Text(", ".join(f"{source} {times:,}" for source, times in told_by[state].most_common())),
        ]
        for state in _STATES
        if progress.counts[state]
    ]
    rows.append([Text("all", "bold"), Text(f"{count:,}", "bold"), Text(money(setup.total), "bold"), Text()])
    total = f"Sum {setup.currency}"
    screen.table(["Outcome", "Orders", total, "Known from"], rows, right=["Orders", total])
    if not screen.is_live:
        screen.say()
    rate = f", {judged.rate:,.0f} a second" if judged.rate else ""
    screen.say(
        f"{count:,} payouts{rate}; {judged.books.notified:,} notifications heard; "
        f"{seconds:.1f} s in all{' since it was started again' if goes_on else ''}."
    )
    if doubtful:
        screen.say(
            f"{len(doubtful):,} orders had no usable answer and were not sent again: {len(found):,} were "
            f"found, {len(doubtful) - len(found):,} were not and wait for a person."
        )
    _say_verdict(screen, setup, judged)
    shown = next(iter([*found, *judged.orders]))  # one with a story, if there is one
    commands = [
        command_line("bulk status", journal=folder.journal),
        command_line(
            "bulk report",
            journal=folder.journal,
            html=folder.path / "names.html",
            show_personal=True,
            overwrite=True,
        ),
        command_line("explain", shown.entry.request_id, journal=folder.journal),
    ]
    screen.say(f"\nWhat became of every order is in {escape(str(folder.html))} and {folder.csv.name}. To look further:")
    for command in commands:
        screen.command(command)
    screen.document(
        {
            "orders": count,
            "sum": setup.total,
            "currency": setup.currency,
            "faults": setup.chosen.faults,
            "seed": setup.chosen.seed,
            "concurrency": setup.chosen.concurrency,
            "outcomes": {
                state: {
                    "orders": progress.counts[state],
                    "sum": progress.sums[state],
                    "known_from": dict(told_by[state]),
                }
                for state in _STATES
            },
            "without_usable_answer": len(doubtful),
            "unknown": [one.entry.request_id for state in _OPEN for one in judged.orders if one.entry.state is state],
            "notifications": judged.books.notified,
            "rate": round(judged.rate, 1),
            "seconds": round(seconds, 2),
            "went_on": goes_on,
            "ledger": {
                "agrees": verdict.agrees,
                "carried_out": verdict.executed,
                "paid_twice": verdict.twice,
                "lost": verdict.lost,
                "paid": verdict.paid,
                "disagreements": verdict.disagreements,
            },
            "journal": str(folder.journal),
            "report": {"csv": str(folder.csv), "html": str(folder.html)},
            "look_further": commands,
        }
    )


def _sources(judged: JudgedRun, state: State) -> list[str]:
    return [one.told_by for one in judged.orders if one.entry.state is state and one.told_by]


def _say_verdict(screen: Screen, setup: DemoSetup, judged: JudgedRun) -> None:
    verdict = judged.verdict
    screen.say()
    counts = f"{verdict.twice:,} paid twice, {verdict.lost:,} lost"
    if verdict.agrees:
        screen.say(
            f"[bold green]The ledger agrees[/] in every order: [bold]{counts}[/]. {verdict.executed:,} were carried "
            f"out, each once; {len(judged.orders) - verdict.executed:,} not at all; "
            f"[bold]{money(verdict.paid, setup.currency)}[/] paid."
        )
        return
    screen.say(f"[bold red]The ledger disagrees[/] in {len(verdict.disagreements):,} points: [bold]{counts}[/].")
    for words in verdict.disagreements[:_SHOWN]:
        screen.say(f"  {escape(clean(words))}")

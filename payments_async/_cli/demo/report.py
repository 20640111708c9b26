"""The end of a demo on the screen: what became of the orders, what the ledger says, and where to look."""

from collections import Counter

import attrs
from rich.text import Text

from payments_async._cli.demo.folder import DemoFolder
from payments_async._cli.demo.run import DemoSetup, JudgedRun
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen, money, quoted
from payments_async.journal import UNSETTLED, State


def show_demo(
    screen: Screen, setup: DemoSetup, folder: DemoFolder, judged: JudgedRun, *, seconds: float, goes_on: bool
) -> None:
    """Write the final table, or the JSON document.

    Args:
        seconds: What it took, without earlier processes.
        goes_on: Whether there were any.
    """
    orders, verdict, total = judged.orders, judged.verdict, f"Sum {setup.currency}"
    by_state = {state: [one for one in orders if one.entry.state is state] for state in State}
    zero = setup.total * 0  # with the decimals of the finest amount
    sums = {state: sum((one.entry.amount for one in those), zero) for state, those in by_state.items()}
    told_by = {state: Counter(one.told_by for one in those if one.told_by) for state, those in by_state.items()}
    doubtful = [one for one in orders if one.was_doubtful]
    found = [one for one in doubtful if one.entry.state not in UNSETTLED]
    rows = [
        [
            Text(state, state.meaning.colour),
            Text(f"{len(those):,}", state.meaning.colour),
            Text(money(sums[state])),
            Text(", ".join(f"{source} {times:,}" for source, times in told_by[state].most_common())),
        ]
        for state, those in by_state.items()
        if those
    ]
    rows.append([Text("all", "bold"), Text(f"{len(orders):,}", "bold"), Text(money(setup.total), "bold"), Text()])
    space = not screen.is_live  # where a table begins and ends with an empty line
    if space:
        screen.say()
    screen.table(["Outcome", "Orders", total, "Known from"], rows, right=["Orders", total])
    if space:
        screen.say()
    rate = f", {judged.rate:,.0f} a second" if judged.rate else ""
    screen.say(
        f"{len(orders):,} payouts{rate}; {judged.books.notified:,} notifications heard; "
        f"{seconds:.1f} s in all{' since it was started again' if goes_on else ''}."
    )
    if doubtful:
        screen.say(
            f"{len(doubtful):,} orders had no usable answer and were not sent again: {len(found):,} were "
            f"found, {len(doubtful) - len(found):,} were not and wait for a person."
        )
    screen.say()
    counts = f"{verdict.paid_twice:,} paid twice, {verdict.lost:,} lost"
    if verdict.agrees:
        screen.say(
            f"[bold green]The ledger agrees[/] in every order: [bold]{counts}[/]. {verdict.carried_out:,} were carried "
            f"out, each once; {len(orders) - verdict.carried_out:,} not at all; "
            f"[bold]{money(verdict.paid, setup.currency)}[/] paid."
        )
    points = len(verdict.disagreements)
    title = f"[bold red]The ledger disagrees[/] in {points:,} points: [bold]{counts}[/]."
    screen.listing(title, verdict.disagreements, points)
    shown = next(iter([*found, *orders])).entry  # one with a story, if there is one
    names = folder.path / "names.html"
    commands = [
        command_line("bulk status", journal=folder.journal),
        command_line("bulk report", journal=folder.journal, html=names, show_personal=True, overwrite=True),
        command_line("explain", shown.request_id, journal=folder.journal),
    ]
    screen.say(f"\nWhat became of every order is in {quoted(str(folder.html))} and {folder.csv.name}. To look further:")
    for command in commands:
        screen.command(command)
    screen.document(
        {
            "orders": len(orders),
            "sum": setup.total,
            "currency": setup.currency,
            "faults": setup.chosen.faults,
            "seed": setup.chosen.seed,
            "concurrency": setup.chosen.concurrency,
            "outcomes": {
                state: {"orders": len(those), "sum": sums[state], "known_from": told_by[state]}
                for state, those in by_state.items()
            },
            "without_usable_answer": len(doubtful),
            "unknown": [one.entry.request_id for state in UNSETTLED for one in by_state[state]],
            "notifications": judged.books.notified,
            "rate": round(judged.rate, 1),
            "seconds": round(seconds, 2),
            "went_on": goes_on,
            "ledger": {"agrees": verdict.agrees, **attrs.asdict(verdict)},
            "journal": folder.journal,
            "report": {"csv": folder.csv, "html": folder.html},
            "look_further": commands,
        }
    )

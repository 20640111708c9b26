"""The end of the demo: outcome by state, and what the ledger says. Only shows what others found out."""

from __future__ import annotations

from rich.markup import escape
from rich.text import Text

from payments_async._cli._board import STYLES
from payments_async._cli._rehearsal import Rehearsal, Setup
from payments_async._cli._screen import Screen, clean, money
from payments_async._cli._tally import Outcome, Tally
from payments_async._cli._verdict import Verdict

__all__ = ["show_report"]

_SHOWN = 10


def show_report(screen: Screen, setup: Setup, rehearsal: Rehearsal, verdict: Verdict, seconds: float) -> None:
    """Write the final table, or the JSON document."""
    tally = rehearsal.tally
    screen.say()
    rows = [_row(tally, outcome) for outcome in Outcome if tally.count(outcome)]
    rows.append([Text("all", "bold"), Text(f"{len(tally):,}", "bold"), Text(money(tally.total()), "bold"), Text()])
    screen.table(
        ["Outcome", "Orders", f"Sum {setup.currency}", "Known from"], rows, right=["Orders", f"Sum {setup.currency}"]
    )
    if not screen.is_live:
        screen.say()
    screen.say(
        f"{len(tally):,} payouts, {rehearsal.rate:,.0f} a second; {rehearsal.notifications:,} notifications heard; "
        f"{seconds:.1f} s in all."
    )
    _say_doubt(screen, tally)
    _say_verdict(screen, setup, tally, verdict)
    screen.document(_document(setup, rehearsal, verdict, seconds))


def _row(tally: Tally, outcome: Outcome) -> list[Text]:
    sources = ", ".join(f"{source} {count:,}" for source, count in tally.evidence(outcome).most_common())
    style = STYLES[outcome]
    return [
        Text(outcome, style),
        Text(f"{tally.count(outcome):,}", style),
        Text(money(tally.total(outcome))),
        Text(sources or "turned away unread", "dim"),
    ]


def _say_doubt(screen: Screen, tally: Tally) -> None:
    if tally.doubtful:
        left = tally.count(Outcome.UNKNOWN)
        screen.say(
            f"{tally.doubtful:,} orders had no usable answer and were not sent again: "
            f"{tally.doubtful - left:,} were found, {left:,} stay unknown."
        )


def _say_verdict(screen: Screen, setup: Setup, tally: Tally, verdict: Verdict) -> None:
    screen.say()
    if verdict.agrees:
        screen.say(
            f"[bold green]The ledger agrees:[/] {verdict.executed:,} orders carried out, each once; "
            f"{len(tally) - verdict.executed:,} not at all; nothing lost; "
            f"[bold]{money(verdict.paid, setup.currency)}[/] paid."
        )
        return
    screen.say(f"[bold red]The ledger disagrees[/] in {len(verdict.disagreements):,} points:")
    for line in verdict.disagreements[:_SHOWN]:
        screen.say(f"  {escape(clean(line))}")


def _document(setup: Setup, rehearsal: Rehearsal, verdict: Verdict, seconds: float) -> dict[str, object]:
    tally = rehearsal.tally
    return {
        "orders": len(tally),
        "sum": tally.total(),
        "currency": setup.currency,
        "faults": setup.faults,
        "seed": setup.seed,
        "concurrency": setup.concurrency,
        "outcomes": {
            outcome.replace(" ", "_"): {
                "orders": tally.count(outcome),
                "sum": tally.total(outcome),
                "known_from": dict(tally.evidence(outcome)),
            }
            for outcome in Outcome
        },
        "without_usable_answer": tally.doubtful,
        "unknown": [order.request_id for order in tally.orders(Outcome.UNKNOWN)],
        "notifications": rehearsal.notifications,
        "rate": round(rehearsal.rate, 1),
        "seconds": round(seconds, 2),
        "ledger": {
            "agrees": verdict.agrees,
            "carried_out": verdict.executed,
            "paid": verdict.paid,
            "disagreements": list(verdict.disagreements),
        },
    }

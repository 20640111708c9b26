"""A plan of a batch: made from a file, shown to whoever approves it, and told to machines."""

from collections.abc import Mapping, Sequence

import attrs

from payments_async import PaymentsSession
from payments_async._cli.batch_file import RowOptions
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.screen import Screen, counted, money, quoted
from payments_async.bulk import Batch, BatchChanged, Duplicate, Issue, Plan, Share, plan
from payments_async.journal import Journal


async def make_plan(
    payments: PaymentsSession,
    batch: Batch,
    batch_id: str,
    journal: Journal | None,
    rows: RowOptions,
    *,
    validate: bool,
    concurrency: int = 50,
    rate: float | None = None,
) -> Plan:
    """The plan of a batch.

    Raises:
        BadInput: The file was changed meanwhile.
    """
    try:
        return await plan(
            payments,
            batch,
            batch_id=batch_id,
            journal=journal,
            validate=validate,
            skip_bad=rows.skip_bad,
            acknowledged=rows.acknowledge,
            concurrency=concurrency,
            rate=rate,
        )
    except BatchChanged as error:
        raise BadInput("the file was changed while it was read; begin again") from error


def show_plan(screen: Screen, made: Plan, title: str) -> None:
    """Write the summary of a plan."""
    total = quoted(money(made.total, made.currency))
    screen.say(f"[bold]{quoted(title)}[/]: {counted(made.count, 'payout')}, [bold]{total}[/]")
    screen.say()
    for name, shares in (("Kind", made.by_kind), ("Item", made.by_item)):
        _show_shares(screen, name, shares, made)
    screen.fields(
        [
            ("balance", f"{money(made.balance, made.currency)}"),
            ("left after", money(made.balance - made.open_total, made.currency)),
            ("recorded", f"{made.recorded:,} in the journal" if made.recorded else None),
            ("to be sent", f"{made.open_count:,}, {money(made.open_total, made.currency)}" if made.recorded else None),
            ("takes about", _duration(made.seconds)),
            ("digest", made.digest),
        ]
    )
    _show_concerns(
        screen, f"{counted(made.problem_count, 'problem')}: nothing can be sent as it is", "red", made.problems
    )
    looked = "looked at" if made.acknowledged else "look at it; nothing is sent without --acknowledge"
    _show_concerns(screen, f"{counted(len(made.concerns), 'concern')}: {looked}", "yellow", made.concerns)
    _show_concerns(screen, f"{made.left_out:,} left out", "yellow", made.skipped)
    found = made.duplicates
    title = (
        f"\n[bold yellow]Paid twice?[/] Same beneficiary and amount: {found.same_amount:,}; "
        f"same beneficiary, another amount: {found.other_amount:,}"
    )
    screen.listing(title, map(_duplicate, found.shown), found.same_amount + found.other_amount)
    _show_concerns(screen, "Look at this", "yellow", made.warnings)


def check_plan(made: Plan, approved: str | None) -> None:
    """Refuse a plan that is not clean, or not the one that was approved. Raises ``BadInput``."""
    if not made.is_clean and not made.problem_count:
        raise BadInput(
            f"{counted(len(made.concerns), 'concern')}, first: {made.concerns[0]}\n"
            "  nothing was sent; look at them, mend what is wrong, and send the rest with --acknowledge"
        )
    if not made.is_clean:
        raise BadInput(
            f"{counted(made.problem_count, 'problem')}, first: {made.problems[0]}\n"
            "  nothing was sent; mend them, or leave bad rows out with --skip-bad"
        )
    if approved is not None and approved.strip().lower() != made.digest:
        raise BadInput(
            f"--plan: these are not the payments that were approved: their digest is {made.digest}; "
            "nothing was sent. Plan the file again with the same options, and have that approved"
        )


def plan_document(made: Plan) -> dict[str, object]:
    """A plan for machines."""
    known = attrs.asdict(made, recurse=False, filter=lambda field, _: field.name != "orders")
    return {"clean": made.is_clean, **known}


def _show_shares(screen: Screen, name: str, shares: Mapping[str, Share], made: Plan) -> None:
    total = f"Sum {made.currency}" if made.currency else "Sum"
    rows = [[key, f"{share.count:,}", money(share.total)] for key, share in shares.items()]
    if rows:
        screen.table([name, "Orders", total], rows, right=["Orders", total])
        screen.say()


def _show_concerns(screen: Screen, title: str, style: str, concerns: Sequence[Issue]) -> None:
    screen.listing(f"\n[bold {style}]{title}[/]", map(str, concerns), len(concerns))


def _duplicate(one: Duplicate) -> str:
    where = f" of batch {one.batch_id}, {one.state}" if one.batch_id else ""
    again = "the same amount" if one.same_amount else "another amount"
    return f"{one.request_id}: {one.amount:,f} to {one.payee}, and {again} by {one.other}{where}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"

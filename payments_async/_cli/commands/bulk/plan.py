"""`payments-async bulk plan`: what a file would do, for whoever makes it and whoever approves it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import attrs
import typer

from payments_async._cli.agreement import signature
from payments_async._cli.batch_file import BatchFile, BatchId, FormatOptions, RowOptions, Validate, read_payments
from payments_async._cli.batch_plan import PlanChecks, make_plan, names_shown, plan_document, show_plan
from payments_async._cli.batch_source import (
    FEWEST,
    kept_options,
    named_batch,
    proposal_of,
    with_last_month,
    write_request,
)
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import (
    JournalFile,
    JournalPlace,
    existing,
    introduce,
    may_be_made,
    named_or_none,
    opened,
)
from payments_async._cli.screen import Screen, command_line, counted, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.telling import NotifyApprover, check_target, tell_waiting
from payments_async._cli.written import complaints
from payments_async.bulk import Batch, Plan, problems_file
from payments_async.bulk import approval_sheet as write_sheet
from payments_async.journal import Proposal, StateFolder

_NO_JOURNAL = "Name the company's journal (--journal, or PAYMENTS_JOURNAL) to see who is paid twice."


async def bulk_plan(
    screen: Screen,
    settings: ConnectionSettings,
    file: BatchFile,
    batch_id: BatchId = None,
    journal: JournalFile = None,
    validate: Validate = False,
    rows: RowOptions = RowOptions(),
    checks: PlanChecks = PlanChecks(),
    everything: Annotated[bool, typer.Option("--all", help="Show all that was found, not the first of each.")] = False,
    file_format: FormatOptions = FormatOptions(),
    maker: Annotated[
        str | None, typer.Option(help="Your name: propose it, so that another person may approve it.")
    ] = None,
    approval_sheet: Annotated[
        Path | None, typer.Option(help="Write the page on which it is approved: totals, the largest, the digest.")
    ] = None,
    problems: Annotated[
        Path | None, typer.Option(help="Write the file with what is wrong beside each row: mend it, and plan that.")
    ] = None,
    new_journal: Annotated[bool, typer.Option("--new-journal", help="With --maker: make it if there is none.")] = False,
    notify: NotifyApprover = None,
    request: Annotated[
        Path | None, typer.Option(help="With --maker: write what a person signs on another machine (bulk sign).")
    ] = None,
) -> Exit:
    """Show what a file would do: sums, problems, duplicates, balance, and a digest to approve. Sends nothing.

    With --maker it is proposed, with its file and all options: another person approves it (bulk approve), and `bulk
    run` sends exactly these payments or nothing. Without it nothing is kept, and looking makes you no maker.

    Example: payments-async bulk plan "Payroll November 2026.xlsx" --journal payroll.sqlite --maker "A. Clerk"
    """
    _check_notify(notify, maker)
    if request is not None and maker is None:
        raise BadInput("--request: only what is proposed can be signed; add --maker NAME")
    journal = named_or_none(journal)
    if maker is not None and journal is None:
        raise BadInput("--maker: what is proposed is kept in the journal; name it (--journal), or set PAYMENTS_JOURNAL")
    session = settings.session()  # what is missing there is told before a long file is read
    checks.amounts()
    async with existing(journal) as held, session as payments:
        await checks.is_batch(held)  # likewise
        batch_id = await named_batch(screen, held, file, batch_id)
        read = await read_payments(screen, file, batch_id, rows, file_format, journal)
        compared = await with_last_month(checks, held, file, batch_id)
        chosen = await compared.chosen(screen, held, file_format, journal)
        folder = StateFolder.OF_USER if held is None else held.remembered_in
        chosen = attrs.evolve(chosen, state_folder=folder)
        made = await make_plan(screen, payments, read.batch, batch_id, held, rows, chosen, validate=validate)
    names = await names_shown(screen, made, file, is_asked=True)
    show_plan(screen, made, f"{file.name}, batch {batch_id}", everything=everything, is_brief=True, names=names)
    if held is None:
        why = _NO_JOURNAL if journal is None else quoted(f"There is no journal {journal} yet.")
        screen.say(f"\n[bold yellow]No earlier payment is known.[/] {why}")
    await _give_back(screen, read.batch, problems)
    if approval_sheet is not None:
        with complaints(approval_sheet):
            await write_sheet(
                made,
                batch_id,
                approval_sheet,
                file=file.name,
                maker=maker or "",
                personal=screen.signs_in_full,
                overwrite=True,
            )
        screen.say(f"\nwrote {quoted(str(approval_sheet))}")
    status = Exit.FINE if made.is_clean else Exit.BAD_INPUT
    needed: int | None = None
    if maker is not None and journal is not None:
        options = kept_options(read.how, rows, checks, made)
        kept = proposal_of(made, batch_id, file, read.batch.digest, options, signature(maker))
        needed = await _proposed(screen, made, journal, kept, request, is_wanted=new_journal)
    if needed is not None and journal is not None:
        await _waits(screen, made, batch_id, journal, needed, notify)
    elif not made.problem_count:
        how = {**read.how, **checks.flags(), "skip_bad": rows.skip_bad, "acknowledge": bool(made.concerns)}
        more = {
            **checks.comparison(),
            "validate": validate,
            "maker": maker,
            "new_journal": new_journal,
            "approval_sheet": approval_sheet,
            "notify": notify,
            "request": request,
        }
        await _go_on(screen, made, file, journal, how, more)
    return screen.ended(
        status,
        {
            "batch_id": batch_id,
            "knows_earlier": held is not None,
            **plan_document(made),
            "proposed": needed is not None,
        },
    )


def _check_notify(target: str | None, maker: str | None) -> None:
    """Raise ``BadInput`` where it cannot be told, or nothing comes to wait."""
    if target is not None:
        check_target(target)
    if target is not None and maker is None:
        raise BadInput("--notify: only what is proposed waits for an approval; add --maker NAME")


async def _waits(
    screen: Screen, made: Plan, batch_id: str, journal: JournalPlace, needed: int, notify: str | None
) -> None:
    """Say how what is proposed is approved and sent, and tell the approver."""
    screen.say("Proposed. For another person to approve it:")
    digest = made.digest[:FEWEST]
    screen.command(f"{command_line('bulk approve', digest, journal=journal)} --who NAME")
    if journal.reach:
        screen.say(journal.reach)
    waits = ", once it is approved" if needed else "; no approval is needed (bulk approvals)"
    screen.say(f"To send exactly this{waits}:")
    screen.command(command_line("bulk run", journal=journal, batch_id=batch_id))
    if notify is not None:
        facts = {"orders": made.open_count, "sum": made.open_total, "currency": made.currency, "digest": digest}
        await tell_waiting(screen, notify, "bulk plan", batch_id=batch_id, journal=str(journal), **facts)


async def _go_on(
    screen: Screen,
    made: Plan,
    file: Path,
    journal: JournalPlace | None,
    how: Mapping[str, object],
    proposal: Mapping[str, object],
) -> None:
    """Say how what was not proposed is sent, or proposed once its concerns were looked at.

    Args:
        how: The options that make the same orders.
        proposal: Further ones, for who proposes them.
    """
    looked = "" if made.is_clean else ", once you have looked at the concerns"
    if made.is_clean or proposal["maker"] is None:
        screen.say(f"\nTo send exactly this{looked}:")
        is_new = journal is None or not await journal.exists()
        place = journal or Path("payments.sqlite")
        line = command_line("bulk run", str(file), journal=place, **how, plan=made.digest, new_journal=is_new)
    else:
        screen.say(f"To propose it{looked}:")
        line = command_line("bulk plan", str(file), journal=journal, **how, **proposal)
    screen.command(line)


async def _give_back(screen: Screen, batch: Batch, path: Path | None) -> None:
    """Write the file with what is wrong beside each row, or say how."""
    if path is not None:
        with complaints(path):
            mended = await problems_file(batch, path)
        screen.say(f"\nwrote {quoted(str(path))}: {counted(mended.found, 'row')} to mend; plan it once they are")
    elif batch.problems:
        screen.say("\n--problems FILE.xlsx writes the sheet with what is wrong beside each row")


async def _proposed(
    screen: Screen,
    made: Plan,
    place: JournalPlace,
    kept: Proposal,
    request: Path | None,
    *,
    is_wanted: bool,
) -> int | None:
    """Write down whose plan it is; tells how many approvals it needs, or ``None`` if it was not proposed."""
    if not made.is_clean:
        screen.trouble("it was not proposed, so it cannot be approved as it is")
        return None
    if not await may_be_made(screen, place, is_wanted=is_wanted):
        screen.trouble("it was not proposed")
        return None
    async with opened(place, new=True) as held:
        introduce(screen, place, held)
        await held.propose(kept)
        own = [one for one in await held.proposals(kept.digest) if one.withdrawn is None and one.by.who == kept.by.who]
        needed = (await held.approval_rule()).needed
    if request is not None:
        await write_request(screen, own[-1], request)
    return needed

"""`payments-async bulk approve` and `approvals`: the second pair of eyes."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import attrs
import typer

from payments_async._cli.agreement import show_orders, signature
from payments_async._cli.batch_file import FormatOptions, RowOptions, read_payments
from payments_async._cli.batch_plan import make_plan, names_shown, show_plan
from payments_async._cli.batch_source import DIGITS, FEWEST, options_of, show_proposal, write_request
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.journal import JournalFile, JournalPlace, may_be_made, opened
from payments_async._cli.screen import Screen, clean, command_line, counted, money, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.written import read_small
from payments_async.journal import Approval, ApprovalRule, Journal, NotApproved, Proposal
from payments_async.journal.contract import is_one_person

Which = Annotated[
    str | None,
    typer.Argument(metavar="DIGEST|BATCH", help="The digest, or its first 8 digits, or the batch; else the one open."),
]


async def bulk_approve(
    screen: Screen,
    settings: ConnectionSettings,
    who: Annotated[str | None, typer.Option(help="Your name: you answer for it.")] = None,
    which: Which = None,
    note: Annotated[str, typer.Option(help="What you looked at; kept.")] = "",
    journal: JournalFile = None,
    file: Annotated[
        Path | None, typer.Option(help="The batch file: show what it pays, and approve nothing else.")
    ] = None,
    rows: RowOptions = RowOptions(),
    file_format: FormatOptions = FormatOptions(),
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take your approval back.")] = False,
    answer: Annotated[
        Path | None,
        typer.Option("--from", help="Take what an approver signed on another machine (bulk sign)."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> Exit:
    """Approve exactly the payments that a digest stands for, as somebody other than who proposed them.

    The proposal is shown first, with each payee and amount in the file that was planned, or in a copy (--file).
    Where neither is here, look at the sheet (bulk plan --approval-sheet) before you agree. The name, the login, the
    machine and the time are kept in the journal, and shown in the report. With --withdraw its maker takes the proposal
    back, and an approver the approval.

    Compare the first eight digits of the digest with those on the sheet. With --yes the digest has to be named.
    With --from, the answer names all of it, and the person.

    Example: payments-async bulk approve 3f0c19ab --who "B. Head" --note "compared with May" --journal payroll.sqlite
    """
    if answer is not None:
        if (who, which, file, withdraw, note) != (None, None, None, False, ""):
            raise BadInput("--from: the answer names person, note and digest; leave out the other options")
        return await _take(screen, journal, answer)
    if who is None:
        raise BadInput("--who: your name, or --from ANSWER for what was signed on another machine")
    by = signature(who)
    async with opened(journal) as held:
        proposal = await _chosen(held, which, withdraw=withdraw, yes=yes)
        digest = proposal.digest
        show_proposal(screen, proposal)
        if not withdraw:
            await _show_file(screen, settings, proposal, file, held, rows, file_format, journal)
        is_maker = withdraw and is_one_person(by, proposal.by, shared_logins=True)
        verb = "approve" if not withdraw else "withdraw your proposal of" if is_maker else "withdraw your approval of"
        screen.confirm(f"Do you, {by.who}, {verb} exactly these payments?", yes=yes)
        try:
            given: object
            if is_maker:
                given = await held.withdraw_proposal(digest, by=by)
            elif withdraw:
                given = await held.withdraw_approval(digest, by=by)
            else:
                given = await held.approve(digest, by=by, note=note)
        except NotApproved as error:
            rule = {"journal": journal, "needed": max((await held.approval_rule()).needed, 1), "shared_logins": True}
            names = f"{command_line('bulk approvals', **rule)} --who NAME --why REASON"
            hint = f". Sign on a machine of your own (bulk sign), or have names alone count: {names}"
            hint = hint if "login" in error.message else ""
            raise BadInput(f"{clean(error.message)}{hint}") from error
        approvals = await _standing(held, digest)
        begun = [run for run in await held.runs() if withdraw and run.source_digest == digest]
    screen.say(f"{'withdrawn' if withdraw else 'approved'} by {quoted(str(by))}")
    _tell_standing(screen, approvals, None if withdraw else proposal, journal)
    for run in begun:  # approvals are asked for when a batch is begun
        stop = "stop that run" if run.outbox is None else f"`payments-async outbox pause --name {clean(run.outbox)}`"
        screen.trouble(
            f"{run.batch_id} was begun before: whoever has it in hand goes on sending it", f"to stop it: {stop}"
        )
    facts = {"digest": digest, "approval": given, "standing": len(approvals)}
    return screen.ended(Exit.FINE, {**facts, "begun": [run.batch_id for run in begun]})


async def _take(screen: Screen, journal: JournalPlace | None, answer: Path) -> Exit:
    """Approve by what another person signed."""
    signed = await asyncio.to_thread(read_small, answer)
    async with opened(journal) as held:
        try:
            given = await held.approve_signed(signed)
        except NotApproved as error:
            raise BadInput(f"--from: {clean(error.message)}. Nothing was approved") from error
        except (ValueError, ModuleNotFoundError) as error:
            raise BadInput(f"--from {answer}: {clean(str(error))}. Nothing was approved") from error
        approvals = await _standing(held, given.digest)
        proposal = [one for one in await held.proposals(given.digest) if one.withdrawn is None][-1]
    show_proposal(screen, proposal)
    screen.say(f"approved by {quoted(str(given.by))}: {quoted(given.note)}")
    _tell_standing(screen, approvals, proposal, journal)
    return screen.ended(Exit.FINE, {"digest": given.digest, "approval": given, "standing": len(approvals)})


async def _standing(journal: Journal, digest: str) -> list[Approval]:
    return [one for one in await journal.approvals(digest) if one.withdrawn is None]


def _tell_standing(
    screen: Screen, approvals: list[Approval], proposal: Proposal | None, journal: JournalPlace | None
) -> None:
    """Write who approves by now, and how a proposal is sent."""
    screen.say(f"approvals that stand: {len(approvals):,}: {quoted(', '.join(one.by.who for one in approvals) or '-')}")
    if proposal is not None and proposal.path:
        screen.say("To send exactly this:")
        screen.command(command_line("bulk run", journal=journal, batch_id=proposal.batch_id))


async def bulk_approvals(
    screen: Screen,
    which: Which = None,
    journal: JournalFile = None,
    needed: Annotated[
        int | None, typer.Option(min=0, max=100, help="From now on so many must approve each batch.")
    ] = None,
    shared_logins: Annotated[
        bool, typer.Option("--shared-logins", help="With --needed: tell persons apart by their names alone.")
    ] = False,
    who: Annotated[str | None, typer.Option(help="With --needed: who says so; kept.")] = None,
    why: Annotated[str | None, typer.Option(help="With --needed: the reason; kept.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --needed: ask for less without asking you.")] = False,
    new_journal: Annotated[
        bool, typer.Option("--new-journal", help="With --needed: make the journal if there is none.")
    ] = False,
    request: Annotated[
        Path | None, typer.Option(help="Write what is to be approved, to be signed on another machine (bulk sign).")
    ] = None,
) -> Exit:
    """Show what was proposed and who approved it; or have every batch of this journal approved from now on.

    The rule is kept in the journal, so that no run can forget it: `bulk run`, `outbox put` and programs on the journal
    refuse a batch that too few have approved. Who asks for less than before is shown whose rule it was, and asked.
    Whoever can write the journal's file could also change the rule; each change of it is kept and shown.

    Example: payments-async bulk approvals --needed 1 --who "C. Board" --why "four eyes" --journal payroll.sqlite
    """
    if (which is not None and request is None) or (request is not None and needed is not None):
        raise BadInput("--request: it goes with a digest or a batch, and without --needed")
    if needed is not None and not (who and why):
        raise BadInput("--needed: say --who sets the rule, and --why; both are kept")
    if needed is None and (shared_logins or who is not None or why is not None or yes or new_journal):
        raise BadInput("--shared-logins, --who, --why, --yes and --new-journal: they go with --needed")
    is_missing = needed is not None and journal is not None and not await journal.exists()
    if is_missing and journal is not None and not await may_be_made(screen, journal, is_wanted=new_journal):
        raise Declined("nothing was changed")
    async with opened(journal, new=is_missing) as held:
        if needed is not None:
            rule = ApprovalRule(needed=needed, shared_logins=shared_logins, why=why or "", by=signature(who or ""))
            if not yes:
                await _agree_to_less(screen, held, rule)
            await held.require_approvals(rule)
        rule = await held.approval_rule()
        if request is not None:
            await write_request(screen, await _chosen(held, which, withdraw=False, yes=False), request)
        shown = await _rows(screen, held)
        approvers = await held.approvers()
    words = f"{counted(rule.needed, 'approval')} needed for each batch" if rule.needed else "no approval is needed"
    by = f", as {quoted(str(rule.by))} set on {_day(rule.by.at)}: {quoted(rule.why)}" if rule.by else ""
    screen.say(f"[bold]{words}[/]{by}")
    if rule.shared_logins:
        screen.say("persons are told apart by their names alone (--shared-logins)")
    for one in approvers:
        words = f"{one.name} may sign on another machine, key {one.fingerprint}, as {one.by} states: {one.why}"
        screen.say(quoted(words))
    return screen.ended(Exit.FINE, {"rule": rule, "proposals": shown, "approvers": approvers})


async def _agree_to_less(screen: Screen, journal: Journal, rule: ApprovalRule) -> None:
    """Ask where a rule is given up, and show whose it was. Raises ``Declined``."""
    before = await journal.approval_rule()  # also one that a backup has forgotten: the machine remembers it
    if rule.needed >= before.needed and (before.shared_logins or not rule.shared_logins or not before.needed):
        return
    by = f", as {before.by} set on {_day(before.by.at)}: {before.why}" if before.by else ""
    screen.say(f"[bold yellow]Until now[/] {counted(before.needed, 'approval')} needed for each batch{quoted(by)}")
    if rule.needed:
        words = f"{counted(rule.needed, 'approval')} needed"
        question = f"From now on {words}{', by names alone' if rule.shared_logins else ''}?"
    else:
        question = "From now on the maker of a batch can send it alone?"
    screen.confirm(question, yes=False)


async def _rows(screen: Screen, journal: Journal) -> list[dict[str, object]]:
    """What was proposed, as it is shown; for machines in full."""
    rows, documents = [], []
    for one in await journal.proposals():
        given = await journal.approvals(one.digest)
        gone = "" if one.withdrawn is None else " (withdrawn)"
        names = [f"{approval.by.who}{' (withdrawn)' if approval.withdrawn else ''}" for approval in given]
        amount, given_by = money(one.amount, one.currency), ", ".join(names) or "-"
        rows.append(
            [
                one.digest,
                one.batch_id,
                f"{one.orders:,}",
                amount,
                f"{one.by.who}{gone}",
                _day(one.by.at),
                given_by,
            ]
        )
        documents.append({**attrs.asdict(one, recurse=True), "approvals": given})
    if rows:
        columns = ["Digest", "Batch", "Orders", "Sum", "Proposed by", "On", "Approved by"]
        screen.table(columns, rows, right=["Orders", "Sum"])
        screen.say()
    return documents


async def _chosen(journal: Journal, which: str | None, *, withdraw: bool, yes: bool) -> Proposal:
    """The proposal that is meant: the only one that nobody has begun, or the one that is named.

    Raises:
        BadInput: None is, or several are.
    """
    begun = {run.source_digest for run in await journal.runs()}
    name = (which or "").strip()
    word = name.lower()
    exact = await journal.proposals(word) if word else ()  # also an old one
    made = [one for one in (*await journal.proposals(), *exact) if one.withdrawn is None]
    known = {one.digest: one for one in made}  # the latest of each digest
    found = [one for one in known.values() if len(word) >= FEWEST and one.digest.startswith(word)]
    if not found and len(word) < DIGITS:
        if name:
            found = [one for one in known.values() if one.batch_id == name]
        else:
            found = [one for one in known.values() if withdraw or one.digest not in begun]
        if found and yes:
            raise BadInput("--yes: name the digest that you looked at, by eight of its digits or all of them")
    if len(found) == 1:
        return found[0]
    if found:
        names = {one.digest: f"batch {one.batch_id}" if one.batch_id else one.file for one in found}
        several = "; ".join(f"{digest[:FEWEST]} of {clean(name)}" for digest, name in names.items())
        raise BadInput(f"several are proposed: name one by its digest: {several}")
    raise BadInput(
        f"no plan was proposed{f' as {clean(name)}' if name else ', or it was begun'}; its maker proposes it with "
        "`payments-async bulk plan FILE ... --maker NAME`"
    )


async def _show_file(
    screen: Screen,
    settings: ConnectionSettings,
    proposal: Proposal,
    file: Path | None,
    journal: Journal,
    rows: RowOptions,
    file_format: FormatOptions,
    place: JournalPlace | None,
) -> None:
    """Write what the file of a proposal pays, to whom; or that it is not here.

    Raises:
        BadInput: The file that was named is not what was proposed.
    """
    path = Path(proposal.path) if proposal.path else None
    if file is None and path is not None and await asyncio.to_thread(path.is_file):
        rows, file_format, _ = options_of(proposal)
        file = path
    if file is None:
        screen.say("[yellow]The payees are not on this machine:[/] look at its sheet, or name the batch file (--file)")
        return
    is_exact = file == path
    read = await read_payments(screen, file, proposal.batch_id, rows, file_format, place, is_exact=is_exact)
    async with settings.session() as payments:
        made = await make_plan(screen, payments, read.batch, proposal.batch_id, journal, rows, validate=False)
    title = f"{file.name}, batch {proposal.batch_id}"
    show_plan(screen, made, title, names=await names_shown(screen, made, file, is_asked=True))
    if made.digest != proposal.digest:
        raise BadInput(
            f"--file: {file} does not hold the payments that were proposed: their digest is {made.digest}; nothing was "
            "approved. Read the file with the same options, or ask the person who proposed them"
        )
    await show_orders(screen, payments, made)


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"

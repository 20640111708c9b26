"""`payments-async outbox put`: a batch file put into an outbox, to be sent by whoever works it."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated

import attrs
import typer

from payments_async._cli.agreement import agree
from payments_async._cli.batch_file import (
    BatchFile,
    FormatOptions,
    RowOptions,
    Validate,
    check_guesses,
    read_payments,
)
from payments_async._cli.batch_plan import (
    PlanChecks,
    check_plan,
    make_plan,
    names_shown,
    plan_document,
    show_plan,
)
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.journal import (
    JournalFile,
    JournalPlace,
    SecondJournal,
    existing,
    introduce,
    may_be_made,
    opened,
    seconded,
)
from payments_async._cli.outbox_state import NewJournal, OutboxName, check_new_outbox, pause_document
from payments_async._cli.screen import Screen, clean, command_line, counted, money, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.standard_output import tell_always
from payments_async.bulk import BatchChanged
from payments_async.journal import JournalUnavailable, Run
from payments_async.journal.contract import Loaded
from payments_async.outbox import Outbox


@attrs.frozen(kw_only=True)
class Put:
    """What is put where, as it was given on the command line."""

    file: BatchFile
    batch_id: Annotated[str, typer.Option(help="Names the batch, once and for ever, as in payroll-2026-11.")]
    journal: JournalFile = None
    name: OutboxName = "outbox"
    approved: Annotated[str | None, typer.Option("--plan", help="The digest that was approved; put exactly that.")] = (
        None
    )
    validate: Validate = False
    yes: Annotated[bool, typer.Option("--yes", help="Put it without asking.")] = False
    new_journal: NewJournal = False
    second_journal: SecondJournal = None


async def outbox_put(
    screen: Screen,
    settings: ConnectionSettings,
    what: Put,
    rows: RowOptions = RowOptions(),
    checks: PlanChecks = PlanChecks(),
    file_format: FormatOptions = FormatOptions(),
) -> Exit:
    """Put a file into an outbox: whoever works it sends each order once. The same again adds nothing.

    Nothing is put unless every row is good (or --skip-bad leaves bad ones out), the digest is the approved one (--plan)
    and you say yes. All of it is put or nothing.

    Example: payments-async outbox put payroll.csv --batch-id payroll-2026-11 --journal shop.sqlite
    """
    journal = seconded(what.journal, what.second_journal)
    return await put_file(
        screen, settings, journal, what, rows, checks, file_format, put=Outbox.put_batch, works="outbox run"
    )


async def put_file(
    screen: Screen,
    settings: ConnectionSettings,
    journal: JournalPlace | None,
    what: Put,
    rows: RowOptions,
    checks: PlanChecks,
    file_format: FormatOptions,
    *,
    put: Callable[..., Awaitable[Loaded]],
    works: str,
) -> Exit:
    """Put a file into an outbox.

    Args:
        put: Does it, as ``Outbox.put_batch``.
        works: The command of those who send it.
    """
    if journal is None:
        raise BadInput("--journal: name the journal of the outbox, or set PAYMENTS_JOURNAL")
    file, batch_id, name = what.file, what.batch_id, what.name
    session = settings.session()
    checks.amounts()
    # which may be long: what the settings lack was told before
    read = await read_payments(screen, file, batch_id, rows, file_format, journal)
    check_guesses(read.batch, what.approved, yes=what.yes)
    async with session as payments:
        async with existing(journal) as held:
            if held is not None:
                await check_new_outbox(held, name, is_wanted=False)
                _check_own(await held.runs(), batch_id, name)
            made = await make_plan(
                screen,
                payments,
                read.batch,
                batch_id,
                held,
                rows,
                await checks.chosen(screen, held, file_format, journal),
                validate=what.validate,
            )
        show_plan(
            screen,
            made,
            f"{file.name}, batch {batch_id}",
            names=await names_shown(screen, made, file, is_asked=not what.yes),
        )
        check_plan(made, what.approved)
        if not await may_be_made(screen, journal, is_wanted=what.new_journal):
            raise Declined("nothing was put")
        question = (
            f"Put {counted(made.open_count, 'payout')}, {money(made.open_total, made.currency)}, into the outbox "
            f"{clean(name)}? Its worker sends them."
        )
        if made.recorded < made.count and not what.yes:
            await agree(screen, payments, made, question, otherwise="nothing was put")
        try:
            tell_always()
            async with opened(journal, new=True) as held:
                introduce(screen, journal, held)
                async with Outbox(payments, held, name, worker=None) as outbox:
                    loaded = await put(outbox, batch_id, made)
                paused = await held.paused(name)
        except BatchChanged as error:
            raise BadInput("the file was changed while it was read; nothing was put. Begin again") from error
        except JournalUnavailable as error:
            screen.trouble(f"stopped: {error}", "nothing of it is sent before all of it was put: put it again")
            return screen.ended(Exit.STOPPED, {"batch_id": batch_id, "stopped": str(error)})
    added = f"{counted(loaded.added, 'payout')} put into" if loaded.added else "all of it was put before into"
    screen.say(f"\n{added} the outbox {quoted(name)}, as batch {quoted(batch_id)}; its worker sends it:")
    screen.command(command_line(works, journal=journal, name=name))
    if paused is not None:
        screen.say(f"[yellow]The outbox is paused[/] by {quoted(paused.who)}: {quoted(paused.why)}")
    return screen.ended(
        Exit.FINE,
        {
            "batch_id": batch_id,
            "outbox": name,
            "plan": plan_document(made),
            "orders": loaded.total,
            "added": loaded.added,
            "paused": pause_document(paused),
        },
    )


def _check_own(runs: Iterable[Run], batch_id: str, name: str) -> None:
    """Raise ``BadInput`` where a batch is there already, and not this outbox's."""
    for run in runs:
        if run.batch_id == batch_id and run.outbox != name:
            whose = "`bulk run` sends it" if run.outbox is None else f"outbox {clean(run.outbox)} sends it"
            raise BadInput(f"--batch-id: the journal holds {clean(batch_id)} already, and {whose}")

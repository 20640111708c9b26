"""`payments-async bulk run`: a file sent once it is clean, approved and confirmed. The same command goes on."""

from typing import Annotated

import attrs
import typer

from payments_async import PaymentsSession
from payments_async._cli.agreement import agree
from payments_async._cli.batch_file import (
    BatchFile,
    BatchId,
    FileFormat,
    RowOptions,
    Validate,
    check_guesses,
    read_payments,
)
from payments_async._cli.batch_plan import PlanChecks, check_plan, make_plan, names_shown, plan_document, show_plan
from payments_async._cli.batch_state import exit_after, progress_document, show_progress, tell_next
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.journal import (
    JournalFile,
    JournalPlace,
    SecondJournal,
    check_doubt,
    existing,
    introduce,
    may_be_made,
    opened,
    seconded,
)
from payments_async._cli.limits import RunLimits, session_limits
from payments_async._cli.live_view import LiveView, looking
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen, clean, counted, money, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.signals import draining
from payments_async._cli.telling import Notify, Teller, printed, telling
from payments_async.bulk import BatchChanged, Fuse, Plan, RunProgress, run_batch
from payments_async.journal import ApprovalRule, HeldElsewhere, Journal, JournalUnavailable, TakeoverAuthorisation
from payments_async.journal.contract import why_not_approved


async def bulk_run(
    screen: Screen,
    settings: ConnectionSettings,
    file: BatchFile,
    batch_id: BatchId,
    journal: JournalFile = None,
    approved: Annotated[
        str | None, typer.Option("--plan", help="The digest that was approved; send exactly that.")
    ] = None,
    rows: RowOptions = RowOptions(),
    validate: Validate = False,
    limits: RunLimits = RunLimits(),
    yes: Annotated[bool, typer.Option("--yes", help="Send without asking.")] = False,
    new_journal: Annotated[
        bool, typer.Option("--new-journal", help="Make the journal if there is none. It knows no earlier payment.")
    ] = False,
    second_journal: SecondJournal = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt", help="Take over orders of a lost journal: nothing is sent before they were looked for."
        ),
    ] = False,
    needs_approval: Annotated[
        int, typer.Option(min=0, max=100, help="So many others than its maker must have approved it.")
    ] = 0,
    who: Annotated[str | None, typer.Option(help="With --adopt: who says so; kept.")] = None,
    why: Annotated[str | None, typer.Option(help="With --adopt: what became of the other.")] = None,
    checks: PlanChecks = PlanChecks(),
    file_format: FileFormat = FileFormat(),
    notify: Notify = None,
) -> Exit:
    """Send a file, or go on with it. Every order is written down before and after; none is ever sent twice.

    Nothing is sent unless every row is good (or --skip-bad leaves bad ones out), the digest is the approved one
    (--plan), as many others have approved it as the journal asks for (bulk approvals), and you say yes. Before its
    first order the service's list is read: what it shows was sent already, and is not sent again. Ctrl-C finishes what
    is under way; a second one breaks it off. The same command goes on.

    Example: payments-async bulk run payroll.csv --batch-id payroll-2026-11 --journal payroll.sqlite --max-unknown 10
    """
    adoption = _adoption(adopt, who, why)
    journal = seconded(journal, second_journal)
    if journal is not None and adoption is not None:
        journal = attrs.evolve(journal, second_journal=adoption)
    if journal is None:
        raise BadInput("--journal: name the journal's file, or set PAYMENTS_JOURNAL; it is made if there is none")
    fuse = limits.fuse()
    session = settings.session(session_limits(limits))
    checks.amounts()
    async with telling(screen, notify, "bulk run", batch_id=batch_id, journal=str(journal)) as teller:
        # which may be long: what the settings lack was told before
        read = await read_payments(screen, file, batch_id, rows, file_format, journal)
        check_guesses(read.batch, approved, yes=yes)
        async with session as payments:
            async with existing(journal) as held:
                made = await make_plan(
                    screen,
                    payments,
                    read.batch,
                    batch_id,
                    held,
                    rows,
                    await checks.chosen(screen, held, file_format, journal),
                    validate=validate,
                    concurrency=limits.concurrency,
                    rate=limits.rate,
                )
            names = await names_shown(screen, made, file, is_asked=not yes)
            show_plan(screen, made, f"{file.name}, batch {batch_id}", names=names)
            check_plan(made, approved)
            await _check_approved(journal, made, needs_approval)
            if not await may_be_made(screen, journal, is_wanted=new_journal):
                raise Declined("nothing was sent")
            question = f"Send {counted(made.open_count, 'payout')}, {money(made.open_total, made.currency)}?"
            if made.open_count and not yes:
                await agree(screen, payments, made, question, otherwise="nothing was sent")
            again = command_line(
                "bulk run",
                str(file),
                journal=journal,
                **read.how,
                **checks.flags(),
                plan=made.digest,
                skip_bad=rows.skip_bad,
                acknowledge=rows.acknowledge,
                validate=validate,
                needs_approval=needs_approval or None,
                notify=printed(notify),
                **attrs.asdict(limits),
            )
            run = _BatchRun(
                screen=screen,
                payments=payments,
                journal=journal,
                batch_id=batch_id,
                plan=made,
                limits=limits,
                fuse=fuse,
                adoption=adoption,
                approvals=needs_approval,
                again=again,
                teller=teller,
            )
            return teller.ended(await run.carry_out())


@attrs.frozen(kw_only=True)
class _BatchRun:
    """A plan on its way.

    Attributes:
        again: The command that goes on with it.
    """

    screen: Screen
    payments: PaymentsSession
    journal: JournalPlace
    batch_id: str
    plan: Plan
    limits: RunLimits
    fuse: Fuse
    adoption: TakeoverAuthorisation | None
    approvals: int
    again: str
    teller: Teller

    async def carry_out(self) -> Exit:
        """Send it, show it, and say how to go on."""
        screen = self.screen
        screen.say()
        try:
            async with opened(self.journal, new=True) as journal:
                introduce(screen, self.journal, journal)
                if self.limits.without_looking:
                    await check_doubt(journal)
                progress = await self._sent(journal)
                quarantined = (await journal.run(self.batch_id)).quarantined
        except BatchChanged as error:
            raise BadInput("the file was changed while it was read; nothing was sent. Plan it again") from error
        except JournalUnavailable as error:
            screen.trouble(f"stopped: {error}", f"go on with: {self.again}")
            self.teller.facts["stopped"] = str(error)
            return screen.ended(Exit.STOPPED, {"batch_id": self.batch_id, "stopped": str(error)})
        return self._told(progress, quarantined)

    async def _sent(self, journal: Journal) -> RunProgress:
        """Send what is planned, and tell how far that came."""
        view = LiveView(self.screen, self.plan.count, self.plan.currency, payments=self.payments)
        with view, draining(self.screen) as stop:
            try:
                async with view.attending():
                    progress = await run_batch(
                        self.payments,
                        journal,
                        self.batch_id,
                        self.plan.orders,
                        concurrency=self.limits.concurrency,
                        rate=self.limits.rate,
                        progress=view,
                        fuse=self.fuse,
                        stop=stop.drain,
                        source_digest=self.plan.digest,
                        adoption=self.adoption,
                        approvals=self.approvals,
                        look_first="never" if self.limits.without_looking else "always",
                    )
            except HeldElsewhere as error:
                raise BadInput(
                    f"{error.message}\n  nothing was sent. Go on with that journal; only if it is lost, adopt them: "
                    f"{self.again} --adopt --who NAME --why REASON"
                ) from error
        if not stop.is_hard:
            return progress
        left = await journal.progress(self.batch_id)
        return RunProgress(counts=left.counts, sums=left.sums, conflicts=left.conflicts, stopped="it was broken off")

    def _told(self, progress: RunProgress, quarantined: int) -> Exit:
        """Tell how the batch stands now and what is to be done next; the exit status."""
        screen, status = self.screen, exit_after(progress, progress.stopped, quarantined=quarantined)
        document = progress_document(progress)
        self.teller.facts |= {"stopped": progress.stopped, "sent": progress.sent, "progress": document}
        screen.say()
        show_progress(screen, progress, self.plan.currency)
        if progress.looked is not None:
            screen.say(quoted(looking(progress.looked)))
        if progress.sent and progress.seconds:
            screen.say(
                f"{progress.sent:,} sent in {progress.seconds:,.1f} s, {progress.sent / progress.seconds:,.0f}/s"
            )
        if self.plan.left_out:
            screen.say(
                f"\n[yellow]Left out of the file, and not paid:[/] {counted(self.plan.left_out, 'row')}, as told above"
            )
        tell_next(screen, progress, self.journal, self.batch_id, quarantined=quarantined)
        if progress.stopped is not None:
            screen.trouble(f"stopped: {progress.stopped}", f"go on with: {self.again}")
        if progress.looked is not None and progress.looked.problem not in (None, progress.stopped):
            screen.trouble("only if nothing of this was ever sent, from any journal: add --without-looking")
        return screen.ended(
            status,
            {
                "batch_id": self.batch_id,
                "plan": plan_document(self.plan),
                "progress": document,
                "looked": progress.looked,
                "stopped": progress.stopped,
                "sent": progress.sent,
                "seconds": progress.seconds,
                "go_on_with": self.again if progress.stopped is not None else None,
            },
        )


async def _check_approved(place: JournalPlace, made: Plan, needed: int) -> None:
    """Refuse a plan that too few have approved, before anything is asked; the journal refuses it in any case.

    Raises:
        BadInput: They have not.
    """
    async with existing(place) as held:
        rule = ApprovalRule() if held is None else await held.approval_rule()
        proposals = () if held is None else await held.proposals(made.digest)
        approvals = () if held is None else await held.approvals(made.digest)
    refusal = why_not_approved(rule, made.digest, proposals, approvals, needed)
    if refusal is not None:
        raise BadInput(f"{clean(str(refusal))}. Nothing was sent")


def _adoption(adopt: bool, who: str | None, why: str | None) -> TakeoverAuthorisation | None:
    """The word of the person who lets orders of a lost journal go on in this one."""
    if not adopt:
        if who is not None or why is not None:
            raise BadInput("--who and --why: they go with --adopt")
        return None
    if not (who and why):
        raise BadInput("--adopt: say --who states it, and --why the other journal cannot go on; both are kept")
    return TakeoverAuthorisation(who=who, why=why)

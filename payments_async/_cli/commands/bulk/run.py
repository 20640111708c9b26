"""`payments-async bulk run`: a batch sent once it is clean, approved and confirmed. The same command goes on."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from payments_async import PaymentsSession
from payments_async._cli.agreement import agree
from payments_async._cli.batch_file import BatchId, FormatOptions, RowOptions, Validate, check_guesses, read_payments
from payments_async._cli.batch_plan import (
    PlanChecks,
    check_plan,
    make_plan,
    names_shown,
    plan_document,
    show_plan,
)
from payments_async._cli.batch_source import (
    kept_options,
    named_batch,
    open_batch,
    options_of,
    proposal_of,
    signed_here,
    whole_digest,
    with_last_month,
)
from payments_async._cli.batch_state import currency_of, exit_after, progress_document, show_progress, tell_next
from payments_async._cli.commands.bulk.papers import bulk_retry_file
from payments_async._cli.commands.bulk.reconcile import settle
from payments_async._cli.commands.bulk.report import bulk_report
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.journal import (
    JournalFile,
    JournalPlace,
    SecondJournal,
    check_doubt,
    existing,
    introduce,
    may_be_made,
    named,
    opened,
    seconded,
)
from payments_async._cli.limits import RunLimits, session_limits
from payments_async._cli.listening import Listening
from payments_async._cli.live_view import LiveView, looking
from payments_async._cli.screen import Screen, clean, command_line, counted, money, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.signals import draining
from payments_async._cli.telling import Notify, Teller, printed, telling
from payments_async._cli.written import stem_of
from payments_async.bulk import (
    Batch,
    BatchChanged,
    BatchTerms,
    Fuse,
    Plan,
    RunProgress,
    RunSettings,
    particulars_in,
    run_batch,
)
from payments_async.journal import (
    UNPAID,
    ApprovalRule,
    HeldElsewhere,
    Journal,
    JournalUnavailable,
    Proposal,
    Run,
    State,
    TakeoverAuthorisation,
)
from payments_async.journal.contract import why_not_approved


async def bulk_run(
    screen: Screen,
    settings: ConnectionSettings,
    file: Annotated[
        Path | None, typer.Argument(help="CSV, JSON lines or XLSX; else what is proposed or begun.")
    ] = None,
    batch_id: BatchId = None,
    journal: JournalFile = None,
    approved: Annotated[
        str | None, typer.Option("--plan", help="Digest that was approved, 8 digits or all; send exactly that.")
    ] = None,
    rows: RowOptions = RowOptions(),
    validate: Validate = False,
    limits: RunLimits = RunLimits(),
    settles: Annotated[
        bool, typer.Option("--settle", help="Stay until each order is final or needs a person.")
    ] = False,
    listening: Listening = Listening(),
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
    file_format: FormatOptions = FormatOptions(),
    notify: Notify = None,
) -> Exit:
    """Send a batch, or go on with it. Every order is written down before and after; none is ever sent twice.

    Without a file it sends the one batch that is proposed, from the file that was planned, or goes on with the one that
    was begun. Nothing is sent unless every row is good (or --skip-bad leaves bad ones out), these are the payments that
    were planned, as many others have approved them as the journal asks for, and you say yes. Before its first order
    the service's list is read: what it shows is not sent again. With --listen it hears notifications and stays until
    each order is settled. Ctrl-C finishes what is under way; the same command goes on.

    Example: payments-async bulk run --journal payroll.sqlite --listen 127.0.0.1:8080
    """
    adoption = _adoption(adopt, who, why)
    journal = seconded(named(journal), second_journal)
    assert journal is not None
    if adoption is not None:
        journal = attrs.evolve(journal, second_journal=adoption)
    fuse = limits.fuse()
    listening.address()
    session = settings.session(session_limits(limits))
    checks.amounts()
    async with existing(journal) as held:
        source = await _source(screen, held, journal, file, batch_id, approved)
    rows, file_format, checks, looked_at = _options(source, rows, file_format, checks)
    batch_id = source.batch_id
    async with telling(screen, notify, "bulk run", batch_id=batch_id, journal=str(journal)) as teller:
        run = _BatchRun(
            screen=screen,
            journal=journal,
            batch_id=batch_id,
            limits=limits,
            fuse=fuse,
            settles=settles or listening.listen is not None,
            listening=listening,
            adoption=adoption,
            approvals=needs_approval,
            teller=teller,
            again=command_line(
                "bulk run",
                journal=journal,
                batch_id=batch_id,
                validate=validate,
                needs_approval=needs_approval or None,
                settle=settles,
                listen=listening.listen,
                sender=listening.sender,
                trusted_proxy=listening.trusted_proxy,
                notify=printed(notify),
                **limits.said(),
            ),
        )
        if source.begun is not None:
            return await run.go_on(session, source.begun, source.proposal, checks, yes=yes)
        is_exact = source.proposal is not None
        # which may be long: what the settings lack was told before
        read = await read_payments(screen, source.file, batch_id, rows, file_format, journal, is_exact=is_exact)
        check_guesses(read.batch, source.approved, yes=yes)
        async with session as payments:
            async with existing(journal) as held:
                checks = await with_last_month(checks, held, source.file, batch_id)
                chosen = await checks.chosen(screen, held, file_format, journal)
                others = () if held is None else await held.runs()
                before = [one.amount for one in others if one.ready and one.batch_id != batch_id]
                planned = await make_plan(
                    screen,
                    payments,
                    read.batch,
                    batch_id,
                    held,
                    rows,
                    chosen,
                    validate=validate,
                    concurrency=limits.concurrency,
                    rate=limits.rate,
                )
            made = _acknowledged(planned, looked_at)
            names = await names_shown(screen, made, source.file, is_asked=not yes)
            show_plan(screen, made, f"{source.file.name}, batch {batch_id}", names=names)
            check_plan(made, source.approved)
            await _check_approved(journal, made, needs_approval)
            if not await may_be_made(screen, journal, is_wanted=new_journal):
                raise Declined("nothing was sent")
            question = f"Send {counted(made.open_count, 'payout')}, {money(made.open_total, made.currency)}?"
            if made.open_count and not yes:
                await agree(screen, payments, made, question, otherwise="nothing was sent", before=before)
            options = kept_options(read.how, rows, checks, made)
            kept = proposal_of(made, batch_id, source.file, read.batch.digest, options, signed_here(None))
            return await run.send(payments, made, read.batch, kept)


@attrs.frozen(kw_only=True)
class _Source:
    """What is sent, and where it is from.

    Attributes:
        begun: It is in the journal already, and no file is needed.
        proposal: As it was proposed, where no file was named.
        approved: The digest that it must have.
        is_named: A file was named.
    """

    batch_id: str
    file: Path
    approved: str | None
    is_named: bool = False
    begun: Run | None = None
    proposal: Proposal | None = None


async def _source(
    screen: Screen,
    held: Journal | None,
    place: JournalPlace,
    file: Path | None,
    batch_id: str | None,
    approved: str | None,
) -> _Source:
    """What is to be sent: a file, or what is proposed or begun. Raises ``BadInput``."""
    if file is not None:
        named_so = await named_batch(screen, held, file, batch_id)
        return _Source(batch_id=named_so, file=file, approved=await whole_digest(held, approved), is_named=True)
    if held is None:
        raise BadInput(f"FILE: there is no journal {place}, so nothing is proposed; name the batch file")
    one = await open_batch(held, batch_id, approved)
    path = Path() if one.proposal is None else Path(one.proposal.path)
    digest = None if one.proposal is None else one.proposal.digest
    return _Source(batch_id=one.batch_id, file=path, approved=digest, begun=one.run, proposal=one.proposal)


def _given(group: RowOptions | FormatOptions | PlanChecks) -> dict[str, Any]:
    """The options of a group that are not as they are by default."""
    plain = type(group)()
    return {name: value for name, value in attrs.asdict(group).items() if value != getattr(plain, name)}


def _options(
    source: _Source, rows: RowOptions, file_format: FormatOptions, checks: PlanChecks
) -> tuple[RowOptions, FormatOptions, PlanChecks, Mapping[str, Any] | None]:
    """The options that were given; without a file those of the proposal, and the checks that were given.

    Also which concerns were looked at when it was proposed, or ``None`` where that is said of all of them now.

    Raises:
        BadInput: One was given that is not heeded without a file.
    """
    if source.is_named:
        return rows, file_format, checks, None
    unused = [*(_given(rows).keys() - {"acknowledge"}), *_given(file_format)]
    looked_at = None
    if source.begun is not None and checks.max_each is not None:
        unused.append("max_each")
    if unused:
        names = ", ".join(f"--{'map' if name == 'mapped' else name.replace('_', '-')}" for name in unused)
        raise BadInput(f"{names}: name the batch file with it; without a file, it is sent as it was proposed")
    if source.proposal is not None:
        looked_at = None if rows.acknowledge else source.proposal.options
        kept_rows, file_format, kept = options_of(source.proposal)
        rows = attrs.evolve(kept_rows, acknowledge=rows.acknowledge or kept_rows.acknowledge)
        checks = attrs.evolve(kept, **_given(checks))
    return rows, file_format, checks, looked_at


def _acknowledged(plan: Plan, looked_at: Mapping[str, Any] | None) -> Plan:
    """A plan of which no concern counts as looked at that came up since it was proposed, listed or only counted."""
    if looked_at is None:
        return plan
    known = set(looked_at.get("concerns", ()))
    if plan.concern_count <= looked_at.get("concern_count", 0) and known.issuperset(map(str, plan.concerns)):
        return plan
    return attrs.evolve(plan, acknowledged=False)


@attrs.frozen(kw_only=True)
class _BatchRun:
    """A batch on its way.

    Attributes:
        settles: It is followed until each order is final or needs a person.
        again: The command that goes on with it.
    """

    screen: Screen
    journal: JournalPlace
    batch_id: str
    limits: RunLimits
    fuse: Fuse
    settles: bool
    listening: Listening
    adoption: TakeoverAuthorisation | None
    approvals: int
    again: str
    teller: Teller

    async def send(self, payments: PaymentsSession, plan: Plan, batch: Batch, kept: Proposal) -> Exit:
        """Send what was planned, show it, and say how to go on."""
        status = await self._carried_out(payments, plan, batch, kept)
        return await self._offered(status, plan.count, batch.path)

    async def go_on(
        self, session: PaymentsSession, run: Run, proposal: Proposal | None, checks: PlanChecks, *, yes: bool
    ) -> Exit:
        """Send what is left of a batch whose orders the journal holds; no file is read.

        Raises:
            BadInput: All of it comes to more than it may.
        """
        screen = self.screen
        async with opened(self.journal) as held:
            progress, currency = await held.progress(run.batch_id), await currency_of(held, run.batch_id)
        screen.say(f"[bold]{quoted(run.batch_id)}[/], as it was begun: {counted(run.total, 'payout')}\n")
        show_progress(screen, progress, currency)
        most, total = checks.amounts().max_total, sum(progress.sums.values(), Decimal())
        if most is not None and total > most:
            words = f"it comes to {money(total, currency)}; {money(Decimal(most), currency)} is allowed"
            raise BadInput(f"--max-total: {words}. Nothing more was sent")
        left = progress.counts[State.PLANNED]
        if left:
            words = f"Go on: send {counted(left, 'payout')} more, {money(progress.sums[State.PLANNED], currency)}?"
            screen.confirm(words, yes=yes, otherwise="nothing was sent")
        async with session as payments:
            status = await self._carried_out(payments, None, None, None)
        return await self._offered(status, run.total, None if proposal is None else Path(proposal.path))

    async def _carried_out(
        self,
        payments: PaymentsSession,
        plan: Plan | None,
        batch: Batch | None,
        kept: Proposal | None,
    ) -> Exit:
        screen = self.screen
        screen.say()
        try:
            async with opened(self.journal, new=True) as journal:
                introduce(screen, self.journal, journal)
                if self.limits.without_looking:
                    await check_doubt(journal)
                if kept is not None and all(one.withdrawn is not None for one in await journal.proposals(kept.digest)):
                    await journal.propose(kept)  # so that it goes on without the file being named again
                async with AsyncExitStack() as stack:
                    await stack.enter_async_context(self.listening.hearing(screen, journal))
                    progress = await self._sent(payments, journal, plan, batch)
                    if self.settles and progress.stopped is None:
                        progress = await self._settled(payments, journal, progress)
                quarantined = (await journal.run(self.batch_id)).quarantined
                currency = await currency_of(journal, self.batch_id)
        except BatchChanged as error:
            raise BadInput("the file was changed while it was read; nothing was sent. Plan it again") from error
        except JournalUnavailable as error:
            screen.trouble(f"stopped: {error}", f"go on with: {self.again}")
            self.teller.facts["stopped"] = str(error)
            return screen.ended(Exit.STOPPED, {"batch_id": self.batch_id, "stopped": str(error)})
        return self._told(progress, quarantined, plan, currency)

    async def _sent(
        self, payments: PaymentsSession, journal: Journal, plan: Plan | None, batch: Batch | None
    ) -> RunProgress:
        """Send what is planned, and tell how far that came."""
        count = plan.count if plan is not None else (await journal.run(self.batch_id)).total
        currency = plan.currency if plan is not None else await currency_of(journal, self.batch_id)
        view = LiveView(self.screen, count, currency, payments=payments)
        with view, draining(self.screen) as stop:
            try:
                async with view.attending():
                    progress = await run_batch(
                        payments,
                        journal,
                        self.batch_id,
                        plan,
                        settings=RunSettings(
                            concurrency=self.limits.concurrency,
                            rate=self.limits.rate,
                            look_first="never" if self.limits.without_looking else "always",
                        ),
                        progress=view,
                        fuse=self.fuse,
                        stop=stop.drain,
                        terms=BatchTerms(adoption=self.adoption, approvals=self.approvals),
                    )
            except HeldElsewhere as error:
                raise BadInput(
                    f"{error.message}\n  nothing was sent. Go on with that journal; only if it is lost, adopt them: "
                    f"{self.again} --adopt --who NAME --why REASON"
                ) from error
        if batch is not None:
            try:
                await _note_particulars(journal, self.batch_id, batch)
            except (BatchChanged, OSError, ValueError) as error:  # all that could be sent is on its way by now
                why = (
                    "was changed meanwhile"
                    if isinstance(error, BatchChanged)
                    else f"cannot be read: {clean(str(error))}"
                )
                self.screen.note(
                    f"{batch.path.name} {why}; `explain` cannot search its other columns; all else is kept"
                )
        if not stop.is_hard:
            return progress
        left = await journal.progress(self.batch_id)
        return RunProgress(counts=left.counts, sums=left.sums, conflicts=left.conflicts, stopped="it was broken off")

    async def _settled(self, payments: PaymentsSession, journal: Journal, sent: RunProgress) -> RunProgress:
        """How the batch stands once each order is final or needs a person, or a person asked to stop."""
        with draining(self.screen) as stop:
            await settle(self.screen, payments, journal, self.batch_id, stop.drain)
        now = await journal.progress(self.batch_id)
        return attrs.evolve(
            sent, counts=now.counts, sums=now.sums, conflicts=now.conflicts, unconfirmed=now.unconfirmed
        )

    async def _offered(self, status: Exit, count: int, file: Path | None) -> Exit:
        """Offer the papers of a batch that is through, where a person can be asked."""
        screen = self.screen
        if not (self.settles and screen.can_ask and count and status in (Exit.FINE, Exit.FAILED, Exit.UNKNOWN)):
            return status
        stem = stem_of(self.batch_id)
        given_back = await asyncio.to_thread(_if_there, file)
        papers = f"{stem}-report.html, {stem}-report.csv"
        if given_back is not None:
            papers += f", and {given_back.name} with outcomes as {stem}-returned.xlsx"
        if screen.confirmed(f"Write the report ({papers})?"):
            await bulk_report(screen, self.journal, self.batch_id, file=given_back, overwrite=True)
        async with opened(self.journal) as held:
            counts = (await held.progress(self.batch_id)).counts
        is_unpaid = any(counts[state] for state in UNPAID)
        if is_unpaid and screen.confirmed("Write a batch file of those that surely were not paid?"):
            await bulk_retry_file(screen, self.journal, self.batch_id)
        return status

    def _told(self, progress: RunProgress, quarantined: int, plan: Plan | None, currency: str | None) -> Exit:
        """Tell how the batch stands now and what is to be done next; the exit status."""
        screen, status = self.screen, exit_after(progress, progress.stopped, quarantined=quarantined)
        document = progress_document(progress)
        self.teller.facts |= {"stopped": progress.stopped, "sent": progress.sent, "progress": document}
        screen.say()
        show_progress(screen, progress, currency)
        if progress.looked is not None:
            screen.say(quoted(looking(progress.looked)))
        if progress.sent and progress.seconds:
            screen.say(
                f"{progress.sent:,} sent in {progress.seconds:,.1f} s, {progress.sent / progress.seconds:,.0f}/s"
            )
        if plan is not None and plan.left_out:
            screen.say(
                f"\n[yellow]Left out of the file, and not paid:[/] {counted(plan.left_out, 'row')}, as told above"
            )
        tell_next(screen, progress, self.journal, self.batch_id, quarantined=quarantined)
        if progress.stopped is not None:
            first = ""
            if progress.counts[State.UNKNOWN]:  # a fuse counts them over all runs
                line = command_line("bulk reconcile", journal=self.journal, batch_id=self.batch_id)
                first = f"reconcile first: {line}; then "
            screen.trouble(f"stopped: {progress.stopped}", f"{first}go on with: {self.again}")
        if progress.looked is not None and progress.looked.problem not in (None, progress.stopped):
            screen.trouble("only if nothing of this was ever sent, from any journal: add --without-looking")
        self.teller.ended(status)
        return screen.ended(
            status,
            {
                "batch_id": self.batch_id,
                "plan": None if plan is None else plan_document(plan),
                "progress": document,
                "looked": progress.looked,
                "stopped": progress.stopped,
                "sent": progress.sent,
                "seconds": progress.seconds,
                "go_on_with": self.again if progress.stopped is not None else None,
            },
        )


def _if_there(file: Path | None) -> Path | None:
    return file if file is not None and file.is_file() else None


async def _note_particulars(journal: Journal, batch_id: str, batch: Batch) -> None:
    """Keep what the file says beside the orders that were loaded: so a person is found by a staff number."""
    if not any(run.batch_id == batch_id and run.ready for run in await journal.runs()):
        return
    async for told in particulars_in(batch):
        await journal.note_particulars(told)


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

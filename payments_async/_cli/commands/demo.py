"""`payments-async demo`: a whole batch through the simulated service, with faults on, and the ledger as its judge."""

import secrets
import time
from collections import Counter
from contextlib import AsyncExitStack, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated

import attrs
import typer
from rich.text import Text

from payments_async._cli.batch_file import read_file, show_notes
from payments_async._cli.batch_state import in_words, show_progress
from payments_async._cli.demo.run import BATCH, DemoFolder, DemoOptions, DemoRun, DemoSetup, DemoState, JudgedRun, held
from payments_async._cli.demo.service import ServiceGone, ServiceProcess
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.live_view import LiveView
from payments_async._cli.screen import Screen, clean, command_line, counted, money, quoted
from payments_async.bulk import report, sample_payroll
from payments_async.ipn import Receiver, ReceiverSettings, serving
from payments_async.journal import UNSETTLED, JournalError, SqliteJournal, State

_HOST = "127.0.0.1"
_PROBLEMS_SHOWN = 20
_GONE = (
    "The simulated service of the unfinished run is gone: it ends with this machine, or when nobody has asked it for "
    "ten minutes. What it did is gone with it, so that run cannot be judged any more."
)


async def demo(
    screen: Screen,
    chosen: DemoOptions = DemoOptions(),
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew; an unfinished run is put aside.")] = False,
) -> Exit:
    """Pay a batch on a simulated service that loses answers, and prove that nothing was paid twice or lost.

    Kill it in the middle, and run it again: it goes on. Nothing leaves this machine: service, money and people are
    made up. The exit status is 0 only if the service's ledger and our journal agree in every order.
    """
    with sample_payroll() if chosen.file is None else nullcontext(chosen.file) as path:
        setup = await _setup(screen, chosen, path)
    screen.say(
        f"[bold]payments-async demo[/]: {len(setup.orders):,} payouts of "
        f"{quoted('the sample batch' if chosen.file is None else chosen.file.name)}, "
        f"[bold]{money(setup.total, setup.currency)}[/]"
    )
    screen.say(
        f"[dim]simulated service on this machine, {chosen.concurrency} at a time, faults: {chosen.faults}, "
        f"seed: {chosen.seed}[/]"
    )
    screen.say(f"[dim]journal in {quoted(str(chosen.folder))}: kill this in the middle, and run it again[/]")
    with held(chosen.folder) as folder:
        try:
            state = await _unfinished(screen, folder, setup, fresh=fresh)
            return await _carry_out(screen, setup, folder, state or _new(setup), goes_on=state is not None)
        except JournalError as error:
            raise BadInput(f"--dir {folder.path}: {error}") from error
        except ServiceGone as error:
            why = f"the simulated service is gone, and what it did with it ({error})"
            return _stopped(screen, chosen, why, "begin anew")


async def _setup(screen: Screen, chosen: DemoOptions, path: Path) -> DemoSetup:
    """The demo of a file.

    Raises:
        BadInput: The file cannot be read, is empty or holds a bad row; the message names each.
    """
    batch = await read_file(screen, path, "--file")
    show_notes(screen, path, batch)
    if batch.problems:
        lines = [str(problem) for problem in batch.problems[:_PROBLEMS_SHOWN]]
        if (more := len(batch.problems) - _PROBLEMS_SHOWN) > 0:
            lines.append(f"and {more:,} more")
        said = counted(len(batch.problems), "problem")
        raise BadInput("\n  ".join([f"--file: {path.name} has {said}; nothing was sent", *lines]))
    return DemoSetup(chosen=chosen, orders=tuple(batch.orders), digest=batch.digest)


async def _unfinished(screen: Screen, folder: DemoFolder, setup: DemoSetup, *, fresh: bool) -> DemoState | None:
    """The demo to go on with; ``None`` when one is to begin anew, and there is room for it.

    Raises:
        BadInput: There is one, and it is not the one that was asked for.
    """
    last = folder.last()
    if last is None:
        return None
    service, standing = last.service, None if fresh else await _standing(folder)
    if last.finished or service is None or not (fresh or standing):
        if service is not None:
            await service.end()
        folder.clear()  # it was judged, or nothing of it was sent
        return None
    if not fresh and await service.is_there():
        _check(last, setup)
        screen.say(f"[bold yellow]Going on with the unfinished run of {last.began}:[/] {standing}")
        return last
    await service.end()
    aside = folder.keep_aside(last.began)
    screen.say(f"[bold yellow]{'An unfinished run was there.' if fresh else _GONE}[/]")
    screen.say(f"Beginning anew; its journal is kept in {quoted(str(aside))}.")
    return None


async def _standing(folder: DemoFolder) -> str:
    """How the orders stand; empty where nothing can have been sent: what is not loaded as a whole never is."""
    if not folder.journal.exists():
        return ""
    async with SqliteJournal(folder.journal, state_folder=None) as journal:
        is_loaded = any(run.batch_id == BATCH and run.ready for run in await journal.runs())
        return in_words(await journal.progress(BATCH)) if is_loaded else ""


def _check(last: DemoState, setup: DemoSetup) -> None:
    """Refuse to go on with another demo than the unfinished one."""
    chosen = setup.chosen
    differing = {
        "--file": last.digest != setup.digest,
        "--seed": last.seed != chosen.seed,
        "--faults": last.faults is not chosen.faults,
    }
    if names := [name for name, differs in differing.items() if differs]:
        file = None if last.file is None else Path(last.file)
        again = attrs.evolve(chosen, file=file, seed=last.seed, faults=last.faults).again
        raise BadInput(
            f"{', '.join(names)}: not as in the run of {last.began} that is unfinished in {chosen.folder}. To finish "
            f"that:\n  {again}\n  or begin anew with --fresh; its journal is kept then"
        )


def _new(setup: DemoSetup) -> DemoState:
    """A demo of which nothing has happened yet."""
    chosen = setup.chosen
    return DemoState(
        file=None if chosen.file is None else str(chosen.file),
        digest=setup.digest,
        seed=chosen.seed,
        faults=chosen.faults,
        began=f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}",
        token=secrets.token_urlsafe(18),
    )


async def _carry_out(screen: Screen, setup: DemoSetup, folder: DemoFolder, state: DemoState, *, goes_on: bool) -> Exit:
    """Begin a demo or go on with it, and show what came of it."""
    folder.note(state)  # from now on the folder is known to be ours
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(SqliteJournal(folder.journal, state_folder=None))
        receiver = Receiver(
            journal, senders=[_HOST], path_token=state.token, settings=ReceiverSettings(owner="payments-async demo")
        )
        try:
            _, port = await stack.enter_async_context(serving(receiver, _HOST, state.port))
        except OSError as error:
            raise BadInput(
                f"port {state.port}, where the notifications of the unfinished run come to, cannot be listened on "
                f"({error.strerror}); end what listens there, or begin anew with --fresh"
            ) from error
        started = None
        service = state.service
        if service is None:
            screen.say("[dim]starting the service, in a process of its own[/]")
            started = ServiceProcess(
                folder.log,
                ipn_url=f"http://{_HOST}:{port}/ipn/{state.token}",
                seed=setup.chosen.seed,
                faults=setup.chosen.faults,
                balance=f"{setup.opening_balance:f}",
                currency=setup.currency,
            )
            stack.callback(started.leave)
            service = await started.introduced()
            state = attrs.evolve(state, service=service, port=port)
            folder.note(state)
        began = time.monotonic()
        payments = await stack.enter_async_context(service.session(setup.chosen.concurrency))
        view = LiveView(screen, len(setup.orders), setup.currency, settles=True)
        run = DemoRun(setup=setup, journal=journal, payments=payments, service=service, view=view)
        screen.say()
        judged = await run.carry_out(screen, goes_on=goes_on)
        if isinstance(judged, str):
            if not screen.is_live:  # where a table begins with an empty line
                screen.say()
            show_progress(screen, await journal.progress(BATCH), setup.currency)
            return _stopped(screen, setup.chosen, judged)
        seconds = time.monotonic() - began
        try:
            personal = screen.show_personal is True
            await report(journal, BATCH, csv=folder.csv, html=folder.html, personal=personal, overwrite=True)
        except ValueError as error:
            raise BadInput(f"--dir: {clean(str(error))}; move it away, and the same command goes on") from error
        folder.note(attrs.evolve(state, finished=True))
        await service.end()
        if started is not None:
            await started.over()
        show_demo(screen, setup, folder, judged, seconds=seconds, goes_on=goes_on)
        return Exit.FINE if judged.verdict.agrees else Exit.FAILED


def _stopped(screen: Screen, chosen: DemoOptions, why: str, then: str = "go on") -> Exit:
    screen.trouble(f"stopped: {why}", f"{then} with: {chosen.again}")
    return screen.ended(Exit.STOPPED, {"stopped": why, "go_on_with": chosen.again})


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

"""`payments-async bulk report`: what became of every order, as a table and as a page to print."""

from pathlib import Path
from typing import Annotated

import typer

from payments_async._cli.batch_file import FormatOptions, RowOptions, read_payments
from payments_async._cli.batch_state import currency_of, exit_after, reasons, show_archives, show_progress, show_reasons
from payments_async._cli.exit_codes import Exit
from payments_async._cli.journal import AnyBatch, JournalFile, JournalPlace, chosen_batch, named, opened
from payments_async._cli.screen import Screen, command_line, counted, plain, quoted
from payments_async._cli.working import LatestWords, working
from payments_async._cli.written import complaints, stem_of
from payments_async.bulk import report, returned_file
from payments_async.journal import Progress, State

_ROOM = 11  # lines of a screen of 25 for reasons


async def bulk_report(
    screen: Screen,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    csv: Annotated[Path | None, typer.Option(help="The table; BATCH-report.csv by default.")] = None,
    html: Annotated[Path | None, typer.Option(help="The page; BATCH-report.html by default.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="The batch file: give it back with outcome and transaction of each row.")
    ] = None,
    xlsx: Annotated[
        Path | None, typer.Option(help="With --file: where; BATCH-returned.xlsx by default, or a name with .csv.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace reports that are there.")] = False,
) -> Exit:
    """Write what became of every order: a CSV table, and one HTML page to print and to file.

    Names and numbers are masked in both, unless --show-personal is given. The page shows the first 10,000 orders, and
    as many of those that need a person or were not paid; its totals are of all of them, and the table has every one.
    With --file, the batch file comes back as a workbook: all that stands in it, in full, and beside each row its
    outcome, when, its transaction and what is wrong. Only a report is ever replaced (--overwrite): never the journal, a
    batch file or anything else.

    Example: payments-async bulk report --journal payroll.sqlite --batch-id payroll-2026-11
    """
    async with opened(journal) as held:
        name = await chosen_batch(held, batch_id)
        if csv is None and html is None:
            csv, html = (Path(f"{stem_of(name)}-report.{kind}") for kind in ("csv", "html"))
        step = LatestWords("writing the report")
        run = await held.run(name)
        with complaints(csv or html or Path()):
            async with working(screen, step):
                written = await report(
                    held,
                    name,
                    csv=csv,
                    html=html,
                    personal=screen.show_personal is True,
                    overwrite=overwrite,
                    progress=step.orders(run.total - run.archived),
                )
        returned = None
        if file is not None:
            read = await read_payments(screen, file, name, RowOptions(), FormatOptions(), journal)
            target = xlsx or Path(f"{stem_of(name)}-returned.xlsx")
            with complaints(target):
                async with working(screen, step):
                    returned = await returned_file(
                        held, name, read.batch, target, progress=step.orders(read.batch.rows)
                    )
        progress, quarantined = await held.progress(name), (await held.run(name)).quarantined
        needing = await reasons(held, name, "needs a person", progress)
        unpaid = await reasons(held, name, "not paid", progress)
        currency = await currency_of(held, name)
        kept = await held.archives()
    for path in filter(None, (written.csv, written.html)):
        screen.say(f"wrote {quoted(str(path))}")
    if returned is not None:
        rows = f"{returned.found:,} of {counted(returned.rows, 'row')} with an outcome"
        screen.say(f"wrote {quoted(str(returned.path))}: {rows}")
    count = sum(share.count for share in written.by_state.values())
    style = "green" if written.standing == "final" and not (written.needing or written.unpaid) else "yellow"
    screen.say(f"{counted(count, 'order')}, [bold {style}]{written.standing}[/]")
    if written.archived:
        screen.say(f"[yellow]not in the report, but in archives:[/] {counted(written.archived, 'order')}")
        show_archives(screen, kept)
    show_progress(screen, progress, currency)
    if written.tried_again:
        screen.say(f"Of those not paid, {written.tried_again:,} were tried again, and are paid so or not settled")
    show_reasons(screen, needing, unpaid, room=_ROOM)
    if not quarantined:
        _tell_open(screen, progress, journal, name)
    status = exit_after(progress, quarantined=quarantined)
    document = {**plain(written), "standing": written.standing}
    return screen.ended(status, {"report": document, "returned": None if returned is None else plain(returned)})


def _tell_open(screen: Screen, progress: Progress, place: JournalPlace | None, batch_id: str) -> None:
    """Say how orders that have not ended are settled, for a report that is final."""
    if open_ := progress.counts[State.ACCEPTED] + progress.counts[State.UNKNOWN]:
        screen.say(f"\n{counted(open_, 'order')} without a final outcome yet. Look them up, then report again:")
        screen.command(command_line("bulk reconcile", journal=named(place), batch_id=batch_id))

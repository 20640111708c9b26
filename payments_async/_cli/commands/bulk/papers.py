"""`payments-async bulk retry-file`, `receipt` and `export`: what is written of a batch after its run."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import AnyBatch, JournalFile, chosen_batch, opened
from payments_async._cli.screen import Screen, clean, command_line, counted, money, quoted
from payments_async._cli.written import complaints, stem_of
from payments_async.bulk import ledger, receipt, retry_file
from payments_async.journal import OrderUnknown

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace such a file that is there.")]


class ExportFormat(StrEnum):
    """What an export is for."""

    LEDGER = "ledger"


async def bulk_retry_file(
    screen: Screen,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    csv: Annotated[Path | None, typer.Option(help="The file; BATCH-retry.csv by default; or .xlsx.")] = None,
    reversed_too: Annotated[bool, typer.Option("--reversed", help="Also what was paid, and came back.")] = False,
    overwrite: Overwrite = False,
) -> Exit:
    """Write a batch file of those that surely were not paid: rejected, or failed. Sends nothing.

    Each order has a new id, always the same one (PAY-17 becomes PAY-17-R2), and a column for the old one. Mend what was
    wrong, then plan and run it as a batch of its own: the plan refuses an order whose earlier one was paid after all.
    Names and numbers are in full, for the file is to be sent; you alone can read it.

    Example: payments-async bulk retry-file --journal payroll.sqlite --batch-id payroll-2026-11
    """
    async with opened(journal) as held:
        name = await chosen_batch(held, batch_id)
        path = csv or Path(f"{stem_of(name)}-retry.csv")
        with complaints(path):
            made = await retry_file(held, name, path, reversed_too=reversed_too, overwrite=overwrite)
    screen.listing(
        f"[yellow]left out: {len(made.left_out):,}[/]",
        (f"{one}: {why}" for one, why in made.left_out),
        len(made.left_out),
    )
    if made.path is None:
        screen.say("nothing to write: no order of it has surely stayed unpaid")
    else:
        screen.say(
            f"wrote {quoted(str(made.path))}: {counted(made.written.count, 'order')}, {money(made.written.total)}"
        )
        screen.say("Mend what was wrong with them, then:")
        screen.command(command_line("bulk plan", str(made.path), batch_id=f"{name}-retry", journal=journal))
    return screen.ended(Exit.FINE, {"batch_id": name, "retries": made})


async def bulk_receipt(
    screen: Screen,
    request_id: Annotated[str, typer.Argument(help="An order that was paid.")],
    journal: JournalFile = None,
    html: Annotated[Path | None, typer.Option(help="The page; REQUEST_ID-receipt.html by default.")] = None,
    payer: Annotated[
        str, typer.Option(metavar="NAME", help="Who paid, such as your company; stands on the page.")
    ] = "",
    overwrite: Overwrite = False,
) -> Exit:
    """Write the proof that one order was paid: one page, to print, to sign and to file.

    There is none of an order whose payment is not final. Names and numbers stand in full, unless --mask is given.

    Example: payments-async bulk receipt PAY-17 --journal payroll.sqlite
    """
    path = html or Path(f"{stem_of(request_id)}-receipt.html")
    async with opened(journal) as held:
        with complaints(path):
            try:
                await receipt(held, request_id, path, payer=payer, personal=screen.signs_in_full, overwrite=overwrite)
            except OrderUnknown as error:
                gone = (await held.archived_of([request_id])).get(request_id)
                where = f"it ended long ago ({gone.state}), and is in an archive" if gone else "check the id"
                raise BadInput(f"the journal holds no order {clean(request_id)}: {where}") from error
    screen.say(f"wrote {quoted(str(path))}")
    return screen.ended(Exit.FINE, {"request_id": request_id, "html": path})


async def bulk_export(
    screen: Screen,
    debit: Annotated[str, typer.Option(help="The account that payments are charged to, such as that of wages.")],
    credit: Annotated[str, typer.Option(help="The account that the money leaves.")],
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    export_format: Annotated[ExportFormat, typer.Option("--format", help="What for.")] = ExportFormat.LEDGER,
    csv: Annotated[Path | None, typer.Option(help="The table; BATCH-ledger.csv by default; or .xlsx.")] = None,
    overwrite: Overwrite = False,
) -> Exit:
    """Write what was paid as lines of debit and credit, for accounting.

    Two lines for each order that was paid, and two more for one that came back. What is not final is in no line yet:
    export again once it is; each order has the same lines every time, known by its request id.

    Example: payments-async bulk export --debit 6000 --credit 1200 --journal payroll.sqlite --batch-id payroll-2026-11
    """
    async with opened(journal) as held:
        name = await chosen_batch(held, batch_id)
        path = csv or Path(f"{stem_of(name)}-{export_format}.csv")
        with complaints(path):
            made = await ledger(
                held, name, path, debit=debit, credit=credit, personal=screen.show_personal is True, overwrite=overwrite
            )
    screen.say(f"wrote {quoted(str(path))}: {counted(made.paid.count, 'payment')}, {money(made.paid.total)}")
    if made.reversed.count:
        screen.say(f"of these came back, and are booked back: {made.reversed.count:,}, {money(made.reversed.total)}")
    if made.open:
        screen.say(f"[yellow]not final yet, and in no line:[/] {counted(made.open, 'order')}")
    return screen.ended(Exit.FINE, {"batch_id": name, "ledger": made})

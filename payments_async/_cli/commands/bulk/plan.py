"""`payments-async bulk plan`: what a file would do, for whoever makes it and whoever approves it."""

from pathlib import Path

import attrs

from payments_async._cli.batch_file import BatchFile, BatchId, FileFormat, RowOptions, Validate, read_file
from payments_async._cli.batch_plan import make_plan, plan_document, show_plan
from payments_async._cli.exit_codes import Exit
from payments_async._cli.journal import JournalFile, existing
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen, quoted
from payments_async._cli.settings import ConnectionSettings


async def bulk_plan(
    screen: Screen,
    settings: ConnectionSettings,
    file: BatchFile,
    batch_id: BatchId,
    journal: JournalFile = None,
    validate: Validate = False,
    rows: RowOptions = RowOptions(),
    file_format: FileFormat = FileFormat(),
) -> Exit:
    """Show what a file would do: sums, problems, duplicates, balance, and a digest to approve. Sends nothing.

    Whoever approves it hands on the digest; `bulk run --plan DIGEST` then sends exactly these payments or nothing.

    Example: payments-async bulk plan payroll.csv --batch-id payroll-2026-11 --journal payroll.sqlite
    """
    how = {"batch_id": batch_id, "derive_request_ids": rows.derive_request_ids, **attrs.asdict(file_format)}
    session = settings.session()  # what is missing there is told before a long file is read
    batch = await read_file(screen, file, **how)
    async with existing(journal) as held, session as payments:
        made = await make_plan(payments, batch, batch_id, held, rows, validate=validate)
    show_plan(screen, made, f"{file.name}, batch {batch_id}")
    status = Exit.FINE if made.is_clean else Exit.BAD_INPUT
    if made.is_clean:
        screen.say("\nTo send exactly this, once it is approved:")
        again = command_line(
            "bulk run",
            str(file),
            journal=journal or Path(f"{batch_id}.sqlite"),
            **how,
            skip_bad=rows.skip_bad,
            acknowledge=rows.acknowledge,
            plan=made.digest,
            new_journal=journal is None or not await journal.exists(),
        )
        screen.say(f"  {quoted(again)}")
    screen.document({"batch_id": batch_id, **plan_document(made), "exit_status": status})
    return status

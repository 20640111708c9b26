"""`payments-async bulk report`: what became of every order, as a table and as a page to print."""

import re
from pathlib import Path
from typing import Annotated

import typer

from payments_async._cli.batch_state import exit_after, show_archives, show_unpaid, unpaid_of
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import AnyBatch, JournalFile, chosen_batch, opened
from payments_async._cli.screen import Screen, clean, counted, plain, quoted
from payments_async._cli.steps import LatestWords
from payments_async._cli.working import working
from payments_async.bulk import report


async def bulk_report(
    screen: Screen,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    csv: Annotated[Path | None, typer.Option(help="The table; BATCH-report.csv by default.")] = None,
    html: Annotated[Path | None, typer.Option(help="The page; BATCH-report.html by default.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace reports that are there.")] = False,
) -> Exit:
    """Write what became of every order: a CSV table, and one HTML page to print and to file.

    Names and numbers are masked in both, unless --show-personal is given. The page shows the first 10,000 orders, and
    as many of those that need a person or were not paid; its totals are of all of them, and the table has every one.
    Only a report is ever replaced (--overwrite): never the journal, a batch file or anything else.

    Example: payments-async bulk report --journal payroll.sqlite --batch-id payroll-2026-11
    """
    async with opened(journal) as held:
        name = await chosen_batch(held, batch_id)
        both = csv is None and html is None
        stem = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "batch"
        try:
            step = LatestWords("writing the report")
            run = await held.run(name)
            async with working(screen, step):
                written = await report(
                    held,
                    name,
                    csv=Path(f"{stem}-report.csv") if both else csv,
                    html=Path(f"{stem}-report.html") if both else html,
                    personal=screen.show_personal is True,
                    overwrite=overwrite,
                    progress=step.orders(run.total - run.archived),
                )
        except FileExistsError as error:
            raise BadInput(
                f"{clean(str(error)).partition(';')[0]}; nothing was written; --overwrite replaces it"
            ) from error
        except ValueError as error:
            raise BadInput(f"{clean(str(error))}; nothing was written") from error
        except OSError as error:
            raise BadInput(f"the report cannot be written: {clean(str(error))}") from error
        progress, quarantined = await held.progress(name), (await held.run(name)).quarantined
        unpaid = await unpaid_of(held, name, progress)
        kept = await held.archives()
    for path in filter(None, (written.csv, written.html)):
        screen.say(f"wrote {quoted(str(path))}")
    count = sum(share.count for share in written.by_state.values())
    style = "green" if written.standing == "final" and not (written.needing or written.unpaid) else "yellow"
    screen.say(f"{counted(count, 'order')}, [bold {style}]{written.standing}[/]")
    if written.archived:
        screen.say(f"[yellow]not in the report, but in archives:[/] {counted(written.archived, 'order')}")
        show_archives(screen, kept)
    tried = f" ({written.tried_again:,} of them tried again, and paid so or not settled)" if written.tried_again else ""
    screen.say(f"not paid: {written.unpaid:,}{tried}; needing a person: {written.needing:,}")
    show_unpaid(screen, unpaid, progress)
    status = exit_after(progress, quarantined=quarantined)
    return screen.ended(status, {"report": {**plain(written), "standing": written.standing}})

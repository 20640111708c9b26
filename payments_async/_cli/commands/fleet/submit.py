"""`payments-async fleet submit`: a batch file put into an outbox, and the workers of the fleet woken."""

from collections.abc import AsyncIterable, Iterable
from typing import Annotated

import typer

from payments_async import PayoutOrder
from payments_async._cli.batch_file import BatchFile, BatchId, FileFormat, RowOptions, Validate
from payments_async._cli.batch_plan import PlanChecks
from payments_async._cli.commands.outbox.put import PutOptions, put_file
from payments_async._cli.exit_codes import Exit
from payments_async._cli.fleet import asking_fleet, opened_shared
from payments_async._cli.journal import JournalFile, SecondJournal, seconded
from payments_async._cli.outbox_state import NewJournal, OutboxName
from payments_async._cli.screen import Screen
from payments_async._cli.settings import ConnectionSettings
from payments_async.journal import PostgresJournal
from payments_async.journal.contract import Loaded
from payments_async.outbox import Outbox


async def fleet_submit(
    screen: Screen,
    settings: ConnectionSettings,
    file: BatchFile,
    batch_id: BatchId,
    journal: JournalFile = None,
    name: OutboxName = "outbox",
    approved: Annotated[
        str | None, typer.Option("--plan", help="The digest that was approved; put exactly that.")
    ] = None,
    rows: RowOptions = RowOptions(),
    validate: Validate = False,
    yes: Annotated[bool, typer.Option("--yes", help="Put it without asking.")] = False,
    new_journal: NewJournal = False,
    second_journal: SecondJournal = None,
    checks: PlanChecks = PlanChecks(),
    file_format: FileFormat = FileFormat(),
) -> Exit:
    """Put a file into an outbox, and wake the workers of the fleet. The same again adds nothing.

    As `outbox put`: nothing is put unless every row is good (or --skip-bad leaves bad ones out), the digest is the
    approved one (--plan) and you say yes. All of it is put or nothing. Workers that cannot be woken find it by
    themselves within seconds.

    Example: payments-async fleet submit payroll.csv --batch-id payroll-2026-11 --journal postgresql://pay@db/pay
    """
    options = PutOptions(
        file=file,
        batch_id=batch_id,
        name=name,
        approved=approved,
        rows=rows,
        validate=validate,
        yes=yes,
        new_journal=new_journal,
        checks=checks,
        file_format=file_format,
    )
    journal = seconded(journal, second_journal)
    with asking_fleet():
        from payments_async import fleet

        if journal is not None and await journal.exists():
            async with opened_shared(journal) as held:
                assert isinstance(held, PostgresJournal)
                await fleet.status(held)  # says what it lacks before anything is put

        async def put(
            outbox: Outbox,
            batch_id: str,
            orders: Iterable[PayoutOrder] | AsyncIterable[PayoutOrder],
            *,
            source_digest: str | None,
        ) -> Loaded:
            return await fleet.submit(outbox, batch_id, orders, source_digest=source_digest)

        return await put_file(screen, settings, journal, options, put=put, works="fleet worker")

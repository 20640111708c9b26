"""`payments-async fleet submit`: a batch file put into an outbox, and the workers of the fleet woken."""

from payments_async._cli.batch_file import FormatOptions, RowOptions
from payments_async._cli.batch_plan import PlanChecks
from payments_async._cli.commands.outbox.put import Put, put_file
from payments_async._cli.exit_codes import Exit
from payments_async._cli.fleet import asking_fleet, opened_shared
from payments_async._cli.journal import seconded
from payments_async._cli.screen import Screen
from payments_async._cli.settings import ConnectionSettings
from payments_async.journal import PostgresJournal


async def fleet_submit(
    screen: Screen,
    settings: ConnectionSettings,
    what: Put,
    rows: RowOptions = RowOptions(),
    checks: PlanChecks = PlanChecks(),
    file_format: FormatOptions = FormatOptions(),
) -> Exit:
    """Put a file into an outbox, and wake the workers of the fleet. The same again adds nothing.

    As `outbox put`: nothing is put unless every row is good (or --skip-bad leaves bad ones out), the digest is the
    approved one (--plan) and you say yes. All of it is put or nothing. Workers that cannot be woken find it by
    themselves within seconds.

    Example: payments-async fleet submit payroll.csv --batch-id payroll-2026-11 --journal postgresql://pay@db/pay
    """
    journal = seconded(what.journal, what.second_journal)
    with asking_fleet():
        from payments_async import fleet

        if journal is not None and await journal.exists():
            async with opened_shared(journal) as held:
                assert isinstance(held, PostgresJournal)
                await fleet.status(held)  # says what it lacks before anything is put

        return await put_file(
            screen, settings, journal, what, rows, checks, file_format, put=fleet.submit, works="fleet worker"
        )

"""`payments-async fleet worker`: one of many machines that work an outbox."""

import asyncio
from typing import Annotated

import typer

from payments_async._cli.batch_state import progress_document
from payments_async._cli.commands.outbox.run import say_stopped, say_unavailable, work_until_stopped
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.fleet import asking_fleet, check_shared, opened_shared
from payments_async._cli.journal import JournalFile, SecondJournal, introduce, may_be_made, seconded
from payments_async._cli.limits import OutboxLimits, session_limits
from payments_async._cli.outbox_state import NewJournal, OutboxName, check_new_outbox, metrics_of
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.telling import Notify, printed, telling
from payments_async.journal import JournalUnavailable, PostgresJournal
from payments_async.outbox import Outbox, OutboxHealth


async def fleet_worker(
    screen: Screen,
    settings: ConnectionSettings,
    journal: JournalFile = None,
    name: OutboxName = "outbox",
    limits: OutboxLimits = OutboxLimits(),
    chunks: Annotated[int, typer.Option(min=1, max=100, help="Chunks of 500 orders worked at once.")] = 2,
    redelivery: Annotated[
        float, typer.Option(min=1, help="Seconds of silence after which another worker gets the jobs of one.")
    ] = 6.0,
    health: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Answer GET /health, /ready, /metrics at this port; 0 takes a free one."),
    ] = None,
    health_host: Annotated[str, typer.Option(help="At which address of this machine; 0.0.0.0 for all.")] = "127.0.0.1",
    new_journal: NewJournal = False,
    new_outbox: Annotated[
        bool, typer.Option("--new-outbox", help="Begin a further outbox in a journal that holds others.")
    ] = False,
    second_journal: SecondJournal = None,
    notify: Notify = None,
) -> Exit:
    """Work an outbox on one of many machines: PGQueuer hands out the chunks of batches, in the journal's database.

    Single orders are sent by whoever hears of them first, as by `outbox run`. Start as many workers as you like; one
    that dies is replaced within seconds, and what it was sending is looked up, never sent again. PGQueuer holds no
    order: the journal alone says who may send what. The first Ctrl-C or SIGTERM finishes what is under way and gives
    the rest to the others; a second one breaks it off.

    With --health PORT, GET /health is 200 for as long as the process works, GET /ready while orders are sent, and GET
    /metrics is for Prometheus.

    Example: payments-async fleet worker --journal postgresql://pay@db/pay --max-per-day 5000000 --health 8081
    """
    if (journal := seconded(journal, second_journal)) is None:
        raise BadInput("--journal: name the DSN of the journal's database, or set PAYMENTS_JOURNAL")
    check_shared(journal)
    fuse = limits.fuse()
    session = settings.session(session_limits(limits))
    if not await may_be_made(screen, journal, is_wanted=new_journal):
        raise Declined("nothing was sent")
    async with telling(screen, notify, "fleet worker", outbox=name, journal=str(journal)) as teller:
        try:
            with asking_fleet():
                from payments_async import fleet

                async with opened_shared(journal, new=True) as held, session as payments:
                    assert isinstance(held, PostgresJournal)
                    introduce(screen, journal, held)
                    await check_new_outbox(held, name, is_wanted=new_outbox)
                    await fleet.status(held)  # says now what it lacks
                    outbox = Outbox(
                        payments,
                        held,
                        name,
                        concurrency=limits.concurrency,
                        rate=limits.rate,
                        fuse=fuse,
                        claims_batches=False,
                    )

                    async def be_handed(stop: asyncio.Event) -> None:
                        await fleet.run_worker(outbox, stop=stop, chunks=chunks, redelivery=redelivery)

                    async def measure() -> str:
                        return f"{await fleet.metrics(held)}\n{await metrics_of(held, name)}\n"

                    stop = await work_until_stopped(
                        screen, outbox, name, health, host=health_host, beside=be_handed, metrics=measure, teller=teller
                    )
                    left = await OutboxHealth.of(held, name)
        except JournalUnavailable as error:
            teller.facts["stopped"] = str(error)
            again = command_line("fleet worker", journal=journal, name=name, notify=printed(notify))
            return teller.ended(say_unavailable(screen, error, again))
        teller.facts["progress"] = progress_document(left.progress)
        return teller.ended(say_stopped(screen, stop, left))

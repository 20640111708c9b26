"""`payments-async fleet worker`: one of many machines that work an outbox."""

import asyncio
from typing import Annotated

import typer

from payments_async._cli.commands.outbox.run import Dispatch, Work, work_outbox
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.fleet import asking_fleet, check_shared
from payments_async._cli.journal import seconded
from payments_async._cli.limits import OutboxLimits
from payments_async._cli.screen import Screen
from payments_async._cli.settings import ConnectionSettings
from payments_async.outbox import Outbox


async def fleet_worker(
    screen: Screen,
    settings: ConnectionSettings,
    work: Work = Work(),
    limits: OutboxLimits = OutboxLimits(),
    chunks: Annotated[int, typer.Option(min=1, max=100, help="Chunks of 500 orders worked at once.")] = 2,
    redelivery: Annotated[
        float, typer.Option(min=1, help="Seconds of silence after which another worker gets the jobs of one.")
    ] = 6.0,
    health_host: Annotated[str, typer.Option(help="At which address of this machine; 0.0.0.0 for all.")] = "127.0.0.1",
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
    if (journal := seconded(work.journal, work.second_journal)) is None:
        raise BadInput("--journal: name the DSN of the journal's database, or set PAYMENTS_JOURNAL")
    check_shared(journal)
    with asking_fleet():
        from payments_async import fleet

        async def run(outbox: Outbox, stop: asyncio.Event) -> None:
            await fleet.run_worker(outbox, stop=stop, chunks=chunks, redelivery=redelivery)

        dispatch = Dispatch(check=fleet.status, run=run, metrics=fleet.metrics, host=health_host)
        return await work_outbox(screen, settings, journal, work, limits, command="fleet worker", dispatch=dispatch)

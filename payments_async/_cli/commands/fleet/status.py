"""`payments-async fleet status`: how the jobs of a fleet stand, and the outbox that they are for."""

from payments_async._cli.batch_state import show_progress
from payments_async._cli.exit_codes import Exit
from payments_async._cli.fleet import asking_fleet, opened_shared
from payments_async._cli.journal import JournalFile
from payments_async._cli.outbox_state import AnyOutbox, chosen_outbox, exit_after, health_document
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen, counted, quoted
from payments_async.journal import PostgresJournal
from payments_async.outbox import OutboxHealth


async def fleet_status(screen: Screen, journal: JournalFile = None, name: AnyOutbox = None) -> Exit:
    """Show the jobs of the fleet, what is due when, and how the outbox stands.

    A job stands for a chunk of a batch, and holds no order; `outbox status` tells all that the journal knows. Exit
    status: as that of `outbox status`.

    Example: payments-async fleet status --journal postgresql://pay@db/pay
    """
    with asking_fleet():
        from payments_async import fleet

        async with opened_shared(journal) as held:
            assert isinstance(held, PostgresJournal)
            name = await chosen_outbox(held, name)
            state, jobs, schema = await OutboxHealth.of(held, name), await fleet.status(held), held.schema
    queued, picked = jobs.queued.get(name, 0), jobs.picked.get(name, 0)
    screen.say(f"[bold]{quoted(name)}[/]: {counted(state.progress.total, 'order')}\n")
    show_progress(screen, state.progress, None)
    screen.say()
    paused = state.problem("paused")
    screen.fields(
        [
            ("paused", None if paused is None else paused.what),
            ("jobs", f"{queued:,} wait, {picked:,} in hand"),
            ("at work", counted(jobs.workers, "worker") if jobs.workers else "no worker has a job in hand"),
            *((f"due: {one}", at) for one, at in sorted(jobs.due.items()) if not one.startswith("refill ")),
        ]
    )
    assert journal is not None
    screen.say("\nWhat the journal knows, and what needs a person:")
    screen.command(command_line("outbox status", journal=journal, name=name))
    screen.say("PGQueuer's own view of its jobs, with the DSN:")
    screen.command(f"pgq --pg-dsn DSN --schema {schema} dashboard")
    screen.document(
        {
            **health_document(state),
            "jobs": {"queued": queued, "picked": picked},
            "workers": jobs.workers,
            "due": dict(jobs.due),
            "exit_status": exit_after(state),
        }
    )
    return exit_after(state)

"""What becomes of jobs moves no money: lost, doubled, called done too early, or beside a connection that is gone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from bulk.worlds import session
from fleet.machines import by_pgqueuer, clerk
from fleet.test_dispatch import accepted, batch
from journal import postgres
from outbox.desks import until

from payments_async.fleet import FleetNotReady, Routine, metrics, run_schedule, run_worker, status, submit
from payments_async.fleet._jobs import Jobs, Queued
from payments_async.journal import PostgresJournal, SqliteJournal
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Fault, Sandbox


def do(schema: str, *statements: str) -> None:
    """Do something to the tables of PGQueuer."""
    with psycopg.connect(postgres.dsn(), autocommit=True, options=f"-c search_path={schema}") as connection:
        for statement in statements:
            connection.execute(statement.encode())


async def sent(sandbox: Sandbox, count: int) -> None:
    """Wait until the service has carried out so many."""
    while len(sandbox.ledger) < count:  # noqa: ASYNC110 - the service tells nobody
        await asyncio.sleep(0.01)


DISTURBANCES = {
    "all are lost": "DELETE FROM pgqueuer",
    "all are doubled": """INSERT INTO pgqueuer (priority, status, entrypoint, payload, execute_after)
        SELECT 0, 'queued', entrypoint, payload, now() FROM pgqueuer""",
    "those in hand are called done": "DELETE FROM pgqueuer WHERE status = 'picked'",
    "those in hand are handed out again": "UPDATE pgqueuer SET status = 'queued', queue_manager_id = NULL",
}


@pytest.mark.slow
@pytest.mark.parametrize("disturbance", DISTURBANCES)
async def test_jobs_are_disturbed_while_they_are_worked(
    disturbance: str, schema: str, journals: list[PostgresJournal], service: Sandbox
) -> None:
    """Each order is sent once, and none is left."""
    one, two, three = journals
    async with clerk(service, three) as putting:
        service.script(Fault.SLOW, on="money", seconds=0.05)
        async with by_pgqueuer(service, one, concurrency=4), by_pgqueuer(service, two, concurrency=4):
            for number in range(8):
                await submit(putting, f"batch {number}", batch(number, 10))
            await sent(service, 20)
            do(schema, DISTURBANCES[disturbance])
            await until(accepted(three), 80)
        assert (80, []) == (len(service.ledger), service.duplicates())


@pytest.mark.slow
async def test_a_batch_that_nobody_was_woken_for(journals: list[PostgresJournal], service: Sandbox) -> None:
    """Whoever put it died before; a worker finds it by itself."""
    one, _, three = journals
    async with clerk(service, three) as putting, by_pgqueuer(service, one):
        await putting.put_batch("batch", batch(0))
        await until(accepted(three), 5)
        assert (5, []) == (len(service.ledger), service.duplicates())


@pytest.mark.slow
async def test_the_connections_are_lost(schema: str, journals: list[PostgresJournal], service: Sandbox) -> None:
    """The jobs' own and the journal's: all is made anew, and goes on."""
    one, _, three = journals
    async with clerk(service, three) as putting, by_pgqueuer(service, one, concurrency=4):
        await submit(putting, "first", batch(0))
        await until(accepted(three), 5)
        do(
            schema,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'payments-async' "
            "AND datname = current_database() AND pid <> pg_backend_pid()",
        )
        await putting.put_batch("second", batch(1))
        await until(accepted(three), 10)
        assert (10, []) == (len(service.ledger), service.duplicates())


LOSSES = {
    "the schedule": ("TRUNCATE pgqueuer_schedules", "TRUNCATE pgqueuer"),
    "the table of jobs": ("DROP TABLE pgqueuer CASCADE",),
    "the table of what is due": ("DROP TABLE pgqueuer_schedules",),
    "the time": (
        "UPDATE pgqueuer_schedules SET next_run = now() + interval '3 days', heartbeat = now() + interval '3 days'",
        """INSERT INTO pgqueuer (priority, status, entrypoint, payload, execute_after, dedupe_key)
        SELECT 0, 'queued', 'outbox outbox', 'second', now() + interval '3 days', 'outbox/3/' || n
        FROM generate_series(0, 60) n""",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
async def test_what_a_fleet_goes_by_is_lost_while_it_works(
    loss: str, schema: str, journals: list[PostgresJournal], service: Sandbox
) -> None:
    """The rows, the tables, or the moments that another clock wrote: they are mended, and the next batch is sent."""
    one, _, three = journals
    async with clerk(service, three) as putting, by_pgqueuer(service, one, concurrency=4):
        await submit(putting, "first", batch(0))
        await until(accepted(three), 5)
        do(schema, *LOSSES[loss])
        await putting.put_batch("second", batch(1))
        await until(accepted(three), 10)
        assert (10, []) == (len(service.ledger), service.duplicates())


async def test_how_the_jobs_stand(schema: str, journals: list[PostgresJournal], service: Sandbox) -> None:
    """A job for each chunk that waits, for whoever asks, and for Prometheus; none holds an order."""
    async with clerk(service, journals[0]) as putting:
        await submit(putting, "first", batch(0))
        await submit(putting, "second", batch(1))
        await submit(putting, "second", batch(1))
        found = await status(journals[0])
        assert ({"outbox": 2}, {"outbox": 0}, 0) == (found.queued, found.picked, found.workers)
        told = await metrics(journals[0])
        assert 'pgqueuer_queue_count{aggregation="sum",entrypoint="outbox outbox",status="queued"} 2' in told
        with psycopg.connect(postgres.dsn(), options=f"-c search_path={schema}") as connection:
            payloads = connection.execute("SELECT payload FROM pgqueuer ORDER BY id").fetchall()
        assert [b"first", b"second"] == [bytes(payload) for (payload,) in payloads]


async def test_its_tables_may_not_be_made(
    schema: str, journals: list[PostgresJournal], tmp_path: Path, service: Sandbox
) -> None:
    """Whoever may not make them is told what does, and nothing of a batch is lost."""
    role = f"{schema}_worker"
    async with clerk(service, journals[0]) as putting:
        do(
            schema,
            "DROP TABLE IF EXISTS pgqueuer, pgqueuer_log, pgqueuer_statistics, pgqueuer_schedules CASCADE",
            "DROP TYPE IF EXISTS pgqueuer_status",
            "DROP FUNCTION IF EXISTS fn_pgqueuer_changed CASCADE",
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA {schema} TO {role}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
        )
        try:
            dsn = postgres.dsn().replace("postgres@", f"{role}@").replace("user=postgres", f"user={role}")
            limited = PostgresJournal(dsn, schema=schema, state_folder=tmp_path / "limited")
            await putting.put_batch("batch", batch(0))
            async with limited:
                with pytest.raises(FleetNotReady, match=f"pgq --pg-dsn DSN --schema {schema} install"):
                    await status(limited)
        finally:
            do(schema, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_what_cannot_be_a_fleet(journals: list[PostgresJournal], tmp_path: Path, service: Sandbox) -> None:
    """A journal in a file; an outbox that takes batches by itself; a namespace that PGQueuer cannot write."""
    stop = asyncio.Event()
    async with session(service) as payments:
        with pytest.raises(TypeError, match="a fleet shares a PostgresJournal, not a SqliteJournal"):
            await run_worker(
                Outbox(payments, SqliteJournal(tmp_path / "j.db"), worker=WorkerSettings(claims_batches=False)),
                stop=stop,
            )
        with pytest.raises(ValueError, match="make it with claims_batches=False"):
            await run_worker(Outbox(payments, journals[0]), stop=stop)
    with pytest.raises(ValueError, match="needs a namespace of a-z, 0-9 and _"):
        await status(PostgresJournal(postgres.dsn(), schema="Two words"))


async def test_a_moment_that_cron_does_not_know(journals: list[PostgresJournal]) -> None:
    """It is refused at once."""

    async def run() -> None: ...

    with pytest.raises(ValueError, match="when: at noon is nothing that cron knows"):
        await run_schedule(journals[0], [Routine(name="x", when="at noon", run=run)], stop=asyncio.Event())
    with pytest.raises(ValueError, match="name one at least"):
        await run_schedule(journals[0], [], stop=asyncio.Event())


@pytest.mark.slow
async def test_what_is_due_is_done_by_one_of_two_machines(journals: list[PostgresJournal]) -> None:
    """While one does it, no other begins; what fails is done again when it is due again."""
    one, two, _ = journals
    stop, enough, began = asyncio.Event(), asyncio.Event(), asyncio.Event()
    overlaps: list[bool] = []

    async def run() -> None:
        began.set()
        began.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.5):
                overlaps.append(await began.wait())
        overlaps.append(False)
        if len(overlaps) == 3:
            enough.set()
        raise RuntimeError("it fails")

    routines = [Routine(name="report", when="* * * * * *", run=run)]
    async with one, two:
        working = [asyncio.ensure_future(run_schedule(journal, routines, stop=stop)) for journal in (one, two)]
        await enough.wait()
        stop.set()
        await asyncio.gather(*working)
    assert {False} == set(overlaps)


@pytest.mark.slow
def test_whoever_has_no_fleet_does_not_load_it() -> None:
    """Neither the package nor the command line brings PGQueuer."""
    modules = "payments_async.outbox, payments_async.bulk, payments_async._cli.app"
    look = f"import sys, {modules}; print('pgqueuer' in sys.modules)"
    assert "False" == _said([sys.executable, "-c", look]).stdout.strip()


def test_without_the_extra_it_says_what_to_install() -> None:
    """In words, and not by the name of a module alone."""
    look = "import sys; sys.modules['pgqueuer'] = None; import payments_async.fleet"
    told = _said([sys.executable, "-c", look]).stderr
    assert "a fleet needs PGQueuer: pip install 'payments-async[pgqueuer]'" in told


def _said(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)


async def test_what_a_handler_fails_by_is_in_no_table(schema: str, journals: list[PostgresJournal]) -> None:
    """PGQueuer keeps tracebacks; ours could quote an order, so it is told of none, and the job is done again."""
    stop = asyncio.Event()
    heard: list[str] = []

    async def fail(payload: str) -> None:
        heard.append(payload)
        if len(heard) == 1:
            raise ValueError("Grace Akello, +256772000017")
        stop.set()

    async with journals[0] as journal:
        jobs = Jobs(journal, failed_again=0.1)
        jobs.handle("outbox x", fail, at_once=1)
        await jobs.enqueue([Queued(entrypoint="outbox x", payload="batch", key="x/1/0")])
        await jobs.run_until(stop)
        with psycopg.connect(postgres.dsn(), options=f"-c search_path={schema}") as connection:
            found = connection.execute("SELECT count(traceback), string_agg(traceback::text, '') FROM pgqueuer_log")
            ((count, texts),) = found.fetchall()
    assert ["batch", "batch"] == heard
    assert (1, False) == (count, "Akello" in texts)

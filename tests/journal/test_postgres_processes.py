"""Several processes on one database: what the dead held is free soon, and nobody waits for who stands still."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from journal import postgres
from journal.factories import BATCH, IDENTITY, claimed, delivery, event, in_outbox, loaded, order, permitted
from journal.points import BY_THE_SYSTEM

from payments_async.journal import JournalBehind, JournalLost, JournalUnavailable, PostgresJournal, Signal, State
from payments_async.journal.contract import Outcome, Permit
from payments_async.testing import Testing

TESTS = Path(__file__).parent.parent


@pytest.fixture
def schema() -> Iterator[str]:
    """An empty namespace."""
    yield postgres.new_schema()
    postgres.give_back()


@asynccontextmanager
async def holding(schema: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that holds leases of an hour; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(TESTS / "journal/holder.py"), postgres.dsn(), schema, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert b"held\n" == await process.stdout.readline()
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


def sessions(where: str) -> list[int]:
    """The sessions of journals that fit."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        found = connection.execute(
            f"""SELECT pid FROM pg_stat_activity WHERE application_name = 'payments-async'
            AND datname = current_database() AND {where}""".encode()  # noqa: S608
        ).fetchall()
    return [pid for (pid,) in found]


def end(pids: list[int]) -> None:
    """End sessions, as an administrator may."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        for pid in pids:
            connection.execute("SELECT pg_terminate_backend(%s, 20000)", (pid,))  # until it is gone


@pytest.mark.slow
async def test_what_a_killed_process_held_is_taken_over_soon(schema: str) -> None:
    """Events, changes, chunks, duties, and what was under way, now unknown; while it lives, nothing of it is taken.

    A stranger who locks the number that says that it lives does not live in its place.
    """
    stranger = psycopg.connect(postgres.dsn(), autocommit=True)
    async with PostgresJournal(postgres.dsn(), schema=schema) as journal:
        await loaded(journal, 3)
        await journal.hear("shop", [State.ACCEPTED])
        chunk = await in_outbox(journal, 1)
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
        async with holding(schema) as process:
            process.send_signal(signal.SIGSTOP)
            for _ in range(5):  # long enough to be taken for dead by the clock alone
                await journal.committed(await journal.committed(0, timeout=0), timeout=1)
                assert () == tuple(await journal.claim("another", lease=90, limit=10))
                assert () == tuple(await journal.claim_changes("shop", [State.ACCEPTED], "another", lease=90, limit=10))
                assert await journal.claim_chunk(BATCH, "another") is None
                assert not await journal.take_duty("duty", "another", lease=90)
                assert 0 == await journal.expire_chunks()
            stranger.execute(
                """SELECT pg_try_advisory_lock_shared((classid::bigint << 32) + objid::bigint) FROM pg_locks
                WHERE locktype = 'advisory' AND objsubid = 1"""
            )
        async with asyncio.timeout(60):
            while (taken_over := await journal.claim_chunk(BATCH, "another")) is None:
                await journal.committed(await journal.committed(0, timeout=0), timeout=0.1)
        assert [99] == [int(one.event.request_id[-6:]) for one in await journal.claim("another", lease=90, limit=10)]
        assert 1 == len(await journal.claim_changes("shop", [State.ACCEPTED], "another", lease=90, limit=10))
        assert (2, 1) == (len(taken_over.orders), (await journal.progress(BATCH)).counts["unknown"])
        assert await journal.take_duty("duty", "another", lease=90)
    stranger.close()


async def test_what_another_process_commits_is_heard(schema: str) -> None:
    """At once, and not when the time to wait is over."""
    async with (
        PostgresJournal(postgres.dsn(), schema=schema) as one,
        PostgresJournal(postgres.dsn(), schema=schema) as other,
    ):
        await loaded(one)
        seen = await other.committed(0, timeout=60)
        while (now := await other.committed(seen, timeout=1)) != seen:  # until nothing is under way any more
            seen = now
        waiting = asyncio.ensure_future(other.committed(seen, timeout=3600))
        await asyncio.sleep(0)
        await one.receive(delivery(), event(), owner="a", lease=0)
        async with asyncio.timeout(60):
            assert seen != await waiting


async def test_what_only_moves_orders_elsewhere_wakes_few(schema: str) -> None:
    """At once those who wait for these states; others five times a second at most, and of the last commit too."""
    async with (
        PostgresJournal(postgres.dsn(), schema=schema) as one,
        PostgresJournal(postgres.dsn(), schema=schema) as other,
    ):
        await one.open_outbox(BATCH, IDENTITY)
        chunk = (await one.put(BATCH, order(0), owner="worker", permits=True)).chunk
        woken: dict[State, list[float]] = {State.SENDING: [], State.UNKNOWN: []}
        clock = asyncio.get_running_loop().time

        async def hears(state: State) -> None:
            seen = await other.committed(0, timeout=0)
            while True:
                seen = await other.committed(seen, timeout=3600, wanted=lambda: (state,))
                woken[state].append(clock())

        hearing = [asyncio.create_task(hears(state)) for state in woken]
        begun, number = clock(), 1
        async with asyncio.timeout(60):
            while len(woken[State.SENDING]) < 40:
                await one.put(BATCH, order(number), owner="worker", chunk=chunk, permits=True)
                number += 1
            last = clock()
            assert len(woken[State.UNKNOWN]) <= 3 + (last - begun) / 0.2
            while not woken[State.UNKNOWN] or woken[State.UNKNOWN][-1] < last:  # noqa: ASYNC110 - a list tells of nothing
                await asyncio.sleep(0.01)
        for task in hearing:
            task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)


async def test_a_session_that_was_ended_is_made_anew(schema: str) -> None:
    """Whoever comes next notices nothing: neither who writes nor who reads."""
    async with PostgresJournal(postgres.dsn(), schema=schema) as journal:
        chunk = await claimed(journal)
        end(sessions("true"))
        permit = await permitted(journal, chunk)
        end(sessions("true"))
        assert 1 == (await journal.progress(BATCH)).counts["sending"]
        await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
        end(sessions("true"))
        await permitted(journal, chunk, 1)
        progress = await journal.progress(BATCH)
        assert (1, 1) == (progress.counts["accepted"], progress.counts["sending"])


async def test_what_the_machine_remembers_stays_open(schema: str) -> None:
    """Single orders are put after a session was ended as before it."""
    async with PostgresJournal(postgres.dsn(), schema=schema) as journal:
        await journal.open_outbox("shop", IDENTITY)
        for number in range(3):
            assert (await journal.put("shop", order(number))).is_new
            end(sessions("true"))
        assert journal.remembered_in is not None
        assert 3 == (await journal.progress(outbox="shop")).counts["planned"]


async def test_tables_that_are_emptied_while_a_journal_is_open(schema: str) -> None:
    """Nothing is made in their place, and nothing goes on."""
    async with PostgresJournal(postgres.dsn(), schema=schema) as journal:
        chunk = await claimed(journal)
        end(sessions("true"))
        postgres.empty(postgres.dsn(), schema)
        for _ in range(2):
            with pytest.raises(JournalLost, match="emptied or replaced while it was open"):
                await journal.permit(chunk, chunk.orders[0])


@pytest.mark.parametrize("point", ["permit.begun", "permit.written", "commit.begun"])
async def test_a_session_that_is_ended_within_a_commit(schema: str, point: str) -> None:
    """Nothing was granted, and whoever asks again is. What is asked beside it has each statement leave alone."""
    armed: list[str] = []

    def crash_at(passed: str) -> None:
        if passed in armed:
            armed.clear()
            end(sessions("state = 'idle in transaction'"))

    async with PostgresJournal(postgres.dsn(), schema=schema, testing=Testing(crash_at=crash_at)) as journal:
        chunk = await claimed(journal)
        armed.append(point)
        beside = asyncio.ensure_future(journal.check_writable())
        with pytest.raises(JournalUnavailable):
            await journal.permit(chunk, chunk.orders[0])
        with pytest.raises(JournalUnavailable):
            await beside
        entry = await journal.entry(order(0).request_id)
        assert entry is not None
        assert (State.PLANNED, 0) == (entry.state, entry.attempt)
        assert isinstance(await journal.permit(chunk, chunk.orders[0]), Permit)


@pytest.mark.slow
async def test_a_process_that_stands_still_within_a_commit(schema: str) -> None:
    """Loses its turn: the others go on, and what it asked for was not granted."""
    stands, goes_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    armed: list[str] = []

    def crash_at(passed: str) -> None:
        if passed in armed:
            armed.clear()
            loop.call_soon_threadsafe(stands.set)
            asyncio.run_coroutine_threadsafe(goes_on.wait(), loop).result()

    async with (
        PostgresJournal(postgres.dsn(), schema=schema, testing=Testing(crash_at=crash_at)) as still,
        PostgresJournal(postgres.dsn(), schema=schema, busy_timeout=60) as other,
    ):
        chunk = await claimed(still)
        armed.append("commit.begun")
        beside = asyncio.ensure_future(still.check_writable())  # else it would hold nothing yet
        asking = asyncio.ensure_future(still.permit(chunk, chunk.orders[0]))
        await stands.wait()
        assert isinstance(await other.permit(chunk, chunk.orders[0]), Permit)
        goes_on.set()
        for one in (asking, beside):
            with pytest.raises(JournalUnavailable):
                await one
        entry = await still.entry(order(0).request_id)
        assert entry is not None
        assert (State.SENDING, 1) == (entry.state, entry.attempt)


@pytest.mark.slow
def test_a_kill_by_the_system_around_and_within_commits_is_survived() -> None:
    """Killed there and continued: nothing is sent twice, nothing is lost, and every state agrees with the world."""
    done = subprocess.run(
        [sys.executable, "-m", "journal.lifetimes", "1", *BY_THE_SYSTEM], capture_output=True, timeout=1800, check=True,
        env={**os.environ, "PYTHONPATH": str(TESTS), "LIFETIMES_DSN": postgres.dsn()},
    )  # fmt: skip
    assert {point: {"1": []} for point in BY_THE_SYSTEM} == json.loads(done.stdout)


def saved(schema: str) -> dict[str, bytes]:
    """What a dump of the tables holds."""
    with psycopg.connect(postgres.dsn(), options=f"-c search_path={schema}") as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        dump = {}
        for (table,) in found:
            with connection.cursor().copy(f'COPY "{table}" TO STDOUT'.encode()) as rows:
                dump[table] = b"".join(map(bytes, rows))
    return dump


def put_back(schema: str, dump: dict[str, bytes]) -> None:
    """Put rows back into the same tables, as a restore of data alone does."""
    with psycopg.connect(postgres.dsn(), options=f"-c search_path={schema}") as connection:
        for table, data in dump.items():
            connection.execute(f'DELETE FROM "{table}"'.encode())  # noqa: S608
            with connection.cursor().copy(f'COPY "{table}" FROM STDIN'.encode()) as rows:
                rows.write(data)


async def test_tables_put_back_from_a_dump(schema: str) -> None:
    """Are noticed though the database is the same one, and by a machine that remembers nothing."""
    opens = partial(PostgresJournal, postgres.dsn(), schema=schema, state_folder=None)
    async with opens() as journal:
        await loaded(journal)
    dump = saved(schema)
    async with opens() as journal:
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await permitted(journal, chunk)
    put_back(schema, dump)
    for _ in range(2):
        async with opens() as journal:
            assert (await journal.run(BATCH)).quarantined
            assert await journal.claim_chunk(BATCH, "worker") is None


@pytest.mark.parametrize("is_known", [True, False])
async def test_tables_put_back_from_a_dump_while_the_journal_is_open(schema: str, is_known: bool) -> None:
    """Nothing more is sent, whether or not whoever has it open has heard of what was forgotten."""
    async with PostgresJournal(postgres.dsn(), schema=schema, state_folder=None) as journal:
        chunk = await claimed(journal)
        dump = saved(schema)
        if is_known:
            await permitted(journal, chunk)
        put_back(schema, dump)
        with pytest.raises(JournalBehind):
            await journal.permit(chunk, chunk.orders[0])
        assert not isinstance(await journal.permit(chunk, chunk.orders[1]), Permit)
        assert (await journal.run(BATCH)).quarantined


async def test_what_another_machine_commits_is_remembered_here(schema: str, tmp_path: Path) -> None:
    """So that a machine that only looked on notices that the server was put back to before it."""
    opens = partial(PostgresJournal, postgres.dsn(), schema=schema)
    async with opens(state_folder=tmp_path / "one") as one, opens(state_folder=tmp_path / "other") as other:
        chunk = await claimed(one)
        await permitted(one, chunk)
        (count,) = await one._writer.submit(
            "check_writable", lambda commit: commit.execute("SELECT value FROM meta WHERE key = 'commits'").fetchone()
        )
        (remembered,) = (tmp_path / "other/anchors").iterdir()
        seen = 0
        async with asyncio.timeout(60):
            while int.from_bytes(remembered.read_bytes()[:8], "big") != int(count):
                seen = await other.committed(seen, timeout=0.1)

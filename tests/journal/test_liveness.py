"""Leases of a process that died are taken over at once, and those of one that lives never before their time."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from journal.factories import BATCH, IDENTITY, delivery, event, in_outbox, loaded, permitted

from payments_async.journal import JournalClosed, Signal, SqliteJournal, State
from payments_async.journal._sqlite._identity import Liveness
from payments_async.journal.contract import Outcome

TESTS = Path(__file__).parent.parent


def locks(folder: Path) -> list[Path]:
    """The files by which processes are known to live."""
    return list(folder.glob("*-alive-*"))


@asynccontextmanager
async def holding(path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that holds leases of an hour; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(TESTS / "journal/holder.py"), str(path), stdout=asyncio.subprocess.PIPE,
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


async def test_what_a_killed_process_held_is_taken_over_at_once(tmp_path: Path) -> None:
    """Events, changes, chunks, duties, and what was under way, now unknown; while it lives, nothing of it is taken."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path) as journal:
        await loaded(journal, 3)
        await journal.hear("shop", [State.ACCEPTED])
        chunk = await in_outbox(journal, 1)
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
        async with holding(path) as process:
            process.send_signal(signal.SIGSTOP)
            assert () == tuple(await journal.claim("another", lease=90, limit=10))
            assert () == tuple(await journal.claim_changes("shop", [State.ACCEPTED], "another", lease=90, limit=10))
            assert await journal.claim_chunk(BATCH, "another") is None
            assert not await journal.take_duty("duty", "another", lease=90)
            assert 0 == await journal.expire_chunks()
        assert [99] == [int(one.event.request_id[-6:]) for one in await journal.claim("another", lease=90, limit=10)]
        assert 1 == len(await journal.claim_changes("shop", [State.ACCEPTED], "another", lease=90, limit=10))
        taken_over = await journal.claim_chunk(BATCH, "another")
        assert taken_over is not None
        assert (2, 1) == (len(taken_over.orders), (await journal.progress(BATCH)).counts["unknown"])
        assert 1 == len(locks(tmp_path))
        assert await journal.take_duty("duty", "another", lease=90)  # though others were told of the dead before


async def test_a_duty_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    """Whoever asks for it first is told that its holder is dead."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path) as journal:
        await loaded(journal, 3)
        async with holding(path):
            assert not await journal.take_duty("duty", "another", lease=90)
        assert await journal.take_duty("duty", "another", lease=90)


async def test_an_outbox_that_is_opened_takes_nothing_from_the_dead_unsaid(tmp_path: Path) -> None:
    """Its opening is told who died: what a killed process held is free at once, and not at the end of its lease."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path) as journal:
        await loaded(journal, 3)
        async with holding(path):
            assert await journal.claim_chunk(BATCH, "another") is None
        await journal.open_outbox("orders", IDENTITY)
        assert await journal.claim_chunk(BATCH, "another") is not None


async def test_a_journal_that_closes_gives_back_its_events(tmp_path: Path) -> None:
    """Whoever took them through it can do nothing for them any more."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path) as journal:
        await journal.receive(delivery(), event(), owner="a", lease=3600)
    assert [] == locks(tmp_path)
    async with SqliteJournal(path) as journal:
        assert 1 == len(await journal.claim("b", lease=90, limit=10))


async def test_a_namesake_in_another_journal_keeps_its_leases(tmp_path: Path) -> None:
    """Two that were given one name are two all the same: the end of one is not the other's."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path) as one, SqliteJournal(path) as other:
        await one.receive(delivery(), event(), owner="receiver", lease=3600)
        await other.release("receiver")
        assert () == tuple(await other.claim("receiver", lease=90, limit=10))
        await one.release("receiver")
        assert 1 == len(await other.claim("receiver", lease=90, limit=10))


def no_locks(file: int) -> None:
    """As on a file system without them."""
    raise OSError("no locks available")


def test_without_locks_nobody_is_known_to_be_dead(tmp_path: Path) -> None:
    """Leases wait for their end there."""
    path = tmp_path / "journal.db"
    liveness = Liveness(path, flock=no_locks)
    liveness.begin()
    (tmp_path / "journal.db-alive-0123").touch()
    with liveness.dead() as dead:
        assert ("", []) == (liveness.holder, dead)
    liveness.end()
    assert ["journal.db-alive-0123"] == [file.name for file in tmp_path.iterdir()]


def test_a_dead_holder_is_told_of_until_it_was_taken_over(tmp_path: Path) -> None:
    """A commit that failed is tried again; files of others are left alone."""
    path = tmp_path / "journal.db"
    liveness = Liveness(path)
    liveness.begin()
    for name in ("journal.db-alive-dead", "another.db-alive-1", "journal.db-wal"):
        (tmp_path / name).touch()
    with pytest.raises(OSError, match="full"), liveness.dead() as dead:
        raise OSError(f"full, with {dead}")
    for expected in (["dead"], []):
        with liveness.dead() as dead:
            assert expected == dead
    liveness.end()
    assert {"another.db-alive-1", "journal.db-wal"} == {file.name for file in tmp_path.iterdir()}


def test_a_forked_child_does_not_keep_its_parent_alive(tmp_path: Path) -> None:
    """It inherits the open file, and closes it: the lock ends with the process that took it."""
    path = tmp_path / "journal.db"
    command = [sys.executable, str(TESTS / "journal/forker.py"), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child, words = process.stdout.readline().split()
        process.wait()
        liveness = Liveness(path)
        try:
            liveness.begin()
            with liveness.dead() as dead:
                assert ("holder=", 1) == (words, len(dead))
        finally:
            liveness.end()
            os.kill(int(child), signal.SIGKILL)


async def test_everybody_finishes_before_a_journal_closes(tmp_path: Path) -> None:
    """The last that came first, though one of them fails; who has taken it back is not called."""
    journal, called = SqliteJournal(tmp_path / "journal.db"), list[str]()

    def finishing(name: str, error: Exception | None = None) -> Callable[[], Awaitable[None]]:
        async def finish() -> None:
            await journal.backlog()  # it is still open
            called.append(name)
            if error is not None:
                raise error

        return finish

    await journal.__aenter__()
    journal.before_close(finishing("first"))
    take_back = journal.before_close(finishing("gone"))
    journal.before_close(finishing("second", RuntimeError("no")))
    take_back()
    with pytest.raises(RuntimeError, match="no"):
        await journal.aclose()
    assert ["second", "first"] == called
    with pytest.raises(JournalClosed):
        await journal.backlog()
    await journal.aclose()


async def test_a_journal_that_is_closed_while_somebody_begins_to_read(tmp_path: Path) -> None:
    """The connection that is opened for it then is closed as well."""
    opened: list[sqlite3.Connection] = []
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        open_reader = journal._database.open_reader

        def slowly() -> Any:
            while journal._reading is not None:  # until it is being closed
                time.sleep(0.001)
            opened.append(cast(sqlite3.Connection, open_reader()))
            return opened[-1]

        journal._database.open_reader = slowly  # type: ignore[method-assign]
        reading = asyncio.ensure_future(journal.runs())
        await asyncio.sleep(0)
    assert [] == list(await reading)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")

"""Orders leaving for an archive: killed at every step of it, and thousands of them in little memory."""

import asyncio
import contextlib
import gzip
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from journal.factories import BATCH, IDENTITY, claimed, loaded, order, orders, permitted

from payments_async.journal import OrdersArchived, Signal, SqliteJournal, State, archive_orders
from payments_async.journal.contract import Outcome

pytestmark = pytest.mark.slow

DAY = 86_400.0
COUNT = 400  # orders: two pages, of which the second ends with its chunk
MANY = 6_000
TESTS = Path(__file__).parent.parent

ARCHIVING = """
import asyncio, os, resource, signal, sys
from payments_async.journal import SqliteJournal, archive_orders
from payments_async.testing import Testing

path, file, point, times = sys.argv[1:]
passed = 0

def crash_at(name):
    global passed
    passed += name == point
    if passed == int(times):
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with SqliteJournal(path, state_folder=None, testing=Testing(crash_at=crash_at)) as journal:
        async def page():
            async for some in journal.old_orders(older_than=90 * 86400):
                return some
        await page()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        done = await archive_orders(journal, file, older_than=90 * 86400, who="Ann", why="rule 7")
        print(done.orders, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main())
"""


def archiving(path: Path, file: Path, point: str = "", times: int = -1) -> "subprocess.CompletedProcess[bytes]":
    """The archiving, in a process of its own, which may be killed at a point."""
    words = [sys.executable, "-c", ARCHIVING, str(path), str(file), point, str(times)]
    return subprocess.run(words, env=os.environ | {"PYTHONPATH": str(TESTS.parent)}, capture_output=True, check=False)


def grow_old(path: Path) -> None:
    """A hundred days pass for every order."""
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE outbox SET updated_at = updated_at - ?", (100 * DAY,))


def whole_lines(file: Path) -> list[dict[str, Any]]:
    """The orders in an archive that may break off."""
    found: list[dict[str, Any]] = []
    if file.exists():
        with contextlib.suppress(EOFError), gzip.open(file, "rb") as lines:
            found += [line for line in map(json.loads, lines) if "request_id" in line]
    return found


def ended(path: Path) -> None:
    """A batch that was refused, and grew old."""

    async def end() -> None:
        async with SqliteJournal(path, state_folder=None) as journal:
            chunk = await claimed(journal, COUNT)
            permits = await asyncio.gather(*(permitted(journal, chunk, place) for place in range(COUNT)))
            await asyncio.gather(*(journal.record(Outcome(permit=one, signal=Signal.REJECTED)) for one in permits))
            await journal.release_chunk(chunk)

    asyncio.run(end())
    grow_old(path)


STEPS = (  # a kill before a commit leaves the same wherever it comes: so before the first, and after one and two
    ("begin_archive.written", 1),
    ("commit.done", 1),
    ("prune_orders.written", 2),
)


@pytest.mark.parametrize(("point", "times"), STEPS)
def test_killed_at_any_step_nothing_is_lost_and_another_file_goes_on(tmp_path: Path, point: str, times: int) -> None:
    """Each order is in the journal or whole in a file, or in both; and in the end nothing of it can be sent again."""
    path, first, second = tmp_path / "journal.db", tmp_path / "1.gz", tmp_path / "2.gz"
    ended(path)
    killed = archiving(path, first, point, times)
    every = {one.request_id for one in orders(COUNT)}

    async def in_journal() -> set[str]:
        async with SqliteJournal(path, state_folder=None) as journal:
            await journal.check()
            assert COUNT == (await journal.progress(BATCH)).counts[State.REJECTED]
            return {entry.request_id async for entry in journal.entries()}

    left = asyncio.run(in_journal())
    assert every == left | {line["request_id"] for line in whole_lines(first)}
    if killed.returncode == 0:  # it is not passed so often
        assert set() == left
        return
    assert -9 == killed.returncode, killed.stderr
    again = archiving(path, second)
    assert 0 == again.returncode, again.stderr
    assert set() == asyncio.run(in_journal())
    assert left == {line["request_id"] for line in whole_lines(second)}

    async def load() -> None:
        async with SqliteJournal(path, state_folder=None) as journal:
            with pytest.raises(OrdersArchived):
                await journal.load(BATCH, orders(COUNT), owner="loader")

    asyncio.run(load())


def test_thousands_of_orders_leave_in_little_memory(tmp_path: Path) -> None:
    """Each once, counted as before; and what is left of the file has room for others."""
    path, file = tmp_path / "journal.db", tmp_path / "old.gz"

    async def load() -> None:
        async with SqliteJournal(path, state_folder=None) as journal:
            await journal.open_run(BATCH, IDENTITY)
            await journal.load(BATCH, (order(number) for number in range(MANY)), owner="loader")

    asyncio.run(load())
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE outbox SET state = 'successful', attempt = 1")
        database.execute("UPDATE progress SET state = 'successful'")
        database.execute("UPDATE chunk SET state = 'done'")
        database.execute(
            """INSERT INTO evidence (order_id, at, news, source, before, after, before_at, last_at)
            SELECT id, updated_at, 'looked_up_successful', 'list', 'accepted', 'successful', permitted_at, updated_at
            FROM outbox"""
        )
    grow_old(path)
    done = archiving(path, file)
    assert 0 == done.returncode, done.stderr
    count, grown = map(int, done.stdout.split())
    assert MANY == count
    assert grown < 4_000, f"{grown} kB"

    async def look() -> None:
        async with SqliteJournal(path, state_folder=None) as journal:
            assert MANY == (await journal.progress(BATCH)).counts[State.SUCCESSFUL]
            assert [] == [entry async for entry in journal.entries()]
            nothing = await archive_orders(journal, file.with_name("2"), older_than=90 * DAY, who="Ann", why="rule 7")
            assert nothing.path is None
            await loaded(journal, 3, batch="next")

    asyncio.run(look())
    with contextlib.closing(sqlite3.connect(path)) as database:
        (free,) = database.execute("PRAGMA freelist_count").fetchone()
        (pages,) = database.execute("PRAGMA page_count").fetchone()
    assert free > pages / 2
    seen = {line["request_id"] for line in whole_lines(file)}
    assert MANY == len(seen)

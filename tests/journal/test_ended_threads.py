"""The thread that writes a journal ends before its time: all who wait hear of it, and what to do."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from journal.conftest import Opens
from journal.factories import IDENTITY, orders

from payments_async.journal import JournalUnavailable, SqliteJournal
from payments_async.journal._engine._threads import Threads


class Ended(BaseException):
    """What nobody foresaw."""


async def test_the_thread_that_writes_ends(opens: Opens) -> None:
    """What is under way, what waits and what comes fails with a remedy; opened again, the journal goes on."""
    breaks = False

    def crash(point: str) -> None:
        if breaks and point == "commit.begun":
            raise Ended

    async with opens(crash_at=crash) as journal:
        await journal.open_run("salaries", IDENTITY)
        breaks = True
        loads = [asyncio.ensure_future(journal.load("salaries", orders(3), owner=f"{n}")) for n in range(3)]
        done, _ = await asyncio.wait(loads, timeout=60)
        assert 3 == len(done), "somebody waits for a thread that has ended"
        for load in loads:
            with pytest.raises(JournalUnavailable, match=r"ended .*: open the journal again"):
                load.result()
        with pytest.raises(JournalUnavailable, match="open the journal again"):
            await journal.open_run("bonus", IDENTITY)
    breaks = False
    async with opens() as journal:
        assert 3 == (await journal.load("salaries", orders(3), owner="later")).total


async def test_what_fails_as_a_journal_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is used up: closing ends all the same, and the log beside the file stays for the next opening."""

    def connect(*_: object, **__: object) -> None:
        raise MemoryError

    journal = await SqliteJournal(tmp_path / "j.sqlite").__aenter__()
    await journal.open_run("salaries", IDENTITY)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connect)
        await asyncio.wait_for(journal.aclose(), 60)
    async with SqliteJournal(tmp_path / "j.sqlite") as journal:
        assert ["salaries"] == [run.batch_id for run in await journal.runs()]


async def test_a_commit_that_no_thread_hears_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is used up in that moment: all who wait hear of it; opened again, the journal goes on."""

    def run(*_: object) -> None:
        raise MemoryError

    async with SqliteJournal(tmp_path / "j.sqlite") as journal:
        await journal.open_run("salaries", IDENTITY)
        with monkeypatch.context() as patched:
            patched.setattr(Threads, "run", run)
            with suppress(JournalUnavailable):
                while True:  # the thread of the commit before may be at it still, and does this one as well
                    with suppress(MemoryError):  # then the reading that follows finds no thread
                        await asyncio.wait_for(journal.open_run("bonus", IDENTITY), 60)
            with pytest.raises(JournalUnavailable, match=r"ended \(MemoryError\): open the journal again"):
                await asyncio.wait_for(journal.open_run("bonus", IDENTITY), 60)
    async with SqliteJournal(tmp_path / "j.sqlite") as journal:
        assert "salaries" in [run.batch_id for run in await journal.runs()]


@pytest.mark.parametrize("most", [0, 1])
async def test_no_further_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """With one thread a journal works; without any it says so at once, and what was to be opened can be later."""
    start, started = threading.Thread.start, 0

    def limited(thread: threading.Thread) -> None:
        nonlocal started
        if thread.name == "journal":
            started += 1
            if started > most:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    if not most:
        with pytest.raises(JournalUnavailable, match="no thread can be started"):
            await SqliteJournal(tmp_path / "j.sqlite").__aenter__()
        most = 9
    async with asyncio.timeout(60), SqliteJournal(tmp_path / "j.sqlite") as journal:
        await journal.open_run("salaries", IDENTITY)
        assert 3 == (await journal.load("salaries", orders(3), owner="one")).total
        assert await journal.entry(orders(1)[0].request_id) is not None

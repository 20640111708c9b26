"""A journal that is opened twice, given up while it opens, or closed from another event loop."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from journal.factories import BATCH, loaded

from payments_async.journal import Journal, SqliteJournal


@pytest_asyncio.fixture
async def held(journal: Journal) -> AsyncIterator[Journal]:
    """Three orders, in a journal that somebody has open."""
    await loaded(journal)
    yield journal


async def test_opened_a_second_time(held: Journal) -> None:
    """Is refused: the end of the inner block would close it under those of the outer one."""
    with pytest.raises(RuntimeError, match="open already"):
        async with held:
            pass
    assert 3 == (await held.progress(BATCH)).total


async def test_closed_from_another_event_loop(held: Journal) -> None:
    """Is refused at once, and those who work with it go on; before, it waited for what could not come."""

    async def close() -> None:
        async with asyncio.timeout(30):
            await held.aclose()

    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, close())
    assert 3 == (await held.progress(BATCH)).total


def test_a_loop_that_ended_without_closing_it(tmp_path: Path) -> None:
    """Keeps nobody out: the next loop closes it, and opens it anew."""
    journal = SqliteJournal(tmp_path / "journal.db")

    async def leave() -> None:
        await journal.__aenter__()

    async def read() -> int:
        async with journal:
            return (await journal.progress()).total

    asyncio.run(leave())
    asyncio.run(journal.aclose())
    assert 0 == asyncio.run(read())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a process sees its open files on Linux")
async def test_who_gives_up_while_it_opens_leaves_nothing_open(tmp_path: Path) -> None:
    """Neither the file nor what the machine remembers, however often it is tried."""

    async def held_open() -> None:
        async with SqliteJournal(tmp_path / "journal.db", state_folder=tmp_path / "state"):
            await asyncio.Event().wait()

    for _ in range(3):
        opening = asyncio.create_task(held_open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert [] == _open_below(tmp_path)
    gc.collect()  # what was left open complains here, and not in another test


def _open_below(folder: Path) -> list[str]:
    """The files of a folder that this process has open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [str(link.readlink()) for link in links if str(folder) in str(link.readlink())]


@pytest.mark.parametrize("place", ["postgresql://payer:secret@db/shop", "sqlite:///shop.db"])
def test_an_address_is_no_file(place: str) -> None:
    """It would be made a folder of that name; and a password in it is not shown."""
    with pytest.raises(ValueError, match="journal_at") as refused:
        SqliteJournal(place)
    assert "secret" not in str(refused.value)

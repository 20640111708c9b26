"""One journal for each kind there is: whatever passes the contract here is a journal."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from journal.factories import Clock

from payments_async.journal import Journal, SqliteJournal

Opens = Callable[..., AbstractAsyncContextManager[Journal]]


def _sqlite(place: Path) -> Opens:
    return lambda **options: SqliteJournal(place / "journal.db", **options)


# To add a journal: a function that, for a test's own place, gives a function that opens the same database every time
# it is called, with `clock` and `crash_at` as options.
KINDS: dict[str, Callable[[Path], Opens]] = {"sqlite": _sqlite}


@pytest.fixture
def clock() -> Clock:
    """The database's clock."""
    return Clock()


@pytest.fixture(params=KINDS)
def opens(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Opens:
    """Opens the test's own database, as often as it is called."""
    kind = KINDS[request.param](tmp_path)

    def open_(**options: Any) -> AbstractAsyncContextManager[Journal]:
        return kind(**{"clock": clock} | options)

    return open_


@pytest_asyncio.fixture
async def journal(opens: Opens) -> AsyncIterator[Journal]:
    """An open journal."""
    async with opens() as journal:
        yield journal

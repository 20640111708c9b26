"""The journal of a fleet on the command line, and the complaints of PGQueuer as those of an option."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from payments_async._cli.exit_codes import BadInput
from payments_async._cli.journal import JournalPlace, opened
from payments_async.journal import Journal, SqliteJournal


@contextmanager
def asking_fleet() -> Iterator[None]:
    """Use the fleet.

    Raises:
        BadInput: Its extra is not installed, or its tables are not there and may not be made.
    """
    try:
        from payments_async.fleet import FleetNotReady
    except ModuleNotFoundError as error:
        raise BadInput(str(error)) from error
    try:
        yield
    except FleetNotReady as error:
        raise BadInput(f"--journal: {error}") from error


@asynccontextmanager
async def opened_shared(place: JournalPlace | None, *, new: bool = False) -> AsyncIterator[Journal]:
    """The journal that the machines share.

    Raises:
        BadInput: As ``opened``; or it is a file.
    """
    check_shared(place)
    async with opened(place, new=new) as held:
        yield held


def check_shared(place: JournalPlace | None) -> None:
    """Raise ``BadInput`` for a journal that is a file."""
    if place is not None and isinstance(place.unopened(), SqliteJournal):
        raise BadInput("--journal: a fleet shares a journal in PostgreSQL; name its DSN (postgresql://...)")

"""One examination of a journal: all of it as it was at one moment, and what it relies on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from payments_async.journal._engine._database import JournalDatabase
from payments_async.journal._examination import Examination
from payments_async.journal._statements._entries import snapshot
from payments_async.journal._statements._examining import count_rows, flaws_of


def examined(database: JournalDatabase, progress: Callable[[int, int], object] | None) -> Examination:
    """Read a journal through a connection of its own.

    Args:
        progress: Called with how many orders were read, and how many there are.

    Raises:
        JournalError: It cannot be read.
    """
    connection = database.open_examiner()
    try:
        circumstances = database.circumstances(connection)
        with snapshot(connection):
            orders, notifications, changes = count_rows(connection)
            flaws = flaws_of(connection, lambda read: None if progress is None else progress(read, orders))
    except database.Error as error:
        raise database.translated(error) from error
    finally:
        with suppress(database.Error):
            connection.close()
    return Examination(
        place=database.named,
        orders=orders,
        notifications=notifications,
        changes=changes,
        flaws=tuple(flaws),
        circumstances=circumstances,
    )

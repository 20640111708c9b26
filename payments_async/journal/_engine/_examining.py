"""One examination of a journal: all of it as it was at one moment, and what it relies on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from payments_async.journal._engine._database import JournalDatabase
from payments_async.journal._examination import IntegrityCheck, VerificationReport
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import snapshot
from payments_async.journal._statements._examining import count_rows, flaws_of
from payments_async.journal._statements._moving import facts_of, moved_of


def examined(database: JournalDatabase, progress: Callable[[int, int], object] | None) -> VerificationReport:
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
            circumstances = (*_place(connection), *circumstances)
            orders, notifications, changes = count_rows(connection)
            flaws = flaws_of(connection, lambda read: None if progress is None else progress(read, orders))
    except database.Error as error:
        raise database.translated(error) from error
    finally:
        with suppress(database.Error):
            connection.close()
    return VerificationReport(
        place=database.named,
        orders=orders,
        notifications=notifications,
        changes=changes,
        flaws=tuple(flaws),
        circumstances=circumstances,
    )


def _place(connection: Connection) -> tuple[IntegrityCheck, ...]:
    """Whether it is the journal still."""
    facts = facts_of(connection)
    moved = moved_of(facts)
    if moved is None:
        return ()
    remedy = "name that place; this one is sealed, and may be kept or deleted"
    if not moved.is_done:
        remedy = "the same `journal copy` again makes sure that all of it has arrived; until then keep this one"
    return (IntegrityCheck(name="place", found=f"moved to {moved.to}", remedy=remedy),)

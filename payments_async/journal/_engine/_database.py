"""What a journal asks of a database: connections, a clock, whether it is the one it was; and its examination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from typing import Any, Protocol

from payments_async.journal._engine._tally import Tally
from payments_async.journal._examination import IntegrityCheck, VerificationReport
from payments_async.journal._machine._memory import MachineState
from payments_async.journal._statements._database import Connection, Database, Gathered
from payments_async.journal._statements._entries import Commit, snapshot
from payments_async.journal._statements._examining import count_rows, flaws_of
from payments_async.journal._statements._moving import TableShape, facts_of, moved_of
from payments_async.journal._versions import Migration


class JournalDatabase(Database, Protocol):
    """The database of a journal, for one opening of it.

    All but ``now``, ``dead``, ``holder`` and what is told of its identity is called in the thread that writes or, for a
    reader, in the one that reads.

    Attributes:
        named: Where it is, as its user calls it, without a password.
        address: ... as everybody may call it, from any folder.
        is_new: Opening it has made the journal: it knows no earlier payment.
        journal_id: Whose identity it has; a copy has the same.
        memory: What remembers it on this machine, while it is open; ``None`` where nothing does.
        holder: Name of this opening, by which others know whether it lives; empty where they cannot.
    """

    @property
    def commits(self) -> Tally:
        """Rises with each of our own commits, told by the thread that writes, and with those of others."""

    @property
    def within(self) -> float:
        """Seconds after its moment in which a commit that is gathered is made, or not at all."""

    @property
    def seen_of_others(self) -> int | None:
        """Another number whenever another connection has committed since the last transaction of ours began.

        ``None`` where that is not told, and every question is asked anew.
        """

    @property
    def named(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def is_new(self) -> bool: ...

    @property
    def unseen_at(self) -> float | None:
        """Unix seconds since when a machine has it that had not seen it before."""

    @property
    def journal_id(self) -> str: ...

    @property
    def memory(self) -> MachineState | None: ...

    @property
    def holder(self) -> str: ...

    def exists(self) -> bool:
        """Whether there is a journal; nothing is made, and nothing stays open. Raises ``JournalError``."""

    def open(self, *, gives_back: bool = False) -> Connection:
        """The connection that writes; another one after the last is lost or given back. Opening checks all there is.

        Args:
            gives_back: It is opened to give back what was leased.

        Raises:
            JournalError: With what to do about it.
        """

    def open_reader(self) -> Connection:
        """A connection that only reads; each of its transactions sees one moment."""

    def give_back(self, connection: Connection, /) -> bool:
        """Called after each commit and each read: whether it is another journal's now, and not to be used any more."""

    def is_lost(self, connection: Connection, /) -> bool:
        """Whether a connection is of no use any more, or closed: nothing of what it had not committed was done."""

    def end(self, connection: Connection, /) -> None:
        """Leave everything in order, and close the connection that writes."""

    def close(self) -> None:
        """Let go of everything else, in the event loop's thread."""

    def wait_for_end(self) -> None:
        """Called in a thread after ``close``: wait for whatever still ends."""

    def now(self) -> float:
        """Unix seconds by the database's clock, as far as is known without asking it."""

    def gathering(self, connection: Connection, /) -> Gathered | None:
        """What gathers the statements of a commit, so that they leave together; ``None`` where that gains nothing."""

    def perform(self, commit: Commit, gathered: Gathered, /) -> Callable[[], None] | None:
        """Make a whole commit of what was gathered, with all that ``begin``, ``seal`` and ``commit`` do.

        Returns:
            What is to be called next; ``None`` where nothing was done, for an answer was not the usual one.

        Raises:
            Unforeseen: Nothing was done either.
        """

    def seal(self, commit: Commit, /) -> Callable[[], None] | None:
        """Called at the end of each transaction.

        Returns:
            What is to be called once it is committed.

        Raises:
            JournalBehind: A copy has made commits that this one does not hold: then all of it is undone.
            JournalUnavailable: What is written would not last; all of it is undone.
        """

    def enter_quarantine(self, connection: Connection, /) -> None:
        """Called after a commit was undone because a copy has gone on: quarantine every unfinished chunk."""

    def start_heartbeat(self) -> None:
        """Called in the event loop once it is open: others may know from now on that we live."""

    def dead(self) -> AbstractAsyncContextManager[Sequence[str]]:
        """The holders that died without an end. Once the block has ended well, nobody is told of them again."""

    async def wait_for_liveness(self) -> None:
        """Wait until ``dead`` knows of everybody who died before, where that takes a moment."""

    # bringing it up to date, and to another place; nothing is open meanwhile

    def migration(self) -> Migration:
        """What bringing the tables up to date would do. Raises ``JournalError``."""

    def migrate(self) -> Migration:
        """Do it, all in one transaction; tells what was done. Raises ``JournalError``."""

    def recall(self) -> MachineState | None:
        """What this machine remembers, to be closed by whoever asks; ``None`` where nothing is kept."""

    def facts(self) -> dict[str, str]:
        """What the journal says of itself; nothing where there is none. Raises ``JournalError``."""

    def tables(self, connection: Connection, /) -> dict[str, TableShape]:
        """Its tables."""

    def open_examiner(self) -> Connection:
        """A connection that only reads, for as long as that takes."""

    def circumstances(self, connection: Connection, /) -> tuple[IntegrityCheck, ...]:
        """What the journal relies on."""

    def storable(self, row: Sequence[Any], /) -> list[Any]:
        """A row of another database, as this one can hold it."""

    def retired(self) -> AbstractContextManager[Connection]:
        """A connection to a journal that is sealed, in a transaction which keeps others away, and is undone at last."""

    def note(self, connection: Connection, key: str, value: str, /) -> None:
        """Let a journal that is sealed say something of itself from now on, whatever becomes of that transaction."""

    def check_free(self) -> None:
        """Whether a journal can be made here. Raises ``PlaceTaken`` where there is one, or ``JournalError``."""

    def make_whole(self, fill: Callable[[Connection], dict[str, str]], *, placing: Callable[[], None]) -> None:
        """Make a journal whose rows come from elsewhere, all of it or nothing.

        Args:
            fill: Writes them into the tables, and tells what the journal says of itself.
            placing: Called when all is there, before it counts.
        """


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

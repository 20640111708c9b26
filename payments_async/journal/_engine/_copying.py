"""How a journal goes to another place: sealed here first, whole there or not at all, and compared row by row."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping

from payments_async._values.frozen import field, frozen
from payments_async.journal._engine._database import JournalDatabase
from payments_async.journal._engine._journal import Journal
from payments_async.journal._faults import JournalUnavailable, NotAJournal, PlaceTaken
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._moving import (
    PLACING,
    CopiedTable,
    check_here,
    copy_table,
    facts_for,
    facts_of,
    forget_move,
    moved_of,
    note_arrived,
    note_try,
    tables_to_copy,
    tries_of,
)


@frozen(kw_only=True)
class Copied:
    """A journal that has gone to another place.

    Attributes:
        source: Where it was; nothing is sent from there any more.
        destination: Where it is.
        rows: How many, by table; each was read again there, and is the same.
        digests: Of all rows of each table, the same at both ends.
        was_there: It had arrived by an earlier call, which did not live to say so; nothing was read.
    """

    source: str
    destination: str
    rows: Mapping[str, int] = field(factory=dict)
    digests: Mapping[str, str] = field(factory=dict)
    was_there: bool = False


async def copy_journal(
    source: Journal,
    destination: Journal,
    *,
    progress: Callable[[int], object] | None = None,
    crash_at: Callable[[str], None] = lambda point: None,
) -> Copied:
    """Bring a journal to another place, from a file to PostgreSQL or the other way, with all that it knows.

    Only one of them may send at any moment. The source becomes read-only before a row is copied: a program that opens
    it, or has it open, gets ``JournalMoved``. The destination is made in one transaction, and every row is compared.
    Killed at any moment, the same call goes on; where it fails, the source is what it was.

    The journal stays the same one: what this machine remembers of it counts in its new place, and nothing has to be
    looked for.

    Args:
        source: Not open, and no process has work in hand; what the dead had is taken from them, and is unknown.
        destination: Not open: a file that is not there, or a namespace without tables or with empty ones.
        progress: Called with how many rows were written, now and then, in another thread.
        crash_at: Called with the name of every point between two steps, for tests that kill there.

    Raises:
        StillWorked: A program works with it. Nothing was done.
        PlaceTaken: There is something in the other place. Nothing was done.
        JournalCorrupt: It does not agree with itself. Nothing was done; `examine` tells more.
        JournalMoved: It has gone to yet another place before.
        JournalError: With what to do about it.
    """
    copying = _Copying(source.new_database(), destination.new_database(), progress, crash_at)
    facts = await asyncio.to_thread(copying.here.facts)
    if not facts:
        raise NotAJournal(f"{source.place}: there is no journal")
    moved = moved_of(facts)
    if moved is None:
        await asyncio.to_thread(copying.there.check_free)
        await source.check()  # what is wrong here would be wrong there, and look as if the copy had done it
        crash_at("copy.begun")
        async with source as opened:
            await opened.retire(secrets.token_hex(16), copying.there.address)
        crash_at("copy.sealed")
    elif moved.is_done or moved.to != copying.there.address:
        check_here(facts, source.place)
    rows = await asyncio.to_thread(copying.copy)
    async with destination:  # what this machine remembers of the journal hears where it is
        crash_at("copy.known")
    return Copied(
        source=source.place,
        destination=destination.place,
        rows={table: copied.rows for table, copied in rows.items()},
        digests={table: copied.digest for table, copied in rows.items()},
        was_there=not rows,
    )


class _Copying:
    """One attempt to copy a journal that is sealed.

    Attributes:
        here, there: Both databases, not open.
        may_undo: Whether the seal may be broken when it fails: no transaction that would count is under way there,
            also none of somebody who died. Only who holds the lock of the other place knows that, or who tries first;
            and nothing counted there before that is not there any more.
    """

    def __init__(
        self,
        here: JournalDatabase,
        there: JournalDatabase,
        progress: Callable[[int], object] | None,
        crash_at: Callable[[str], None],
    ) -> None:
        self.here = here
        self.there = there
        self.may_undo = False
        self._progress = progress
        self._crash_at = crash_at
        self._was_placing = False
        self._written = 0

    def copy(self) -> dict[str, CopiedTable]:
        """Copy all of it; tells of each table, or of none where it had arrived before."""
        copied: dict[str, CopiedTable] = {}
        with self.here.retired() as source:
            self._still(source)
            note_try(source)  # known to whoever comes after us, before the other place is touched
            self.here.commit(source)
            self.here.begin(source)
            move = self._still(source)
            facts = facts_of(source)
            self._was_placing = PLACING in facts
            self.may_undo = tries_of(facts) == 1 and not self._was_placing
            try:
                if self.there.facts().get("came_by") != move:
                    self._make_whole(source, move, copied)
            except Exception:
                if self.may_undo:
                    self.here.make_writable(source)
                    forget_move(source)
                    self.here.commit(source)
                raise
            self._crash_at("copy.placed")
            note_arrived(source)
            self.here.commit(source)
        self._crash_at("copy.noted")
        return copied

    def _still(self, source: Connection) -> str:
        """Which move it is; others may have ended it while we waited for them. Raises ``JournalError``."""
        facts = facts_of(source)
        moved = moved_of(facts)
        if moved is None:
            raise JournalUnavailable(f"{self.here.named}: another process was copying it, and gave up; copy it again")
        if moved.to != self.there.address:
            check_here(facts, self.here.named)
        return moved.move

    def _make_whole(self, source: Connection, move: str, copied: dict[str, CopiedTable]) -> None:
        try:
            self.there.make_whole(
                lambda destination: self._fill(source, destination, copied), placing=lambda: self._placing(source)
            )
        except PlaceTaken:
            if self.there.facts().get("came_by") == move:  # by whoever was before us, at this very moment
                return
            self.may_undo = not self._was_placing  # by something else: nothing of ours can come to be there
            raise

    def _fill(self, source: Connection, destination: Connection, copied: dict[str, CopiedTable]) -> dict[str, str]:
        self.may_undo = not self._was_placing
        ours, theirs = self.here.tables(source), self.there.tables(destination)
        for name in tables_to_copy(ours, theirs, source):
            copied[name] = copy_table(
                source, destination, name, theirs[name], storable=self.there.storable, tell=self._tell
            )
            self._crash_at(f"copy.{name}")
        return facts_for(facts_of(source))

    def _placing(self, source: Connection) -> None:
        self._crash_at("copy.filled")
        self.may_undo = False
        self.here.note(source, PLACING, "yes")
        self._crash_at("copy.placing")

    def _tell(self, rows: int) -> None:
        self._written += rows
        if self._progress is not None:
            self._progress(self._written)

"""SqliteDatabase: a journal's file while it is open here, with what vouches for it and tells who lives."""

from __future__ import annotations

import ctypes
import logging
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from payments_async.journal._engine._tally import Tally
from payments_async.journal._examination import IntegrityCheck
from payments_async.journal._faults import (
    JournalCorrupt,
    JournalError,
    JournalReadOnly,
    JournalUnavailable,
    NotAJournal,
    PlaceTaken,
)
from payments_async.journal._machine import _sqlite_faults
from payments_async.journal._machine._files import mount_of, size_of
from payments_async.journal._machine._memory import MachineState, StateFolder
from payments_async.journal._sqlite import _opening
from payments_async.journal._sqlite._identity import FileIdentity, Liveness
from payments_async.journal._statements import _changes
from payments_async.journal._statements._database import Connection, Gathered, Unforeseen
from payments_async.journal._statements._entries import Commit
from payments_async.journal._statements._moving import TableShape, check_here, facts_of, write_facts
from payments_async.journal._versions import Migration, Step, check_up_to_date, migration

_log = logging.getLogger("payments_async.journal")

_FAR = (
    *("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "davfs"),
    *("fuse.bindfs", "fuse.sshfs", "fuse.gluster", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "fuse.davfs"),
)
_LITTLE = 1 << 28  # bytes free, below which the next batch may not fit
_LONG = 1 << 28  # bytes of a log that nobody has brought into the file


class SqliteDatabase:
    """The file of one journal in one process.

    Args:
        path: As its user calls it.
        state_folder: Where it is remembered outside of its own folder; ``None`` for nowhere.
        busy_timeout: Seconds to wait for another process.
        clock: Unix seconds: the machine's, the same for every process on the file.
        steps: What this version of the package knows of the tables.

    Attributes:
        place: The file, as SQLite finds it, for what lies beside it.
        is_new: Opening it has made it.
    """

    Error: type[Exception] = sqlite3.Error

    within = 0.0
    takes_arrays = False

    def __init__(
        self,
        path: Path,
        *,
        state_folder: str | Path | StateFolder | None,
        busy_timeout: float,
        clock: Callable[[], float],
        steps: Sequence[Step] = _opening.STEPS,
    ) -> None:
        self._path = path
        self._steps = steps
        self._state_folder = state_folder
        self._busy_timeout = busy_timeout
        self.now = clock
        self.place = Path(os.path.realpath(path))
        self.is_new = False
        self._schema: int | None = None  # the number of the tables' definitions that were looked at
        self._data: int | None = None  # ... and of all that other connections have written
        self.seen_of_others = 0
        self.commits = Tally()
        self._version = 0
        self._epoch = FileIdentity(self.place, self, named=path, clock=clock, steps=steps)
        self._liveness = Liveness(self.place)

    @property
    def journal_id(self) -> str:
        """Whose identity the file has."""
        return self._epoch.journal_id

    @property
    def memory(self) -> MachineState | None:
        """What remembers it outside of its folder, while it is open."""
        return self._epoch.memory

    @property
    def unseen_at(self) -> float | None:
        """Unix seconds since when a machine has it that had not seen it before."""
        return self._epoch.unseen_at

    @property
    def holder(self) -> str:
        """Name of this opening."""
        return self._liveness.holder

    @property
    def named(self) -> str:
        """As its user calls it."""
        return str(self._path)

    @property
    def address(self) -> str:
        """The whole path."""
        return str(self.place)

    def exists(self) -> bool:
        """Whether there is a file."""
        return self.place.exists()

    def open(self, *, gives_back: bool = False) -> Connection:
        """Open the file, made where there is none, and find out whether it is the one it was."""
        memory: MachineState | None = None
        connection: sqlite3.Connection | None = None
        try:
            memory = self.recall()
            self.is_new = self._make(memory)
            self._epoch.check_unmixed()
            _opening.check_whole(self.place, str(self._path), busy_timeout=self._busy_timeout)
            connection = _opening.open_writer(self.place, busy_timeout=self._busy_timeout)
            self._data = None
            try:
                check_here(_facts_in(connection), str(self._path))
                self._check_unchanged(connection)
                _opening.migrate(connection, steps=self._steps)
            except NotAJournal:
                self._epoch.check_absent(memory)  # what was there says more
                raise
            self._epoch.begin(connection, memory)
            self._version = _opening.version_of(connection)
            self._warn()
        except Exception as error:
            if connection is not None:
                connection.close()
            self._epoch.close()
            if memory is not None:
                memory.close()
            if isinstance(error, OSError):
                raise JournalUnavailable(f"{self._path} cannot be opened ({error.strerror})") from error
            raise
        return connection

    def _warn(self) -> None:
        """Say so where another machine may have the file as well: its locks and what it shares in memory end there."""
        where = file_system(self.place)
        if where.is_wrong:
            facts = {"journal": self.named, "file_system": where.found, "remedy": where.remedy}
            _log.warning("the journal %s is on %s: %s", self.named, where.found, where.remedy, extra=facts)

    def open_reader(self) -> Connection:
        """A connection that only reads."""
        self._epoch.check_unmixed()
        return _opening.open_reader(self.place, busy_timeout=self._busy_timeout)

    def wait_for_end(self) -> None:
        """All has ended."""

    def give_back(self, _: Connection, /) -> bool:
        """Each file has its own."""
        return False

    def is_lost(self, _: Connection, /) -> bool:
        """A file is not."""
        return False

    def end(self, connection: Connection, /) -> None:
        """Let the file alone be the journal, if nobody else has it open."""
        if self._epoch.leaves_open() or self._is_overwritten(connection):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # nor does the end of the process close it
            return
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout = 0")  # whoever reads or writes meanwhile is not waited for
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with self._epoch.leaving():
            connection.close()

    def _is_overwritten(self, connection: Connection) -> bool:
        """Whether a backup was put over the file meanwhile: our log would make a mixture of it."""
        try:
            return _opening.is_older(self.place, connection, busy_timeout=self._busy_timeout)
        except sqlite3.Error:
            return False
        except MemoryError:  # it may be: what is in the log stays there
            return True

    def close(self) -> None:
        """Live no more, and close what vouches for the file."""
        self._liveness.end()
        self._epoch.close()

    def is_changed_by_others(self, connection: Connection, /) -> bool:
        """Whether any other connection has committed since this was asked."""
        before, self._version = self._version, _opening.version_of(connection)
        return self._version != before

    def begin(self, connection: Connection, /) -> float:
        """Begin to write, when nobody else does; Unix seconds since then."""
        self._epoch.save_log(connection)
        connection.execute("BEGIN IMMEDIATE")
        self._check_unchanged(connection)
        return self.now()

    def _check_unchanged(self, connection: Connection) -> None:
        """Raise ``JournalUnavailable`` where triggers of another program may drop or change what is written."""
        data = _opening.version_of(connection)
        if data == self._data:
            return  # no other connection has written anything
        (schema,) = connection.execute("PRAGMA schema_version").fetchone()
        if schema != self._schema:
            if found := _opening.changers(connection):
                raise JournalUnavailable(
                    f"{self._path}: the {found} of another program may drop or change rows: drop it"
                )
            self._schema = schema
        self._data, self.seen_of_others = data, self.seen_of_others + 1

    def gathering(self, connection: Connection, /) -> None:
        """A statement costs no journey here."""

    def perform(self, commit: Commit, gathered: Gathered, /) -> Callable[[], None] | None:
        """Nothing is gathered here."""
        raise Unforeseen

    def commit(self, connection: Connection, /) -> None:
        """Commit: ``sqlite3.Connection.commit`` passes over a transaction that SQLite has undone by itself."""
        connection.execute("COMMIT")

    def begin_changes(self, connection: Connection, /) -> None:
        """Make the trigger that writes changes, unless it is there."""
        connection.execute(_opening.WRITES_CHANGES)

    def seal(self, commit: Commit, /) -> Callable[[], None] | None:
        """Count a commit that moved an order. Raises ``JournalBehind``."""
        return self._epoch.seal(commit)

    def enter_quarantine(self, connection: Connection, /) -> None:
        """A copy has gone on."""
        self._epoch.enter_quarantine(connection)

    def start_heartbeat(self) -> None:
        """Hold a lock as long as the journal is open here."""
        self._liveness.begin()

    @asynccontextmanager
    async def dead(self) -> AsyncIterator[Sequence[str]]:
        """The holders that died without an end."""
        with self._liveness.dead() as dead:
            yield dead

    async def wait_for_liveness(self) -> None:
        """The system tells of them at once."""

    def is_of_the_disk(self, error: Exception, /) -> bool:
        """Whether the database is in trouble."""
        return _sqlite_faults.is_of_the_disk(error)

    def is_no_text(self, error: Exception, /) -> bool:
        """Whether what is stored as a text is none: Python says so, whose errors have no code of SQLite's."""
        return isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", None) is None

    def translated(self, error: Exception, /) -> JournalError:
        """The error of the journal that says the same, and of which file."""
        return _sqlite_faults.translated(error, self._path)

    def _make(self, memory: MachineState | None) -> bool:
        """Make the journal where there is none; tells whether that was done."""
        if self.place.is_file() and not size_of(self.place):
            self._epoch.check_absent(memory)
            raise NotAJournal(f"{self._path} is empty")
        if self.place.exists():
            return False
        self._epoch.check_absent(memory)
        return _opening.make(self.place, remembers=self._state_folder is not None, steps=self._steps)

    # bringing it up to date, and to another place

    def migration(self) -> Migration:
        """What bringing the tables up to date would do; opening the file does it by itself."""
        with self._alone() as connection:
            todo = migration(_opening.version_in(connection), self._steps)
            return todo if todo.steps else attrs.evolve(todo, steps=_changes.mends(connection))

    def migrate(self) -> Migration:
        """Do it; opening the file does so by itself."""
        with self._alone() as connection:
            check_here(_facts_in(connection), str(self._path))
            done = _opening.migrate(connection, steps=self._steps)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                mends = _changes.mends(connection)
                _changes.write_unwritten(connection, self.now())
            return attrs.evolve(done, steps=(*done.steps, *mends))

    def recall(self) -> MachineState | None:
        """What this machine remembers."""
        return MachineState.opened(self._state_folder, busy_timeout=self._busy_timeout)

    def facts(self) -> dict[str, str]:
        """What the journal says of itself; nothing where there is no file."""
        if not self.exists():
            return {}
        with self._alone() as connection:
            return _facts_in(connection)

    def tables(self, connection: Connection, /) -> dict[str, TableShape]:
        """Its tables."""
        return _opening.tables_of(connection)

    def open_examiner(self) -> Connection:
        """A connection that only reads. Raises ``NotAJournal`` where there is no file."""
        if not self.exists():
            raise NotAJournal(f"there is no file {self._path}")
        connection = _opening.open_examiner(self.place, busy_timeout=self._busy_timeout)
        try:
            version = _opening.version_in(connection)
            if not version.number:
                raise NotAJournal(f"{self._path}: the file is empty")
            check_up_to_date(version, self._steps, self.named)
            if version.number == len(self._steps):
                _opening.check_shape(connection, self._steps)
        except Exception:
            connection.close()
            raise
        return connection

    def circumstances(self, connection: Connection, /) -> tuple[IntegrityCheck, ...]:
        """What the file relies on."""
        return circumstances(self.place, connection, self._state_folder)

    def storable(self, row: Sequence[Any], /) -> list[Any]:
        """A row as it is: a file holds everything."""
        return list(row)

    def make_read_only(self, connection: Connection, words: str, /) -> None:
        """Have whatever writes a row fail."""
        _opening.seal(connection, words)

    def make_writable(self, connection: Connection, /) -> None:
        """Take that back."""
        _opening.unseal(connection)

    @contextmanager
    def retired(self) -> Iterator[Connection]:
        """A connection to a file that is sealed, which nobody else can write meanwhile."""
        with self._alone() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    def note(self, connection: Connection, key: str, value: str, /) -> None:
        """Commit it, and begin again."""
        write_facts(connection, {key: value})
        self.commit(connection)
        self.begin(connection)

    def check_free(self) -> None:
        """Whether there can be a file. Raises ``PlaceTaken``, ``JournalLost`` or ``JournalReadOnly``."""
        if self.place.exists():
            raise PlaceTaken(f"{self._path} is there already")
        if not os.access(self.place.parent, os.W_OK | os.X_OK):
            raise JournalReadOnly(f"{self._path} cannot be made")
        memory = self.recall()
        try:
            self._epoch.check_absent(memory)
        finally:
            self._epoch.close()

    def make_whole(self, fill: Callable[[Connection], dict[str, str]], *, placing: Callable[[], None]) -> None:
        """Make a file whose rows come from elsewhere: under another name, until all is there."""
        self.check_free()

        def filled(connection: Connection) -> dict[str, str]:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_opening.WRITES_CHANGES)
            facts = fill(connection)
            write_facts(connection, facts)
            self.commit(connection)
            return facts

        _opening.make_filled(self.place, filled, placing=placing, steps=self._steps)

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """The file as it is, for a moment."""
        if not self.exists():
            raise NotAJournal(f"there is no file {self._path}")
        _opening.check_whole(self.place, str(self._path), busy_timeout=self._busy_timeout)
        connection = _opening.open_writer(self.place, busy_timeout=self._busy_timeout)
        try:
            yield connection
        except sqlite3.Error as error:
            raise self.translated(error) from error
        finally:
            connection.close()


def _facts_in(connection: sqlite3.Connection) -> dict[str, str]:
    """What a journal says of itself; nothing where there are no tables yet. Raises ``NotAJournal``."""
    return facts_of(connection) if _opening.version_in(connection).number else {}


def circumstances(
    path: Path, connection: Connection, state_folder: str | Path | StateFolder | None
) -> tuple[IntegrityCheck, ...]:
    """What was found of each."""
    return (
        _integrity(connection),
        _write_ahead_log(path, connection),
        _changers(connection),
        _permissions(path),
        file_system(path),
        _space(path),
        _memory(state_folder),
    )


def _integrity(connection: Connection) -> IntegrityCheck:
    found = "; ".join(str(words) for (words,) in connection.execute("PRAGMA integrity_check(5)").fetchall())
    if found == "ok":
        return IntegrityCheck(name="file", found="SQLite has read all of it, and it is whole")
    return IntegrityCheck(name="file", found=f"damaged: {found}", is_wrong=True, remedy=JournalCorrupt.remedy)


def _write_ahead_log(path: Path, connection: Connection) -> IntegrityCheck:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        remedy = "open it with this package, which turns on the log"
        return IntegrityCheck(name="log", found=f"journal_mode is {mode}", is_wrong=True, remedy=remedy)
    log = path.with_name(f"{path.name}-wal")
    if (size := size_of(log)) > _LONG:
        remedy = "a program reads for very long, or stands still: find and end it, and the log is brought into the file"
        return IntegrityCheck(name="log", found=f"{size:,} bytes beside the file", remedy=remedy)
    return IntegrityCheck(name="log", found=f"write-ahead, {size:,} bytes beside the file")


def _changers(connection: Connection) -> IntegrityCheck:
    """Whether another program may drop or change what is written."""
    if found := _opening.changers(connection):
        remedy = "nothing is written while it may drop or change rows: drop it"
        return IntegrityCheck(name="other programs", found=found, is_wrong=True, remedy=remedy)
    return IntegrityCheck(name="other programs", found="have no trigger in it")


def _permissions(path: Path) -> IntegrityCheck:
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        remedy = f"it names people: chmod 600 {path}"
        return IntegrityCheck(name="permissions", found=f"{mode:o}: not for its owner alone", remedy=remedy)
    return IntegrityCheck(name="permissions", found=f"{mode:o}")


def file_system(path: Path) -> IntegrityCheck:
    """Of which kind it is, and whether it is one that several machines may have in common."""
    mount = mount_of(path)
    if mount is None:
        return IntegrityCheck(name="file system", found="not told by this system")
    where, kind = mount
    if kind.startswith(_FAR):
        remedy = "a lock there may be none, and what is committed may be lost: put it on a disk of this machine"
        return IntegrityCheck(name="file system", found=f"{kind} at {where}", is_wrong=True, remedy=remedy)
    return IntegrityCheck(name="file system", found=f"{kind} at {where}")


def _space(path: Path) -> IntegrityCheck:
    if not hasattr(os, "statvfs"):
        return IntegrityCheck(name="disk", found="not told by this system")
    about = os.statvfs(path.parent)
    free = about.f_bavail * about.f_frsize
    remedy = "free some, before a commit finds none" if free < _LITTLE else ""
    return IntegrityCheck(name="disk", found=f"{free:,} bytes free", remedy=remedy)


def _memory(state_folder: str | Path | StateFolder | None) -> IntegrityCheck:
    """Whether this machine remembers the journal outside of its own folder."""
    if state_folder is None:
        remedy = "a restored or second journal is noticed less surely: use the user's state folder"
        return IntegrityCheck(name="state folder", found="none is wanted", remedy=remedy)
    try:
        folder = state_folder.path() if isinstance(state_folder, StateFolder) else Path(state_folder)
    except FileNotFoundError as error:
        return IntegrityCheck(name="state folder", found=str(error), remedy="give this user a home that lasts")
    if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        return IntegrityCheck(name="state folder", found=f"{folder} cannot be written", remedy="let this user write it")
    return IntegrityCheck(name="state folder", found=str(folder))

"""Whether a file is the one it was, and whether the process that took a lease still runs."""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from payments_async.journal._engine._quarantine import LAST, UNSEEN, are_rows_older, quarantine_all, unseen_at
from payments_async.journal._faults import JournalBehind, JournalClosed, JournalLost, JournalUnavailable
from payments_async.journal._machine._files import birth_of, inode_of, lock_file
from payments_async.journal._machine._memory import CommitCounter, MachineState
from payments_async.journal._sqlite._opening import ARRIVED, FILED, STEPS, bring_in, files_of, is_older
from payments_async.journal._statements._approvals import rule as rule_in
from payments_async.journal._statements._database import Connection, Database
from payments_async.journal._statements._entries import Commit
from payments_async.journal._statements._moving import DOUBTED
from payments_async.journal._versions import Step, Version, check_usable

_TRIES = 8
_COUNTED = f"""SELECT CAST(value AS INTEGER), (SELECT o.value FROM meta o WHERE o.key = '{LAST}'),
    coalesce((SELECT o.value FROM meta o WHERE o.key = 'oldest'), 1) FROM meta WHERE key = 'commits'"""  # noqa: S608
# RETURNING would take a table of its own for what it tells, as IN does: four times the work
_COUNT = f"INSERT OR REPLACE INTO meta (key, value) VALUES ('commits', ?), ('{LAST}', ?)"  # noqa: S608
_OFTEN = 500  # commits after which the log is brought into the file, and the next one tells how full that is


class _OpenFile(NamedTuple):
    """A file as it was when it was opened: by its number, or by its birth where numbers do not last."""

    path: str  # as the system is asked for it with each commit: a Path would be made a text each time
    inode: str
    birth: str

    @classmethod
    def at(cls, path: Path) -> _OpenFile:
        """The one that is there now."""
        return cls(str(path), inode_of(path), birth_of(path) or "")

    @property
    def is_there(self) -> bool:
        """Whether it still is what is found there. Raises ``OSError`` where nobody can tell, as of a closed folder."""
        try:
            return inode_of(self.path) == self.inode or "" != (birth_of(Path(self.path)) or "") == self.birth
        except (FileNotFoundError, NotADirectoryError):
            return False


def _written_at(path: str) -> tuple[int, int] | None:
    """When a file was written to: a tool can set back the second time alone. ``None`` where that is not told."""
    try:
        about = os.stat(path)  # noqa: PTH116 - as in `inode_of`
    except OSError:
        return None
    return about.st_ctime_ns, about.st_mtime_ns


class _OpenFiles:
    """A journal's file, its log, and its index, as one opening of the journal has them open.

    Attributes:
        are_displaced: They were found to be, when they were looked at last.
    """

    def __init__(self, path: Path, named: Path) -> None:
        self._named = named
        self._files = [_OpenFile.at(file) for file in files_of(path)]
        self._written = _written_at(self._files[0].path)
        self.are_displaced = False

    def check(self) -> None:
        """Whether each still is at its place. Raises ``JournalUnavailable``."""
        self.are_displaced = True
        for file in self._files:
            try:
                is_there = file.is_there
            except OSError as error:
                raise JournalUnavailable(
                    f"{self._named}: whether {Path(file.path).name} still is in its place cannot be seen "
                    f"({error.strerror})"
                ) from error
            if not is_there:
                raise JournalUnavailable(
                    f"{self._named}: {Path(file.path).name} was moved, deleted or replaced while it is open; put it "
                    "back, or end whatever uses the journal and begin again"
                )
        self.are_displaced = False

    def check_content(self, connection: Connection) -> None:
        """Whether a backup was put over the file itself. Raises ``JournalUnavailable``.

        SQLite goes on with the pages that it has read before, as far as it still has them, and takes others from the
        backup. Besides a checkpoint nothing writes to the file, so it is read only if it was written to.
        """
        path = self._files[0].path
        written = _written_at(path)
        if written == self._written:
            return
        if is_older(Path(path), connection, busy_timeout=0.0):
            raise JournalUnavailable(
                f"{self._named}: a backup was written over the file while it is open; end all programs that use the "
                "journal and begin again"
            )
        self._written = written

    @property
    def are_replaced(self) -> bool:
        """Whether others lie in their places, or nobody can tell: somebody goes on with those."""
        try:
            return any(not file.is_there and Path(file.path).exists() for file in self._files)
        except OSError:
            return True

    def have(self, path: Path) -> bool:
        """Whether the journal's file is the one that is at a path now, or nobody can tell."""
        if str(path) != self._files[0].path:
            return False
        try:
            return self._files[0].is_there
        except OSError:
            return True


class FileIdentity:
    """Tells a file that was copied or restored from one that was not.

    A copy has another inode, and a file that got the inode of a deleted one was born later. A backup that was written
    over the file counts fewer commits than an anchor: the mark, a small file beside the journal, or the one in the
    state folder, which no backup of the journal's folder brings back. A mark that is missing, though commits were
    made, is suspicious where nothing else vouches for the file. A file that is renamed stays itself, and so does one
    that another user opens. Only commits that moved an order count, and the one that seals a moved journal: one that
    lacks a notification forgets no permit.

    Args:
        path: Of the journal, without symbolic links; the mark lies beside it.
        database: Which is in it.
        named: As its user calls it, for the words of an error.
        clock: Unix seconds.
        steps: What this version of the package knows of the tables.

    Attributes:
        journal_id: Whose identity the file has; a copy has the same.
        memory: What remembers it outside of its folder, if anything does.
        unseen_at: Unix seconds since when a machine has it that had not seen it before; ``None`` where none is known.
    """

    def __init__(
        self,
        path: Path,
        database: Database,
        *,
        named: Path | None = None,
        clock: Callable[[], float] = time.time,
        steps: Sequence[Step] = STEPS,
    ) -> None:
        self._path = path
        self._database = database
        self._named = path if named is None else named
        self._clock = clock
        self._steps = steps
        self._anchors: list[CommitCounter] = []
        self._highest = 0  # as the anchors count, which may be put back together with the file
        self._files: _OpenFiles | None = None
        self._filed: int | None = None  # what the next commit that counts says of the file
        self.journal_id = ""
        self.memory: MachineState | None = None
        self.unseen_at: float | None = None

    def check_absent(self, memory: MachineState | None) -> None:
        """Whether a journal may be made here.

        Raises:
            JournalLost: There was one with orders.
        """
        self._remember_by(memory)
        self._marked()

    def begin(self, connection: Connection, memory: MachineState | None) -> None:
        """Quarantine every unfinished chunk if the file is not the one it was.

        Raises:
            JournalLost: It is another journal than the one that was here.
            OSError: The mark cannot be written.
        """
        filed = bring_in(connection)
        connection.execute("BEGIN IMMEDIATE")  # from now on nobody commits what an anchor then tells of
        known = dict(connection.execute("SELECT key, value FROM meta"))
        self.journal_id, commits = known["journal_id"], int(known["commits"])
        self._remember_by(memory)
        if memory is not None and known["remembers"] != "yes":
            memory.close()
            self.memory = None
        marked, anchored = self._marked(), self._anchored()
        self.unseen_at = unseen_at(connection, known, self._clock(), is_new_here=anchored is None)
        inode, birth = inode_of(self._path), birth_of(self._path) or ""
        is_another = known["epoch"] != inode or "" != known["birth"] != birth != ""
        is_unmarked = commits > 0 and marked is None and (anchored is None or not self._is_no_loss(self.journal_id))
        is_unmarked = is_unmarked and ARRIVED not in known
        highest, last = max(marked or 0, anchored or 0), known.get(LAST, "")
        is_behind = commits < highest or are_rows_older(connection, last)
        if is_another or is_unmarked or is_behind or DOUBTED in known:
            commit = Commit(connection, self._database, self._clock())
            quarantine_all(commit, is_behind=is_behind)
            commits, last = max(commits, highest), commit.last or ""
        facts = [("epoch", inode), ("birth", birth), ("commits", str(commits)), (LAST, last)]
        facts += [] if self.unseen_at is None else [(UNSEEN, str(self.unseen_at))]
        facts += [] if filed is None else [(FILED, str(filed))]
        connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", facts)
        connection.execute("DELETE FROM meta WHERE key IN (?, ?)", (ARRIVED, DOUBTED))
        rule = rule_in(connection)
        self._database.commit(connection)
        self._files = _OpenFiles(self._path, self._named)
        with _COMING_AND_GOING:
            _OPEN_HERE.append(self._files)
        self._follow(commits)
        if self.memory is not None:
            self.memory.learn_rule(self.journal_id, rule)

    def seal(self, commit: Commit) -> Callable[[], None] | None:
        """Count a commit that moved an order, or is to be counted; what is returned is to be called once it is on disk.

        Raises:
            JournalBehind: A copy of the file has made commits that this one does not hold.
            JournalUnavailable: It was deleted or replaced, or its log was: what is written is gone when it is closed.
                Or a backup was written over it.
            JournalTooNew: A newer version of this package has changed the tables beyond what this one may use.
        """
        if self._files is not None:
            self._files.check()
            self._files.check_content(commit.connection)
        if not (commit.moves or commit.is_counted or commit.last):
            return partial(_checkpoint, commit.connection) if commit.is_milestone else None
        before, last, oldest = commit.finds_as_before(_COUNTED)
        count, last = before + 1, commit.last or last or ""
        commit.connection.execute(_COUNT, (str(count), last))
        commit.will_find((count, last, oldest), _COUNTED, ())
        filed, self._filed = self._filed, None
        if filed is not None:
            commit.connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (FILED, str(filed)))
        if int(oldest) > len(self._steps):  # a newer version has taken away what this one uses, since it was opened
            check_usable(Version(int(oldest), int(oldest)), self._steps)
        if max(self._counts()) >= count:
            raise JournalBehind(f"{self._named}: a copy of this journal has gone on, and knows what this one does not")
        return lambda: self._committed(commit, count)

    def check_unmixed(self) -> None:
        """Whether the file can be opened by a further connection. Raises ``JournalUnavailable``.

        SQLite shares what it knows of a log among all connections of a process to one file. So while one has it open
        whose log was deleted, another would look in another log for the pages of the first. A forked child takes over
        what its parent knew, and not the locks: the next process that closes the file would delete the child's log.
        """
        with _COMING_AND_GOING:
            if any(files.have(self._path) for files in _OPEN_IN_PARENT):
                raise JournalClosed.by_fork(self._named)
            for files in _OPEN_HERE:
                if files.have(self._path):
                    files.check()

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """While our own connection is closed, which deletes the log: no other sees the file without it meanwhile.

        Two that close at once would each leave the log to the other.
        """
        with _COMING_AND_GOING:
            yield
            self._leave()

    def _leave(self) -> None:
        files, self._files = self._files, None
        if files in _OPEN_HERE:
            _OPEN_HERE.remove(files)

    def save_log(self, connection: Connection) -> None:
        """Bring into the file what is in a log that was deleted, unless somebody has begun another one."""
        if self._files is not None and self._files.are_displaced and not self._files.are_replaced:
            _checkpoint(connection)

    def leaves_open(self) -> bool:
        """Whether the file is never to be closed any more, for somebody goes on with it as it was without our log.

        That must not come into it now: it would be a mixture. SQLite brings it in whenever a connection is closed.
        """
        if self._files is None or not self._files.are_replaced:
            return False
        self._files = None  # what was found out about them stays known
        return True

    def enter_quarantine(self, connection: Connection) -> None:
        """A copy has gone on: quarantine every unfinished chunk, and count on from where the copy is."""
        commit = Commit(connection, self._database, self._database.begin(connection))
        quarantine_all(commit, is_behind=True)
        highest = max(self._counts())
        connection.execute("UPDATE meta SET value = max(CAST(value AS INTEGER), ?) WHERE key = 'commits'", (highest,))
        connection.execute("UPDATE meta SET value = ? WHERE key = ?", (commit.last or "", LAST))
        self._database.commit(connection)

    def close(self) -> None:
        """Close the mark, the anchor and the memory."""
        for anchor in self._anchors:
            anchor.close()
        self._anchors, self.journal_id = [], ""
        with _COMING_AND_GOING:
            self._leave()
        memory, self.memory = self.memory, None
        if memory is not None:
            memory.close()

    @property
    def _mark(self) -> Path:
        return self._path.with_name(f"{self._path.name}-mark")

    def _remember_by(self, memory: MachineState | None) -> None:
        """Use a memory from now on. Raises ``JournalLost`` where it knows of another journal in this place."""
        self.memory = memory
        there = None if memory is None else memory.lost_at(self._path, but=self.journal_id)
        if there is not None:
            raise JournalLost(f"{self._named}: {there} was here, and is not any more")

    def _marked(self) -> int | None:
        """The count of the mark beside the file, if it is ours. Raises ``JournalLost`` if it is that of a lost one."""
        marked = CommitCounter(self._mark).read()
        if marked is None:
            return None
        count, journal_id = marked
        if journal_id == self.journal_id:
            return count
        if count and not self._is_no_loss(journal_id):
            raise JournalLost(
                f"{self._named}: a journal with orders was here, as {self._mark.name} remembers, and is not any more"
            )
        return None

    def _anchored(self) -> int | None:
        """The count of the anchor in the state folder."""
        anchored = None if self.memory is None else self.memory.anchor(self.journal_id).read()
        return None if anchored is None else anchored[0]

    def _is_no_loss(self, journal_id: str) -> bool:
        """Whether nothing is lost with a journal: it was seen in another place since, or has sent nothing."""
        if self.memory is None:
            return False
        place = self.memory.registry.path_of(journal_id)
        return (place is not None and place != str(self._path)) or self.memory.registry.has_sent_nothing(journal_id)

    def _follow(self, commits: int) -> None:
        """Open the mark and the anchor, to count the commits in them."""
        self._highest = commits
        mark = CommitCounter(self._mark)
        mark.open(self.journal_id, commits)
        self._anchors.append(mark)
        if self.memory is None:
            return
        anchor = self.memory.followed(self.journal_id, self._path, commits=commits, now=self._clock())
        if anchor is None:
            self.memory = None
        else:
            self._anchors.append(anchor)

    def _counts(self) -> Sequence[int]:
        """How many commits were heard of."""
        return [self._highest, *[anchor.count() for anchor in self._anchors]]

    def _committed(self, commit: Commit, count: int) -> None:
        """Let the mark and the anchor follow a commit that is on disk."""
        self._highest = count
        for anchor in self._anchors:
            anchor.follow(count)
        if commit.is_milestone or not count % _OFTEN:
            with suppress(sqlite3.Error):  # it is committed, whether in the file or in the log beside it
                self._filed = bring_in(commit.connection)


def _checkpoint(connection: Connection) -> None:
    """Bring what is in the log into the file itself."""
    with suppress(sqlite3.Error):  # it is committed, whether in the file or in the log beside it
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


class _Dead(NamedTuple):
    """One that died without an end."""

    holder: str
    lock: int
    file: Path


class Liveness:
    """A file beside the journal, locked as long as the journal is open here; the system unlocks it when we die.

    It says that a holder is dead, and never that a lease is good: that is the journal's own clock's to say. Where files
    cannot be locked there is no holder at all, and leases are taken over when their time is over.

    Args:
        path: Of the journal.
        flock: Locks an open file for whoever opened it, and raises ``OSError`` at once where it cannot.

    Attributes:
        holder: Name of this opening of the journal; empty where there is no lock.
    """

    def __init__(self, path: Path, *, flock: Callable[[int], None] = lock_file) -> None:
        self._flock = flock
        self._folder = path.parent
        self._prefix = f"{path.name}-alive-"
        self._lock: int | None = None
        self.holder = ""

    def begin(self) -> None:
        """Be alive from now on, under a new name: drawn here, so that processes forked before have one each."""
        for _ in range(_TRIES):
            holder = secrets.token_hex(8)
            file = self._folder / f"{self._prefix}{holder}"
            try:
                lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except OSError:
                return
            try:
                self._flock(lock)
            except BlockingIOError:  # somebody looked at it between two steps of ours, and took it for a dead one's
                os.close(lock)
                continue
            except OSError:  # a file system without locks
                os.close(lock)
                file.unlink(missing_ok=True)
                return
            if _is_at(lock, file):
                self._lock, self.holder = lock, holder
                _ALIVE.add(self)
                return
            os.close(lock)

    def end(self) -> None:
        """Hold nothing any more."""
        lock, self._lock = self._lock, None
        if lock is not None:
            _ALIVE.discard(self)
            with suppress(OSError):
                (self._folder / f"{self._prefix}{self.holder}").unlink()
            os.close(lock)
        self.holder = ""

    @contextmanager
    def dead(self) -> Iterator[list[str]]:
        """The holders that died without an end. Once the block has ended well, nobody is told of them again."""
        found = self._find()
        try:
            yield [dead.holder for dead in found]
            for dead in found:
                with suppress(OSError):
                    dead.file.unlink()
        finally:
            for dead in found:
                os.close(dead.lock)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and must not live on with us."""
        lock, self._lock, self.holder = self._lock, None, ""
        if lock is not None:
            os.close(lock)  # the parent's own descriptor keeps it locked

    def _find(self) -> list[_Dead]:
        """The holders that are dead, with their files locked by us."""
        found: list[_Dead] = []
        if self._lock is None:
            return found
        with suppress(OSError), os.scandir(self._folder) as files:
            for entry in files:
                holder = entry.name.removeprefix(self._prefix)
                if holder in (entry.name, self.holder):
                    continue
                with suppress(OSError):
                    lock = os.open(entry.path, os.O_RDWR)
                    try:
                        self._flock(lock)
                        found.append(_Dead(holder, lock, Path(entry.path)))
                    except OSError:
                        os.close(lock)
        return found


def _is_at(lock: int, file: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(lock), file.stat())
    return False


def _forget_all() -> None:
    global _COMING_AND_GOING  # noqa: PLW0603 - another thread of the parent may have had it
    _COMING_AND_GOING = threading.Lock()
    _OPEN_IN_PARENT.extend(_OPEN_HERE)
    _OPEN_HERE.clear()
    for liveness in list(_ALIVE):
        liveness.forget()
    _ALIVE.clear()


_OPEN_HERE: list[_OpenFiles] = []  # in this process
_OPEN_IN_PARENT: list[_OpenFiles] = []  # when this process was forked
_COMING_AND_GOING = threading.Lock()
_ALIVE: WeakSet[Liveness] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)

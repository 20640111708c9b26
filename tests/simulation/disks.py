"""The disk of a simulated machine: full, failing, or without what was not synced when its power was cut."""

from __future__ import annotations

import errno
import io
import os
import random
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from payments_async.journal._machine import _memory
from payments_async.testing._simulation.loops import SimulatedLoop
from payments_async.testing._simulation.machine import MACHINE
from payments_async.testing._simulation.processes import CURRENT, Process

_WORDS = {
    sqlite3.SQLITE_FULL: ("SQLITE_FULL", "database or disk is full"),
    sqlite3.SQLITE_IOERR: ("SQLITE_IOERR", "disk I/O error"),
}
_NUMBERS = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}
_WRITES = ("INSERT", "UPDATE", "DELETE", "CREATE", "COMMIT", "WITH", "REPLACE")
_SYNCS = ("PRAGMA WAL_CHECKPOINT", "PRAGMA JOURNAL_MODE")
_FILLS = ("write", "pwrite", "posix_fallocate", "link", "mkdir", "rename", "replace")
_TOUCHES = ("fsync", "unlink", "ftruncate")
_VERSIONS = 4  # of a small file, from which a power cut chooses
_FULL = 2  # of PRAGMA synchronous
_open = os.open  # what looks from outside is not struck


class Disk:
    """One disk, on which everything in a folder lies.

    Only processes are struck, not what judges, copies or puts files back.

    Args:
        loop: Draws what happens.
        folder: What lies on it.

    Attributes:
        share: Of the reads and writes that fail now.
        code: SQLite's number of that failure: SQLITE_FULL, which lets reads pass, or SQLITE_IOERR.
        strikes: Reads and writes that failed.
    """

    def __init__(self, loop: SimulatedLoop, folder: Path) -> None:
        self.share = 0.0
        self.code = sqlite3.SQLITE_FULL
        self.strikes = 0
        self._chance: random.Random = loop.chance
        self._loop = loop
        self._folder = os.path.realpath(folder)
        self._synced: dict[str, tuple[bytes | None, ...]] = {}  # a database and its log, before a commit that may go
        self._versions: dict[str, list[bytes]] = {}  # small files as they were since they were synced
        self._entries: dict[str, None] = {}  # names that no sync of their folder has kept yet
        self._own_connections()
        self._own_files()

    def real(self, file: Any) -> str:
        """Where a file lies, which is open or has a name; a database may be named by a URI. Nothing here is a link."""
        name = f"/proc/self/fd/{file}" if isinstance(file, int) else os.fspath(file)
        if name.startswith("file:"):
            name = unquote(urlsplit(name).path)
        return name if name.startswith(f"{self._folder}/") else os.path.realpath(name)

    # --- trouble

    def strikes_now(self, path: str, *, fills: bool) -> bool:
        """Whether what is done to a path fails."""
        process = CURRENT.get()
        if not self.share or process is None or process.is_dead or not path.startswith(self._folder):
            return False
        if self.code == sqlite3.SQLITE_FULL and not fills:
            return False
        if self._chance.random() >= self.share:
            return False
        self.strikes += 1
        return True

    def failure(self) -> sqlite3.OperationalError:
        """As SQLite says it."""
        name, words = _WORDS[self.code]
        error = sqlite3.OperationalError(words)
        error.sqlite_errorcode, error.sqlite_errorname = self.code, name
        return error

    def _check(self, path: str, *, fills: bool) -> None:
        if self.strikes_now(path, fills=fills):
            number = _NUMBERS[self.code]
            raise OSError(number, os.strerror(number), path)

    # --- what was synced

    def before_commit(self, path: str, level: int) -> None:
        """A commit is about to be made, which a power cut may take back where the log is not synced with it."""
        if level >= _FULL:
            self.synced(path)
        elif path not in self._synced:
            self._synced[path] = _content_of(path)

    def synced(self, path: str) -> None:
        """All of a database is on the disk, with its name."""
        self._synced.pop(path, None)
        self._entries.pop(path, None)

    def written(self, path: str) -> None:
        """A small file is about to be written."""
        if path.startswith(self._folder):
            versions = self._versions.setdefault(path, [])
            with suppress(OSError):
                versions.append(_read(path))
            del versions[:-_VERSIONS]

    def cut_power(self, processes: Iterable[Process]) -> list[str]:
        """Kill all processes, and take away what was not synced, or some of it; tells what is gone."""
        everybody = list(processes)
        for process in everybody:
            process.kill()
        gone: list[str] = []
        with self.closed(everybody):
            for path, content in sorted(self._synced.items()):
                if self._chance.random() < 0.5:
                    gone.append(f"commits of {Path(path).name}")
                    put_back(path, content)
            for path, versions in sorted(self._versions.items()):
                if versions and self._chance.random() < 0.5 and Path(path).exists():
                    gone.append(f"writes to {Path(path).name[:12]}")
                    _write(path, self._chance.choice([*versions, b""]))
            for path in sorted(self._entries):
                if self._chance.random() < 0.5 and Path(path).is_file():
                    gone.append(f"the name {Path(path).name[:12]}")
                    Path(path).unlink()
        self._synced, self._versions, self._entries = {}, {}, {}
        MACHINE.boot += 1
        return gone

    def closed(self, dead: Iterable[Process]) -> _Closed:
        """While it lasts, no connection of these dead processes is open, and the files are as they were."""
        return _Closed(list(dead))

    def touch(self, path: Path, at: float) -> None:
        """A file was written at that moment of the machine's clock."""
        about = path.stat()
        MACHINE.touched[about.st_dev, about.st_ino] = int(at * 1e9)

    # --- what is replaced

    def _own_connections(self) -> None:
        disk, connect = self, sqlite3.connect

        class Failing(_Connection):
            _disk = disk

        def connected(database: Any, *args: Any, **options: Any) -> sqlite3.Connection:
            path = disk.real(database)
            if disk.strikes_now(path, fills=False):
                raise disk.failure()
            made: sqlite3.Connection = connect(database, *args, **({"factory": Failing} | options))
            return made

        sqlite3.connect = connected  # type: ignore[assignment]

    def _own_files(self) -> None:
        for name in (*_FILLS, *_TOUCHES):
            vars(os)[name] = self._checked(name, getattr(os, name))
        vars(os)["open"] = self._opened(os.open)
        vars(io)["open"] = self._read_by(io.open)
        disk = self

        class Small(io.FileIO):
            def write(self, data: Any, /) -> int:
                path = disk.real(self.name)
                disk._check(path, fills=True)
                disk.written(path)
                return super().write(data)

        vars(_memory)["FileIO"] = Small

    def _checked(self, name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **options: Any) -> Any:
            if CURRENT.get() is None:
                return does(*args, **options)
            path = self.real(args[1] if name in ("link", "rename", "replace") else args[0])
            self._check(path, fills=name in _FILLS)
            result = does(*args, **options)
            if name == "fsync":
                self._versions.pop(path, None)
                self._entries = {entry: None for entry in self._entries if path not in (entry, str(Path(entry).parent))}
            elif name in ("link", "rename", "replace") and path.startswith(self._folder):
                self._entries[path] = None
            return result

        return done

    def _opened(self, does: Callable[..., int]) -> Callable[..., int]:
        def done(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if CURRENT.get() is None or isinstance(path, int):
                return does(path, flags, *args, **options)
            place = self.real(path)
            is_new = bool(flags & os.O_CREAT) and not os.path.lexists(place)
            self._check(place, fills=is_new)
            number = does(path, flags, *args, **options)
            if is_new and place.startswith(self._folder):
                self._entries[place] = None
            return number

        return done

    def _read_by(self, does: Callable[..., Any]) -> Callable[..., Any]:
        def done(file: Any, *args: Any, **options: Any) -> Any:
            if self.share and not isinstance(file, int):
                self._check(self.real(file), fills=False)
            return does(file, *args, **options)

        return done


class _Kind(NamedTuple):
    """What a statement does to a disk.

    Attributes:
        level: Of ``PRAGMA synchronous``, where it sets that.
        is_followed: It does anything to a disk, or may.
    """

    is_write: bool
    is_commit: bool
    is_sync: bool
    level: int | None
    is_followed: bool


@cache
def _kind_of(sql: str) -> _Kind:
    words = sql.lstrip()[:40].upper()
    is_write, is_sync, level = words.startswith(_WRITES), words.startswith(_SYNCS), None
    if words.startswith("PRAGMA SYNCHRONOUS ="):
        level = 1 if "NORMAL" in words else 0 if "OFF" in words else _FULL
    return _Kind(is_write, words.startswith("COMMIT"), is_sync, level, is_write or is_sync or level is not None)


_execute, _executemany = sqlite3.Connection.execute, sqlite3.Connection.executemany


class _Connection(sqlite3.Connection):
    """A connection to a database on the disk."""

    _disk: Disk
    _level = _FULL

    def __init__(self, database: Any, *args: Any, **options: Any) -> None:
        self._place = self._disk.real(database)
        super().__init__(database, *args, **options)

    def execute(self, sql: str, /, *args: Any) -> Any:
        if self._disk.share or _kind_of(sql).is_followed:
            return self._done(_execute, sql, *args)
        return _execute(self, sql, *args)

    def executemany(self, sql: str, /, *args: Any) -> Any:
        return self._done(_executemany, sql, *args)

    def _done(self, does: Callable[..., Any], sql: str, *args: Any) -> Any:
        disk, kind = self._disk, _kind_of(sql)
        if disk.share and disk.strikes_now(self._place, fills=kind.is_write):
            drawn = disk._chance.random()
            if kind.is_commit and disk.code == sqlite3.SQLITE_IOERR and drawn < 0.34:
                self._commit_begins()
                does(self, sql, *args)  # it is durable, and its answer is lost
            elif drawn < 0.67 and self.in_transaction and kind.is_write:
                _execute(self, "ROLLBACK")  # as SQLite does by itself
            raise disk.failure()
        if kind.is_commit or (kind.is_write and not self.in_transaction):
            self._commit_begins()
        result = does(self, sql, *args)
        if kind.level is not None:
            self._level = kind.level
        elif kind.is_sync:
            disk.synced(self._place)
        return result

    def _commit_begins(self) -> None:
        if self._place.startswith(self._disk._folder):
            self._disk.before_commit(self._place, self._level)


class _Closed:
    """Connections of dead processes are closed, which would change the files; so these are put back as they were."""

    def __init__(self, dead: list[Process]) -> None:
        self._dead = dead

    def __enter__(self) -> None:
        connections = [one for process in self._dead for one in process.databases]
        paths = {one._place for one in connections if isinstance(one, _Connection) and one._place}
        content = {path: _content_of(path) for path in sorted(paths)}
        for process in self._dead:
            for one in process.databases:
                one.close()
            process.databases.clear()
        for path, held in content.items():
            put_back(path, held)

    def __exit__(self, *_: object) -> None:
        pass


def _read(path: str) -> bytes:
    number = _open(path, os.O_RDONLY)
    try:
        return os.pread(number, os.fstat(number).st_size, 0)
    finally:
        os.close(number)


def _content_of(path: str) -> tuple[bytes | None, ...]:
    """A database and its log, as they are."""
    return tuple(_read(f"{path}{end}") if Path(f"{path}{end}").exists() else None for end in ("", "-wal"))


def put_back(path: str, content: tuple[bytes | None, ...]) -> None:
    """Write a database and its log into the same file again; no process has it open."""
    for end, data in zip(("", "-wal"), content, strict=True):
        if data is None:
            Path(f"{path}{end}").unlink(missing_ok=True)
        elif Path(path).parent.exists():  # its folder may be lost as well
            _write(f"{path}{end}", data)
    Path(f"{path}-shm").unlink(missing_ok=True)


def _write(path: str, data: bytes) -> None:
    number = _open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(number, 0)
        os.pwrite(number, data, 0)
    finally:
        os.close(number)

"""What the operating system knows of a file: which one it is, when it came to be, where it lies, who has locked it."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

_MOUNTS = Path("/proc/self/mounts")
_AT_FDCWD, _STATX_BTIME = -100, 0x800
_SECONDS, _NANOSECONDS = 80, 88  # where the birth time lies in what statx(2) fills in


def inode_of(path: Path | str) -> str:
    """The number of a file; another one may get it once this one is deleted."""
    return str(os.stat(path).st_ino)  # noqa: PTH116 - a third of the time, several times in each commit


def size_of(path: Path) -> int:
    """Bytes in a file; 0 where there is none, as when another process has just closed a journal and its log went."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def birth_of(path: Path) -> str | None:
    """When a file came to be, to the nanosecond where that is known; ``None`` where the file system does not tell.

    A restored file that got the inode of the one before it was born later. Renaming, writing and a restart of the
    machine change nothing.
    """
    born = getattr(path.stat(), "st_birthtime", None)
    if born is not None:
        return str(born)
    return _statx(path) if sys.platform == "linux" else None


def _statx(path: Path) -> str | None:
    filled, statx = ctypes.create_string_buffer(256), _statx_of_the_system()
    if statx is None or statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, filled):
        return None
    if not int.from_bytes(filled.raw[:4], sys.byteorder) & _STATX_BTIME:
        return None
    seconds = int.from_bytes(filled.raw[_SECONDS : _SECONDS + 8], sys.byteorder, signed=True)
    nanoseconds = int.from_bytes(filled.raw[_NANOSECONDS : _NANOSECONDS + 4], sys.byteorder)
    return f"{seconds}.{nanoseconds:09}"


@cache
def _statx_of_the_system() -> Any:
    """``statx(2)``; ``None`` where the C library is too old for it."""
    try:
        return ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return None


def lock_file(number: int) -> None:
    """Lock an open file until its process ends. Raises ``OSError`` where another has, or where no file can be."""
    if sys.platform == "win32":
        raise OSError("no file is locked here until its process ends")
    from fcntl import LOCK_EX, LOCK_NB, flock

    flock(number, LOCK_EX | LOCK_NB)


def mount_of(path: Path) -> tuple[Path, str] | None:
    """Where the file system of a path begins, and of which kind it is; ``None`` where that is not told."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    mounts = [(where.replace("\\040", " "), kind) for _, where, kind, *_ in map(str.split, reversed(lines))]
    places = {str(place): place for place in (path, *path.parents)}
    above = [mount for mount in mounts if mount[0] in places]  # the last one at a place covers the others
    # there is none in a folder that was made the root of its processes
    where, kind = max(above, key=lambda mount: len(mount[0]), default=("", ""))
    return (places[where], kind) if above else None

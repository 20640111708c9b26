"""What a journal's file relies on: the file itself, its folder, its disk, and what this machine remembers of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from payments_async.journal._examination import IntegrityCheck
from payments_async.journal._machine._files import mount_of
from payments_async.journal._machine._memory import StateFolder
from payments_async.journal._statements._database import Connection

_FAR = (
    *("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "davfs"),
    *("fuse.sshfs", "fuse.gluster", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "fuse.davfs"),
)
_LITTLE = 1 << 28  # bytes free, below which the next batch may not fit
_LONG = 1 << 28  # bytes of a log that nobody has brought into the file


def circumstances(
    path: Path, connection: Connection, state_folder: str | Path | StateFolder | None
) -> tuple[IntegrityCheck, ...]:
    """What was found of each."""
    return (
        _integrity(connection),
        _log(path, connection),
        _permissions(path),
        file_system(path),
        _space(path),
        _memory(state_folder),
    )


def _integrity(connection: Connection) -> IntegrityCheck:
    found = "; ".join(str(words) for (words,) in connection.execute("PRAGMA integrity_check(5)").fetchall())
    if found == "ok":
        return IntegrityCheck(name="file", found="SQLite has read all of it, and it is whole")
    remedy = "send nothing from it; recover the rest with `sqlite3 FILE .recover` into a new file and reconcile that"
    return IntegrityCheck(name="file", found=f"damaged: {found}", is_wrong=True, remedy=remedy)


def _log(path: Path, connection: Connection) -> IntegrityCheck:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        remedy = "open it with this package, which turns on the log"
        return IntegrityCheck(name="log", found=f"journal_mode is {mode}", is_wrong=True, remedy=remedy)
    log = path.with_name(f"{path.name}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > _LONG:
        remedy = (
            "somebody reads for very long, or a program stands still: find it, and the log is brought into the file"
        )
        return IntegrityCheck(name="log", found=f"{size:,} bytes beside the file", remedy=remedy)
    return IntegrityCheck(name="log", found=f"write-ahead, {size:,} bytes beside the file")


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

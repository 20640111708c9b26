"""How a new journal comes to be: whole at once, with its tables and its identity, or not at all. Opens no old one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from payments_async.journal._faults import JournalReadOnly, JournalUnavailable
from payments_async.journal._inode import birth_of, inode_of
from payments_async.journal._opening import open_writer
from payments_async.journal._schema import migrate

__all__ = ["make"]


def make(path: Path, *, remembers: bool, draw: Callable[[int], str] = secrets.token_hex) -> bool:
    """Make a journal; tells whether this call has made it, or another process was quicker.

    It is made under another name and then linked to its own: so nobody ever sees a journal without its tables, and
    what is found without them is none that was just being made.

    Args:
        remembers: Whether the state folder is to hear of it, now and whenever it is opened.
        draw: Gives so many random bytes as hexadecimal digits.

    Raises:
        JournalError: With what to do about it.
    """
    unfinished = path.with_name(f".{path.name}-new-{draw(4)}")
    try:
        # orders name people; the files beside it (-wal, -shm) take over its permissions
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except PermissionError as error:
        raise JournalReadOnly(f"{path} cannot be made") from error
    except OSError as error:
        raise JournalUnavailable(f"{path} cannot be made ({error.strerror})") from error
    try:
        _fill(unfinished, remembers=remembers, journal_id=draw(16))
        return _put_in_place(unfinished, path)
    except OSError as error:
        raise JournalUnavailable(f"{path} cannot be made ({error.strerror})") from error
    finally:
        for end in ("", "-wal", "-shm"):
            with suppress(OSError):
                unfinished.with_name(f"{unfinished.name}{end}").unlink(missing_ok=True)


def _fill(path: Path, *, remembers: bool, journal_id: str) -> None:
    connection = open_writer(path, busy_timeout=0.0)
    try:
        migrate(connection, new=True)
        about = {
            "journal_id": journal_id, "commits": "0", "epoch": inode_of(path), "birth": birth_of(path) or "",
            "remembers": "yes" if remembers else "no",
        }  # fmt: skip
        connection.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", about.items())
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the file alone is the journal
    finally:
        connection.close()


def _put_in_place(unfinished: Path, path: Path) -> bool:
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links: the empty file keeps everybody else away meanwhile
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        unfinished.replace(path)
    _sync(path.parent)
    return True


def _sync(folder: Path) -> None:
    with suppress(OSError):  # not every system lets a folder be opened
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

"""Files that are written for people: each takes its name when it is complete, and replaces none but its own kind."""

from __future__ import annotations

import csv
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from payments_async.bulk._problems import begins_formula

if sys.platform != "win32":
    import fcntl

_HEAD = 4096
_BESIDE_A_JOURNAL = ("-wal", "-shm", "-mark", "-journal")


def place_of(path: Path, *, marker: bytes, overwrite: bool, journal: Path | None) -> Path:
    """The file that a report may be written to, links followed.

    Args:
        marker: How a report of this kind begins: only such a file is ever replaced.
        journal: The file the report is made from, if it is one.

    Raises:
        ValueError: It is the journal, one of the files beside it, or anything else that is not a report.
        FileExistsError: A report is there, and ``overwrite`` is not set.
    """
    place = path.resolve()
    if journal is not None and _is_of_journal(place, journal.resolve()):
        raise ValueError(f"{path} is the journal, or belongs to it; name another file")
    if place.name.casefold().endswith(_BESIDE_A_JOURNAL):
        raise ValueError(f"{path} is called like a file that belongs to a journal; name another file")
    try:
        about = place.stat()
    except FileNotFoundError:
        return place
    if not stat.S_ISREG(about.st_mode):
        raise ValueError(f"{path} is there, and is not a regular file; name another file")
    if about.st_size and not _begins_with(place, marker):
        raise ValueError(f"{path} is there, and is not a report: it is never replaced; name another file")
    if not overwrite:
        raise FileExistsError(f"{path} is there already; name another file, or overwrite it")
    return place


def csv_lines(rows: Iterable[Iterable[str]], encoding: str = "utf-8") -> bytes:
    """Rows as CSV; a header in ``utf-8-sig`` has spreadsheets read the file right."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode(encoding)


def harmless_line(text: str) -> str:
    """The whole text on one line, with an apostrophe before what a spreadsheet could run as a formula."""
    line = text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)
    return f"'{line}" if begins_formula(text.lstrip(" ")) or begins_formula(line.lstrip(" ")) else line


@contextmanager
def replacing(place: Path, *, marker: bytes, overwrite: bool) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete, and disappears when something goes wrong.

    What was left by processes that were killed while they wrote one of this name is removed.
    """
    _remove_left(place, marker)
    number, unfinished, mark = _begun(place)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if overwrite and place_of(place, marker=marker, overwrite=True, journal=None).exists():  # looked at again
            unfinished.replace(place)
        else:
            _name_first(unfinished, place)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
        if mark is not None:
            os.close(mark)


def _begun(place: Path) -> tuple[int, Path, int | None]:
    """A new file beside a place; with a second number, which shows as long as it is open that somebody writes it."""
    while True:
        number, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
        mark = None
        if sys.platform != "win32":  # there nobody can remove what somebody has open
            with suppress(OSError):  # not every file system has locks: there nothing is removed either
                fcntl.flock(number, fcntl.LOCK_EX)
            if not os.fstat(number).st_nlink:  # before it was marked, somebody took it for one of a dead process
                os.close(number)
                continue
            mark = os.dup(number)
        return number, Path(name), mark


def _remove_left(place: Path, marker: bytes) -> None:
    """Remove the unfinished files of a name that nobody writes any more. They are the user's own, and name persons."""
    is_one = re.compile(re.escape(f".{place.name}.") + "[a-z0-9_]{8}").fullmatch
    with suppress(OSError):  # a folder that cannot be listed, for one
        for one in [path for path in place.parent.iterdir() if is_one(path.name)]:
            with suppress(OSError):  # somebody writes it, or it is gone
                _remove_dead(one, marker)


def _remove_dead(path: Path, marker: bytes) -> None:
    """Remove an unfinished file, if it is one of ours. Raises ``OSError`` where somebody writes it."""
    number = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if _is_unfinished(number, marker):
            if sys.platform != "win32":
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    finally:
        os.close(number)


def _is_unfinished(number: int, marker: bytes) -> bool:
    """Whether a file is one of ours, as far as it got: nobody else can read it, and it begins as its kind does."""
    about = os.fstat(number)
    if sys.platform != "win32" and (stat.S_IMODE(about.st_mode) != 0o600 or about.st_uid != os.geteuid()):
        return False
    return stat.S_ISREG(about.st_mode) and marker.startswith(os.read(number, len(marker)))


def _name_first(unfinished: Path, place: Path) -> None:
    """Give a file its name, unless somebody was faster: a renaming would replace what is there."""
    try:
        place.hardlink_to(unfinished)
    except FileExistsError:
        raise
    except OSError as error:  # not every file system has hard links
        if place.exists():
            raise FileExistsError(f"{place} is there already; name another file, or overwrite it") from error
        unfinished.replace(place)


def _begins_with(place: Path, marker: bytes) -> bool:
    with place.open("rb") as file:
        return file.read(_HEAD).startswith(marker)


def _is_of_journal(place: Path, journal: Path) -> bool:
    """Whether a name is the journal's, or one of those beside it; file systems may not tell small from capital."""
    if _is_same(place, journal) or any(_is_same(place, Path(f"{journal}{end}")) for end in _BESIDE_A_JOURNAL):
        return True
    ours, name = journal.name.casefold(), place.name.casefold()
    return _is_same(place.parent, journal.parent) and (name == ours or name.startswith(f"{ours}-"))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other

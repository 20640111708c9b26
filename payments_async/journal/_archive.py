"""The file that old orders leave for: a line of JSON for each, compressed, on disk before any of them leaves."""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from payments_async._values.checks import check_number
from payments_async._values.frozen import frozen
from payments_async.journal._engine._journal import Journal
from payments_async.journal._records import check_named

FORMAT = "payments-async archive 1"
YOUNGEST = 8 * 86_400.0  # seconds: a plan compares a batch with what was paid in the last seven days
_encode = msgspec.json.Encoder().encode


@frozen(kw_only=True)
class ArchivedOrders:
    """What has left a journal for an archive.

    Attributes:
        path: The file; ``None`` where nothing was old enough, and none was made.
        orders: How many have left.
        stayed: How many are in the file and did not leave for it: more was learned of them meanwhile, or they left
            for another file.
        changes: Facts for handlers, long handled, that were forgotten.
    """

    path: Path | None
    orders: int = 0
    stayed: int = 0
    changes: int = 0


async def archive_orders(
    journal: Journal,
    path: str | os.PathLike[str],
    *,
    older_than: float,
    who: str,
    why: str,
    progress: Callable[[int], object] | None = None,
) -> ArchivedOrders:
    """Move orders that ended long ago from a journal into a file; memory stays the same however many they are.

    Every order is on disk in the file, with all that ``history`` tells of it, before it leaves the journal. Killed in
    between, nothing is lost: the same call with another file goes on, and an order may be in both. What has left is
    never sent again: the journal keeps its id, a digest of what it said and how it ended; ``progress`` counts it.

    The file is compressed JSON, a line for each order between one that tells what it is and one that tells that it is
    whole; ``zcat`` shows it. It names people: it is readable by its owner alone.

    Args:
        path: A new file; what is there is never replaced.
        older_than: Seconds, at least eight days, since an order changed last.
        who, why: Who wants it, and why; kept.
        progress: Called with how many have left, now and then.

    Raises:
        FileExistsError: There is such a file. Nothing was done.
        OSError: It cannot be written. What has left before is in it.
        JournalUnavailable: The journal cannot be written, likewise.
    """
    check_named(who, why)
    check_number("older_than", older_than, unit="seconds")
    if older_than < YOUNGEST:
        raise ValueError("older_than: at least eight days; plans look for who was paid in the last seven")
    place = await asyncio.to_thread(_unused, Path(path))
    changes = await journal.prune_changes(older_than=older_than)
    file: _ArchiveFile | None = None
    number = orders = stayed = 0
    try:
        async for page in journal.old_orders(older_than=older_than):
            if file is None:
                begun = {"format": FORMAT, "begun": _now(), "older_than": older_than, "who": who, "why": why}
                file = await asyncio.to_thread(_ArchiveFile, place)
                await asyncio.to_thread(file.add, [_encode(begun)])
                number = await journal.begin_archive(str(place), who=who, why=why)
            await asyncio.to_thread(file.add, [old.line for old in page])
            left = await journal.prune_orders(number, page)
            orders, stayed = orders + left, stayed + len(page) - left
            if progress is not None:
                progress(orders)
        if file is None:
            return ArchivedOrders(path=None, changes=changes)
        ended = {"end": True, "ended": _now(), "orders": orders + stayed, "left_the_journal": orders}
        await asyncio.to_thread(file.add, [_encode(ended)])
        await journal.end_archive(number)
    finally:
        if file is not None:
            await asyncio.shield(asyncio.to_thread(file.close))
    return ArchivedOrders(path=place, orders=orders, stayed=stayed, changes=changes)


class _ArchiveFile:
    """A new file, readable by its owner alone, to which some lines are added at a time, each time for good."""

    def __init__(self, path: Path) -> None:
        self._busy = threading.Lock()  # whoever was cancelled closes it, and a thread may still be writing
        self._is_open = True
        self._path, self._size = path, 0
        self._number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(OSError):  # not every system lets a folder be opened
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def add(self, lines: Sequence[bytes]) -> None:
        """Write lines, and return when they are on disk. They are whole by themselves, whatever follows.

        Raises:
            OSError: They cannot be written, or another program has removed, replaced or changed the file meanwhile.
        """
        data = memoryview(gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0))
        with self._busy:
            if not self._is_open:
                raise ValueError("the archive is closed")
            self._check_there()
            self._size += len(data)
            while data:
                data = data[os.write(self._number, data) :]
            os.fsync(self._number)
            self._check_there()

    def _check_there(self) -> None:
        """Raise ``OSError`` where the file of that name is another one, or holds something else, by its size."""
        there = self._path.stat()
        if not os.path.samestat(there, os.fstat(self._number)) or there.st_size != self._size:
            raise OSError(f"another program has replaced or changed {self._path}: nothing more leaves for it")

    def close(self) -> None:
        """Let a line that is being written be whole, and close it."""
        with self._busy:
            self._is_open = False
            os.close(self._number)


def _unused(path: Path) -> Path:
    """The whole path of a file that is not there. Raises ``FileExistsError``."""
    place = path.resolve()
    if place.exists() or path.is_symlink():
        raise FileExistsError(f"{path} is there already, and is never replaced; name another file")
    return place


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""Which orders a process has let out: a small file in the state folder that outlives it, mapped into its memory.

It is there to prove the contrary. A lease that is named in it, with no mark for an attempt, shows that no byte of that
attempt left before the process died. Whatever is doubtful about the file proves nothing.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from payments_async.journal._machine._files import birth_of, lock_file, mount_of
from payments_async.journal._records import MOST_ATTEMPTS, Permit, Remains, digest_of_owner
from payments_async.journal._statements._entries import CHUNK, chunk_of, run_of

_log = logging.getLogger("payments_async.journal")
# On these, what is allocated can be written, and every process of the machine sees it at once.
_FIT = {"ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"}
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FOLDER = "departures"
_LEASES = 128  # of one process; the oldest makes room for the next, and proves nothing any more
_SLACK = 50_000_000  # nanoseconds by which a file may seem to have been written after the last mark
_HEADER = struct.Struct("<16s36s32sQQ32sQ")  # magic, boot, journal, device, inode, birth, made at
_LEASE = struct.Struct("<QQQ16s")  # run, chunk, token, digest of the owner
_TALLY = struct.Struct("<QQ")  # the sum of all marks, and when the last was set
_MAGIC = b"payments-async 1"
_PAGE, _SIZE, _MARKS = 4096, 1024, 64
_TALLY_AT = _LEASE.size


class _Followed:
    """A lease in the file, and in memory what must stand there, so that an older state of it does not pass."""

    __slots__ = ("marks", "place", "total")

    def __init__(self, place: int) -> None:
        self.place = place
        self.marks = bytearray(CHUNK)
        self.total = 0


class Departures:
    """The file of one open journal. It is locked as long as the process lives, and removed when it closes the journal.

    A forked child has the lock as well: as long as it lives, nothing is proved.
    """

    def __init__(self) -> None:
        self._owners: dict[str, bytes] = {}
        self._leases: dict[tuple[int, int, int], _Followed] = {}
        self._next = 0
        self._map: mmap.mmap | None = None
        self._lock: int | None = None
        self._file: Path | None = None

    def begin(self, folder: Path | None, journal_id: str, owner: str) -> None:
        """Follow the leases of an owner from now on: whoever sends under them calls ``mark`` before a byte leaves."""
        if self._map is None and folder is not None:
            self._make(folder / _FOLDER, journal_id)
        if self._map is not None:
            self._owners[owner] = digest_of_owner(owner)

    def lease(self, run: int, number: int, token: int, owner: str) -> None:
        """A lease begins with the commit that is being made."""
        whose, file = self._owners.get(owner), self._map
        if whose is None or file is None:
            return
        key = (run, number, token)
        if key in self._leases:  # its commit was undone; or the journal forgot it, and what it let out stays marked
            return
        followed = _Followed(_PAGE + self._next % _LEASES * _SIZE)
        self._next += 1
        for evicted in [one for one, other in self._leases.items() if other.place == followed.place]:
            del self._leases[evicted]
        place = followed.place
        file[place : place + _SIZE] = bytes(_SIZE)
        _TALLY.pack_into(file, place + _TALLY_AT, 0, time.time_ns())
        _LEASE.pack_into(file, place, run, number, token, whose)  # last: from now on it counts
        self._leases[key] = followed

    def mark(self, permit: Permit) -> None:
        """Note that the order leaves under this permit; before its first byte does."""
        order_id, file = permit.id, self._map
        followed = self._leases.get((run_of(order_id), chunk_of(order_id), permit.token))
        if followed is None or file is None:
            return
        at, attempt = order_id % CHUNK, min(permit.attempt, MOST_ATTEMPTS)
        followed.total += attempt - followed.marks[at]
        followed.marks[at] = file[followed.place + _MARKS + at] = attempt
        _TALLY.pack_into(file, followed.place + _TALLY_AT, followed.total, time.time_ns())

    def close(self) -> None:
        """Prove nothing any more."""
        self._leases, self._owners = {}, {}
        file, lock, mapped, self._file, self._lock, self._map = self._file, self._lock, self._map, None, None, None
        if file is None or lock is None or mapped is None:
            return
        mapped[:_PAGE] = bytes(_PAGE)  # it counts no more, also where it cannot be removed
        with suppress(OSError):
            file.unlink(missing_ok=True)
        mapped.close()
        os.close(lock)

    def _make(self, folder: Path, journal_id: str) -> None:
        """Make the file, all of it on its disk: a page without a place there would kill the process that marks it."""
        boot = _boot_id()
        mount = mount_of(folder)
        if not boot or mount is None or mount[1] not in _FIT:
            return
        file = folder / f"{journal_id}-{secrets.token_hex(8)}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                lock_file(lock)
                size = _PAGE + _LEASES * _SIZE
                os.posix_fallocate(lock, 0, size)
                os.pwrite(lock, bytes(size), 0)
                about = os.fstat(lock)
                born = (birth_of(file) or "").encode()
                named = (boot, journal_id.encode(), about.st_dev, about.st_ino, born, time.time_ns())
                os.pwrite(lock, _HEADER.pack(_MAGIC, *named), 0)
                self._map = mmap.mmap(lock, size)
                self._lock, self._file = lock, file
            except BaseException:
                os.close(lock)
                file.unlink(missing_ok=True)
                raise
        except OSError as error:
            facts = {"folder": str(folder), "why": str(error)}
            _log.warning("no departure record can be kept in %s: %s", folder, error, extra=facts)


@contextmanager
def remains(folder: Path | None, journal_id: str) -> Iterator[list[Remains]]:
    """What processes on this machine left that died with a journal open. Once the block has ended well, it is removed.

    Nobody else has it meanwhile.
    """
    locked: list[tuple[Path, int]] = []
    found: list[Remains] = []
    try:
        with suppress(OSError), os.scandir(folder / _FOLDER if folder is not None else "") as files:  # "" is nowhere
            for file in files:
                if file.name.startswith(f"{journal_id}-"):
                    with suppress(OSError):
                        lock = os.open(file.path, os.O_RDWR)
                        locked.append((Path(file.path), lock))
                        try:
                            lock_file(lock)
                            found += _read(lock, Path(file.path), journal_id)
                        except OSError:
                            os.close(locked.pop()[1])
        yield found
        for path, lock in locked:
            with suppress(OSError):
                if os.path.samestat(os.fstat(lock), path.stat()):
                    path.unlink()
    finally:
        for _, lock in locked:
            os.close(lock)


def _read(lock: int, file: Path, journal_id: str) -> Iterator[Remains]:
    """The leases in a file, if it is whole, of this boot and this journal, and was nowhere else and not put back."""
    about, data = os.fstat(lock), os.pread(lock, _PAGE + _LEASES * _SIZE + 1, 0)
    if not os.path.samestat(about, file.stat()) or len(data) != _PAGE + _LEASES * _SIZE:
        return
    magic, boot, journal, device, inode, born, made_at = _HEADER.unpack_from(data)
    is_own = (magic, boot, journal) == (_MAGIC, _boot_id(), journal_id.encode())
    if not is_own or (device, inode) != (about.st_dev, about.st_ino):
        return
    if born.rstrip(b"\0") != (birth_of(file) or "").encode():
        return
    leases, last = [], made_at
    for place in range(_PAGE, len(data), _SIZE):
        run, number, token, owner = _LEASE.unpack_from(data, place)
        total, at = _TALLY.unpack_from(data, place + _TALLY_AT)
        marks = data[place + _MARKS : place + _MARKS + CHUNK]
        last = max(last, at)
        if run and total == sum(marks):  # else it died between two steps, or an older one was written over it
            leases.append(Remains(run, number, token, owner, marks))
    if about.st_ctime_ns <= last + _SLACK:  # else something has touched it since the last mark
        yield from leases


def _boot_id() -> bytes:
    """Which start of the machine this is; empty where the system does not tell."""
    try:
        return _BOOT.read_bytes().strip()[:36]
    except OSError:
        return b""

"""A small world of one departure record: what leaves is marked, and the file is copied, put back, torn, or outlived.

The record is real, on a real file system; the clock, the machine's start and what the system says of files are not.
Each history is run from its beginning. A record that proves that something never left, which did, is wrong.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
from explorer.desks import Report
from machine import keep_files_in_memory

from payments_async.journal._machine import _departures
from payments_async.journal._records import Permit
from payments_async.journal._statements._entries import CHUNK, SHIFT

OWNER, JOURNAL, RUN = "worker", "5" * 32, 1
_DEPTH, _SECOND = 5, 1_000_000_000
ORDER = RUN << SHIFT
_MARK_AT = _departures._PAGE + _departures._MARKS + ORDER % CHUNK
BEGINS, LEAVES, DIES, COPIED = "a lease begins", "its order leaves", "its process dies", "the record is copied"
OVER, PLACED, REBORN = (
    f"the copy {how}" for how in ("is written over it", "takes its place", "is born with its number")
)
TORN, RESTARTS = "its last mark is lost, and its sum is not", "the machine starts anew, and the copy is what is left"


@attrs.define(eq=False)
class World:
    """One process and its record, in a folder of its own; also in place of ``os``, ``time`` and what they tell.

    Attributes:
        now: Nanoseconds.
        boot: The machine's start.
        left: By the lease's token, the last attempt that left.
        is_whole: Nothing has touched the file but its process.
    """

    folder: Path
    now: int = _SECOND
    boot: int = 1
    token: int = 0
    is_dead: bool = False
    is_whole: bool = True
    has_left: bool = False
    copy: bytes = b""
    left: dict[int, int] = attrs.field(factory=dict)
    record: _departures.Departures = attrs.field(factory=_departures.Departures)
    numbers: dict[int, int] = attrs.field(factory=dict)  # what the system calls a file that has another's number
    touched: dict[int, int] = attrs.field(factory=dict)
    born: dict[int, str] = attrs.field(factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fstat(self, number: int) -> Any:
        """What the system says of an open file."""
        real = os.fstat(number)
        named = self.numbers.get(real.st_ino, real.st_ino)
        return SimpleNamespace(
            real=real.st_ino, st_dev=real.st_dev, st_ino=named, st_ctime_ns=self.touched.get(real.st_ino, 0)
        )

    def read_bytes(self) -> bytes:
        """In place of the file that names the machine's start."""
        return f"{self.boot:036}".encode()

    @property
    def path(self) -> Any:
        """Whether two are one file is told by its real number."""
        return SimpleNamespace(samestat=lambda one, other: one.real == other.st_ino)

    def begin(self) -> None:
        """The process opens its journal."""
        vars(_departures).update(
            _BOOT=self, os=self, time=SimpleNamespace(time_ns=lambda: self.now),
            birth_of=lambda file: self.born.get(file.stat().st_ino, "first"), mount_of=lambda _: (Path("/"), "tmpfs"),
        )  # fmt: skip
        self.record.begin(self.folder, JOURNAL, OWNER)

    @property
    def file(self) -> Path:
        """The record."""
        assert self.record._file is not None
        return self.record._file

    def steps(self) -> Iterator[str]:
        """What may happen next."""
        if not self.is_dead:
            if self.token < 2:
                yield BEGINS
            if self.token and self.left.get(self.token, 0) < 2:
                yield LEAVES
            yield DIES
        if not self.copy:
            yield COPIED
        elif self.is_whole:
            yield from (OVER, PLACED, REBORN, RESTARTS)
        if self.has_left and self.is_whole:
            yield TORN

    def take(self, step: str) -> None:
        """Let it happen, a second later."""
        self.now += _SECOND
        match step:
            case "a lease begins":
                self.token += 1
                self.record.lease(RUN, 0, self.token, OWNER)
            case "its order leaves":
                self.left[self.token] = self.left.get(self.token, 0) + 1
                self.has_left = True
                self.record.mark(
                    Permit(
                        id=ORDER, request_id="one", amount=Decimal(1), token=self.token,
                        attempt=self.left[self.token],
                    )
                )  # fmt: skip
            case "its process dies":
                self._die()
            case "the record is copied":
                self.copy = self.file.read_bytes()
            case _:
                self.is_whole = False
                self._touch(step)

    def _touch(self, step: str) -> None:
        if step == OVER:
            self._write(self.copy)
        elif step == TORN:
            place = _MARK_AT + (self.token - 1) * _departures._SIZE
            with self.file.open("r+b") as file:  # as by a page that was not written: the system knows of no change
                file.seek(place)
                file.write(b"\0")
        elif step == RESTARTS:
            self._die()
            self._write(self.copy)
            self.touched.clear()
            self.boot += 1
        else:
            number = self.file.stat().st_ino
            new = self.file.with_name("new")
            new.write_bytes(self.copy)
            new.replace(self.file)
            if step == REBORN:  # all that is told of it is as it was, but for its birth
                self.numbers[self.file.stat().st_ino] = number
                self.born[self.file.stat().st_ino] = "second"

    def _write(self, data: bytes) -> None:
        with self.file.open("r+b") as file:
            file.write(data)
        self.touched[self.file.stat().st_ino] = self.now

    def _die(self) -> None:
        record, self.is_dead = self.record, True
        if record._map is not None and record._lock is not None:
            record._map.close()
            os.close(record._lock)
            record._map = record._lock = None

    def wrong(self) -> str:
        """What its remains prove, and must not."""
        with _departures.remains(self.folder, JOURNAL) as found:
            if found and not self.is_dead and self.is_whole:
                return "a record proves something while its process lives"
            for one in found:
                for attempt in range(1, self.left.get(one.token, 0) + 1):
                    if one.is_unsent(ORDER, attempt):
                        return f"attempt {attempt} under lease {one.token} has left, and is proved not to have"
            if self.is_dead and self.is_whole and {one.token for one in found} != set(range(1, self.token + 1)):
                return "a process died, and its record does not tell of each lease"
        return ""

    def end(self) -> None:
        """Nothing of it is left."""
        self._die()
        shutil.rmtree(self.folder)


def search() -> Report:
    """See all histories of a few steps."""
    began, count, line = time.perf_counter(), 0, [tuple[str, ...]()]
    keep_files_in_memory()
    replaced = {name: vars(_departures)[name] for name in ("_BOOT", "os", "time", "birth_of", "mount_of")}
    try:
        for history in line:
            world = World(Path(tempfile.mkdtemp(prefix="departures-")))
            world.begin()
            for step in history:
                world.take(step)
            further = tuple(world.steps()) if len(history) < _DEPTH else ()
            wrong, count = world.wrong(), count + 1
            world.end()
            if wrong:
                seconds = time.perf_counter() - began
                return Report(name="departures", states=count, seconds=seconds, wrong=wrong, history=history)
            line += [(*history, step) for step in further]
    finally:
        vars(_departures).update(replaced)
    return Report(name="departures", states=count, seconds=time.perf_counter() - began)

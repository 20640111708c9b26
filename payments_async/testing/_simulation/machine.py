"""What a simulation replaces in this process: clocks, chance, threads, sockets, databases. It cannot be undone."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp.connector

import payments_async._session.transport  # noqa: F401 - or the first session would, under way
from payments_async.journal._engine import _journal, _writer
from payments_async.journal._machine import _departures
from payments_async.journal._sqlite import _identity, _opening
from payments_async.testing._simulation.loops import SimulatedLoop, SimulatedTask
from payments_async.testing._simulation.networks import Network
from payments_async.testing._simulation.processes import CURRENT, Process
from payments_async.testing._simulation.threads import SimulatedSequencer

_INDEX = 48  # bytes of the header


def simulate(
    seed: int,
    world: Callable[[SimulatedLoop, Network], Any],
    *,
    laziness: float = 0.1,
    prepare: Callable[[SimulatedLoop], None] = lambda _: None,
) -> SimulatedLoop:
    """Run a world to its end, with all of its chance drawn from a seed; only once in a process.

    Args:
        prepare: Replaces more, as a server of a database does.
    """
    chance = random.Random(seed)
    loop = SimulatedLoop(chance, laziness=laziness)
    network = Network(loop)
    vars(time)["running"].append(loop)
    gc.disable()
    random.seed(seed)
    drawn = random.Random(seed + 1)
    random._urandom = os.urandom = drawn.randbytes  # type: ignore[attr-defined]
    asyncio.Task = asyncio.tasks.Task = SimulatedTask  # type: ignore[misc]
    aiohttp.connector.aiohappyeyeballs.start_connection = network.start_connection  # type: ignore[attr-defined]
    vars(_writer)["Sequencer"] = vars(_journal)["Sequencer"] = SimulatedSequencer
    _own_databases()
    _own_names()
    own_records(loop)
    prepare(loop)
    asyncio.set_event_loop(loop)
    loop.run_until_complete(world(loop, network))
    return loop


def _own_databases() -> None:
    """Let each process know the databases that it has open, so that its death can roll them back."""
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **(options | {"check_same_thread": False}))
        process = CURRENT.get()
        if process is not None:
            process.databases.append(connection)
        return connection

    sqlite3.connect = connected  # type: ignore[assignment]
    vars(_opening)["stamp_of"] = stamp_of


def stamp_of(path: Path) -> bytes | None:
    """The header of the log's index, which every commit changes: files have the times of the machine."""
    try:
        with open(f"{path}-shm", "rb", buffering=0) as index:  # noqa: PTH123 - a simulated disk strikes what paths open
            return index.read(_INDEX)
    except OSError:
        return None


class _Apart:
    """A collection of the whole interpreter, of which each simulated process has one of its own."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._each: dict[Any, Any] = {}

    @property
    def _own(self) -> Any:
        process = CURRENT.get()
        if process not in self._each:
            self._each[process] = self._make()
        return self._each[process]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __iter__(self) -> Any:
        return iter(list(self._own))

    def __getitem__(self, key: Any) -> Any:
        return self._own[key]

    def __len__(self) -> int:
        return len(self._own)


def _own_names() -> None:
    _identity._OPEN_HERE = _Apart(list)  # type: ignore[assignment]

    class Alive(_Apart):
        def add(self, liveness: Any) -> None:
            self._own.add(liveness)
            process = CURRENT.get()
            if process is not None:
                process.on_death.append(liveness.forget)

    _identity._ALIVE = Alive(set)  # type: ignore[assignment]


def own_death(process: Process, departures: _departures.Departures) -> None:
    """A process that dies lets go of the lock on its departure record, which stays as it is."""

    def let_go() -> None:
        mapped, lock = departures._map, departures._lock
        departures._map = departures._lock = None
        if mapped is not None and lock is not None:
            mapped.close()
            os.close(lock)

    process.on_death.append(let_go)


def own_records(loop: SimulatedLoop) -> None:
    """Let departure records end with their simulated process, and go by the simulation's clock and boot."""
    make = _departures.Departures._make

    def made(self: _departures.Departures, folder: Path, journal_id: str) -> None:
        make(self, folder, journal_id)
        process = CURRENT.get()
        if process is not None:
            own_death(process, self)

    vars(_departures).update(
        _BOOT=MACHINE, os=_System(), time=SimpleNamespace(time_ns=lambda: int(loop.wall_clock * 1e9))
    )
    _departures.Departures._make = made  # type: ignore[method-assign]


class _Machine:
    """What departure records ask of the system.

    Attributes:
        boot: Which start of the machine this is.
        touched: When a file was last written, in nanoseconds of the machine's clock.
    """

    def __init__(self) -> None:
        self.boot = 1
        self.touched: dict[tuple[int, int], int] = {}

    def read_bytes(self) -> bytes:
        """In place of the file that names the boot."""
        return f"{self.boot:036}".encode()


class _System:
    """In place of ``os``: files have the times of the simulation."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fstat(self, number: int) -> Any:
        about = os.fstat(number)
        changed = MACHINE.touched.get((about.st_dev, about.st_ino), 0)
        return SimpleNamespace(st_dev=about.st_dev, st_ino=about.st_ino, st_ctime_ns=changed)


MACHINE = _Machine()

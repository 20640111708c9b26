"""What a simulation replaces in this process: clocks, chance, threads, sockets, databases. It cannot be undone."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import random
import sqlite3
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp.connector

from payments_async._wire import codec
from payments_async._wire.dialect import Dialect
from payments_async._wire.models import Transaction
from payments_async.journal._engine import _writer
from payments_async.journal._sqlite import _identity, _opening
from payments_async.testing._simulation.disks import own_records
from payments_async.testing._simulation.loops import SimulatedLoop, SimulatedTask
from payments_async.testing._simulation.networks import Network
from payments_async.testing._simulation.processes import CURRENT
from payments_async.testing._simulation.threads import SimulatedQueue, SimulatedThread


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
    _writer.threading = SimpleNamespace(Thread=SimulatedThread)  # type: ignore[attr-defined,assignment]
    _writer.queue = SimpleNamespace(SimpleQueue=SimulatedQueue)  # type: ignore[attr-defined,assignment]
    _own_databases()
    _own_names()
    own_records(loop)
    prepare(loop)
    asyncio.set_event_loop(loop)
    loop.run_until_complete(world(loop, network))
    return loop


def warm_up() -> None:
    """Import and make what each simulation would make at its first use; for a process that forks many."""
    importlib.import_module("payments_async.ipn._durable")
    codec._converter(Dialect().timezone).get_structure_hook(Transaction)
    _opening._pattern(_opening.STEPS)


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


class _OneByOne:
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
    _identity._OPEN_HERE = _OneByOne(list)  # type: ignore[assignment]

    class Alive(_OneByOne):
        def add(self, liveness: Any) -> None:
            self._own.add(liveness)
            process = CURRENT.get()
            if process is not None:
                process.on_death.append(liveness.forget)

    _identity._ALIVE = Alive(set)  # type: ignore[assignment]

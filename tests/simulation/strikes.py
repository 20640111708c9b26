"""Strike a life (``bulk.lives``) once at a named point, in a simulated process; another process goes on with it.

python start.py simulation.strikes 0 4                      every fourth strike, from the first on
python start.py simulation.strikes permit.written kill      one
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from bulk.lives import BLOWS, LEASE, Life, break_rule_two, half_a_minute_passes, judge, known_of, rehearse, service
from journal.points import IN_A_FILE
from simulation.threads import executed
from simulation.warming import warm_up

from payments_async.sandbox import Sandbox
from payments_async.testing._simulation.loops import SimulatedLoop
from payments_async.testing._simulation.machine import simulate
from payments_async.testing._simulation.networks import Network
from payments_async.testing._simulation.processes import CURRENT, Process
from payments_async.testing._simulation.threads import running

_MOMENT = 0.01  # seconds between two tries to have a lock
_LONGEST = 900.0  # seconds that a life may take


def strikes() -> Iterator[tuple[str, str]]:
    """Each point with each blow."""
    for point in IN_A_FILE:
        yield from ((point, blow) for blow in BLOWS)


class _Waiting(sqlite3.Connection):
    """A connection that lets others go on while it waits for a lock, as it would in a thread of the system."""

    def __init__(self, database: Any, *args: Any, timeout: float = 5.0, **options: Any) -> None:
        super().__init__(database, *args, timeout=0.0, **options)
        self._timeout = timeout

    def execute(self, sql: str, /, *args: Any) -> Any:
        until, thread = time.monotonic() + self._timeout, running()
        while True:
            try:
                return super().execute(sql, *args)
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
                if not is_busy or thread is None or time.monotonic() >= until:
                    raise
            thread.sleep(_MOMENT)


class _Clock:
    """The simulation's, for the service."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@attrs.define
class SimulatedLife(Life):
    """A life whose process is simulated."""

    world: Strike = attrs.field(kw_only=True)

    def struck(self) -> None:
        """The blow, in the thread that writes."""
        process, thread = CURRENT.get(), running()
        assert process is not None
        assert thread is not None
        if self.blow == "kill":
            process.kill()
        else:
            process.stop()
            thread.wake()
        self.world.was_struck.set_result(None)
        thread.rest()

    def listens(self, url: str) -> None:
        """Notifications are to be sent there."""
        self.world.sandbox.ipn_url = url

    def waits(self, done: object) -> None:
        """The thread that writes waits for its event loop."""
        thread = running()
        assert thread is not None
        thread.sleep(_MOMENT)


@attrs.define
class Strike:
    """A service, and the processes of one life."""

    number: int
    point: str
    blow: str
    folder: Path
    loop: SimulatedLoop
    is_broken: bool = False
    sandbox: Sandbox = attrs.field(init=False)
    was_struck: asyncio.Future[None] = attrs.field(init=False)
    problems: list[str] = attrs.field(factory=list)

    async def run(self) -> None:
        """Strike, go on and judge; what is wrong is in ``problems``."""
        self.sandbox, self.was_struck = await self._serve(), self.loop.create_future()
        first, life = self._born(0, self.point)
        await asyncio.wait({life, self.was_struck}, return_when=asyncio.FIRST_COMPLETED)
        if not self.was_struck.done():
            self.problems.append(f"it was never struck, and ended with {life!r}")
            return
        if self.blow == "kill":
            half_a_minute_passes(self.folder)
            lives = [self._born(1)[1]]
        else:
            lives = [life, self._born(1)[1]]
            await asyncio.sleep(1.5 * LEASE)  # the lease has run out, and where the file is free it is taken over
            first.go_on()
        await asyncio.wait(lives, timeout=_LONGEST)
        self.problems += [f"a process ended with {one!r}" for one in lives if not one.done() or one.exception()]
        if not self.problems:
            self.problems += await Process(self.loop, "judge").start(judge(self.sandbox, self.folder))

    async def _serve(self) -> Sandbox:
        ready: asyncio.Future[Sandbox] = self.loop.create_future()

        async def serve() -> None:
            async with service(self.number, broken=self.is_broken, clock=_Clock()) as sandbox:
                ready.set_result(sandbox)
                await asyncio.Event().wait()

        Process(self.loop, "service").start(serve())
        return await ready

    def _born(self, number: int, point: str = "") -> tuple[Process, Any]:
        process = Process(self.loop, f"life {number}")
        life = SimulatedLife(
            number=number, folder=self.folder, point=point, blow=self.blow, broken=self.is_broken, world=self,
            **known_of(self.sandbox),
        )  # fmt: skip
        return process, process.start(life.live())


def struck(number: int, point: str, blow: str, *, is_broken: bool = False) -> list[str]:
    """Strike a life here, and tell what is wrong in the end. Only once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="strike-"))
    made: list[Strike] = []

    def begun(loop: SimulatedLoop, _: Network) -> Awaitable[None]:
        made.append(Strike(number, point, blow, folder, loop, is_broken))
        return made[0].run()

    try:
        simulate(number, begun, prepare=_prepare)
    except BaseException:  # noqa: BLE001 - whatever it is, it fails the strike
        return [traceback.format_exc()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return made[0].problems + made[0].loop.problems


def _prepare(loop: SimulatedLoop) -> None:
    loop.threads = executed
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **({"factory": _Waiting} | options))
        return connection

    sqlite3.connect = connected  # type: ignore[assignment]


def in_a_child(work: Callable[[], list[str]]) -> list[str]:
    """Do something in a process of its own."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        with contextlib.suppress(BaseException), os.fdopen(writes, "w") as told:
            json.dump(work(), told)
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as told:
        text = told.read()
    os.waitpid(child, 0)
    return list(json.loads(text)) if text else ["it died"]


def main() -> None:
    """Strike, and print what is wrong after each; ``broken`` as the last word breaks rule 2, which has to show."""
    first, second, *words = sys.argv[1:]
    every = list(enumerate(strikes()))
    chosen = every[int(first) :: int(second)] if first.isdecimal() else [(0, (first, second))]
    if words == ["broken"]:
        break_rule_two()
    warm_up()
    rehearse()
    gc.freeze()
    found = {}
    for number, (point, blow) in chosen:
        strike = partial(struck, number, point, blow, is_broken=bool(words))
        found[f"{point}, {blow}"] = in_a_child(strike)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

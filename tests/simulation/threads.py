"""Pools of simulated threads, and points of a journal at which a process is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent import futures
from typing import Any

from payments_async.testing._simulation.processes import CURRENT
from payments_async.testing._simulation.threads import SimulatedQueue, SimulatedThread, _loop, running


class SimulatedExecutor:
    """In place of a pool of one thread."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        self._name = thread_name_prefix
        self._todo = SimulatedQueue()
        self._thread: SimulatedThread | None = None

    def put(self, work: Callable[[], object]) -> None:
        """Let the thread do it, after all that was put before."""
        if self._thread is None:
            self._thread = SimulatedThread(target=self._run, name=self._name)
            self._thread.start()
        self._todo.put(work)

    def submit(self, function: Callable[..., Any], *args: Any) -> futures.Future[Any]:
        """Call a function in the thread."""
        future: futures.Future[Any] = futures.Future()

        def work() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - as an executor does
                future.set_exception(error)

        self.put(work)
        return future

    def shutdown(self, *_: object, **__: object) -> None:
        """Let it finish what it has, and wait for that."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._todo.put(None)
            thread.join()

    def _run(self) -> None:
        while (work := self._todo.get()) is not None:
            work()


def executed(executor: object, function: Callable[..., Any], args: tuple[Any, ...]) -> asyncio.Future[Any]:
    """As ``run_in_executor``, in a simulated thread, which may wait."""
    future = _loop().create_future()

    def work() -> None:
        if future.done():
            return
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001 - as an executor does
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    if isinstance(executor, SimulatedExecutor):
        executor.put(work)
    else:
        SimulatedThread(target=work).start()
    return future


def crash_point(decide: Callable[[str], bool]) -> Callable[[str], None]:
    """What a journal calls between two steps: kills the process there where ``decide`` says so."""

    def reached(name: str) -> None:
        process, thread = CURRENT.get(), running()
        if process is not None and not process.is_dead and decide(name):
            process.kill()
            if thread is not None:
                thread.rest()

    return reached

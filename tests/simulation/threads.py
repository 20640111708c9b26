"""Pools of simulated threads, and points of a journal at which a process is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from payments_async.testing._simulation.processes import CURRENT
from payments_async.testing._simulation.threads import SimulatedSequencer, SimulatedThread, _loop, running


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

    if isinstance(executor, SimulatedSequencer):
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

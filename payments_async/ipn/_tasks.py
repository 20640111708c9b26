"""Tasks with an owner: each is kept until it ends, and none outlives its owner."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["Tasks", "Workers"]

T = TypeVar("T")


class Tasks:
    """The tasks of one receiver. Unlike a ``TaskGroup`` it may be opened in one task and closed in another."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it; a caller who gives up waiting for it does not stop it."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def join(self, timeout: float) -> None:
        """Wait for all of them, those they start included, for so many seconds at most."""
        deadline = asyncio.get_running_loop().time() + timeout
        while self._running and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._running, timeout=left)

    async def cancel(self) -> None:
        """Cancel whatever still runs and wait for its end."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Workers(Generic[T]):
    """As many tasks as there are jobs that wait for something: a job that waits for nothing costs none.

    Args:
        work: Does one job, and raises nothing.
        most: Jobs under way at once.
    """

    def __init__(self, tasks: Tasks, work: Callable[[T], Awaitable[None]], *, most: int) -> None:
        self.jobs: deque[T] = deque()
        self._tasks = tasks
        self._work = work
        self._most = most
        self._count = 0
        self._starting = False

    def put(self, job: T) -> None:
        """Do a job as soon as those before it are done or wait for something."""
        self.jobs.append(job)
        if not self._starting:
            self._start(1)

    def _start(self, count: int) -> None:
        count = min(count, len(self.jobs), self._most - self._count)
        self._starting = count > 0
        if self._starting:
            self._count += count
            for _ in range(count):
                self._tasks.start(self._run())
            # after their first steps: twice as many, should those have to wait
            asyncio.get_running_loop().call_soon(self._start, 2 * count)

    async def _run(self) -> None:
        try:
            while self.jobs:
                await self._work(self.jobs.popleft())
        finally:
            self._count -= 1

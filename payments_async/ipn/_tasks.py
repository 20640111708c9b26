"""Tasks with an owner: each is kept until it ends, and none outlives its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Tasks"]

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

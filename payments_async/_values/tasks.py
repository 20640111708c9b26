"""The tasks that run beside their owner's work: the end of each is noticed, and what is to go on begins again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import attrs

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, None]]
NAMED = "payments-async: "  # how the name of each of these tasks begins
_log = logging.getLogger("payments_async")
_AGAIN_INITIAL, _AGAIN_MAX = 0.5, 30.0  # seconds until a task that ended begins again, doubled each time
_LASTED = 60.0  # seconds of work after which the next end counts as the first


@attrs.define(eq=False)
class _Kept:
    """Work that begins again when its task ends before the work does.

    Attributes:
        stands: It has no end of its own, so closing ends it.
        trouble: Why it does not run now, in words.
        timer: What begins it again.
    """

    name: str
    work: Work
    stands: bool
    delay: float
    begun: float = 0.0
    task: asyncio.Task[None] | None = None
    trouble: str | None = None
    timer: asyncio.TimerHandle | None = None


class Tasks:
    """The tasks of one owner. Unlike a ``TaskGroup`` it may be opened in one task and closed in another.

    A task that raises, or that anything but its owner cancels, is logged. The end of one ends no other.

    Args:
        owner: Named in the log, such as ``the outbox shop``.
        lost: Told of each task that ended so and does not begin again.
    """

    def __init__(self, owner: str, *, lost: Callable[[Exception], None] | None = None) -> None:
        self._owner = owner
        self._lost = lost
        self._running: set[asyncio.Task[Any]] = set()
        self._kept: dict[_Kept, None] = {}
        self.is_ending = False

    @property
    def trouble(self) -> str | None:
        """Which task has ended and does not run again yet, in words; ``None`` where all run."""
        return next((kept.trouble for kept in self._kept if kept.trouble is not None), None)

    def start(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it once; a caller who gives up waiting for it does not stop it."""
        task = self._begin(name, work)
        task.add_done_callback(partial(self._ended, name))
        return task

    def keep(self, name: str, work: Work, *, stands: bool = True) -> None:
        """Run it until it returns, and begin it again after whatever else ended it.

        Args:
            stands: It goes on until this is closed; otherwise closing waits for it as for others.
        """
        kept = _Kept(name, work, stands, delay=_AGAIN_INITIAL)
        self._kept[kept] = None
        self._begin_again(kept)

    async def returned(self, name: str) -> None:
        """Wait until the work that is kept under this name has returned. What fails meanwhile begins again once."""
        is_last = False
        while kept := next((one for one in self._kept if one.name == name), None):
            if kept.timer is not None:
                if is_last:
                    self._forget(kept)
                    return
                self._begin_again(kept)
                is_last = True
            assert kept.task is not None
            await asyncio.wait([kept.task])

    def stop(self, name: str) -> set[asyncio.Task[Any]]:
        """End what is kept under this name; gives the tasks that are about to end. Raises as ``aclose`` does."""
        self._check_loop()
        kept = [one for one in self._kept if one.name == name]
        for one in kept:
            self._forget(one)
        ending = {one.task for one in kept if one.task is not None and not one.task.done()}
        for task in ending:
            task.cancel()
        return ending

    async def aclose(self, drain: float = 0.0, *, leaves: float | None = None) -> None:
        """End what stands, wait for the others, those they start included, for so many seconds, and cancel the rest.

        Args:
            leaves: Seconds until it leaves what goes on though it was cancelled, as foreign code may do.

        Raises:
            RuntimeError: They run in another event loop: here they would be waited for without an end.
        """
        self._check_loop()
        for kept in list(self._kept):
            if kept.stands:
                self.stop(kept.name)
            elif kept.timer is not None:
                self._begin_again(kept)
        now = asyncio.get_running_loop().time
        deadline = now() + drain
        try:
            while self._running and (left := deadline - now()) > 0:
                await asyncio.wait(self._running, timeout=None if left == float("inf") else left)
        finally:
            await finished(self._end(leaves))

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if any(task.get_loop() is not loop for task in self._running if not task.done()):
            raise RuntimeError(
                f"{self._owner} was begun in another event loop, or before this process was forked: close it there"
            )

    async def _end(self, patience: float | None) -> None:
        self.is_ending, is_over = True, False
        while (self._running or self._kept) and not is_over:  # a task that ends may begin another
            for kept in list(self._kept):
                self._forget(kept)
            for task in self._running:
                task.cancel()
            if self._running:
                is_over = bool((await asyncio.wait(self._running, timeout=patience))[1])
        self.is_ending = False

    def _begin(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=f"{NAMED}{name}")
        self._running.add(task)
        return task

    def _ended(self, name: str, task: asyncio.Task[Any]) -> None:
        """A task that ran once has ended."""
        self._running.discard(task)
        error = _why(task)
        if error is None or self.is_ending:
            return
        self._say(name, error)
        if self._lost is not None:
            self._lost(error)

    def _begin_again(self, kept: _Kept) -> None:
        if kept.timer is not None:
            kept.timer.cancel()
        kept.timer = kept.trouble = None
        kept.begun = asyncio.get_running_loop().time()
        kept.task = self._begin(kept.name, kept.work())
        kept.task.add_done_callback(partial(self._stopped, kept))

    def _stopped(self, kept: _Kept, task: asyncio.Task[None]) -> None:
        """A task that was kept has ended."""
        self._running.discard(task)
        error = _why(task)
        if kept not in self._kept:
            return
        if error is None:
            self._forget(kept)
            return
        loop = asyncio.get_running_loop()
        if loop.time() - kept.begun >= _LASTED:
            kept.delay = _AGAIN_INITIAL
        delay, kept.delay = kept.delay, min(_AGAIN_MAX, 2 * kept.delay)
        self._say(kept.name, error)
        kept.trouble = f"its {kept.name} ended ({type(error).__name__}) and begins again soon; the log says more"
        kept.timer = loop.call_later(delay, self._begin_again, kept)

    def _say(self, name: str, error: Exception) -> None:
        """Log how a task ended; a cancellation a moment later, since an event loop that ends cancels all it has."""
        if isinstance(error, TaskCancelled):
            asyncio.get_running_loop().call_later(_AGAIN_INITIAL, self._log_end, name, error)
        else:
            self._log_end(name, error)

    def _log_end(self, name: str, error: Exception) -> None:
        facts = {"owner": self._owner, "task": name, "why": type(error).__name__}
        _log.error("%s: its %s ended (%s)", self._owner, name, type(error).__name__, exc_info=error, extra=facts)
        if isinstance(error, MemoryError):  # what it was about to wake is lost: that concerns the whole event loop
            asyncio.get_running_loop().call_exception_handler({"message": f"{self._owner}: {name}", "exception": error})

    def _forget(self, kept: _Kept) -> None:
        if kept.timer is not None:
            kept.timer.cancel()
        self._kept.pop(kept, None)


class TaskCancelled(RuntimeError):
    """A task was cancelled, and not by its owner."""


async def finished(awaitable: Awaitable[T]) -> T:
    """Wait for something to the end, also when cancelled meanwhile; the cancellation comes after it."""
    task = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001, S110 - raised below, as the result
            pass
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at: the cancellation tells enough
        raise cancelled
    return task.result()


def _why(task: asyncio.Task[Any]) -> Exception | None:
    """Why a task ended, unless it returned."""
    if task.cancelled():
        return TaskCancelled(f"{task.get_name()} was cancelled by something else")
    error = task.exception()
    return error if error is None or isinstance(error, Exception) else TaskCancelled(type(error).__name__)

"""Threads without an event loop, and the loop that they have something done in: for synchronous applications."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Lent:
    """A connection of a thread that waits: what is asked of it is asked in that thread, and never in the loop.

    Attributes:
        connection: Of the application.
    """

    def __init__(self, connection: object) -> None:
        self.connection = connection
        self._asked: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()

    async def run(self, work: Callable[[], T]) -> T:
        """Have the thread do something, and wait for it in the loop."""
        future: Future[T] = Future()
        self._asked.put((future, work))
        return await asyncio.wrap_future(future)

    def serve(self, until: Future[Any], timeout: float) -> None:
        """Do what is asked, in this thread, until the work in the loop is done.

        Raises:
            queue.Empty: Nothing was heard of it for so many seconds.
        """
        until.add_done_callback(lambda _: self._asked.put(None))
        while (asked := self._asked.get(timeout=timeout)) is not None:
            future, work = asked
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except Exception as error:  # noqa: BLE001 - it is raised where it was asked
                    future.set_exception(error)
                except BaseException as error:  # ctrl-c, or the end of a server's worker: it would end the loop too
                    future.set_exception(RuntimeError(f"the thread was interrupted ({type(error).__name__})"))
                    raise


class HomeLoop:
    """The loop that something was opened in, for the threads of the same process.

    Args:
        what: How it is called in an error, such as ``the receiver``.
        instead: What to do in a thread that runs a loop.
    """

    def __init__(self, what: str, instead: str) -> None:
        self._what = what
        self._instead = instead
        self._place: tuple[asyncio.AbstractEventLoop, int] | None = None

    def note(self) -> None:
        """It is opened here."""
        self._place = asyncio.get_running_loop(), os.getpid()

    def run(self, work: Coroutine[Any, Any, T], timeout: float, lent: Lent | None = None) -> T:
        """Have the loop do something while this thread waits.

        Args:
            timeout: Seconds without a word from the loop.
            lent: What the work may ask in this thread.

        Raises:
            RuntimeError: The loop does not run in this process, or is the one of this thread.
            TimeoutError: It takes too long. It may be done all the same.
        """
        try:
            loop, process = self._place or (None, 0)
            if loop is None or loop.is_closed():
                raise RuntimeError(
                    f"{self._what} is not open: enter `with {self._what.split()[-1]}.in_thread(...):` first"
                )
            if process != os.getpid():
                raise RuntimeError(f"{self._what} was opened before this process was forked: open it in this one")
            if asyncio._get_running_loop() is not None:
                raise RuntimeError(f"an event loop runs in this thread: {self._instead} here")
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:
            work.close()
            raise
        try:
            if lent is not None:
                lent.serve(future, timeout)
            return future.result(timeout)
        except (queue.Empty, TimeoutError) as error:
            if future.done() and not future.cancelled():
                raise
            future.cancel()
            raise TimeoutError("the event loop of another thread has not answered in time") from error
        except BaseException:
            future.cancel()  # where it was interrupted, nobody waits for it
            raise


@contextmanager
def in_thread(*opened: AbstractAsyncContextManager[Any]) -> Iterator[None]:
    """Open these, in this sequence, in an event loop in a thread of its own; close them at the end, in reverse."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="payments-async", daemon=True)
    thread.start()
    stack = AsyncExitStack()

    async def enter() -> None:
        for one in opened:
            await stack.enter_async_context(one)

    try:
        try:
            asyncio.run_coroutine_threadsafe(enter(), loop).result()
            yield
        finally:
            asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

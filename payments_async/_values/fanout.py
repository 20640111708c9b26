"""One asynchronous function over many items: bounded concurrency, bounded memory, results as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def fan_out(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item] | AsyncIterable[Item], concurrency: int
) -> AsyncGenerator[tuple[Item, Result | Exception], None]:
    """Pairs of item and result, or of item and the exception it raised, in the order they are done.

    Leaving the loop early takes no further item and waits for the calls under way; cancellation cancels them.

    Args:
        function: Called once for each item.
        items: May be endless; only as many are taken as are worked on or wait to be looked at.
        concurrency: Calls under way at once; at most twice as many results wait to be taken.
    """
    if concurrency < 1:
        raise ValueError("concurrency: must be 1 or more")
    pool = _Pool(function, items, concurrency)
    try:
        while (pair := await pool.take()) is not None:
            yield pair
    except GeneratorExit:
        await pool.drain()
        raise
    finally:
        await pool.close()
    pool.raise_failure()


class _Pool(Generic[Item, Result]):
    """Workers that share one source of items. They belong to the generator above, which closes them."""

    def __init__(
        self,
        function: Callable[[Item], Awaitable[Result]],
        items: Iterable[Item] | AsyncIterable[Item],
        concurrency: int,
    ) -> None:
        self._function = function
        self._items = aiter(items) if isinstance(items, AsyncIterable) else _awaitable(items)
        self._one_at_a_time = asyncio.Lock()
        self._room = asyncio.Semaphore(2 * concurrency)  # an item is taken only when its result has room
        self._results: asyncio.Queue[tuple[Item, Result | Exception] | None] = asyncio.Queue()
        self._stopped = False
        self._taker: asyncio.Task[None] | None = None  # the worker that waits for the source
        self._failure: BaseException | None = None
        self._running = concurrency
        self._workers = [asyncio.ensure_future(self._work()) for _ in range(concurrency)]
        for worker in self._workers:
            worker.add_done_callback(self._ended)

    async def take(self) -> tuple[Item, Result | Exception] | None:
        """The next result, or ``None`` after the last."""
        while self._running or not self._results.empty():
            pair = await self._results.get()
            if pair is not None:
                self._room.release()
                return pair
            self._running -= 1
        return None

    async def drain(self) -> None:
        """Take no further item and wait for the calls under way."""
        self._stopped = True
        for _ in self._workers:
            self._room.release()
        if self._taker is not None:
            self._taker.cancel()  # a silent source would hold it for ever
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def close(self) -> None:
        """Stop everything."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()

    def raise_failure(self) -> None:
        """Raise what the items themselves raised, or the cancellation that a call made of itself."""
        if self._failure is not None:
            raise self._failure

    async def _work(self) -> None:
        try:
            while True:
                await self._room.acquire()
                item = await self._next()
                try:
                    result: Result | Exception = await self._function(item)
                except Exception as error:  # noqa: BLE001 - one bad item never stops the others
                    result = error
                self._results.put_nowait((item, result))
        except StopAsyncIteration:
            pass
        except Exception as error:  # noqa: BLE001 - the items could not be read: told after what is under way
            self._failure = error
        finally:
            self._stopped = True

    def _ended(self, worker: asyncio.Task[None]) -> None:
        """A worker has ended, perhaps before its first step."""
        self._stopped = True
        if worker.cancelled():  # its item has no result, so the end must not look good
            self._failure = asyncio.CancelledError()
        elif (error := worker.exception()) is not None:
            self._failure = error
        self._results.put_nowait(None)

    async def _next(self) -> Item:
        async with self._one_at_a_time:
            if self._stopped:
                raise StopAsyncIteration
            self._taker = asyncio.current_task()
            try:
                return await anext(self._items)
            except BaseException:
                self._stopped = True
                raise
            finally:
                self._taker = None


async def _awaitable(items: Iterable[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item

"""fan_out: one function over many items, with bounds, drains, failures and cancellations."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest
from session.wires import turns, until

from payments_async._values.fanout import fan_out


class Work:
    """A function that waits for leave, and remembers what it was called for.

    Attributes:
        begun, ended, cancelled: Items, in their order.
        most: The largest number under way at once.
    """

    def __init__(self, *, free: bool = False) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.cancelled: list[int] = []
        self.most = 0
        self._under_way = 0
        self._leave = asyncio.Event()
        if free:
            self._leave.set()

    def release(self) -> None:
        """Let every call end."""
        self._leave.set()

    async def __call__(self, item: int) -> int:
        self.begun.append(item)
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        try:
            await self._leave.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        finally:
            self._under_way -= 1
        self.ended.append(item)
        return item * item


class Source:
    """Items that are counted as they are taken; endless unless told otherwise."""

    def __init__(self, count: int | None = None) -> None:
        self.taken = 0
        self._count = count

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.taken == self._count:
            raise StopIteration
        self.taken += 1
        return self.taken


async def later(count: int) -> AsyncIterator[int]:
    """Items that come one at a time."""
    for number in range(count):
        await asyncio.sleep(0)
        yield number


async def gather(results: AsyncIterator[tuple[int, object]], seen: list[tuple[int, object]]) -> None:
    """Add the pairs to those seen: what came before an error counts."""
    async for pair in results:
        seen.append(pair)  # noqa: PERF401 - a comprehension would lose them


@pytest.mark.parametrize("concurrency", [1, 3, 50])
@pytest.mark.parametrize("count", [0, 1, 3, 40])
async def test_every_item(count: int, concurrency: int) -> None:
    """It is worked on once, and comes with its result; no more are under way than allowed."""
    work = Work(free=True)
    pairs = [pair async for pair in fan_out(work, range(count), concurrency)]
    assert {item: item * item for item in range(count)} == dict(pairs)
    assert list(range(count)) == sorted(work.begun) == sorted(item for item, _ in pairs)
    assert min(count, concurrency) == work.most


async def test_items_that_come_one_at_a_time() -> None:
    """An async iterable will do, and calls overlap."""
    work = Work()
    seen: list[tuple[int, object]] = []
    reading = asyncio.ensure_future(gather(fan_out(work, later(20), 4), seen))
    await until(lambda: len(work.begun) == 4)
    work.release()
    await reading
    assert ({item: item * item for item in range(20)}, 4) == (dict(seen), work.most)


async def test_results_as_they_are_done() -> None:
    """A slow item holds up none of the others."""
    gate = asyncio.Event()

    async def work(item: int) -> int:
        if item == 0:
            await gate.wait()
        return item

    seen = []
    async for item, _ in fan_out(work, range(5), 2):
        seen.append(item)
        if len(seen) == 4:
            gate.set()
    assert [1, 2, 3, 4, 0] == seen


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_reader_that_is_slow(concurrency: int) -> None:
    """Of an endless source only as much is taken as is worked on or waits: memory is bounded."""
    work, source = Work(free=True), Source()
    async with aclosing(fan_out(work, source, concurrency)) as results:
        for looked_at in range(1, 10):
            await anext(results)
            await turns()
            assert source.taken <= looked_at + 2 * concurrency
            assert len(work.ended) <= looked_at + 2 * concurrency


async def test_calls_that_are_slow() -> None:
    """No more items are taken than are worked on."""
    work, source = Work(), Source()
    results = fan_out(work, source, 3)
    first = asyncio.ensure_future(anext(results))
    await until(lambda: len(work.begun) == 3)
    await turns()
    assert (3, [1, 2, 3]) == (source.taken, work.begun)
    work.release()
    await first
    await results.aclose()


async def test_a_call_that_fails() -> None:
    """Its error is its result, and stops no other."""

    async def work(item: int) -> int:
        if item % 2:
            raise ValueError(item)
        return item

    pairs = dict([pair async for pair in fan_out(work, range(6), 2)])
    assert [0, "1", 2, "3", 4, "5"] == [str(pairs[n]) if n % 2 else pairs[n] for n in range(6)]
    assert {ValueError} == {type(pairs[n]) for n in (1, 3, 5)}


@pytest.mark.parametrize("error", [StopAsyncIteration, StopIteration, TimeoutError])
async def test_a_call_that_fails_strangely(error: type[Exception]) -> None:
    """Not even an error that ends loops ends this one, nor an exception of a plain function."""

    def work(item: int) -> "asyncio.Future[int]":
        if item == 1:
            raise error
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(item)
        return done

    pairs = dict([pair async for pair in fan_out(work, range(4), 2)])
    assert {0, 1, 2, 3} == set(pairs)
    assert isinstance(pairs[1], error)


async def test_a_loop_that_is_left_early() -> None:
    """No further item is taken, and the calls under way end as they would have."""
    work, source = Work(), Source()
    results = fan_out(work, source, 3)
    first = asyncio.ensure_future(anext(results))
    await until(lambda: len(work.begun) == 3)
    work.release()
    await first
    begun = list(work.begun)
    await results.aclose()
    assert [] == work.cancelled
    assert sorted(work.begun) == sorted(work.ended)
    assert source.taken == len(work.begun) <= len(begun) + 3


async def test_a_loop_that_is_left_while_calls_hang() -> None:
    """Leaving waits for them: they may move money."""
    gate = asyncio.Event()
    ended: list[int] = []

    async def work(item: int) -> int:
        if item:
            await gate.wait()
        ended.append(item)
        return item

    results = fan_out(work, range(100), 3)
    await anext(results)
    closing = asyncio.ensure_future(results.aclose())
    await turns()
    assert (False, [0]) == (closing.done(), ended)
    gate.set()
    await closing
    assert set(ended) <= {0, 1, 2, 3, 4}
    assert {0, 1, 2} <= set(ended)


async def test_a_loop_that_is_left_while_the_source_is_silent() -> None:
    """Leaving does not wait for an item that never comes."""
    closed: list[bool] = []

    async def silent() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    results = fan_out(Work(free=True), silent(), 3)
    assert (1, 1) == await anext(results)
    async with asyncio.timeout(60):
        await results.aclose()
    assert [True] == closed


async def test_a_cancellation() -> None:
    """It cancels the calls under way and takes no further item."""
    work, source = Work(), Source()

    async def loop() -> None:
        async with aclosing(fan_out(work, source, 3)) as results:
            async for _ in results:
                pass

    task = asyncio.ensure_future(loop())
    await until(lambda: len(work.begun) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ([1, 2, 3], [], 3) == (sorted(work.cancelled), work.ended, source.taken)


async def test_a_cancellation_while_leaving() -> None:
    """Whoever will not wait for the calls under way cancels them."""
    work = Work()

    async def one(item: int) -> int:
        return item if item == 1 else await work(item)

    results = fan_out(one, Source(), 2)
    await anext(results)
    await until(lambda: len(work.begun) == 2)
    closing = asyncio.ensure_future(results.aclose())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert ([2, 3], []) == (sorted(work.cancelled), work.ended)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_source_that_fails(concurrency: int) -> None:
    """Everything that was taken before comes first; then its error is raised."""

    def source() -> Iterator[int]:
        yield from range(5)
        raise OSError("the file ended within a row")

    seen: list[tuple[int, object]] = []
    with pytest.raises(OSError, match="within a row"):
        await gather(fan_out(Work(free=True), source(), concurrency), seen)
    assert {item: item * item for item in range(5)} == dict(seen)


async def test_an_async_source_that_fails() -> None:
    """It is the same for one that waits."""

    async def source() -> AsyncIterator[int]:
        yield 1
        raise OSError("the connection broke")

    seen: list[tuple[int, object]] = []
    with pytest.raises(OSError, match="broke"):
        await gather(fan_out(Work(free=True), source(), 3), seen)
    assert [(1, 1)] == seen


async def test_what_is_no_source() -> None:
    """The mistake is told."""
    with pytest.raises(TypeError, match="not iterable"):
        _ = [pair async for pair in fan_out(Work(free=True), 5, 2)]  # type: ignore[arg-type]


@pytest.mark.parametrize("concurrency", [0, -1])
async def test_no_concurrency(concurrency: int) -> None:
    """Nothing is taken; the message names the argument."""
    source = Source()
    with pytest.raises(ValueError, match=r"^concurrency: must be 1 or more"):
        await anext(fan_out(Work(), source, concurrency))
    assert 0 == source.taken


async def test_a_call_that_cancels_itself() -> None:
    """Its item has no result; the others come, and the end is a cancellation, not a success."""

    async def work(item: int) -> int:
        if item == 1:
            raise asyncio.CancelledError
        return item

    seen: list[tuple[int, object]] = []
    with pytest.raises(asyncio.CancelledError):
        await gather(fan_out(work, range(3), 2), seen)
    assert (0, 0) in seen
    assert 1 not in dict(seen)


async def test_no_task_is_left() -> None:
    """Whichever way it ends, nothing of it runs on."""
    before = asyncio.all_tasks()
    _ = [pair async for pair in fan_out(Work(free=True), range(9), 4)]
    results = fan_out(Work(free=True), Source(), 4)
    await anext(results)
    await results.aclose()
    assert before == asyncio.all_tasks()


class Interrupted(BaseException):
    """What is not an Exception, as KeyboardInterrupt is none."""


async def test_a_call_that_is_interrupted() -> None:
    """Its item has no result, so the loop does not end as if all were well."""

    async def interrupted(item: int) -> int:
        if item == 3:
            raise Interrupted
        return item

    seen = []
    with pytest.raises(Interrupted):  # noqa: PT012 - what came before it counts too
        async for item, _ in fan_out(interrupted, [1, 2, 3], 1):
            seen.append(item)
    assert [1, 2] == seen

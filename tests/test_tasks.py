"""The tasks of one owner: what is closed ends, whatever its work does meanwhile."""

import asyncio

import pytest

from payments_async._values.tasks import Tasks


async def test_closing_ends_what_a_task_begins_while_it_ends() -> None:
    """Work that is kept from the last step of other work ends with its owner as well."""
    tasks = Tasks("the test")

    async def standing() -> None:
        await asyncio.Event().wait()

    async def begins_another() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.keep("another", standing)

    tasks.start("one", begins_another())
    await asyncio.sleep(0)
    async with asyncio.timeout(10.0):
        await tasks.aclose()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_work_that_always_fails_is_not_waited_for_without_end() -> None:
    """Closing gives failing work one more chance to return, and goes on."""
    tasks, begun = Tasks("the test"), 0

    async def fails() -> None:
        nonlocal begun
        begun += 1
        raise RuntimeError("it always fails")

    tasks.keep("sender", fails, stands=False)
    async with asyncio.timeout(10.0):
        await tasks.returned("sender")
        await tasks.aclose()
    assert begun == 2


async def test_work_that_failed_once_returns_when_it_is_waited_for() -> None:
    """What ended by a mistake begins again at once, without its pause, and is waited for."""
    tasks, done = Tasks("the test"), []

    async def fails_first() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise RuntimeError("once")

    tasks.keep("sender", fails_first, stands=False)
    async with asyncio.timeout(10.0):
        await tasks.returned("sender")
    assert done == [0, 1]
    await tasks.aclose()


async def test_tasks_of_another_event_loop_are_not_waited_for() -> None:
    """Neither those of another thread, nor those of the process that this one was forked from."""
    tasks = Tasks("the receiver")
    tasks.keep("watch", asyncio.Event().wait)

    async def close_elsewhere() -> None:
        with pytest.raises(RuntimeError, match="the receiver was begun in another event loop"):
            tasks.stop("watch")
        with pytest.raises(RuntimeError, match="before this process was forked"):
            await tasks.aclose()

    async with asyncio.timeout(30.0):
        await asyncio.to_thread(asyncio.run, close_elsewhere())
    await tasks.aclose()

"""The places of a gate: who comes first goes first, and no place is lost or doubled, whoever is broken off."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payments_async._session.limits import Gate, Limits

PATIENCE = 60.0
STEPS = st.lists(st.tuples(st.sampled_from(("come", "leave", "cancel", "settle")), st.integers(0, 20)), max_size=40)


def gate(places: int) -> Gate:
    """A gate with so many places and no rate."""
    return Gate(Limits(concurrency=places), clock=time.monotonic, sleep=asyncio.sleep)


class Visitors:
    """Tasks that come to a place, and the numbers of those that have one."""

    def __init__(self, enter: Callable[[], Awaitable[object]], leave: Callable[[], None]) -> None:
        self._enter = enter
        self._leave = leave
        self.tasks: list[asyncio.Task[None]] = []
        self.inside: list[int] = []

    def come(self) -> None:
        self.tasks.append(asyncio.create_task(self._visit(len(self.tasks))))

    def leave(self, which: int) -> None:
        if self.inside:
            self.inside.remove(sorted(self.inside)[which % len(self.inside)])
            self._leave()

    def cancel(self, which: int) -> None:
        if self.tasks:
            self.tasks[which % len(self.tasks)].cancel()

    async def settle(self) -> tuple[int, ...]:
        """Those inside once nothing moves any more, and nobody has come or gone meanwhile."""
        for _ in range(2 * len(self.tasks) + 5):
            await asyncio.sleep(0)
        return tuple(sorted(self.inside))

    async def _visit(self, number: int) -> None:
        await self._enter()
        self.inside.append(number)


def at_gate(places: int) -> Visitors:
    """Visitors of a gate."""
    held = gate(places)
    return Visitors(lambda: held.enter(PATIENCE), held.leave)


def at_semaphore(places: int) -> Visitors:
    """Visitors of asyncio's own semaphore."""
    held = asyncio.Semaphore(places)
    return Visitors(held.acquire, held.release)


async def history(visitors: Visitors, places: int, steps: list[tuple[str, int]]) -> list[tuple[int, ...]]:
    """Who was inside whenever all was settled; in the end everybody goes, and one more comes than there are places."""
    seen = []
    for step, which in steps:
        match step:
            case "come":
                visitors.come()
            case "leave":
                visitors.leave(which)
            case "cancel":
                visitors.cancel(which)
            case _:
                seen.append(await visitors.settle())
    for number in range(len(visitors.tasks)):
        visitors.cancel(number)
    seen.append(await visitors.settle())
    while visitors.inside:
        visitors.leave(0)
    for _ in range(places + 1):
        visitors.come()
    seen.append(await visitors.settle())
    visitors.tasks[-1].cancel()
    await asyncio.gather(*visitors.tasks, return_exceptions=True)
    return seen


@given(places=st.integers(1, 4), steps=STEPS)
def test_a_gate_lets_in_whom_a_semaphore_would(places: int, steps: list[tuple[str, int]]) -> None:
    """The same ones, after any comings, goings and cancellations, in between as well; and every place comes back."""

    async def both() -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        expected = await history(at_semaphore(places), places, steps)
        return expected, await history(at_gate(places), places, steps)

    expected, actual = asyncio.run(both())
    assert expected == actual
    assert places == len(actual[-1])


async def test_who_comes_first_goes_first() -> None:
    """Each place that is given back goes to whoever has waited longest."""
    visitors = at_gate(2)
    for _ in range(6):
        visitors.come()
    turns = [await visitors.settle()]
    for _ in range(4):
        visitors.leave(0)
        turns.append(await visitors.settle())
    assert [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)] == turns


async def test_nobody_slips_in_before_who_was_just_given_a_place() -> None:
    """A place that was handed on is taken, although its new holder has not run yet."""
    visitors = at_gate(1)
    visitors.come()
    visitors.come()
    await visitors.settle()
    visitors.leave(0)
    visitors.come()
    assert (1,) == await visitors.settle()
    visitors.leave(0)
    assert (2,) == await visitors.settle()


async def test_who_is_cancelled_in_line_is_passed_over() -> None:
    """The next one goes in its stead, whether the cancelled one has run since or not."""
    visitors = at_gate(1)
    for _ in range(4):
        visitors.come()
    await visitors.settle()
    visitors.cancel(1)
    await visitors.settle()
    visitors.cancel(2)
    visitors.leave(0)
    assert (3,) == await visitors.settle()


async def test_who_is_cancelled_with_a_place_on_its_way_hands_it_on() -> None:
    """Given a place and cancelled in the same turn of the loop: the place goes to the next, and then comes back."""
    visitors = at_gate(1)
    for _ in range(3):
        visitors.come()
    await visitors.settle()
    visitors.leave(0)
    visitors.cancel(1)
    assert (2,) == await visitors.settle()
    with pytest.raises(asyncio.CancelledError):
        await visitors.tasks[1]
    visitors.leave(0)
    visitors.come()
    assert (3,) == await visitors.settle()


async def test_a_wait_that_is_thrown_away_leaves_the_line() -> None:
    """A coroutine that is closed while it waits takes no place with it."""
    held = gate(1)
    assert 0.0 == await held.enter(PATIENCE)
    thrown_away = held.enter(PATIENCE)
    thrown_away.send(None)
    thrown_away.close()
    held.leave()
    assert 0.0 == await asyncio.wait_for(held.enter(PATIENCE), 60)

"""The clocks of a simulated machine, or of one process on it: wrong, set, or standing while the machine sleeps."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from payments_async.testing._simulation.loops import SimulatedLoop
from payments_async.testing._simulation.processes import CURRENT, Process


@attrs.define(eq=False)
class Clocks:
    """By how many seconds each clock differs from true time.

    Attributes:
        wall: The one that can be set.
        ticks: The one that only grows, and stands while the machine sleeps (CLOCK_MONOTONIC).
        boot: The one that only grows, also while the machine sleeps (CLOCK_BOOTTIME).
    """

    wall: float = 0.0
    ticks: float = 0.0
    boot: float = 0.0


def sleep(
    loop: SimulatedLoop, processes: Callable[[], Sequence[Process]], seconds: float, clocks: Clocks, *, is_told: bool
) -> Callable[[], None]:
    """Let a machine stand still; what is returned wakes it at once, which it does by itself after so many seconds.

    Timers go on with what was left of them.

    Args:
        processes: Those that run on it.
        is_told: Its clocks show afterwards that time went by, but for the one that stands: it slept. Else its host has
            paused it, and none shows it.
    """
    began, asleep = loop.now, list(processes())
    for process in asleep:
        process.stop()

    def wake() -> None:
        woken, asleep[:] = asleep[:], []
        if not woken:
            return
        lasted = loop.now - began
        clocks.ticks -= lasted
        if not is_told:
            clocks.wall -= lasted
            clocks.boot -= lasted
        _put_off(loop, woken, lasted)
        for process in woken:
            if not process.is_dead:
                process.go_on()

    loop.call_later(seconds, wake)
    return wake


def _put_off(loop: SimulatedLoop, processes: Sequence[Process], seconds: float) -> None:
    """Let timers of processes go off later, those too that were due while they stood still."""
    held = [handle for process in processes for handle in process.held]
    due = [handle for handle in held if isinstance(handle, asyncio.TimerHandle)]
    for process in processes:
        process.held = [handle for handle in process.held if not isinstance(handle, asyncio.TimerHandle)]
    timers, loop._timers = loop._timers + [(timer.when(), next(loop._asked), timer) for timer in due], []
    for when, number, timer in timers:
        if timer in due or _owner(timer) in processes:
            timer._when += seconds  # type: ignore[attr-defined]
            when += seconds
        heapq.heappush(loop._timers, (when, number, timer))


def _owner(handle: Any) -> Process | None:
    process: Process | None = handle._context.get(CURRENT)
    return process

"""Run by its path, as the first thing of an interpreter: replaces the clocks, then runs the module that it is told.

    python start.py MODULE ARGUMENT...

Whatever is imported later takes these clocks for its defaults. Sets have one order in every run: hashes of texts are
fixed, and so are the addresses of objects, where the system lets it.
"""

import ctypes
import os
import runpy
import sys
import time
from typing import Any

_NO_RANDOM_ADDRESSES = 0x0040000


def replace_clocks(running: list[Any]) -> None:
    """Let the clocks of ``time`` ask the loop in ``running``, as long as one is in there."""
    real_time, real_ticks, real_gettime = time.time, time.monotonic, time.clock_gettime

    def wall_clock() -> float:
        return running[0].wall_clock if running else real_time()

    def ticks() -> float:
        return running[0].ticks if running else real_ticks()

    def gettime(clock: int) -> float:
        if not running:
            return real_gettime(clock)
        shown = running[0].boot_ticks if clock == getattr(time, "CLOCK_BOOTTIME", None) else running[0].ticks
        return float(shown)

    time.time, time.monotonic, time.perf_counter, time.clock_gettime = wall_clock, ticks, ticks, gettime
    vars(time)["real_monotonic"] = real_ticks


def main() -> None:
    """Begin anew without randomness, then run the module."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        ctypes.CDLL(None).personality(_NO_RANDOM_ADDRESSES)
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606
    running: list[Any] = []
    replace_clocks(running)
    vars(time)["running"] = running
    del sys.argv[0]
    sys.path[0] = os.getcwd()  # noqa: PTH109
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

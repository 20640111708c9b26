"""Run simulations.

tests/simulate 0 100          the seeds from 0 to 99, two at a time
tests/simulate 17 --show      one seed, with its time line
tests/simulate 17 --postgres  one seed, whose journal is in PostgreSQL
tests/simulate 17 --reduce    one seed, made smaller as long as it fails
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from simulation.machines import Machine
from simulation.plans import Plan
from simulation.worlds import World, world_of

from payments_async.testing._simulation.machine import simulate


def real_seconds() -> float:
    """Seconds by the computer's own clock, which ``start`` has kept."""
    return float(vars(time)["real_monotonic"]())


def run(plan: Plan, *, shows: bool = False) -> dict[str, Any]:
    """Run a plan here. Only once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    if shows:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    else:
        logging.disable(logging.CRITICAL)
    made: list[World] = []
    faults: list[str] = []
    server, prepare, machine_of = None, lambda _: None, Machine
    if plan.is_postgres:
        from simulation import databases

        server = databases.server_of(plan)
        prepare, machine_of = server.install, partial(databases.Database, server=server)
    try:
        loop = simulate(plan.seed, world_of(plan, folder, made, machine_of), prepare=prepare)
    except BaseException:  # noqa: BLE001 - whatever it is, it fails the seed
        faults.append(traceback.format_exc())
        loop = made[0].loop
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if server is not None:
            server.close()
    world = made[0]
    return {
        "seed": plan.seed,
        "faults": faults + world.faults,
        "trace": loop.trace.hexdigest(),
        "steps": loop.steps,
        "seconds": round(loop.now, 3),
        "line": world.line,
        "states": sorted(entry.state.value for entry in world.states.values()),
    }


def forked(plan: Plan, *, shows: bool = False) -> tuple[int, int]:
    """Run a plan in a child; its process id, and where it says what came of it."""
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    os.close(reads)
    status = 1
    try:
        with os.fdopen(writes, "w") as told:
            json.dump(run(plan, shows=shows), told)
        status = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def result_of(child: int, reads: int, seed: int) -> dict[str, Any]:
    """Wait for a child."""
    with os.fdopen(reads) as told:
        text = told.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {"seed": seed, "faults": ["it died"], "trace": "", "line": []}


def reduced(plan: Plan) -> Plan:
    """The smallest plan found that still fails."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in plan.smaller():
            if result_of(*forked(candidate), candidate.seed)["faults"]:
                plan, is_smaller = candidate, True
                print("still fails:", plan, flush=True)
                break
    return plan


def plans_of(*, is_postgres: bool) -> Callable[[int], Plan]:
    """What draws plans; for PostgreSQL its server is started before anything is forked."""
    if not is_postgres:
        return Plan.drawn
    from simulation import databases

    databases.place()
    return lambda seed: databases.with_database(Plan.drawn(seed))


def main() -> int:
    """Run what the arguments say; 1 where a seed failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--reduce", action="store_true")
    parser.add_argument("--trace", action="store_true", help="say what two runs of a seed have in common")
    parser.add_argument("--without", default="", help="faults that do not exist, by commas")
    parser.add_argument("--having", default="", help="only seeds in which one of these blows falls, by commas")
    parser.add_argument("--postgres", action="store_true", help="the journal is in PostgreSQL")
    chosen = parser.parse_args()
    drawn = plans_of(is_postgres=chosen.postgres)
    seeds: Sequence[int] = range(chosen.first, (chosen.first + 1) if chosen.last is None else chosen.last)
    if chosen.having:
        seeds = [seed for seed in seeds if any(b.kind in chosen.having.split(",") for b in drawn(seed).blows)]
    gone = set(filter(None, chosen.without.split(",")))
    begun, failed, running = real_seconds(), 0, []
    todo = list(reversed(seeds))
    steps = 0
    while todo or running:
        while todo and len(running) < chosen.jobs:
            plan = drawn(todo.pop())
            if gone:
                kept = tuple(fault for fault in plan.faults if fault not in gone)
                plan = attrs.evolve(plan, faults=kept, blows=tuple(b for b in plan.blows if b.kind not in gone))
            running.append((plan, *forked(plan, shows=chosen.show)))
        plan, child, reads = running.pop(0)
        result = result_of(child, reads, plan.seed)
        steps += result.get("steps", 0)
        if chosen.show:
            print(plan, *result["line"], sep="\n")
            print({key: value for key, value in result.items() if key not in ("line",)})
        if chosen.trace:
            print("trace", plan.seed, result["trace"])
        if result["faults"]:
            failed += 1
            print("FAILED:", plan, *result["faults"], sep="\n    ", flush=True)
            if chosen.reduce:
                print("REDUCED:", reduced(plan))
    took = real_seconds() - begun
    print(f"{len(seeds)} seeds, {failed} failed, {steps} steps, {took:.1f} s, {60 * len(seeds) / took:.0f} a minute")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Run simulations.

tests/simulate 0 100          the seeds from 0 to 99, two at a time
tests/simulate 0 1000000      a million; it stops at the fifth failure, and prints how fast it is
tests/simulate 17 --show      one seed, with its time line
tests/simulate 17 --postgres  one seed, whose journal is in PostgreSQL
tests/simulate 17 --reduce    one seed, made smaller as long as it fails
tests/simulate --regressions  the plans that failed once
tests/simulate --guards       the plans in which a guard is needed
tests/simulate "Plan(...)"    a plan as it was printed
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import resource
import select
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from machine import keep_files_in_memory
from simulation.columns import drawn
from simulation.machines import Machine
from simulation.plans import Blow, Plan
from simulation.seeds import GUARDS, SEEDS
from simulation.warming import warm_up
from simulation.worlds import World, world_of

from payments_async.testing._simulation.machine import simulate

_MOST = 5  # failures after which it stops
_TRIES = 8  # seeds of a plan that needs a guard
_TELL = 60.0  # seconds between two lines about how far it is


def real_seconds() -> float:
    """Seconds by the computer's own clock, which ``start`` has kept."""
    return float(vars(time)["real_monotonic"]())


def run(plan: Plan, *, shows: bool = False) -> dict[str, Any]:
    """Run a plan here. Only once in a process."""
    keep_files_in_memory()
    folder = Path(tempfile.mkdtemp(prefix="simulation-"))
    made: list[World] = []
    faults: list[str] = []
    if shows:
        logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[_Told(made)])
    else:
        logging.disable(logging.CRITICAL)
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
        "faults": faults + world.faults,
        "trace": loop.trace.hexdigest(),
        "steps": loop.steps,
        "seconds": round(loop.now, 3),
        "line": world.line if shows else [],
    }


class _Told(logging.Handler):
    """What the package logs, as a part of the time line."""

    def __init__(self, made: list[World]) -> None:
        super().__init__()
        self._made = made

    def emit(self, record: logging.LogRecord) -> None:
        from payments_async.testing._simulation.processes import CURRENT

        world = self._made[0]
        world.line.append((world.loop.time(), str(CURRENT.get()), f"({record.getMessage()})"))


def begin(plan: Plan, *, shows: bool = False) -> tuple[int, int]:
    """Run a plan in a child; its process id, and where it says what came of it."""
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    os.close(reads)
    try:
        with os.fdopen(writes, "w") as told:
            json.dump(run(plan, shows=shows), told)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def result_of(child: int, reads: int) -> dict[str, Any]:
    """Wait for a child."""
    with os.fdopen(reads) as told:
        text = told.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {"faults": ["it died"], "trace": "", "line": [], "steps": 0}


def results(plans: Iterable[Plan], jobs: int, *, shows: bool = False) -> Iterator[tuple[Plan, dict[str, Any]]]:
    """Run plans, so many at once; as they end."""
    todo, running = iter(plans), dict[int, tuple[Plan, int]]()
    while True:
        while len(running) < jobs and (plan := next(todo, None)) is not None:
            child, reads = begin(plan, shows=shows)
            running[reads] = plan, child
        if not running:
            return
        for reads in select.select(list(running), [], [])[0]:
            plan, child = running.pop(reads)
            yield plan, result_of(child, reads)


def reduced(plan: Plan, jobs: int) -> Plan:
    """The smallest plan found that still fails."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate, result in results(plan.smaller(), jobs):
            if result["faults"] and not is_smaller:
                plan, is_smaller = candidate, True
                print("still fails:", plan, result["faults"][0][:150], flush=True)
                break
    return plan


def tried(plan: Plan) -> Iterator[Plan]:
    """A plan, and the same with the seeds that follow: what is drawn in it changes with the package."""
    yield from (attrs.evolve(plan, seed=plan.seed + number) for number in range(_TRIES))


def plans_of(chosen: argparse.Namespace) -> Iterator[Plan]:
    """The plans that the arguments ask for."""
    if chosen.regressions:
        yield from (plan for plan, _ in SEEDS)
        return
    if chosen.guards:
        yield from GUARDS.values()
        return
    if chosen.guard in GUARDS:
        yield from tried(GUARDS[chosen.guard])
    if chosen.first.startswith("Plan("):
        yield eval(chosen.first, {"Plan": Plan, "Blow": Blow})  # noqa: S307 - a developer's own command line
        return
    first, of = int(chosen.first), Plan.drawn
    if chosen.postgres:
        from simulation import databases

        databases.place()  # its server is started before anything is forked
        of = lambda seed: databases.with_database(Plan.drawn(seed))  # noqa: E731
    gone = set(filter(None, chosen.without.split(",")))
    for seed in range(first, (first + 1) if chosen.last is None else chosen.last):
        plan = of(seed)
        if chosen.having and not any(blow.kind in chosen.having.split(",") for blow in plan.blows):
            continue
        kept = tuple(fault for fault in plan.faults if fault not in gone)
        yield attrs.evolve(plan, faults=kept, blows=tuple(b for b in plan.blows if b.kind not in gone))


def main() -> int:
    """Run what the arguments say; 1 where a seed failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("first", nargs="?", default="0", help="a seed, or a plan as it was printed")
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--reduce", action="store_true")
    parser.add_argument("--regressions", action="store_true")
    parser.add_argument("--guards", action="store_true")
    parser.add_argument("--guard", default="", help="of a mutant: the plan that needs it comes first")
    parser.add_argument("--trace", action="store_true", help="say what two runs of a seed have in common")
    parser.add_argument("--most", type=int, default=_MOST, help="failures after which it stops")
    parser.add_argument("--without", default="", help="faults that do not exist, by commas")
    parser.add_argument("--having", default="", help="only seeds in which one of these blows falls, by commas")
    parser.add_argument("--postgres", action="store_true", help="the journal is in PostgreSQL")
    chosen = parser.parse_args()
    warm_up()
    gc.freeze()  # a child that never collects leaves these pages to its parent
    begun = told = real_seconds()
    count = failed = steps = 0

    def rate() -> str:
        took, used = real_seconds() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        return (
            f"{count} seeds, {failed} failed, {steps} steps, {took:.1f} s, "
            f"{60 * count / max(took, 1e-9):.0f} a minute, {60 * count / max(cpu, 1e-9):.0f} a minute of one core"
        )

    for plan, result in results(plans_of(chosen), chosen.jobs, shows=chosen.show):
        count, steps = count + 1, steps + result["steps"]
        if chosen.show:
            print(plan, *drawn([tuple(one) for one in result["line"]]), sep="\n")
        if chosen.trace:
            print("trace", plan.seed, result["trace"])
        if result["faults"]:
            failed += 1
            print("FAILED:", plan, *result["faults"], sep="\n    ", flush=True)
            again = f"{plan.seed}{' --postgres' if chosen.postgres else ''}"
            is_drawn = chosen.postgres or plan == Plan.drawn(plan.seed)
            print(f"    again: tests/simulate {again if is_drawn else repr(plan.text)} --show")
            if chosen.reduce:
                print("REDUCED:", reduced(plan, chosen.jobs).text, flush=True)
            if failed >= chosen.most:
                break
        if real_seconds() - told >= _TELL:
            told = real_seconds()
            print(rate(), flush=True)
    print(rate())
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

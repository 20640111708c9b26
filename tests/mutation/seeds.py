"""The simulation as a judge: run by ``start.py``, it forks each mutant off, which imports the package and forks seeds off.

    python start.py mutation.seeds FIRST COUNT LIMIT NAME...

Says for each mutant, in a line of JSON, what ``patches.in_a_child`` gives.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from mutation import rooms
from mutation.mutants import MUTANTS, Mutant
from mutation.patches import LONGEST, WARM, import_changed, in_a_child


def plans_of(mutant: Mutant, first: int, count: int) -> Iterator[Any]:
    """The plans that may notice a mutant: first one that needs its guard, then those in which there is what it is for.

    With a real database where needed.
    """
    plans = importlib.import_module("simulation.plans")
    drawn = filter(partial(is_needed, rooms.faults(mutant.file)), map(plans.Plan.drawn, itertools.count(first)))
    wanted: Iterator[Any] = itertools.islice(drawn, count)
    if (needed := importlib.import_module("simulation.seeds").GUARDS.get(mutant.name)) is not None:
        wanted = itertools.chain(importlib.import_module("simulation.__main__").tried(needed), wanted)
    if mutant.file in rooms.DATABASES:
        databases = importlib.import_module("simulation.databases")
        databases.place()  # its server is started before a seed is forked off
        return map(databases.with_database, wanted)
    return wanted


def is_needed(faults: tuple[str, ...], plan: Any) -> bool:
    """Whether one of these faults strikes in a plan, and nothing in it looks so often that it takes long."""
    plans, machines = importlib.import_module("simulation.plans"), importlib.import_module("simulation.machines")
    struck = {blow.kind for blow in plan.blows} | (set(plan.faults) - {*plans.BLOWS, *machines.MACHINE})
    return not plan.hurries and (not faults or not struck.isdisjoint(faults))


def first_failure(mutant: Mutant, first: int, count: int) -> str:
    """Run plans until something is wrong in one; what that is."""
    simulation = importlib.import_module("simulation.__main__")
    logging.disable(logging.CRITICAL)
    simulation.warm_up()
    gc.freeze()
    for plan, result in simulation.results(plans_of(mutant, first, count), 1):
        if result["faults"]:
            return f"seed {plan.seed}: {result['faults'][0].strip().splitlines()[-1]}"[:LONGEST]
    return ""


def main() -> None:
    """Judge the mutants that the arguments name."""
    first, count, limit = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    for name in WARM:
        with suppress(ImportError):
            importlib.import_module(name)
    for mutant in MUTANTS:
        if mutant.name in sys.argv[4:]:
            judge = partial(first_failure, mutant, first, count)
            print(json.dumps([mutant.name, *in_a_child(mutant, judge, limit, import_changed)]), flush=True)


if __name__ == "__main__":
    main()

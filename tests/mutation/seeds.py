"""The simulation as a judge, without starting anew: run by ``start.py``, it forks each mutant off, and its seeds off that.

    python start.py mutation.seeds FIRST COUNT LIMIT NAME...

Says for each mutant, in a line of JSON, what ``patches.in_a_child`` gives.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from mutation import rooms
from mutation.mutants import MUTANTS, Mutant
from mutation.patches import LONGEST, in_a_child
from simulation import databases
from simulation.__main__ import results
from simulation.machines import MACHINE
from simulation.plans import BLOWS, Plan

from payments_async.testing._simulation.machine import warm_up


def plans_of(mutant: Mutant, first: int, count: int) -> Iterator[Plan]:
    """The plans that may notice a mutant: in which there is what its guard is for, and a real database where needed."""
    drawn = filter(partial(is_needed, rooms.faults(mutant.file)), map(Plan.drawn, itertools.count(first)))
    of = databases.with_database if mutant.file in rooms.DATABASES else lambda plan: plan
    return map(of, itertools.islice(drawn, count))


def is_needed(faults: Sequence[str], plan: Plan) -> bool:
    """Whether one of these faults strikes in a plan, and nothing in it looks so often that it takes long."""
    struck = {blow.kind for blow in plan.blows} | (set(plan.faults) - {*BLOWS, *MACHINE})
    return not plan.hurries and (not faults or not struck.isdisjoint(faults))


def first_failure(plans: Iterable[Plan]) -> str:
    """Run plans until something is wrong in one; what that is."""
    for plan, result in results(plans, 1):
        if result["faults"]:
            return f"seed {plan.seed}: {result['faults'][0].strip().splitlines()[-1]}"[:LONGEST]
    return ""


def main() -> None:
    """Judge the mutants that the arguments name."""
    first, count, limit = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    chosen = [mutant for mutant in MUTANTS if mutant.name in sys.argv[4:]]
    if any(mutant.file in rooms.DATABASES for mutant in chosen):
        databases.place()  # its server is started before anything is forked
    logging.disable(logging.CRITICAL)
    warm_up()
    gc.freeze()
    for mutant in chosen:
        plans = plans_of(mutant, first, count)
        words, seconds = in_a_child(mutant, lambda plans=plans: first_failure(plans), limit)
        print(json.dumps([mutant.name, words, seconds]), flush=True)


if __name__ == "__main__":
    main()

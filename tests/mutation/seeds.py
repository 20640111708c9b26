"""The simulation as a judge, without starting anew: run by ``start.py``, it forks each mutant off, and its seeds off that.

    python start.py mutation.seeds FIRST LAST LIMIT NAME...

Says for each mutant, in a line of JSON, what ``patches.in_a_child`` gives.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
from collections.abc import Iterable

from mutation.mutants import MUTANTS, Mutant
from mutation.patches import LONGEST, in_a_child
from mutation.rooms import DATABASES
from simulation import databases
from simulation.__main__ import results
from simulation.plans import Plan

from payments_async.testing._simulation.machine import warm_up


def plans_of(mutant: Mutant, first: int, last: int) -> Iterable[Plan]:
    """The plans that may notice a mutant: with a real database where its file speaks to one."""
    drawn = (Plan.drawn(seed) for seed in range(first, last))
    return map(databases.with_database, drawn) if mutant.file in DATABASES else drawn


def first_failure(plans: Iterable[Plan]) -> str:
    """Run plans until something is wrong in one; what that is."""
    for plan, result in results(plans, 1):
        if result["faults"]:
            return f"seed {plan.seed}: {result['faults'][0].strip().splitlines()[-1]}"[:LONGEST]
    return ""


def main() -> None:
    """Judge the mutants that the arguments name."""
    first, last, limit = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    chosen = [mutant for mutant in MUTANTS if mutant.name in sys.argv[4:]]
    if any(mutant.file in DATABASES for mutant in chosen):
        databases.place()  # its server is started before anything is forked
    logging.disable(logging.CRITICAL)
    warm_up()
    gc.freeze()
    for mutant in chosen:
        plans = plans_of(mutant, first, last)
        words, seconds = in_a_child(mutant, lambda plans=plans: first_failure(plans), limit)
        print(json.dumps([mutant.name, words, seconds]), flush=True)


if __name__ == "__main__":
    main()

"""Run a plan with a rule that most queues have: what an expired lease left under way is due again. It pays twice."""

from __future__ import annotations

from bulk.lives import break_rule_two
from simulation.__main__ import begin, result_of
from simulation.plans import Blow, Plan


def main() -> None:
    """Run it until something is wrong, and say what."""
    break_rule_two()
    for seed in range(20):
        kills = tuple(Blow(6.0 + 5.0 * turn, "kill", turn % 2, 1.0) for turn in range(10))
        plan = Plan(seed=seed, orders=8, applications=2, faults=("slow_line", "slow", "notify_lost"), blows=kills)
        if faults := result_of(*begin(plan))["faults"]:
            print(seed, *faults, sep="\n")
            return


if __name__ == "__main__":
    main()

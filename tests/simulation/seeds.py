"""Plans that failed once, with what each has found. They are run in the quick tests."""

from __future__ import annotations

from collections.abc import Sequence

from simulation.plans import Blow, Plan

SEEDS: Sequence[tuple[Plan, str]] = (
    (
        Plan(
            seed=13, orders=12, batch=3, applications=2, faults=("error_after", "notify_lost", "no_total", "cancel"),
            blows=(Blow(33.968, "cancel", 1),),
        ),
        "judge: lists that never count their rows settle nothing that no notification has told",
    ),
    (
        Plan(
            seed=5, orders=4, batch=3, handlers=3, trouble=300.0, confirms=True,
            faults=("lost_before", "notify_late", "notify_repeated", "late", "ignores_status_filter", "crash_points"),
        ),
        "judge: a process that has just begun is not at rest, and hears of what was settled while all was closed",
    ),
    (
        Plan(seed=38, orders=9, batch=6, batches=2, gifts=4, faults=("twice", "unstable", "no_total", "kill")),
        "judge: a notification whose answer came twice may stand for another one that was not stored",
    ),
    (
        Plan(
            seed=6, orders=3, trouble=10.0, faults=("late", "replace"),
            blows=(Blow(9.372, "replace", 1, 0.5, "forgotten"),),
        ),
        "a journal that no machine remembers was taken for the one in whose place it was put",
    ),
    (
        Plan(
            seed=1, orders=4, trouble=10.0, faults=("late", "lose", "put_back"),
            blows=(Blow(8.0, "put_back", 0, 1.655, "state over"), Blow(8.1, "lose", 0, 0.1, "log")),
        ),
        "a journal that was put back to before its first batch held nothing back that was begun in it",
    ),
    (
        Plan(
            seed=65, orders=2, batch=3, trouble=10.0, faults=("slow_line", "put_back"),
            blows=(Blow(0.078, "copy", 2, 5.7, "bare"), Blow(2.773, "put_back", 1, 0.039, "file replaced while open")),
        ),
        "judge: a batch that stands planned in a journal is not given up by those who know how it stands",
    ),
)  # fmt: skip

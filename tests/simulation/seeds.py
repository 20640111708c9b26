"""Plans that failed once, with what each has found; they are run in the quick tests. And plans that need a guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

# By the name of a mutant of ``mutation.mutants``: a plan in which what it leaves out is needed. The mutant is tried in
# this one first, and with the seeds that follow.
_AWAITED = Plan(
    seed=18, orders=10, grace=30.0, faults=("late", "deaf", "power_cut", "clock", "put_back"),
    blows=(Blow(21.322, "power_cut", 3, 147.76), Blow(46.629, "put_back", 2, 9.269, "file over")),
)  # fmt: skip
GUARDS: Mapping[str, Plan] = {
    **dict.fromkeys(("awaits-any-list", "awaits-a-list-without-ours"), _AWAITED),
    "outbox-keeps-no-sightings": Plan(seed=0, orders=4, faults=("elsewhere",)),
    "settler-keeps-no-sightings": Plan(seed=0, orders=8, faults=("elsewhere", "notify_lost")),
    "run-never-looks": Plan(seed=0, orders=1, batch=6, faults=("elsewhere",)),
    "outbox-claims-batches-unlooked-for": Plan(seed=1, orders=1, gifts=6, faults=("elsewhere",)),
    "outbox-goes-on-after-a-sleep": Plan(
        seed=14, orders=30, trouble=300.0, faults=("elsewhere", "suspend", "slow_line"),
        blows=(Blow(10.0, "suspend", 0, 100.0),),
    ),
    "run-does-not-look-after-a-sleep": Plan(
        seed=14, orders=1, batch=60, trouble=300.0, faults=("elsewhere", "suspend", "slow_line"),
        blows=(Blow(82.0, "suspend", 0, 100.0),),
    ),
    "parks-by-an-uncounted-list": Plan(seed=0, orders=6, grace=30.0, faults=("lost_before", "no_total")),
    "list-moves-what-is-being-sent": Plan(
        seed=18, orders=30, grace=30.0, faults=("lost_after", "notify_lost", "slow", "slow_line", "truncated")
    ),
    "gap-filled-by-what-a-person-did": Plan(
        seed=4, orders=30, trouble=300.0, faults=("slow_line", "put_back", "cancels"),
        blows=(Blow(20.0, "put_back", 0, 11.0, "all over"),),
    ),
    "outbox-does-not-look-on-a-new-machine": Plan(
        seed=0, orders=20, trouble=100.0, faults=("slow_line", "put_back", "lose"),
        blows=(Blow(24.0, "put_back", 0, 12.0, "folder over"), Blow(25.0, "lose", 0, 0.1, "state")),
    ),
}  # fmt: skip

"""Chaos: processes that run one batch are killed and stopped at random and at every named point."""

import ast
import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from benchmarks import chaos_copies
from benchmarks.chaos import Plan, verdict, wreak
from bulk.lives import strike, strike_all
from bulk.nursery import Child, Nursery

import payments_async
from payments_async.journal.contract import CRASH_POINTS

_QUEUE = ("submit", "_submit", "_claim", "_prune")  # an operation, by its name


def calls(name: str) -> Iterator[ast.expr]:
    """The first argument of every call of a function of that name in the package."""
    for call in all_calls():
        if name in (getattr(call.func, "attr", ""), getattr(call.func, "id", "")):
            yield from call.args[:1]


@cache
def all_calls() -> list[ast.Call]:
    """Every call in the modules that queue operations or pass points."""
    texts = [path.read_text(encoding="utf-8") for path in Path(payments_async.__file__).parent.rglob("*.py")]
    some = [text for text in texts if any(f"{name}(" in text for name in (*_QUEUE, "passed"))]  # to parse takes long
    return [node for text in some for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]


@pytest.mark.slow
def test_every_point_there_is_has_a_name_in_the_list() -> None:
    """The list is what is struck below: a point that is added to the package and not to it fails here."""
    queued = [call for name in _QUEUE for call in calls(name)]
    operations = {ast.literal_eval(name) for name in queued if isinstance(name, ast.Constant)}
    points, steps = set[str](), set[str]()
    for point in calls("passed"):
        if isinstance(point, ast.JoinedStr):  # the name of the operation, and the step
            steps.add(str(ast.literal_eval(point.values[-1])))
        else:
            points.add(ast.literal_eval(point))
    assert {".begun", ".written"} == steps
    assert set(CRASH_POINTS) == points | {name + step for name in operations for step in steps}


@pytest.mark.parametrize("wait", [Child.ended, lambda child: child.send(signal.SIGCONT)])
async def test_who_gives_up_waiting_for_a_process(wait: Callable[[Child], Awaitable[object]]) -> None:
    """Leaves it to the others to hear of it: else a process would be waited for that has ended."""
    child = Child()
    waiting = asyncio.ensure_future(wait(child))
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    assert (False, False) == (child.code.cancelled(), child.pid.cancelled())


@pytest.mark.slow
async def test_a_life_that_is_struck_is_gone_on_with(tmp_path: Path) -> None:
    """Killed, or stopped past its lease, by the system: nothing is paid twice, nothing is lost, no state is wrong.

    Here within a commit and after it, to see what the system lets go of and what it keeps. At any point:
    `simulation/test_strikes.py`, and `benchmarks/chaos.py` by the system.
    """
    assert [] == await strike_all(tmp_path, ("permit.written", "commit.done"))


@pytest.mark.slow
async def test_the_test_above_would_notice(tmp_path: Path) -> None:
    """The control: without rule 2 the same kill has an order carried out twice."""
    async with Nursery("bulk.lives") as nursery:
        found = await strike(nursery, tmp_path / "life", "permit.after_recorded", "kill", broken=True)
    assert [problem for problem in found if "was carried out twice" in problem]


@pytest.mark.slow
async def test_nothing_is_paid_twice_and_nothing_is_lost(tmp_path: Path) -> None:
    """Killed and stopped past their leases at random moments: every state agrees with the ledger."""
    plan = Plan(orders=1100, workers=2, kills=4, stops=2, delay=0.05)  # chunks for both processes
    assert [] == list(verdict(plan, await wreak(plan, tmp_path)))


@pytest.mark.slow
async def test_in_a_database_that_dies_on_lines_that_break(tmp_path: Path) -> None:
    """The same, where the server is stopped like by a power cut, and partitions part it and the service from some."""
    plan = Plan(orders=700, workers=3, kills=3, stops=2, cuts=4, restarts=1, delay=0.05, journal="postgres")
    toll = await wreak(plan, tmp_path)
    assert [] == list(verdict(plan, toll)), toll.contradictions
    assert (1, True) == (toll.restarts, toll.cuts.total() > 0)


@pytest.mark.slow
async def test_a_journal_that_was_restored_copied_lost_or_made_twice_pays_nothing_twice(tmp_path: Path) -> None:
    """Struck once in ways that need processes or a real `cp`: a person who does as told pays each once.

    What the other ways leave is tried in one process: `test_ablation.py` has some of its cells, the script the rest.
    """
    ways = ("tar over", "copy, both run", "log lost", "two journals at once")
    plan = chaos_copies.Plan(rounds=1, orders=30, strikes=ways)
    assert [] == chaos_copies.verdict(plan, await chaos_copies.wreak(plan, tmp_path))

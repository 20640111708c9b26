"""A small batch is lived through, struck once at each named point of its journal, and another process goes on."""

import json

import pytest
from simulation.strikes import strikes
from simulation.test_simulation import pytestmark, simulated

__all__ = ["pytestmark"]
PARTS = 4  # so that several processors have something to do


def found_by(*arguments: str) -> dict[str, list[str]]:
    """What is wrong after each strike."""
    found: dict[str, list[str]] = json.loads(simulated(*arguments, module="simulation.strikes"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_life_that_is_struck_at_any_point_is_gone_on_with(part: int) -> None:
    """Killed there, or stopped there past its lease: nothing is paid twice, nothing is lost, no state is wrong."""
    found = found_by(str(part), str(PARTS))
    assert [f"{point}, {blow}" for point, blow in strikes()][part::PARTS] == list(found)
    assert {} == {strike: problems for strike, problems in found.items() if problems}


@pytest.mark.slow
def test_the_test_above_would_notice() -> None:
    """The control: without rule 2 the same kill has an order carried out twice."""
    (problems,) = found_by("permit.after_recorded", "kill", "broken").values()
    assert [problem for problem in problems if "was carried out twice" in problem]

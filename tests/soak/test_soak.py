"""A soak of 12,000 orders, a minute; `python tests/soak --minutes 60` is one of an hour."""

import subprocess
import sys
from pathlib import Path

import pytest
from soak.soaking import Sample, Soak, judge

FLAT = Sample(0, 60_000_000, 60_000, 90, 80, 6, 16_000_000, 0)


def soaked(**growth: float) -> Soak:
    """One in which these grow with each order."""
    samples = [
        FLAT._replace(orders=orders, **{name: getattr(FLAT, name) + int(by * orders) for name, by in growth.items()})
        for orders in range(250, 10_001, 250)
    ]
    return Soak(samples, 0, 0, {}, {"twice": [], "once": 10_000})


@pytest.mark.slow
def test_whoever_pays_for_long_holds_no_more_than_at_first() -> None:
    """Memory, descriptors, tasks and the journal's log stay as they are, however many orders come and go wrong.

    In a process of its own: here each line of the log would be kept for the report of this test.
    """
    command = [sys.executable, Path(__file__).parent]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "growth", [{"memory": 1000.0}, {"objects": 1.0}, {"descriptors": 0.02}, {"tasks": 0.02}, {"log": 5000.0}]
)
def test_the_test_above_would_notice(growth: dict[str, float]) -> None:
    """The control: a little more with each order is told, and nothing of what stays."""
    assert [] == judge(soaked()) == judge(soaked(unsettled=0.02, objects=1.0))
    [problem] = judge(soaked(**growth))
    assert next(iter(growth)) in problem

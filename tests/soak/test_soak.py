"""A soak of 24,000 orders, some two minutes; `python tests/soak --minutes 60` is one of an hour."""

from pathlib import Path

import pytest
from soak.soaking import Sample, Soak, judge, soak

FLAT = Sample(0, 60_000_000, 60_000, 90, 80, 6, 16_000_000, 0)


def soaked(**growth: float) -> Soak:
    """One in which these grow with each order."""
    samples = [
        FLAT._replace(orders=orders, **{name: getattr(FLAT, name) + int(by * orders) for name, by in growth.items()})
        for orders in range(250, 10_001, 250)
    ]
    return Soak(samples, 0, 0, {}, {"twice": [], "once": 10_000})


@pytest.mark.slow
async def test_whoever_pays_for_long_holds_no_more_than_at_first(tmp_path: Path) -> None:
    """Memory, descriptors, tasks and the journal's log stay as they are, however many orders come and go wrong."""
    found = await soak(tmp_path, seconds=0, least=24_000)  # fewer: caches still grow
    assert [] == judge(found), found.samples
    assert found.told >= found.verdict["once"] > 0
    assert found.heard > 0


@pytest.mark.parametrize(
    "growth", [{"memory": 1000.0}, {"objects": 1.0}, {"descriptors": 0.02}, {"tasks": 0.02}, {"log": 5000.0}]
)
def test_the_test_above_would_notice(growth: dict[str, float]) -> None:
    """The control: a little more with each order is told, and nothing of what stays."""
    assert [] == judge(soaked())
    [problem] = judge(soaked(**growth))
    assert next(iter(growth)) in problem

"""Chaos for a fleet: workers are killed and stopped, and their jobs are lost and doubled."""

from pathlib import Path

import pytest
from benchmarks.chaos_fleet import Plan, verdict, wreak


@pytest.mark.slow
@pytest.mark.parametrize("embedded", [False, True], ids=["pgqueuer", "embedded"])
async def test_nothing_is_paid_twice_and_nothing_is_left(embedded: bool, tmp_path: Path) -> None:
    """Whoever dies or stands still: every order is sent once, by the others or by who comes back."""
    plan = Plan(orders=240, kills=3, stops=2, jobs=4, embedded=embedded)
    toll = await wreak(plan, tmp_path)
    assert [] == list(verdict(plan, toll)), toll.contradictions
    assert toll.blows["kills"] > 0

"""Chaos: processes that put, send and receive are killed and stopped, at the crash points of runs too."""

from pathlib import Path

import pytest
from benchmarks.chaos_outbox import Plan, verdict, wreak


@pytest.mark.slow
async def test_nothing_that_was_put_is_lost_or_paid_twice(tmp_path: Path) -> None:
    """Whoever dies or stands still: every state agrees with the ledger, and every fact was told under one id."""
    plan = Plan(orders=400, kills=6, stops=3)
    toll = await wreak(plan, tmp_path)
    assert [] == list(verdict(plan, toll)), toll.contradictions
    assert toll.kills.total() > 0


@pytest.mark.slow
async def test_in_a_database_that_dies_on_lines_that_break(tmp_path: Path) -> None:
    """The same, with orders put within transactions too, where the server dies and partitions part it from some."""
    plan = Plan(orders=100, kills=2, stops=2, cuts=6, restarts=1, journal="postgres")
    toll = await wreak(plan, tmp_path)
    assert [] == list(verdict(plan, toll)), toll.contradictions
    assert (1, 6) == (toll.restarts, toll.cuts.total())


@pytest.mark.slow
async def test_without_rule_two_orders_are_paid_twice(tmp_path: Path) -> None:
    """The control: where an expired lease makes orders planned again, the same chaos shows duplicates."""
    plan = Plan(orders=300, kills=8, stops=0, broken=True)
    assert [] == list(verdict(plan, await wreak(plan, tmp_path)))

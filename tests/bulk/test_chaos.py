"""Chaos: processes that run one batch are killed and stopped at random and at every named point."""

from pathlib import Path

import pytest
from benchmarks.chaos import Plan, verdict, wreak

pytestmark = pytest.mark.slow


async def test_nothing_is_paid_twice_and_nothing_is_lost(tmp_path: Path) -> None:
    """Killed at every point of the journal, and stopped past their leases: every state agrees with the ledger."""
    plan = Plan(orders=400, workers=2, kills=3, stops=2)
    assert [] == list(verdict(plan, await wreak(plan, tmp_path)))


async def test_without_rule_two_orders_are_paid_twice(tmp_path: Path) -> None:
    """The control: where an expired lease makes orders planned again, the same chaos shows duplicates."""
    plan = Plan(orders=700, workers=2, kills=3, stops=1, concurrency=10, points=(), broken=True)
    assert [] == list(verdict(plan, await wreak(plan, tmp_path)))

"""Runs a target for so many examples, each of them another one than last time."""

from __future__ import annotations

from fuzz.targets import Target
from hypothesis import HealthCheck, settings


def bout(target: Target, examples: int) -> None:
    """Run it; what it finds is raised, with the smallest example of it."""
    settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
    )(target.test())()

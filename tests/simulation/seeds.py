"""Plans that failed once, with what each has found. They are run in the quick tests."""

from __future__ import annotations

from collections.abc import Sequence

from simulation.plans import Plan

SEEDS: Sequence[tuple[Plan, str]] = ()

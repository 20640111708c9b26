"""The whole package in one simulated process: whatever the seed lets happen, nothing is paid twice and nothing lost."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
START = TESTS.parent / "payments_async" / "testing" / "_simulation" / "start.py"


def simulated(*arguments: str) -> str:
    """What a run of simulations says."""
    command = [sys.executable, str(START), "simulation", *arguments]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=900)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a seed has one sequence where addresses can be fixed")
def test_seeds_with_all_faults() -> None:
    """Each order is carried out once at most, ends as the service has it, and every handler is told."""
    assert " 0 failed" in simulated("0", "6")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a seed has one sequence where addresses can be fixed")
def test_seeds_with_a_real_database() -> None:
    """The same with a journal in PostgreSQL, whose sessions vanish, whose answers are lost, which is restored."""
    assert " 0 failed" in simulated("0", "4", "--postgres")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a seed has one sequence where addresses can be fixed")
def test_a_seed_has_one_sequence() -> None:
    """Two runs of a seed leave the same trace."""
    first, second = (line_of(simulated("3", "--trace")) for _ in range(2))
    assert first == second


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a seed has one sequence where addresses can be fixed")
def test_a_seed_has_one_sequence_with_a_real_database() -> None:
    """How fast the server answers is not to be seen in the trace."""
    first, second = (line_of(simulated("0", "--postgres", "--trace")) for _ in range(2))
    assert first == second


def line_of(said: str) -> str:
    """The line that tells the trace."""
    return next(line for line in said.splitlines() if line.startswith("trace "))

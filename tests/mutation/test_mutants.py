"""The list of mutants is true: each guard stands where the list says, and there are tests that concern it."""

from collections import Counter
from pathlib import Path

import pytest
from mutation import verdicts
from mutation.mutants import MUTANTS, Mutant
from mutation.rooms import concerning
from simulation.seeds import GUARDS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_a_mutant_changes_one_place() -> None:
    """Its text stands once in its file, and what takes its place is another program."""
    assert [] == [mutant.name for mutant in MUTANTS if not changes_one_place(mutant)]


def changes_one_place(mutant: Mutant) -> bool:
    """Whether a mutant is what the list says."""
    text = (ROOT / "payments_async" / mutant.file).read_text()
    changed = text.replace(mutant.old, mutant.new)
    compile(changed, mutant.file, "exec")
    return text.count(mutant.old) == 1 and changed != text


def test_each_mutant_has_a_name_of_its_own() -> None:
    """So that one of them can be asked for."""
    assert [] == [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]


def test_each_guard_has_tests() -> None:
    """Of each file with guards the tests that concern it are named, and they are there."""
    files = dict.fromkeys(mutant.file for mutant in MUTANTS)
    paths = {path for file in files for path in concerning(file) if not path.startswith("-")}
    assert [] == sorted(path for path in paths if not (ROOT / path).exists())


def test_verdicts_are_of_these_mutants() -> None:
    """What is kept of each judge is of a mutant that is there, in the sequence of the list."""
    assert [mutant.name for mutant in MUTANTS] == list(verdicts.read())


def test_no_mutant_lives_unexplained() -> None:
    """A mutant that the tests were asked about is dead, or the list says why none can tell the difference."""
    told = {name: said["contract"] for name, said in verdicts.read().items() if "contract" in said}
    lives = {name for name, words in told.items() if words == verdicts.LIVES}
    assert lives == {mutant.name for mutant in MUTANTS if mutant.equivalent and mutant.name in told}


def test_plans_that_need_a_guard_are_of_these_mutants() -> None:
    """Each is kept under the name of a mutant that is there."""
    assert GUARDS.keys() <= {mutant.name for mutant in MUTANTS}

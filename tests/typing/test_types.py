"""What the type checkers let pass and what they refuse: the other files of this folder, under each of them.

A line that must be refused carries a mark with the reason, ``# E: ...``. Everything else must pass.
"""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CASES = sorted(path for path in Path(__file__).parent.glob("*.py") if path != Path(__file__))
FILES = [str(case) for case in CASES]
MARK = re.compile(r"# E: .")

Lines = set[tuple[str, int]]


def marked() -> Lines:
    """The lines that are to be refused."""
    return {
        (case.name, number)
        for case in CASES
        for number, line in enumerate(case.read_text(encoding="utf-8").splitlines(), 1)
        if MARK.search(line)
    }


def run(tool: str, *arguments: str) -> str:
    """What a checker prints."""
    if find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed; it comes with the extra 'dev'")
    command = [sys.executable, "-m", tool, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def refused_by_mypy() -> Lines:
    """Lines with an error of ``mypy --strict``."""
    found = re.finditer(r"^(.+?):(\d+): error:", run("mypy", "--strict", "--no-pretty", *FILES), re.MULTILINE)
    return {(Path(one[1]).name, int(one[2])) for one in found}


def refused_by_pyright() -> Lines:
    """Lines with an error of pyright."""
    found = json.loads(run("pyright", "--pythonpath", sys.executable, "--outputjson", *FILES))["generalDiagnostics"]
    errors = [one for one in found if one["severity"] == "error"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors}


CHECKERS = {"mypy": refused_by_mypy, "pyright": refused_by_pyright}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_are_refused_and_nothing_else(checker: str) -> None:
    """A wrong call on the path of money is found before it runs, and a right one needs no cast."""
    assert sorted(marked()) == sorted(CHECKERS[checker]())


@pytest.mark.slow
def test_every_public_name_shows_its_type() -> None:
    """Nothing that a user touches is of a type that a checker has to guess."""
    report = json.loads(run("pyright", "--verifytypes", "payments_async", "--ignoreexternal", "--outputjson"))
    guessed = [symbol for symbol in report["typeCompleteness"]["symbols"] if not symbol["isTypeKnown"]]
    assert [] == [(symbol["name"], one["message"]) for symbol in guessed for one in symbol["diagnostics"]]


def test_there_is_something_to_refuse() -> None:
    """An empty folder would pass the test above."""
    assert {case.name for case in CASES} == {name for name, _ in marked()}

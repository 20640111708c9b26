"""Take guards away one by one, and see which judge notices.

cd tests; python -m mutation                       every mutant, by every judge until one kills it
cd tests; python -m mutation permit-without-lease  this one
cd tests; python -m mutation --controls            whether the judges judge the copy that they are given
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mutation.mutants import MUTANTS, Mutant
from mutation.rooms import CHILDREN, concerning

ROOT = Path(__file__).parent.parent.parent
COPIED = ("payments_async", "tests", "examples", "pyproject.toml", "README.md")
# Imported before a judge is forked off: a half of what a few tests cost. Nothing of the package is among them.
WARM = (
    *(
        "aiohttp.web",
        "attrs",
        "cattrs",
        "jinja2",
        "msgspec",
        "opentelemetry",
        "platformdirs",
        "psycopg",
        "rich.console",
    ),
    *("sqlite3", "typer", "yarl", "pytest", "aioresponses", "hypothesis.stateful", "pytest_asyncio.plugin"),
    *("pytest_cov.plugin", "xdist.dsession", "_hypothesis_pytestplugin"),
)
LIMIT = 900.0  # seconds for one judge of one mutant
_MOMENT = 0.05
_WARMED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # that plugins were imported before

UNCHANGED = Mutant("unchanged", "_version.py", "the tree as it is", "", "")
BROKEN = Mutant("broken", "_version.py", "a package that cannot be imported", "", "raise SystemExit('a control')\n")
BROKEN_IN_CHILDREN = Mutant(
    "broken-in-children",
    "_version.py",
    "a package that only the judge itself can import",
    "",
    "import sys\nif 'pytest' not in sys.modules:\n    raise SystemExit('a control')\n",
)


class Options(NamedTuple):
    """How judges judge.

    Attributes:
        tests: Files or folders in place of those of the mutant's room.
    """

    judges: tuple[str, ...]
    seeds: int
    tests: tuple[str, ...]
    limit: float


class Result(NamedTuple):
    """What became of one mutant.

    Attributes:
        by: The judge that killed it; empty where it survived.
        seconds: Of a processor, that all judges took.
        why: The last line that the judge said.
    """

    mutant: Mutant
    by: str
    seconds: float
    why: str

    @property
    def is_as_told(self) -> bool:
        """Whether it died, or lives as the list says it may."""
        return bool(self.by) is not bool(self.mutant.equivalent)

    def __str__(self) -> str:
        told = self.by or ("equivalent" if self.mutant.equivalent else "SURVIVED")
        return f"{self.mutant.name} | {self.mutant.guard} | {told} | {self.seconds:.0f} | {self.why}"


def explores(tree: Path, _: Mutant, options: Options) -> Sequence[str]:
    """The explorer's command."""
    return [sys.executable, "-m", "explorer"]


def simulates(tree: Path, _: Mutant, options: Options) -> Sequence[str]:
    """The simulation's command: its first seeds."""
    return [str(tree / "tests" / "simulate"), "0", str(options.seeds), "--jobs", "1"]


COMMANDS: dict[str, Callable[[Path, Mutant, Options], Sequence[str]]] = {"explorer": explores, "simulation": simulates}


def environment(tree: Path) -> dict[str, str]:
    """What a judge's processes find, so that they import the copy before an installed package."""
    return os.environ | {"PYTHONPATH": str(tree), "PYTHON": sys.executable}


def starts(tree: Path, mutant: Mutant, judge: str, options: Options) -> int:
    """Start a judge in a process group of its own, in the copy; tells its process id."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        os.setsid()
        said = os.open(tree / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(said, number)
        os.environ.update(environment(tree))
        if judge in COMMANDS:
            status = subprocess.run(COMMANDS[judge](tree, mutant, options), cwd=tree / "tests", check=False).returncode
        else:
            status = tests(tree, options.tests or concerning(mutant.file))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the judge did not let it pass
        print(repr(error), flush=True)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)


def tests(tree: Path, chosen: Sequence[str]) -> int:
    """Run these tests here, of the copy, on a file alone where a test is for each database."""
    os.chdir(tree)
    sys.path[:] = [str(tree), *(one for one in sys.path if Path(one or ".").resolve() not in (ROOT, ROOT / "tests"))]
    for name in [one for one in sys.modules if one.partition(".")[0] == "mutation"]:
        del sys.modules[name]
    pytest = importlib.import_module("pytest")
    paths = [path for path in chosen if not path.startswith("-")]
    options = [option for option in chosen if option.startswith("-")] or ["-k=not postgres"]
    quiet = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "--no-header", "--tb=line", *_WARMED)
    return int(pytest.main([*quiet, *options, *paths]))


def ends(child: int, limit: float) -> tuple[int | None, float]:
    """Wait for a judge, and end what it has left.

    Returns:
        Its status, or ``None`` where its time was over; and the seconds of a processor that it took.
    """
    until, done = time.monotonic() + limit, 0
    while not done and time.monotonic() < until:
        time.sleep(_MOMENT)
        done, raw, used = os.wait4(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not done:
        _, raw, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(raw) if done else None, used.ru_utime + used.ru_stime


def judged(mutant: Mutant, options: Options) -> Result:
    """Let one judge after the other look at a mutant, until one kills it."""
    spent, overtime = 0.0, list[str]()
    tree = Path(tempfile.mkdtemp(prefix="mutant-"))
    try:
        for name in COPIED:
            place = ROOT / name
            (shutil.copytree if place.is_dir() else shutil.copy2)(place, tree / name)
        changed = tree / "payments_async" / mutant.file
        text = changed.read_text()
        if mutant.old and text.count(mutant.old) != 1:
            raise ValueError(f"{mutant.name}: its text does not stand once in {mutant.file}")
        changed.write_text(text.replace(mutant.old, mutant.new) if mutant.old else mutant.new + text)
        for judge in options.judges:
            status, seconds = ends(starts(tree, mutant, judge, options), options.limit)
            spent += seconds
            if status is None:
                overtime.append(judge)
            elif status:
                return Result(mutant, judge, spent, last_words((tree / "said").read_text(errors="replace")))
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    late = f"no verdict in time: {', '.join(overtime)}" if overtime else ""
    return Result(mutant, "", spent, mutant.equivalent or late)


def last_words(said: str) -> str:
    """Which test failed, or the last line where none says so."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return (named or lines or ["nothing was said"])[-1 if not named else 0][:160]


def control(options: Options) -> bool:
    """Whether each judge lets the unchanged tree pass, and notices one that is broken for it, and for its children."""
    are_right = True
    for judge in options.judges:
        for mutant, dies in ((UNCHANGED, False), (BROKEN, True), (BROKEN_IN_CHILDREN, True)):
            chosen = CHILDREN if mutant is BROKEN_IN_CHILDREN or not options.tests else options.tests
            result = judged(mutant, options._replace(judges=(judge,), tests=chosen))
            is_right = bool(result.by) is dies
            are_right = are_right and is_right
            print(judge, mutant.name, "as expected" if is_right else "NOT AS EXPECTED", result.why, flush=True)
    return are_right


def _judged(task: tuple[Mutant, Options]) -> Result:
    return judged(*task)


def main() -> int:
    """Run what the arguments say; 1 where a mutant survived that is not called equivalent, or died that is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of mutants; all of a file where its path is given")
    parser.add_argument("--judges", default="explorer,simulation,contract")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=20, help="of the simulation")
    parser.add_argument("--tests", default="", help="in place of those of a mutant's room, by commas")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one judge")
    parser.add_argument("--controls", action="store_true")
    chosen = parser.parse_args()
    judges, paths = tuple(chosen.judges.split(",")), tuple(filter(None, chosen.tests.split(",")))
    options = Options(judges, chosen.seeds, paths, chosen.limit)
    for name in WARM:
        with suppress(ImportError):
            importlib.import_module(name)
    if chosen.controls:
        return int(not control(options))
    known = {name for mutant in MUTANTS for name in (mutant.name, mutant.file)}
    if unknown := set(chosen.names) - known:
        parser.error(f"unknown mutants: {', '.join(sorted(unknown))}")
    wanted = [one for one in MUTANTS if not chosen.names or {one.name, one.file} & set(chosen.names)]
    results = []
    print("name | guard | killed by | seconds | how", flush=True)
    with multiprocessing.get_context("fork").Pool(chosen.jobs) as pool:
        for result in pool.imap(_judged, [(mutant, options) for mutant in wanted]):
            results.append(result)
            print(result, flush=True)
    counts = Counter(result.by or ("equivalent" if result.mutant.equivalent else "SURVIVED") for result in results)
    print(len(results), "mutants:", ", ".join(f"{count} {by}" for by, count in counts.most_common()))
    return int(not all(result.is_as_told for result in results))


if __name__ == "__main__":
    sys.exit(main())

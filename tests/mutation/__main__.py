"""Take guards away one by one, and see which judge notices.

cd tests; python -m mutation                       every mutant, by every judge until one kills it
cd tests; python -m mutation permit-without-lease  this one
cd tests; python -m mutation --new --judges contract   those that this judge has not judged yet
cd tests; python -m mutation --quick --judges simulation --seeds 12   from one process, at a second for four seeds
cd tests; python -m mutation --controls            whether the judges judge the copy that they are given

Each verdict is kept in `verdicts.tsv` as it falls, so that a run may be stopped, and compared with one of before.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import multiprocessing.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from machine import keep_files_in_memory
from mutation import patches, verdicts
from mutation.mutants import MUTANTS, Mutant
from mutation.rooms import CHILDREN, DATABASES, comes_by, concerning
from mutation.verdicts import LIVES

ROOT = Path(__file__).parent.parent.parent
COPIED = ("payments_async", "tests", "examples", "pyproject.toml", "README.md")
LIMIT = 900.0  # seconds for one judge of one mutant
_MOMENT = 0.05
_GRAIN = 2.0  # seconds: what is compiled is known by the whole second of its source
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
        seeds, first: Of the simulation: how many, and the first.
        tests: Files or folders in place of those of the mutant's room.
        each: Every judge looks at every mutant, also at one that is dead.
    """

    judges: tuple[str, ...]
    seeds: int
    tests: tuple[str, ...]
    limit: float
    each: bool = False
    first: int = 0


class Result(NamedTuple):
    """What became of one mutant.

    Attributes:
        said: By judge what killed it, or that it lives; without those that came to no verdict.
        seconds: Of a processor, that all judges took.
        late: The judges whose time was over.
    """

    mutant: Mutant
    said: Mapping[str, str]
    seconds: float
    late: Sequence[str] = ()

    @property
    def by(self) -> str:
        """The judge that killed it first; empty where it survived."""
        return next((judge for judge, words in self.said.items() if words != LIVES), "")

    @property
    def why(self) -> str:
        """What killed it, or why it may live, or why nothing is known."""
        late = f"no verdict in time: {', '.join(self.late)}" if self.late else ""
        return self.said[self.by] if self.by else self.mutant.equivalent or late

    @property
    def is_as_told(self) -> bool:
        """Whether it died, or lives as the list says it may."""
        return bool(self.by) is not bool(self.mutant.equivalent)

    def __str__(self) -> str:
        told = self.by or ("equivalent" if self.mutant.equivalent else "unjudged" if self.late else "SURVIVED")
        return f"{self.mutant.name} | {self.mutant.guard} | {told} | {self.seconds:.0f} | {self.why}"


def explores(tree: Path, _: Mutant, options: Options) -> Sequence[str]:
    """The explorer's command."""
    return [sys.executable, "-m", "explorer"]


def simulates(tree: Path, mutant: Mutant, options: Options) -> Sequence[str]:
    """The simulation's command."""
    seeds = [str(options.first), str(options.first + options.seeds)]
    database = ["--postgres"] if mutant.file in DATABASES else []
    return [str(tree / "tests" / "simulate"), *seeds, *database, "--guard", mutant.name, "--jobs", "1", "--most", "1"]


COMMANDS: dict[str, Callable[[Path, Mutant, Options], Sequence[str]]] = {"explorer": explores, "simulation": simulates}


def environment(tree: Path) -> dict[str, str]:
    """What a judge's processes find, so that they import the copy before an installed package."""
    return os.environ | {"PYTHONPATH": str(tree), "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": ""}


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
            sys.dont_write_bytecode = False
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


class Copy:
    """The tree, copied once for all mutants of a process: what is compiled stays so but for the file that changes."""

    def __init__(self) -> None:
        keep_files_in_memory()
        self.tree = Path(tempfile.mkdtemp(prefix="mutant-"))
        for name in COPIED:
            place = ROOT / name
            if place.is_dir():
                shutil.copytree(place, self.tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(place, self.tree / name)
        self._changes = 0

    @contextmanager
    def of(self, mutant: Mutant) -> Iterator[Path]:
        """The tree with this mutant."""
        changed = self.tree / "payments_async" / mutant.file
        text, was = changed.read_text(), changed.stat()
        if mutant.old and text.count(mutant.old) != 1:
            raise ValueError(f"{mutant.name}: its text does not stand once in {mutant.file}")
        changed.write_text(text.replace(mutant.old, mutant.new) if mutant.old else mutant.new + text)
        self._changes += 1
        at = was.st_mtime + _GRAIN * self._changes
        os.utime(changed, (at, at))
        try:
            yield self.tree
        finally:
            changed.write_text(text)
            os.utime(changed, ns=(was.st_atime_ns, was.st_mtime_ns))


_COPIES: list[Copy] = []  # of this process


def judged(mutant: Mutant, options: Options) -> Result:
    """Let one judge after the other look at a mutant, until one kills it."""
    if not _COPIES:
        _COPIES.append(Copy())
        multiprocessing.util.Finalize(None, shutil.rmtree, (_COPIES[0].tree, True), exitpriority=1)
    spent, said, late = 0.0, dict[str, str](), list[str]()
    with _COPIES[0].of(mutant) as tree:
        for judge in options.judges:
            if not comes_by(judge, mutant.file):
                said[judge] = LIVES
                continue
            status, seconds = ends(starts(tree, mutant, judge, options), options.limit)
            spent += seconds
            if status is None:
                late.append(judge)
                continue
            said[judge] = last_words((tree / "said").read_text(errors="replace")) if status else LIVES
            if status and not options.each:
                break
    return Result(mutant, said, spent, late)


def last_words(said: str) -> str:
    """Which test failed, or the last line where none says so."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED", "ERROR")) or ": WRONG: " in line]
    words = (named or lines or ["nothing was said"])[-1 if not named else 0]
    return words.removeprefix("FAILED").strip(": ").split(" - ")[0].replace("\t", " ")[: patches.LONGEST]


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


def quickly_told(judge: str, mutant: Mutant, words: str | None, seconds: float) -> None:
    """Keep what a judge said of a mutant; where tests let it live they are asked once more, in a copy."""
    told = "?" if words is None else words or LIVES
    print(f"{mutant.name} | {mutant.guard} | {judge} | {seconds:.0f} | {told}", flush=True)
    if words or (words is not None and judge != "contract"):
        verdicts.keep([one.name for one in MUTANTS], {mutant.name: {judge: told}})


def _judged(task: tuple[Mutant, Options]) -> Result:
    return judged(*task)


def main() -> int:
    """Run what the arguments say; 1 where a mutant survived that is not called equivalent, or died that is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of mutants; all of a file where its path is given")
    parser.add_argument("--judges", default="explorer,simulation,contract")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=20, help="of the simulation")
    parser.add_argument("--first", type=int, default=0, help="seed of the simulation")
    parser.add_argument("--tests", default="", help="in place of those of a mutant's room, by commas")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one judge")
    parser.add_argument("--controls", action="store_true")
    parser.add_argument("--each", action="store_true", help="every judge looks at every mutant")
    parser.add_argument("--quick", action="store_true", help="in children of one process")
    parser.add_argument("--new", action="store_true", help="those alone that not all of these judges have judged")
    parser.add_argument("--living", action="store_true", help="those alone that none of these judges has killed")
    chosen = parser.parse_args()
    judges, paths = tuple(chosen.judges.split(",")), tuple(filter(None, chosen.tests.split(",")))
    options = Options(judges, chosen.seeds, paths, chosen.limit, chosen.each, chosen.first)
    for name in patches.WARM:
        with suppress(ImportError):
            importlib.import_module(name)
    if chosen.controls:
        return int(not control(options))
    known = {name for mutant in MUTANTS for name in (mutant.name, mutant.file)}
    if unknown := set(chosen.names) - known:
        parser.error(f"unknown mutants: {', '.join(sorted(unknown))}")
    wanted = [one for one in MUTANTS if not chosen.names or {one.name, one.file} & set(chosen.names)]
    if chosen.new:
        kept = verdicts.read()
        wanted = [one for one in wanted if not set(judges) <= kept.get(one.name, {}).keys()]
    if chosen.living:
        kept = verdicts.read()
        wanted = [one for one in wanted if {kept.get(one.name, {}).get(judge, LIVES) for judge in judges} == {LIVES}]
    if chosen.quick:
        for judge in judges:
            patches.JUDGES[judge](wanted, options, partial(quickly_told, judge))
        return 0
    results = []
    print("name | guard | killed by | seconds | how", flush=True)
    with multiprocessing.get_context("fork").Pool(chosen.jobs) as pool:
        for result in pool.imap_unordered(_judged, [(mutant, options) for mutant in wanted]):
            results.append(result)
            print(result, flush=True)
            verdicts.keep([one.name for one in MUTANTS], {result.mutant.name: result.said})
        pool.close()
        pool.join()
    counts = Counter(str(result).split(" | ")[2] for result in results)
    print(len(results), "mutants:", ", ".join(f"{count} {by}" for by, count in counts.most_common()))
    return int(not all(result.is_as_told for result in results))


if __name__ == "__main__":
    sys.exit(main())

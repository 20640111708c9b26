"""Judge mutants without starting anew: each mutant gets a child of its own, and judges share what is imported before.

For the explorer and the simulation the child imports the package with the mutant's file changed. For the tests all is
imported and collected once: in the child the functions of the mutant's module have other code, and what its module holds in texts and numbers is
exchanged wherever it was imported, but not what was made of it. What a process does that a test starts is not changed: who survives here is asked
about once more, in a copy of the tree.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from mutation.mutants import Mutant
from mutation.rooms import BY_DESKS_ALONE, DESKS, comes_by, concerning

ROOT = Path(__file__).parent.parent.parent
Tell: TypeAlias = Callable[[Mutant, str | None, float], None]
_START = ROOT / "payments_async/testing/_simulation/start.py"
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
_PLAIN = (str, bytes, int, float, bool, type(None))
_MOMENT = 0.02
LONGEST = 160  # letters of what killed a mutant
_MOST = 60  # seconds of a processor for one mutant, however busy the machine is


class Terms(Protocol):
    """How judges judge.

    Attributes:
        limit: Seconds for one judge.
        seeds, first: Of the simulation: how many, and the first.
    """

    @property
    def limit(self) -> float: ...
    @property
    def seeds(self) -> int: ...
    @property
    def first(self) -> int: ...


class Unpatched(Exception):
    """What a mutant changes cannot be exchanged in a process that runs."""


def patch(mutant: Mutant) -> None:
    """Let the package be this mutant from here on, in this process.

    Raises:
        Unpatched: It cannot.
    """
    name = "payments_async." + mutant.file.removesuffix(".py").replace("/", ".")
    module = importlib.import_module(name)
    assert module.__file__ is not None
    text = Path(module.__file__).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: its text does not stand once in {mutant.file}")
    changed = types.ModuleType(name)
    changed.__dict__.update({key: getattr(module, key) for key in ("__file__", "__package__", "__spec__")})
    exec(compile(text.replace(mutant.old, mutant.new), module.__file__, "exec"), changed.__dict__)  # noqa: S102
    count = _exchange(vars(module), vars(changed), module.__file__)
    for key, value in list(vars(changed).items()):
        was = vars(module).get(key)
        if key.startswith("__") or not _is_plain(was) or not _is_plain(value) or was == value:
            continue
        count += 1
        for other in list(sys.modules.values()):
            held = getattr(other, "__dict__", {})
            if held.get(key) is was:
                held[key] = value
    if not count:
        raise Unpatched(mutant.name)


def import_changed(mutant: Mutant) -> None:
    """Let the package be this mutant where it is imported from here on, in this process, which has not imported it."""
    name = "payments_async." + mutant.file.removesuffix(".py").replace("/", ".")

    class Finder:
        @staticmethod
        def find_spec(fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
            if fullname != name:
                return None
            spec: Any = importlib.machinery.PathFinder.find_spec(fullname, path, target)
            text = Path(spec.origin).read_text()
            if text.count(mutant.old) != 1:
                raise ValueError(f"{mutant.name}: its text does not stand once in {mutant.file}")
            changed = compile(text.replace(mutant.old, mutant.new), spec.origin, "exec")
            spec.loader.get_code = lambda _: changed
            return spec

    if "payments_async" in sys.modules:
        raise ValueError("it is imported already")
    sys.meta_path.insert(0, Finder)


def _is_plain(value: Any) -> bool:
    """Whether a value is made of texts and numbers alone, so that it is of no class of the changed module."""
    if isinstance(value, tuple | frozenset | set | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return type(value) in _PLAIN


def _functions(held: Any, file: str, seen: set[int] | None = None) -> Iterator[tuple[str, types.FunctionType]]:
    """The functions in a module or a class that stand in a file, by their names."""
    seen = set() if seen is None else seen
    for value in list(held.values()):
        if isinstance(value, property):
            parts: Sequence[Any] = (value.fget, value.fset)
        else:
            parts = (getattr(value, "__func__", value),)
        for part in parts:
            one = getattr(part, "__wrapped__", part)
            if isinstance(one, types.FunctionType) and one.__code__.co_filename == file:
                yield f"{one.__qualname__} {one.__code__.co_argcount}", one
        if isinstance(value, type) and id(value) not in seen:
            seen.add(id(value))
            yield from _functions(vars(value), file, seen)


def _exchange(was: Any, changed: Any, file: str) -> int:
    """Give functions the code that they have in the changed module; tells how many differ."""
    new, count = dict(_functions(changed, file)), 0
    for key, function in _functions(was, file):
        other = new.get(key)
        if other is None or len(other.__code__.co_freevars) != len(function.__code__.co_freevars):
            continue
        count += not _are_alike(function.__code__, other.__code__)
        function.__code__ = other.__code__
    return count


def _are_alike(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two pieces of code do the same, wherever they stand."""
    parts = zip(one.co_consts, other.co_consts, strict=False)
    return (
        one.co_code == other.co_code
        and one.co_names == other.co_names
        and len(one.co_consts) == len(other.co_consts)
        and all(
            _are_alike(mine, theirs) if isinstance(mine, types.CodeType) and isinstance(theirs, types.CodeType)
            else type(mine) is type(theirs) and mine == theirs
            for mine, theirs in parts
        )
    )  # fmt: skip


def in_a_child(
    mutant: Mutant, judged: Callable[[], str], limit: float, change: Callable[[Mutant], None] = patch
) -> tuple[str | None, float]:
    """What a judge says of a mutant in a process of its own, and the seconds of a processor that it took.

    Args:
        change: Lets the package be the mutant in that process.

    Returns:
        What kills it, nothing where it lives; ``None`` where it cannot be patched, or its time was over.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        words: str | None = None
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (1, 2):
                os.dup2(nothing, number)
            resource.setrlimit(resource.RLIMIT_CPU, (_MOST, _MOST))
            change(mutant)
            words = judged()
        except Unpatched:
            pass
        except Exception as error:  # noqa: BLE001 - the judge did not let it pass
            words = repr(error)
        finally:
            os.write(writes, b"" if words is None else f"={words}".encode())
            os._exit(0)
    os.close(writes)
    until, done = time.monotonic() + limit, 0
    while not done and time.monotonic() < until:
        time.sleep(_MOMENT)
        done, _, used = os.wait4(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not done:
        _, _, used = os.wait4(child, 0)
    os.set_blocking(reads, False)
    with os.fdopen(reads, "rb") as told:
        said = (told.read() or b"").decode()
    return (said[1:] if said else None), used.ru_utime + used.ru_stime


class Collected:
    """In place of pytest's own loop over the tests that it has collected.

    Args:
        tell: Hears of each mutant what ``in_a_child`` gives.
    """

    def __init__(self, mutants: Sequence[Mutant], limit: float, tell: Tell) -> None:
        self._mutants = mutants
        self._limit = limit
        self._tell = tell

    def pytest_runtestloop(self, session: Any) -> bool:
        """Fork a child off for each mutant."""
        if any("-k=not sqlite" in concerning(mutant.file) for mutant in self._mutants):
            importlib.import_module("journal.postgres").dsn()  # one server for all children
        for mutant in self._mutants:
            tests = partial(first_failure, session, items_for(session.items, mutant))
            self._tell(mutant, *in_a_child(mutant, tests, self._limit))
        return True


def items_for(items: Sequence[Any], mutant: Mutant) -> list[Any]:
    """The tests that concern a mutant: those whose names share the most words with its guard first, then by its room."""
    room = concerning(mutant.file)
    unwanted = "sqlite" if "-k=not sqlite" in room else "postgres"
    has_slow = "-m=slow or not slow" in room
    places = {path: place for place, path in enumerate(room) if "/test_model" not in path}  # those take long
    wanted = _stems(f"{mutant.name} {mutant.guard}")

    def rank(item: Any) -> tuple[int, int]:
        path, _, name = item.nodeid.partition("::")
        return -len(wanted & _stems(name)), places[path]

    found = [one for one in items if unwanted not in one.nodeid and one.nodeid.partition("::")[0] in places]
    return sorted((one for one in found if has_slow or one.get_closest_marker("slow") is None), key=rank)


def _stems(text: str) -> set[str]:
    """The beginnings of the longer words of a text."""
    return {word[:5] for word in re.findall("[a-z]{4,}", text.lower())}


def first_failure(session: Any, items: Sequence[Any]) -> str:
    """Run tests until one fails; which one that is."""
    for place, item in enumerate(items):
        following = items[place + 1] if place + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return str(item.nodeid)
    return ""


def test(mutants: Sequence[Mutant], terms: Terms, tell: Tell) -> None:
    """Let the tests judge these mutants."""
    os.chdir(ROOT)
    pytest = importlib.import_module("pytest")
    rooms = dict.fromkeys(path for mutant in mutants for path in concerning(mutant.file) if not path.startswith("-"))
    options = ("-q", "-s", "-x", "-n0", "-m=slow or not slow", "-p", "no:cacheprovider", "--no-header", "-W", "ignore")
    pytest.main([*options, *rooms], plugins=[Collected(mutants, terms.limit, tell)])


def explore(mutants: Sequence[Mutant], terms: Terms, tell: Tell) -> None:
    """Let the explorer judge these mutants."""

    def first_wrong(file: str) -> str:
        searches, plans = importlib.import_module("explorer.searches"), importlib.import_module("explorer.plans")
        desks = importlib.import_module("explorer.desks")
        logging.disable(logging.CRITICAL)
        for name in DESKS.get(file, ()):
            module = importlib.import_module(f"explorer.{name}")
            made = (
                [module.search]
                if not hasattr(module, "desks")
                else [partial(desks.search, make()) for make in module.desks()]
            )
            for report in (search() for search in made):
                if report.wrong:
                    return f"{report.name}: {report.wrong}"
        for plan in () if file in BY_DESKS_ALONE else plans.DEFAULT:
            report = searches.search(plan)
            if report.wrong:
                return f"{plan.name}: {report.wrong}"
        return ""

    if any("servers" in DESKS.get(mutant.file, ()) for mutant in mutants):
        importlib.import_module("journal.postgres").dsn()  # one server for all children
    for mutant in mutants:
        of_file = comes_by("explorer", mutant.file)
        judge = partial(first_wrong, mutant.file)
        self_said = in_a_child(mutant, judge, terms.limit, import_changed) if of_file else ("", 0.0)
        tell(mutant, *self_said)


def simulate(mutants: Sequence[Mutant], terms: Terms, tell: Tell) -> None:
    """Let the simulation judge these mutants, in an interpreter of its own, whose clocks are its own."""
    seen = {mutant.name: mutant for mutant in mutants if comes_by("simulation", mutant.file)}
    for mutant in mutants:
        if mutant.name not in seen:
            tell(mutant, "", 0.0)
    seeds = (str(terms.first), str(terms.seeds))
    command = [sys.executable, str(_START), "mutation.seeds", *seeds, str(terms.limit), *seen]
    with subprocess.Popen(command, cwd=ROOT / "tests", stdout=subprocess.PIPE, text=True) as judge:
        assert judge.stdout is not None
        for line in judge.stdout:
            name, words, seconds = json.loads(line)
            tell(seen[name], words, seconds)


JUDGES: Mapping[str, Callable[[Sequence[Mutant], Terms, Tell], None]] = {
    "contract": test,
    "explorer": explore,
    "simulation": simulate,
}

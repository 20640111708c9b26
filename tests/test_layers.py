"""The layers: who may import whom. Reads the source, runs none of it, and needs no module to exist yet."""

import ast
import re
import sys
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

PACKAGE = "payments_async"
ROOT = Path(__file__).parent.parent / PACKAGE

# A room is a module or package directly under the package. It may import rooms of lower lines only.
LINES: tuple[set[str], ...] = (
    {"_values", "_pages", "_version"},
    {"_wire"},
    {"_session", "journal"},
    {"outbox", "ipn", "otel"},  # they meet in the journal
    {"_payments"},  # all of the lines above it, as one object
    {"__init__"},  # the public names
    {"fleet", "bulk", "sandbox"},
    {"__main__", "_cli", "testing"},
)
# A package within a room is of that room alone: the others know its modules, and what the room makes public.
INSIDE = {f"{path.parent.parent.name}.{path.parent.name}" for path in ROOT.glob("*/*/__init__.py")}
BUT_INSIDE = {"testing"}  # its simulation is the machine under a journal: threads, disks, locks
# Within the journal: its packages, the same way.
FLOORS: tuple[set[str], ...] = ({"_statements"}, {"_machine"}, {"_engine"}, {"_sqlite", "_postgres"})
FLOOR = {package: height for height, floor in enumerate(FLOORS) for package in floor}
LAYER = {room: height for height, line in enumerate(LINES) for room in line}
NEIGHBOURS = {
    ("fleet", "bulk"),
    ("__main__", "_cli"),
}  # on one line, and acquainted
ALONE = {"sandbox"}  # a second, independent reading of the specification
PUBLIC_API_ONLY = {"_cli"}  # what it does, a user of the package can do
# what may be shown of a person, and how a page looks, is decided in one place each, and is no public name
BUT_FOR = {("_cli", "_values.masking"), ("_cli", "_pages")}

# An outside library, and the rooms it may be in. One that is not named here is nowhere welcome.
EVERYWHERE = frozenset(LAYER)
LIBRARIES: dict[str, frozenset[str]] = {
    "attr": EVERYWHERE,
    "attrs": EVERYWHERE,
    "yarl": EVERYWHERE,
    "multidict": EVERYWHERE,
    "aiohttp": frozenset({"_session", "sandbox", "testing"}),  # the client
    "aioresponses": frozenset({"testing"}),  # mended there
    "aiohttp.web": frozenset({"ipn", "sandbox", "_cli", "testing"}),
    "msgspec": frozenset({"_values", "_wire", "journal", "sandbox", "bulk"}),
    "cattrs": frozenset({"_wire", "journal"}),
    "jinja2": frozenset({"_pages", "sandbox"}),
    "typer": frozenset({"_cli"}),
    "click": frozenset({"_cli"}),  # what typer is made of
    "rich": frozenset({"_cli"}),
    "phonenumbers": frozenset({"_cli", "bulk"}),
    "cryptography": frozenset({"journal"}),  # where it is installed: approvals that are signed
    "keyring": frozenset({"_cli"}),
    "platformdirs": frozenset({"journal", "_cli"}),
    "python_calamine": frozenset({"bulk"}),
    "xlsxwriter": frozenset({"bulk"}),
    "sqlite3": frozenset({"journal", "_values", "testing"}),
    "psycopg": frozenset({"journal", "testing"}),
    "greenlet": frozenset({"testing"}),  # where it is installed, threads of a simulation take turns faster
    "sqlalchemy": frozenset({"journal"}),  # where an application hands in a connection of it
    "pgqueuer": frozenset({"fleet"}),
    "opentelemetry": frozenset({"otel"}),
    "pytest": frozenset({"testing"}),
    "pytest_asyncio": frozenset({"testing"}),
}

# The world outside the process: only the command line looks at it or speaks to it.
ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv", "sys.argv"}
PRINTING = {"print", "input", "sys.stdout", "sys.stderr", "sys.stdin"}
EXITING = {"sys.exit", "os._exit", "exit", "quit", "SystemExit"}
WORLD = {
    **dict.fromkeys(ENVIRONMENT | PRINTING, frozenset({"_cli"})),
    "os.environ": frozenset({"_cli", "_session", "_payments", "testing"}),  # from_env; a simulation's hashes
    "sys.argv": frozenset({"_cli", "testing"}),  # a simulation is a program of its own
    **dict.fromkeys(EXITING, frozenset({"_cli", "__main__"})),  # __main__ hands on the exit code that _cli chose
    "os._exit": frozenset({"_cli", "__main__", "testing"}),  # each simulation is a child
}


@cache
def parsed(source: str) -> ast.Module:
    """Its syntax; most tests here read each source of the package."""
    return ast.parse(source)


def faults(module: str, source: str, *, package: bool = False) -> list[str]:
    """What one module does that its room may not.

    Args:
        module: Dotted name, e.g. `payments_async._wire.codec`; for a package its own name, without `__init__`.
        source: Its text.
        package: Whether it is the `__init__.py` of a package, which relative imports are counted from.
    """
    tree = parsed(source)
    room = module.split(".")[1] if "." in module else "__init__"
    if room not in LAYER:
        return [f"{module}: no line of LINES names {room}: give it a layer"]
    targets = list(imports(tree, module, package))
    found = [(line, fault) for line, target in targets if (fault := import_fault(room, target))]
    found += [(line, fault) for line, target in targets if (fault := climb(module, target))]
    found += [(line, f"{name} is for {_names(WORLD[name])}") for line, name in uses(tree) if room not in WORLD[name]]
    return [f"{module}:{line}: {fault}" for line, fault in sorted(set(found))]


def imports(tree: ast.Module, module: str, package: bool) -> Iterator[tuple[int, str]]:
    """Every import, wherever it stands, as line and full dotted name of what is imported."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
                    if alias.asname is None and not alias.name.startswith(PACKAGE):
                        # `import aiohttp.web` binds aiohttp, with all that is in it
                        yield node.lineno, alias.name.partition(".")[0]
            case ast.ImportFrom(module=origin, names=names, level=level):
                start = ".".join(filter(None, [_above(module, level - package) if level else "", origin]))
                for alias in names:
                    yield node.lineno, f"{start}.{alias.name}"
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def climb(module: str, target: str) -> str | None:
    """Why this module of the journal may not import that one of it, or None."""
    ours, theirs = (".".join(name.split(".")[1:3]).removeprefix("journal.") for name in (module, target))
    if ours == theirs or not {ours, theirs} <= set(FLOOR) or FLOOR[theirs] < FLOOR[ours]:
        return None
    return f"imports {theirs}, which is {'above' if FLOOR[theirs] > FLOOR[ours] else 'beside'} it in the journal"


def import_fault(room: str, target: str) -> str | None:
    """Why this room may not import that, or None."""
    top, _, rest = target.partition(".")
    if top != PACKAGE:
        return library_fault(room, target)
    other = rest.partition(".")[0]
    other = other if other in LAYER else "__init__"
    if other == room:
        return None
    if room in ALONE:
        return f"imports {other}, but shares no code with the rest of the package"
    if LAYER[other] > LAYER[room]:
        return f"imports {other}, which is above it"
    if LAYER[other] == LAYER[room] and (room, other) not in NEIGHBOURS:
        return f"imports {other}, which is beside it"
    if room not in BUT_INSIDE and ".".join(rest.split(".")[:2]) in INSIDE:
        return f"imports {rest}, which is inside of {other}"
    private = other.startswith("_") and other != "__init__"
    if room in PUBLIC_API_ONLY and private and not any(rest.startswith(one) for who, one in BUT_FOR if who == room):
        return f"imports {other}, but uses the public names only"
    return None


def library_fault(room: str, target: str) -> str | None:
    """Why this room may not import that outside library, or None."""
    top = target.partition(".")[0]
    if target.startswith("aiohttp.web"):  # aiohttp.web_request and the like are of one piece with aiohttp.web
        top = "aiohttp.web"
    if top in LIBRARIES:
        return None if room in LIBRARIES[top] else f"imports {top}, which is for {_names(LIBRARIES[top])}"
    if top in sys.stdlib_module_names:
        return None
    return f"imports {top}, which has no room: name it in LIBRARIES"


def uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every use of a name in WORLD, whatever it was imported as."""
    meaning = {name: name for name in WORLD if "." not in name}
    called_only = {"exit", "quit", "input"}  # good names for variables too
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                meaning |= {alias.asname or alias.name: alias.name for alias in names if alias.name in {"os", "sys"}}
            case ast.ImportFrom(module="os" | "sys" as origin, names=names, level=0):
                full = {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in names}
                meaning |= full
                yield from ((node.lineno, name) for name in full.values() if name in WORLD)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    handlers = [node.type for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.type is not None]
    caught = {id(name) for kind in handlers for name in ast.walk(kind)}  # who lets an exit pass exits nothing
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if meaning.get(name) in WORLD:
                if id(node) not in caught and (name not in called_only or id(node) in called):
                    yield node.lineno, meaning[name]
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if f"{meaning.get(name)}.{attr}" in WORLD:
                yield node.lineno, f"{meaning[name]}.{attr}"


def _above(module: str, levels: int) -> str:
    parts = module.split(".")
    return ".".join(parts[: len(parts) - levels])


def _names(rooms: frozenset[str]) -> str:
    return ", ".join(sorted(rooms))


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    # the package's own __main__ is a room of its own; only __init__ stands for its folder
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, modules: Collection[str]) -> set[str]:
    """Which modules of the package one of them imports."""
    tree = parsed(path.read_text(encoding="utf-8"))
    package = path.name == "__init__.py"
    targets = [target for _, target in imports(tree, _module(path), package)]
    named = {target if target in modules else target.rpartition(".")[0] for target in targets}
    return (named & set(modules)) - {_module(path)}


# a loop, its threads, processes and networks are one machine
PARTS = ("loops", "networks", "processes", "threads")
ONE_MACHINE = {f"{PACKAGE}.testing._simulation.{one}" for one in PARTS}


@pytest.mark.slow
def test_imports_go_downwards_only_and_never_round() -> None:
    """Every module keeps to its layer, every outside library to its room; within a room too imports have a sequence."""
    found = chain.from_iterable(
        faults(_module(path), path.read_text(encoding="utf-8"), package=path.stem == "__init__")
        for path in sorted(ROOT.rglob("*.py*"))
        if path.suffix in {".py", ".pyi"}
    )
    assert [] == list(found)
    paths = {_module(path): path for path in ROOT.rglob("*.py")}
    known = {name: _imported(path, paths) - ONE_MACHINE for name, path in paths.items()}
    assert set(paths) == set(TopologicalSorter(known).static_order())  # raises CycleError, which names the circle


FORBIDDEN = [
    pytest.param(
        "_wire.codec",
        "from payments_async._session.session import PaymentsSession",
        "_session, which is above",
        id="up",
    ),
    pytest.param("_wire.codec", "from .._session import PaymentsSession", "_session, which is above", id="up-relative"),
    pytest.param("_values.errors", "from .. import _wire", "_wire, which is above", id="up-from-dot"),
    pytest.param("_values.errors", "import payments_async._wire.codec", "_wire, which is above", id="up-plain-import"),
    pytest.param("_values.errors", "from .._pages import rendering", "_pages, which is beside", id="sideways"),
    pytest.param(
        "journal.rows", "from .._session.limits import RetryPolicy", "_session, which is beside", id="sideways-package"
    ),
    pytest.param("bulk.runner", "from payments_async.fleet import submit", "fleet, which is beside", id="one-way-pair"),
    pytest.param("ipn.receiver", "from payments_async.bulk import plan", "bulk, which is above", id="ipn-and-bulk"),
    pytest.param("outbox.crew", "from payments_async.ipn import Receiver", "ipn, which is beside", id="outbox-and-ipn"),
    pytest.param(
        "bulk.runner", "from payments_async.sandbox import Sandbox", "sandbox, which is beside", id="to-sandbox"
    ),
    pytest.param("testing", "from payments_async import _cli", "_cli, which is beside", id="testing-and-cli"),
    pytest.param("journal.rows", "from payments_async import Dialect", "__init__, which is above", id="public-names"),
    pytest.param("_session.session", "import payments_async", "__init__, which is above", id="public-names-plain"),
    pytest.param(
        "_session.limits", "def f():\n    from payments_async import bulk", "bulk, which is above", id="inside-function"
    ),
    pytest.param(
        "_wire.codec",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .._session.session import PaymentsSession",
        "_session, which is above",
        id="type-checking",
    ),
    pytest.param(
        "_values.masking", "import_module('payments_async._wire.models')", "_wire, which is above", id="by-name"
    ),
    pytest.param(
        "sandbox.app", "from payments_async._values.amounts import exact", "shares no code", id="sandbox-alone"
    ),
    pytest.param("_cli.pay", "from payments_async._wire import codec", "public names only", id="cli-private"),
    pytest.param(
        "bulk.plan", "from payments_async.journal._engine._writer import Writer", "inside of journal", id="inside"
    ),
    pytest.param(
        "journal._machine._memory", "from payments_async.journal._sqlite._opening import STEPS", "above it", id="climbs"
    ),
    pytest.param(
        "journal._sqlite._opening", "from payments_async.journal._postgres import _schema", "beside it", id="databases"
    ),
    pytest.param("_clock", "import time", "give it a layer", id="unknown-room"),
    pytest.param("_wire.codec", "import aiohttp", "aiohttp, which is for _session", id="client"),
    pytest.param("ipn.receiver", "from aiohttp import ClientSession", "aiohttp, which is for", id="client-name"),
    pytest.param("ipn.receiver", "import aiohttp.web", "aiohttp, which is for", id="client-through-web"),
    pytest.param("_session.session", "from aiohttp import web", "aiohttp.web, which is for", id="web"),
    pytest.param(
        "_session.session", "from aiohttp.web_request import BaseRequest", "aiohttp.web, which is for", id="web-part"
    ),
    pytest.param("ipn.receiver", "import msgspec", "msgspec, which is for", id="msgspec"),
    pytest.param("bulk.reader", "from cattrs import Converter", "cattrs, which is for", id="cattrs"),
    pytest.param("bulk.plan", "from rich.table import Table", "rich, which is for", id="rich"),
    pytest.param("bulk.plan", "import typer", "typer, which is for", id="typer"),
    pytest.param("_wire.models", "import phonenumbers", "phonenumbers, which is for", id="phonenumbers"),
    pytest.param("_cli.bulk", "import python_calamine", "python_calamine, which is for", id="calamine"),
    pytest.param("ipn.inbox", "import sqlite3", "sqlite3, which is for", id="sqlite3"),
    pytest.param("fleet", "import psycopg", "psycopg, which is for", id="psycopg"),
    pytest.param("_session.transport", "import requests", "requests, which has no room", id="uninvited"),
    pytest.param("_wire.codec", "import os\nx = os.environ['A']", "os.environ is for", id="environ"),
    pytest.param("_wire.codec", "from os import getenv as g\n", "os.getenv is for", id="getenv-renamed"),
    pytest.param("_wire.codec", "import os as o\nx = o.getenv('A')", "os.getenv is for", id="module-renamed"),
    pytest.param("bulk.plan", "print('x')", "print is for", id="print"),
    pytest.param("bulk.plan", "def run(echo=print): ...", "print is for", id="print-as-value"),
    pytest.param("bulk.plan", "import sys\nsys.stderr.write('x')", "sys.stderr is for", id="stderr"),
    pytest.param("ipn", "import sys\nsys.exit(1)", "sys.exit is for", id="exit"),
    pytest.param("ipn", "raise SystemExit(1)", "SystemExit is for", id="system-exit"),
]

ALLOWED = [
    pytest.param(
        "_wire.codec", "from .call import Call\nfrom payments_async._wire import replies", id="within-a-package"
    ),
    pytest.param("_wire.codec", "from .._values.frozen import frozen\nfrom .. import _values", id="down"),
    pytest.param("_session.session", "from payments_async._wire import codec\nimport aiohttp", id="session"),
    pytest.param(
        "bulk.runner",
        "from payments_async import PayoutOrder\nfrom .._session.session import PaymentsSession",
        id="bulk",
    ),
    pytest.param("fleet", "from payments_async.bulk import run_batch\nimport pgqueuer", id="fleet-and-bulk"),
    pytest.param("__main__", "import sys\nfrom payments_async._cli import main\nsys.exit(main())", id="main-and-cli"),
    pytest.param("ipn", "try:\n    pass\nexcept (KeyError, SystemExit):\n    raise", id="an-exit-let-pass"),
    pytest.param("_cli.screen", "from payments_async._values.masking import mask", id="cli-and-masking"),
    pytest.param("_cli.pay", "import os, typer\nfrom payments_async.bulk import plan\nprint(os.environ)", id="cli"),
    pytest.param(
        "ipn.app", "from aiohttp import web\nimport aiohttp.web as w\nfrom aiohttp.web import Request", id="web"
    ),
    pytest.param(
        "sandbox.app", "import aiohttp, msgspec\nfrom aiohttp import web\nfrom .ledger import Ledger", id="sandbox"
    ),
    pytest.param("_wire.models", "import attrs, decimal, zoneinfo\nexit = 1\ny = exit", id="ordinary"),
    pytest.param("testing", "import pytest\nfrom payments_async.sandbox import Sandbox", id="testing"),
]


@pytest.mark.parametrize(("module", "source", "expected"), FORBIDDEN)
def test_a_violation_is_found(module: str, source: str, expected: str) -> None:
    """The test above can fail: each rule has a source that breaks it, and is named by exactly one fault."""
    found = faults(f"{PACKAGE}.{module}", source)
    assert [True] == [expected in fault for fault in found], found


@pytest.mark.parametrize(("module", "source"), ALLOWED)
def test_what_the_layers_allow_passes(module: str, source: str) -> None:
    """No rule is so broad that it forbids what the layers are for."""
    assert [] == faults(f"{PACKAGE}.{module}", source)


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        pytest.param(
            "payments_async", "from ._session.session import PaymentsSession\nfrom . import _wire", 0, id="down"
        ),
        pytest.param("payments_async", "from .bulk import plan", 1, id="up"),
        pytest.param(
            "payments_async._wire", "from .codec import read\nfrom .._values.frozen import frozen", 0, id="sub-package"
        ),
        pytest.param("payments_async._wire", "from .._session import PaymentsSession", 1, id="sub-package-up"),
    ],
)
def test_a_package_counts_its_dots_from_itself(module: str, source: str, count: int) -> None:
    """In `__init__.py` one dot is the package itself, not the one around it."""
    assert count == len(faults(module, source, package=True))


# Who may list three or more of the states of an order: everywhere else a list has a name, beside the table.
LISTS_STATES = {
    "journal/_states.py": "the table",
    "outbox/_settling.py": "seconds for each state that is looked for",
}


def listed_states(source: str) -> list[int]:
    """The lines where three states or more are listed, as names or within a text, such as a condition of SQL."""
    tree = parsed(source)
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Set(elts=members) | ast.Tuple(elts=members) | ast.List(elts=members):
                pass
            case ast.Dict(keys=keys, values=values):
                members = [one for one in chain(keys, values) if one is not None]
            case ast.MatchOr(patterns=patterns):
                members = [one.value for one in patterns if isinstance(one, ast.MatchValue)]
            case ast.Constant(value=str(text)):
                lists = re.findall(r"'\w+'(?:,\s*'\w+'){2,}", text)
                found += [
                    node.lineno for one in lists if {"planned", "sending", "unknown"} & {*re.findall(r"\w+", one)}
                ]
                continue
            case _:
                continue
        if sum(isinstance(one, ast.Attribute) and ast.unparse(one.value) == "State" for one in members) > 2:
            found.append(node.lineno)
    return found


@pytest.mark.slow(covered=True)
def test_states_are_listed_in_one_place() -> None:
    """Which states are an end, were paid or may be paid again stands in one table; a list of them has a name there."""
    sources = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    listed = {name: lines for name, source in sources.items() if (lines := listed_states(source))}
    assert LISTS_STATES.keys() == listed.keys(), listed


@pytest.mark.parametrize(
    "source",
    [
        "x = (State.FAILED, State.REJECTED, State.REVERSED)",
        "x = {State.FAILED: 1, State.REJECTED: 2, State.REVERSED: 3}",
        "match x:\n    case State.FAILED | State.REJECTED | State.REVERSED: ...",
        "x = f\"state IN ('sending', 'unknown', 'parked') {y}\"",
    ],
)
def test_a_list_of_states_is_found(source: str) -> None:
    """The test above can fail."""
    assert [source.count("\n") + 1] == listed_states(source)


# Where a task or a thread begins without `_values.tasks`: it ends with the call that began it, which awaits it.
BEGINNERS = {
    "_values/tasks.py": "the one place",
    "_values/fanout.py": "workers of one loop, which counts their ends",
    "_values/handlers.py": "a task group around the handlers of one fact",
    "_session/lists.py": "pages of one reading",
    "_session/transactions.py": "two ways to hear of one end",
    "outbox/_outbox.py": "closing, which all who close wait for; and what a journal is asked to put down",
    "outbox/_settling.py": "two things that one wait waits for",
    "_values/threads.py": "the thread of one loop, which the end of its block waits for",
    "bulk/_file/_batch.py": "a thread that one reading waits for",
    "bulk/_file/_workbooks.py": "a timer that one reading cancels",
    "fleet/_jobs.py": "all of it is one task, which is awaited",
    "journal/_engine/_threads.py": "threads that journals share, which end with the last of them",
    "journal/_postgres/_attendant.py": "the thread that hears, which begins again by itself",
    "_cli/working.py": "what a command does beside its work",
    "_cli/single_order.py": "two things that one wait waits for",
    "_cli/telling.py": "a message to a person, which the end waits for",
    "_cli/watch_state.py": "a walk through one batch, whose failure the next look raises",
    "_cli/commands/outbox/run.py": "what is awaited when the outbox ends",
    **dict.fromkeys(["_clock.py", "_notifications.py", "_sandbox.py"], "the sandbox shares no code"),
    "testing/_clock.py": "what one wait waits for",
    "testing/_simulation/applications.py": "a supervisor, which the whole simulation waits for",
    "testing/_simulation/processes.py": "a simulated process, whose owner is the seed",
    "testing/_simulation/threads.py": "a simulated thread, whose steps the loop takes",
}
BEGINNING = {"create_task", "ensure_future", "TaskGroup", "Thread", "Timer"}


@pytest.mark.slow
def test_tasks_begin_in_one_place() -> None:
    """What lives longer than a call has an owner that notices its end; all others are named, with the reason."""
    found = {
        (path.name if "sandbox" in path.parts else path.relative_to(ROOT).as_posix())
        for path in ROOT.rglob("*.py")
        for node in ast.walk(parsed(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in BEGINNING
    }
    assert set(BEGINNERS) == found


def test_every_room_is_on_one_line() -> None:
    """A room on two lines would have the higher one's freedom."""
    assert sum(map(len, LINES)) == len(LAYER)
    assert all(rooms <= EVERYWHERE for rooms in LIBRARIES.values())

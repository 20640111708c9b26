"""What every test needs: aioresponses that works here, examples that may take their time, a state folder of its own.

And how tests are run: by how many processes, and which of them are measured.
"""

import importlib
import itertools
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from pkgutil import walk_packages
from subprocess import DEVNULL, Popen

import pytest
from hypothesis import HealthCheck, settings
from machine import PROCESSORS, keep_files_in_memory

import payments_async
from payments_async import Credentials, PaymentsSession
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Sandbox
from payments_async.testing import mend_aioresponses

pytest_plugins = ["payments_async.testing"]

# a machine that others use too has slow moments
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


keep_files_in_memory()
mend_aioresponses()

_NUMBERS = itertools.count()
_COMPILES = "PAYMENTS_TEST_COMPILES"
_QUICK_IN_DATABASE = ("/test_contract_puts.py", "/test_contract_outbox.py")
_MEASURED = 1  # of the tests of one function that differ in their parameters
_MEASURED_IN = {"wire": 3, "session": 3, "sandbox": 3}  # where a test takes a moment

# else each process that tests start would compile the package again, for half a second of a processor
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches what this machine remembers of its user's journals, nor what another test left there."""
    # a name and no folder: most tests need none, and to number folders all there are would be looked at
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "states" / str(next(_NUMBERS))))


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """An open journal, new and empty, in a file of the test's own folder."""
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        yield journal


@pytest.fixture
async def service() -> AsyncIterator[Sandbox]:
    """The service, simulated in this process."""
    async with Sandbox() as service:
        yield service


@pytest.fixture
async def payments(service: Sandbox) -> AsyncIterator[PaymentsSession]:
    """A session with that service."""
    who = Credentials(app_key=service.app_key, app_password=service.app_password, user_id=service.user_id)
    async with PaymentsSession(service.base_url, who) as session:
        yield session


def pytest_xdist_auto_num_workers() -> int:
    """Two processes for each processor: for half of its time a test waits for a disk, a timer or another process."""
    return 2 * PROCESSORS


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """In a fresh clone each process that shares the tests would compile all of them: compile them once, before."""
    place = Path(__file__).parent
    if not session.config.getoption("numprocesses", None) or [*place.glob("wire/__pycache__/test_*-pytest-*.pyc")]:
        return
    asked = [Path(one.partition("::")[0]).resolve() for one in session.config.args]
    files = [str(file) for file in place.rglob("test_*.py") if any(file.is_relative_to(one) for one in asked)]
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-n", "0"]
    running = [
        Popen([*collect, *files[each::PROCESSORS]], env=os.environ | {_COMPILES: "yes"}, stdout=DEVNULL, stderr=DEVNULL)
        for each in range(PROCESSORS)
    ]
    for one in running:
        one.wait()  # what is wrong with a file, collecting it again tells


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem() -> list[pytest.Item] | None:
    """A process that compiles the tests looks at none of them."""
    return [] if _COMPILES in os.environ else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests that differ in their parameters alone one in a file is quick; in PostgreSQL one of a few files.

    Where they run in each kind of journal, one alone runs in PostgreSQL: its statements are those of the others, which
    differ by what Python decides. A test in PostgreSQL takes as long as three in a file.

    Measured are, in a file, what is quick, a few of the others, and slow ones that say so: to measure takes as long as
    the tests do. What is imported first by a test that is not measured would count as never run, so all is imported
    before. Each of the processes that share the tests begins with its share of the slow ones, so that all end together.
    """
    if config.getoption("cov_source", None):
        _import_all()
    times = Counter[tuple[str, bool]]()
    slow, quick = [], []
    again: set[pytest.Item] = set()
    for item in items:
        function, _, parameters = item.nodeid.partition("[")
        is_in_database, mark = "postgres" in parameters, item.get_closest_marker("slow")
        times[function, is_in_database] += 1
        number = times[function, is_in_database]
        if number > 1 and _kind_of(item) == "postgres":
            again.add(item)
            continue
        if number > 1 or (is_in_database and not any(file in function for file in _QUICK_IN_DATABASE)):
            item.add_marker("slow")
        most = _MEASURED_IN.get(item.path.parent.name, _MEASURED)
        is_measured = not is_in_database and (mark.kwargs.get("covered", False) if mark else number <= most)
        if not is_measured:
            item.add_marker("no_cover")
        (slow if mark else quick).append(item)
    if again:
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if item not in again]
    shares = getattr(config, "workerinput", {}).get("workercount", 1)
    if shares > 1:
        items[:] = _shared(slow, quick, shares)


def _kind_of(item: pytest.Item) -> object:
    """In which kind of journal a test runs that runs in each."""
    return item.callspec.params.get("home") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None


def _import_all() -> None:
    """Import each module of the package."""
    for found in walk_packages(payments_async.__path__, "payments_async."):
        if not found.name.endswith("__main__") and "_simulation" not in found.name:
            importlib.import_module(found.name)


def _shared(slow: Sequence[pytest.Item], quick: list[pytest.Item], shares: int) -> list[pytest.Item]:
    """The tests in a sequence of which ``worksteal`` gives each process as many, the slow ones spread."""
    size, items = -(-(len(slow) + len(quick)) // shares), []
    for share in range(shares):
        mine = slow[share::shares]
        room = max(0, size - len(mine)) if share < shares - 1 else len(quick)
        items += [*mine, *quick[:room]]
        del quick[:room]
    return items

"""What every test needs: aioresponses that works here, examples that may take their time, a state folder of its own.

And how tests are run: by how many processes, and which of them are measured.
"""

import itertools
import os
import sys
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from machine import PROCESSORS, keep_files_in_memory

from payments_async.testing import mend_aioresponses

pytest_plugins = ["payments_async.testing"]

# a machine that others use too has slow moments
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


keep_files_in_memory()
mend_aioresponses()

_NUMBERS = itertools.count()
_QUICK, _FEW = 4, 1  # of the tests of one function that differ in their parameters

# else each process that tests start would compile the package again, for half a second of a processor
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches what this machine remembers of its user's journals, nor what another test left there."""
    # a name and no folder: most tests need none, and to number folders all there are would be looked at
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "states" / str(next(_NUMBERS))))


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option for a further Python: each of the functions is tried there, though not with all its parameters."""
    parser.addoption("--few", action="store_true", help=f"{_FEW} test of each function and database")


def pytest_xdist_auto_num_workers() -> int:
    """Two processes for each processor: for half of its time a test waits for a disk, a timer or another process."""
    return 2 * PROCESSORS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests that differ in their parameters alone the first few are quick, on each database, and the others slow.

    Measured is what quick tests cover in a file, and slow ones that say so: to measure takes as long as the tests do.
    With ``--few`` only a few are run. Each of the processes that share the tests begins with its share of the slow
    ones, so that all end together.
    """
    times = Counter[tuple[str, bool]]()
    few, further = [], set[pytest.Item]()
    for item in items:
        name, _, parameters = item.nodeid.partition("[")
        is_beside_a_file = "postgres" in parameters
        times[name, is_beside_a_file] += 1
        if is_beside_a_file:
            item.add_marker("no_cover")
        if times[name, is_beside_a_file] > _QUICK and not item.get_closest_marker("slow"):
            item.add_marker("slow")
            further.add(item)
        if times[name, is_beside_a_file] <= _FEW:
            few.append(item)
    if config.getoption("--few"):
        config.hook.pytest_deselected(items=[*{*items} - {*few}])
        items[:] = few
    marks = {item: item.get_closest_marker("slow") for item in items}
    slow = [one for one, mark in marks.items() if mark and one not in further]
    # what is imported first by a test that is not measured would count as never run
    quick = sorted((one for one in items if not marks[one] or one in further), key=further.__contains__)
    for item in (*slow, *(further & {*items})):
        if not marks[item].kwargs.get("covered"):
            item.add_marker("no_cover")
    shares = getattr(config, "workerinput", {}).get("workercount", 1)
    size = -(-len(items) // shares)  # `worksteal` gives each of them as many, in this sequence
    if shares > 1 and slow:
        items.clear()
        for share in range(shares):
            mine = slow[share::shares]
            room = max(0, size - len(mine)) if share < shares - 1 else len(quick)
            items += [*mine, *quick[:room]]
            del quick[:room]

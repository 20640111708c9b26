"""An application is killed at every point, and pays each of its debts once: the assertion, and what it is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

from payments_async._session.auth import Credentials
from payments_async._session.session import PaymentsSession
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Sandbox

_START = Path(__file__).parent / "_simulation" / "start.py"
_RUNNER = "payments_async.testing._simulation.applications"


@attrs.frozen(kw_only=True)
class Simulation:
    """What a simulated application is given: where the service is, where its files go, where it listens.

    The service's address and credentials are in the environment too, as ``PaymentsSession.from_env`` reads them, and
    the application's current folder is ``folder``.

    Attributes:
        base_url: Of the simulated service.
        folder: For files. They survive a kill.
        port: Where the application listens. The service sends notifications to ``/ipn`` at this port of 127.0.0.1.
        sandbox: The service itself, for customers and checks: ``sandbox.ledger`` is what was carried out.
    """

    base_url: str
    credentials: Credentials = attrs.field(repr=False)
    folder: Path
    port: int
    sandbox: Sandbox = attrs.field(repr=False)
    _say: Callable[..., None] = attrs.field(repr=False, alias="note")

    @property
    def environment(self) -> Mapping[str, str]:
        """Address and credentials, under the names of the environment."""
        return {
            "PAYMENTS_BASE_URL": self.base_url,
            "PAYMENTS_APP_KEY": self.sandbox.app_key,
            "PAYMENTS_APP_PASSWORD": self.sandbox.app_password,
            "PAYMENTS_USER_ID": self.sandbox.user_id,
        }

    def session(self, **settings: Any) -> PaymentsSession:
        """Return a session with the service; ``settings`` as ``PaymentsSession`` takes them."""
        return PaymentsSession(self.base_url, self.credentials, **settings)

    def journal(self, **settings: Any) -> SqliteJournal:
        """Return the application's journal, a file in ``folder``; ``settings`` as ``SqliteJournal`` takes them."""
        return SqliteJournal(self.folder / "journal.sqlite", **settings)

    def note(self, *words: object) -> None:
        """Add a line to the timeline of a failure."""
        self._say(*words)


def assert_pays_once(
    application: Callable[[Simulation], Awaitable[None]],
    *,
    owes: Iterable[tuple[str, Decimal | int]],
    customers: Callable[[Simulation], Awaitable[None]] | None = None,
    check: Callable[[Simulation], object] | None = None,
    seeds: int | Iterable[int] = 200,
    jobs: int | None = None,
) -> None:
    """Check that an application pays each debt exactly once, although it is killed at any point and started anew.

    Each seed is one simulated run, in one process, with simulated time, network and service. It decides where the
    application dies: between two steps of its tasks, before or after a statement of SQLite, before any line of its
    own code. It decides too what else goes wrong: connections that break, answers that are lost, errors of the
    service, refusals, and notifications that are late, lost or repeated. After at most two minutes all faults end. Then
    the application has two hours to bring everything to an end; both are simulated time.

    Found are debts that were paid twice, under whichever request id; debts that were lost: neither paid, refused by
    the service, nor held in a journal; payments that are not owed; handlers that were not told; and whatever ``check``
    raises. A seed always does the same on Linux: ``seeds=[17]`` repeats it.

    Example::

        DEBTS = [("+256772000001", 1001), ("+256772000002", 1002)]

        async def shop(simulation: Simulation) -> None:
            async with (
                simulation.journal() as journal,
                simulation.session() as payments,
                Outbox(payments, journal) as outbox,
                serving(Receiver(journal, ["127.0.0.1"]), port=simulation.port),
            ):
                for order in orders_of(DEBTS):
                    await outbox.put(order)
                await asyncio.Event().wait()

        def test_the_shop_pays_once() -> None:
            assert_pays_once(shop, owes=DEBTS)

    Args:
        application: The process that is killed: an async function that runs until it is cancelled. After a kill it is
            called again. What it has in memory, tasks, connections and uncommitted transactions is gone; files stay.
        owes: Payee and amount of each payment that there is to be; the payee is the number of the wallet, account or
            line. Amounts that differ tell payments apart.
        customers: Those who ask the application for payments, over HTTP. They are called once, and not killed. Let
            them ask again until they are answered.
        check: Called at the end, after the application was stopped, to compare its own files with the sandbox. It
            raises ``AssertionError``; it may be async.
        seeds: How many seeds, counted from 0, or which.
        jobs: How many seeds run at once; one for each processor by default.

    Raises:
        AssertionError: A seed failed. It says what was wrong, how to repeat the seed, and what happened when.
        TypeError: A function cannot be imported by its name: it is a lambda, is defined in another function, or is in
            a module that was started as a program.
        RuntimeError: This is not Linux, or the simulation cannot begin.
    """
    __tracebackhide__ = True
    if sys.platform != "linux":
        raise RuntimeError("assert_pays_once needs Linux: it forks, and fixes the addresses of objects")
    functions = {"application": application, "customers": customers, "check": check}
    task = {
        "functions": {role: None if one is None else _names(role, one) for role, one in functions.items()},
        "owes": [(payee, str(Decimal(amount))) for payee, amount in owes],
        "seeds": list(range(seeds) if isinstance(seeds, int) else seeds),
        "jobs": jobs or _processors(),
    }
    results = _run(task)
    failed = [one for one in results if one["findings"]]
    if failed:
        raise AssertionError(_report(application.__qualname__, min(failed, key=lambda one: int(one["seed"]))))


def _names(role: str, function: Any) -> tuple[str, str, str]:
    """Module, file and name of a function, by which another interpreter finds it."""
    name, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    module = sys.modules.get(str(name))
    thing: Any = module
    for part in qualname.split("."):
        thing = getattr(thing, part, None)
    place = getattr(module, "__file__", None)
    if thing is not function or name == "__main__" or place is None:
        raise TypeError(
            f"{role}: {function!r} cannot be imported by its name; define it with `async def` in a module, on its own"
        )
    return str(name), str(place), qualname


def _processors() -> int:
    """Those that are left to each process of pytest-xdist."""
    there = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, there // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def _run(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Simulate in an interpreter of its own, whose clocks are replaced before anything is imported."""
    gone = ("COV", "PYTHONHASHSEED")  # a measuring would be a step; start.py fixes hashes, together with addresses
    environment = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, str(_START), _RUNNER],
        env=environment,
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the simulation could not run:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _report(application: str, result: Mapping[str, Any]) -> str:
    return "\n".join(
        [
            f"{application} does not pay once, in seed {result['seed']}",
            *result["findings"],
            f"repeat it: assert_pays_once({application}, ..., seeds=[{result['seed']}])",
            "    seconds what happened",
            *result["timeline"],
        ]
    )

"""A simulation around an application of a user: it is killed and started anew, and what it paid is compared with debts.

Run by ``start.py``: reads a task from its standard input, and writes a line for each seed to its standard output.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import linecache
import logging
import os
import random
import resource
import select
import shutil
import signal
import site
import sqlite3
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn, cast

import attrs

from payments_async._session.auth import Credentials
from payments_async._values import handlers as _handlers
from payments_async._wire.kinds import reference_of
from payments_async.journal import FINAL, Entry, JournalError, SqliteJournal, State
from payments_async.journal._sqlite import _journal
from payments_async.outbox import _worker_pool
from payments_async.sandbox import Execution, Fault, Quirks, Redelivery, Sandbox, Status
from payments_async.testing._pays_once import Simulation
from payments_async.testing._simulation.loops import START, SimulatedLoop
from payments_async.testing._simulation.machine import simulate
from payments_async.testing._simulation.networks import Network, Weather
from payments_async.testing._simulation.processes import CURRENT, Process
from payments_async.testing._simulation.threads import SimulatedThread, reach

PORT = 8080
PATIENCE = 8_000.0  # simulated seconds after the last fault, within which everything has come to rest
PROCESSOR_SECONDS = 120  # that a seed may take
SECONDS = 900  # ... however busy the machine is
LINES = 40  # of a time line
WIDTH = 140  # of a line of it
SERVICE: dict[str, Fault] = {
    fault.value: fault
    for fault in (
        Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.RATE_LIMITED, Fault.SLOW,
        Fault.TRUNCATED, Fault.TOKEN_REVOKED, Fault.REFUSED, Fault.FAILS, Fault.NOTIFY_EARLY, Fault.NOTIFY_LATE,
        Fault.NOTIFY_REPEATED, Fault.NOTIFY_REORDERED, Fault.NOTIFY_LOST,
    )
}  # fmt: skip
NETWORK = ("cut", "swallow", "refuse", "slow_network")
LISTS = ("late_lists", "unstable_pages")
FAULTS = (*SERVICE, *NETWORK, *LISTS)
UNPAID = (Status.FAILED, Status.REVERSED)
UNDER_WAY = (Status.ENQUEUED, Status.PROCESSING)
ENDS = {*FINAL, State.PARKED}

Debt = tuple[str, Decimal]


@attrs.frozen
class Doom:
    """Where a life of the application ends.

    Attributes:
        point: ``step`` of one of its tasks, ``statement`` of one of its databases, ``line`` of its own code, ``commit``
            of its own, or ``told``: a commit of one of its handlers, which the journal does not know of yet.
        count: How many such points it passes before.
        latest: Seconds after which it dies anyhow.
        rest: Seconds until the supervisor starts it anew.
    """

    point: str
    count: int
    latest: float
    rest: float


@attrs.frozen(kw_only=True)
class Trouble:
    """What one seed lets happen."""

    seed: int
    faults: tuple[str, ...]
    dooms: tuple[Doom, ...]
    share: float  # of orders that a fault of the service strikes
    trouble: float  # seconds

    @classmethod
    def drawn(cls, seed: int) -> Trouble:
        """The plan of a seed: every fault in some of them, and none in some."""
        chance = random.Random(f"application {seed}")
        kills = chance.choice([0, 1, 2, 3, 4, 5])
        share = chance.choice([0.0, 0.2, 0.5, 0.5])
        return cls(
            seed=seed,
            faults=tuple(fault for fault in FAULTS if chance.random() < share),
            dooms=tuple(cls._doom(chance) for _ in range(kills)),
            share=chance.choice([0.1, 0.3, 0.6]),
            trouble=chance.choice([10.0, 30.0, 120.0]),
        )

    @staticmethod
    def _doom(chance: random.Random) -> Doom:
        point, most = chance.choice([("step", 3.3), ("statement", 2.5), ("line", 2.3), ("commit", 1.0), ("told", 0.7)])
        count = int(10 ** chance.uniform(0.0, most)) - 1
        return Doom(point, count, *(round(10 ** chance.uniform(*range_), 3) for range_ in ((-1.0, 1.5), (-2.0, 0.7))))


@attrs.define
class Wrong:
    """Something wrong, and the debts and request ids that it is about."""

    text: str
    debts: set[Debt] = attrs.field(factory=set)
    request_ids: set[str] = attrs.field(factory=set)


class _Clock:
    """The simulation's, for the service."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@attrs.frozen
class Task:
    """What is to be simulated."""

    application: Callable[[Simulation], Awaitable[None]]
    owes: Counter[Debt]
    customers: Callable[[Simulation], Awaitable[None]] | None
    check: Callable[[Simulation], Any] | None


@attrs.define
class World:
    """A service, the application with its supervisor, its customers, and who judges."""

    plan: Trouble
    task: Task
    folder: Path
    loop: SimulatedLoop
    network: Network
    events: list[tuple[float, str]] = attrs.field(factory=list)
    findings: list[Wrong] = attrs.field(factory=list)
    journals: dict[Path, None] = attrs.field(factory=dict)
    entries: list[Entry] = attrs.field(factory=list)
    sandbox: Sandbox = attrs.field(init=False)
    simulation: Simulation = attrs.field(init=False)
    life: Process | None = None
    _lives: int = 0
    _kills: int = 0
    _untold: list[Wrong] = attrs.field(factory=list)
    _is_calm: bool = False
    _is_over: bool = False
    _has_ended: bool = False  # the application, by itself, without an error
    _error: str = ""  # by which it ended last
    _errors: int = 0  # since all faults ended

    async def run(self) -> None:
        """Trouble, then rest, then judgement."""
        self.sandbox = await self._serve()
        credentials = Credentials(
            app_key=self.sandbox.app_key, app_password=self.sandbox.app_password, user_id=self.sandbox.user_id
        )
        self.simulation = Simulation(
            base_url=self.sandbox.base_url,
            credentials=credentials,
            folder=self.folder / "files",
            port=PORT,
            sandbox=self.sandbox,
            note=self.say,
        )
        os.environ.update(self.simulation.environment)
        self.sandbox.ipn_url = f"http://127.0.0.1:{PORT}/ipn"
        self._begin_trouble()
        supervisor = self.loop.create_task(self._supervise())
        customers = self._customers()
        await asyncio.sleep(self.plan.trouble)
        self._end_trouble()
        await self._rest(customers)
        self._is_over = True
        await self._stop()
        supervisor.cancel()
        await self._look()
        self._judge(customers)
        await self._check()

    def say(self, *words: object) -> None:
        """Add to the time line."""
        self.events.append((self.loop.time(), " ".join(map(str, words))))

    def died(self, process: Process, where: str) -> None:
        """A life of the application was killed."""
        self._kills += 1
        self.say(f"{process.name} is killed {where}")

    def has(self, fault: str) -> bool:
        """Whether a fault exists here."""
        return fault in self.plan.faults

    # service and network

    async def _serve(self) -> Sandbox:
        ready: asyncio.Future[Sandbox] = self.loop.create_future()
        quirks = Quirks(
            listed_after=self.loop.chance.randint(1, 8) if self.has("late_lists") else 0,
            unstable_pages=self.has("unstable_pages"),
        )

        async def serve() -> None:
            async with Sandbox(
                quirks=quirks, seed=self.plan.seed, clock=_Clock(), redelivery=Redelivery(attempts=50)
            ) as sandbox:
                ready.set_result(sandbox)
                await asyncio.Event().wait()

        Process(self.loop, "service").start(serve())
        return await ready

    def _begin_trouble(self) -> None:
        self.say("faults:", ", ".join(self.plan.faults) or "none")
        self.sandbox.chaos(
            {fault: self.plan.share for name, fault in SERVICE.items() if self.has(name)}, seed=self.plan.seed
        )
        self.network.weather = Weather(
            latency=1.0 if self.has("slow_network") else 0.01,
            cut=0.15 if self.has("cut") else 0.0,
            swallow=0.05 if self.has("swallow") else 0.0,
            refuse=0.2 if self.has("refuse") else 0.0,
        )

    def _end_trouble(self) -> None:
        self.say("all faults end")
        self._is_calm = True
        self.network.weather = Weather(latency=0.01)
        self.sandbox.chaos({})
        if self.life is not None:
            self.life.doom = None
        _be_patient()

    # the application and its customers

    async def _supervise(self) -> None:
        dooms = iter(self.plan.dooms)
        while not self._is_over:
            self._lives += 1
            self.life = process = Process(self.loop, f"application-{self._lives}")
            died: asyncio.Future[None] = self.loop.create_future()
            process.on_death.append(lambda died=died: died.done() or died.set_result(None))  # type: ignore[misc]
            doom = None if self._is_calm else next(dooms, None)
            _meet(process, doom, self.died)
            self.say(f"{process.name} starts")
            work = process.start(self._live(process))
            latest = None if doom is None else doom.latest
            await asyncio.wait({work, died}, timeout=latest, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not process.is_dead and self._is_calm:
                await asyncio.wait({work})
            if not process.is_dead:
                if not work.done():
                    self.died(process, f"after {latest:g} seconds")
                process.doom = None
                process.kill()
            if self._has_ended or self._is_over:
                return
            await asyncio.sleep(1.0 if doom is None else doom.rest)

    async def _live(self, process: Process) -> None:
        try:
            await self.task.application(self.simulation)
        except asyncio.CancelledError:
            self._error = ""
            self.say(f"{process.name} has stopped")
        except BaseException as error:  # noqa: BLE001 - a process ends by any of them, and is started anew
            self._error = "".join(traceback.format_exception(error)[-12:])
            self._errors += self._is_calm
            self.say(f"{process.name} ends by {error!r}")
        else:
            self._has_ended = True
            self._error = ""
            self.say(f"{process.name} has ended")

    def _customers(self) -> asyncio.Task[None] | None:
        if self.task.customers is None:
            return None
        work = self.task.customers(self.simulation)
        task: asyncio.Task[None] = Process(self.loop, "customers").start(cast("Any", work))
        return task

    async def _stop(self) -> None:
        """Stop the application as a supervisor does."""
        process = self.life
        if process is None or process.is_dead or self._has_ended:
            return
        for task in self.loop.every:
            if task.owner is process and task.get_name() == process.name:
                task.cancel()
                await asyncio.wait([task], timeout=300.0)
                if not task.done():
                    self.findings.append(Wrong("the application does not stop within 300 seconds of its cancellation"))

    # judgement

    async def _rest(self, customers: asyncio.Task[None] | None) -> None:
        until, pause = self.loop.time() + PATIENCE, 20.0
        while self.loop.time() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 600.0)
            if customers is not None:
                if not customers.done():
                    continue
                if customers.exception() is not None:
                    return
            await self._look()
            rests = all(map(self._has_its_end, self.entries)) and not self._untold and not self._lost()
            if rests or self._errors > 5:
                return

    async def _look(self) -> None:
        """Read what the journals hold, as a process of its own."""
        self.entries, self._untold = [], []
        viewer = Process(self.loop, "viewer")
        for path in list(self.journals):
            if path.exists():
                with suppress(JournalError):
                    await viewer.start(self._read(path))
        viewer.kill()

    async def _read(self, path: Path) -> None:
        async with SqliteJournal(path) as journal:
            self.entries += [entry async for entry in journal.entries()]
            async for change in journal.dead_changes():
                text = f"a handler failed for good: {change.request_id} {change.state}: {change.error}"
                self._untold.append(Wrong(text, request_ids={change.request_id}))
            async for event in journal.dead_letters():
                self._untold.append(Wrong(f"a handler of the receiver failed for good: event {event.event_id}"))
            waiting = (await journal.change_backlog()).pending + (await journal.backlog()).pending
            if waiting:
                self._untold.append(Wrong(f"handlers were not told of {waiting} changes"))

    def _has_its_end(self, entry: Entry) -> bool:
        """Whether nothing more becomes of an order: the service has not ended it, or its empty list proves nothing."""
        statuses = {execution.request_id: execution.status for execution in self.sandbox.ledger}
        match entry.state:
            case State.ACCEPTED:
                return statuses.get(entry.request_id) in UNDER_WAY
            case State.UNKNOWN:
                return not statuses
            case _:
                return entry.state in ENDS

    def _lost(self) -> list[Wrong]:
        """Debts that were not paid, for no reason that the service or a journal has."""
        excused = Counter(
            _debt_of(one.order)
            for one in self.entries
            if self._has_its_end(one) and one.state not in (State.SUCCESSFUL, State.ACCEPTED)
        )
        excused += Counter(_paid(one) for one in self.sandbox.ledger if one.status in UNPAID)
        missing = self.task.owes - self._paid() - excused
        found = []
        for debt, count in missing.items():
            states = ", ".join(
                f"{one.request_id} is {one.state}" for one in self.entries if _debt_of(one.order) == debt
            )
            times = f" ({count} times)" if count > 1 else ""
            found.append(Wrong(f"lost: {_words(debt)}{times}: {states or 'in no journal'}", {debt}))
        return found

    def _paid(self) -> Counter[Debt]:
        return Counter(_paid(one) for one in self.sandbox.ledger if one.status not in UNPAID)

    def _judge(self, customers: asyncio.Task[None] | None) -> None:
        paid = self._paid()
        for debt, count in (paid - self.task.owes).items():
            ids = ", ".join(one.request_id for one in self.sandbox.ledger if _paid(one) == debt)
            owed = self.task.owes[debt]
            wrong = f"paid {owed + count} times, owed {owed if owed > 1 else 'once'}" if owed else "paid, but not owed"
            self.findings.append(Wrong(f"{wrong}: {_words(debt)} as {ids}", {debt}))
        for request_id in self.sandbox.duplicates():
            self.findings.append(Wrong(f"carried out more than once: {request_id}", request_ids={request_id}))
        self.findings += self._lost()
        self.findings += self._untold
        if self._error:
            self.findings.append(Wrong(f"the application ends by an error, without any fault:\n{self._error}"))
        if customers is not None and not customers.done():
            self.findings.append(Wrong("the customers still wait for the application"))
        elif customers is not None and (error := customers.exception()) is not None:
            self.findings.append(Wrong("customers:\n" + "".join(traceback.format_exception(error)[-6:])))

    async def _check(self) -> None:
        if self.task.check is None:
            return
        try:
            checked = Process(self.loop, "check")._context.run(self.task.check, self.simulation)
            if inspect.isawaitable(checked):
                await checked
        except Exception as error:  # noqa: BLE001 - whatever it raises, it objects
            told = traceback.format_exception(error.with_traceback(_last(error)))
            self.findings.append(Wrong("check: " + "".join(told[1:]).strip()))

    # the time line

    async def timeline(self) -> list[str]:
        """What happened; of orders only those that the first finding is about, where it names some."""
        first = next((one for one in self.findings if one.debts | one.request_ids), Wrong(""))
        ids = set(first.request_ids)
        ids |= {one.request_id for one in self.entries if not ids and _debt_of(one.order) in first.debts}
        ids |= {one.request_id for one in self.sandbox.ledger if _paid(one) in first.debts}
        if not first.debts | ids:
            ids = {one.request_id for one in self.entries} | {one.request_id for one in self.sandbox.ledger}
        found = self.events + list(self._of_service(ids))
        for path in list(self.journals):
            with suppress(JournalError):
                found += await Process(self.loop, "viewer").start(self._of_journal(path, ids))
        lines = [f"{at:11.3f} {text[:WIDTH]}" for at, text in sorted(found, key=lambda event: event[0])]
        if len(lines) > LINES:
            left_out = len(lines) - LINES + 1
            lines = [*lines[:18], f"            ({left_out} lines left out)", *lines[left_out + 18 :]]
        return lines

    def _of_service(self, ids: set[str]) -> Iterator[tuple[float, str]]:
        said: set[tuple[str, str]] = set()
        for request in self.sandbox.requests:
            for request_id in ids:
                if request.method == "POST" and f'"{request_id}"'.encode() in request.body:
                    yield request.at.timestamp() - START, f"the service receives {request_id}"
        for one in self.sandbox.ledger:
            if one.request_id in ids:
                told = f"the service carries out {one.request_id}: {_words(_paid(one))}; it ends {one.status}"
                yield one.created_on.timestamp() - START, told
        for delivery in self.sandbox.deliveries:
            if delivery.request_id in ids:
                answer = f"answered {delivery.status}" if delivery.status else "not answered"
                if (delivery.request_id, answer) not in said:
                    said.add((delivery.request_id, answer))
                    yield delivery.at.timestamp() - START, f"a notification of {delivery.request_id} is {answer}"

    async def _of_journal(self, path: Path, ids: set[str]) -> list[tuple[float, str]]:
        async with SqliteJournal(path) as journal:
            return [
                (one.at - START, " ".join(filter(None, ["journal:", request_id, one.what, one.state, one.detail])))
                for request_id in sorted(ids)
                for one in await journal.history(request_id)
                if one.what != "delivery"
            ]


def _last(error: BaseException) -> TracebackType | None:
    """Where an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _debt_of(order: Any) -> Debt:
    return _plain(reference_of(order)), Decimal(order.amount)


def _paid(execution: Execution) -> Debt:
    return _plain(execution.beneficiary.reference), execution.amount


def _plain(payee: str) -> str:
    """A payee's number without signs."""
    return "".join(filter(str.isalnum, payee))


def _words(debt: Debt) -> str:
    return f"{debt[1]:f} to {debt[0]}"


# where an application may die

_OURS = tuple(
    {
        str(Path(__file__).parents[2]) + os.sep,
        *(f"{Path(sysconfig.get_path(name)).resolve()}{os.sep}" for name in ("stdlib", "platstdlib", "purelib")),
        *(f"{Path(one).resolve()}{os.sep}" for one in site.getsitepackages()),
        "<",
    }
)
_IS_OURS: dict[CodeType, bool] = {}


def _meet(process: Process, doom: Doom | None, died: Callable[[Process, str], None]) -> None:
    """Let a process die where its doom says so."""
    sys.settrace(_trace if doom is not None and doom.point == "line" else None)
    if doom is None:
        return
    left = doom.count

    def comes(point: str) -> bool:
        nonlocal left
        kind, _, where = point.partition(" ")
        if kind != doom.point:
            return False
        left -= 1
        if left >= 0:
            return False
        died(process, where or "between two steps")
        return True

    process.doom = comes


def _trace(frame: FrameType, event: str, _: object) -> Any:
    """Look at the lines of the application's own code."""
    code = frame.f_code
    if code not in _IS_OURS:
        _IS_OURS[code] = code.co_filename.startswith(_OURS)
    return None if _IS_OURS[code] else _line


def _line(frame: FrameType, event: str, _: object) -> Any:
    process = CURRENT.get()
    if event == "line" and process is not None and process.doom is not None:
        place, number = frame.f_code.co_filename, frame.f_lineno
        source = linecache.getline(place, number).strip()
        sys.call_tracing(reach, (f"line before {Path(place).name}:{number} {source[:80]}",))
    return _line


class MortalCursor(sqlite3.Cursor):
    """A cursor whose process may die before each statement."""

    def execute(self, *args: Any) -> MortalCursor:
        _before(args[0])
        super().execute(*args)
        return self

    def executemany(self, *args: Any) -> MortalCursor:
        _before(args[0])
        super().executemany(*args)
        return self


class MortalConnection(sqlite3.Connection):
    """A connection whose process may die before each statement, and after a commit."""

    def cursor(self, factory: Any = MortalCursor) -> Any:
        return super().cursor(factory)

    def commit(self) -> None:
        _before("COMMIT")
        super().commit()
        self._has_committed()

    def __exit__(self, *args: Any) -> Any:
        _before("COMMIT")
        result = super().__exit__(*args)
        self._has_committed()
        return result

    def _has_committed(self) -> None:
        reach("statement after a commit")
        reach("commit after a commit of its own")
        if _is_told():
            reach("told after a commit of a handler")


def _is_told() -> bool:
    """Whether a handler runs here."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename != _handlers.__file__:
        frame = frame.f_back
    return frame is not None


def _before(statement: str) -> None:
    process = CURRENT.get()
    if process is not None and process.doom is not None:
        reach(f"statement before {' '.join(statement.split())[:60]}")


def _own_databases() -> None:
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **({"factory": MortalConnection} | options))
        return connection

    sqlite3.connect = connected  # type: ignore[assignment]


# what else is replaced


def _own_clocks(loop: SimulatedLoop) -> None:
    """Let the application's modules see the simulated date, and let who sleeps in a thread hold up all others."""

    def sleep(seconds: Any) -> None:
        loop.now += max(0.0, seconds)

    time.sleep = sleep


def _own_dates() -> None:
    """For modules that are imported later: ``datetime.now`` and ``date.today`` by the simulated clock."""
    import datetime as module

    real: dict[type, type] = {}

    class Dated(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real[cls]) if cls in real else super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, real[cls]) if cls in real else super().__subclasscheck__(subclass)

    class SimulatedDatetime(datetime, metaclass=Dated):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(time.time(), UTC).replace(tzinfo=None)

    class SimulatedDate(date, metaclass=Dated):
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(time.time())

    real |= {SimulatedDatetime: datetime, SimulatedDate: date}
    sqlite3.register_adapter(SimulatedDatetime, lambda moment: moment.isoformat(" "))
    sqlite3.register_adapter(SimulatedDate, lambda day: day.isoformat())
    vars(module).update(datetime=SimulatedDatetime, date=SimulatedDate)


def _own_threads() -> None:
    start = threading.Thread.start

    def started(thread: Any) -> None:
        is_simulated = getattr(thread._target, "__module__", "") == SimulatedThread.__module__
        if not is_simulated and not thread.name.startswith("journal-reader"):  # which closes a connection, and ends
            raise RuntimeError(f"{thread.name}: a thread of its own cannot be simulated; use asyncio.to_thread")
        start(thread)

    threading.Thread.start = started  # type: ignore[assignment,method-assign]


def _own_journals(world: World) -> None:
    """Know the journals that the application opens."""
    begin = SqliteJournal.__aenter__

    async def begun(journal: SqliteJournal) -> SqliteJournal:
        world.journals[journal.path.absolute()] = None
        return await begin(journal)

    SqliteJournal.__aenter__ = begun  # type: ignore[method-assign,assignment]


def _be_patient() -> None:
    """Let what is looked at again and again be looked at less often: most of the time of a simulation is that."""
    _journal._LOOK_AGAIN, _journal._LOOK_AGAIN_MAX = 1.0, 5.0
    _worker_pool._TICK = 2.0


class _Log(logging.Handler):
    """Warnings, in the time line."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT.get()
        if process is not None and process is self._world.life:
            self._world.say(f"{process.name} logs: {record.getMessage()[:150]}")


# seeds, each in a process of its own


def run(plan: Trouble, task: Task, tell: Callable[[dict[str, Any]], NoReturn]) -> None:
    """Run a plan here, and tell what came of it. Never returns."""
    memory = "/dev/shm"  # noqa: S108 - what is made there has a name of its own
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=memory if Path(memory).is_dir() else None))
    (folder / "files").mkdir()
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    os.chdir(folder / "files")

    def end(world: World | None, findings: list[str], line: Sequence[str]) -> NoReturn:
        shutil.rmtree(folder, ignore_errors=True)
        steps = 0 if world is None else world.loop.steps
        tell(
            {"seed": plan.seed, "findings": findings, "timeline": line, "steps": steps,
             "kills": 0 if world is None else world._kills,
             "trace": "" if world is None else str(hash((steps, *world.events)))}
        )  # fmt: skip

    async def whole(loop: SimulatedLoop, network: Network) -> None:
        world = World(plan, task, folder, loop, network)
        _own_clocks(loop)
        _own_threads()
        _own_journals(world)
        logging.getLogger().handlers[:] = [_Log(world)]
        try:
            await world.run()
            line = await world.timeline() if world.findings else []
        except BaseException:  # noqa: BLE001 - a mistake of ours fails the seed
            end(world, [traceback.format_exc()], [f"{at:11.3f} {text}" for at, text in world.events[-LINES:]])
        end(world, [finding.text for finding in world.findings], line)

    _own_databases()
    try:
        simulate(plan.seed, whole)
    except BaseException:  # noqa: BLE001 - as above
        end(None, [traceback.format_exc()], [])


def forked(seed: int, task: Task) -> tuple[int, int]:
    """Run a seed in a child; its process id, and where it tells what came of it."""
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    os.close(reads)
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS + 5))

    def tell(result: dict[str, Any]) -> NoReturn:
        left = json.dumps(result).encode()
        while left:
            left = left[os.write(writes, left) :]
        os._exit(0)

    try:
        run(Trouble.drawn(seed), task, tell)
    finally:
        os._exit(1)


def results_of(seeds: Sequence[int], task: Task, jobs: int) -> Iterator[dict[str, Any]]:
    """Run seeds, some at a time; once one fails, only those before it."""
    todo = list(reversed(seeds))
    running: dict[int, tuple[int, int, bytearray, float]] = {}
    while todo or running:
        while todo and len(running) < jobs:
            seed = todo.pop()
            child, reads = forked(seed, task)
            running[reads] = (seed, child, bytearray(), time.monotonic())
        ready, _, _ = select.select(list(running), [], [], 5.0)
        for _, child, _, begun in running.values():
            if time.monotonic() - begun > SECONDS:
                os.kill(child, signal.SIGKILL)
        for reads in ready:
            seed, child, told, _ = running[reads]
            part = os.read(reads, 65536)
            told += part
            if part:
                continue
            del running[reads]
            os.close(reads)
            _, status = os.waitpid(child, 0)
            died = f"the simulation died (status {status}); more than {PROCESSOR_SECONDS} s of the processor?"
            result = dict(json.loads(told)) if told else {"seed": seed, "findings": [died], "timeline": []}
            if result["findings"]:
                todo = [one for one in todo if one < seed]
                for later, child, _, _ in running.values():
                    if later > seed:
                        os.kill(child, signal.SIGKILL)
            yield result


def found(name: str, place: str, qualname: str) -> Any:
    """A function by its names."""
    with suppress(ImportError):
        importlib.import_module(name)
    module = sys.modules.get(name)
    if module is None or getattr(module, "__file__", None) != place:
        specification = importlib.util.spec_from_file_location(name, place)
        assert specification is not None
        assert specification.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    thing: Any = module
    for part in qualname.split("."):
        thing = getattr(thing, part)
    return thing


def main() -> None:
    """Do the task that standard input names."""
    asked = json.loads(os.fdopen(0).read())
    answers = os.dup(1)
    os.dup2(2, 1)  # what the application prints would be read as an answer
    _own_dates()
    functions: dict[str, Any] = {
        role: None if names is None else found(*names) for role, names in asked["functions"].items()
    }
    owes = Counter((_plain(payee), Decimal(amount)) for payee, amount in asked["owes"])
    task = Task(owes=owes, **functions)
    for result in results_of(asked["seeds"], task, asked["jobs"]):
        os.write(answers, json.dumps(result).encode() + b"\n")


if __name__ == "__main__":
    main()

"""Chaos for an outbox: processes that put, that work and that receive are killed and stopped; nothing is lost or twice.

    python tests/benchmarks/chaos_outbox.py                  10,000 orders, each put by two processes, and 60 blows
    python tests/benchmarks/chaos_outbox.py --orders 2000    a shorter one
    python tests/benchmarks/chaos_outbox.py --broken         the control: an expired lease makes orders planned again
    python tests/benchmarks/chaos_outbox.py --journal postgres --workers 3 --cuts 40 --restarts 6
                                                             in a database that is stopped like by a power cut, on
                                                             lines to it and to the service that break, with every
                                                             fourth order put within a transaction; or --journal DSN

A sandbox in this process is the judge, and drops connections: the exit code is 1 when anything was carried out twice,
an order that was put is lost or stands in a state that the ledger contradicts, or when a handler was not told of a
fact, or of one fact under two ids. With ``--broken`` it is 1 when nothing was carried out twice.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import psycopg

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.chaos_flights import causes, record
from benchmarks.chaos_ground import AGAIN, Ground, Place
from benchmarks.chaos_plans import end, faults, plan_of, show
from bulk.lives import break_rule_two
from bulk.nursery import Child, Nursery, say
from bulk.worlds import contradiction, payout

from payments_async import Credentials, PaymentsSession, PayoutOrder
from payments_async.bulk import ReconcileSettings, reconcile
from payments_async.ipn import Receiver, serving
from payments_async.journal import Entry, Journal, State
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Fault, Redelivery, Sandbox

NAME = "chaos"
_AGAIN = 0.25  # seconds until what the database was not there for is tried again
TOLD_OF = (State.ACCEPTED, State.REJECTED, State.SUCCESSFUL, State.FAILED)
PATIENCE = 120.0  # seconds in which nothing moves, once nothing is struck any more
SETTLED = (State.SUCCESSFUL, State.FAILED, State.REVERSED, State.REJECTED, State.PARKED)


@attrs.frozen(kw_only=True)
class Plan:
    """How much chaos.

    Attributes:
        orders: Each is put by two processes, in sequences of their own.
        workers: Processes that send; each puts some orders as well.
        kills, stops: Of all processes.
        cuts: Lines of any process that break for a while.
        restarts: Of the database's server.
        journal: ``postgres`` for a server of its own, or the DSN of another one, in place of a file.
        broken: Rule 2 is broken on purpose.
        delay: Seconds the service takes to answer an order.
        lease: Seconds; a process that is stopped for longer is taken over.
    """

    orders: int
    putters: int = 2
    workers: int = 2
    kills: int = 30
    stops: int = 30
    cuts: int = 0
    restarts: int = 0
    journal: str = ""
    broken: bool = False
    concurrency: int = 20
    delay: float = 0.05
    lease: float = 1.0
    seed: int = 1


@attrs.define
class Toll:
    """What it came to.

    Attributes:
        promised: Request ids whose put has returned in some process.
        told: How often a handler heard of a fact: by request id and state, under which ids.
    """

    duplicates: list[str] = attrs.field(factory=list)
    contradictions: list[str] = attrs.field(factory=list)
    promised: set[str] = attrs.field(factory=set)
    told: dict[tuple[str, str], Counter[int]] = attrs.field(factory=dict)
    states: Counter[str] = attrs.field(factory=Counter)
    parked: Counter[str] = attrs.field(factory=Counter)
    executions: int = 0
    kills: Counter[str] = attrs.field(factory=Counter)
    stops: Counter[str] = attrs.field(factory=Counter)
    cuts: Counter[str] = attrs.field(factory=Counter)
    restarts: int = 0


# --- one process ------------------------------------------------------------------------------------------------------


@attrs.define
class Desk:
    """One process, as the nursery starts it.

    Attributes:
        role: ``puts``, ``works`` or ``receives``.
        seed: Of the sequence in which it puts.
    """

    number: int
    role: str
    place: Place
    who: dict[str, str]
    orders: int
    concurrency: int
    broken: bool
    lease: float
    seed: int
    _own: psycopg.AsyncConnection | None = None
    _turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    @property
    def folder(self) -> Path:
        """Where what it says is written down."""
        return Path(self.place.folder)

    async def open(self) -> None:
        """Do its part until it is ended."""
        limit = aiohttp.ClientTimeout(total=2.0)
        async with (
            self.place.journal() as journal,
            PaymentsSession(self.place.base, Credentials(**self.who), timeout=limit) as payments,
        ):
            if self.role == "receives":
                receiver = Receiver(inbox=journal, senders=["127.0.0.1"], confirm=payments)
                async with serving(receiver, "127.0.0.1", 0) as (host, port):
                    say(self.number, f"http://{host}:{port}/ipn")
                    await asyncio.Event().wait()
            works = self.role == "works"
            outbox = Outbox(
                payments,
                journal,
                NAME,
                worker=WorkerSettings(sends=works, lease=self.lease, settles=works and not self.broken, look_back=1.0),
                concurrency=self.concurrency,
            )
            if works:
                outbox.on(*TOLD_OF, name="note")(self.note)
            async with outbox:
                if not works:
                    await self.put_all(outbox)
                await asyncio.Event().wait()

    async def put_all(self, outbox: Outbox) -> None:
        """Put every order, the first ones again after each death, and promise each as soon as it is on disk."""
        numbers = list(range(self.orders))
        random.Random(self.seed).shuffle(numbers)
        for first in range(0, len(numbers), 20):
            await asyncio.gather(*(self.put(outbox, number) for number in numbers[first : first + 20]))
        say(self.number, "done")

    async def put(self, outbox: Outbox, number: int) -> None:
        """Put one order, again as long as nobody knows whether it was, and write down that it was promised."""
        order = payout(number, batch_id=NAME)
        while True:
            try:
                if self.place.dsn and number % 4 == 0:
                    await self.put_in_a_transaction(outbox, order)
                else:
                    await outbox.put(order, priority=number % 3)
            except (*AGAIN, psycopg.Error, TimeoutError):
                await asyncio.sleep(_AGAIN)
            else:
                _append(self.folder / "promised", order.request_id)
                return

    async def put_in_a_transaction(self, outbox: Outbox, order: PayoutOrder) -> None:
        """As an application does, by a connection of its own, one after the other."""
        async with self._turn, asyncio.timeout(5.0):
            if self._own is None:
                self._own = await psycopg.AsyncConnection.connect(self.place.dsn, autocommit=True)
            try:
                async with self._own.transaction():
                    await outbox.put(order, connection=self._own)
            except BaseException:
                own, self._own = self._own, None
                await own.close()
                raise

    async def note(self, entry: Entry) -> None:
        """The handler: it writes down what it was told, and does not remember what it was told before."""
        _append(self.folder / "told", f"{entry.request_id} {entry.state.value} {entry.change_id}")


def _append(file: Path, line: str) -> None:
    """One write: lines of several processes do not mix."""
    number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(number, f"{line}\n".encode())
    finally:
        os.close(number)


def begin(place: dict[str, Any], broken: bool, **told: Any) -> None:
    """What a child of the nursery does, and again where the database was not there when it began."""
    if broken:
        break_rule_two()
    here = Place(**place)
    here.lead()
    record(Path(here.folder))
    while True:
        with suppress(*AGAIN):
            asyncio.run(Desk(place=here, broken=broken, **told).open())
        time.sleep(_AGAIN)


# --- all of them ------------------------------------------------------------------------------------------------------


class Chaos:
    """Starts processes, strikes them, and reckons."""

    def __init__(self, plan: Plan, sandbox: Sandbox, ground: Ground, folder: Path, nursery: Nursery) -> None:
        self.plan = plan
        self.sandbox = sandbox
        self.ground = ground
        self.folder = folder
        self.nursery = nursery
        self.toll = Toll()
        self._chance = random.Random(plan.seed)
        self._over = asyncio.Event()
        self._blows = ["kill"] * plan.kills + ["stop"] * plan.stops
        self._blows += ["cut"] * plan.cuts + ["restart"] * plan.restarts
        self._chance.shuffle(self._blows)
        self._running: dict[str, Child] = {}

    async def run(self) -> Toll:
        """All of it, and then the reckoning."""
        plan = self.plan
        names = [f"works {number}" for number in range(plan.workers)]
        names += [f"puts {number}" for number in range(plan.putters)] + ["receives 0"]
        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(self._keep(name)) for name in names]
            striking = group.create_task(self._strike(names))
            await self._all_put()
            await striking  # it has struck for the last time, or is about to: broken off it would take a code with it
            await self._rest()
            self._over.set()
            for child in list(self._running.values()):
                with suppress(ProcessLookupError):  # it was just killed
                    await child.send(signal.SIGKILL)
            await asyncio.wait(lives)
        await self._reckon()
        return self.toll

    async def _keep(self, name: str) -> None:
        """Keep one process running, whatever becomes of it."""
        role, place = name.split()
        sandbox, plan = self.sandbox, self.plan
        who = {"app_key": sandbox.app_key, "app_password": sandbox.app_password, "user_id": sandbox.user_id}
        while not self._over.is_set():
            child = self._running[name] = self.nursery.begin(
                role=role, place=attrs.asdict(await self.ground.place(name)), who=who, orders=plan.orders,
                concurrency=plan.concurrency, broken=plan.broken, lease=plan.lease, seed=int(place),
            )  # fmt: skip
            listening = asyncio.ensure_future(self._listen(child, role))
            code = await child.ended()
            listening.cancel()
            if code != -signal.SIGKILL:
                raise RuntimeError(f"a process that {role} ended with {code}")

    async def _listen(self, child: Child, role: str) -> None:
        """Hear of it where the receiver is."""
        while role == "receives":
            self.sandbox.ipn_url = await child.said.get()

    async def _strike(self, names: list[str]) -> None:
        """Strike some process whenever the service has carried out some more."""
        while self._blows:
            await self._carried_out(self._chance.randint(1, max(2, self.plan.orders // (2 + len(self._blows)) // 2)))
            name = self._chance.choice(names)
            child = self._running[name]
            if not child.pid.done() or child.code.done():
                continue
            match self._blows.pop():
                case "kill":
                    self.toll.kills[name] += 1
                    await child.send(signal.SIGKILL)
                    await child.ended()  # so that it is struck once
                case "stop":
                    self.toll.stops[name] += 1
                    await child.send(signal.SIGSTOP)
                    await asyncio.sleep(self._chance.uniform(0.3, 2.0) * self.plan.lease)
                    await child.send(signal.SIGCONT)
                case "cut":
                    await self.ground.part(name, self.plan.lease)
                case "restart":
                    await self.ground.restart()

    async def _carried_out(self, more: int) -> None:
        enough, turns = len(self.sandbox.ledger) + more, 0
        while len(self.sandbox.ledger) < enough and turns < 100:
            turns += 1
            await asyncio.sleep(0.01)

    async def _all_put(self) -> None:
        """Until every order was promised by somebody."""
        while len(self._promised()) < self.plan.orders or self._blows:  # noqa: ASYNC110 - other processes write it
            await asyncio.sleep(0.1)

    def _promised(self) -> set[str]:
        file = self.folder / "promised"
        return set(file.read_text(encoding="utf-8").split()) if file.exists() else set()

    async def _rest(self) -> None:
        """Until everything that can be known is known, and told."""
        async with self.ground.journal() as journal:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE) as patience:
                    before: object = None
                    while True:
                        counts = (await journal.progress(outbox=NAME)).counts
                        backlog = await journal.change_backlog(NAME)
                        if not counts[State.PLANNED] and not counts[State.SENDING] and not backlog.pending:
                            return
                        if before != (before := (counts, backlog.pending)):
                            patience.reschedule(asyncio.get_running_loop().time() + PATIENCE)
                        await asyncio.sleep(0.1)

    async def _reckon(self) -> None:
        sandbox, toll = self.sandbox, self.toll
        toll.cuts, toll.restarts = self.ground.partitions, self.ground.restarts
        sandbox.ipn_url = None  # nobody is there any more
        await sandbox.settle(60)
        sandbox.chaos({})
        who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
        async with self.ground.journal() as journal, PaymentsSession(self.ground.base, who) as payments:
            if not self.plan.broken:
                await reconcile(payments, journal, settings=ReconcileSettings(grace=0.0, interval=0.0))
            executions = {execution.request_id: execution for execution in sandbox.ledger}
            held = set()
            parked = [entry.request_id async for entry in journal.entries(state="parked")]
            toll.parked = causes(parked, self.folder, sandbox)
            async for entry in journal.entries():
                held.add(entry.request_id)
                toll.states[entry.state.value] += 1
                execution = executions.pop(entry.request_id, None)
                why = contradiction(entry.state, execution)
                if why is None and execution is not None and entry.state in ("unknown", "parked", "accepted"):
                    why = f"is {entry.state}, and was carried out and listed"
                if why is None and entry.state == "planned":
                    why = "was put, and never sent"
                if why is not None:
                    toll.contradictions.append(f"{entry.request_id} {why}")
            toll.contradictions += [f"{request_id} is in no journal" for request_id in executions]
            toll.promised = self._promised()
            toll.contradictions += [f"{lost} was promised, and is lost" for lost in sorted(toll.promised - held)]
            await self._compare_told(journal)
            await journal.check()
        toll.duplicates = sandbox.duplicates()
        toll.executions = len(sandbox.ledger)

    async def _compare_told(self, journal: Journal) -> None:
        """What handlers were told against what the journal has written down until everything had come to rest."""
        file, toll = self.folder / "told", self.toll
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            request_id, state, change = line.split()
            toll.told.setdefault((request_id, state), Counter())[int(change)] += 1
        backlog = await journal.change_backlog(NAME)
        waiting = backlog.pending + backlog.dead
        last, missing = 0, 0
        while changes := await journal.changes_after(NAME, last):
            last = changes[-1].id
            for change in changes:
                if change.state in TOLD_OF and change.id not in toll.told.get((change.request_id, change.state), ()):
                    missing += 1
        if missing > waiting:  # what came of the reckoning itself waits for the next process that handles
            toll.contradictions.append(f"{missing - waiting} facts were told to nobody")
        for (request_id, state), ids in toll.told.items():
            if len(ids) > 1:
                toll.contradictions.append(f"{request_id} was told to be {state} under {len(ids)} ids")


async def wreak(plan: Plan, folder: Path) -> Toll:
    """Put and send all orders in many processes, and disturb them."""
    async with Sandbox(
        seed=plan.seed,
        processing_delay=0.05,
        redelivery=Redelivery(attempts=99, wait_initial=0.05, wait_max=0.5, timeout=1.0),
    ) as sandbox:
        rates = {Fault.LOST_BEFORE: 0.02, Fault.LOST_AFTER: 0.02, Fault.REFUSED: 0.02, Fault.FAILS: 0.05}
        sandbox.chaos(rates | {Fault.SLOW: 1.0}, seconds=plan.delay)
        if plan.broken:  # a notification would settle what is wrong in time
            sandbox.chaos({Fault.SLOW: 1.0, Fault.NOTIFY_LOST: 1.0}, seconds=plan.delay)
        ground = Ground(folder, plan.journal, sandbox, random.Random(plan.seed))
        async with Nursery("benchmarks.chaos_outbox") as nursery, ground:
            return await Chaos(plan, sandbox, ground, folder, nursery).run()


def verdict(plan: Plan, toll: Toll) -> Iterator[str]:
    """What went wrong."""
    return faults(toll, orders=plan.orders, broken=plan.broken)


def main() -> int:
    """Read the command line and run."""
    plan = plan_of(Plan, __doc__, orders=10_000)
    with tempfile.TemporaryDirectory() as folder:
        toll = asyncio.run(wreak(plan, Path(folder)))
    print(f"killed {toll.kills.total()} times: {dict(toll.kills)}; stopped {toll.stops.total()}: {dict(toll.stops)}")
    print(f"{toll.restarts} restarts of the database, {toll.cuts.total()} partitions: {dict(toll.cuts)}")
    show(toll)
    again = sum(ids.total() - len(ids) for ids in toll.told.values())
    print(f"{len(toll.told)} facts were told to handlers, {again} more than once")
    return end(verdict(plan, toll))


if __name__ == "__main__":
    sys.exit(main())

"""One world: a service, applications with an outbox each on one journal, a batch, a person; and who judges them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import attrs
from bulk.worlds import contradiction, payout
from simulation.machines import Machine, is_of_the_journal
from simulation.plans import SERVICE, Blow, Plan

from payments_async import Credentials, PaymentsSession, PayoutOrder
from payments_async.bulk import reconcile, run_batch, write_off
from payments_async.ipn import Receiver, serving
from payments_async.journal import (
    Entry,
    HeldElsewhere,
    JournalError,
    JournalUnavailable,
    NotParked,
    State,
)
from payments_async.journal._engine._journal import StoredJournal
from payments_async.journal._sqlite import _journal
from payments_async.outbox import Outbox, _crew, _standing
from payments_async.sandbox import Quirks, Sandbox
from payments_async.testing._simulation.loops import SimulatedLoop
from payments_async.testing._simulation.networks import Network, Weather
from payments_async.testing._simulation.processes import Process
from payments_async.testing._simulation.threads import crash_point

NAME = "shop"
TOLD_OF = (State.SUCCESSFUL, State.FAILED, State.REJECTED)
ENDS = (State.SUCCESSFUL, State.FAILED, State.REVERSED, State.REJECTED, State.PARKED)
PATIENCE = 8_000.0  # seconds after the last fault within which everything has come to rest


class _Clock:
    """The simulation's, for the service."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._loop.wall_clock, UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@attrs.define
class World:
    """What a plan is run in.

    Attributes:
        line: What happened, for who reads a failure.
        told: How often handlers heard of a fact, and under which ids.
        promised: Whose put has returned.
    """

    plan: Plan
    folder: Path
    loop: SimulatedLoop
    network: Network
    machine_of: Callable[[World], Machine] = Machine
    line: list[str] = attrs.field(factory=list)
    told: dict[tuple[str, str], set[int]] = attrs.field(factory=dict)
    promised: set[str] = attrs.field(factory=set)
    faults: list[str] = attrs.field(factory=list)
    lives: dict[int, Process] = attrs.field(factory=dict)
    tasks: dict[int, Any] = attrs.field(factory=dict)
    states: dict[str, Entry] = attrs.field(factory=dict)
    sandbox: Sandbox = attrs.field(init=False)
    machine: Machine = attrs.field(init=False)
    _born: int = 0
    _is_calm: bool = False

    # --- the whole of it

    async def run(self) -> None:
        """Trouble, then rest, then judgement; what is wrong is in ``faults``."""
        service, ready = Process(self.loop, "service"), self.loop.create_future()
        service.start(self._serve(ready))
        self.sandbox = await ready
        self.machine = self.machine_of(self)
        self.machine.begin()
        self._begin_trouble()
        for number in range(self.plan.applications + bool(self.plan.batch)):
            self.live(number)
        for blow in self.plan.blows:
            await asyncio.sleep(max(0.0, blow.at - self.loop.time()))
            self._strike(blow)
        await asyncio.sleep(max(0.0, self.plan.trouble - self.loop.time()))
        self._end_trouble()
        until = self.loop.time() + PATIENCE + self.machine.extra
        while self.loop.time() < until:
            await asyncio.sleep(60.0)
            for number in range(self.plan.applications + bool(self.plan.batch)):
                self.live(number)
            await self._look()
            if self._rests():
                break
            _slow_down()
        await self._look()
        await self._close()
        self._judge()

    def say(self, *words: object) -> None:
        """Add to the time line, and to what two runs of a seed have in common."""
        text = " ".join(map(str, words))
        self.loop.note(text)
        self.line.append(f"{self.loop.time():12.3f} {text}")

    def has(self, fault: str) -> bool:
        """Whether a fault exists in this world."""
        return fault in self.plan.faults

    # --- the service

    async def _serve(self, ready: asyncio.Future[Sandbox]) -> None:
        quirks = Quirks(
            listed_after=self.loop.chance.randint(1, 8) if self.has("late") else 0,
            unstable_pages=self.has("unstable"),
            ignores_status_filter=self.has("ignores_status_filter"),
            total_error=None if self.has("no_total") else 0,
            newest_first=self.has("newest_first"),
            unknown_filter_word="ignored" if self.has("ignores_status_filter") else "refused",
        )
        async with Sandbox(quirks=quirks, seed=self.plan.seed, clock=_Clock(self.loop), ipn_attempts=50) as sandbox:
            ready.set_result(sandbox)
            await asyncio.Event().wait()

    def _begin_trouble(self) -> None:
        self.sandbox.chaos({fault: 0.15 for name, fault in SERVICE.items() if self.has(name)}, seed=self.plan.seed)
        self.network.weather = Weather(
            latency=2.0 if self.has("slow") else 0.01,
            cut=0.15 if self.has("cut") else 0.0,
            swallow=0.05 if self.has("swallow") else 0.0,
            refuse=0.2 if self.has("refuse") else 0.0,
        )

    def _end_trouble(self) -> None:
        self.say("all faults end")
        self._is_calm = True
        self.machine.end()
        self.network.weather = Weather(latency=0.01)
        self.sandbox.chaos({})
        for process in self.lives.values():
            if process.is_stopped:
                process.go_on()

    # --- processes

    def live(self, number: int) -> None:
        """Start what does not live, as a supervisor does."""
        process = self.lives.get(number)
        if self.machine.is_asleep:
            return
        if process is not None and process.is_dead and self.tasks[number].done() and not self.tasks[number].cancelled():
            self.tasks[number].exception()  # it ended before it was killed
        if process is not None and not process.is_dead:
            if not self.tasks[number].done():
                return
            error = self.tasks[number].exception() if not self.tasks[number].cancelled() else None
            if error is not None and not is_of_the_journal(error):
                self.faults.append(f"{process} ended by {error!r}")
            process.kill()
            if error is not None:
                self.say(process, "ended by", repr(error))
                self.machine.mend(error)
        self._born += 1
        is_batch = number == self.plan.applications
        process = self.lives[number] = Process(self.loop, f"{'batch' if is_batch else 'app'}-{number}.{self._born}")
        self.machine.bear(process, number)
        self.say("start", process)
        self.tasks[number] = process.start(self._batch() if is_batch else self._application(number))

    def _strike(self, blow: Blow) -> None:
        number = blow.who % len(self.lives)
        process = self.lives[number]
        self.say(blow.kind, process, f"for {blow.seconds:g}" if blow.kind == "stop" else "")
        match blow.kind:
            case "kill":
                process.kill()
                self.loop.call_later(min(blow.seconds, 100.0), self.live, number)
            case "stop":
                process.stop()
                self.loop.call_later(blow.seconds, process.go_on)
            case "close":
                self.tasks[number].cancel()
                self.loop.call_later(min(blow.seconds, 100.0), self.live, number)
            case "cancel":
                ours = [
                    task for task in sorted(asyncio.all_tasks(self.loop), key=hash)
                    if task.owner is process and task is not self.tasks[number]
                ]  # fmt: skip
                if ours:
                    chosen = self.loop.chance.choice(ours)
                    self.say("cancel", getattr(chosen.get_coro(), "__qualname__", chosen))
                    chosen.cancel()
            case "hang_up":
                pass
            case _:
                self.machine.strike(blow)

    def _journal(self, number: int | None, *, strikes: bool = True) -> StoredJournal:
        chance = self.loop.chance

        def decide(_: str) -> bool:
            return strikes and not self._is_calm and chance.random() < 0.002

        crash_at = crash_point(decide) if self.has("crash_points") else None
        return self.machine.journal(number, crash_at=crash_at)

    def _session(self) -> PaymentsSession:
        who = Credentials(
            app_key=self.sandbox.app_key, app_password=self.sandbox.app_password, user_id=self.sandbox.user_id
        )
        return PaymentsSession(self.sandbox.base_url, who, timeout=aiohttp.ClientTimeout(total=5.0))

    async def _application(self, number: int) -> None:
        async with (
            self._journal(number) as journal,
            self._session() as payments,
            self.machine.tended(payments, journal, tends=number == 0),
        ):
            receiver = Receiver(journal, ["127.0.0.1"], confirm=payments if self.plan.confirms else None)
            outbox = Outbox(payments, journal, NAME, concurrency=4, lease=30.0)

            @outbox.on(*TOLD_OF, name="note")
            async def note(entry: Entry) -> None:
                assert entry.change_id is not None
                self.told.setdefault((entry.request_id, entry.state.value), set()).add(entry.change_id)

            async with serving(receiver, port=0) as (host, port), outbox:
                self.sandbox.ipn_url = f"http://{host}:{port}/ipn"
                numbers = list(range(self.plan.orders))
                self.loop.chance.shuffle(numbers)
                async with asyncio.TaskGroup() as group:
                    for one in numbers:
                        group.create_task(self._put(outbox, one))
                if number == 0 and self.has("sends_again"):
                    await self._decide(payments, journal)
                await asyncio.Event().wait()

    async def _put(self, outbox: Outbox, number: int) -> None:
        order, failed = payout(number, batch_id=NAME), 0
        while failed < 20:
            try:
                if await self._is_put(outbox, order):
                    self.promised.add(order.request_id)
                    return
            except HeldElsewhere:
                await self.machine.adopt(outbox, order)
                if order.request_id in self.machine.known:
                    return
                continue
            except JournalUnavailable:
                if failed > 3:  # a file that was replaced needs a process that begins anew
                    raise
            failed += 1
            await asyncio.sleep(1.0)

    async def _is_put(self, outbox: Outbox, order: PayoutOrder) -> bool:
        with suppress(TimeoutError):
            if self.plan.pays:
                hangs_up = self.has("hang_up") and not self._is_calm and self.loop.chance.random() < 0.5
                async with asyncio.timeout(self.loop.chance.random() * 0.1 if hangs_up else None):
                    await outbox.pay(order, timeout=20.0)
            else:
                await outbox.put(order)
        return await outbox.entry(order.request_id) is not None

    async def _decide(self, payments: PaymentsSession, journal: StoredJournal) -> None:
        """A person who knows the truth: what the service has not carried out is sent again, the rest stays parked."""
        while True:
            await asyncio.sleep(600.0)
            parked = [entry async for entry in journal.entries(state=State.PARKED)]
            for entry in parked:
                if not self.sandbox.executions(entry.request_id):
                    with suppress(NotParked):
                        await write_off(journal, entry.request_id, "Ann Example", "the service never had it")
                        self.say("sent again by a person:", entry.request_id)

    async def _batch(self) -> None:
        async with (
            self._journal(self.plan.applications) as journal,
            self._session() as payments,
            self.machine.tended(payments, journal, tends=True),
        ):
            orders = [payout(1000 + number, batch_id="salaries") for number in range(self.plan.batch)]
            while True:
                with suppress(JournalError):
                    progress = await run_batch(payments, journal, "salaries", orders, concurrency=3)
                    if not progress.counts[State.PLANNED]:
                        break
                await asyncio.sleep(30.0)
            self.promised.update(order.request_id for order in orders)
            while self._open(await journal.progress("salaries")):
                await reconcile(payments, journal, "salaries")
                await asyncio.sleep(300.0)
            await asyncio.Event().wait()

    @staticmethod
    def _open(progress: Any) -> bool:
        return any(progress.counts[state] for state in (State.UNKNOWN, State.ACCEPTED, State.SENDING))

    async def _look(self) -> None:
        """Read what the journal holds, as a process of its own."""
        viewer = Process(self.loop, "viewer")
        self.machine.bear(viewer, -1)

        async def read() -> dict[str, Entry]:
            async with self._journal(None, strikes=False) as journal:
                return {entry.request_id: entry async for entry in journal.entries()}

        try:
            self.states = await viewer.start(read())
        except JournalError as error:
            self.say("nothing can be read:", repr(error))
            viewer.kill()
            self.machine.mend(error)

    async def _close(self) -> None:
        for number, task in self.tasks.items():
            task.cancel()
            await asyncio.wait([task], timeout=100.0)
            if not task.done():
                self.faults.append(f"{self.lives[number]} does not close")

    # --- judgement

    def _rests(self) -> bool:
        wanted = [payout(number).request_id for number in range(self.plan.orders)]
        wanted += [payout(1000 + number).request_id for number in range(self.plan.batch)]
        ledger = {execution.request_id: str(execution.status) for execution in self.sandbox.ledger}
        for request_id in wanted:
            entry = self.states.get(request_id)
            if entry is None and request_id in self.machine.known:
                continue
            if entry is None or entry.state not in ENDS:
                if entry is not None and self._may_stay(entry, ledger.get(request_id, "")):
                    continue
                return False
        return all(
            any(key == (entry.request_id, entry.state.value) for key in self.told)
            for entry in self.states.values()
            if entry.state in TOLD_OF and entry.batch_id == NAME and not entry.conflict
        )

    def _may_stay(self, entry: Entry, status: str) -> bool:
        """Whether an order may stay open for ever: the service has not ended it, or its lists prove nothing."""
        if entry.state is State.ACCEPTED:
            return "PROCESSING" in status or self.has("ignores_status_filter")
        return entry.state is State.UNKNOWN and self.has("no_total")

    def _judge(self) -> None:
        faults = self.faults
        faults += [f"carried out more than once: {request_id}" for request_id in self.sandbox.duplicates()]
        faults += [
            f"lost: {request_id}" for request_id in sorted(self.promised - set(self.states) - self.machine.known)
        ]
        executions = {execution.request_id: execution for execution in self.sandbox.ledger}
        for request_id, entry in sorted(self.states.items()):
            wrong = contradiction(entry.state, executions.get(request_id))
            if wrong is not None and not wrong.endswith("REVERSED"):  # which is looked for where somebody asks
                faults.append(f"{request_id} {wrong}")
        if not self.machine.has_forgotten:  # a journal that was put back has forgotten what it told, and tells it again
            faults += [f"told under {len(ids)} ids: {fact}" for fact, ids in sorted(self.told.items()) if len(ids) > 1]
        if not self._rests():
            faults.append("not at rest: " + ", ".join(f"{key} {one.state}" for key, one in sorted(self.states.items())))
        faults += self.loop.problems
        faults += [
            f"an error that nobody took: {task!r}"
            for task in self.loop.every
            # aiohttp's server counts on a step before the loss of its connection, which the seed may let overtake it
            if task.done() and task._log_traceback and "web_protocol" not in repr(task)
        ]
        self.loop.note(sorted((key, one.state.value) for key, one in self.states.items()), self.loop.steps)


def _slow_down() -> None:
    """Let what is looked at again and again be looked at less often: most of the time of a simulation is that."""
    _journal._LOOK_AGAIN = 1.0
    _crew._TICK = 2.0
    _standing._LOOK = 1.0


def world_of(
    plan: Plan, folder: Path, made: list[World], machine_of: Callable[[World], Machine] = Machine
) -> Callable[[SimulatedLoop, Network], Awaitable[None]]:
    """What a simulation runs."""

    def begun(loop: SimulatedLoop, network: Network) -> Awaitable[None]:
        world = World(plan, folder, loop, network, machine_of)
        made.append(world)
        return world.run()

    return begun

"""One world: a service, applications with an outbox each on one journal, batches, a person. Who judges: ``judges``."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import attrs
from bulk.worlds import payout
from simulation.judges import Judge
from simulation.machines import CLOCKS, Machine, is_of_the_journal
from simulation.plans import SERVICE, Blow, Plan
from simulation.strangers import Elsewhere, Forger, Mistaken, begin_to_lie
from simulation.threads import crash_point

from payments_async import Credentials, PaymentsSession, PayoutOrder
from payments_async._values.tasks import TaskCancelled
from payments_async.bulk import BatchTerms, ReconcileSettings, RunSettings, reconcile, run_batch, send_again
from payments_async.ipn import Receiver, ServerLimits, serving
from payments_async.journal import (
    ApprovalRule,
    Entry,
    HeldElsewhere,
    JournalError,
    JournalUnavailable,
    NotApproved,
    NotParked,
    OrdersDiffer,
    Proposal,
    Signature,
    State,
)
from payments_async.journal._engine._journal import Journal
from payments_async.journal._sqlite import _journal
from payments_async.outbox import HandlerPolicy, Outbox, WorkerSettings, _listening, _settling, _worker_pool
from payments_async.sandbox import Fault, Quirks, Redelivery, Sandbox
from payments_async.testing._simulation.loops import SimulatedLoop
from payments_async.testing._simulation.networks import Network, Weather
from payments_async.testing._simulation.processes import Process

NAME = "shop"
TOLD_OF = (State.SUCCESSFUL, State.FAILED, State.REJECTED, State.CANCELLED)
MAKER = Signature(who="Ann Example")
CHECKERS = Signature(who="Ben Example"), Signature(who="Cem Example")
CHEATS = MAKER, Signature(who=" ann EXAMPLE ")  # the maker, also under another spelling
SIX_EYES = ApprovalRule(needed=2, shared_logins=True, why="six eyes", by=MAKER)
PATIENCE = 6_000.0  # seconds after the last fault within which everything has come to rest
_LOOKED_UP = 3_600.0  # ... and at most between two looks at an order that is accepted: each is one reading of the list
_TRIES = 3  # of an application, to put each of its orders
_LOOKS = 12  # of the judge, while there is trouble
_MOMENT = 20.0  # seconds between two of its looks afterwards
_CHANGE = 0.2  # of the moments at which a checker may change their mind, at how many they look
_SOON = 200.0  # seconds after the last fault; then it looks less often
_QUIET = 4.0  # ... how much less often batches are offered again
_HEADERS = 40.0  # seconds that a notification's headers may take, which are looked at four times in them
_POLLS = 20.0, 60.0  # seconds between two looks for what waits for handlers, once all is calm, and at most


class HandlerFails(Exception):
    """A handler of the application fails, on purpose."""


class _Clock:
    """The simulation's, for the service."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._loop.wall_clock, UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@attrs.define(eq=False)
class World:
    """What a plan is run in.

    Attributes:
        line: What happened, for who reads a failure: when, whose it was, and what.
        told: Under which ids each handler heard of a fact.
        promised: Whose put has returned, by their ids in small letters.
        approved: Batches that another person has approved.
        tried: Digests of plans that their maker has tried to approve.
        is_asked: Whether anything was proposed since the last look of who approves.
    """

    plan: Plan
    folder: Path
    loop: SimulatedLoop
    network: Network
    machine_of: Callable[[World], Machine] = Machine
    line: list[tuple[float, str, str]] = attrs.field(factory=list)
    told: dict[tuple[str, str, str], set[int]] = attrs.field(factory=dict)
    promised: set[str] = attrs.field(factory=set)
    approved: set[str] = attrs.field(factory=set)
    tried: set[str] = attrs.field(factory=set)
    is_asked: bool = False
    faults: list[str] = attrs.field(factory=list)
    lives: dict[int, Process] = attrs.field(factory=dict)
    tasks: dict[int, Any] = attrs.field(factory=dict)
    outboxes: dict[int, Outbox] = attrs.field(factory=dict)
    closed: list[Process] = attrs.field(factory=list)
    left: dict[Process, list[str]] = attrs.field(factory=dict)
    policies: list[HandlerPolicy] = attrs.field(factory=list)
    sandbox: Sandbox = attrs.field(init=False)
    machine: Machine = attrs.field(init=False)
    elsewhere: Elsewhere = attrs.field(init=False)
    judge: Judge = attrs.field(init=False)
    _born: int = 0
    _busy_until: float = 0.0  # until then something is done to a process, or it has just begun
    is_calm: bool = False
    is_quiet: bool = False

    # --- the whole of it

    async def run(self) -> None:
        """Trouble, then rest, then judgement; what is wrong is in ``faults``."""
        service, ready = Process(self.loop, "service"), self.loop.create_future()
        service.start(self._serve(ready))
        self.sandbox = await ready
        self.machine = self.machine_of(self)
        self.machine.begin()
        self.elsewhere = Elsewhere(self)
        self.judge = Judge(self)
        self.judge.follow_lists()
        if not any(map(self.has, CLOCKS)):
            self.judge.follow_parking()
        self.loop.after_turn = self.judge.after_turn
        if not self.plan.hurries:
            _slow_down()
        self._begin_trouble()
        await self.elsewhere.begin()
        for number in range(self.plan.processes):
            self.live(number)
        Process(self.loop, "person").start(self._person())
        Process(self.loop, "checker").start(self._checker())
        Process(self.loop, "canceller").start(self._canceller())
        for blow in self.plan.blows:
            await self._watch_until(blow.at)
            self._strike(blow)
        await self._watch_until(self.plan.trouble)
        self._end_trouble()
        calm_since = self.loop.time()
        until = calm_since + PATIENCE + self.machine.extra + _LOOKED_UP * self.sandbox.quirks.listed_after
        self._slow_down(1.0)
        while self.loop.time() < until:
            await asyncio.sleep(_MOMENT if self.loop.time() < calm_since + _SOON else 3 * _MOMENT)
            calm_for = self.loop.time() - calm_since
            if calm_for >= _SOON:  # what is left waits for a time of grace, or for a list
                self.is_quiet = True
                self._slow_down(4 + max(calm_for, self.machine.extra) / 500.0)
            for number in range(self.plan.processes):
                self.live(number)
            before = self.judge.rows
            await self.judge.look()
            if self.loop.time() >= self._busy_until and self.judge.rests(before) and not await self.judge.ailments():
                break
        else:
            self.faults += await self.judge.ailments()
        await self._close()
        await self.judge.judge()

    def say(self, *words: object) -> None:
        """Add to the time line, and to what two runs of a seed have in common; whose it was may come first."""
        who = str(words[0]) if isinstance(words[0], Process) or words[0] in ("service", "journal", "person") else ""
        text = " ".join(str(word) for word in words[bool(who) :] if word != "").replace(f"{self.folder}/", "")
        self.loop.note(who, text)
        self.line.append((self.loop.time(), who, text))

    def pause(self, seconds: float) -> float:
        """How long an application waits until it offers its batch again: longer, once it is quiet."""
        return seconds * (_QUIET if self.is_quiet else 1.0)

    def _slow_down(self, calm: float) -> None:
        """Now that all is calm, let everything be looked at less often."""
        _slow_down(calm=calm)
        for policy in self.policies:  # of handlers, which is one value for as long as an application lives
            object.__setattr__(policy, "poll", max(policy.poll, min(_POLLS[0] * calm, _POLLS[1])))

    def has(self, fault: str) -> bool:
        """Whether a fault exists in this world."""
        return fault in self.plan.faults

    async def _watch_until(self, moment: float) -> None:
        while (left := moment - self.loop.time()) > 0:
            await asyncio.sleep(min(left, self.plan.trouble / _LOOKS))
            await self.judge.look()

    # --- the service

    async def _serve(self, ready: asyncio.Future[Sandbox]) -> None:
        chance = self.loop.chance
        total_error = chance.choice([-2, -1, 1, 2]) if self.has("lying_total") else 0
        quirks = Quirks(
            listed_after=chance.randint(1, 20) if self.has("late") else 0,
            unstable_pages=self.has("unstable"),
            ignores_status_filter=self.has("ignores_status_filter"),
            total_error=None if self.has("no_total") else total_error,
            newest_first=self.has("newest_first"),
            unknown_filter_word="ignored" if self.has("ignores_status_filter") else "refused",
            next_page_lies=self.has("lying_next_page"),
            default_page_size=2 if self.has("small_pages") else 20,
            max_page_size=3 if self.has("small_pages") else 100,
            record_has_status=self.has("forgeries"),  # else none is found out that says the contrary of the truth
        )
        async with Sandbox(
            quirks=quirks, seed=self.plan.seed, clock=_Clock(self.loop), redelivery=Redelivery(attempts=50)
        ) as sandbox:
            ready.set_result(sandbox)
            await asyncio.Event().wait()

    def _begin_trouble(self) -> None:
        chaos = {fault: 0.15 for name, fault in SERVICE.items() if self.has(name)}
        if self.has("lies"):
            begin_to_lie(self.plan.seed)
            chaos |= {Fault.ERROR_BEFORE: 0.3, Fault.ERROR_AFTER: 0.4}
        if self.has("forgeries"):
            Forger(self).begin()
        if self.has("second_journal") and not self.machine.exists and not self.plan.is_postgres:
            Mistaken(self).begin()
        self.sandbox.chaos(chaos, seed=self.plan.seed)
        self.network.weather = Weather(
            latency=2.0 if self.has("slow_line") else 0.01,
            cut=0.15 if self.has("cut") else 0.0,
            swallow=0.05 if self.has("swallow") else 0.0,
            stall=0.1 if self.has("stall") else 0.0,
            twice=0.1 if self.has("twice") else 0.0,
            refuse=0.2 if self.has("refuse") else 0.0,
        )

    def _end_trouble(self) -> None:
        self.say("all faults end")
        self.is_calm = True
        self.machine.end()
        self.network.weather = Weather(latency=0.01)
        self.sandbox.chaos({})
        if self.has("lying_total") and not self.has("no_total"):
            self.sandbox.switch("total_error", 0)
        for process in self.lives.values():
            process.mute_until = process.deaf_until = 0.0
            if process.is_stopped:
                process.go_on()

    # --- processes

    def live(self, number: int) -> None:
        """Start what does not live, as a supervisor does."""
        if self.machine.is_asleep or self.loop.now < self.machine.off_until:
            return
        process = self.lives.get(number)
        if process is not None and process.is_dead and self.tasks[number].done() and not self.tasks[number].cancelled():
            self.tasks[number].exception()  # it ended before it was killed
        if process is not None and not process.is_dead:
            if not self.tasks[number].done():
                return
            self._ended(process, self.tasks[number])
        self._born += 1
        batch = number - self.plan.applications
        process = self.lives[number] = Process(self.loop, f"{'app' if batch < 0 else 'batch'}-{number}.{self._born}")
        self.outboxes.pop(number, None)  # of a life that was killed: nothing can close it
        self.machine.bear(process, number)
        self.say(process, "start")
        self._busy_until = max(self._busy_until, self.loop.time() + 30.0)
        work = self._application(number) if batch < 0 else self._batch(batch)
        self.tasks[number] = process.start(work)

    def _ended(self, process: Process, task: Any) -> None:
        """A process has ended by itself, or was closed: an unforeseen error fails the seed."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not is_of_the_journal(error) and not isinstance(error, TaskCancelled):
            self.faults.append(f"{process} ended by {error!r}")
        self.closed.append(process)
        self.left[process] = [f"listener on {one.port}" for one in process.listeners]
        if not self.machine.has_forgotten:  # one whose file was replaced is left open: closing it would write into that
            self.left[process] += ["an open database" for one in process.databases if _is_open(one)]
        process.kill()
        if error is not None:
            self.say(process, "ended by", repr(error))
            self.machine.mend(error)

    def _strike(self, blow: Blow) -> None:
        number = blow.who % len(self.lives)
        process = self.lives[number]
        is_long = blow.kind in ("stop", "mute", "deaf")
        self._busy_until = max(self._busy_until, self.loop.time() + min(blow.seconds, 100.0) + 20.0)
        self.say(process, blow.kind.upper(), f"for {blow.seconds:g} s" if is_long else "")
        match blow.kind:
            case "kill":
                self.kill(number, blow.seconds)
            case "stop":
                process.stop()
                self.loop.call_later(blow.seconds, process.go_on)
            case "mute":
                process.mute_until = self.loop.time() + blow.seconds
            case "deaf":
                process.deaf_until = self.loop.time() + blow.seconds
            case "close":
                self.tasks[number].cancel()
                self.loop.call_later(min(blow.seconds, 100.0), self.live, number)
            case "shut" if number in self.outboxes and not process.is_dead:
                process.start(self.outboxes.pop(number).__aexit__(None, None, None))
                self.loop.call_later(min(blow.seconds, 100.0), self.tasks[number].cancel)
                self.loop.call_later(min(blow.seconds, 100.0) + 10.0, self.live, number)
            case "cancel":
                ours = [
                    task for task in sorted(asyncio.all_tasks(self.loop), key=hash)
                    if task.owner is process and task is not self.tasks[number]
                ]  # fmt: skip
                if ours:
                    chosen = self.loop.chance.choice(ours)
                    self.say(process, "cancelled:", getattr(chosen.get_coro(), "__qualname__", chosen))
                    chosen.cancel()
            case "shut":
                pass  # it has no outbox open
            case _:
                self.machine.strike(blow)

    def kill(self, number: int, seconds: float) -> None:
        """Kill a process; it begins anew a while later."""
        self.lives[number].kill()
        self.loop.call_later(min(seconds, 100.0), self.live, number)

    def _journal(self, number: int | None) -> Journal:
        chance = self.loop.chance

        def decide(_: str) -> bool:
            return not self.is_calm and chance.random() < 0.002

        crash_at = crash_point(decide) if self.has("crash_points") else None
        return self.machine.journal(number, crash_at=crash_at)

    def _session(self) -> PaymentsSession:
        who = Credentials(
            app_key=self.sandbox.app_key, app_password=self.sandbox.app_password, user_id=self.sandbox.user_id
        )
        return PaymentsSession(self.sandbox.base_url, who, timeout=aiohttp.ClientTimeout(total=5.0))

    async def _application(self, number: int) -> None:
        """An application with an outbox and a receiver; it closes them in the usual sequence, or in any."""
        opened: list[Any] = []

        async def enter(part: Any) -> Any:
            entered = await part.__aenter__()
            opened.append(part)
            return entered

        is_long = self.has("clock") or self.has("own_clock")  # what waits for a wrong clock may wait for days
        poll = 30.0 if is_long else 1.0 if self.plan.hurries else 10.0
        policy = HandlerPolicy(poll=max(poll, _POLLS[0]) if self.is_calm else poll, wait_max=60.0)
        self.policies.append(policy)
        limits = ServerLimits() if self.plan.hurries else ServerLimits(header_time=_HEADERS)
        try:
            journal, payments = await enter(self._journal(number)), await enter(self._session())
            await self._ask_for_approvals(journal)
            await enter(self.machine.tended(payments, journal, tends=number == 0))
            receiver = Receiver(journal, ["127.0.0.1"], confirm=payments if self.plan.confirms else None, policy=policy)
            outbox = Outbox(
                payments,
                journal,
                NAME,
                concurrency=4,
                worker=WorkerSettings(lease=30.0, grace=self.plan.grace),
                policy=policy,
            )
            for one in range(self.plan.handlers):
                outbox.on(*TOLD_OF, name=f"note {one}")(self._handler(f"note {one}"))
            host, port = await enter(serving(receiver, port=0, limits=limits))
            await enter(outbox)
            self.outboxes[number] = outbox
            self.sandbox.ipn_url = f"http://{host}:{port}/ipn"
            self.judge.receives = number
            await self._use(outbox, number)
        finally:
            self.outboxes.pop(number, None)
            if self.has("closes_anyhow"):
                self.loop.chance.shuffle(opened)
            else:
                opened.reverse()
            await _closed(opened)

    def _handler(self, name: str) -> Callable[[Entry], Awaitable[None]]:
        async def note(entry: Entry) -> None:
            assert entry.change_id is not None
            self.told.setdefault((name, entry.request_id.lower(), entry.state.value), set()).add(entry.change_id)
            if self.has("handlers_fail") and not self.is_calm and self.loop.chance.random() < 0.3:
                raise HandlerFails

        return note

    async def _use(self, outbox: Outbox, number: int) -> None:
        """Put every order, each in a task of its own."""
        numbers = list(range(self.plan.orders))
        self.loop.chance.shuffle(numbers)
        for _ in range(_TRIES):
            async with asyncio.TaskGroup() as group:
                for one in numbers:
                    # in some worlds every other application writes every other id in other letters
                    changes = {}
                    if self.has("twins") and number % 2 and one % 2:
                        changes["request_id"] = payout(one).request_id.upper()
                    group.create_task(self._put(outbox, payout(one, batch_id=NAME, **changes)))
                if self.plan.gifts and not number:
                    group.create_task(self._give(outbox))
            # one whose task was cancelled by itself is put once more
            numbers = [one for one in numbers if payout(one).request_id not in self.promised | self.machine.known]
        await asyncio.Event().wait()

    async def _put(self, outbox: Outbox, order: Any) -> None:
        await self.machine.wait_to_put(order.request_id)
        is_put = await self.elsewhere.wait_to_put(order.request_id.lower())
        failed = 0
        while is_put and failed < 20:
            try:
                if await self._is_put(outbox, order):
                    self.promised.add(order.request_id.lower())
                    return
            except HeldElsewhere:
                await self.machine.adopt(outbox, order)
                if order.request_id in self.machine.known:
                    return
                continue
            except OrdersDiffer:  # it was put in other letters
                self.promised.add(order.request_id.lower())
                return
            except JournalUnavailable:
                if failed > 3:  # a file that was replaced needs a process that begins anew
                    raise
            except RuntimeError:
                if outbox in self.outboxes.values():
                    raise
                return  # it was shut
            failed += 1
            await asyncio.sleep(1.0)

    async def _is_put(self, outbox: Outbox, order: PayoutOrder) -> bool:
        with suppress(TimeoutError):
            if self.plan.pays:
                hangs_up = self.has("hang_up") and not self.is_calm and self.loop.chance.random() < 0.5
                async with asyncio.timeout(self.loop.chance.random() * 0.1 if hangs_up else None):
                    await outbox.pay(order, timeout=20.0)
            else:
                await outbox.put(order)
        return await outbox.entry(order.request_id) is not None

    async def _give(self, outbox: Outbox) -> None:
        """Put a batch into the outbox."""
        await self.elsewhere.wait_to_begin()
        orders = [payout(3000 + number, batch_id="gifts") for number in range(self.plan.gifts)]
        while outbox in self.outboxes.values():
            try:
                await outbox.put_batch(
                    "gifts", orders, source_digest=await self._propose(outbox.journal, "gifts", orders)
                )
            except HeldElsewhere:
                if self._knows(orders):
                    return
            except JournalError:
                pass
            else:
                self.promised.update(order.request_id for order in orders)
                return
            await asyncio.sleep(self.pause(5.0))

    async def _person(self) -> None:
        """A person who knows the truth: what the service has not carried out is sent again, the rest stays parked."""
        while self.has("sends_again") or self.has("pauses"):
            await asyncio.sleep(60.0)
            if self.is_calm and not self.judge.waits_for_a_person:
                continue
            with suppress(JournalError):
                async with self.machine.journal(None) as journal:
                    if self.has("sends_again"):
                        await self._send_again(journal)
                    if self.has("pauses") and NAME in {run.batch_id for run in await journal.runs()}:
                        if not self.is_calm and self.loop.chance.random() < 0.5:
                            await journal.pause(NAME, who="Ann Example", why="lunch")
                            self.say("person", "paused the outbox")
                        elif await journal.resume(NAME, who="Ann Example", why="lunch is over"):
                            self.say("person", "resumed the outbox")

    async def _ask_for_approvals(self, journal: Journal) -> None:
        """See to it that nothing of a batch is sent, and nothing sent again, by the word of one person alone."""
        if self.has("approves") and not (await journal.approval_rule()).needed:
            await journal.require_approvals(SIX_EYES)

    async def _propose(self, journal: Journal, name: str, orders: list[PayoutOrder]) -> str | None:
        """Propose a batch, where that is asked for; tells its digest."""
        if not self.has("approves"):
            return None
        digest = hashlib.sha256(name.encode()).hexdigest()
        if not await journal.proposals(digest):
            self.is_asked = True
            total = sum((order.amount for order in orders), Decimal(0))
            await journal.propose(
                Proposal(
                    digest=digest, batch_id=name, orders=len(orders), amount=total, currency=None, file=f"{name}.csv",
                    by=MAKER,
                )
            )  # fmt: skip
        return digest

    async def _checker(self) -> None:
        """Another person, who approves."""
        was_asked = False
        while self.has("approves"):
            await asyncio.sleep(60.0 if self.is_calm else 5.0)
            was_asked = was_asked or self.is_asked
            may_change = self.machine.has_forgotten or (was_asked and self.has("withdraws") and not self.is_calm)
            is_due = may_change and (self.is_calm or self.loop.chance.random() < _CHANGE)
            if not self.is_asked and not is_due:
                continue  # to open a journal for nothing would take a fifth of all time
            self.is_asked = False
            try:
                async with self.machine.journal(None) as journal:
                    await self._approve(journal)
            except JournalError:
                self.is_asked = True

    async def _canceller(self) -> None:
        """Another person, who changes their mind about what was not sent yet."""
        while self.has("cancels") and not self.is_calm:
            await asyncio.sleep(30.0 * self.loop.chance.random())
            if not self.plan.is_postgres and not self.judge.planned():
                continue  # as for the checker
            with suppress(JournalError):
                async with self.machine.journal(None) as journal:
                    planned = [entry async for entry in journal.entries(state=State.PLANNED)]
                    if planned:
                        request_id = self.loop.chance.choice(planned).request_id
                        await journal.cancel(request_id, who="Ben Example", why="ordered twice")
                        self.say("person", "cancelled", request_id)

    async def _approve(self, journal: Journal) -> None:
        """Approve all that was proposed; or change one's mind, now and then."""
        for proposal in await journal.proposals():
            mine = [one for one in await journal.approvals(proposal.digest) if one.withdrawn is None]
            if not mine and proposal.digest not in self.tried:
                self.tried.add(proposal.digest)
                self.is_asked = True  # at the next look by another person
                for cheat in CHEATS:
                    with suppress(NotApproved):
                        await journal.approve(proposal.digest, by=cheat, note="mine")
            elif missing := [one for one in CHECKERS if one.who not in [each.by.who for each in mine]]:
                if len(missing) == 1:
                    self.approved.add(proposal.batch_id)
                self.is_asked = self.is_asked or len(missing) > 1
                await journal.approve(proposal.digest, by=missing[0], note="seen")
                with suppress(NotApproved):
                    await journal.approve(proposal.digest, by=Signature(who=missing[0].who.upper()), note="seen twice")
                self.say("person", "approved", proposal.batch_id)
            elif self.has("withdraws") and not self.is_calm and self.loop.chance.random() < 0.1 / _CHANGE:
                self.is_asked = True
                await journal.withdraw_approval(proposal.digest, by=CHECKERS[0])
                self.say("person", "took back the approval of", proposal.batch_id)

    async def _send_again(self, journal: Journal) -> None:
        parked = [entry async for entry in journal.entries(state=State.PARKED)]
        for entry in parked:
            if not self.sandbox.executions(entry.request_id):
                try:
                    await send_again(journal, entry.request_id, "Ann Example", "the service never had it")
                    self.say("person", "sends again", entry.request_id)
                except NotApproved:
                    self.is_asked = True
                except NotParked:
                    pass

    async def _batch(self, which: int) -> None:
        name = f"salaries-{which}"
        async with (
            self._journal(self.plan.applications + which) as journal,
            self._session() as payments,
            self.machine.tended(payments, journal, tends=True),
        ):
            orders = [payout(1000 * (which + 1) + one, batch_id=name) for one in range(self.plan.batch)]
            await self.elsewhere.wait_to_begin()
            while True:
                try:
                    await self._ask_for_approvals(journal)
                    digest = await self._propose(journal, name, orders)
                    progress = await run_batch(
                        payments,
                        journal,
                        name,
                        orders,
                        terms=BatchTerms(source_digest=digest),
                        settings=RunSettings(concurrency=3),
                    )
                    self.promised.update(order.request_id for order in orders)
                    if not progress.counts[State.PLANNED] and not self._open(progress):
                        break
                    await reconcile(payments, journal, name, settings=ReconcileSettings(grace=self.plan.grace))
                except JournalError:
                    if self._knows(orders):
                        break
                await asyncio.sleep(self.pause(30.0))
            self.say(self.lives.get(self.plan.applications + which), "is through")
            await asyncio.Event().wait()

    def _knows(self, orders: list[PayoutOrder]) -> bool:
        """Whether these were forgotten, and a person has the statement of the service, which tells how they stand."""
        if not self.machine.has_forgotten or not self.machine.knows_all:
            return False
        self.machine.known.update(order.request_id for order in orders)
        return True

    @staticmethod
    def _open(progress: Any) -> bool:
        return any(progress.counts[state] for state in (State.UNKNOWN, State.ACCEPTED, State.SENDING, State.PARKED))

    async def _close(self) -> None:
        for number, task in self.tasks.items():
            process = self.lives[number]
            if process.is_dead:
                continue
            task.cancel()
            await asyncio.wait([task], timeout=200.0)
            if task.done():
                self._ended(process, task)
            else:
                self.faults.append(f"{process} does not close")


async def _closed(parts: list[Any]) -> None:
    """Close all of these, also where one of them fails, or who closes them is cancelled once more."""
    if parts:
        part = parts.pop(0)
        try:
            with suppress(JournalError):
                await part.__aexit__(None, None, None)
        finally:
            await _closed(parts)


def _is_open(database: sqlite3.Connection) -> bool:
    with suppress(sqlite3.ProgrammingError):
        return database.total_changes >= 0
    return False


def _slow_down(*, calm: float = 0) -> None:
    """Let what is looked at again and again be looked at less often: most of the time of a simulation is that.

    Args:
        calm: How much less often than in trouble; 0 in trouble.
    """
    _journal._LOOK_AGAIN, _journal._LOOK_AGAIN_MAX = (5.0 * calm, 30.0 * calm) if calm else (2.0, 10.0)
    _worker_pool._TICK, _worker_pool._REFRESH = (5.0 * calm, 10.0 * calm) if calm else (2.0, 5.0)
    if calm:
        _listening._LISTEN = _listening._MISSED = 30.0 * calm
        _settling._LISTEN, _settling._BREATH = 20.0 * calm, 5.0 * calm


def world_of(
    plan: Plan, folder: Path, made: list[World], machine_of: Callable[[World], Machine] = Machine
) -> Callable[[SimulatedLoop, Network], Awaitable[None]]:
    """What a simulation runs."""

    def begun(loop: SimulatedLoop, network: Network) -> Awaitable[None]:
        world = World(plan, folder, loop, network, machine_of)
        made.append(world)
        return world.run()

    return begun

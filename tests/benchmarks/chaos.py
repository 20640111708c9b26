"""Chaos: processes that run one batch are killed and stopped at random and at every named point, and nothing is lost.

    python tests/benchmarks/chaos.py                    20,000 orders, 3 processes; then a life struck at every point
    python tests/benchmarks/chaos.py --orders 2000      a shorter one
    python tests/benchmarks/chaos.py --broken           the control: an expired lease makes orders planned again
    python tests/benchmarks/chaos.py --journal postgres --cuts 40 --restarts 6
                                                        in a database that is stopped like by a power cut, on lines to
                                                        it and to the service that break; or --journal DSN

A sandbox in this process is the judge: the exit code is 1 when anything was carried out twice, is lost, or stands in
a state that the ledger contradicts. With ``--broken`` it is 1 when nothing was carried out twice.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.chaos_flights import causes, record
from benchmarks.chaos_ground import AGAIN, Ground, Place
from benchmarks.chaos_plans import end, faults, plan_of, show
from bulk.lives import BLOWS, break_rule_two, strike_all
from bulk.nursery import Child, Nursery
from bulk.worlds import contradiction, payout
from journal.points import IN_A_FILE

from payments_async import Credentials, PaymentsSession, PayoutOrder
from payments_async.bulk import ReconcileSettings, RunSettings, reconcile, run_batch
from payments_async.journal import PostgresJournal, SqliteJournal
from payments_async.sandbox import Fault, Sandbox

BATCH = "chaos"


@attrs.frozen(kw_only=True)
class Plan:
    """How much chaos.

    Attributes:
        orders: Of the batch that is disturbed at random moments.
        kills, stops: Of its processes.
        cuts: Lines of its processes that break for a while.
        restarts: Of the database's server.
        journal: ``postgres`` for a server of its own, or the DSN of another one, in place of a file.
        broken: Rule 2 is broken on purpose.
        delay: Seconds the service takes to answer an order.
        lease: Seconds; a process that is stopped for longer is taken over.
    """

    orders: int
    workers: int = 3
    kills: int = 8
    stops: int = 4
    cuts: int = 0
    restarts: int = 0
    journal: str = ""
    broken: bool = False
    concurrency: int = 20
    delay: float = 0.1
    lease: float = 1.0
    seed: int = 1


def payouts(count: int) -> Iterator[PayoutOrder]:
    """All of the batch."""
    return (payout(number, batch_id=BATCH) for number in range(count))


@attrs.define
class Toll:
    """What it came to."""

    duplicates: list[str] = attrs.field(factory=list)
    contradictions: list[str] = attrs.field(factory=list)
    states: Counter[str] = attrs.field(factory=Counter)
    parked: Counter[str] = attrs.field(factory=Counter)
    executions: int = 0
    kills: int = 0
    stops: int = 0
    cuts: Counter[str] = attrs.field(factory=Counter)
    restarts: int = 0


def begin(
    number: int, place: dict[str, Any], who: dict[str, str], orders: int, concurrency: int, broken: bool, lease: float
) -> None:
    """What a child of the nursery does: run the batch, and again where it ended for want of a database."""
    if broken:
        break_rule_two()
    here = Place(**place)
    here.lead()
    record(Path(here.folder))

    async def work() -> str | None:
        limit = aiohttp.ClientTimeout(total=2.0)
        async with here.journal() as held, PaymentsSession(here.base, Credentials(**who), timeout=limit) as payments:
            # the list would show what is sent again because rule 2 is broken
            report = await run_batch(
                payments,
                held,
                BATCH,
                payouts(orders),
                settings=RunSettings(concurrency=concurrency, lease=lease, look_first="never" if broken else "always"),
            )
        return report.stopped

    async def work_on() -> None:
        why: str | None = "it has not begun"
        while why is not None:
            try:
                why = await work()
            except AGAIN as error:
                why = error.message
            if why is not None:
                await asyncio.sleep(lease / 4)

    asyncio.run(work_on())


class Chaos:
    """Starts processes, and ends them."""

    def __init__(self, plan: Plan, sandbox: Sandbox, ground: Ground, nursery: Nursery) -> None:
        self.plan = plan
        self.sandbox = sandbox
        self.ground = ground
        self.nursery = nursery
        self.toll = Toll()
        self._chance = random.Random(plan.seed)
        self._blows = ["kill"] * plan.kills + ["stop"] * plan.stops + ["cut"] * plan.cuts
        self._chance.shuffle(self._blows)
        self._pause = max(2 * plan.concurrency, plan.orders // (1 + len(self._blows)))

    async def run(self) -> Toll:
        """All of it, and then the reckoning."""
        stop = asyncio.Event()
        stop.set()  # written down, and no more: who is killed while loading keeps the others waiting for half a minute
        async with self._opened() as (journal, payments):
            await run_batch(payments, journal, BATCH, payouts(self.plan.orders), stop=stop)
        async with asyncio.TaskGroup() as group:
            restarting = group.create_task(self._restart())
            async with asyncio.TaskGroup() as working:
                for number in range(self.plan.workers):
                    working.create_task(self._disturb(f"worker {number}"))
            restarting.cancel()
        await self._reckon()
        return self.toll

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[SqliteJournal | PostgresJournal, PaymentsSession]]:
        sandbox = self.sandbox
        who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
        async with self.ground.journal() as journal, PaymentsSession(self.ground.base, who) as payments:
            yield journal, payments

    async def _disturb(self, name: str) -> None:
        """Keep one process of the batch running, and strike it now and then."""
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:
            child = await self._start(name)
            troubling = asyncio.ensure_future(self._trouble(name, child))
            code = await child.ended()
            troubling.cancel()
            with suppress(asyncio.CancelledError):
                await troubling
        if code:
            raise RuntimeError(f"a process ended with {code}")

    async def _start(self, name: str) -> Child:
        plan, sandbox = self.plan, self.sandbox
        who = {"app_key": sandbox.app_key, "app_password": sandbox.app_password, "user_id": sandbox.user_id}
        place = await self.ground.place(name)
        return self.nursery.begin(
            place=attrs.asdict(place), who=who, orders=plan.orders, concurrency=plan.concurrency, broken=plan.broken,
            lease=plan.lease,
        )  # fmt: skip

    async def _trouble(self, name: str, child: Child) -> None:
        """Strike whenever the service has carried out some more: so it always hits orders under way."""
        plan = self.plan
        while self._blows:
            await self._carried_out(self._chance.randint(1, self._pause))
            match self._blows.pop() if self._blows else None:
                case "stop":
                    self.toll.stops += 1
                    await child.send(signal.SIGSTOP)
                    await asyncio.sleep(self._chance.uniform(0.5, 2.2) * plan.lease)
                    await child.send(signal.SIGCONT)
                case "kill":
                    self.toll.kills += 1
                    await child.send(signal.SIGKILL)
                    return
                case "cut":
                    await self.ground.part(name, plan.lease)

    async def _restart(self) -> None:
        """Stop the database now and then."""
        for _ in range(self.plan.restarts):
            await self._carried_out(self._chance.randint(1, 2 * self.plan.orders // (1 + self.plan.restarts)))
            await asyncio.shield(self.ground.restart())

    async def _carried_out(self, more: int) -> None:
        enough = len(self.sandbox.ledger) + more
        while len(self.sandbox.ledger) < enough:  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.01)

    async def _reckon(self) -> None:
        sandbox, toll = self.sandbox, self.toll
        toll.cuts, toll.restarts = self.ground.partitions, self.ground.restarts
        await sandbox.settle(60)
        sandbox.chaos({})
        async with self._opened() as (journal, payments):
            await run_batch(
                payments, journal, BATCH, payouts(self.plan.orders), settings=RunSettings(lease=self.plan.lease)
            )
            await sandbox.settle(60)
            await reconcile(payments, journal, settings=ReconcileSettings(grace=0.0, interval=0.0))
            executions = {execution.request_id: execution for execution in sandbox.ledger}
            parked = [entry.request_id async for entry in journal.entries(state="parked")]
            toll.parked = causes(parked, self.ground.folder, sandbox)
            async for entry in journal.entries():
                toll.states[entry.state.value] += 1
                execution = executions.pop(entry.request_id, None)
                why = contradiction(entry.state, execution)
                if why is None and execution is not None and entry.state in ("unknown", "parked", "accepted"):
                    why = f"is {entry.state}, and was carried out and listed"
                if why is not None:
                    toll.contradictions.append(f"{entry.request_id} {why}")
            toll.contradictions += [f"{request_id} is in no journal" for request_id in executions]
        toll.duplicates = sandbox.duplicates()
        toll.executions = len(sandbox.ledger)


async def wreak(plan: Plan, folder: Path) -> Toll:
    """Run the batch in many processes, and disturb them."""
    async with Sandbox(seed=plan.seed) as sandbox:
        rates = {Fault.LOST_BEFORE: 0.02, Fault.LOST_AFTER: 0.02, Fault.FAILS: 0.05, Fault.SLOW: 1.0}
        sandbox.chaos(rates, seconds=plan.delay)
        ground = Ground(folder, plan.journal, sandbox, random.Random(plan.seed))
        async with Nursery("benchmarks.chaos") as nursery, ground:
            return await Chaos(plan, sandbox, ground, nursery).run()


def verdict(plan: Plan, toll: Toll) -> Iterator[str]:
    """What went wrong."""
    return faults(toll, orders=plan.orders, broken=plan.broken)


def main() -> int:
    """Read the command line and run."""
    plan = plan_of(Plan, __doc__, orders=20_000, kills=20, stops=20)
    with tempfile.TemporaryDirectory() as folder:
        toll = asyncio.run(wreak(plan, Path(folder)))
        print(f"{toll.kills} kills and {toll.stops} stops at random, {toll.restarts} restarts of the database")
        print(f"{toll.cuts.total()} partitions: {dict(toll.cuts)}")
        show(toll)
        problems = list(verdict(plan, toll))
        if not plan.broken and not plan.journal:
            problems += asyncio.run(strike_all(Path(folder), IN_A_FILE))
            print(f"{len(IN_A_FILE)} points struck with {' and '.join(BLOWS)}")
    return end(problems)


if __name__ == "__main__":
    sys.exit(main())

"""Chaos for a fleet: workers on one PostgreSQL are killed and stopped, and PGQueuer's jobs are lost and doubled.

    python tests/benchmarks/chaos_fleet.py                  20,000 payouts, 3 workers, 60 blows
    python tests/benchmarks/chaos_fleet.py --orders 2000    a shorter one
    python tests/benchmarks/chaos_fleet.py --embedded       the same without PGQueuer: each worker claims by itself

A sandbox in this process is the judge, and drops connections: the exit code is 1 when anything was carried out twice,
is lost, is left unsent, or stands in a state that the ledger contradicts. PAYMENTS_TEST_POSTGRES names another server
than the one it starts.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.chaos_flights import causes, record
from benchmarks.chaos_plans import end, faults, plan_of, show
from bulk.nursery import Child, Nursery, say
from bulk.worlds import contradiction, payout
from journal import postgres

from payments_async import Credentials, PaymentsSession, PayoutOrder
from payments_async.bulk import ReconcileSettings, reconcile
from payments_async.fleet import run_worker, submit
from payments_async.journal import PostgresJournal, State
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Fault, Sandbox

NAME = "chaos"
LEASE = 1.0  # seconds; a process that is stopped for longer is taken over
REDELIVERY = 1.5
PATIENCE = 240.0  # seconds for all to come to rest, once nothing is struck any more
JOBS = {  # what befalls the jobs
    "lost": "DELETE FROM pgqueuer",
    "doubled": """INSERT INTO pgqueuer (priority, status, entrypoint, payload, execute_after)
        SELECT 0, 'queued', entrypoint, payload, now() FROM pgqueuer""",
    "called done": "DELETE FROM pgqueuer WHERE status = 'picked'",
}


@attrs.frozen(kw_only=True)
class Plan:
    """How much chaos.

    Attributes:
        orders: Put as several batches, so that workers change between them.
        kills, stops: Of the workers.
        jobs: Blows to the jobs of PGQueuer.
        embedded: Without PGQueuer.
        delay: Seconds the service takes to answer an order.
    """

    orders: int
    batches: int = 4
    workers: int = 3
    kills: int = 20
    stops: int = 20
    jobs: int = 20
    embedded: bool = False
    concurrency: int = 20
    delay: float = 0.05
    seed: int = 1


@attrs.define
class Toll:
    """What it came to."""

    duplicates: list[str] = attrs.field(factory=list)
    contradictions: list[str] = attrs.field(factory=list)
    states: Counter[str] = attrs.field(factory=Counter)
    parked: Counter[str] = attrs.field(factory=Counter)
    executions: int = 0
    blows: Counter[str] = attrs.field(factory=Counter)
    seconds: float = 0.0


# --- one worker -------------------------------------------------------------------------------------------------------


def begin(
    number: int, dsn: str, schema: str, state: str, base: str, who: dict[str, str], concurrency: int, embedded: bool
) -> None:
    """What a child of the nursery does: work, until it is asked to end."""
    record(Path(state).parent)

    async def work() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        limit = aiohttp.ClientTimeout(total=2.0)
        async with (
            PostgresJournal(dsn, schema=schema, state_folder=state, busy_timeout=30.0) as journal,
            PaymentsSession(base, Credentials(**who), timeout=limit) as payments,
            Outbox(
                payments,
                journal,
                NAME,
                concurrency=concurrency,
                worker=WorkerSettings(lease=LEASE, look_back=1.0, claims_batches=embedded),
            ) as outbox,
        ):
            say(number, "works")
            if embedded:
                await stop.wait()
            else:
                await run_worker(outbox, stop=stop, redelivery=REDELIVERY)

    asyncio.run(work())


# --- all of them ------------------------------------------------------------------------------------------------------


class FleetChaos:
    """Starts workers, strikes them and their jobs, and reckons."""

    def __init__(self, plan: Plan, sandbox: Sandbox, schema: str, folder: Path, nursery: Nursery) -> None:
        self.plan = plan
        self.sandbox = sandbox
        self.schema = schema
        self.folder = folder
        self.nursery = nursery
        self.toll = Toll()
        self._chance = random.Random(plan.seed)
        self._over = asyncio.Event()
        self._running: dict[int, Child] = {}
        blows = ["kill"] * plan.kills + ["stop"] * plan.stops + ["jobs"] * (0 if plan.embedded else plan.jobs)
        self._chance.shuffle(blows)
        self._blows = blows

    async def run(self) -> Toll:
        """All of it, and then the reckoning."""
        plan, began = self.plan, time.monotonic()
        async with self._opened("clerk") as (journal, payments):
            async with (
                Outbox(payments, journal, NAME, worker=None) as outbox,
                asyncio.TaskGroup() as group,
            ):
                lives = [group.create_task(self._keep(place)) for place in range(plan.workers)]
                size = -(-plan.orders // plan.batches)
                for first in range(0, plan.orders, size):
                    orders = payouts(first, min(first + size, plan.orders))
                    put = Outbox.put_batch if plan.embedded else submit
                    await put(outbox, f"batch {first}", orders)
                await self._strike(journal)
                await self._rest(journal)
                self.toll.seconds = time.monotonic() - began
                self._over.set()
                for child in list(self._running.values()):
                    await child.send(signal.SIGTERM)
                await asyncio.wait(lives)
            await self._reckon(journal, payments)
        return self.toll

    @asynccontextmanager
    async def _opened(self, name: str) -> AsyncIterator[tuple[PostgresJournal, PaymentsSession]]:
        sandbox = self.sandbox
        who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
        async with (
            PostgresJournal(postgres.dsn(), schema=self.schema, state_folder=self.folder / name) as journal,
            PaymentsSession(sandbox.base_url, who) as payments,
        ):
            yield journal, payments

    async def _keep(self, place: int) -> None:
        """Keep one worker running, whatever becomes of it."""
        sandbox, plan = self.sandbox, self.plan
        who = {"app_key": sandbox.app_key, "app_password": sandbox.app_password, "user_id": sandbox.user_id}
        while not self._over.is_set():
            child = self._running[place] = self.nursery.begin(
                dsn=postgres.dsn(), schema=self.schema, state=str(self.folder / f"worker {place}"),
                base=sandbox.base_url, who=who, concurrency=plan.concurrency, embedded=plan.embedded,
            )  # fmt: skip
            code = await child.ended()
            if code != (0 if self._over.is_set() else -signal.SIGKILL):
                raise RuntimeError(f"a worker ended with {code}")

    async def _strike(self, journal: PostgresJournal) -> None:
        """Strike whenever the service has carried out some more, until nothing is left to be sent."""
        while self._blows:
            more = self._chance.randint(1, max(2, self.plan.orders // len(self._blows) // 2))
            if not await self._carried_out(more, journal):
                return
            match self._blows.pop():
                case "kill":
                    child = self._running[self._chance.randrange(self.plan.workers)]
                    await child.send(signal.SIGKILL)
                    await child.ended()
                    self.toll.blows["kills"] += 1
                case "stop":
                    child = self._running[self._chance.randrange(self.plan.workers)]
                    await child.send(signal.SIGSTOP)
                    await asyncio.sleep(self._chance.uniform(0.5, 2.2) * LEASE)
                    await child.send(signal.SIGCONT)
                    self.toll.blows["stops"] += 1
                case _:
                    what = self._chance.choice(list(JOBS))
                    await asyncio.to_thread(_do, self.schema, JOBS[what])
                    self.toll.blows[f"jobs {what}"] += 1

    async def _carried_out(self, more: int, journal: PostgresJournal) -> bool:
        """Wait until so many more were carried out; tells whether there is anything left to be sent."""
        enough, turns = len(self.sandbox.ledger) + more, 0
        while len(self.sandbox.ledger) < enough:
            turns += 1
            if turns % 20 == 0 and not await self._is_at_work(journal):
                return False
            await asyncio.sleep(0.01)
        return True

    async def _is_at_work(self, journal: PostgresJournal) -> bool:
        """Whether something is left to be sent."""
        counts = (await journal.progress(outbox=NAME)).counts
        return bool(counts[State.PLANNED] or counts[State.SENDING])

    async def _rest(self, journal: PostgresJournal) -> None:
        """Until nothing is left to be sent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while await self._is_at_work(journal):  # noqa: ASYNC110 - other processes write it
                    await asyncio.sleep(0.1)

    async def _reckon(self, journal: PostgresJournal, payments: PaymentsSession) -> None:
        sandbox, toll = self.sandbox, self.toll
        await sandbox.settle(60)
        sandbox.chaos({})
        await reconcile(payments, journal, settings=ReconcileSettings(grace=0.0, interval=0.0))
        executions = {execution.request_id: execution for execution in sandbox.ledger}
        parked = [entry.request_id async for entry in journal.entries(state="parked")]
        toll.parked = causes(parked, self.folder, sandbox)
        async for entry in journal.entries():
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
        toll.duplicates = sandbox.duplicates()
        toll.executions = len(sandbox.ledger)
        await journal.check()


def payouts(first: int, last: int) -> list[PayoutOrder]:
    """Some of all."""
    return [payout(number, batch_id=NAME) for number in range(first, last)]


def _do(schema: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(postgres.dsn(), autocommit=True, options=f"-c search_path={schema}") as connection:
        connection.execute(statement.encode())


async def wreak(plan: Plan, folder: Path) -> Toll:
    """Send all orders by many workers, and disturb them."""
    schema = postgres.new_schema()
    async with Sandbox(seed=plan.seed) as sandbox:
        rates = {Fault.LOST_BEFORE: 0.01, Fault.LOST_AFTER: 0.02, Fault.FAILS: 0.05, Fault.SLOW: 1.0}
        sandbox.chaos(rates, seconds=plan.delay)
        async with Nursery("benchmarks.chaos_fleet") as nursery:
            return await FleetChaos(plan, sandbox, schema, folder, nursery).run()


def verdict(plan: Plan, toll: Toll) -> Iterator[str]:
    """What went wrong."""
    return faults(toll, orders=plan.orders, broken=False)


def main() -> int:
    """Read the command line and run."""
    plan = plan_of(Plan, __doc__, orders=20_000)
    with tempfile.TemporaryDirectory() as folder:
        toll = asyncio.run(wreak(plan, Path(folder)))
    print(f"{plan.workers} workers, {dict(toll.blows)}; all was sent after {toll.seconds:.0f} s")
    show(toll)
    return end(verdict(plan, toll))


if __name__ == "__main__":
    sys.exit(main())

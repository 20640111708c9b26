"""Chaos: processes that run one batch are killed and stopped at random and at every named point, and nothing is lost.

    python tests/benchmarks/chaos.py                    20,000 orders, 3 processes, every crash point
    python tests/benchmarks/chaos.py --orders 2000      a shorter one
    python tests/benchmarks/chaos.py --broken           the control: an expired lease makes orders planned again

A sandbox in this process is the judge: the exit code is 1 when anything was carried out twice, is lost, or stands in
a state that the ledger contradicts. With ``--broken`` it is 1 when nothing was carried out twice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import aiohttp
import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))

from bulk.worlds import contradiction, payout

from payments_async import Credentials, PaymentsSession, PayoutOrder
from payments_async.bulk import reconcile, run_batch
from payments_async.journal import CRASH_POINTS, News, SqliteJournal, State, Verdict, _states
from payments_async.sandbox import Fault, Sandbox

LEASE = 1.0  # seconds; a process that is stopped for longer is taken over
SMALL = 40  # orders of a batch that a process is killed in at one point
# What a run with a reconciliation passes. The others are of the inbox, of persons, or of a run that was cancelled.
OURS = (
    "open_run", "load.", "load_block", "load_complete", "claim_chunk", "renew_chunk", "release_chunk",
    "expire_chunks", "permit", "record", "apply_evidence", "park", "commit",
)  # fmt: skip
POINTS = tuple(point for point in CRASH_POINTS if point.startswith(OURS))


@attrs.frozen(kw_only=True)
class Plan:
    """How much chaos.

    Attributes:
        orders: Of the batch that is disturbed at random moments.
        kills, stops: Of its processes.
        points: A process with a small batch of its own is killed at each.
        broken: Rule 2 is broken on purpose.
        delay: Seconds the service takes to answer an order.
    """

    orders: int
    workers: int = 3
    kills: int = 8
    stops: int = 4
    points: tuple[str, ...] = POINTS
    broken: bool = False
    concurrency: int = 20
    delay: float = 0.1
    seed: int = 1


class Batch(NamedTuple):
    """Orders with consecutive numbers."""

    name: str
    first: int
    count: int

    def orders(self) -> Iterator[PayoutOrder]:
        """All of them."""
        return (payout(number, batch_id=self.name) for number in range(self.first, self.first + self.count))


@attrs.define
class Toll:
    """What it came to."""

    duplicates: list[str] = attrs.field(factory=list)
    contradictions: list[str] = attrs.field(factory=list)
    states: Counter[str] = attrs.field(factory=Counter)
    executions: int = 0
    kills: int = 0
    stops: int = 0
    struck: set[str] = attrs.field(factory=set)


async def work(arguments: argparse.Namespace) -> None:
    """A process that runs a batch, and kills itself when it passes its point."""
    if arguments.broken:
        break_rule_two()

    def crash(point: str) -> None:
        if point == arguments.point:
            os.kill(os.getpid(), signal.SIGKILL)

    who = Credentials(app_key=arguments.key, app_password=arguments.password, user_id=arguments.user)
    limit = aiohttp.ClientTimeout(total=2.0)
    async with (
        SqliteJournal(arguments.journal, crash_at=crash if arguments.point else None) as journal,
        PaymentsSession(arguments.base, who, timeout=limit) as payments,
    ):
        batch = Batch(arguments.batch, arguments.first, arguments.orders)
        await run_batch(payments, journal, batch.name, batch.orders(), concurrency=arguments.concurrency, lease=LEASE)
        if arguments.point:
            await reconcile(payments, journal, batch.name, grace=0.0, interval=0.0)


def break_rule_two() -> None:
    """What most queues do: what an expired lease left under way is simply due again. Never outside the control."""
    for sent_before in (False, True):
        _states._VERDICTS[State.SENDING, sent_before, News.LEASE_EXPIRED] = Verdict(State.PLANNED)


class Chaos:
    """Starts processes, and ends them."""

    def __init__(self, plan: Plan, sandbox: Sandbox, journal: Path) -> None:
        self.plan = plan
        self.sandbox = sandbox
        self.journal = journal
        self.toll = Toll()
        self._chance = random.Random(plan.seed)
        self._main = Batch("chaos", 0, plan.orders)
        self._small = {
            point: Batch(f"chaos at {point}", plan.orders + place * SMALL, SMALL)
            for place, point in enumerate(plan.points)
        }

    @property
    def batches(self) -> list[Batch]:
        """All batches."""
        return [self._main, *self._small.values()]

    async def run(self) -> Toll:
        """All of it, and then the reckoning."""
        todo = deque(self._small)
        for batch in self._small.values():  # so that each has something to look up, and something to park
            for place, fault in enumerate((Fault.LOST_BEFORE, Fault.LOST_AFTER)):
                lost = payout(batch.first + place).request_id
                self.sandbox.script(fault, on="money", request_id=lost)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.plan.workers):
                group.create_task(self._disturb())
            for _ in range(4):
                group.create_task(self._strike(todo))
        await self._reckon()
        return self.toll

    async def _strike(self, todo: deque[str]) -> None:
        """Start a process for one point after another, each with a batch of its own, and let it die there."""
        while todo:
            point = todo.popleft()
            code = await (await self._start(self._small[point], point)).wait()
            if code == -signal.SIGKILL:
                self.toll.struck.add(point)
            elif code:
                raise RuntimeError(f"a process ended with {code}")

    async def _disturb(self) -> None:
        """Keep one process of the main batch running, and kill or stop it now and then."""
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:
            process = await self._start(self._main, "")
            troubling = asyncio.ensure_future(self._trouble(process))
            code = await process.wait()
            troubling.cancel()
            with suppress(asyncio.CancelledError):
                await troubling
        if code:
            raise RuntimeError(f"a process ended with {code}")

    async def _start(self, batch: Batch, point: str) -> asyncio.subprocess.Process:
        plan, sandbox = self.plan, self.sandbox
        command = [
            sys.executable, __file__, "--work", "--journal", self.journal, "--base", sandbox.base_url,
            "--key", sandbox.app_key, "--password", sandbox.app_password, "--user", sandbox.user_id,
            "--batch", batch.name, "--first", batch.first, "--orders", batch.count,
            "--concurrency", 6 if point else plan.concurrency, "--point", point,
        ]  # fmt: skip
        return await asyncio.create_subprocess_exec(*map(str, command), *(["--broken"] if plan.broken else []))

    async def _trouble(self, process: asyncio.subprocess.Process) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.6, 1.6))
            if self.toll.stops < self.plan.stops and self.toll.stops <= self.toll.kills:
                self.toll.stops += 1
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(self._chance.uniform(0.5, 2.2) * LEASE)
                process.send_signal(signal.SIGCONT)
            elif self.toll.kills < self.plan.kills:
                self.toll.kills += 1
                process.kill()
                return

    async def _reckon(self) -> None:
        sandbox, toll = self.sandbox, self.toll
        await sandbox.settle(60)
        who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
        sandbox.chaos({})
        async with SqliteJournal(self.journal) as journal, PaymentsSession(sandbox.base_url, who) as payments:
            for batch in self.batches:
                await run_batch(payments, journal, batch.name, batch.orders(), lease=LEASE)
            await sandbox.settle(60)
            await reconcile(payments, journal, grace=0.0, interval=0.0)
            executions = {execution.request_id: execution for execution in sandbox.ledger}
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
        return await Chaos(plan, sandbox, folder / "journal.db").run()


def verdict(plan: Plan, toll: Toll) -> Iterator[str]:
    """What went wrong."""
    if plan.broken:
        if not toll.duplicates:
            yield "rule 2 was broken and nothing was carried out twice: this proves nothing"
        return
    if toll.duplicates:
        yield f"{len(toll.duplicates)} orders were carried out twice, such as {toll.duplicates[0]}"
    if toll.contradictions:
        yield f"{len(toll.contradictions)} states are wrong, such as: {toll.contradictions[0]}"
    orders = plan.orders + SMALL * len(plan.points)
    if orders != toll.states.total():
        yield f"{orders} orders went in, {toll.states.total()} are there"
    if missed := set(plan.points) - toll.struck:
        yield f"nobody passed {', '.join(sorted(missed))}"


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    for name in ("journal", "base", "key", "password", "user", "point", "batch"):
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        asyncio.run(work(arguments))
        return 0
    plan = Plan(
        orders=arguments.orders, workers=arguments.workers, kills=arguments.kills, stops=arguments.stops,
        concurrency=arguments.concurrency, seed=arguments.seed, broken=arguments.broken,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        toll = asyncio.run(wreak(plan, Path(folder)))
    print(
        f"{toll.kills} kills and {toll.stops} stops at random, {len(toll.struck)} of {len(plan.points)} points struck"
    )
    print(f"{toll.executions} executions, {len(toll.duplicates)} duplicates, {dict(toll.states)}")
    problems = list(verdict(plan, toll))
    print("\n".join(problems) or "all is well")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""What certainty costs an application: single orders paid through an outbox, and sent without one.

    python tests/benchmarks/bench_outbox.py                    latency, 200 at once, throughput, puts, a death; ratios
    python tests/benchmarks/bench_outbox.py --instructions     instructions per order, ratios (needs valgrind)
    python tests/benchmarks/bench_outbox.py --orders 100000    one long run: memory and latency of each tenth of it
    python tests/benchmarks/bench_outbox.py --alone            puts and pays one by one: CPU and rate
    python tests/benchmarks/bench_outbox.py --profile pay      where the time of one payment after the other goes
    python tests/benchmarks/bench_outbox.py --journal DSN --away 0.005 --machines 1 2 4
                                                               pays a second of several processes, by five callers each

The service is a process of its own that accepts everything at once, or after 20 ms. What stands beside each other was
measured in turns, on one journal that lies where temporary files do; only ratios of one run mean anything. With
``--machines`` the journal is in a PostgreSQL database that is ``--away`` seconds away; the exchanges with it that a pay
takes are exact, its share of those that a commit takes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import itertools
import os
import pstats
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from bench_bulk import WHO, memory, orders, served
from far import far
from nested import for_outbox
from places import new_journal, processor_of

from payments_async import Limits, PaymentsSession, PayoutOrder
from payments_async._cli import COLLECT_AFTER
from payments_async.journal import SqliteJournal, State
from payments_async.outbox import Outbox, WorkerSettings, _outbox
from payments_async.outbox._scans import account_of

NAME = "outbox"
TENTHS = 10
WAVE = 100  # payments at once in the long run
CROWD = 200  # payments at once
HOUR = 3600.0
KINDS = ("sent", "put", "paid")  # by send_many, 100 at once; put by 100 callers; paid by 200
_NUMBERS = itertools.count()


def fresh(count: int) -> list[PayoutOrder]:
    """Orders that were never seen."""
    return [attrs.evolve(order, request_id=f"bench-{os.getpid()}-{next(_NUMBERS):09d}") for order in orders(count)]


@attrs.define
class Bench:
    """What is measured."""

    payments: PaymentsSession
    journal: SqliteJournal
    outbox: Outbox


@asynccontextmanager
async def opened(base: str, folder: Path, **settings: Any) -> AsyncIterator[Bench]:
    """A session and an outbox. The service here has no list, so it is on record that it was read."""
    async with (
        SqliteJournal(folder / "journal.db", state_folder=folder / "state") as journal,
        PaymentsSession(base, WHO, limits=Limits(concurrency=200)) as payments,
    ):
        await journal.open_outbox(NAME, account_of(payments))
        scan = await journal.begin_list_scan(NAME, since=date(1970, 1, 1), until=date(2100, 1, 1))
        await journal.end_list_scan(attrs.evolve(scan, problem=None))
        await payments.log_in()
        async with Outbox(
            payments, journal, NAME, **for_outbox({"settles": False, "concurrency": 100} | settings)
        ) as outbox:
            yield Bench(payments, journal, outbox)


async def timed(work: Coroutine[Any, Any, object]) -> float:
    """Seconds that it takes."""
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def send_all(payments: PaymentsSession, some: list[PayoutOrder], concurrency: int) -> None:
    """Without an outbox."""
    async for _ in payments.payouts.send_many(some, concurrency=concurrency):
        pass


async def alone(bench: Bench, count: int) -> tuple[float, float]:
    """Median seconds of one order after the other: sent, and paid."""
    sent, paid = [], []
    for one, other in zip(fresh(count), fresh(count), strict=True):
        sent.append(await timed(bench.payments.payouts.send(one)))
        paid.append(await timed(bench.outbox.pay(other, timeout=60)))
    return statistics.median(sent[count // 10 :]), statistics.median(paid[count // 10 :])


async def at_once(bench: Bench, count: int, rounds: int) -> tuple[float, float]:
    """Median seconds for so many at once: by ``send_many``, and each paid by a caller of its own."""
    sent, paid = [], []
    for _ in range(rounds):
        sent.append(await timed(send_all(bench.payments, fresh(count), count)))
        some = fresh(count)
        paid.append(await timed(asyncio.gather(*(bench.outbox.pay(order, timeout=60) for order in some))))  # type: ignore[arg-type]
    return statistics.median(sent), statistics.median(paid)


async def through(bench: Bench, count: int, rounds: int) -> tuple[float, float]:
    """Orders per second with 100 under way: by ``send_many``, and put by 100 callers until all are accepted."""
    sent, put = [], []
    for _ in range(rounds):
        sent.append(count / await timed(send_all(bench.payments, fresh(count), 100)))
        put.append(count / await timed(put_until_accepted(bench, fresh(count))))
    return statistics.median(sent), statistics.median(put)


async def put_until_accepted(bench: Bench, some: list[PayoutOrder], *, look_every: float = 0.005) -> None:
    """Put orders, and wait until the last of them is accepted."""
    accepted = (await bench.journal.progress()).counts[State.ACCEPTED] + len(some)
    await put_all(bench.outbox, some)
    while (await bench.journal.progress()).counts[State.ACCEPTED] < accepted:  # noqa: ASYNC110 - it is what is measured
        await asyncio.sleep(look_every)


async def pay_in_waves(bench: Bench, some: list[PayoutOrder]) -> None:
    """Each order by a caller of its own, 200 at once."""
    for first in range(0, len(some), CROWD):
        await asyncio.gather(*(bench.outbox.pay(order, timeout=HOUR) for order in some[first : first + CROWD]))


async def put_all(outbox: Outbox, some: list[PayoutOrder]) -> None:
    """By 100 callers."""
    waiting = iter(some)

    async def caller() -> None:
        for order in waiting:
            await outbox.put(order)

    await asyncio.gather(*(caller() for _ in range(100)))


async def one_by_one(base: str, folder: Path, count: int, rounds: int) -> None:
    """Print the processor's time for a put and for a pay, the least of the rounds, and how many a second that were."""
    for name in ("put", "pay"):
        costs = []
        async with opened(base, folder / name, sends=name == "pay") as bench:
            for _ in range(rounds):
                some = fresh(count)  # whoever pays has them
                cpu, begun = time.process_time(), time.perf_counter()
                for order in some:
                    await (bench.outbox.put(order) if name == "put" else bench.outbox.pay(order, timeout=HOUR))
                costs.append(((time.process_time() - cpu) / count, count / (time.perf_counter() - begun)))
        cost, rate = min(costs)[0], max(rate for _, rate in costs)
        print(f"{name} one by one: CPU {1e6 * cost:.0f} us, {rate:.0f}/s", flush=True)


async def after_a_death(base: str, folder: Path) -> float:
    """Seconds from the ``kill -9`` of a process with orders in hand until another one has sent the next of them."""
    command = [sys.executable, __file__, "--hold", str(folder), "--base", base]
    async with opened(base, folder) as bench:
        holder = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            await holder.stdout.readline()
            before = (await bench.journal.progress()).counts
            begun = time.perf_counter()
            holder.send_signal(signal.SIGKILL)
            while (await bench.journal.progress()).counts[State.ACCEPTED] <= before[State.ACCEPTED] + 1:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            return time.perf_counter() - begun
        finally:
            await holder.wait()


async def hold(base: str, folder: Path) -> None:
    """What dies: a process that puts orders into its own hands, and sends one at a time."""
    async with opened(base, folder, concurrency=1) as bench:
        await put_all(bench.outbox, fresh(200))
        print("held", flush=True)
        await asyncio.Event().wait()


async def compare(rounds: int) -> None:
    """Everything, with the aims beside it."""
    for delay in (0.0, 0.02):
        print(f"a service that answers after {1000 * delay:.0f} ms")
        with served("raw", delay) as base, tempfile.TemporaryDirectory() as place:
            async with opened(base, Path(place)) as bench:
                sent, paid = await alone(bench, 60 * rounds)
                tell("alone, median", 1000 * sent, 1000 * paid, "ms", paid / sent, "1.5" if delay else "")
            async with opened(base, Path(place), concurrency=200) as bench:
                sent, paid = await at_once(bench, 200, rounds)
                tell("200 at once", 1000 * sent, 1000 * paid, "ms", paid / sent, "1.3")
            async with opened(base, Path(place)) as bench:
                sent, put = await through(bench, 3000, rounds)
                tell("100 under way", sent, put, "/s", put / sent, "0.90")
    with served("raw", 0.0) as base, tempfile.TemporaryDirectory() as place:
        async with opened(base, Path(place), sends=False) as bench:
            some = fresh(5000)
            print(f"puts alone: {len(some) / await timed(put_all(bench.outbox, some)):.0f}/s")
    with served("raw", 0.2) as base:
        deaths = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as place:
                deaths.append(await after_a_death(base, Path(place)))
        print(f"from a kill -9 to the next order sent: {statistics.median(deaths):.2f} s   (aim 1)")


def tell(what: str, sent: float, paid: float, unit: str, ratio: float, aim: str) -> None:
    """Print one line of the comparison."""
    print(f"  {what:15s} sent {sent:9.2f} {unit}   by the outbox {paid:9.2f} {unit}   {ratio:.2f}", end="")
    print(f"   (aim {aim})" if aim else "", flush=True)


async def last_long(count: int) -> None:
    """Pay many single orders in waves; what a payment takes, and the memory, must not grow."""
    with served("raw", 0.0) as base, tempfile.TemporaryDirectory() as place:
        async with opened(base, Path(place)) as bench:
            for tenth in range(TENTHS):
                begun, latencies = time.perf_counter(), []
                for _ in range(count // TENTHS // WAVE):
                    some = fresh(WAVE)
                    latencies += await asyncio.gather(*(timed(bench.outbox.pay(order, timeout=60)) for order in some))
                rate = count / TENTHS / (time.perf_counter() - begun)
                median = 1000 * statistics.median(latencies)
                done = (tenth + 1) * count // TENTHS
                print(f"{done:9d} orders  {rate:6.0f}/s  median {median:6.1f} ms  {memory():5.0f} MB", flush=True)


async def counted(kind: str, base: str, count: int) -> None:
    """Do it once to warm up, and once while the instructions are counted."""
    works: dict[str, Callable[[Bench, list[PayoutOrder]], Coroutine[Any, Any, object]]] = {
        "sent": lambda bench, some: send_all(bench.payments, some, WAVE),
        "put": partial(put_until_accepted, look_every=0.3),
        "paid": pay_in_waves,
    }
    _outbox.SOON = HOUR / 2  # whoever is counted takes fifty times as long as usual
    with tempfile.TemporaryDirectory() as place:
        async with opened(base, Path(place), concurrency=CROWD if kind == "paid" else WAVE) as bench:
            await works[kind](bench, fresh(CROWD))
            some = fresh(count)
            control("on")
            await works[kind](bench, some)
            control("off")


def control(switch: str) -> None:
    """Begin or end the counting."""
    subprocess.run(["callgrind_control", "-i", switch, str(os.getpid())], check=True, stdout=subprocess.DEVNULL)


def compare_instructions(count: int) -> None:
    """Print instructions per order, and their ratios."""
    costs: dict[str, float] = {}
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    for kind in KINDS:
        with served("raw", 0.0) as base, tempfile.TemporaryDirectory() as place:
            out = f"--callgrind-out-file={place}/callgrind.out"
            command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", out, sys.executable, __file__]
            command += ["--count", kind, "--base", base, "--orders", str(count)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            found = re.search(r"Collected : (\d+)", done.stderr)
        assert found is not None
        costs[kind] = int(found.group(1)) / count
        print(f"{kind:5s} {costs[kind]:9.0f} instructions   {costs[kind] / costs['sent']:.2f} of send_many", flush=True)


async def profiled(what: str) -> None:
    """Print where the time goes."""
    works: dict[str, Callable[[Bench], Coroutine[Any, Any, object]]] = {
        "pay": lambda bench: alone(bench, 300),
        "crowd": lambda bench: at_once(bench, 200, 5),
        "through": lambda bench: put_until_accepted(bench, fresh(5000)),
    }
    with served("raw", 0.0) as base, tempfile.TemporaryDirectory() as place:
        async with opened(base, Path(place)) as bench:
            profile = cProfile.Profile()
            profile.enable()
            await works[what](bench)
            profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(35)


async def pay_for(seconds: float, base: str, dsn: str, schema: str, state: str, callers: int) -> None:
    """One machine: say that all is ready, pay when told, and tell how many that were, in how many exchanges."""
    from payments_async.journal import PostgresJournal
    from payments_async.journal._engine._writer import Writer
    from payments_async.journal._postgres import _connection

    exchanges, wait, do, here = 0, _connection._Impatient.wait, Writer._do, threading.local()

    def done(self: Any, *arguments: Any) -> None:
        here.writes = True
        do(self, *arguments)
        here.writes = False

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal exchanges
        exchanges += getattr(here, "writes", False)
        return wait(self, *arguments, **named)

    _connection._Impatient.wait = counted  # type: ignore[method-assign]
    Writer._do = done  # type: ignore[method-assign]
    limit = max(100, callers)
    async with (
        PostgresJournal(dsn, schema=schema, state_folder=state) as journal,
        PaymentsSession(base, WHO, limits=Limits(concurrency=limit)) as payments,
        Outbox(payments, journal, NAME, worker=WorkerSettings(settles=False), concurrency=limit) as outbox,
    ):
        paid = 0

        async def caller(until: float) -> None:
            nonlocal paid
            while time.perf_counter() < until:
                await outbox.pay(fresh(1)[0], timeout=HOUR)
                paid += 1

        await asyncio.gather(*(caller(time.perf_counter() + 1.0) for _ in range(callers)))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        paid = exchanges = 0
        begun = time.process_time()
        await asyncio.gather(*(caller(time.perf_counter() + seconds) for _ in range(callers)))
        print(paid, exchanges, time.process_time() - begun, flush=True)


async def prepare(journal: Any, base: str) -> None:
    """An outbox of which nothing has to be looked for."""
    async with journal, PaymentsSession(base, WHO) as payments:
        await journal.open_outbox(NAME, account_of(payments))
        scan = await journal.begin_list_scan(NAME, since=date(1970, 1, 1), until=date(2100, 1, 1))
        await journal.end_list_scan(attrs.evolve(scan, problem=None))


def compare_machines(arguments: argparse.Namespace) -> None:
    """Pays a second of so many processes at once, each with some callers that pay one by one."""
    seconds, dsn = arguments.seconds, arguments.journal
    if not dsn:
        raise SystemExit("--machines needs --journal with the DSN of a PostgreSQL database")
    for machines in arguments.machines:
        with (
            served("raw", 0.001) as base,
            tempfile.TemporaryDirectory() as place,
            new_journal(Path(place), dsn) as journal,
            far(dsn, arguments.away) as away,
            ExitStack() as stack,
        ):
            schema = journal._namespace.strip('"')  # type: ignore[union-attr]
            asyncio.run(prepare(journal, base))
            command = [sys.executable, __file__, "--pays", schema, "--base", base, "--journal", away]
            command += ["--seconds", str(seconds), "--callers", str(arguments.callers), "--state", f"{place}/state"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            pool = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(machines)]
            for one in pool:
                assert one.stdout.readline() == "ready\n"
            used = processor_of(dsn)
            before = used()
            for one in pool:
                one.stdin.write("\n")
                one.stdin.flush()
            told = [list(map(float, one.stdout.readline().split())) for one in pool]
            after = used()
        paid, exchanges, processor = map(sum, zip(*told, strict=True))
        print(
            f"{machines} machines, {1000 * arguments.away:g} ms away, {arguments.callers} callers each: "
            f"{paid / seconds:7.0f} pays/s   {exchanges / paid:5.2f} exchanges a pay   "
            f"CPU a pay {1e6 * processor / paid:5.0f} us, of the server {1e6 * (after[1] - before[1]) / paid:5.0f} us, "
            f"WAL {(after[2] - before[2]) / paid:5.0f} bytes",
            flush=True,
        )


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--profile", choices=("pay", "crowd", "through"))
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--count", choices=KINDS)
    parser.add_argument("--hold")
    parser.add_argument("--journal", default="", help="with --machines: the DSN of a PostgreSQL database")
    parser.add_argument("--machines", type=int, nargs="+")
    parser.add_argument("--away", type=float, default=0.0, help="seconds that an answer of the database takes longer")
    parser.add_argument("--callers", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pays")
    parser.add_argument("--state")
    parser.add_argument("--base", default="")
    arguments = parser.parse_args()
    gc.set_threshold(COLLECT_AFTER)
    if arguments.hold:
        asyncio.run(hold(arguments.base, Path(arguments.hold)))
    elif arguments.pays:
        where = arguments.base, arguments.journal, arguments.pays, arguments.state
        asyncio.run(pay_for(arguments.seconds, *where, arguments.callers))
    elif arguments.machines:
        compare_machines(arguments)
    elif arguments.count:
        asyncio.run(counted(arguments.count, arguments.base, arguments.orders))
    elif arguments.instructions:
        compare_instructions(arguments.orders or 600)
    elif arguments.alone:
        with served("raw", 0.0) as base, tempfile.TemporaryDirectory() as place:
            for name in ("put", "pay"):
                Path(place, name).mkdir()
            asyncio.run(one_by_one(base, Path(place), arguments.orders or 500, arguments.rounds))
    elif arguments.profile:
        asyncio.run(profiled(arguments.profile))
    elif arguments.orders:
        asyncio.run(last_long(arguments.orders))
    else:
        asyncio.run(compare(arguments.rounds))


if __name__ == "__main__":
    main()

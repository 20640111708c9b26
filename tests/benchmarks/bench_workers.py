"""What several workers do on one PostgreSQL: the same batch by one, two and four processes, in one run.

    python tests/benchmarks/bench_workers.py --journal DSN [--orders 8000] [--delay 0.02] [--workers 1 2 4]

Each worker is a process of its own with as many orders at once as ``--concurrency`` says; the service is another one,
which accepts everything after a while. Orders a second are for all workers together; on a machine with fewer cores
than processes they say little. What an order costs the workers and the server in processor time, and how many orders
share a commit, hardly depend on that.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).parent))

from bench_bulk import WHO, orders, served
from places import new_journal, processor_of

from payments_async import PaymentsSession
from payments_async._cli import COLLECT_AFTER
from payments_async.bulk import RunSettings, run_batch
from payments_async.journal import PostgresJournal

BATCH = "bench"


async def load(journal: PostgresJournal, base: str, count: int) -> None:
    """Write a batch down, and send nothing."""
    stop = asyncio.Event()
    stop.set()
    async with journal, PaymentsSession(base, WHO) as payments:
        await run_batch(payments, journal, BATCH, orders(count), stop=stop, settings=RunSettings(look_first="never"))


async def work(journal: PostgresJournal, base: str, concurrency: int) -> None:
    """Say that all is ready; begin when told; tell the processor time."""
    gc.set_threshold(COLLECT_AFTER)
    async with journal, PaymentsSession(base, WHO) as payments:
        await payments.log_in()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        begun = time.process_time()
        await run_batch(payments, journal, BATCH, settings=RunSettings(concurrency=concurrency, look_first="never"))
        print(time.process_time() - begun, flush=True)


def commits_of(dsn: str, journal: PostgresJournal) -> int:
    """How many commits have moved an order."""
    with psycopg.connect(dsn) as connection:
        sql = f"SELECT value FROM {journal._namespace}.meta WHERE key = 'commits'"  # noqa: S608 - a name
        found = connection.execute(sql.encode()).fetchone()
    assert found is not None
    return int(found[0])


def measure(dsn: str, base: str, workers: int, count: int, concurrency: int) -> None:
    """Print what one batch takes."""
    with tempfile.TemporaryDirectory() as folder, new_journal(Path(folder), dsn) as journal, ExitStack() as stack:
        assert isinstance(journal, PostgresJournal)
        asyncio.run(load(journal, base, count))
        command = [sys.executable, __file__, "--journal", dsn, "--base", base, "--concurrency", str(concurrency)]
        command += ["--schema", journal._namespace.strip('"')]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        pool = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(workers)]  # type: ignore[call-overload]
        for one in pool:
            assert one.stdout.readline() == "ready\n"
        used, commits = processor_of(dsn), commits_of(dsn, journal)
        before, begun = used(), time.perf_counter()
        for one in pool:
            one.stdin.write("\n")
            one.stdin.flush()
        here = sum(float(one.stdout.readline()) for one in pool)
        seconds, after = time.perf_counter() - begun, used()
        commits = commits_of(dsn, journal) - commits
    print(
        f"{workers} workers: {count / seconds:6,.0f} orders/s, {1e6 * here / count:4.0f} µs of theirs for an order, "
        f"{1e6 * (after[1] - before[1]) / count:4.0f} µs of the server's; {count / commits:4.1f} orders in a commit, "
        f"{commits / seconds:4.0f} commits/s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", metavar="DSN", required=True)
    parser.add_argument("--orders", type=int, default=8000)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds the service takes for an answer")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--concurrency", type=int, default=100, help="orders at once, of each worker")
    parser.add_argument("--schema", default="")
    parser.add_argument("--base", default="")
    options = parser.parse_args()
    if options.base:
        journal = PostgresJournal(options.journal, schema=options.schema, state_folder=None)
        asyncio.run(work(journal, options.base, options.concurrency))
        return
    with served("raw", options.delay) as base:
        for workers in options.workers:
            measure(options.journal, base, workers, options.orders, options.concurrency)


if __name__ == "__main__":
    main()

"""What the journal costs: loading, permits with their outcomes, bytes on disk and memory, for a number of orders.

    python tests/benchmarks/bench_journal.py                  100,000 orders, 100 workers
    python tests/benchmarks/bench_journal.py 1000000          as many as you say
    python tests/benchmarks/bench_journal.py --concurrency 10
    python tests/benchmarks/bench_journal.py --journal DSN    in a PostgreSQL database in place of a file

No service is asked: a worker that has its permit goes straight for the next, and records an acceptance with it. The
orders are of the size of a real payroll's. Rates depend on the disk; bytes and memory do not.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from payments_async import Beneficiary, MobileMoneyWallet, PayoutOrder
from payments_async.journal import Journal, PostgresJournal, RunIdentity, Signal, SqliteJournal
from payments_async.journal.contract import Chunk, ClaimedOrder, Outcome, Permit

sys.path.insert(0, str(Path(__file__).parent))

from places import new_journal, size_of

BATCH = "payroll-2026-11"
NAMES = ("Scovia Achieng", "Ronald Odongo", "Innocent Ssali", "Grace Nakimuli-Kawooya")


def orders(count: int) -> Iterator[PayoutOrder]:
    """Orders as they stand in a payroll."""
    for number in range(count):
        phone = f"+2567{number % 100_000_000:08d}"
        yield PayoutOrder(
            request_id=f"PAY-2611-{number:07d}",
            batch_id=BATCH,
            amount=Decimal(500_000 + number % 4_000_000),
            destination=MobileMoneyWallet(phone),
            product_item_id="AIRTELMOBILEMONEYPAYOUTUG_AIRTELMOBILEMONEYPAYOUTUG",
            beneficiary=Beneficiary(name=NAMES[number % 4], phone_number=phone),
            message="November salary",
            currency="UGX",
        )


async def work(journal: Journal, chunk: Chunk, claimed: Iterator[ClaimedOrder]) -> None:
    """Permits and outcomes, one after the other, each outcome beside the next permit."""
    last: Outcome | None = None
    for order in claimed:
        permit = await journal.permit(chunk, order, after=last)
        assert isinstance(permit, Permit)
        last = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=str(uuid.uuid4()))
    if last is not None:
        await journal.record(last)


async def send_all(journal: Journal, concurrency: int) -> None:
    """Every order of the batch, as a runner would, without sending."""
    while (chunk := await journal.claim_chunk(BATCH, "bench")) is not None:
        claimed = iter(chunk.orders)
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work(journal, chunk, claimed))
        await journal.release_chunk(chunk)


def memory() -> float:
    """Most memory used so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(unopened: SqliteJournal | PostgresJournal, count: int, concurrency: int) -> None:
    """Load and send, and print what it took."""
    identity = RunIdentity(base_address="https://service.example", key_fingerprint="f" * 16, user_id="1")
    print(f"{count:,} orders, {concurrency} workers; memory at the start {memory():.0f} MB")
    async with unopened as journal:
        await journal.open_run(BATCH, identity)
        for name in ("loaded", "loaded again"):
            started = time.perf_counter()
            await journal.load(BATCH, orders(count), owner="bench")
            seconds = time.perf_counter() - started
            print(f"{name:14} {count / seconds:10,.0f} orders/s   memory {memory():.0f} MB")
        started, cpu = time.perf_counter(), time.process_time()
        await send_all(journal, concurrency)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        print(f"{'permit+record':14} {count / seconds:10,.0f} orders/s   memory {memory():.0f} MB")
        print(f"{'':14} {1e6 * cpu / count:10.1f} µs CPU for an order")
        started = time.perf_counter()
        progress = await journal.progress(BATCH)
        print(f"{'progress':14} {1e3 * (time.perf_counter() - started):10.1f} ms")
        assert count == progress.counts["accepted"]


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--directory", type=Path, help="where the file is made, on the disk to be measured")
    parser.add_argument("--journal", metavar="DSN", help="of a PostgreSQL database")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        new_journal(Path(directory), options.journal) as journal,
    ):
        asyncio.run(measure(journal, options.count, options.concurrency))
        size = size_of(Path(directory), options.journal)
    print(f"{'on disk':14} {size / options.count:10.0f} bytes an order ({size / 2**20:.0f} MiB)")


if __name__ == "__main__":
    main()

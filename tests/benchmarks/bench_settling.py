"""What settling an outbox asks of the service: requests, time and memory for orders that wait.

    python tests/benchmarks/bench_settling.py                              10,000 orders, 100,000 transactions a day
    python tests/benchmarks/bench_settling.py --orders 1000 --rows 20000   as many as you say
    python tests/benchmarks/bench_settling.py --kind lost                  one kind alone, in this process

``one`` is a single unknown order, to compare with. ``lost`` orders are unknown and the list shows them, as ended;
``missing`` ones are unknown and not in it; ``queued`` ones are accepted, and the service is still at them. The service
is a process of its own that gives pages of 500. Passes go on until all is settled or parked, four at most; each has a
line. Requests are the same every time, and must stay within six times the pages of the list.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
from bench_bulk import WHO, orders, stay_on
from bench_reconcile import Lists, count_requests, memory, transaction_id

from payments_async import Limits, PaymentsSession, PayoutOrder
from payments_async.journal import RunIdentity, Signal, SqliteJournal
from payments_async.journal.contract import Chunk, ClaimedOrder, Outcome, Permit
from payments_async.outbox._settling import Settler

OUTBOX = "bench"
ENDS = {"one": "SUCCESSFULL", "lost": "SUCCESSFULL", "missing": "SUCCESSFULL", "queued": "PROCESSING"}
PAGE = 500
ELSEWHERE = 50_000_000  # numbers that no list shows
SHARE = 6  # requests of a pass for each page of the list


async def serve(kind: str, rows: int) -> None:
    """Serve on a free port, print it, and stay."""
    Lists.shown, Lists.status = rows, ENDS[kind]
    server = await asyncio.get_running_loop().create_server(Lists, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def waiting(kind: str, count: int) -> Iterator[PayoutOrder]:
    """The orders; the first one is accepted, so that absence means much, unless it is the only one."""
    for number, order in enumerate(orders(count + 1)):
        shown = number if kind != "missing" or not number else number + ELSEWHERE
        yield attrs.evolve(order, request_id=f"bench-{shown:08d}")


async def leave_open(journal: SqliteJournal, kind: str) -> None:
    """Have all of them permitted, and answered as their kind is."""

    async def work(chunk: Chunk, claimed: Iterator[ClaimedOrder]) -> None:
        for order in claimed:
            permit = await journal.permit(chunk, order)
            assert isinstance(permit, Permit)
            number = int(order.request_id[-8:])
            known = kind == "queued" or not number
            signal, named = (Signal.ACCEPTED, transaction_id(number)) if known else (Signal.UNKNOWN, None)
            await journal.record(Outcome(permit=permit, signal=signal, transaction_id=named))

    while (chunk := await journal.claim_chunk(OUTBOX, "bench")) is not None:
        claimed = iter(chunk.orders)
        await asyncio.gather(*(work(chunk, claimed) for _ in range(100)))
        await journal.release_chunk(chunk)


async def measure(kind: str, base: str, count: int, rows: int, path: Path) -> None:
    """Make pass after pass, and print what each took."""
    identity = RunIdentity.of(base, app_key=WHO.app_key, user_id=WHO.user_id)
    ahead = 0.0

    def clock() -> float:
        return time.time() + ahead

    async with (
        SqliteJournal(path, state_folder=None) as journal,
        PaymentsSession(base, WHO, limits=Limits(concurrency=50)) as payments,
    ):
        await journal.open_run(OUTBOX, identity, outbox=OUTBOX)
        await journal.load(OUTBOX, waiting(kind, count), owner="bench")
        await leave_open(journal, kind)
        await payments.log_in()
        settler = Settler(payments, journal, OUTBOX, owner="bench", clock=clock, ticks=clock)
        before, pages = memory(), -(-rows // PAGE)
        for number in range(1, 5):
            ahead += 10_000.0
            asked, cpu = count_requests(base), time.process_time()
            await settler.turn()
            cpu, asked = time.process_time() - cpu, count_requests(base) - asked - 1
            progress = await settler.progress()
            assert progress.last is not None
            assert asked <= SHARE * pages, f"{asked} requests for a list of {pages} pages"
            standing = f"{progress.unknown:,} unknown, {progress.parked:,} parked, {progress.accepted:,} accepted"
            cost = f"{asked:5,d} requests = {asked / pages:.2f} a page  {progress.last.took:5.1f} s  CPU {cpu:5.1f} s"
            grown = memory() - before
            print(f"{kind:8} pass {number}: {count:7,d} orders, {rows:,} rows: {cost}  +{grown:.0f} MB  {standing}")
            if not progress.unknown and not progress.accepted:
                break


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kind", choices=ENDS)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        stay_on(1)
        asyncio.run(serve(options.kind, options.rows))
        return
    sizes = ["--orders", str(options.orders), "--rows", str(options.rows)]
    if options.kind is None:
        for kind in ENDS:
            subprocess.run([sys.executable, __file__, *sizes, "--kind", kind], check=True)
        return
    stay_on(0)
    command = [sys.executable, __file__, "--serve", "--kind", options.kind, *sizes]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        assert server.stdout is not None
        base = f"http://127.0.0.1:{int(server.stdout.readline())}"
        count = 1 if options.kind == "one" else options.orders
        try:
            asyncio.run(measure(options.kind, base, count, options.rows, Path(folder) / "journal.db"))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

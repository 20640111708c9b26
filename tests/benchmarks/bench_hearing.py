"""How soon a process hears of a notification that reached another one, by the same journal.

    python tests/benchmarks/bench_hearing.py [--dsn DSN] [--sqlite] [--times 300] [--waiting 1000]

Two processes: one has a receiver, which is told what to store; the other waits, by ``receiver.wait_for`` or by
``outbox.settled``. What is measured begins when the notification may be answered with 200, and ends when whoever waits
goes on. ``--waiting`` others wait for orders of which nothing comes. Without ``--dsn``, the server is that of the
tests. At the end the other process stores ``--burst`` notifications as fast as it can, and it is shown what that cost
the process that waits.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import date
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_bulk import WHO, orders
from places import new_journal

from payments_async import PaymentsSession, PayoutOrder
from payments_async._wire.events import TransactionEvent, TransactionSucceeded
from payments_async.ipn import Receiver
from payments_async.journal import Journal, PostgresJournal, Signal, SqliteJournal
from payments_async.journal.contract import Arrival, Outcome, Permit, RawNotification
from payments_async.outbox import Outbox
from payments_async.outbox._scans import account_of

_NUMBERS = itertools.count()
Stores = Callable[[str, int], Awaitable[float]]


async def there(place: list[str]) -> None:
    """The other process: stores notifications as it is told by lines, and says when each was on disk."""
    kind, where, schema, state = place
    journal = (
        SqliteJournal(where, state_folder=state)
        if kind == "sqlite"
        else PostgresJournal(where, schema=schema, state_folder=state)
    )
    loop = asyncio.get_running_loop()
    async with journal:
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, count = line.split()
            names = [name] if count == "1" else [f"{name}-{number}" for number in range(int(count))]
            for block in range(0, len(names), 10):
                arrivals = [arrival(one) for one in names[block : block + 10]]
                await journal.receive_all(arrivals, owner="there")
            print(time.monotonic(), flush=True)


def arrival(request_id: str) -> Arrival:
    """A notification that nobody handles."""
    event: TransactionEvent = TransactionSucceeded(
        transaction_id=f"t-{request_id}", status_code=0, request_id=request_id
    )
    delivery = RawNotification(body=b"{}", query="", peer="", received_at=time.time())
    return Arrival(delivery=delivery, event=event, lease=0, unheard=True)


async def heard_after(waiting: Awaitable[object], request_id: str, stores: Stores) -> float:
    """Seconds from the answer until whoever waits goes on."""
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0.08 + 0.05 * (next(_NUMBERS) % 7) / 7)  # until it waits, and at no fixed time of any clock
    at: list[float] = []
    task.add_done_callback(lambda _: at.append(time.monotonic()))
    stored_at = await stores(request_id, 1)
    await task
    return at[0] - stored_at


async def settled_after(outbox: Outbox, journal: Journal, order: PayoutOrder, stores: Stores) -> float:
    """The same, of an order that was accepted."""
    await outbox.put(order)
    chunk = await journal.claim_chunk("outbox", "bench")
    assert chunk is not None
    (planned,) = chunk.orders
    permit = await journal.permit(chunk, planned)
    assert isinstance(permit, Permit)
    await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=f"t-{order.request_id}"))
    await journal.release_chunk(chunk)
    return await heard_after(outbox.settled(order.request_id, timeout=60), order.request_id, stores)


def shown(name: str, seconds: list[float]) -> None:
    """A line of the table."""
    ranked = sorted(seconds)
    median, late = statistics.median(ranked), ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))]
    print(f"  {name:34} median {1e3 * median:7.1f} ms   99th percentile {1e3 * late:7.1f} ms   n {len(ranked)}")


async def measured(arguments: argparse.Namespace, dsn: str | None) -> None:
    """One database."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journal = stack.enter_context(new_journal(folder, dsn))
        await stack.enter_async_context(journal)
        place = ["sqlite", str(folder / "journal.db"), "", str(folder / "state")]
        if dsn is not None:
            assert isinstance(journal, PostgresJournal)
            place = ["postgres", dsn, journal._postgres._schema, str(folder / "state")]
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "--there", *place), stdin=-1, stdout=-1
        )
        assert child.stdin is not None
        assert child.stdout is not None
        stdin, stdout = child.stdin, child.stdout
        await stdout.readline()

        async def stores(request_id: str, count: int) -> float:
            stdin.write(f"{request_id} {count}\n".encode())
            return float(await stdout.readline())

        receiver = Receiver(journal)
        print("sqlite, one file" if dsn is None else "postgres")
        names = [f"w-{number}" for number in range(arguments.times)]
        shown("receiver.wait_for", [await heard_after(receiver.wait_for(one), one, stores) for one in names])
        payments = await stack.enter_async_context(PaymentsSession("http://127.0.0.1:9", WHO))
        await journal.open_outbox("outbox", account_of(payments))
        scan = await journal.begin_list_scan("outbox", since=date(1970, 1, 1), until=date(2100, 1, 1))
        await journal.end_list_scan(attrs.evolve(scan, problem=None))  # there is no service, and so no list
        outbox = await stack.enter_async_context(Outbox(payments, journal, worker=None))
        shown("outbox.settled", [await settled_after(outbox, journal, one, stores) for one in orders(arguments.times)])
        others = [asyncio.ensure_future(receiver.wait_for(f"none-{n}")) for n in range(arguments.waiting)]
        await asyncio.sleep(1)
        names = [f"x-{number}" for number in range(arguments.times)]
        heard = [await heard_after(receiver.wait_for(one), one, stores) for one in names]
        shown(f"receiver.wait_for, beside {arguments.waiting}", heard)
        began, wall = time.process_time(), time.monotonic()
        await stores("burst", arguments.burst)
        spent, wall = time.process_time() - began, time.monotonic() - wall
        print(f"  {arguments.burst} stored in {wall:.2f} s; processor time of who waits beside: {spent:.2f} s")
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await receiver.aclose()
        stdin.close()
        await child.wait()


async def main() -> None:
    """Both databases, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn")
    parser.add_argument("--sqlite", action="store_true", help="a file alone")
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--burst", type=int, default=5000)
    parser.add_argument("--there", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.there:
        await there(arguments.there)
        return
    await measured(arguments, None)
    if not arguments.sqlite:
        from journal import postgres

        await measured(arguments, arguments.dsn or postgres.dsn())


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    asyncio.run(main())

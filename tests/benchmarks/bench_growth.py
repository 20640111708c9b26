"""Whether an order costs the same, however many there are: from an empty journal to a million orders and more.

    python tests/benchmarks/bench_growth.py --journal DSN              to 1,000,000 orders in a PostgreSQL database
    python tests/benchmarks/bench_growth.py --journal DSN 10000000     to as many as you say
    python tests/benchmarks/bench_growth.py                            in a file

A batch of 10,000 is loaded, permitted and accepted as a runner does it, and told of by a notification for each order;
then a thousand orders are put into an outbox, and the journal is asked what commands ask. That is done in a new
journal, in one of 100,000 orders, in one of 1,000,000 and so on. In between, a file gets batch after batch in the same
way; the rows of a database are copied by itself, under other numbers, which is sooner done.

What a batch took is printed in processor time: of this process, and of the server where that runs on this machine, its
own upkeep (autovacuum, checkpoints) included. It hardly depends on who else is at work; seconds do. Bytes of WAL are
PostgreSQL's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).parent))

from bench_journal import orders
from places import new_journal, processor_of, size_of, tables_of

from payments_async import PayoutOrder
from payments_async._wire.notifications import read_notification
from payments_async.journal import Journal, PostgresJournal, RunIdentity, Signal, SqliteJournal, State
from payments_async.journal.contract import Arrival, Chunk, ClaimedOrder, Outcome, Permit, RawNotification

IDENTITY = RunIdentity(base_address="https://service.example", key_fingerprint="f" * 16, user_id="1")
OUTBOX = "outbox"
PUTS = 1000
CONCURRENCY = 100
ASKED = 7  # times; the fastest counts


def batch_of(number: int, count: int) -> Iterator[PayoutOrder]:
    """The orders of a batch."""
    for order in orders(count):
        yield attrs.evolve(order, batch_id=f"b{number}", request_id=f"b{number}-{order.request_id}")


def transaction_of(order_id: int) -> str:
    """What the service calls an order: the same that a notification of ``arrival`` names."""
    return f"672b00f8-a02c-5e41-9fd0-{order_id & 0xFFFFFFFFFFFF:012x}"


def notification(request_id: str, transaction: str, amount: Decimal) -> Arrival:
    """That an order was carried out, in the usual shape, for a receiver with a handler."""
    body = (
        f'{{"AccountId": "6", "SubscriptionId": "77", "TransactionId": "{transaction}", "BatchId": "batch-01", '
        f'"RequestId": "{request_id}", "StatusMessage": "Transaction successful", "StatusCode": 0, '
        f'"CorrelationId": "corr-{request_id}", "CreatedOn": "2024-02-27 14:06:41", "Amount": {amount}, '
        f'"CurrencyCode": "UGX"}}'
    ).encode()
    delivery = RawNotification(body=body, query="", peer="127.0.0.1", received_at=time.time())
    return Arrival(delivery, read_notification(body, ""), 60.0, usual=True)


Sent = list[tuple[str, str, Decimal]]


async def work(journal: Journal, chunk: Chunk, claimed: Iterator[ClaimedOrder], sent: Sent) -> None:
    """Permits and outcomes, one after the other, each outcome beside the next permit."""
    last: Outcome | None = None
    for order in claimed:
        permit = await journal.permit(chunk, order, after=last)
        assert isinstance(permit, Permit)
        transaction = transaction_of(order.id)
        sent.append((order.request_id, transaction, order.amount))
        last = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction)
    if last is not None:
        await journal.record(last)


async def send_all(journal: Journal, batch_id: str) -> Sent:
    """Every order of a batch, as a runner would, without sending; what they were and what became of them."""
    sent: Sent = []
    while (chunk := await journal.claim_chunk(batch_id, "bench")) is not None:
        claimed = iter(chunk.orders)
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(work(journal, chunk, claimed, sent))
        await journal.release_chunk(chunk)
    return sent


async def tell_all(journal: Journal, sent: Sent) -> None:
    """A notification for each, handled when it is stored; so many in a commit as a busy receiver has."""
    for start in range(0, len(sent), CONCURRENCY):
        arrivals = [notification(*one) for one in sent[start : start + CONCURRENCY]]
        receipts = await journal.receive_all(arrivals, owner="receiver")
        await journal.receive_all([], owner="receiver", handled=[one.event_id for one in receipts])  # type: ignore[union-attr]


async def put_all(journal: Journal, number: int) -> None:
    """Single orders, by as many callers at once."""
    waiting = batch_of(number, PUTS)

    async def put() -> None:
        for order in waiting:
            await journal.put(OUTBOX, attrs.evolve(order, request_id=f"put-{order.request_id}"))

    await asyncio.gather(*(put() for _ in range(CONCURRENCY)))


async def first(pages: AsyncIterator[Any]) -> None:
    """A page, or what there is."""
    async for _ in pages:
        break


@asynccontextmanager
async def measured(
    kind: str, count: int, used: Callable[[], tuple[float, float, int]], told: dict[str, tuple[float, ...]]
) -> AsyncIterator[None]:
    """Write down what a block took for each: microseconds by the clock, of the client, of the server; bytes of WAL."""
    begun, before = time.perf_counter(), used()
    yield
    after = used()
    seconds = time.perf_counter() - begun
    costs = (seconds, after[0] - before[0], after[1] - before[1])
    told[kind] = (*(1e6 * cost / count for cost in costs), (after[2] - before[2]) / count)


async def answered(journal: Journal, number: int) -> dict[str, float]:
    """Milliseconds of each question of the commands, the fastest of a few times."""
    batch, request_id = f"b{number}", f"b{number}-PAY-2611-{0:07d}"
    questions: dict[str, Callable[[], Awaitable[object]]] = {
        "progress of all": journal.progress,
        "progress of one": lambda: journal.progress(batch),
        "chunks": lambda: journal.chunks(batch),
        "entry": lambda: journal.entry(request_id),
        "history": lambda: journal.history(request_id),
        "unknown ones": lambda: first(journal.entries(None, State.UNKNOWN)),
        "accepted of it": lambda: first(journal.entries(batch, State.ACCEPTED)),
        "a page of all": lambda: first(journal.entries(batch)),
        "a page reported": lambda: first(journal.standings(batch)),
        "conflicts": lambda: first(journal.conflicts()),
        "sent since": lambda: journal.sent_since(None, [State.UNKNOWN, State.PARKED]),
        "open orders": lambda: first(journal.open_orders(OUTBOX, State.ACCEPTED)),
        "oldest": lambda: journal.oldest(OUTBOX),
        "backlog": journal.backlog,
        "expire": lambda: journal.expire_chunks(None),
    }
    took = {}
    for name, ask in questions.items():
        took[name] = 1e9
        for _ in range(ASKED):
            begun = time.perf_counter()
            await ask()
            took[name] = min(took[name], 1000 * (time.perf_counter() - begun))
    return took


# Copies of the first batch and of all that belongs to it, as batches of their own, from one number to another.
_COPIED = """
INSERT INTO run (id, batch_id, base_address, key_fingerprint, user_id, epoch, uid, state, created_at, ready_at)
    SELECT r.id + n, 'copy-' || n, base_address, key_fingerprint, user_id, epoch, 'copy-' || n, 'ready', created_at,
    ready_at FROM run r, generate_series({first}, {last}) n WHERE r.batch_id = 'b1';
INSERT INTO progress SELECT p.run + n, p.state, p.count, p.total FROM progress p JOIN run r ON r.id = p.run
    AND r.batch_id = 'b1', generate_series({first}, {last}) n;
INSERT INTO chunk (run, number, state, token) SELECT c.run + n, c.number, c.state, c.token FROM chunk c
    JOIN run r ON r.id = c.run AND r.batch_id = 'b1', generate_series({first}, {last}) n;
INSERT INTO claim SELECT c.run + n, c.number, c.token, c.owner, c.at FROM claim c
    JOIN run r ON r.id = c.run AND r.batch_id = 'b1', generate_series({first}, {last}) n;
INSERT INTO outbox (id, request_id, request_key, state, token, attempt, amount, body, body_sha256, transaction_id,
    permitted_at, updated_at) SELECT o.id + (n::bigint << 28), 'c' || n || '-' || o.request_id,
    'c' || n || '-' || o.request_key, o.state, o.token, o.attempt, o.amount, o.body, o.body_sha256,
    decode(md5(n || o.request_id), 'hex'), o.permitted_at, o.updated_at FROM outbox o
    JOIN run r ON r.id = o.id >> 28 AND r.batch_id = 'b1', generate_series({first}, {last}) n;
INSERT INTO ipn_event (id, transaction_id, status_code, amount, request_key, event, body, query, peer, received_at,
    order_id) SELECT e.id + n::bigint * 1000000, md5(n || e.request_key)::uuid::text, e.status_code, e.amount,
    'c' || n || '-' || e.request_key, e.event, e.body, e.query, e.peer, e.received_at, e.order_id + (n::bigint << 28)
    FROM ipn_event e JOIN run r ON r.id = e.order_id >> 28 AND r.batch_id = 'b1', generate_series({first}, {last}) n;
INSERT INTO evidence (order_id, at, news, source, transaction_id, amount, currency, before, after, before_at, event_id,
    last_at) SELECT v.order_id + (n::bigint << 28), v.at, v.news, v.source, md5(n || v.transaction_id)::uuid::text,
    v.amount, v.currency, v.before, v.after, v.before_at, v.event_id + n::bigint * 1000000, v.last_at FROM evidence v
    JOIN run r ON r.id = v.order_id >> 28 AND r.batch_id = 'b1', generate_series({first}, {last}) n;
"""


def copy(dsn: str, journal: PostgresJournal, first: int, last: int) -> None:
    """Fill a journal in a database."""
    import psycopg

    if first <= last:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"SET search_path = {journal._namespace}".encode())
            connection.execute(_COPIED.format(first=first, last=last).encode())


async def measure(journal: SqliteJournal | PostgresJournal, total: int, size: int, dsn: str | None) -> None:
    """A batch in a new journal, and in one of ten times as many orders, and so on."""
    used, number = processor_of(dsn), 0
    async with journal:
        await journal.open_outbox(OUTBOX, IDENTITY)
        while (number + 1) * size <= total:
            number += 1
            told = await live(journal, number, size, used)
            if (number * size) in (size * 10**power for power in range(10)):
                show(number * size, told)
                took = await answered(journal, number)
                print("  " + ", ".join(f"{name} {ms:.2f}" for name, ms in took.items()) + " ms", flush=True)
                if dsn is not None and isinstance(journal, PostgresJournal) and 10 * number * size <= total:
                    copy(dsn, journal, 1000 + number, 1000 + 10 * number - 2)
                    number = 10 * number - 1


async def live(
    journal: Journal, number: int, size: int, used: Callable[[], tuple[float, float, int]]
) -> dict[str, tuple[float, ...]]:
    """What becomes of the orders of a batch; tells what it took."""
    told: dict[str, tuple[float, ...]] = {}
    batch_id = f"b{number}"
    await journal.open_run(batch_id, IDENTITY)
    async with measured("load", size, used, told):
        await journal.load(batch_id, batch_of(number, size), owner="bench")
    async with measured("permit and outcome", size, used, told):
        sent = await send_all(journal, batch_id)
    async with measured("notification", size, used, told):
        await tell_all(journal, sent)
    async with measured("put", PUTS, used, told):
        await put_all(journal, number)
    return told


def show(count: int, told: dict[str, tuple[float, ...]]) -> None:
    """Print what a batch took."""
    print(f"{count:,} orders")
    for kind, (clock, client, server, wal) in told.items():
        print(
            f"  {kind:20}{clock:8.0f} µs by the clock{client:8.1f} µs here{server:8.1f} µs of the server"
            f"{wal:8.0f} bytes of WAL"
        )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, help="where the file is made, on the disk to be measured")
    parser.add_argument("--journal", metavar="DSN", help="of a PostgreSQL database")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        new_journal(Path(directory), options.journal) as journal,
    ):
        asyncio.run(measure(journal, options.count, options.batch, options.journal))
        size = size_of(Path(directory), options.journal)
        print(f"on disk {size / options.count:.0f} bytes an order ({size / 2**20:.0f} MiB)")
        for line in tables_of(options.journal):
            print(line)


if __name__ == "__main__":
    main()

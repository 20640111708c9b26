"""The inbox's backlog: how fast it is handled, and what a look costs that finds nothing due.

    python tests/benchmarks/bench_backlog.py              20,000 events to handle, 200,000 that wait
    python tests/benchmarks/bench_backlog.py 1000000      as many to handle as you say

What handling an event from the backlog costs is compared with storing it, in processor time: a backlog has to shrink
while more comes. Looks are as many as were needed; one a second was all there was for each 4 x concurrency events, and
would take as long as is printed beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from payments_async._wire.notifications import read_notification
from payments_async.ipn import HandlerPolicy, Receiver, TransactionEvent
from payments_async.journal import SqliteJournal
from payments_async.journal.contract import Arrival, RawNotification, StoredEvent

AT_ONCE = 500  # stored in one commit
LOOKS = 300


class Looked(SqliteJournal):
    """A journal that counts the looks for what is due."""

    looks = 0

    async def claim(self, owner: str, **rest: Any) -> Sequence[StoredEvent]:
        self.looks += 1
        return await super().claim(owner, **rest)


def arrival(number: int, lease: float) -> Arrival:
    """A notification of the usual shape; with a lease it waits for its receiver, without one for anybody."""
    identity = f"672b00f8-a02c-5e41-9fd0-{number:012x}"
    body = (
        f'{{"AccountId": "6", "SubscriptionId": "77", "TransactionId": "{identity}", "BatchId": "batch-01", '
        f'"RequestId": "req-{number}", "StatusMessage": "Transaction successful", "StatusCode": 0, '
        f'"CorrelationId": "corr-{number}", "CreatedOn": "2024-02-27 14:06:41", "Amount": 500.25, '
        f'"CurrencyCode": "UGX"}}'
    ).encode()
    delivery = RawNotification(body=body, query="", peer="127.0.0.1", received_at=time.time())
    return Arrival(delivery, read_notification(body, ""), lease, usual=True)


async def store(journal: SqliteJournal, count: int, *, lease: float) -> float:
    """Store so many events; seconds of the processor."""
    begun = time.process_time()
    for start in range(0, count, AT_ONCE):
        await journal.receive_all([arrival(number, lease) for number in range(start, start + AT_ONCE)], owner="before")
    return time.process_time() - begun


async def drain(folder: Path, count: int) -> None:
    """Print how fast a backlog is handled."""
    async with Looked(folder / "backlog.sqlite", state_folder=None) as journal:
        stored = await store(journal, count, lease=0.0)
        receiver, left, is_over = Receiver(journal, senders=["127.0.0.1"]), count, asyncio.Event()

        @receiver.on(TransactionEvent)
        async def settle(event: TransactionEvent) -> None:
            nonlocal left
            left -= 1
            if not left:
                is_over.set()

        begun, used = time.perf_counter(), time.process_time()
        async with receiver:
            await is_over.wait()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - used
    by_the_clock = count / (4 * HandlerPolicy().concurrency)
    print(
        f"{count:,} events handled in {seconds:.1f} s ({count / seconds:,.0f} a second, {cpu:.1f} s of the processor)"
    )
    print(f"  {journal.looks} looks, {count / journal.looks:.0f} events each; one a second: {by_the_clock:.0f} s")
    print(f"  handling / storing, processor time: {cpu / stored:.2f}")


async def look(folder: Path, waiting: int) -> None:
    """Print what a look costs with nothing in the inbox, and with events that are not due."""
    costs = []
    for count in (0, waiting):
        async with SqliteJournal(folder / f"{count}.sqlite", state_folder=None) as journal:
            await store(journal, count, lease=1e6)
            begun = time.process_time()
            for _ in range(LOOKS):
                assert not await journal.claim("receiver", lease=90.0, limit=400)
            costs.append((time.process_time() - begun) / LOOKS)
    print(
        f"a look with none due: {costs[1] * 1e3:.3f} ms with {waiting:,} that wait, {costs[0] * 1e3:.3f} ms with none"
    )
    print(f"  with / without, processor time: {costs[1] / costs[0]:.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", nargs="?", type=int, default=20_000, help="to be handled")
    parser.add_argument("--waiting", type=int, default=200_000, help="not due, while it is looked for what is")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(drain(Path(folder), options.events // AT_ONCE * AT_ONCE))
        asyncio.run(look(Path(folder), options.waiting // AT_ONCE * AT_ONCE))


if __name__ == "__main__":
    main()

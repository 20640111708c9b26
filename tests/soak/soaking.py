"""A soak: an outbox, a receiver, a settler and handlers work for long, and what they hold is measured."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from bulk.worlds import payout

from payments_async import Credentials, Limits, PaymentsSession, RetryPolicy
from payments_async.ipn import Receiver, TransactionEvent, serving
from payments_async.journal import Entry, SqliteJournal, State
from payments_async.outbox import Outbox, WorkerSettings

ROUND = 250  # orders, 50 of them side by side


class Sample(NamedTuple):
    """What is held once the orders of a round have been sent.

    Attributes:
        memory: Bytes that are resident.
        objects: Blocks of memory that objects have. To list the objects would break a tuple that a thread is making.
        log: Bytes of the journal's write-ahead log.
        unsettled: Orders that the session counts as unsettled.
    """

    orders: int
    memory: int
    objects: int
    descriptors: int
    tasks: int
    threads: int
    log: int
    unsettled: int


class Soak(NamedTuple):
    """Samples of all rounds, how often each handler was called, and what the service says at the end."""

    samples: Sequence[Sample]
    told: int
    heard: int
    states: dict[str, int]
    verdict: dict[str, Any]


def slope(samples: Sequence[Sample], of: Callable[[Sample], int]) -> float:
    """By how much it grows with each order: the median of pairs, which a few wild samples do not move.

    Pairs lie near each other: one step, as when the service's list is read for the first time, is in few of them.
    """
    near = len(samples) // 4
    slopes = sorted(
        (of(later) - of(earlier)) / (later.orders - earlier.orders)
        for number, earlier in enumerate(samples)
        for later in samples[number + 1 : number + 1 + near]
    )
    return slopes[len(slopes) // 2]


# Growth with each order, once it is warm: a leak of one object per order is above these, also where what the open ones
# hold goes down by half of that. Memory grows in steps: where much is held for a moment, as while the service's list is
# read, the process keeps the pages.
_BOUNDS: dict[str, float] = {"memory": 500.0, "objects": 0.4, "descriptors": 0.01, "tasks": 0.01, "threads": 0.001}
_HELD = 50  # blocks that an order holds while it is open, at least; how many are open grows too
_LOG = 2 * 4000 * 4096  # bytes; it begins anew after 4,000 pages, once no reader holds it


def judge(found: Soak) -> list[str]:
    """What does not stay as it was in the second half of the orders, and what was paid twice."""
    late = [sample for sample in found.samples if 2 * sample.orders > found.samples[-1].orders]
    late = [sample._replace(objects=sample.objects - _HELD * sample.unsettled) for sample in late]
    slopes = {name: slope(late, attrgetter(name)) for name in _BOUNDS}
    problems = [
        f"{name} grow by {slopes[name]:.4f} with each order, of {most} at most"
        for name, most in _BOUNDS.items()
        if slopes[name] > most
    ]
    if (largest := max(sample.log for sample in late)) > _LOG:
        problems.append(f"the log of the journal has grown to {largest:,} bytes, of {_LOG:,} at most")
    return problems + [f"{request_id} was carried out twice" for request_id in found.verdict["twice"]]


@asynccontextmanager
async def _service(ipn_url: str) -> AsyncIterator[tuple[dict[str, Any], Callable[[], Any]]]:
    """A process with the service: where it is, and a function that ends it and gives its verdict."""
    place = Path(__file__).with_name("service.py")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(place), ipn_url, stdin=pipe, stdout=pipe, limit=2**24
    )
    assert process.stdout is not None
    assert process.stdin is not None
    lines, typed = process.stdout, process.stdin

    async def end() -> Any:
        typed.write(b"\n")
        return json.loads(await lines.readline())

    try:
        yield json.loads(await lines.readline()), end
    finally:
        typed.close()
        await process.wait()


async def soak(
    folder: Path, *, seconds: float, least: int = 0, told: Callable[[Sample], None] = lambda sample: None
) -> Soak:
    """Send orders, round after round, until time is up and there were at least so many."""
    samples: list[Sample] = []
    calls = {"told": 0, "heard": 0}
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(SqliteJournal(folder / "journal.db"))
        receiver = Receiver(journal, ["127.0.0.1"])

        @receiver.on(TransactionEvent)
        async def heard(_: TransactionEvent) -> None:
            calls["heard"] += 1

        host, port = await stack.enter_async_context(serving(receiver, "127.0.0.1", 0))
        service, end = await stack.enter_async_context(_service(f"http://{host}:{port}/ipn"))
        payments = await stack.enter_async_context(
            PaymentsSession(
                service["base"], Credentials(**service["who"]), timeout=aiohttp.ClientTimeout(total=60),
                limits=Limits(concurrency=100, remembered=500), retry=RetryPolicy(wait_initial=0.01, wait_max=0.1),
            )
        )  # fmt: skip
        # what never arrived is parked soon, or those orders would be open till the end
        outbox = Outbox(payments, journal, worker=WorkerSettings(grace=2.0))

        @outbox.on(*(state for state in State if state not in (State.PLANNED, State.SENDING)), name="told")
        async def told_of(_: Entry) -> None:
            calls["told"] += 1

        await stack.enter_async_context(outbox)
        number, until = 0, time.monotonic() + seconds
        while time.monotonic() < until or number < least:
            places = asyncio.Semaphore(50)

            async def pay(one: int, places: asyncio.Semaphore = places) -> None:
                async with places:
                    await outbox.pay(payout(one), timeout=60)

            await asyncio.gather(*(pay(one) for one in range(number, number + ROUND)))
            number += ROUND
            samples.append(_sample(number, folder, len(payments.unsettled)))
            told(samples[-1])
        states = {state.value: count for state, count in (await journal.progress(outbox=outbox.name)).counts.items()}
        return Soak(samples, calls["told"], calls["heard"], states, await end())


def _sample(orders: int, folder: Path, unsettled: int) -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    log = folder / "journal.db-wal"
    return Sample(
        orders=orders,
        memory=pages * os.sysconf("SC_PAGE_SIZE"),
        objects=sys.getallocatedblocks(),
        descriptors=len(list(Path("/proc/self/fd").iterdir())),
        tasks=len(asyncio.all_tasks()),
        threads=len(list(Path("/proc/self/task").iterdir())),
        log=log.stat().st_size if log.exists() else 0,
        unsettled=unsettled,
    )

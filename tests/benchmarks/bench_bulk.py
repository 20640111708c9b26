"""What the journal costs: a batch by run_batch, the same orders by send_many without one, and by bare aiohttp.

    python tests/benchmarks/bench_bulk.py                     interleaved rounds, orders per second, ratios, where the
                                                              service answers at once, after 20 and after 200 ms
    python tests/benchmarks/bench_bulk.py --delay 0.05        the same after 50 ms alone
    python tests/benchmarks/bench_bulk.py --server aiohttp    the same against a server that takes as long as a client
    python tests/benchmarks/bench_bulk.py --instructions      instructions per order, loading apart (needs valgrind)
    python tests/benchmarks/bench_bulk.py --orders 1000000    one run: memory, time, bytes of the file per order
    python tests/benchmarks/bench_bulk.py --rate 100000       with a run at a rate, too: what one costs
    python tests/benchmarks/bench_bulk.py --journal DSN       with a journal in a PostgreSQL database beside the file

The server is a process of its own that echoes the request id of each order and does nothing else. The one it starts by
default knows hardly any HTTP and is never what is waited for, so that the client's processor time is all there is: the
worst case for the journal. Where it answers later, what counts is that an order waits until its permit is on disk. The
client has one core, the server another. Every client collects garbage as seldom as the command line does; with
``--plain-gc`` as often as Python by itself. Only ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from payments_async import Beneficiary, Credentials, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async._cli import COLLECT_AFTER
from payments_async.bulk import RunProgress, RunSettings, run_batch

sys.path.insert(0, str(Path(__file__).parent))

from places import new_journal, size_of

CLIENTS = ("bare", "send_many", "journaled")
IN_DATABASE = "database"  # journaled too, in the database of --journal
LIMITED = "limited"  # journaled too, at the rate of --rate
LOADED = "loaded"  # the batch is written down, and nothing is sent: what that costs is taken off "journaled"
DELAYS = (0.0, 0.02, 0.2)  # seconds until the service answers
SLOW = 0.1  # from where a fifth of the orders do
LOGIN = json.dumps({"Token": "t" * 200, "refreshToken": "r" * 60, "success": True, "message": "ok"}).encode()
ACCEPTANCE = (
    b'{"code":0,"status":"success","message":"Transaction received","data":{"requestId":"%b","batchId":"",'
    b'"transactionId":"%b","status":"PROCESSING","message":"queued","createdOn":"2/27/2024 2:06:41 PM"}}'
)
WHO = Credentials(app_key="key", app_password="password", user_id="user")


class Server(asyncio.Protocol):
    """Accepts everything, after a while; knows just enough of HTTP."""

    delay = 0.0
    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            length = re.search(rb"(?i)content-length: (\d+)", self.data[:end])
            whole = end + 4 + (int(length.group(1)) if length else 0)
            if len(self.data) < whole:
                return
            answer = self.answer(self.data[:whole])
            self.data = self.data[whole:]
            if self.delay:
                asyncio.get_running_loop().call_later(self.delay, self.transport.write, answer)
            else:
                self.transport.write(answer)

    def answer(self, request: bytes) -> bytes:
        named = re.search(rb'"requestId":\s*"([^"]*)"', request)
        Server.count += 1
        transaction = b"41cc8f29-f3f4-45aa-148f-%012x" % Server.count
        body = ACCEPTANCE % (named.group(1), transaction) if named else LOGIN
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        return head % len(body) + body


async def serve(delay: float) -> None:
    """Serve on a free port, print it, and stay."""
    Server.delay = delay
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def serve_with_aiohttp(delay: float) -> None:
    """The same as a web application would do it."""

    async def answer(request: web.Request) -> web.Response:
        order = await request.json()
        await asyncio.sleep(delay)
        Server.count += 1
        if (request_id := order.get("requestId")) is None:
            return web.Response(body=LOGIN, content_type="application/json")
        transaction = b"41cc8f29-f3f4-45aa-148f-%012x" % Server.count
        return web.Response(body=ACCEPTANCE % (request_id.encode(), transaction), content_type="application/json")

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


SERVERS = {"raw": serve, "aiohttp": serve_with_aiohttp}


def orders(count: int) -> Iterator[PayoutOrder]:
    """A batch, made as it is read."""
    person = Beneficiary(name="Grace Akello", email_address="grace@example.org", phone_number="+256772000017")
    wallet, amount = MobileMoneyWallet("+256772000017"), Decimal(150000)
    for number in range(count):
        yield PayoutOrder(
            request_id=f"bench-{number:08d}", batch_id="bench", amount=amount, destination=wallet,
            product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG", beneficiary=person,
            message="November salary",
        )  # fmt: skip


async def bare(base: str, count: int, concurrency: int) -> float:
    """Seconds for aiohttp alone, with the same JSON."""
    waiting = orders(count)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        url, headers = f"{base}/api/transactions/payouts/mobilemoney", {"Authorization": "Token " + "t" * 200}

        async def work() -> None:
            for order in waiting:
                async with http.post(url, json=body(order), headers=headers) as answer:
                    await answer.json()

        begun = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(concurrency)))
        return time.perf_counter() - begun


def body(order: PayoutOrder) -> dict[str, object]:
    """The payout as a user without a library would write it."""
    person = order.beneficiary
    return {
        "requestId": order.request_id, "batchId": order.batch_id, "amount": int(order.amount), "type": "DEBIT",
        "message": order.message, "product": {"productItemId": order.product_item_id},
        "beneficiary": {
            "name": person.name, "emailAddress": person.email_address, "phoneNumber": person.phone_number,
            "data": {"phoneNumber": person.phone_number},
        },
    }  # fmt: skip


async def send_many(base: str, count: int, concurrency: int) -> float:
    """Seconds for the session alone: nothing is written down."""
    async with PaymentsSession(base, WHO) as payments:
        await payments.log_in()
        begun = time.perf_counter()
        async for _ in payments.payouts.send_many(orders(count), concurrency=concurrency):
            pass
        return time.perf_counter() - begun


async def loaded(base: str, count: int, concurrency: int) -> float:
    """Seconds for the loading alone."""
    return await journaled(base, count, concurrency, sends=False)


async def journaled(
    base: str,
    count: int,
    concurrency: int,
    *,
    show: bool = False,
    sends: bool = True,
    dsn: str | None = None,
    rate: float | None = None,
) -> float:
    """Seconds for the run of a batch that is loaded already, as ``send_many`` has its orders already."""
    with tempfile.TemporaryDirectory() as folder, new_journal(Path(folder), dsn) as unopened:
        async with unopened as journal, PaymentsSession(base, WHO) as payments:
            await payments.log_in()
            begun = time.perf_counter()
            stop = asyncio.Event()
            stop.set()
            await run_batch(
                payments, journal, "bench", orders(count), stop=stop, settings=RunSettings(look_first="never")
            )
            ready = time.perf_counter()
            if not sends:
                return ready - begun
            done = await run_batch(
                payments,
                journal,
                "bench",
                settings=RunSettings(concurrency=concurrency, rate=rate, look_first="never"),
                progress=tell if show else None,
            )
            seconds = time.perf_counter() - ready
            assert count == done.counts["accepted"], done
        if show:
            print(f"loaded in {ready - begun:.1f} s, sent in {seconds:.1f} s ({count / seconds:.0f}/s)")
            print(f"{size_of(Path(folder), dsn) / count:.0f} bytes an order, {memory():.0f} MB at most")
    return seconds


def memory() -> float:
    """The most this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


_told = 0.0


def tell(progress: RunProgress) -> None:
    """Print now and then how far it is."""
    global _told  # noqa: PLW0603 - a benchmark's own
    if progress.seconds - _told >= 30:
        _told = progress.seconds
        print(f"{progress.seconds:6.0f} s  {progress.sent:9d} sent  {memory():.0f} MB", flush=True)


def stay_on(core: int) -> None:
    """Keep this process on one core, where the system allows that and there are two."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[min(core, len(cores) - 1)]})


def measured(
    kind: str, base: str, count: int, concurrency: int, *more: str, wrapper: Sequence[str | Path] = ()
) -> float:
    """Orders per second of one client, in a process of its own."""
    command = [*wrapper, sys.executable, __file__, "--client", kind, "--base", base]
    command += ["--count", str(count), "--concurrency", str(concurrency), *more]
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # or the start alone differs by millions of instructions
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout.split()[-1])


def instructions(kind: str, base: str, count: int, concurrency: int, *more: str) -> int:
    """Instructions of a client process for so many orders, its start included."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        wrapper = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        measured(kind, base, count, concurrency, *more, wrapper=wrapper)
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
    assert found is not None
    return int(found.group(1))


def compare_instructions(base: str, count: int, concurrency: int, *more: str, clients: Sequence[str] = CLIENTS) -> None:
    """Print instructions per order and their ratios: long run less short run."""
    costs = {}
    for kind in (LOADED, *clients):
        short, long = (instructions(kind, base, times * count, concurrency, *more) for times in (1, 2))
        costs[kind] = (long - short) / count
        if kind == LOADED:
            print(f"{kind:10s} {costs[kind]:8.0f} instructions")
            continue
        if kind not in ("bare", "send_many"):
            costs[kind] -= costs[LOADED]
        to_bare, to_many = (costs[kind] / costs.get(other, costs[kind]) for other in ("bare", "send_many"))
        print(
            f"{kind:10s} {costs[kind]:8.0f} instructions   {to_many:.3f} of send_many   {to_bare:.3f} of bare aiohttp"
        )


def compare(
    bases: Mapping[float, str], rounds: int, count: int, concurrency: int, *more: str, clients: Sequence[str] = CLIENTS
) -> None:
    """Print orders per second and ratios, medians of interleaved rounds; each ratio is of one round.

    Args:
        bases: Where a service is that answers after so many seconds.
    """
    rates: dict[float, dict[str, list[float]]] = {delay: {kind: [] for kind in clients} for delay in bases}
    for _ in range(rounds):
        for delay, base in bases.items():
            some = count if delay < SLOW else count // 5
            for kind in clients:
                rates[delay][kind].append(measured(kind, base, some, concurrency, *more))
    for delay, of_all in rates.items():
        print(f"answered after {1000 * delay:.0f} ms")
        for kind, own in of_all.items():
            to_bare, to_many = (statistics.median(map(truediv, own, of_all[other])) for other in ("bare", "send_many"))
            print(
                f"  {kind:10s} {statistics.median(own):8.0f}/s   "
                f"{to_many:.3f} of send_many   {to_bare:.3f} of bare aiohttp"
            )


@contextmanager
def served(kind: str, delay: float) -> Iterator[str]:
    """A server in a process of its own; its address."""
    command = [sys.executable, __file__, "--serve", "--server", kind, "--delay", str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--delay", type=float, help="seconds the server takes for an answer")
    parser.add_argument("--server", choices=SERVERS, default="raw")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--plain-gc", action="store_true")
    parser.add_argument("--client", choices=(LOADED, *CLIENTS, LIMITED, IN_DATABASE))
    parser.add_argument("--rate", type=float, help="orders a second, of one more run")
    parser.add_argument("--journal", metavar="DSN", help="of a PostgreSQL database to be compared with a file")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--base", default="")
    arguments = parser.parse_args()
    if arguments.serve:
        stay_on(1)
        asyncio.run(SERVERS[arguments.server](arguments.delay or 0.0))
        return
    if not arguments.plain_gc:
        gc.freeze()  # as the command line does; else one collection of all that was imported falls into the longer run
        gc.set_threshold(COLLECT_AFTER)
    if arguments.client:
        stay_on(0)
        database = partial(journaled, dsn=arguments.journal)
        limited = partial(journaled, rate=arguments.rate)
        kinds: dict[str, Callable[[str, int, int], Coroutine[Any, Any, float]]] = {
            "bare": bare,
            "send_many": send_many,
            "journaled": journaled,
            LOADED: loaded,
        }
        client = (kinds | {LIMITED: limited, IN_DATABASE: database})[arguments.client]
        print(arguments.count / asyncio.run(client(arguments.base, arguments.count, arguments.concurrency)))
        return
    plain = ["--plain-gc"] if arguments.plain_gc else []
    plain += ["--journal", arguments.journal] if arguments.journal else []
    plain += ["--rate", str(arguments.rate)] if arguments.rate else []
    clients = (*CLIENTS, *([LIMITED] if arguments.rate else []), *([IN_DATABASE] if arguments.journal else []))
    delays = DELAYS if arguments.delay is None else (arguments.delay,)
    with ExitStack() as servers:
        bases = {delay: servers.enter_context(served(arguments.server, delay)) for delay in delays}
        if arguments.orders:
            whole = partial(journaled, show=True, dsn=arguments.journal)
            asyncio.run(whole(bases[delays[0]], arguments.orders, arguments.concurrency))
        elif arguments.instructions:
            base, count = bases[delays[0]], arguments.count
            compare_instructions(base, count, arguments.concurrency, *plain, clients=clients)
        else:
            compare(bases, arguments.rounds, arguments.count, arguments.concurrency, *plain, clients=clients)


if __name__ == "__main__":
    main()

"""So many payouts a second for so long, from some processes, with PostgreSQL away and notifications that come back.

    python tests/benchmarks/bench_sustained.py [--rate 1000] [--seconds 600] [--processes 4] [--away 0.0005]

Each payout has its moment, whether or not those before are paid: the wait of a late one counts. Each tenth of the time
is a line: how long a payout took, the memory of a process, how many are under way and settled, the processor's time and
the WAL of an order, the size of the tables. All but settled orders and tables should stay flat. Without ``--dsn`` the
server is that of the tests, with autovacuum as it is installed. The last line tells whether every order was executed
once and settled by its notification.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_bulk import WHO, Server
from bench_outbox import HOUR, NAME, fresh, prepare
from bench_receiver import free_port
from far import far
from places import new_journal, processor_of, size_of, tables_of

from payments_async import Limits, PaymentsSession
from payments_async._cli import COLLECT_AFTER
from payments_async.ipn import Receiver, serving
from payments_async.journal import PostgresJournal
from payments_async.outbox import Outbox, WorkerSettings

TENTHS = 10
CONNECTIONS = 4  # on which the service notifies each process
COLUMNS = {
    "seconds": 8, "paid/s": 8, "median": 9, "p99": 9, "worst": 9, "MB": 7, "under way": 10, "settled": 9, "us": 6,
    "of server": 10, "WAL": 7, "MB of tables": 13, "load": 6,
}  # fmt: skip
SOON = 1.0  # seconds from an acceptance to its notification
_BODY = (
    '{"AccountId":"6","SubscriptionId":"77","TransactionId":"%s","BatchId":"bench","RequestId":"%s",'
    '"StatusMessage":"Transaction successful","StatusCode":0,"CorrelationId":"c","CreatedOn":"2024-02-27 14:06:41",'
    '"Amount":150000,"CurrencyCode":"UGX"}'
)


class Service(Server):
    """Accepts everything, and notifies of it a second later."""

    executed = 0
    ids: set[str] = set()  # noqa: RUF012 - there is one service
    waiting: asyncio.Queue[str]

    def answer(self, request: bytes) -> bytes:
        if request.startswith(b"GET"):
            told = b"%d %d" % (self.executed, len(self.ids))
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(told), told)
        reply = super().answer(request)
        if named := re.search(rb'"requestId":\s*"([^"]*)"', request):
            request_id = named.group(1).decode()
            Service.executed += 1
            Service.ids.add(request_id)
            body = _BODY % (f"41cc8f29-f3f4-45aa-148f-{Server.count:012x}", request_id)
            asyncio.get_running_loop().call_later(SOON, self.waiting.put_nowait, body)
        return reply


async def serve(ports: list[int]) -> None:
    """Serve on a free port, print it, and notify on these."""
    Service.waiting = asyncio.Queue()
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.gather(*(notify(port) for port in ports for _ in range(CONNECTIONS)))


async def notify(port: int) -> None:
    """Send what waits, on one connection, one after the other."""
    body = await Service.waiting.get()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        writer.write(f"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length.group(1)) if length else 0)
        body = await Service.waiting.get()


async def work(arguments: argparse.Namespace) -> None:
    """One process: pay at its rate, hear, and tell of each tenth."""
    place = arguments.state
    async with (
        PostgresJournal(arguments.dsn, schema=arguments.work, state_folder=place) as journal,
        PaymentsSession(arguments.base, WHO, limits=Limits(concurrency=200)) as payments,
        Outbox(payments, journal, NAME, worker=WorkerSettings(settles=False), concurrency=200) as outbox,
        serving(Receiver(journal, senders=["127.0.0.1"]), "127.0.0.1", arguments.port),
    ):
        waits: list[float] = []

        async def pay(moment: float) -> None:
            await outbox.pay(fresh(1)[0], timeout=HOUR)
            waits.append(time.perf_counter() - moment)

        async with asyncio.timeout(HOUR):
            await pay(time.perf_counter())
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        waits.clear()
        under_way: set[asyncio.Task[None]] = set()
        begun, told = time.perf_counter(), 1
        for number in itertools.count():
            moment = begun + number / arguments.rate
            if moment >= begun + told * arguments.seconds / TENTHS:
                cpu = time.process_time()
                print(json.dumps([sorted(waits), _memory(), len(under_way), cpu]), flush=True)
                waits.clear()
                told += 1
            if told > TENTHS:
                break
            if (wait := moment - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(pay(moment))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
        print("paid", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # what is told of the last is still to be heard


def _memory() -> float:
    """What this process holds now, in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def notifying(ports: list[int]) -> Iterator[str]:
    """The service in a process of its own; its address."""
    command = [sys.executable, __file__, "--serve", *map(str, ports)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


def sustain(arguments: argparse.Namespace) -> None:
    """Run the processes, and print what they and the server tell."""
    dsn, processes = arguments.dsn, arguments.processes
    ports = [free_port() for _ in range(processes)]
    with (
        notifying(ports) as base,
        tempfile.TemporaryDirectory() as place,
        new_journal(Path(place), dsn) as journal,
        far(dsn, arguments.away) as away,
        ExitStack() as stack,
    ):
        schema = journal._namespace.strip('"')  # type: ignore[union-attr]
        asyncio.run(prepare(journal, base))
        command = [sys.executable, __file__, "--work", schema, "--base", base, "--dsn", away]
        command += ["--state", f"{place}/state"]
        command += ["--rate", str(arguments.rate / processes), "--seconds", str(arguments.seconds), "--port"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        pool = [stack.enter_context(subprocess.Popen([*command, str(port)], **pipes)) for port in ports]
        for one in pool:
            assert one.stdout.readline() == "ready\n"
        used = processor_of(dsn)
        _release(pool)
        before, paid, tenths, own = used(), 0, [], 0.0
        print("".join(f"{name:>{width}}" for name, width in COLUMNS.items()), flush=True)
        for tenth in range(TENTHS):
            told = [json.loads(one.stdout.readline()) for one in pool]
            now, each = used(), arguments.seconds / TENTHS
            waits = sorted(itertools.chain.from_iterable(waits for waits, *_ in told))
            median, late = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
            tenths.append((median, late))
            paid += len(waits)
            cpu = sum(cpu for *_, cpu in told)
            print(
                f"{(tenth + 1) * each:8.0f} {len(waits) / each:7.0f} {1000 * median:5.1f} ms {1000 * late:5.0f} ms "
                f"{1000 * waits[-1]:5.0f} ms {max(memory for _, memory, *_ in told):6.1f} "
                f"{sum(count for *_, count, _ in told):9d} {_settled(dsn, schema):8d} "
                f"{1e6 * (cpu - own) / len(waits) if own else 0:5.0f} {1e6 * (now[1] - before[1]) / len(waits):9.0f} "
                f"{(now[2] - before[2]) / len(waits):6.0f} {size_of(Path(place), dsn) / 2**20:12.1f} "
                f"{os.getloadavg()[0]:5.1f}",
                flush=True,
            )
            before, own = now, cpu
        for one in pool:
            assert one.stdout.readline() == "paid\n"
        executed, different = map(int, urlopen(base).read().split())  # noqa: S310 - our own
        until = time.monotonic() + 60
        while (settled := _settled(dsn, schema)) < different and time.monotonic() < until:
            time.sleep(0.1)
        _release(pool)
        print(*tables_of(dsn), sep="\n")
    first, last = (statistics.median(one) for one in (list(zip(*tenths[:3]))[1], list(zip(*tenths[-3:]))[1]))  # noqa: B905
    print(
        f"{paid / arguments.seconds:.0f} paid a second of {arguments.rate:g}; p99 of the last three tenths "
        f"{last / first:.2f} of the first three; executed twice: {executed - different}; "
        f"not settled: {different - settled}"
    )


def _release(pool: list[subprocess.Popen[str]]) -> None:
    """Let all of them go on."""
    for one in pool:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()


def _settled(dsn: str, schema: str) -> int:
    """Orders whose notification has been heard."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            f"SELECT coalesce(sum(count), 0) FROM {schema}.progress WHERE state = 'successful'".encode()  # noqa: S608
        ).fetchone()
    assert found is not None
    return int(found[0])


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1000.0, help="payouts a second, of all processes")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument(
        "--away", type=float, default=0.0005, help="seconds that an answer of the database takes longer"
    )
    parser.add_argument("--dsn", help="of a PostgreSQL database")
    parser.add_argument("--serve", type=int, nargs="+")
    parser.add_argument("--work")
    parser.add_argument("--port", type=int)
    parser.add_argument("--state")
    parser.add_argument("--base", default="")
    arguments = parser.parse_args()
    gc.set_threshold(COLLECT_AFTER)
    if arguments.serve:
        asyncio.run(serve(arguments.serve))
    elif arguments.work:
        asyncio.run(work(arguments))
    else:
        if arguments.dsn is None:
            arguments.dsn = vacuumed()
        sustain(arguments)


def vacuumed() -> str:
    """A database of the tests' server, which vacuums as one that was just installed."""
    import psycopg
    from journal import postgres

    dsn = postgres.dsn()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET autovacuum")
        connection.execute("SELECT pg_reload_conf()")
    return dsn


if __name__ == "__main__":
    main()

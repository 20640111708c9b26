"""The receiver against a bare aiohttp handler that reads JSON and returns 200. Only the ratios mean anything.

Every server is a process of its own, on one core; the load is another one, on another core; and rounds are
interleaved. Each notification is a different one. Three bare handlers are measured, for their answers cost different
amounts: an empty one, one with the bytes the receiver answers, and a small JSON object. Run it with
``python tests/benchmarks/bench_receiver.py``.

With ``--instructions`` (valgrind needed) the instructions of the server process are counted, the journal's thread
included: this repeats to a few per cent however busy the machine is. The count begins when 11,000 notifications have
come, as many as the receiver remembers without an inbox, so that memory is full and every statement is prepared. What
the kernel does for either side is not in it.

The first eight rows get the notification in its very usual shape. Below them the receiver gets it in the other shapes
that are documented: they are to stay within 1.15 of its own row.

``--journal DSN`` adds two rows with an inbox in a PostgreSQL database. Its server is one process more, which takes part
of the cores that the two others have; ``--only`` leaves out the rows that do not matter.
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from operator import truediv
from pathlib import Path

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent))

from places import drop

from payments_async.ipn import Receiver, TransactionEvent, serve
from payments_async.journal import PostgresJournal, SqliteJournal

ANSWER = b"x" * 330
WARM_UP = 11_000
USUAL = (
    "bare", "bare, as many bytes", "bare, JSON answer", "receiver", "receiver, a handler", "ipn serve",
    "SQLite inbox", "SQLite inbox, a handler",
)  # fmt: skip
IN_DATABASE = ("PostgreSQL inbox", "PostgreSQL inbox, a handler")
SHAPES = ("no query", "Amount=500.250", "camelCase", "mixed names", "mixed, no query", "ids as numbers", "half of it")
NAMES = (
    *USUAL, *(f"receiver: {shape}" for shape in SHAPES), "receiver, a handler: mixed names",
    "SQLite inbox: mixed names", "SQLite inbox, a handler: mixed names",
)  # fmt: skip


def notification(shape: str, number: int) -> tuple[str, str]:
    """Body and query of one notification in one of the documented shapes."""
    identity = f"672b00f8-a02c-5e41-9fd0-{number:012x}"
    members: dict[str, object] = {
        "AccountId": "6", "SubscriptionId": "77", "TransactionId": identity, "BatchId": "batch-01",
        "RequestId": f"req-{number}", "StatusMessage": "Transaction successful", "StatusCode": 0,
        "CorrelationId": f"corr-{number}", "CreatedOn": "2024-02-27 14:06:41", "Amount": 500.25, "CurrencyCode": "UGX",
    }  # fmt: skip
    query = f"transactionId={identity}&subscriptionId=77&accountId=6&requestId=req-{number}&Amount=500.25"
    camel = {name[0].lower() + name[1:]: value for name, value in members.items()}
    match shape:
        case "no query":
            query = ""
        case "Amount=500.250":
            query += "0"
        case "camelCase":
            reference = {"createdOn": members["CreatedOn"], "requestId": members["RequestId"]}
            members = {**camel, "requestReference": reference}
        case "mixed names" | "mixed, no query":
            members = dict([*camel.items()][::2]) | dict([*members.items()][1::2])
            query = query if shape == "mixed names" else ""
        case "ids as numbers":
            members |= {"AccountId": 6, "SubscriptionId": 77}
        case "half of it":
            half = ("AccountId", "SubscriptionId", "TransactionId", "RequestId", "StatusCode", "Amount")
            members = {name: members[name] for name in half}
        case _:
            pass
    return json.dumps(members), query


async def bare_empty(request: web.Request) -> web.Response:
    """What most people write first."""
    await request.json()
    return web.Response()


async def bare_body(request: web.Request) -> web.Response:
    """The same with an answer as long as ours."""
    await request.json()
    return web.Response(body=ANSWER, content_type="application/json")


async def bare_json(request: web.Request) -> web.Response:
    """The same with a small JSON answer."""
    await request.json()
    return web.json_response({"ResponseCode": "0"})


def bare(handler: Callable[[web.Request], object]) -> web.Application:
    """An application with one route."""
    app = web.Application()
    app.router.add_post("/ipn", handler)  # type: ignore[arg-type]
    return app


def mounted(receiver: Receiver) -> web.Application:
    """The receiver in an application, as it is used."""
    app = web.Application()
    receiver.mount(app, "/ipn")
    return app


def handled(receiver: Receiver) -> Receiver:
    """With one handler that does nothing."""

    @receiver.on(TransactionEvent)
    async def settle(event: TransactionEvent) -> None:
        return

    return receiver


async def with_inbox(dsn: str | None) -> Receiver:
    """The receiver on a fresh journal, in a file or in a database."""
    folder = Path(tempfile.mkdtemp())
    if dsn is None:
        journal: SqliteJournal | PostgresJournal = SqliteJournal(folder / "inbox.sqlite", state_folder=None)
    else:
        journal = PostgresJournal(dsn, schema=f"bench_{os.getpid()}", state_folder=None)
    await journal.__aenter__()
    return Receiver(journal, senders=["127.0.0.1"])


async def application(name: str, dsn: str | None) -> web.Application:
    """One of the contestants."""
    of = dsn if name in IN_DATABASE else None
    match name.partition(":")[0]:
        case "bare":
            return bare(bare_empty)
        case "bare, as many bytes":
            return bare(bare_body)
        case "bare, JSON answer":
            return bare(bare_json)
        case "receiver":
            return mounted(Receiver(senders=["127.0.0.1"]))
        case "receiver, a handler":
            return mounted(handled(Receiver(senders=["127.0.0.1"])))
        case "SQLite inbox" | "PostgreSQL inbox":
            return mounted(await with_inbox(of))
        case "SQLite inbox, a handler" | "PostgreSQL inbox, a handler":
            return mounted(handled(await with_inbox(of)))
        case _:
            raise ValueError(name)


def run_server(name: str, port: int, dsn: str | None) -> None:
    """Serve one contestant until killed, on a core of its own."""
    stay_on(1)

    async def main() -> None:
        if name == "ipn serve":
            await serve(Receiver(senders=["127.0.0.1"]), "127.0.0.1", port)
        runner = web.AppRunner(await application(name, dsn), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    asyncio.run(main())


class Sender(asyncio.Protocol):
    """Sends one notification after the other on one connection."""

    def __init__(self, name: str, numbers: "itertools.count[int]", answered: list[int]) -> None:
        self.shape = name.partition(": ")[2]
        self.numbers = numbers
        self.answered = answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def data_received(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(data[:200].decode())
        self.answered[0] += 1
        self.send()

    def send(self) -> None:
        body, query = notification(self.shape, next(self.numbers))
        self.transport.write(  # type: ignore[attr-defined]
            f"POST /ipn?{query} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )


async def send(name: str, port: int, connections: int, count: int, start: int) -> None:
    """Send so many notifications and wait for all the answers."""
    loop, numbers, answered = asyncio.get_running_loop(), itertools.count(start), [0]
    done = loop.create_future()

    class Counting(Sender):
        def send(self) -> None:
            if next(asked) < count:
                super().send()
            elif answered[0] == count and not done.done():
                done.set_result(None)

    asked = itertools.count()
    transports = [
        (await loop.create_connection(lambda: Counting(name, numbers, answered), "127.0.0.1", port))[0]
        for _ in range(connections)
    ]
    await done
    for transport in transports:
        transport.abort()


def instructions(name: str, count: int, connections: int, dsn: str | None) -> float:
    """Instructions that one contestant takes for a notification."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        command += [sys.executable, __file__, "--serve", name, "--port", str(port)]
        command += ["--journal", dsn] if dsn is not None else []
        environment = os.environ | {"PYTHONHASHSEED": "0"}  # or dictionaries alone differ from run to run
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as server:
            try:
                wait_for_port(port)
                asyncio.run(send(name, port, connections, WARM_UP, 0))
                control(server, "--instr=on")
                asyncio.run(send(name, port, connections, count, 10**9))
                control(server, "--dump")
            finally:
                server.kill()
        found = re.search(r"^totals: (\d+)", Path(f"{out}.1").read_text(), re.MULTILINE)
    assert found is not None
    return int(found.group(1)) / count


def control(server: "subprocess.Popen[bytes]", command: str) -> None:
    """Tell callgrind what to do, and wait until it is done."""
    subprocess.run(["callgrind_control", command, str(server.pid)], check=True, capture_output=True)


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(name: str, port: int, pid: int, connections: int, seconds: float, start: int) -> tuple[float, float]:
    """Notifications answered per second, and per second of the server's processor time."""
    numbers, answered = itertools.count(start), [0]
    loop = asyncio.get_running_loop()
    transports = [
        (await loop.create_connection(lambda: Sender(name, numbers, answered), "127.0.0.1", port))[0]
        for _ in range(connections)
    ]
    await asyncio.sleep(0.3)
    before, begun, used = answered[0], time.perf_counter(), processor_time(pid)
    await asyncio.sleep(seconds)
    count = answered[0] - before
    rate, efficiency = count / (time.perf_counter() - begun), count / (processor_time(pid) - used)
    for transport in transports:
        transport.abort()
    return rate, efficiency


def stay_on(core: int) -> None:
    """Keep this process on one of the first cores: the load on one, servers on the other."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[min(core, len(cores) - 1)]})


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    """Until the server listens."""
    for _ in range(1200):  # a minute: valgrind is slow
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("a server did not start")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--only", nargs="*", default=[], help="contestants, beside the first bare one")
    parser.add_argument("--instructions", action="store_true", help="count instructions, in place of time")
    parser.add_argument("--count", type=int, default=5000, help="notifications whose instructions are counted")
    parser.add_argument("--journal", metavar="DSN", help="of a PostgreSQL database, for an inbox there")
    parser.add_argument("--serve", choices=(*NAMES, *IN_DATABASE))
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    known = (*NAMES, *(IN_DATABASE if options.journal else ()))
    names = [name for name in known if name == NAMES[0] or not options.only or name in options.only]
    if options.serve:
        run_server(options.serve, options.port, options.journal)
    elif options.instructions:
        counts = {name: instructions(name, options.count, options.connections, options.journal) for name in names}
        table("instructions each", {name: [count] for name, count in counts.items()})
    else:
        compare_rates(names, options)


def compare_rates(names: list[str], options: argparse.Namespace) -> None:
    """Print how many notifications each contestant takes in a second of the clock, and of its processor."""
    ports = {name: free_port() for name in names}
    context = multiprocessing.get_context("spawn")
    servers = {
        name: context.Process(target=run_server, args=(name, ports[name], options.journal), daemon=True)
        for name in names
    }
    for server in servers.values():
        server.start()
    stay_on(0)
    start = itertools.count(0, 10**9)
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for port in ports.values():
        wait_for_port(port)
    for _ in range(options.rounds):
        for name in names:
            pid = servers[name].pid or 0
            rate = load(name, ports[name], pid, options.connections, options.seconds, next(start))
            results[name].append(asyncio.run(rate))
    for server in servers.values():
        server.kill()
        server.join()
    if options.journal:
        for server in servers.values():
            drop(options.journal, f"bench_{server.pid}")
    for title, column in (("per second", 0), ("per CPU second", 1)):
        table(title, {name: [pair[column] for pair in pairs] for name, pairs in results.items()})


def table(title: str, measured: dict[str, list[float]]) -> None:
    """Print the median of one measure, and of its ratios to bare handlers and to the usual shape in the same round."""
    bares = [name for name in measured if name.startswith("bare")]
    print(f"{title:38}{'':>9}" + "".join(f"{'/ ' + name:>22}" for name in bares) + f"{'/ usual shape':>16}")
    for name, own in measured.items():
        usual = name.partition(":")[0]
        others = [*bares, usual] if usual != name and usual in measured else bares
        ratios = [statistics.median(map(truediv, own, measured[other])) for other in others]
        columns = "".join(
            f"{ratio:{22 if other in bares else 16}.3f}" for other, ratio in zip(others, ratios, strict=True)
        )
        print(f"{name:38}{statistics.median(own):9.0f}{columns}")


if __name__ == "__main__":
    main()

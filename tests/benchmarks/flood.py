"""A receiver under people who want to silence it: how many genuine notifications get through, and what it costs.

Run it as a program: it starts ``payments-async ipn serve`` (or, with ``--mounted``, the sub-app on aiohttp's own
server) with 1,024 descriptors, floods it, and prints what came of it:

* strangers: as many connections as they can hold, each kept alive after its 403, while a sender notifies three times
  a second over a connection of its own;
* a deaf sender: requests one after the other for some seconds, no answer read, and what the server's memory grows by.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from payments_async.ipn import Receiver

SENDER, STRANGER, VISITOR = "127.0.0.1", "127.0.0.9", "127.0.0.8"
DESCRIPTORS = 1024
EVERY = 1 / 3  # seconds between two genuine notifications
PATIENCE = 5.0  # seconds a sender waits for an answer
BODY = b'{"TransactionId":"t-%d","StatusCode":1,"RequestId":"r","Amount":500}'


def request(number: int) -> bytes:
    """A notification."""
    body = BODY % number
    return b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def genuine(port: int, seconds: float) -> list[float | None]:
    """Notify now and then; the seconds each answer took, ``None`` where there was none."""

    async def notify(number: int) -> float | None:
        began = time.perf_counter()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(SENDER, port, local_addr=(SENDER, 0))
                try:
                    writer.write(request(number))
                    if b" 200 " in await reader.readline():
                        return time.perf_counter() - began
                finally:
                    writer.close()
        return None

    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in range(int(seconds / EVERY)):
            tasks.append(group.create_task(notify(number)))
            await asyncio.sleep(EVERY)
    return [task.result() for task in tasks]


async def stranger(port: int, number: int, tally: dict[str, int]) -> None:
    """Hold a connection for as long as one is let; then take the next."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(SENDER, port, local_addr=(STRANGER, 0))
            tally["connections"] += 1
            tally["held"] += 1
            try:
                writer.write(request(number))
                while await reader.read(4096):
                    pass
            finally:
                tally["held"] -= 1
                writer.close()
        await asyncio.sleep(0.1)


async def flood(port: int, unknown_transactions: int, seconds: float) -> dict[str, object]:
    """Strangers on one side, a sender on the other."""
    tally = {"connections": 0, "held": 0}
    tasks = [asyncio.ensure_future(stranger(port, number, tally)) for number in range(unknown_transactions)]
    try:
        await asyncio.sleep(min(2.0, seconds / 4))
        taken = await genuine(port, seconds)
    finally:
        held = tally["held"]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    heard = [second for second in taken if second is not None]
    median = round(1000 * statistics.median(heard), 1) if heard else None
    return {
        "strangers": unknown_transactions, "their_connections": tally["connections"], "held_at_the_end": held,
        "genuine": len(taken), "answered": len(heard), "median_ms": median,
    }  # fmt: skip


async def deafness(port: int, pid: int, seconds: float) -> dict[str, object]:
    """One sender that never reads."""
    words, sent, cut_off = b"".join(map(request, range(100))), 0, 0
    before, ends = memory(pid), time.monotonic() + seconds
    loop = asyncio.get_running_loop()
    while time.monotonic() < ends:
        with socket.socket() as deaf, suppress(TimeoutError):
            deaf.setblocking(False)
            deaf.bind((SENDER, 0))
            await loop.sock_connect(deaf, (SENDER, port))
            try:
                async with asyncio.timeout_at(loop.time() + ends - time.monotonic()):
                    while True:
                        await loop.sock_sendall(deaf, words)
                        sent += len(words)
            except ConnectionError:
                cut_off += 1
    return {
        "seconds": seconds, "sent_mb": round(sent / 1e6, 1), "cut_off": cut_off, "memory_mb_before": before,
        "memory_mb_after": memory(pid),
    }  # fmt: skip


async def listening(port: int) -> None:
    """Wait until the server is there."""
    async with asyncio.timeout(60):
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(SENDER, port)
                writer.close()
                return
            await asyncio.sleep(0.1)


def memory(pid: int) -> float:
    """Resident megabytes of a process."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return round(int(line.split()[1]) / 1024, 1)


def free_port() -> int:
    """A port nobody listens at."""
    with socket.socket() as found:
        found.bind((SENDER, 0))
        return int(found.getsockname()[1])


def serve_mounted(port: int) -> None:
    """The sub-app on aiohttp's own server."""
    app = web.Application()
    app.add_subapp("/ipn", Receiver(senders=[SENDER]).app())
    web.run_app(app, host=SENDER, port=port, access_log=None, print=lambda _: None)


async def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """Start a server, and do to it what is asked for."""
    port = free_port()
    command = ["-m", "payments_async", "ipn", "serve", "--port", str(port), "--sender", SENDER, "--visitor", VISITOR]
    if arguments.mounted:
        command = [__file__, "--serve-mounted", str(port)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    )  # fmt: skip
    try:
        await listening(port)
        found = {"flood": await flood(port, arguments.unknown_transactions, arguments.seconds)}
        found["deaf"] = await deafness(port, process.pid, arguments.seconds)
        return {"server": "mounted" if arguments.mounted else "ipn serve", **found}
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


def main() -> None:
    """Read what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strangers", type=int, default=1050)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--mounted", action="store_true")
    parser.add_argument("--serve-mounted", type=int, metavar="PORT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve_mounted:
        serve_mounted(arguments.serve_mounted)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * arguments.unknown_transactions)), hard))
    sys.stdout.write(json.dumps(asyncio.run(measure(arguments)), indent=2) + os.linesep)


if __name__ == "__main__":
    main()

"""What a payout through the session costs beside bare aiohttp doing the same POST: CPU per payout, or instructions.

``watched`` is the session with OpenTelemetry's API as its observer, and no SDK.

    python tests/benchmarks/bench_session.py                  CPU per payout, interleaved rounds, ratios
    python tests/benchmarks/bench_session.py --instructions   instructions per payout (needs valgrind), ratios

The server is a hand-written protocol in a process of its own that answers every request with an acceptance of its
request id, so only the client's cost is measured. Only ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path

import aiohttp

from payments_async import Beneficiary, Credentials, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async._values.observing import Observer

ACCEPTANCE = {
    "code": 0,
    "status": "success",
    "message": "Transaction received, a notification follows",
    "data": {
        "requestId": "bench-000001",
        "batchId": "bench",
        "transactionId": "41cc8f29-f3f4-45aa-148f-08dc315567d8",
        "status": "PROCESSING",
        "message": "Transaction is being processed",
        "createdOn": "2/27/2024 2:06:41 PM",
    },
}
LOGIN = {"Token": "t" * 200, "refreshToken": "r" * 60, "success": True, "message": "ok"}
CLIENTS = ("bare", "well_used", "session", "watched")
WARM_UP = 200


class Server(asyncio.Protocol):
    """Answers by the length of the request it has read; knows just enough of HTTP."""

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
            if b"/auth/login" in self.data[:end]:
                self.transport.write(_answer(LOGIN))
            else:
                self.transport.write(
                    ACCEPTED.replace(FIRST_ID, self.data[self.data.index(b"bench-") :][: len(FIRST_ID)])
                )
            self.data = self.data[whole:]


def _answer(value: object) -> bytes:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


FIRST_ID = b"bench-000001"
ACCEPTED = _answer(ACCEPTANCE)
NUMBERS = itertools.count(1)


def request_id() -> str:
    """A new one for each payout: a session that knows an id would not send it again."""
    return f"bench-{next(NUMBERS):06d}"


async def serve() -> None:
    """Serve on a free port, print it, and stay."""
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def body() -> dict[str, object]:
    """The payout as a user without a library would write it."""
    return {
        "requestId": request_id(),
        "batchId": "bench",
        "amount": 150000,
        "type": "DEBIT",
        "message": "November salary",
        "metadata": "cost-centre=17",
        "product": {"productItemId": "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"},
        "beneficiary": {
            "name": "Grace Akello",
            "emailAddress": "grace@example.org",
            "phoneNumber": "+256772000017",
            "data": {"phoneNumber": "+256772000017"},
        },
    }


def order() -> PayoutOrder:
    """The same payout as an order."""
    return PayoutOrder(
        request_id=request_id(),
        batch_id="bench",
        amount=Decimal(150000),
        message="November salary",
        metadata="cost-centre=17",
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Grace Akello", email_address="grace@example.org", phone_number="+256772000017"),
        destination=MobileMoneyWallet("+256772000017"),
    )


async def run_client(kind: str, base: str, count: int, concurrency: int) -> float:
    """CPU seconds of one client for so many payouts, without its start."""
    if kind in ("session", "watched"):
        credentials = Credentials(app_key="key", app_password="password", user_id="user")
        async with PaymentsSession(base, credentials, observer=observer(kind)) as payments:
            # a fresh order each time: making and checking it belongs to the price
            return await timed(lambda: payments.payouts.send(order()), count, concurrency)
    async with aiohttp.ClientSession() as http:
        url = f"{base}/api/transactions/payouts/mobilemoney"
        headers = {"Authorization": "Token " + "t" * 200}
        if kind == "bare":

            async def post() -> object:
                async with http.post(url, json=body(), headers=headers) as answer:
                    return await answer.json()

            return await timed(post, count, concurrency)
        return await timed(well_used(http, url, headers), count, concurrency)


def observer(kind: str) -> Observer | None:
    """Of a watched session, OpenTelemetry by its API alone: no SDK is set up, and nobody sees anything."""
    if kind == "session":
        return None
    from payments_async.otel import OpenTelemetry

    return OpenTelemetry()


def well_used(http: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> Callable[[], Awaitable[object]]:
    """The HTTP client with ready bytes, and no timer or parsing that nobody needs."""
    import msgspec
    from yarl import URL

    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    headers = headers | {"Content-Type": "application/json"}
    ready = URL(url, encoded=True)
    timeout = aiohttp.ClientTimeout(total=None)

    async def post() -> object:
        async with http.post(
            ready, data=encode(body()), headers=headers, allow_redirects=False, timeout=timeout
        ) as answer:
            return decode(await answer.read())

    return post


async def timed(call: Callable[[], Awaitable[object]], count: int, concurrency: int) -> float:
    """CPU seconds of ``count`` calls by so many workers, after a warm-up."""
    for _ in range(min(WARM_UP, count)):
        await call()
    left = count

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    begun = time.process_time()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    return time.process_time() - begun


def client_process(kind: str, base: str, count: int, concurrency: int, wrapper: list[str]) -> float:
    """Run one client in a process of its own."""
    command = [*wrapper, sys.executable, __file__, "--client", kind, "--base", base]
    command += ["--count", str(count), "--concurrency", str(concurrency)]
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # or the start alone differs by millions of instructions
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout.split()[-1])


def instructions(kind: str, base: str, count: int) -> int:
    """Instructions of a client process for so many payouts, its start included."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        client_process(kind, base, count, 1, ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"])
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
    assert found is not None
    return int(found.group(1))


def compare_cpu(base: str, rounds: int, count: int) -> None:
    """Print CPU per payout and its ratio to the bare client, medians of interleaved rounds."""
    for concurrency in (1, 100):
        costs: dict[str, list[float]] = {kind: [] for kind in CLIENTS}
        for _ in range(rounds):
            for kind in CLIENTS:
                costs[kind].append(client_process(kind, base, count, concurrency, []) / count)
        medians = {kind: statistics.median(values) for kind, values in costs.items()}
        for kind, median in medians.items():
            print(f"{concurrency:4d} under way  {kind:10s} {median * 1e6:7.1f} us  {median / medians['bare']:.3f}")


def compare_instructions(base: str, count: int) -> None:
    """Print instructions per payout and their ratio to the bare client: long run less short run."""
    costs = {kind: (instructions(kind, base, 2 * count) - instructions(kind, base, count)) / count for kind in CLIENTS}
    for kind, cost in costs.items():
        print(f"{kind:10s} {cost:10.0f} instructions  {cost / costs['bare']:.3f}")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--client", choices=CLIENTS)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--base", default="")
    parser.add_argument("--concurrency", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
    elif arguments.client:
        count = arguments.count or 2000
        print(asyncio.run(run_client(arguments.client, arguments.base, count, arguments.concurrency)))
    else:
        with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            base = f"http://127.0.0.1:{int(server.stdout.readline())}"
            try:
                if arguments.instructions:
                    compare_instructions(base, arguments.count or 300)
                else:
                    compare_cpu(base, arguments.rounds, arguments.count or 3000)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()

"""What reconciling costs: processor time, commits, requests and memory for orders that are open.

    python tests/benchmarks/bench_reconcile.py                    10,000 orders of each kind
    python tests/benchmarks/bench_reconcile.py --orders 100000    as many as you say
    python tests/benchmarks/bench_reconcile.py --kind lost        one kind alone, in this process

``lost`` orders are unknown and the list shows how all of them ended; ``missing`` ones are unknown and not in it, and
are parked; ``queued`` ones are accepted, and the service is still at them, as each record says too. The service is a
process of its own that gives pages of 500. Only commits and requests are the same every time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

from bench_bulk import LOGIN, WHO, Server, orders, stay_on

from payments_async import Limits, PaymentsSession
from payments_async.bulk import reconcile
from payments_async.journal import RunIdentity, Signal, SqliteJournal
from payments_async.journal.contract import Chunk, ClaimedOrder, Outcome, Permit
from payments_async.testing import Testing

BATCH = "bench"
ENDS = {"lost": "SUCCESSFULL", "missing": "SUCCESSFULL", "queued": "PROCESSING"}
STATES = {"lost": "successful", "missing": "parked", "queued": "accepted"}
PERSON = {"CustomerReference": "+256772000017", "CustomerPhone": "+256772000017", "CustomerEmail": "", "Memo": ""}


def transaction_id(number: int) -> str:
    """What the service calls an order."""
    return f"41cc8f29-f3f4-45aa-148f-{number:012x}"


class Lists(Server):
    """Gives lists of so many transactions, all of one status, and each by itself."""

    shown = 0
    status = ""

    def answer(self, request: bytes) -> bytes:
        target = urlsplit(request.split(b" ", 2)[1].decode())
        query = {key: values[0] for key, values in parse_qs(target.query).items()}
        if target.path == "/count":
            return self.whole(b"%d" % Server.count)
        if target.path.endswith("/transactions"):
            data: dict[str, object] = self.page(query)
        elif "/transactions/" in target.path:
            data = self.record(int(target.path[-12:], 16)) | {"transactionStatus": self.status, "status": self.status}
        else:
            return self.whole(LOGIN)
        return self.whole(json.dumps({"code": 0, "status": "success", "message": "", "data": data}).encode())

    def page(self, query: dict[str, str]) -> dict[str, object]:
        """One page, of the whole list or of a status."""
        count = self.shown if query.get("transactionStatus", self.status) == self.status else 0
        number, size = int(query["pageNumber"]), int(query["pageSize"])
        rows = [self.record(one) for one in range((number - 1) * size, min(number * size, count))]
        return {"collection": rows, "totalCount": count, "nextPage": number * size < count}

    def record(self, number: int) -> dict[str, object]:
        """One transaction."""
        return {
            "transactionId": transaction_id(number),
            "requestId": f"bench-{number:08d}",
            "batchId": "",
            "accountNumber": "6",
            "name": None,
            "currency": "UGX",
            "amount": -150000,
            "transactionType": "PAYOUT",
            "product": {"id": "MTNMOBILEMONEYPAYOUTUG", "name": "Mobile money payout M"},
            "beneficiary": {"id": "", "name": "Grace Akello", "data": PERSON},
        }

    def whole(self, body: bytes) -> bytes:
        """An answer."""
        Server.count += 1
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        return head % len(body) + body


async def serve(kind: str, count: int) -> None:
    """Serve on a free port, print it, and stay."""
    Lists.shown, Lists.status = 1 if kind == "missing" else count, ENDS[kind]
    server = await asyncio.get_running_loop().create_server(Lists, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def leave_open(journal: SqliteJournal, kind: str) -> None:
    """Have all orders permitted, and answered as their kind is; the first one accepted, so that absence means much."""

    async def work(chunk: Chunk, claimed: Iterator[ClaimedOrder]) -> None:
        last: Outcome | None = None
        for order in claimed:
            permit = await journal.permit(chunk, order, after=last)
            assert isinstance(permit, Permit)
            number = int(order.request_id[-8:])
            if kind == "queued" or not number:
                last = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(number))
            else:
                last = Outcome(permit=permit, signal=Signal.UNKNOWN)
        if last is not None:
            await journal.record(last)

    while (chunk := await journal.claim_chunk(BATCH, "bench")) is not None:
        claimed = iter(chunk.orders)
        await asyncio.gather(*(work(chunk, claimed) for _ in range(100)))
        await journal.release_chunk(chunk)


def memory() -> float:
    """What this process holds, in MB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found.group(1)) / 1024 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def count_requests(base: str) -> int:
    """How many requests the service has answered."""
    with urlopen(f"{base}/count") as answer:  # noqa: S310 - our own
        return int(answer.read())


async def measure(kind: str, base: str, count: int, path: Path) -> None:
    """Reconcile, and print what it took."""
    commits = 0
    identity = RunIdentity.of(base, app_key=WHO.app_key, user_id=WHO.user_id)

    def passed(point: str) -> None:
        nonlocal commits
        commits += point == "commit.done"

    async with (
        SqliteJournal(path, state_folder=None, testing=Testing(crash_at=passed)) as journal,
        PaymentsSession(base, WHO, limits=Limits(concurrency=50)) as payments,
    ):
        await journal.open_run(BATCH, identity)
        await journal.load(BATCH, orders(count), owner="bench")
        await leave_open(journal, kind)
        await payments.log_in()
        ahead = 1000.0

        async def sleep(seconds: float) -> None:
            nonlocal ahead
            ahead += seconds

        asked = count_requests(base)
        began, cpu, before, commits = time.perf_counter(), time.process_time(), memory(), 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        report = await reconcile(
            payments, journal, BATCH, testing=Testing(now=lambda: time.time() + ahead, sleep=sleep)
        )
        cpu, wall = time.process_time() - cpu, time.perf_counter() - began
        grown = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, peak) - before
        written, asked = commits, count_requests(base) - asked
        progress = await journal.progress(BATCH)
        assert progress.counts[STATES[kind]] >= count - 1, (progress, report)
        print(
            f"{kind:8} {count:8,d} orders  CPU {cpu:6.1f} s  {wall:6.1f} s in all  {written:7,d} commits  "
            f"{asked - 1:6,d} requests  +{grown:.0f} MB"
        )


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=10_000)
    parser.add_argument("--kind", choices=ENDS)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        stay_on(1)
        asyncio.run(serve(options.kind, options.orders))
        return
    if options.kind is None:
        for kind in ENDS:
            subprocess.run([sys.executable, __file__, "--orders", str(options.orders), "--kind", kind], check=True)
        return
    stay_on(0)
    command = [sys.executable, __file__, "--serve", "--kind", options.kind, "--orders", str(options.orders)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        assert server.stdout is not None
        base = f"http://127.0.0.1:{int(server.stdout.readline())}"
        try:
            asyncio.run(measure(options.kind, base, options.orders, Path(folder) / "journal.db"))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

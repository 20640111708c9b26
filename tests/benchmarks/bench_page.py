"""What a page of 100 transactions costs, from bytes to records, beside the standard library's reading of its JSON.

    python tests/benchmarks/bench_page.py                  CPU per page, interleaved rounds, ratios
    python tests/benchmarks/bench_page.py --instructions   instructions per page (needs valgrind), ratios

The documented page is read quickly; one whose records are spelled in another way, thoroughly. Only ratios of one run
mean anything.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Any

from payments_async import Dialect, Page, Transaction
from payments_async._values.masking import Secrets
from payments_async._wire.call import Reply
from payments_async._wire.endpoints import list_transactions
from payments_async._wire.replies import read_reply

ROWS = 100
DIALECT, NO_SECRETS = Dialect(), Secrets()
CALL = list_transactions(number=1, size=ROWS, since=None, until=None, status=None, dialect=DIALECT)


def record(number: int) -> dict[str, Any]:
    """A record as documented."""
    return {
        "transactionId": f"41cc8f29-f3f4-45aa-148f-08dc3155{number:04d}",
        "requestId": f"salary-2024-11-{number:06d}",
        "batchId": "salary-2024-11",
        "accountNumber": "600124",
        "name": None,
        "currency": "UGX",
        "amount": -150000.25 - number,
        "transactionType": "PAYOUT",
        "product": {"id": "MTNMOBILEMONEYPAYOUTUG", "name": "Send mobile money"},
        "beneficiary": {
            "id": f"{number}",
            "name": "Grace Akello",
            "data": {
                "CustomerReference": f"256772{number:06d}",
                "CustomerPhone": f"256772{number:06d}",
                "CustomerEmail": "grace@example.org",
                "Memo": "November salary",
            },
        },
    }


def spelled(record: dict[str, Any]) -> dict[str, Any]:
    """The same record as it is described beside the single read."""
    names = {
        "transactionId": "transaction_id",
        "requestId": "clientreference_id",
        "batchId": "batch_id",
        "accountNumber": "account_number",
    }
    return {names.get(name, name): value for name, value in record.items()}


def page(rows: list[dict[str, Any]]) -> bytes:
    """The answer that holds these rows."""
    counts = {"totalCount": 10 * ROWS, "pageSize": ROWS, "currentPage": 1, "totalPages": 10}
    data = {"collection": rows, **counts, "previousPage": False, "nextPage": True}
    return json.dumps({"code": 0, "message": "ok", "data": data}).encode()


DOCUMENTED = page([record(number) for number in range(ROWS)])
SPELLED = page([spelled(record(number)) for number in range(ROWS)])


def read(body: bytes) -> Page[Transaction]:
    """The page as the session reads it."""
    return read_reply(CALL, Reply(status=200, body=body), DIALECT, NO_SECRETS)


READERS: dict[str, Callable[[], object]] = {
    "json.loads": partial(json.loads, DOCUMENTED, parse_float=Decimal),
    "documented": partial(read, DOCUMENTED),
    "spelled": partial(read, SPELLED),
}


def cpu(kind: str, count: int) -> float:
    """CPU seconds for a page, over so many."""
    reader = READERS[kind]
    begun = time.process_time()
    for _ in range(count):
        reader()
    return (time.process_time() - begun) / count


def instructions(kind: str, count: int) -> int:
    """Instructions of a process that reads so many pages, its start included."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, __file__]
        environment = os.environ | {"PYTHONHASHSEED": "0"}  # or the start alone differs by millions of instructions
        subprocess.run(
            [*command, "--reader", kind, "--count", str(count)], check=True, capture_output=True, env=environment
        )
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
    assert found is not None
    return int(found.group(1))


def compare_instructions(count: int) -> None:
    """Print instructions per page and their ratios: long run less short run."""
    costs: dict[str, float] = {}
    for kind in READERS:
        short, long = (instructions(kind, times * count) for times in (1, 2))
        costs[kind] = (long - short) / count
        print(f"{kind:10s} {costs[kind]:9.0f} instructions   {costs[kind] / costs['json.loads']:.3f} of json.loads")


def compare(rounds: int, count: int) -> None:
    """Print CPU per page and ratios, medians of interleaved rounds; each ratio is of one round."""
    times: dict[str, list[float]] = {kind: [] for kind in READERS}
    for _ in range(rounds):
        for kind in READERS:
            times[kind].append(cpu(kind, count))
    for kind, own in times.items():
        ratio = statistics.median(map(truediv, own, times["json.loads"]))
        print(f"{kind:10s} {1e6 * statistics.median(own):7.0f} µs   {ratio:.2f} of json.loads")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--reader", choices=READERS)
    arguments = parser.parse_args()
    if arguments.reader:
        cpu(arguments.reader, arguments.count)
    elif arguments.instructions:
        compare_instructions(arguments.count)
    else:
        compare(arguments.rounds, arguments.count)


if __name__ == "__main__":
    main()

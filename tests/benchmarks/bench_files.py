"""What a row of a batch file costs: CPU to read it from CSV and from a workbook, and to plan it.

    python tests/benchmarks/bench_files.py [--rows 20000] [--rounds 5]
    python tests/benchmarks/bench_files.py --instructions      in instructions of this process (needs valgrind)

The rows have the shape of a payroll: five kinds, fifteen columns, a currency in each row. Beside them stands what the
standard library and the making of the orders take by themselves. The process that reads a workbook counts as well. The
office's workbook is as a spreadsheet saves it: texts that are shared, amounts as numbers, shown in their currency.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from decimal import Decimal
from functools import partial
from pathlib import Path

import xlsxwriter  # type: ignore[import-untyped]

from payments_async import Beneficiary, Credentials, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async.bulk import Batch, plan, read_batch
from payments_async.sandbox import Sandbox, SandboxAccount

sys.path.insert(0, str(Path(__file__).parents[1] / "bulk"))

from files import HEADER, KINDS, row, write_csv, write_workbook

SHARES = ["mobile_money"] * 7 + ["bank_transfer", "airtime", "utility"]
COUNT, ROUNDS = 20_000, 5


def payroll(count: int) -> list[dict[str, str]]:
    """So many good rows for people of their own."""
    return [
        row(
            request_id=f"PAY-2611-{number:06}",
            kind=(kind := SHARES[number % len(SHARES)]),
            amount=str(1000 + number),
            name=f"Amber Brightwater {'abcdefghij'[number % 10]}",
            **(KINDS[kind] | {"phone_number": f"+25677{number:07}"}),
            message="November salary",
        )
        for number in range(count)
    ]


def write_office_workbook(path: Path, rows: list[dict[str, str]]) -> Path:
    """These rows as an office has them."""
    with xlsxwriter.Workbook(str(path)) as book:
        sheet, shown = book.add_worksheet(), book.add_format({"num_format": '"UGX" #,##0'})
        sheet.write_row(0, 0, HEADER)
        for number, one in enumerate(rows, 1):
            for column, name in enumerate(HEADER):
                if name == "amount":
                    sheet.write_number(number, column, int(one[name]), shown)
                elif one[name]:
                    sheet.write_string(number, column, one[name])
    return path


def bare(path: Path) -> None:
    """The file by ``csv``, and an order for each row, without any look at what stands there."""
    with path.open(encoding="utf-8", newline="") as file:
        for cells in csv.DictReader(file):
            PayoutOrder(
                request_id=cells["request_id"],
                amount=Decimal(cells["amount"]),
                destination=MobileMoneyWallet(cells["phone_number"]),
                product_item_id=cells["product_item_id"],
                beneficiary=Beneficiary(name=cells["name"], phone_number=cells["phone_number"]),
                message=cells["message"],
            )


async def planned(payments: PaymentsSession, batch: Batch) -> None:
    """A plan of a file that was read."""
    found = await plan(payments, batch)
    assert found.count == batch.rows, found.problems


async def read(path: Path) -> Batch:
    """A file that has nothing wrong."""
    batch = await read_batch(path)
    assert not batch.problems, batch.problems
    return batch


def spent() -> float:
    """CPU seconds of this process and of those it has waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


async def measure(folder: Path, rows: int, rounds: int, only: str | None) -> dict[str, float]:
    """The least CPU seconds a row of each way, of interleaved rounds."""
    cells = payroll(rows)
    text = write_csv(folder / "payroll.csv", *cells)
    book = write_workbook(folder / "payroll.xlsx", [HEADER, *([one[name] for name in HEADER] for one in cells)])
    office = write_office_workbook(folder / "office.xlsx", cells)
    del cells
    found: dict[str, list[float]] = {}
    async with Sandbox(account=SandboxAccount(balance=Decimal(10**12))) as box:
        who = Credentials(app_key=box.app_key, app_password=box.app_password, user_id=box.user_id)
        async with PaymentsSession(box.base_url, who) as payments:
            await payments.log_in()
            batch = await read(text)

            async def without_library() -> None:
                bare(text)

            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "csv and order": without_library,
                "read_batch CSV": partial(read, text),
                "read_batch XLSX": partial(read, book),
                "... of an office": partial(read, office),
                "plan": partial(planned, payments, batch),
            }
            for _ in range(rounds):
                for name, way in ways.items():
                    if only in (None, name):
                        before = spent()
                        await way()
                        found.setdefault(name, []).append((spent() - before) / rows)
    return {name: min(costs) for name, costs in found.items()}


def instructions(way: str, rows: int) -> int:
    """Instructions of a process that reads or plans so many rows, its start included."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, __file__]
        command += ["--only", way, "--rows", str(rows), "--rounds", "1"]
        subprocess.run(command, check=True, capture_output=True)
        counted = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
    assert counted is not None
    return int(counted.group(1))


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=COUNT)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--only", help="one of the ways")
    arguments = parser.parse_args()
    if arguments.instructions:
        for way in ("none", "csv and order", "read_batch CSV", "plan"):
            few, many = (instructions(way, rows) for rows in (500, 2500))
            print(f"{way:16s} {(many - few) / 2000:9.0f} instructions a row")
        return
    with tempfile.TemporaryDirectory() as folder:
        costs = asyncio.run(measure(Path(folder), arguments.rows, arguments.rounds, arguments.only))
    for way, cost in costs.items():
        print(f"{way:16s} {1e6 * cost:6.1f} us a row")


if __name__ == "__main__":
    main()

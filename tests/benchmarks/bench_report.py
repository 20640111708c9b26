"""What a row of a report costs: CPU of a table, of a page that shows every row, and of one that only counts the rows.

    python tests/benchmarks/bench_report.py [--rows 5000]

The row of the table is beside the bare writing of as many cells by the standard library. Only ratios of one run mean
anything.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import tempfile
import time
from decimal import Decimal
from pathlib import Path

from payments_async import Beneficiary, MobileMoneyWallet, PayoutOrder
from payments_async.bulk import report
from payments_async.journal import RunIdentity, SqliteJournal
from payments_async.journal._states import Signal
from payments_async.journal.contract import Evidence, Outcome, Permit

IDENTITY = RunIdentity(base_address="https://payments.example", key_fingerprint="0", user_id="u")
ITEM = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"
COLUMNS = 18


def order(number: int) -> PayoutOrder:
    """A good order."""
    return PayoutOrder(
        request_id=f"RUN-{number}",
        amount=Decimal(1000 + number),
        destination=MobileMoneyWallet(f"+256772{number:06}"),
        product_item_id=ITEM,
        beneficiary=Beneficiary(name=f"Amber Brightwater {number % 500}"),
        currency="UGX",
    )


async def fill(journal: SqliteJournal, rows: int) -> None:
    """A batch that was sent and paid."""
    await journal.open_run("november", IDENTITY, source_digest=None)
    await journal.load("november", map(order, range(rows)), owner="bench")
    while (chunk := await journal.claim_chunk("november", "bench")) is not None and chunk.orders:
        for claimed in chunk.orders:
            permit = await journal.permit(chunk, claimed)
            assert isinstance(permit, Permit)
            await journal.record(
                Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=f"41cc8f29-{claimed.request_id}")
            )
        found = [
            Evidence(
                signal=Signal.LOOKED_UP_SUCCESSFUL,
                source="list SUCCESSFULL",
                request_id=one.request_id,
                amount=one.amount,
            )
            for one in chunk.orders
        ]
        await asyncio.gather(*map(journal.apply_evidence, found))


def bare(rows: int) -> float:
    """CPU seconds of as many cells without anything that has to be read, masked or checked."""
    begun = time.process_time()
    writer = csv.writer(io.StringIO(newline=""))
    for _ in range(rows):
        writer.writerow(["Amber Brightwater"] * COLUMNS)
    return time.process_time() - begun


async def main() -> None:
    """Fill a journal, and report on it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5000)
    rows: int = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        async with SqliteJournal(path / "journal.db", state_folder=path / "state") as journal:
            await fill(journal, rows)

            async def cost(**options: object) -> float:
                """CPU seconds for a row."""
                begun = time.process_time()
                await report(journal, "november", overwrite=True, **options)  # type: ignore[arg-type]
                return (time.process_time() - begun) / rows

            costs = {
                "table": [await cost(csv=path / "r.csv") for _ in range(5)],
                "page of all": [await cost(html=path / "r.html", html_rows=rows) for _ in range(5)],
                "page of none": [await cost(html=path / "r.html", html_rows=1) for _ in range(5)],
            }
            base = min(bare(rows) for _ in range(5)) / rows
    for kind, found in costs.items():
        print(f"{kind:13s} {1e6 * min(found):6.1f} µs a row   {min(found) / base:5.1f} of bare csv.writer")


if __name__ == "__main__":
    asyncio.run(main())

"""A file is read twice: checked, and again as orders. Both readings make the same orders of any cells."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from bulk.files import row, write_csv
from hypothesis import given, settings
from hypothesis import strategies as st

from payments_async.bulk import read_batch
from payments_async.bulk._file._rows import read_row
from payments_async.bulk._file._tables import open_table

AROUND = st.sampled_from(["", " ", "\t", "\u00a0", "\u200b", "'", '"', "\ufeff", "=", "\n"])
KINDS = [
    "mobile_money",
    "Mobile Money",
    "bank",
    "BANK TRANSFER",
    "airtime",
    "internet",
    "utility",
    "utilities",
    "",
    "x",
]
SPELLED = {
    "kind": KINDS,
    "amount": [
        "1500",
        "1,500",
        "1 500.00",
        "UGX 1500",
        "1500.50",
        "1.5E3",
        "0",
        "-5",
        "",
        "1500/=",
        "\u0661\u0665\u0660",
    ],
    "currency": ["", "ugx", "UGX", " Ugx", "KES", "shillings"],
    "phone_number": ["0772000017", "+256772000017", "256 772-000-017", "772000017", "7.72E+08", "", "12"],
    "account_number": ["0011", "'0011", "=1", "1.0E+10", "", "12 34"],
    "bank_code": ["", "01", "1", "STANBIC", "1.0"],
    "customer_reference": ["", "0042", "42.0", "a b"],
    "area": ["", "Kampala", " kampala "],
    "name": ["Grace Akello", "", "  Zoë  ", "=SUM(A1)", "Émile"],
    "message": ["", "November", "=1+1", "a\nb"],
    "request_id": ["R-1", "r-1", "", "17", "17.0", "\uff32-1"],
    "product_item_id": ["MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG", "", "x"],
    "email_address": ["", "a@example.org", "no address"],
}


@st.composite
def lines(draw: st.DrawFn) -> dict[str, str]:
    """A row with cells as people type them."""
    cells = row(request_id=f"RUN-{draw(st.integers(1, 10**9))}")
    for column in draw(st.sets(st.sampled_from(sorted(SPELLED)), max_size=5)):
        cells[column] = draw(AROUND) + draw(st.sampled_from(SPELLED[column])) + draw(AROUND)
    return cells


@settings(max_examples=40)
@given(st.lists(lines(), min_size=1, max_size=6), st.booleans())
def test_both_readings_make_the_same_orders(rows: list[dict[str, str]], guesses: bool) -> None:
    """Those that are sent are those that were checked, and no row comes along that was refused."""

    async def read(path: Path) -> None:
        batch = await read_batch(path, derive_request_ids=guesses, guess_items=guesses, batch_id="b")
        layout, rules = batch.orders._layout, batch.orders._rules
        with open_table(path, layout) as table:
            checked = {one.number: read_row(one.cells, rules).order for one in table.rows if one.total is None}
        refused = {problem.row for problem in batch.problems}
        good = [order for number, order in checked.items() if order is not None and number not in refused]
        assert good == list(batch.orders)
        assert len(good) == len(batch.orders)

    with tempfile.TemporaryDirectory() as folder:
        columns = sorted({name for one in rows for name in one})
        path = write_csv(Path(folder) / "b.csv", *[{name: one.get(name, "") for name in columns} for one in rows])
        asyncio.run(read(path))

"""A file is read twice: checked, and again as orders. All ways to read a row find the same in any cells."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import pytest
from bulk.files import KINDS as GOOD
from bulk.files import row, write_csv
from hypothesis import event, given, settings
from hypothesis import strategies as st

from payments_async.bulk import read_batch
from payments_async.bulk._file._cells import DateCell, NumberCell, PercentCell, PhoneReader, ShownCell
from payments_async.bulk._file._rows import Rules, read_cells, read_row
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
            checked = {one.number: read_cells(one.cells, rules).order for one in table.rows if one.total is None}
        refused = {problem.row for problem in batch.problems}
        good = [order for number, order in checked.items() if order is not None and number not in refused]
        assert good == list(batch.orders)
        assert len(good) == len(batch.orders)

    with tempfile.TemporaryDirectory() as folder:
        columns = sorted({name for one in rows for name in one})
        path = write_csv(Path(folder) / "b.csv", *[{name: one.get(name, "") for name in columns} for one in rows])
        asyncio.run(read(path))


EDGES = {
    "amount": ["9" * 15, "9" * 16, "1", "01", "1.5", "\u0661"],
    "name": ["A" * 200, "A" * 201, "A" * 257, "Ann-Marie", "A\u0308", "A  B"],
    "request_id": ["r" * 128, "r" * 129, "a/b:c.d_e-f", "-a", "a b", "1.0", "1E+5"],
    "bank_code": ["0.0", "00.00", "a/b", "12E+5", "a.b", "+1"],
    "account_number": ["0" * 128, "0" * 129, "1-2", "1,0"],
    "area": ["KAMPALA", "a b"],
    "product_item_id": ["NWSC_NWSC", "x" * 129],
    "product_id": ["NWSC", "=1"],
    "message": ["m" * 4096, "m" * 4097, "\ud800", "\u00e9"],
    "metadata": ["{}", "\ud800", "m" * 4097],
    "email_address": ["a@b", "a@b.", "a@@b", "-a@b", "a@b-c.d", "a@b..c"],
    "currency": ["UGX", "UGXX", "KES", "U1X"],
    "phone_number": ["+256772000017", "+256000", "+25677200001", "'0772000017"],
    "kind": ["collection", "mobile_money"],
}
TYPED: list[Callable[[str], str]] = [
    NumberCell,
    DateCell,
    PercentCell,
    *(partial(ShownCell, shown=word) for word in ("USh", "$", "0", "Kgs")),
]
BATCHES = ["b", None, "b b", "=b", "b" * 129]
ANY_RULES = st.builds(
    Rules,
    kind=st.sampled_from([None, "mobile_money", "bank_transfer"]),
    currency=st.sampled_from([None, "UGX", "KES"]),
    batch_id=st.sampled_from(BATCHES),
    derive_request_ids=st.booleans(),
    guess_items=st.booleans(),
    item=st.sampled_from([None, "x"]),
    phone=st.just(PhoneReader("UG")),
    unusable=st.sampled_from([frozenset(), frozenset({"area", "product_item_id"})]),
)


@st.composite
def rows_of_cells(draw: st.DrawFn) -> dict[str, str]:
    """A good row of some kind, in which a few cells are others, or are no text in their workbook."""
    kind = draw(st.sampled_from(sorted(GOOD)))
    cells = row(request_id="R-1", kind=kind, **GOOD[kind])
    for column in draw(st.sets(st.sampled_from(sorted(EDGES)), max_size=2)):
        others = st.sampled_from([*EDGES[column], *SPELLED.get(column, ())]) | st.text(max_size=8)
        cells[column] = draw(st.sampled_from([str] * len(TYPED) + TYPED))(draw(others).strip())
    return {column: cell for column, cell in cells.items() if cell}


def _agreed(cells: dict[str, str], rules: Rules) -> bool:
    """Whether it was read by one look at all of it. What each cell says is the same, and its order breaks no rule."""
    rules = attrs.evolve(rules, unusable=rules.unusable - cells.keys())  # a column that is not there fills no cell
    found, all_cells = read_row(cells, rules), read_cells(cells, rules)
    is_usual = found.is_good and found.order is None
    found.order = all_cells.order
    assert all_cells == found
    assert all_cells.is_good is (all_cells.order is not None)
    return is_usual


@pytest.mark.slow(covered=True)
@settings(max_examples=200)
@given(rows_of_cells(), ANY_RULES)
def test_a_row_that_looks_usual_is_read_as_cell_by_cell(cells: dict[str, str], rules: Rules) -> None:
    """Whatever stands in a few of its cells, and whatever holds for all rows."""
    event(f"usual: {_agreed(cells, rules)}")


@pytest.mark.parametrize(
    ("column", "kind"),
    [("amount", NumberCell), ("amount", partial(ShownCell, shown="USh")), ("phone_number", NumberCell)],
    ids=["amount", "amount shown in its currency", "telephone number"],
)
def test_an_amount_or_a_telephone_number_may_be_a_number_in_the_workbook(
    column: str, kind: Callable[[str], str]
) -> None:
    """As most workbooks have amounts. The row is read by one look, for cell by cell takes three times as long."""
    cells = {name: cell for name, cell in row(request_id="R-1").items() if cell}
    cells[column] = kind(cells[column].removeprefix("+"))
    rules = Rules(kind=None, currency=None, batch_id="b", derive_request_ids=False, phone=PhoneReader("UG"))
    assert _agreed(cells, rules)


def test_a_row_with_one_cell_that_is_another_is_read_as_cell_by_cell() -> None:
    """Each cell that is just right, or just wrong; and each that is empty."""
    phone, seen = PhoneReader("UG"), {True: 0, False: 0}
    for kind in GOOD:
        good = row(request_id="R-1", kind=kind, **GOOD[kind])
        for column in sorted({*good, *EDGES}):
            typed = [kind_of_cell(good.get(column) or "7") for kind_of_cell in TYPED]
            for cell in ("", *typed, *EDGES.get(column, ()), *SPELLED.get(column, ())):
                cells = {name: text for name, text in (good | {column: cell.strip()}).items() if text}
                for currency in (None, "KES"):
                    rules = Rules(kind=None, currency=currency, batch_id="b", derive_request_ids=True, phone=phone)
                    seen[_agreed(cells, rules)] += 1
    assert min(seen.values()) > 100, seen

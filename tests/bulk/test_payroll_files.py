"""Files as people have them: titles, totals, headings of their own, no items, cells that a spreadsheet spoiled."""

import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter  # type: ignore[import-untyped]
from bulk.files import MTN, csv_text, edit_workbook, row, write_csv, write_workbook
from nested import for_read

from payments_async import PaymentsSession
from payments_async.bulk import Batch, Guess, guess_item, plan, read_batch
from payments_async.bulk._file._operators import operator_named_by, operator_of

AIRTEL = "AIRTELMOBILEMONEYPAYOUTUG_AIRTELMOBILEMONEYPAYOUTUG"
SIMPLE = {"request_id": "1", "kind": "mobile_money", "amount": "150000", "name": "Amber", "phone_number": "0772000001"}
THREE = [SIMPLE | {"request_id": str(n), "amount": f"{n}000", "phone_number": f"077200000{n}"} for n in (1, 2, 3)]


def json_lines(*rows: dict[str, str]) -> str:
    """The rows as JSON lines."""
    return "".join(f"{json.dumps(cells)}\n" for cells in rows)


async def of_text(path: Path, text: str, **options: object) -> Batch:
    """The batch of a text."""
    file = path / "batch.csv"
    file.write_text(text, encoding="utf-8")
    return await read_batch(file, **for_read({"item": MTN, **options}))


def problems(batch: Batch) -> list[tuple[int, str]]:
    """Row and column of each."""
    return [(one.row, one.column) for one in batch.problems]


async def test_titles_above_the_header_are_no_payments(tmp_path: Path) -> None:
    """They are told, rows keep their numbers, and the delimiter is that of the header."""
    batch = await of_text(tmp_path, "ACME, Ltd\nNovember, 2026\n\n" + csv_text(*THREE, delimiter=";"))
    assert [] == problems(batch)
    assert ["1", "2", "3"] == [order.request_id for order in batch.orders]
    assert "row 1 stands above the header and is not a payment: 'ACME, Ltd'" in batch.notes
    later = await of_text(tmp_path, "ACME\n" + csv_text(*THREE, SIMPLE | {"request_id": "4", "amount": "-1"}))
    assert [(6, "amount")] == problems(later)


@pytest.mark.parametrize("above", ["a,b,c,d\n", "x\n" * 11], ids=["a-row-of-many-cells", "too-many"])
async def test_what_may_be_payments_is_not_passed_over(tmp_path: Path, above: str) -> None:
    """Rows of many cells above the header, or very many rows, are no title: the file has no header then."""
    batch = await of_text(tmp_path, above + csv_text(*THREE))
    assert (0, 1) == (len(batch.orders), len(batch.problems))
    assert "no header" in batch.problems[0].remedy


async def test_a_header_that_is_half_understood_says_what_of_it(tmp_path: Path) -> None:
    """The row and its known columns are named, and how the others can be told."""
    batch = await of_text(tmp_path, "ACME\nJina;Net pay;Name\nAmber;5;x\n")
    assert [2] == [one.row for one in batch.problems]
    assert "row 2 has amount, name alone" in batch.problems[0].remedy
    assert "--map" in batch.problems[0].remedy


@pytest.mark.parametrize(
    "total",
    [
        "TOTAL,,6000,,",
        ',,"6,000",Grand total:,',
        "Totals (3 people),,6000.00,,",
        ",,6000,Jumla,\n",
        "TOTAL,,6000",
    ],
)
async def test_a_total_that_agrees_is_a_control_sum(tmp_path: Path, total: str) -> None:
    """It is not a payment, and is told to agree."""
    batch = await of_text(tmp_path, csv_text(*THREE) + total)
    assert ([], 3, 3) == (problems(batch), batch.rows, len(list(batch.orders)))
    assert "row 5 is a total, and agrees with the amounts above" in batch.notes


async def test_a_total_that_does_not_agree_is_a_problem(tmp_path: Path) -> None:
    """What the amounts come to stands there, and how many of them could not be read."""
    batch = await of_text(tmp_path, csv_text(*THREE, SIMPLE | {"request_id": "4", "amount": "x"}) + "TOTAL,,6001,,\n")
    assert [(5, "amount"), (6, "total")] == problems(batch)
    assert "come to 6,000, and 1 could not be read" in batch.problems[1].remedy
    assert 3 == len(batch.orders)


async def test_totals_that_agree_are_told_in_one_line(tmp_path: Path) -> None:
    """A payroll of seven departments has seven of them."""
    line = csv_text(SIMPLE).splitlines()[1]
    departments = [f"{line.replace('1', str(n), 1)}\nSub-total,,{SIMPLE['amount']},,\n" for n in range(1, 8)]
    batch = await of_text(tmp_path, ",".join(SIMPLE) + "\n" + "".join(departments))
    assert (7, []) == (len(batch.orders), problems(batch))
    assert ["7 totals agree (rows 3, 5, 7, 9, 11, ...) with the amounts above"] == [
        note for note in batch.notes if "total" in note
    ]


async def test_a_total_names_how_far_it_is_from_its_rows(tmp_path: Path) -> None:
    """All rows, and those since the total before."""
    first, second, third = (csv_text(cells).splitlines()[1] for cells in THREE)
    lines = [",".join(SIMPLE), first, second, "Sub-total,,3000,,", third, "TOTAL,,2500,,"]
    batch = await of_text(tmp_path, "\n".join(lines) + "\n")
    assert [(6, "total")] == problems(batch)
    for words in ("the amounts above come to 6,000: 3,500 more", "since the total before come to 3,000: 500 more"):
        assert words in batch.problems[0].remedy


async def test_an_amount_that_a_sum_leaves_out_is_named(tmp_path: Path) -> None:
    """It stands as a text among numbers, so that the spreadsheet's own SUM is less than what would be paid."""
    rows: list[list[object]] = [list(SIMPLE)]
    for cells in THREE:
        amount = cells["amount"] if cells["request_id"] == "2" else int(cells["amount"])
        rows.append([amount if name == "amount" else cell for name, cell in cells.items()])
    numbers = sum(int(one["amount"]) for one in THREE if one["request_id"] != "2")
    rows.append([numbers if name == "amount" else "TOTAL" if name == "request_id" else "" for name in SIMPLE])
    batch = await read_batch(write_workbook(tmp_path / "b.xlsx", rows), item=MTN)
    assert [(5, "total")] == problems(batch)
    assert "which is the amount of row 3: a text, which a spreadsheet's SUM leaves out" in batch.problems[0].remedy


@pytest.mark.parametrize("line", ["Prepared by: J. Clerk,,,,", ",Approved by,,,", "Date: 22/11/2026,,,,"])
async def test_a_line_to_sign_is_no_payment(tmp_path: Path, line: str) -> None:
    """It has no amount, and is told."""
    batch = await of_text(tmp_path, csv_text(*THREE) + f"TOTAL,,6000,,\n{line}\n")
    assert ([], 3, 3) == (problems(batch), batch.rows, len(list(batch.orders)))
    assert any("row 6 is signed and no payment" in note for note in batch.notes)


async def test_a_line_to_sign_with_an_amount_is_a_payment_with_problems(tmp_path: Path) -> None:
    """What has an amount is never passed over."""
    batch = await of_text(tmp_path, csv_text(*THREE) + "Approved by,,500,,\n")
    assert (4, 3, True) == (batch.rows, len(batch.orders), bool(batch.problems))


@pytest.mark.parametrize("stated", ["", "x", "=SUM(C2:C4)"])
async def test_a_total_without_an_amount_is_a_problem(tmp_path: Path, stated: str) -> None:
    """Nothing agrees with nothing."""
    batch = await of_text(tmp_path, csv_text(*THREE) + f"TOTAL,,{stated},,\n")
    assert [(5, "total")] == problems(batch)


async def test_totals_within_a_file_are_those_since_the_last_one(tmp_path: Path) -> None:
    """Departments have totals of their own, and the last one is that of all."""
    first, second, third = (csv_text(cells).splitlines()[1] for cells in THREE)
    lines = [",".join(SIMPLE), first, second, "Sub-total,,3000,,", third, "Sub-total,,3000,,", "TOTAL,,6000,,"]
    batch = await of_text(tmp_path, "\n".join(lines) + "\n")
    assert [] == problems(batch)
    assert ["1", "2", "3"] == [order.request_id for order in batch.orders]


async def test_somebody_who_is_called_total_is_paid(tmp_path: Path) -> None:
    """Whoever has a number of their own is no sum; without one they are a problem and never passed over."""
    named = SIMPLE | {"name": "Total Services"}
    assert ["Total Services"] == [one.beneficiary.name for one in (await of_text(tmp_path, csv_text(named))).orders]
    batch = await of_text(tmp_path, csv_text(*THREE, named | {"request_id": "4", "phone_number": ""}))
    assert [(5, "phone_number")] == problems(batch)


async def test_headings_can_be_said_to_be_columns(tmp_path: Path) -> None:
    """What is said counts before the words, which then stand for nothing else; it is told."""
    text = csv_text(*THREE).replace("name", "Full Name,Name").replace("Amber", "Amber Brightwater,Nickname")
    text = text.replace("phone_number", "Simu ya mkononi")
    batch = await of_text(tmp_path, text, mapping={"name": "full name", "Phone": "SIMU ya mkononi"})
    assert [] == problems(batch)
    assert {"Amber Brightwater"} == {order.beneficiary.name for order in batch.orders}
    assert {"name": "full name", "phone_number": "SIMU ya mkononi"} == batch.mapping
    assert ("request_id", "kind", "amount", "Full Name", "Name", "Simu ya mkononi") == batch.headings
    mapped = [(one.heading, one.column) for one in batch.columns if one.is_mapped]
    assert [("Full Name", "name"), ("Simu ya mkononi", "phone_number")] == mapped
    assert [("Name", None)] == [(one.heading, one.column) for one in batch.columns if one.column is None]


async def test_a_function_can_say_what_headings_are(tmp_path: Path) -> None:
    """It is given the headings as the file has them, and what it said holds when the file is read again."""
    seen: list[tuple[str, ...]] = []

    def remembered(headings: Sequence[str]) -> Mapping[str, str]:
        seen.append(tuple(headings))
        return {"amount": "Mshahara"} if "Mshahara" in headings else {}

    batch = await of_text(tmp_path, csv_text(*THREE).replace("amount", "Mshahara"), mapping=remembered)
    before = len(seen)
    assert ["1000", "2000", "3000"] == [str(order.amount) for order in batch.orders]
    assert before == len(seen)
    assert ("request_id", "kind", "Mshahara", "name", "phone_number") in seen


async def test_json_keys_can_be_said_to_be_columns(tmp_path: Path) -> None:
    """The keys of the first object are the header."""
    text = '{"request_id": "1", "kind": "momo", "Mshahara": 5.50, "name": "Amber", "phone": 256772000001}\n'
    batch = await of_text(tmp_path, text + text.replace('"1"', '"2"'), mapping={"amount": "Mshahara"})
    assert ["5.50", "5.50"] == [str(order.amount) for order in batch.orders]
    assert {"amount": "Mshahara"} == batch.mapping


async def test_a_heading_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    """With those that are, and once."""
    batch = await of_text(tmp_path, csv_text(*THREE), mapping={"amount": "Mshahara"})
    assert [(1, "amount")] == problems(batch)
    assert "no such heading; it has 'request_id', 'kind', 'amount'" in batch.problems[0].remedy
    assert {} == batch.mapping


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"shoe": "Size"}, "no column 'shoe'"),
        ({"name": " "}, "no heading for name"),
        ({"name": "A", "amount": "a"}, "named twice"),
        ({"name": "A", "full name": "B"}, "named twice"),
    ],
)
async def test_a_mapping_that_cannot_be_meant_is_refused(tmp_path: Path, mapping: dict[str, str], words: str) -> None:
    """Before anything is read of the file."""
    with pytest.raises(ValueError, match=words):
        await of_text(tmp_path, csv_text(*THREE), mapping=mapping)


async def test_one_item_holds_for_rows_that_name_none(tmp_path: Path) -> None:
    """A row that names one keeps it; derived ids are those of a file that names it everywhere."""
    rows = [row(request_id=""), row(request_id="", product_item_id=AIRTEL, amount="7")]
    named = write_csv(tmp_path / "named.csv", *rows)
    bare = write_csv(tmp_path / "bare.csv", rows[0] | {"product_item_id": ""}, rows[1])
    options: dict[str, object] = {"derive_request_ids": True, "batch_id": "b"}
    batch = await read_batch(bare, item=MTN, **options)  # type: ignore[arg-type]
    assert list((await read_batch(named, **options)).orders) == list(batch.orders)  # type: ignore[arg-type]
    assert f"rows that name no item have {MTN}" in batch.notes
    with pytest.raises(ValueError, match="item: '=1' is none"):
        await read_batch(bare, item="=1")


async def test_without_an_item_the_two_ways_out_are_named(tmp_path: Path) -> None:
    """Once where the column is missing, and at the cell where it is empty."""
    missing = await of_text(tmp_path, csv_text(*THREE), item=None)
    empty = await read_batch(write_csv(tmp_path / "e.csv", row(product_item_id="")))
    for batch, at in ((missing, (1, "product_item_id")), (empty, (2, "product_item_id"))):
        assert [at] == problems(batch)
        assert "(--item)" in batch.problems[0].remedy
        assert "(--guess-items)" in batch.problems[0].remedy


async def test_items_can_be_guessed_by_operators(tmp_path: Path) -> None:
    """Of wallets and airtime, where the operator and its item are known; what is guessed is counted."""
    rows = [
        row(request_id="1"),
        row(request_id="2", phone_number="0752000001", amount="5"),
        row(request_id="3", phone_number="0782000001", amount="0.50"),
        row(request_id="4", kind="airtime"),
        row(request_id="5", kind="airtime", phone_number="0752000001"),
        row(request_id="6", kind="bank_transfer"),
        row(request_id="7", phone_number="+256711000001"),
        row(request_id="3", phone_number="0782000001", amount="0.50"),
    ]
    bare = [cells | {"product_item_id": "", "product_id": ""} for cells in rows]
    batch = await read_batch(write_csv(tmp_path / "b.csv", *bare, row(request_id="8")), guess_items=True)
    told = [(6, "product_item_id"), (7, "product_item_id"), (8, "product_item_id"), (9, "request_id")]
    assert told == problems(batch)
    items = {"1": MTN, "2": AIRTEL, "3": MTN, "4": "MTNAIRTIMEUG_MTNAIRTIMEUG", "8": MTN}
    assert items == {order.request_id: order.product_item_id for order in batch.orders}
    expected = [
        ("Airtel", "mobile_money", 1, Decimal(5)),
        ("MTN", "airtime", 1, Decimal(150_000)),
        ("MTN", "mobile_money", 2, Decimal("150000.50")),
    ]
    assert expected == [(one.operator, one.kind, one.orders, one.total) for one in batch.guesses]
    assert isinstance(batch.guesses[0], Guess)
    assert "through Airtel" in batch.problems[0].remedy


def test_operators_follow_from_the_longest_prefix() -> None:
    """However a number is punctuated; a number nobody knows is nobody's."""
    numbers = ["+256772000017", "256 752-000017", "+256724100000", "+256724000000", "+256414000017", "+254722000000"]
    assert ["MTN", "Airtel", "MTN", "Hamilton Telecom", None, None] == [operator_of(number) for number in numbers]
    assert ["MTN", "Airtel", None] == [operator_named_by(item) for item in (MTN, AIRTEL, "BANKTRANSFERUG_X")]
    assert ("MTN", MTN) == guess_item("mobile_money", numbers[0])
    assert ("Airtel", None) == guess_item("airtime", "+256752000017")


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    """A workbook of three payments, with styles: the second one shows a percentage, the third one of its own kind."""
    typed: list[dict[str, object]] = [{**cells, "amount": float(cells["amount"]), "rate": 0.5} for cells in THREE]
    rows: list[list[object]] = [[*typed[0]], *([*cells.values()] for cells in typed)]
    path = write_workbook(tmp_path / "b.xlsx", rows)
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles"
    styles = f'<Relationship Id="s" Type="{kind}" Target="s.xml"/>'
    edit_workbook(path, "xl/_rels/workbook.xml.rels", "<Relationship ", f"{styles}<Relationship ")
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    with zipfile.ZipFile(path, "a") as book:
        book.writestr(
            "xl/s.xml",
            f'<styleSheet xmlns="{main}"><numFmts count="2"><numFmt numFmtId="170" formatCode="0.0\\%%"/>'
            '<numFmt numFmtId="171" formatCode="0&quot;%&quot;"/></numFmts>'
            '<cellStyleXfs count="1"><xf numFmtId="9"/></cellStyleXfs>'
            '<cellXfs count="4"><xf numFmtId="0"/><xf numFmtId="10"/><xf numFmtId="170"/><xf numFmtId="171"/></cellXfs>'
            "</styleSheet>",
        )
    return path


SHEET = "xl/worksheets/sheet1.xml"


@pytest.mark.parametrize(("style", "is_percent"), [("0", False), ("1", True), ("2", True), ("3", False)])
async def test_a_cell_that_shows_a_percentage_is_no_amount(workbook: Path, style: str, is_percent: bool) -> None:
    """By a format of the spreadsheet's own or of somebody's; a sign in quotation marks is a word."""
    batch = await read_batch(edit_workbook(workbook, SHEET, '<c r="C3"', f'<c r="C3" s="{style}"'), item=MTN)
    assert ([(3, "amount")] if is_percent else []) == problems(batch)
    assert (2 if is_percent else 3) == len(batch.orders) == len(list(batch.orders))


def shown_as(workbook: Path, code: str) -> Path:
    """The workbook whose amounts in rows 3 and 4 have a format."""
    edit_workbook(workbook, "xl/s.xml", "0&quot;%&quot;", code.replace('"', "&quot;"))
    edit_workbook(workbook, SHEET, '<c r="C3"', '<c r="C3" s="3"')
    return edit_workbook(workbook, SHEET, '<c r="C4"', '<c r="C4" s="3"')


@pytest.mark.parametrize(
    ("code", "currency", "words"),
    [
        ("[$$-409]#,##0.00", "UGX", "shown as $ in the sheet, but the row is in UGX"),
        ('"Ksh"#,##0', "UGX", "shown as Ksh in the sheet, but the row is in UGX"),
        ('#,##0" UGX"', "USD", "shown as UGX in the sheet, but the row is in USD"),
        ("#,##0,", "UGX", "shows another number than the cell holds"),
        (";;;", "UGX", "shows another number than the cell holds"),
        ('#,##0" euros"', "UGX", "shown as euros in the sheet, but the row is in UGX"),
        ("[$₦-470]#,##0", "UGX", "shown as ₦ in the sheet, but the row is in UGX"),
        ('"A$"#,##0', "USD", "shown as A$ in the sheet, but the row is in USD"),
        ('"SHS "#,##0', "USD", "shown as SHS in the sheet, but the row is in USD"),
        ('#,##0"/="', "USD", "shown as /= in the sheet, but the row is in USD"),
        ('#,##0"/-"', "EUR", "shown as /- in the sheet, but the row is in EUR"),
        ("0\\.00", "UGX", "shows another number than the cell holds"),
        ('0"K"', "UGX", "shows another number than the cell holds"),
        ('"USh"#,##0', "UGX", None),
        ('#,##0"/="', "UGX", None),
        ('#,##0"/-"', "KES", None),
        ('"Ug. SHS. "#,##0', "UGX", None),
        ('"ugx "#,##0', "UGX", None),
        ('[=0]"";#,##0', "UGX", None),
        ("[>=0]#,##0;[Red]-#,##0", "UGX", None),
        ('"US$"#,##0', "USD", None),
        ("[$$-1009]#,##0", "CAD", None),
        ("[$RF-rw-RW] #,##0", "RWF", None),
        ("€0", "EUR", None),
        ("0.00E+00", "UGX", "another number than the cell holds"),
        ("# ?/?", "UGX", "another number than the cell holds"),
    ],
)
async def test_an_amount_that_is_shown_otherwise(workbook: Path, code: str, currency: str, words: str | None) -> None:
    """A person sees dollars, or thousands: the cell's number is not paid in the row's currency."""
    batch = await read_batch(shown_as(workbook, code), item=MTN, currency=currency)
    assert ([(3, "amount"), (4, "amount")] if words else []) == problems(batch)
    assert all(words in one.remedy for one in batch.problems if words)
    assert (1 if words else 3) == len(list(batch.orders))
    assert {currency} == {order.currency for order in batch.orders}
    assert () == batch.concerns


@pytest.mark.parametrize(
    ("code", "amount", "is_shown"),
    [
        ("#,##0", "2000.5", False),
        ('"UGX "#,##0', "2000.49", False),
        ("_(* #,##0_);_(* (#,##0)", "2000.5", False),
        ("#,##0.0", "2000.25", False),
        ("#,##0.0", "2000.5", True),
        ("#,##0", "2000.0", True),
        ("#,##0.00", "2000.25", True),
        ("General", "2000.25", True),
        ("0.00%", "2000.5", False),
    ],
)
async def test_an_amount_that_is_shown_rounded(workbook: Path, code: str, amount: str, is_shown: bool) -> None:
    """A person sees 2,001 where 2000.50 would be paid: no format hides cents, and none is taken for rounding them."""
    edit_workbook(shown_as(workbook, code), SHEET, "<v>2000.0</v>", f"<v>{amount}</v>")
    batch = await read_batch(workbook, item=MTN, currency="UGX")
    assert ([] if is_shown else [3]) == [one.row for one in batch.problems if one.row == 3]
    assert is_shown or "%" in code or "the sheet shows it rounded" in batch.problems[0].remedy
    if is_shown:
        assert Decimal(amount) in {order.amount for order in batch.orders}


async def test_amounts_that_name_no_style_while_the_usual_one_shows_dollars(workbook: Path) -> None:
    """A workbook whose style "Normal" was changed: its cells name none."""
    edit_workbook(
        workbook, "xl/s.xml", '<cellXfs count="4"><xf numFmtId="0"/>', '<cellXfs count="4"><xf numFmtId="171"/>'
    )
    edit_workbook(workbook, "xl/s.xml", "0&quot;%&quot;", "$#,##0")
    batch = await read_batch(workbook, item=MTN, currency="UGX")
    assert [(2, "amount"), (3, "amount"), (4, "amount")] == problems(batch)


@pytest.mark.parametrize(
    ("currency", "words"),
    [
        ("UGX", None),
        ("KES", None),
        ("USD", "the batch is in USD"),
        (None, "in shillings of a country that is not told; name the currency"),
    ],
)
@pytest.mark.parametrize("amount", ["Shs. 14,500", "14,500/=", "14500/-", "Shs. 14,500/="])
async def test_shillings_of_a_country_that_is_not_told(
    tmp_path: Path, amount: str, currency: str | None, words: str | None
) -> None:
    """They are those of the batch, if it is in some shillings; both readings of the file say so."""
    batch = await of_text(tmp_path, csv_text(SIMPLE | {"amount": amount}), currency=currency)
    assert ([(2, "amount")] if words else []) == problems(batch)
    assert all(words in one.remedy for one in batch.problems if words)
    assert ([] if words else [("14500", currency)]) == [(str(one.amount), one.currency) for one in batch.orders]


async def test_shillings_in_a_row_whose_own_column_says_dollars(tmp_path: Path) -> None:
    """The sign behind the digits counts as the word before them does."""
    rows = [SIMPLE | {"amount": amount, "currency": "USD"} for amount in ("14,500/=", "Shs 14,500", "14,500")]
    batch = await of_text(tmp_path, csv_text(*(one | {"request_id": str(n)} for n, one in enumerate(rows))))
    assert [(2, "amount"), (3, "amount")] == problems(batch)
    assert {"in shillings, but the currency column says USD; correct one of them"} == {
        one.remedy for one in batch.problems
    }


async def test_an_amount_shown_in_a_currency_that_nothing_names(workbook: Path) -> None:
    """It is looked at by a person; what a sheet shows is never the currency of an order."""
    batch = await read_batch(shown_as(workbook, "$#,##0"), item=MTN)
    assert [] == problems(batch)
    assert {None} == {order.currency for order in batch.orders}
    (concern,) = batch.concerns
    assert ("amount", "$") == (concern.field, concern.value)
    assert "no currency is named: 2 of them, the first is row 3; they are paid in the account's" in concern.remedy


async def test_a_telephone_number_that_a_format_completes(workbook: Path) -> None:
    """Is read as the number that it is: only of an amount does it matter what the sheet shows."""
    shown_as(workbook, '"+256"0')
    for cell in ("C3", "C4"):
        edit_workbook(workbook, SHEET, f'<c r="{cell}" s="3"', f'<c r="{cell}"')
    with zipfile.ZipFile(workbook) as book:
        sheet = book.read(SHEET).decode()
    place = re.search(r'<c r="E3"[^>]*>.*?</c>', sheet)
    assert place
    edit_workbook(workbook, SHEET, place[0], '<c r="E3" s="3"><v>772000018</v></c>')
    batch = await read_batch(workbook, item=MTN)
    assert [] == problems(batch)
    assert "+256772000018" in {order.beneficiary.phone_number for order in batch.orders}


@pytest.mark.parametrize(("line", "is_struck"), [("<strike/>", True), ('<strike val="0"/>', False), ("<b/>", False)])
@pytest.mark.parametrize("cell", ["C3", "D3"])
async def test_a_row_that_is_struck_through_is_not_paid(workbook: Path, line: str, is_struck: bool, cell: str) -> None:
    """By its amount or its name: a person who crosses a row out takes it for deleted, and --skip-bad leaves it out."""
    fonts = f'<fonts count="2"><font/><font>{line}</font></fonts><cellStyleXfs '
    edit_workbook(workbook, "xl/s.xml", "<cellStyleXfs ", fonts)
    edit_workbook(workbook, "xl/s.xml", '<xf numFmtId="171"/>', '<xf numFmtId="0" fontId="1"/>')
    edit_workbook(workbook, SHEET, f'<c r="{cell}"', f'<c r="{cell}" s="3"')
    batch = await read_batch(workbook, item=MTN)
    column = {"C3": "amount", "D3": "name"}[cell]
    assert ([(3, column)] if is_struck else []) == problems(batch)
    assert (2 if is_struck else 3) == len(list(batch.orders))


async def test_a_percentage_that_nobody_reads_is_no_problem(workbook: Path) -> None:
    """Such as a rate in a column that is not known."""
    batch = await read_batch(edit_workbook(workbook, SHEET, '<c r="F3"', '<c r="F3" s="1"'), item=MTN)
    assert [] == problems(batch)


@pytest.mark.parametrize("value", ["", "<v></v>", "<v/>"])
async def test_a_formula_without_a_saved_value_is_told(workbook: Path, value: str) -> None:
    """It would be an empty cell to whoever does not look, of a message too; with its value it is read."""
    edit_workbook(workbook, SHEET, '<c r="C3"><v>2000.0</v></c>', f'<c r="C3"><f>1000*2</f>{value}</c>')
    batch = await read_batch(edit_workbook(workbook, SHEET, '<c r="C4">', '<c r="C4"><f>1000*3</f>'), item=MTN)
    assert [(3, "amount")] == problems(batch)
    assert "formula without a saved value, or one that shows an error" in batch.problems[0].remedy
    assert ["1000", "3000"] == [str(order.amount) for order in batch.orders]


async def test_a_telephone_number_that_was_rounded_is_refused(tmp_path: Path) -> None:
    """As a text, as a number in a workbook, where only its zeros tell; an exact float is read."""
    cells = [SIMPLE | {"request_id": str(n), "phone_number": phone} for n, phone in enumerate(PHONES)]
    path = write_workbook(tmp_path / "b.xlsx", [list(SIMPLE), *([*one.values()] for one in cells)])
    batch = await read_batch(path, item=MTN)
    assert [(2, "phone_number"), (3, "phone_number"), (4, "phone_number")] == problems(batch)
    assert ["+256772000017"] == [order.destination.phone_number for order in batch.orders]  # type: ignore[union-attr]


PHONES: list[object] = ["2.56772E+11", "256772000017.0", 2.56772e11, 256772000017.0]


async def test_the_sheets_are_named_where_the_first_has_no_header(tmp_path: Path) -> None:
    """With the option that names the right one."""
    path = write_workbook(tmp_path / "b.xlsx", [["Payroll"], ["November"]], "Staff", "Rates")
    batch = await read_batch(path, item=MTN)
    assert [1] == [one.row for one in batch.problems]
    assert (
        "only the sheet 'Payouts' was looked at, and the workbook also has 'Staff', 'Rates'" in batch.problems[0].remedy
    )
    assert "(--sheet)" in batch.problems[0].remedy


async def test_the_sheet_behind_a_cover_is_read(tmp_path: Path) -> None:
    """It alone has headings that are known, and those say the currency; it is told which one was read."""
    with xlsxwriter.Workbook(path := tmp_path / "b.xlsx") as book:
        book.add_worksheet("Cover").write_row(0, 0, ["ACME", "Payroll November"])
        staff = book.add_worksheet("Staff")
        staff.write_row(0, 0, ["Staff No", "Name of Employee", "Mobile Money Number", "Net Pay (UGX)"])
        staff.write_row(1, 0, ["E1", "Amber Brightwater", "0772000001", 150_000])
    how: dict[str, Any] = {"item": MTN, "kind": "mobile_money", "derive_request_ids": True, "batch_id": "november"}
    batch = await read_batch(path, **how)
    assert ([], [("UGX", 150_000)]) == (problems(batch), [(one.currency, one.amount) for one in batch.orders])
    assert "only the sheet 'Staff' is read; the workbook also has 'Cover'" in batch.notes
    assert ("Net Pay (UGX)", "amount") in [(one.heading, one.column) for one in batch.columns]
    other = await read_batch(path, currency="KES", **how)
    assert ["the heading says UGX, the batch is in KES; correct one of them"] == [one.remedy for one in other.problems]


async def test_json_takes_exact_numbers_of_any_length(tmp_path: Path) -> None:
    """Of ids and amounts, where a spreadsheet would have rounded; thirty digits are the most that an order takes."""
    line = '{"request_id": %s, "kind": "momo", "amount": %s, "name": "Amber", "phone": 256772000000}\n'
    amounts = ["1234567890123456789012345678.25", "100.500", "1" * 31]
    batch = await of_text(tmp_path, "".join(line % ("9" * 30 + str(n), amount) for n, amount in enumerate(amounts)))
    assert [(3, "amount")] == problems(batch)
    assert amounts[:2] == [str(order.amount) for order in batch.orders]
    assert ["9" * 30 + "0", "9" * 30 + "1"] == [order.request_id for order in batch.orders]


async def test_percent_signs_and_formulas_in_text_are_told_as_such(tmp_path: Path) -> None:
    """Each with words of its own."""
    batch = await of_text(
        tmp_path, csv_text(SIMPLE | {"amount": "15%"}, SIMPLE | {"amount": "=C2*2", "request_id": "2"})
    )
    assert ["a percentage", "a formula"] == [one.remedy.partition(",")[0] for one in batch.problems]


FREE_TEXT = ("Remarks", "REMARK", "Reason", "Purpose", "Note", "Notes", "Comment", "comments", "Narration", "Narrative")
FREE_TEXT += ("Description", "Details", "Particulars", "Memo", "Extra", "Extra data")


@pytest.mark.parametrize("heading", FREE_TEXT)
@pytest.mark.parametrize("write", [csv_text, json_lines], ids=["csv", "jsonl"])
async def test_what_people_write_for_themselves_stays_in_the_file(
    tmp_path: Path, heading: str, write: Callable[..., str]
) -> None:
    """A column of free text is sent only where it is mapped, and is told either way."""
    text = write(SIMPLE | {heading: "dismissed - last pay"})
    batch = await of_text(tmp_path, text)
    told = batch.columns[-1]
    assert (heading, None, True, None) == (told.heading, told.column, told.is_free_text, told.goes_to)
    assert [(None, None)] == [(order.message, order.metadata) for order in batch.orders]
    mapped = await of_text(tmp_path, text, mapping={"message": heading})
    told = mapped.columns[-1]
    assert ("message", True, False, "beneficiary") == (told.column, told.is_mapped, told.is_free_text, told.goes_to)
    assert ["dismissed - last pay"] == [order.message for order in mapped.orders]


async def test_every_heading_is_told_with_what_it_becomes(tmp_path: Path) -> None:
    """Who gets what stands below it, too: the service, the beneficiary, or no one outside."""
    headings = {"id": "1", "Type": "momo", "Net pay": "5", "CCY": "UGX", "Employee": "Amber", "MSISDN": "0772000001"}
    headings |= {"e mail": "a@example.com", "Payment message": "March", "meta": "x", "Shoe size": "43", "": "7"}
    batch = await of_text(tmp_path, csv_text(headings))
    expected = [("id", "request_id", "service"), ("Type", "kind", "service"), ("Net pay", "amount", "service")]
    expected += [("CCY", "currency", None), ("Employee", "name", "service"), ("MSISDN", "phone_number", "service")]
    expected += [("e mail", "email_address", "service"), ("Payment message", "message", "beneficiary")]
    assert [*expected, ("meta", "metadata", "service"), ("Shoe size", None, None)] == [
        (one.heading, one.column, one.goes_to) for one in batch.columns
    ]


async def test_a_batch_with_its_remarks_is_another_plan(payments_session: PaymentsSession, tmp_path: Path) -> None:
    """The digest that is approved tells whether they are sent."""
    text = csv_text(SIMPLE | {"Remarks": "dismissed - last pay"})
    bare, mapped = await of_text(tmp_path, text), await of_text(tmp_path, text, mapping={"message": "Remarks"})
    without, with_them = await plan(payments_session, bare), await plan(payments_session, mapped)
    assert without.digest != with_them.digest
    assert (bare.columns, mapped.columns) == (without.columns, with_them.columns)

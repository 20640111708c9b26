"""What a person must have looked at before it is paid: hidden rows and columns, and a bank's name for its code."""

import re
import zipfile
from pathlib import Path

import pytest
from bulk.files import edit_workbook, row, write_csv, write_workbook

from payments_async import PaymentsSession
from payments_async.bulk import Batch, plan, read_batch

SHEET, BOOK = "xl/worksheets/sheet1.xml", "xl/workbook.xml"
AMOUNT = list(row()).index("amount") + 1  # columns are numbered from 1 in a workbook


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    """A workbook of three payouts in rows 2 to 4."""
    people = [row(request_id=f"R-{n}", phone_number=f"+25677200000{n}") for n in (1, 2, 3)]
    return write_workbook(tmp_path / "b.xlsx", [list(people[0]), *(list(one.values()) for one in people)], "Notes")


def fields(batch: Batch) -> list[str]:
    """What its concerns are about."""
    return [concern.field for concern in batch.concerns]


HIDDEN = [
    pytest.param(SHEET, '<row r="3">', '<row r="3" hidden="1">', "rows", id="row"),
    pytest.param(SHEET, '<row r="3">', '<row r="3" ht="0" customHeight="1">', "rows", id="row-without-height"),
    pytest.param(SHEET, "<sheetData>", '<sheetFormatPr zeroHeight="1"/><sheetData>', "rows", id="rows-by-default"),
    pytest.param(
        SHEET,
        "<sheetData>",
        f'<cols><col min="{AMOUNT}" max="{AMOUNT}" hidden="true"/></cols><sheetData>',
        "amount",
        id="column",
    ),
    pytest.param(SHEET, '<row r="3">', "<row r='3'\nhidden = '&#49;'>", "rows", id="row-spelled-otherwise"),
    pytest.param(
        SHEET,
        '<row r="2">',
        '<row r="2" ht="12.8" hidden="true" customHeight="false">',
        "rows",
        id="row-of-libreoffice",
    ),
    pytest.param(BOOK, 'sheetId="1"', 'sheetId="1" state="hidden"', "sheet", id="sheet"),
    pytest.param(BOOK, 'sheetId="1"', 'sheetId="1" state="veryHidden"', "sheet", id="sheet-very-hidden"),
]


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize(("part", "shown", "hidden", "field"), HIDDEN)
async def test_what_is_hidden_and_would_be_paid_is_a_concern(
    workbook: Path, part: str, shown: str, hidden: str, field: str
) -> None:
    """Its rows are orders all the same."""
    batch = await read_batch(edit_workbook(workbook, part, shown, hidden))
    assert ([field], 3) == (fields(batch), len(batch.orders))


@pytest.mark.slow(covered=True)
async def test_a_plan_of_what_is_hidden_is_not_clean(workbook: Path, payments: PaymentsSession) -> None:
    """Until somebody says that it was looked at; the payments are the same ones."""
    whole = await plan(payments, await read_batch(workbook))
    batch = await read_batch(edit_workbook(workbook, SHEET, '<row r="3">', '<row r="3" hidden="1">'))
    made = await plan(payments, batch)
    assert (False, 0, ["rows"]) == (made.is_clean, made.problem_count, [one.field for one in made.concerns])
    looked = await plan(payments, batch, acknowledged=True)
    assert (True, whole.digest) == (looked.is_clean, looked.digest)


async def test_a_hidden_row_of_elements_with_a_prefix_is_found(workbook: Path) -> None:
    """A glance at the bytes does not know such elements, so each of them is looked at."""
    with zipfile.ZipFile(workbook) as book:
        sheet = book.read(SHEET).decode()
    written = re.sub(r"<(/?)(row|c|is|t|sheetData|worksheet)\b", r"<\1x:\2", sheet).replace("xmlns=", "xmlns:x=")
    edit_workbook(workbook, SHEET, sheet, written.replace('row r="3"', 'row r="3" ht="0"'))
    assert ["rows"] == fields(await read_batch(workbook))


@pytest.mark.parametrize(
    ("part", "shown", "hidden"),
    [
        pytest.param(SHEET, "</sheetData>", '<row r="9" hidden="1"/></sheetData>', id="empty-row"),
        pytest.param(SHEET, '<row r="3">', '<row r="3" hidden="0">', id="shown-row"),
        pytest.param(SHEET, '<row r="1">', '<row r="1" hidden="1">', id="header"),
        pytest.param(
            SHEET, "<sheetData>", '<cols><col min="30" max="40" hidden="1"/></cols><sheetData>', id="column-unread"
        ),
        pytest.param(BOOK, 'sheetId="2"', 'sheetId="2" state="hidden"', id="other-sheet"),
    ],
)
async def test_what_is_hidden_and_not_paid_is_none(workbook: Path, part: str, shown: str, hidden: str) -> None:
    """An empty row, the header, a column nobody reads, another sheet."""
    assert [] == fields(await read_batch(edit_workbook(workbook, part, shown, hidden)))


async def test_empty_columns_on_the_left_are_counted(workbook: Path) -> None:
    """A sheet that begins in column C: the hidden column is the one that is named."""
    with zipfile.ZipFile(workbook) as book:
        sheet = book.read(SHEET).decode()
    moved = re.sub(r'<c r="([A-Z])', lambda place: f'<c r="{chr(ord(place[1]) + 2)}', sheet)
    hidden = f'<cols><col min="{AMOUNT + 2}" max="{AMOUNT + 2}" hidden="1"/></cols><sheetData>'
    batch = await read_batch(edit_workbook(workbook, SHEET, sheet, moved.replace("<sheetData>", hidden)))
    assert (["amount"], 3) == (fields(batch), len(batch.orders))


@pytest.mark.parametrize("code", ["Hilltop Bank", "Lakeside", "bank of the lake", "01 Hilltop"])
async def test_a_banks_name_for_its_code_is_a_concern(tmp_path: Path, payments: PaymentsSession, code: str) -> None:
    """The code is what the service wants; it is shown once, with how many orders it is about."""
    rows = [row(kind="bank_transfer", request_id=f"R-{n}", bank_code=code) for n in (1, 2)]
    made = await plan(payments, await read_batch(write_csv(tmp_path / "b.csv", *rows)))
    assert (False, [("bank_code", code, 2)]) == (
        made.is_clean,
        [(one.field, one.value, one.orders) for one in made.concerns],
    )


@pytest.mark.parametrize("code", ["BANK01", "040147", "HTOPUGKX", "HTOPUGKXXXX", "HTUB", "ug-31"])
async def test_a_banks_code_is_none(tmp_path: Path, payments: PaymentsSession, code: str) -> None:
    """Digits, a code between banks, a few capital letters."""
    file = write_csv(tmp_path / "b.csv", row(kind="bank_transfer", bank_code=code))
    assert () == (await plan(payments, await read_batch(file))).concerns


async def test_a_long_word_in_capitals_is_only_shown(tmp_path: Path, payments: PaymentsSession) -> None:
    """It may be a name or a code: a warning, and nothing to acknowledge."""
    file = write_csv(tmp_path / "b.csv", row(kind="bank_transfer", bank_code="LAKESIDEBANK"))
    made = await plan(payments, await read_batch(file))
    assert ((), ["bank_code"], True) == (made.concerns, [one.field for one in made.warnings], made.is_clean)

"""A sheet is looked at by its bytes first: where they ask for nothing, each element holds nothing to tell either."""

from __future__ import annotations

import io
import zipfile
from datetime import date, time, timedelta

import pytest
import xlsxwriter

from payments_async.bulk._file import _workbook_reader as reader

SHEET = "xl/worksheets/sheet1.xml"
HEADER = ["request_id", "amount", "name", "phone_number", "when"]
MAIN = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
ROW, CELL = b'<row r="3"', b'<c r="B3"><v>1001</v>'
PREFIXED = b'<worksheet xmlns:y="%b" ' % MAIN

# What a person or a program may make of a sheet: what is replaced, and by what; and what a person must be told of.
EDITS: dict[str, tuple[list[tuple[bytes, bytes]], bool]] = {
    "plain": ([], False),
    "a hidden row": ([(ROW, ROW + b' hidden="1"')], True),
    "in other quotation marks": ([(ROW, ROW + b" hidden='1'")], True),
    "on lines of their own": ([(ROW, ROW + b"\n hidden\n=\n'1'")], True),
    "as a word": ([(ROW, ROW + b' hidden="true"')], True),
    "as a reference": ([(ROW, ROW + b' hidden="&#49;"')], True),
    "behind a sign": ([(ROW, ROW + b' thickTop="a>" hidden="1"')], True),
    "a row without height": ([(ROW, ROW + b' ht="0" customHeight="1"')], True),
    "behind a tab": ([(ROW, ROW + b'\tht="0" customHeight="1"')], True),
    "of another name": (
        [(b"<worksheet ", PREFIXED), (ROW, b'<y:row hidden="1" r="3"'), (b'</row><row r="4"', b'</y:row><row r="4"')],
        True,
    ),
    "a formula": ([(CELL, b'<c r="B3"><f>1000+1</f><v>1001</v>')], True),
    "a formula of another name": ([(b"<worksheet ", PREFIXED), (CELL, b'<c r="B3"><y:f>1</y:f><v>1001</v>')], True),
    "a hidden column": (
        [(b"<sheetData>", b'<cols><col min="2" max="2" width="9" hidden="1"/></cols><sheetData>')],
        True,
    ),
    "a column without width": (
        [(b"<sheetData>", b'<cols><col min="2" max="2" width="0" customWidth="1"/></cols><sheetData>')],
        True,
    ),
    "rows that are hidden by default": ([(b"<sheetFormatPr ", b'<sheetFormatPr zeroHeight="1" ')], True),
}


def workbook(*edits: tuple[bytes, bytes]) -> bytes:
    """A workbook of a header and five rows, with what is replaced in its sheet."""
    file = io.BytesIO()
    book = xlsxwriter.Workbook(file, {"in_memory": True})
    sheet = book.add_worksheet("Staff")
    share = book.add_format({"num_format": "0%"})
    sheet.write_row(0, 0, HEADER)
    for number in range(1, 6):
        sheet.write_row(number, 0, [f"R-{number}", 999 + number, "Grace Akello", "0772000017"])
    sheet.write_number(5, 4, 0.5, share if (b"%", b"%") in edits else None)
    book.close()
    made = io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            part = source.read(name)
            for old, new in edits if name == SHEET else ():
                assert old in part or old == new
                part = part.replace(old, new, 1)
            target.writestr(name, part)
    return made.getvalue()


def looked_at(data: bytes) -> tuple[bool, bool]:
    """Whether a glance finds a sheet plain, and whether the look at each element finds anything to be told."""
    with reader._opened(data) as book:
        place = reader._place_of_book(book)
        ((_, _, relation),), _ = reader._sheets(book, place)
        part = reader._relations(book, place)[relation]
        seen = reader._Seen(reader._marked_styles(book, place))
        is_plain = reader._is_plain(book, part, seen.styles)
        reader._parse(book, part, seen.begin)
    told = (seen.rows, seen.hidden_positions(), seen.marks, seen.positions_of(seen.formulas))
    return is_plain, any(told)


@pytest.mark.parametrize("name", EDITS)
def test_a_glance_at_a_sheet(name: str) -> None:
    """Nothing that a person must be told of is passed over, and a plain sheet costs a glance alone."""
    edits, is_told = EDITS[name]
    is_plain, found = looked_at(workbook(*edits))
    assert is_told is found
    assert is_plain is not found


def test_a_percentage_at_a_glance() -> None:
    """A cell that shows a percentage holds another number than it shows."""
    assert (False, True) == looked_at(workbook((b"%", b"%")))


@pytest.mark.parametrize(
    ("code", "mark"),
    [
        *dict.fromkeys(
            (
                "",
                "General",
                "0",
                "#,##0.00",
                "#,##0;[Red]-#,##0",
                "#\\ ##0",
                '#,##0"/="',
                "_(* #,##0_);_(* (#,##0)",
                "0;0%",
                '[=0]"-";0',
                "[<0]-0;0",
                "[>=0]0;-0",
                "[>0]0;[<0](0);0",
                r"[>=10000000]##\,##\,##\,##0;[>=100000]##\,##\,##0;##,##0",
                r"_-* #,##0.00\ _€_-;\-* #,##0.00\ _€_-",
                r"#\.##0",
                "# ?/16",
                "**0",
            ),
            "",
        ).items(),
        *dict.fromkeys(
            ("yyyy-mm-dd", "d\\.m\\.yy", '[h]:mm "UTC"', "[$-409]d mmm;@", "000-000-000", "[Red]0.00E+00"), ""
        ).items(),
        *dict.fromkeys(("0%", "0.00%;[Red]-0.00%", '[<1]0%;0"x"', "0\\%%"), "%").items(),
        *dict.fromkeys(
            ("$#,##0", '"$"#,##0.00', "[$$-409]#,##0", '_("$"* #,##0.00_);_("$"* "-"??_)', '[<9]0;"$"0'), "$"
        ).items(),
        *dict.fromkeys(
            ("[$UGX] #,##0", '#,##0" UGX"', "\\U\\G\\X0", '"UGX "General', '_-"UGX"* #,##0_-'), "UGX"
        ).items(),
        *{"[$USh-ug-UG]0": "USh", '"Ksh."0': "Ksh", "[$€-2] 0": "€", "£0": "£", '0"US$"': "US$", '"A$"0': "A$"}.items(),
        *{
            "[$kr-41D] 0": "kr",
            "[$R-1C09]0": "R",
            '0" FCFA"': "FCFA",
            '"usd "0': "usd",
            "¥0": "¥",
            "\uff040": "\uff04",
        }.items(),
        *dict.fromkeys(
            ("#,##0,", "0.0,,", '0,"K"', '0"000"', '[>=1000000]0.0,,"M";0', "-0", "(0)", '"\u2212"0', ";;;"), "0"
        ).items(),
        *dict.fromkeys(
            ('0"k"', '0" million"', r"0\.00", '0"."00', r"#\,##0\,00", "1#,##0", "#,##01", "0*0", '[>9]"lots";0'), "0"
        ).items(),
    ],
)
def test_what_a_format_shows_of_a_number(code: str, mark: str) -> None:
    """The number itself or a moment, a percentage, a currency, or another number than the cell holds."""
    assert mark == reader._mark(code)


def test_rows_come_as_they_are() -> None:
    """Texts, numbers and moments, some rows at a time."""
    data = workbook()
    blocks = list(reader._blocks(reader._rows(data, "Staff")))
    assert [HEADER, ["R-1", 1000.0, "Grace Akello", "0772000017", ""]] == blocks[0][:2]
    assert 6 == sum(map(len, blocks))
    moments = [date(2026, 11, 1), time(9, 30), timedelta(hours=30), None, True]
    assert [["2026-11-01"], ["09:30:00"], ["1 day, 6:00:00"], ["None"], True] == [reader._plain(one) for one in moments]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"request_id,amount\n", "damaged"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "protected by a password"),
        (workbook((b"<sheetData>", b"<sheetData><")), "damaged"),
        (workbook((b"<worksheet ", b'<!DOCTYPE x [<!ENTITY a "b">]><worksheet ')), "DOCTYPE"),
    ],
    ids=["no workbook", "protected", "not well-formed", "entities"],
)
def test_a_file_that_is_no_workbook(data: bytes, words: str) -> None:
    """Is told as such, with what to do."""
    with pytest.raises(Exception, match=words) as told:
        looked_at(data)
    assert isinstance(told.value, reader.UnreadableWorkbook) or words == "damaged"

"""A sheet is looked at by its bytes first: where they ask for nothing, each element holds nothing to tell either."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from datetime import date, time, timedelta
from random import Random
from typing import Any
from xml.parsers.expat import ExpatError

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
        styles = reader._styles(book, place)
        glimpsed, seen = reader._glance(book, part, *styles), reader._look(book, part, *styles)
    return glimpsed is not None, any(agreed(glimpsed or seen, seen))


def agreed(glimpsed: reader._Seen, seen: reader._Seen) -> tuple[object, ...]:
    """What both ways have found, which is the same; at a glance a cell may be marked in which nothing stands."""
    assert cells(seen.marks) <= cells(glimpsed.marks)
    assert (seen.rows, seen.columns, seen.formulas) == (glimpsed.rows, glimpsed.columns, glimpsed.formulas)
    return seen.rows, seen.columns, seen.marks, seen.formulas


def cells(stretches: reader._Stretches) -> set[tuple[int, int, str]]:
    """Column, row and mark of each."""
    found = ((column, *one) for column, several in stretches.items() for one in several)
    return {(column, row, mark) for column, first, last, mark in found for row in range(first, last + 1)}


@pytest.mark.parametrize("name", EDITS)
def test_a_glance_at_a_sheet(name: str) -> None:
    """Nothing that a person must be told of is passed over, and a plain sheet costs a glance alone."""
    edits, is_told = EDITS[name]
    is_plain, found = looked_at(workbook(*edits))
    assert is_told is found
    assert is_plain is not found


def test_a_percentage_at_a_glance() -> None:
    """A cell that shows a percentage holds another number than it shows: a glance tells where it is."""
    assert (True, True) == looked_at(workbook((b"%", b"%")))


PIECES = [
    *(
        b"<",
        b">",
        b'"',
        b"/",
        b"&",
        b"x",
        b"\0",
        b"\xc3\xa9",
        b"\xff",
        b"]]>",
        b"<!--",
        b"-->",
        b"<?a ",
        b"?>",
        b"<x>",
        b"</x>",
    ),
    *(b"<c>", b"</c>", b"<v>", b"</v>", b"<c/>", b'<row r="7">', b"</row>", b"<f>1</f>", b' hidden="1"', b' s="1"'),
    *(b'<c r="A2"/>', b'<c r="B4" s="1"/>', b'<c r="P99999" s="1"><v>1</v></c>', b'<c r="Q4" s="1"><v>1</v></c>'),
    *(b'<c s="1" r="C5"><v>1</v></c>', b'<c r="C5" s="1"><f>1</f><v>1</v></c>', b"<c r='C5' s='1'><v>1</v></c>"),
    b'<c r="B4" s="1" t="inlineStr"><is><t xml:space="preserve"> a</t></is></c>',
]


class Parts:
    """An archive of one part."""

    def __init__(self, part: bytes) -> None:
        self.part = part

    def namelist(self) -> list[str]:
        """Its name."""
        return ["part"]

    def open(self, _: str) -> io.BytesIO:
        """Its bytes."""
        return io.BytesIO(self.part)


@pytest.mark.parametrize("size", [500, 2**20])
def test_a_sheet_with_anything_anywhere(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A glance finds what the look at each element finds, leaves it to that look, or finds the same damage."""
    monkeypatch.setattr(reader, "_LARGE_PIECE", size)
    with zipfile.ZipFile(io.BytesIO(workbook((b"%", b"%")))) as book:
        sheet = book.read(SHEET)
    draw, counts = Random(17), Counter[str]()
    for _ in range(3000):
        made = bytearray(sheet)
        for _ in range(draw.choice((1, 1, 1, 2))):
            ends = [place + 1 for place, sign in enumerate(made) if sign == ord(">")]
            place = draw.choice((draw.choice(ends), draw.choice(ends) - draw.randrange(2), draw.randrange(len(made))))
            made[place : place + draw.choice((0, 0, 0, 1, 9))] = draw.choice(PIECES)
        book_of_it: Any = Parts(bytes(made))
        try:
            glimpsed = reader._glance(book_of_it, "part", {"1": "%"})
        except (ExpatError, LookupError):
            counts["damaged"] += 1
            with pytest.raises((ExpatError, LookupError, reader.UnreadableWorkbook)):
                reader._look(book_of_it, "part", {"1": "%"})
            continue
        if glimpsed is not None:
            counts["plain"] += 1
            agreed(glimpsed, reader._look(book_of_it, "part", {"1": "%"}))
    assert min(counts["plain"], counts["damaged"]) > 100, counts


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
                "_(* #,##0_);_(* (#,##0)",
                "0;0%",
                '[=0]"-";0',
                "[<0]-0;0",
                "[>=0]0;-0",
                "[>0]0;[<0](0);0",
                r"[>=10000000]##\,##\,##\,##0;[>=100000]##\,##\,##0;##,##0",
                r"_-* #,##0.00\ _€_-;\-* #,##0.00\ _€_-",
                r"#\.##0",
                "**0",
            ),
            "",
        ).items(),
        *dict.fromkeys(
            ("yyyy-mm-dd", "d\\.m\\.yy", '[h]:mm "UTC"', "[$-409]d mmm;@", "000-000-000", "d/m/yy h:mm:ss.0"), ""
        ).items(),
        *dict.fromkeys(('#,##0"/="', '_-* #,##0"/="_-', "0\\/\\="), "/=").items(),
        *{'#,##0"/-"': "/-", '0"/"-': "/-", '"UGX "0"/="': "UGX", '0"/"0': ""}.items(),
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
        *dict.fromkeys(("# ?/16", "# ??/??", "[Red]0.00E+00", "##0.0E+0", "0e-0"), "0").items(),
    ],
)
def test_what_a_format_shows_of_a_number(code: str, mark: str) -> None:
    """The number itself or a moment, a percentage, a currency, or another number than the cell holds."""
    assert mark == reader._mark(code)


@pytest.mark.parametrize(
    ("code", "decimals"),
    [
        *dict.fromkeys(
            ("0", "#,##0", '"UGX "#,##0', "_(* #,##0_);_(* (#,##0.00)", "[>=0]0;-0.00", "0.", "0;;"), "0"
        ).items(),
        *dict.fromkeys(("0.0", "#,##0.#", '0.0" UGX"'), "1").items(),
        *dict.fromkeys(
            ("", "General", "0.00", "#,##0.000", "@", "# ?/?", "0.0E+00", "d.m.yy", "mm:ss.0", ";;;"), ""
        ).items(),
    ],
)
def test_how_many_decimals_a_format_shows(code: str, decimals: str) -> None:
    """Where it shows fewer than money has; a moment, a fraction or a text shows no such number."""
    assert decimals == reader._decimals(code)


POINTED = [
    *(b'<c r="B4" s="1"><v>1.5</v></c>', b'<c r="Q4" s="1"><v>1.5</v></c>', b'<c r="B4" s="1" t="n"><v>1.5</v></c>'),
    *(b"<c s='1' r='B4'><v>1.5</v></c>", b'<c r="B4" s="1" cm="1"><v>1.5</v></c>', b'<c r="B4" s="2"><v>1.5</v></c>'),
    *(b'<c r="B4" s="1"><v>\n1.5</v></c>', b'<c r="B4" s="1"><v >1.5</v></c>', b'<c r="B4" s="1"><x/><v>1.5</v></c>'),
]


@pytest.mark.parametrize("size", [300, 2**20])
def test_a_glance_finds_each_number_with_a_point(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Of a style that hides decimals; or it leaves the sheet to the look at each element."""
    monkeypatch.setattr(reader, "_LARGE_PIECE", size)
    with zipfile.ZipFile(io.BytesIO(workbook())) as book:
        sheet = book.read(SHEET)
    draw, found = Random(17), 0
    ends = [match.end() for match in re.finditer(rb"</c>", sheet)]
    for _ in range(500):
        place = draw.choice(ends)
        made = sheet[:place] + draw.choice(POINTED) + draw.choice(POINTED) + sheet[place:]
        book_of_it: Any = Parts(made)
        seen = reader._look(book_of_it, "part", {}, {"1": "0"})
        assert {(2, 4, "0"), (17, 4, "0")} >= cells(seen.rounded)
        if (glimpsed := reader._glance(book_of_it, "part", {}, {"1": "0"})) is not None:
            assert cells(glimpsed.rounded) == cells(seen.rounded)
            found += bool(glimpsed.rounded)
    assert found > 50


def test_rows_come_as_they_are() -> None:
    """Texts, numbers and moments, some rows at a time."""
    left, rows = reader._rows(workbook(), "Staff")
    blocks = list(map(json.loads, reader._blocks(rows)))
    assert 1 == left
    assert [HEADER, ["R-1", 1000.0, "Grace Akello", "0772000017", ""]] == blocks[0][:2]
    assert 6 == sum(map(len, blocks))
    moments = [date(2026, 11, 1), time(9, 30), timedelta(hours=30)]
    told = ["2026-11-01", "09:30:00", "1 day, 6:00:00"]
    assert [[{"moment": text} for text in told]] == json.loads(next(reader._blocks(iter([moments]))))
    truths = [True, False, "true"]
    assert [["TRUE", "FALSE", "true"]] == json.loads(next(reader._blocks(iter([truths]))))


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

"""Reads one sheet of a workbook, in a process of its own with little memory and time: a workbook may be a trap.

Its process runs `main`. On standard input come a line of JSON (the name of the sheet or null, whether to look at it,
the folder of python-calamine), and then the workbook; on standard output a line of JSON about the sheet, then its rows,
many on each line: texts and numbers as they are, a moment as an object. It imports nothing of this package, so that it
starts at once.
"""

from __future__ import annotations

import gc
import io
import json
import os
import posixpath
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from xml.parsers import expat

# Generous for a payroll: 600,000 rows of fifteen columns are let through.
_LARGEST_FILE = 256 * 2**20
_LARGEST_UNPACKED = 2**30
_HIGHEST_RATIO = 250  # a spreadsheet's own are below 50
_SMALL = 64 * 2**20  # bytes unpacked below which the ratio does not matter
_MOST_PARTS = 10_000
_MOST_CELLS = 10_000_000  # from the first row and column to the last one with something in it: the reader keeps all
_MEMORY = 3 * 2**30
_SECONDS = 240  # of computing

_PIECE = 2**16
_BLOCK = 2**18  # characters on one line of output, and some rows more
_SOME = 64  # rows
_LONGEST_ROW = 2**20  # characters, as in a text file
_LONGEST_CELL = 2**15  # the format allows no more
_OLD = b"\xd0\xcf\x11\xe0"
_YES = frozenset({"1", "true"})
_HEIGHTLESS = frozenset({"0", "0.0"})
# How a number is shown: the pieces of a format are literals, a currency, a condition or a colour, what fills a gap, and
# all the rest.
_FORMAT = re.compile(
    r""""(?P<text>[^"]*)"|\\(?P<sign>.)|\[\$(?P<currency>[^\]-]*)[^\]]*\]|\[(?P<choice>[<>=]+)(?P<limit>[^\]]*)\]"""
    r"""|\[[^\]]*\]|\*(?P<fill>.)|_.|(?P<rest>.)""",
    re.DOTALL,
)
_CURRENCY = re.compile(
    r"(?:(?<![A-Za-z])[A-Z]{1,2})?\$|[\xa2-\xa5\u20a0-\u20cf\ufe69\uff04\uffe0-\uffe6]|"
    r"(?<![A-Za-z])(?:[A-Z]{3}|(?i:[ukt]shs?|ugx|usd|kes|tzs|frw|rwf|euros?|eur|gbp|f?cfa|dollars?))(?![A-Za-z])|"
    r"/[=-]"  # shillings
)
_POINT = re.compile(r"\0[.,]\0{1,2}(?![\0.,])")  # a literal one, before the last digits: a number that looks smaller
_MULTIPLE = re.compile(r"\0 ?(?i:k|m|mn|mln|bn|hundreds?|thousands?|lakhs?|[mb]illions?)(?![A-Za-z])")
_PARTS = re.compile("e[+-]|[0#?]/")  # of a power of ten, 1.5E+06, or a fraction, 1500 1/2: either hides digits
_THOUSANDTH = re.compile(r"[0#?],+(?![0#?,])")  # a comma behind the digits divides by a thousand
_INEXACT = "eymdhs@/%"  # with one of them it shows no such number: a moment, a fraction, a power of ten
_LITERALS = "$()+- "  # shown as they are, without quotation marks
_NEGATIVE = ("-", "\u2212", "(")
_USUAL = "0"  # the style of a cell that names none
_FEW = 50  # styles that are looked for at a glance: among many, each cell takes longer than to look at it
_PERCENT = "%"
_OTHER = "0"
_STRUCK = "-"
_REFUSED = (_PERCENT, _OTHER, _STRUCK)  # whatever number the cell holds
_DIGITS = "123456789"
_NEVER, _ALWAYS = ("<", "<=", "="), (">", ">=", "<>")  # conditions on a number above zero, by a limit that is not
# Per cent, powers of ten and fractions; those of money look otherwise in each country.
_BUILT_IN = {"9": _PERCENT, "10": _PERCENT, **dict.fromkeys(("11", "12", "13", "48"), _OTHER)}
_WHOLE_BUILT_IN = dict.fromkeys(("1", "3", "5", "6", "37", "38", "41", "42"), "0")  # show no decimal
_CENTS = 2  # decimals of money: a format that shows as many hides nothing
# What the bytes of a sheet have where there may be something hidden, a formula, or more than meets the eye: a size or a
# flag that is not surely harmless, a definition or a comment, a letter written as a number, UTF-16.
_ASKS = tuple(  # one by one, each is found by the letters it begins with: much faster than all of them at once
    re.compile(ask)
    for ask in (
        rb"""hidden\s*=\s*["'](?!(?:0|false)["'])""",
        rb"""zeroHeight\s*=\s*["'](?!(?:0|false)["'])""",
        rb"""ht(?<=\sht)\s*=\s*["'](?![1-9])""",
        rb"""width(?<=\swidth)\s*=\s*["'](?![1-9])""",
        rb"<f[\s/>]",
        rb"<!",
        rb"&#",
        rb"\0",
    )
)
# Cells as they mostly are, one after the other: well-formed by themselves, without any of these, and not far away.
_TEXT = rb"[^<>&\0-\37\177-\377]*+"
_NEAR = rb'<c r="([A-P])([0-9]{1,5})"'
_CELLS = re.compile(
    rb"""(?:%b(?: s="[0-9]++")?+(?: t="[A-Za-z]++")?+"""
    rb"""(?:/>|><(?:v>%b</v|is><t(?: xml:space="preserve")?+>%b</t></is)></c>))++"""
    % (_NEAR.replace(b"(", b"(?:"), _TEXT, _TEXT)
)
_IN_THEIR_PLACE = b"<_/><_/>"  # well-formed wherever some of them are: two, for a document has one root alone
# A cell whose value has a point, and one that is written otherwise than spreadsheets do.
_POINTED = re.compile(rb"""<c r="([A-Z]{1,3})([0-9]{1,7})" s="([0-9]+)"(?: t="[A-Za-z]+")?><v>[^<]*\.""")
_ODD = re.compile(rb"""<c\b(?! r="[A-Z]{1,3}[0-9]{1,7}"(?: s="[0-9]+")?(?: t="[A-Za-z]+")?(?:/>|><(?:v>|is>|/c>)))""")
_PREFIX = re.compile(rb"""xmlns:([^\s=]+)""")
_PLACES = re.compile(rb"""<c(?: r="([A-Z]{1,3}[0-9]{1,7})"|[\s/>])""")
_LARGE_PIECE = 2**20
_NONE: Mapping[str, str] = {}
_CSV = "export the sheet as CSV"

_DAMAGED = "the workbook is damaged, or no workbook; open it in a spreadsheet and save it as XLSX again"
_PROTECTED = (
    "an old workbook (.xls), or one protected by a password; open it in a spreadsheet and save it as XLSX, without a "
    "password"
)
_DOCTYPE = "the workbook defines entities (DOCTYPE), as no spreadsheet does; ask where it came from"
_TOO_LARGE = f"the workbook is too large to be read as one; {_CSV}"


_Stretches = dict[int, list[tuple[int, int, str]]]  # by column: first and last row, and what all between them have


class UnreadableWorkbook(Exception):
    """The workbook is bad input; the text is the remedy."""


def main() -> None:
    """Write what there is to say of a workbook, and then its rows."""
    _limit()
    gc.disable()  # nothing here refers to itself
    with os.fdopen(1, "wb") as out:
        try:
            for told in _told():
                out.write(told.encode() + b"\n")
            last: dict[str, object] = {"end": True}
        except UnreadableWorkbook as error:
            last = {"error": str(error)}
        except MemoryError:
            last = {"error": _TOO_LARGE}
        except ImportError as error:
            last = {"error": f"the Python that reads workbooks cannot import a library ({error}); {_CSV}"}
        except BaseException:  # noqa: BLE001 - the reader panics with one that is not an Exception
            last = {"error": _DAMAGED}
        with suppress(BrokenPipeError):
            out.write(json.dumps(last).encode() + b"\n")
            out.flush()


def _limit() -> None:
    """Take no more than this, where the operating system can see to it."""
    with suppress(ImportError):
        import resource

        for what, most in (("AS", _MEMORY), ("CPU", _SECONDS), ("CORE", 0)):
            with suppress(ValueError, OSError):  # not every system has every limit
                # to who checks for Windows there is no such function
                resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (most, most))  # type: ignore[attr-defined,unused-ignore]


def _told() -> Iterator[str]:
    with os.fdopen(0, "rb") as file:
        sheet, looks, folder = json.loads(file.readline())
        sys.path.append(folder)  # where the program that asks has its library, whatever its own paths are
        data = file.read(_LARGEST_FILE + 1)
    if len(data) > _LARGEST_FILE:
        raise UnreadableWorkbook(_TOO_LARGE)
    with _opened(data) as book:
        place = _place_of_book(book)
        sheets, shown = _sheets(book, place)
        names = [name for name, _, _ in sheets]
        if not sheets:
            raise UnreadableWorkbook("the workbook has no sheet")
        if sheet is not None and sheet not in names:
            raise UnreadableWorkbook(
                f"sheet: the workbook has no sheet {sheet!r}; it has {', '.join(map(repr, names))}"
            )
        name, state, relation = sheets[0 if sheet is None else names.index(sheet)]
        seen = _Seen({})
        if looks:
            part, styles = _relations(book, place).get(relation, ""), _styles(book, place)
            seen = _glance(book, part, *styles) or _look(book, part, *styles)
    left, rows = _rows(data, name)
    about = {
        "name": name,
        "others": [other for other in names if other != name],
        "shown": names[shown] if shown < len(names) else name,
        "is_hidden": state in ("hidden", "veryHidden"),
        "rows": sorted(seen.rows),
        "columns": sorted(column - left for column in seen.columns if column >= left),
        "marks": _positions(seen.marks, left),
        "rounded": _positions(seen.rounded, left),
        "formulas": _positions(seen.formulas, left),
    }
    yield json.dumps(about)
    yield from _blocks(rows)


def _positions(stretches: _Stretches, left: int) -> _Stretches:
    """These stretches by where their columns stand in a row that is read, from 0."""
    return {column - left: rows for column, rows in stretches.items() if column >= left}


def _blocks(rows: Iterator[Sequence[object]]) -> Iterator[str]:
    """Rows as JSON, some at a time. The text of all is as long as any of its cells, and most are short."""
    told: list[str] = []
    length = 0
    while some := list(islice(rows, _SOME)):
        all_of_them = _told_of(some)
        is_usual = len(all_of_them) <= _LONGEST_CELL and "true" not in all_of_them and "false" not in all_of_them
        for text in (all_of_them,) if is_usual else (_told_of([_checked(row)]) for row in some):
            told.append(text[1:-1])
            length += len(text)
            if length >= _BLOCK:
                yield f"[{','.join(told)}]"
                told, length = [], 0
    yield f"[{','.join(told)}]"


def _rows(data: bytes, name: str) -> tuple[int, Iterator[Sequence[object]]]:
    """The column that rows begin with, from 1, and the rows: empty columns on the left are not read."""
    import python_calamine

    cells = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data)).get_sheet_by_name(name)
    if cells.start is None:
        return 1, iter(())  # before 0.9, it panics at the rows of an empty sheet
    return cells.start[1] + 1, cells.iter_rows()


def _checked(row: Sequence[object]) -> list[object]:
    """A row of texts and numbers that are no longer than they may be."""
    cells = [_plain(cell) for cell in row]
    if sum(len(cell) if isinstance(cell, str) else 8 for cell in cells) > _LONGEST_ROW:
        raise UnreadableWorkbook(f"a row holds more than {_LONGEST_ROW:,} characters; is it the right sheet?")
    return cells


def _plain(cell: object) -> object:
    """A cell as it is told: a truth as a spreadsheet shows it."""
    if isinstance(cell, str):
        return cell[:_LONGEST_CELL]
    return str(cell).upper() if isinstance(cell, bool) else cell


def _moment(cell: object) -> dict[str, str]:
    """A date or a time, by its methods: to import its class took a tenth of the start."""
    return {"moment": cell.isoformat() if hasattr(cell, "isoformat") else str(cell)}


_told_of = json.JSONEncoder(default=_moment, separators=(",", ":")).encode


def _look(book: zipfile.ZipFile, place: str, styles: Mapping[str, str], rounding: Mapping[str, str] = _NONE) -> _Seen:
    """What is seen of a sheet where each element is looked at."""
    seen = _Seen(styles, rounding)
    _parse(book, place, seen.begin)
    return seen


def _glance(
    book: zipfile.ZipFile, place: str, styles: Mapping[str, str], rounding: Mapping[str, str] = _NONE
) -> _Seen | None:
    """What is seen where the bytes of a sheet show that nothing is hidden, a formula or far away; ``None`` elsewhere.

    That takes a fifth of the time that it takes to look at each element. The sheet must be well-formed all the same:
    usual cells are, and a parser takes the rest.
    """
    if _USUAL in styles or _USUAL in rounding or len(styles) > _FEW:
        return None
    asks, marked = list(_ASKS), None
    if styles:
        numbers = "|".join(styles).encode()
        asks.append(re.compile(rb"""s(?<=\ss)\s*=\s*["'](?:%b)["']""" % numbers))
        marked = re.compile(rb'%b s="(%b)"' % (_NEAR, numbers))
    parser, declared, is_utf8 = expat.ParserCreate(), set[bytes](), True

    def told(_version: str, encoding: str | None, _standalone: int) -> None:
        nonlocal is_utf8
        is_utf8 = encoding is None or encoding.lower() == "utf-8"

    if rounding:
        asks.append(_ODD)
    parser.XmlDeclHandler = told
    seen = _Seen(styles, rounding)
    cells, columns, rows = 0, {b"A", b"P"}, {b"1", b"99999"}  # where usual cells may be
    with book.open(_member(book, place)) as part:
        rest, is_last = b"", False
        while not is_last:
            more = part.read(_LARGE_PIECE)
            piece, is_last = rest + more, not more
            whole = _end_of_cells(piece, is_last=is_last)
            piece, rest = piece[:whole], piece[whole:]
            cells += piece.count(b"<c ")
            seen.take_piece(piece, marked)
            piece = _CELLS.sub(_IN_THEIR_PLACE, piece)
            parser.Parse(piece, False)
            declared.update(_PREFIX.findall(piece))
            if not is_utf8 or len(rest) > _LARGE_PIECE or any(ask.search(piece) for ask in asks):
                return None
            places = _PLACES.findall(piece)
            if b"" in places or any(b"<%b:" % prefix in piece for prefix in declared):
                return None
            joined = b",".join(places)
            columns.update(joined.translate(None, b"0123456789").split(b","))
            rows.update(joined.translate(None, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ").split(b","))
        parser.Parse(rest, True)
    area = _breadth(_column(one.decode()) for one in columns if one) * _breadth(int(one) for one in rows if one)
    return seen if max(cells, area) <= _MOST_CELLS else None


def _end_of_cells(piece: bytes, *, is_last: bool) -> int:
    """Where whole elements end in a piece of a sheet; no cell goes on behind it."""
    end, begin = piece.rfind(b"</c>"), piece.rfind(b"<c ")
    if is_last or (begin < 0 and end < 0):
        return piece.rfind(b">") + 1
    return end + 4 if end >= 0 else begin


def _breadth(numbers: Iterable[int]) -> int:
    found = sorted(numbers)
    return found[-1] - found[0] + 1


class _Seen:
    """What was seen of a sheet so far. Its dimension is measured: what it says of itself is too often wrong.

    Attributes:
        rows: Numbers of hidden rows with something in them.
        columns: Hidden columns, from 1.
        styles: The marks of styles whose cells show more than their number, or another one.
        formulas: Where these are.
        marks: Where cells of such styles are, with their mark.
        rounding: How many decimals styles show that show fewer than money has.
        rounded: Where cells of these are, with that number: at least those that hold a number with a point.
    """

    def __init__(self, styles: Mapping[str, str], rounding: Mapping[str, str] = _NONE) -> None:
        self.rows: set[int] = set()
        self.columns: set[int] = set()
        self.marks: _Stretches = {}
        self.formulas: _Stretches = {}
        self.rounded: _Stretches = {}
        self.styles = styles
        self.rounding = rounding
        self._style = _USUAL
        self._row = self._column = 0
        self._place: str | None = None
        self._letters: set[str | int] = set()  # of the columns with something in them
        self._left, self._right, self._top, self._bottom = 2**31, 0, 0, 0
        self._cells = 0
        self._is_hidden = False
        self._by_default = False

    def begin(self, tag: str, values: Mapping[str, str]) -> None:
        """Take the beginning of an element. The usual ones come first: there are millions of them."""
        if tag == "c":
            self._column += 1
            self._place = values.get("r")
            self._style = values.get("s", _USUAL)
        elif tag in ("v", "is"):
            self._take_value()
            if self._style in self.styles:
                self.mark(self._style, *self._cell())
            if self._style in self.rounding:
                self.round(self._style, *self._cell())
        elif tag == "f":
            _take_stretch(self.formulas, "=", *self._cell())
        elif tag == "row":
            self._row = _number(values.get("r")) or self._row + 1
            self._column = 0
            self._is_hidden = _is_hidden(values, "ht", by_default=self._by_default)
        elif tag == "col" and _is_hidden(values, "width"):
            first = max(_number(values.get("min")), 1)
            self.columns.update(range(first, min(max(_number(values.get("max")), first), first + _PIECE) + 1))
        elif tag == "sheetFormatPr":
            self._by_default = values.get("zeroHeight") in _YES

    def mark(self, style: str, row: int, column: str | int) -> None:
        """Take a cell of a style that has a mark."""
        _take_stretch(self.marks, self.styles[style], row, column)

    def take_piece(self, piece: bytes, marked: re.Pattern[bytes] | None) -> None:
        """Take a piece of the sheet as it is written, in which this finds cells of the styles that have a mark."""
        for column, row, style in marked.findall(piece) if marked else ():
            self.mark(style.decode(), int(row), column.decode())
        for column, row, style in _POINTED.findall(piece) if self.rounding and b"." in piece else ():
            if (number := style.decode()) in self.rounding:
                self.round(number, int(row), column.decode())

    def round(self, style: str, row: int, column: str | int) -> None:
        """Take a cell that may show fewer decimals than it holds."""
        _take_stretch(self.rounded, self.rounding[style], row, column)

    def _cell(self) -> tuple[int, str | int]:
        """Row and column of the cell that has begun."""
        place = self._place
        if place is None:
            return self._row, self._column  # a column without a name
        letters = place.rstrip("0123456789")
        return _number(place[len(letters) :]) or self._row, letters

    def _take_value(self) -> None:
        row, letters = self._cell()
        self._row = row
        self._cells += 1
        if row != self._bottom or letters not in self._letters:
            self._grow(row, letters)
        if self._is_hidden:
            self.rows.add(row)

    def _grow(self, row: int, letters: str | int) -> None:
        self._letters.add(letters)
        column = _column(letters)
        self._left, self._right = min(self._left, column), max(self._right, column)
        self._top, self._bottom = min(self._top or row, row), max(self._bottom, row)
        area = (self._right - self._left + 1) * (self._bottom - self._top + 1)
        if area > _MOST_CELLS or self._cells > _MOST_CELLS:
            raise UnreadableWorkbook(
                f"the sheet reaches to row {self._bottom:,} and column {self._right:,}, which is too large to be read; "
                f"delete what stands far away from the payments, or {_CSV}"
            )


def _take_stretch(stretches: _Stretches, mark: str, row: int, column: str | int) -> None:
    rows = stretches.setdefault(_column(column), [])
    if rows and rows[-1][1] == row - 1 and rows[-1][2] == mark:
        rows[-1] = (rows[-1][0], row, mark)
    elif not rows or rows[-1][1] < row:  # what jumps back was not written by a spreadsheet
        rows.append((row, row, mark))


def _column(letters: str | int) -> int:
    """The number of a column such as ``CZ``, from 1; one that has no name has its number already."""
    if isinstance(letters, int):
        return letters
    column = 0
    for letter in letters[:4].upper():
        column = column * 26 + ord(letter) - 64
    return max(column, 1)


def _is_hidden(values: Mapping[str, str], size: str, *, by_default: bool = False) -> bool:
    told = values.get("hidden")
    return (by_default if told is None else told in _YES) or values.get(size) in _HEIGHTLESS


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 8 else 0


@contextmanager
def _opened(data: bytes) -> Iterator[zipfile.ZipFile]:
    """The archive of a workbook, if it may be unpacked; whatever is wrong with it is bad input."""
    if data.startswith(_OLD):
        raise UnreadableWorkbook(_PROTECTED)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as book:
            parts = book.infolist()
            unpacked = sum(part.file_size for part in parts)
            is_bomb = unpacked > _SMALL and unpacked > _HIGHEST_RATIO * len(data)
            if len(parts) > _MOST_PARTS or unpacked > _LARGEST_UNPACKED or is_bomb:
                raise UnreadableWorkbook(_TOO_LARGE)
            yield book
    except (zipfile.BadZipFile, zlib.error, expat.ExpatError, KeyError, EOFError, NotImplementedError) as error:
        raise UnreadableWorkbook(_DAMAGED) from error
    except RuntimeError as error:  # what zipfile raises for a part with a password
        raise UnreadableWorkbook(_PROTECTED) from error


def _place_of_book(book: zipfile.ZipFile) -> str:
    for kind, target in _targets(book, "_rels/.rels", "").values():
        if kind.endswith("officeDocument"):
            return target
    raise UnreadableWorkbook(_DAMAGED)


def _sheets(book: zipfile.ZipFile, place: str) -> tuple[list[tuple[str, str, str]], int]:
    """Name, visibility and relation of each sheet; and on which of them the workbook opens."""
    found: list[tuple[str, str, str]] = []
    shown = [0]

    def begin(tag: str, values: Mapping[str, str]) -> None:
        if tag == "workbookView":
            shown.append(_number(values.get("activeTab")))
        elif tag == "sheet":
            relation = next((text for name, text in values.items() if name.rpartition(":")[2] == "id"), "")
            found.append((values.get("name", ""), values.get("state", "visible"), relation))

    _parse(book, place, begin)
    return found, shown[-1]


def _styles(book: zipfile.ZipFile, place: str) -> tuple[dict[str, str], dict[str, str]]:
    """Two kinds of styles of cells, as cells name them.

    Those that show more than what a cell holds, or something else, with a mark; and those that show fewer decimals than
    money has, with their number.
    """
    folder, name = posixpath.split(place)
    targets = _targets(book, posixpath.join(folder, "_rels", f"{name}.rels"), folder).values()
    part = next((target for kind, target in targets if kind.endswith("/styles")), None)
    if part is None:
        return {}, {}
    marks, wholes = dict(_BUILT_IN), dict(_WHOLE_BUILT_IN)
    styles: list[tuple[str, str]] = []
    struck: list[bool] = []  # of each font
    within = ""

    def begin(tag: str, values: Mapping[str, str]) -> None:
        nonlocal within
        if tag == "numFmt":
            number, code = values.get("numFmtId", ""), values.get("formatCode", "")
            marks[number], wholes[number] = _mark(code), _decimals(code)
        elif tag in ("fonts", "cellStyleXfs", "cellXfs", "cellStyles", "dxfs"):
            within = tag
        elif tag == "font" and within == "fonts":
            struck.append(False)
        elif tag == "strike" and within == "fonts":
            struck[-1] = values.get("val", "1") in _YES
        elif tag == "xf" and within == "cellXfs":
            font = _number(values.get("fontId"))
            is_struck = True in struck[font : font + 1]
            kind = values.get("numFmtId", "")
            mark = _STRUCK if is_struck else marks.get(kind, "")
            styles.append((mark, wholes.get(kind, "") if mark not in _REFUSED else ""))

    _parse(book, part, begin)
    numbered = [(str(number), *both) for number, both in enumerate(styles)]
    return {one: mark for one, mark, _ in numbered if mark}, {one: some for one, _, some in numbered if some}


def _mark(code: str) -> str:
    """What a format shows of a number above zero: ``%``, a currency such as ``$`` or ``UGX``, ``0`` for another number.

    Empty where it shows the number itself, or a moment: those are told apart from numbers elsewhere.
    """
    return next(filter(None, (section.mark() for section in _sections(code))), "")


def _decimals(code: str) -> str:
    """How many decimals a format shows of a number above zero, if it shows fewer than money has; else it is empty."""
    found = min((section.decimals() for section in _sections(code)), default=_CENTS)
    return str(found) if found < _CENTS else ""


def _sections(code: str) -> Iterator[_Section]:
    """The sections of a format that a number above zero may be shown by."""
    sections = [_Section()]
    for piece in _FORMAT.finditer(code or "General"):
        if piece["rest"] == ";":
            sections.append(_Section())
        else:
            sections[-1].take(piece)
    has_choice = any(section.choice for section in sections)
    for section in sections:
        if section.choice in _NEVER:
            continue
        yield section
        if not has_choice or section.choice in _ALWAYS:
            break


class _Section:
    """One section of a format.

    Attributes:
        words: What it shows, with NUL for each sign that stands for digits.
        signs: These signs.
        currency: What it names as a currency.
        choice: Which numbers it is for, ``+`` behind it where that begins above zero; empty where it does not say.
    """

    def __init__(self) -> None:
        self.words = self.signs = self.currency = self.choice = ""

    def take(self, piece: re.Match[str]) -> None:
        """Take the next piece."""
        rest = piece["rest"] or ""
        self.words += rest if rest in _LITERALS or not rest.isascii() else "\0"
        self.words += piece["text"] or piece["sign"] or piece["fill"] or piece["currency"] or ""
        self.signs += rest.lower()
        self.currency += piece["currency"] or ""
        if limit := piece["limit"]:
            self.choice = piece["choice"] + "+" * (limit[0] != "-" and any(digit in limit for digit in _DIGITS))

    def decimals(self) -> int:
        """How many decimals it shows, where it shows a number with all that stands before them."""
        whole, _, decimals = self.signs.partition(".")
        if not any(sign in whole for sign in "0#?") or any(sign in self.signs for sign in _INEXACT):
            return _CENTS
        return sum(map(decimals.count, "0#?"))

    def mark(self) -> str:
        """What it shows, as a format's mark."""
        words, signs = self.words, self.signs
        if _PERCENT in signs:
            return _PERCENT
        if not any(sign in signs for sign in ("0", "#", "?", "@", "general")):
            return "" if any(sign in signs for sign in "ymdhs") else _OTHER
        is_scaled = _PARTS.search(signs) or _THOUSANDTH.search(signs) or _MULTIPLE.search(words) or _POINT.search(words)
        has_digits = any(map(str.isdecimal, words)) or any(digit in signs for digit in _DIGITS)
        if is_scaled or has_digits or words.lstrip()[:1] in _NEGATIVE:
            return _OTHER
        found = _CURRENCY.search(words)
        return found[0] if found else self.currency.strip(" .") if any(map(str.isalpha, self.currency)) else ""


def _relations(book: zipfile.ZipFile, place: str) -> dict[str, str]:
    folder, name = posixpath.split(place)
    told = _targets(book, posixpath.join(folder, "_rels", f"{name}.rels"), folder)
    return {relation: target for relation, (_, target) in told.items()}


def _targets(book: zipfile.ZipFile, place: str, folder: str) -> dict[str, tuple[str, str]]:
    """Kind and place of each part that another one names."""
    found: dict[str, tuple[str, str]] = {}

    def begin(tag: str, values: Mapping[str, str]) -> None:
        if tag == "Relationship":
            target = values.get("Target", "")
            inside = target[1:] if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
            found[values.get("Id", "")] = values.get("Type", ""), inside

    _parse(book, place, begin)
    return found


def _parse(book: zipfile.ZipFile, place: str, begin: Callable[[str, Mapping[str, str]], None]) -> None:
    """Read a part a piece at a time. Definitions of its own are refused: they can grow without end."""

    def started(tag: str, values: dict[str, str]) -> None:
        begin(tag.rpartition(":")[2] if ":" in tag else tag, values)

    def refuse(*_: object) -> None:
        raise UnreadableWorkbook(_DOCTYPE)

    parser = expat.ParserCreate()
    parser.StartElementHandler = started
    parser.StartDoctypeDeclHandler = refuse
    with book.open(_member(book, place)) as part:
        while piece := part.read(_PIECE):
            parser.Parse(piece, False)
        parser.Parse(b"", True)


def _member(book: zipfile.ZipFile, place: str) -> str:
    """The part of that name, whose case some programs get wrong."""
    names = book.namelist()
    return place if place in names else next((name for name in names if name.casefold() == place.casefold()), place)

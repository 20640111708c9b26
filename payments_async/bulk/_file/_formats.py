"""Rows of a batch file, whichever of the three formats it has. Knows where a row stands, not what it means."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Literal, NamedTuple

import attrs
import msgspec

from payments_async.bulk._file._cells import NumberCell
from payments_async.bulk._file._columns import Columns, column_named, match_columns
from payments_async.bulk._file._source import CheckedFile, Fingerprint, check_unchanged
from payments_async.bulk._file._workbooks import Sheet, open_sheet

__all__ = ["Layout", "Row", "Table", "find_delimiter", "format_of", "open_table"]

Format = Literal["csv", "jsonl", "xlsx"]
_LONGEST_LINE = 2**20
_LONGEST_INT = 4000  # digits
_USUAL = ",;\t|"  # the first of two that fit equally well is taken
_SEPARATOR_LINE = re.compile(r"sep=(.)\s*", re.I | re.S)
# A comma in an amount without quotation marks ends a cell: 1,500 becomes 1 and 500, and 1500,50 loses its 50.
_GROUPING = frozenset(",.' ")
_FIRST_GROUP = re.compile(r"(?:[A-Za-z]{3,4}\.? ?)?[1-9][0-9]{0,2}", re.ASCII)
_WHOLE_AMOUNT = re.compile(
    r"(?:[A-Za-z]{3,4}\.? ?)?(?:[1-9][0-9]{3,}|[0-9]+\.[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+.*)", re.ASCII
)
_MIDDLE_GROUP = re.compile(r"[0-9]{3}", re.ASCII)
_LAST_GROUP = re.compile(r"[0-9]{3}(?:\.[0-9]{1,2})?(?: ?[A-Za-z]{3,4}|/=|/-)?", re.ASCII)
_ANY_WHOLE = re.compile(r"(?:[A-Za-z]{3,4}\.? ?)?[0-9]+", re.ASCII)
_CENTS = re.compile(r"[0-9]{2}(?: ?[A-Za-z]{3,4}|/=|/-)?", re.ASCII)
_WORDS = frozenset({"message", "metadata"})  # columns in which nobody writes a bare number of two or three digits
_exact_json = msgspec.json.Encoder(decimal_format="number")


class Torn(NamedTuple):
    """A row read otherwise: its amount may go on in the next cells.

    Attributes:
        cells: As in ``Row``, with the amount in one piece.
        may_be_code: The next column may hold codes of three digits, so that the amount ends where it seems to.
    """

    cells: dict[str, str]
    may_be_code: bool


class Row(NamedTuple):
    """One row with something in it.

    Attributes:
        number: As a spreadsheet numbers it.
        line: Line of a text file where it begins.
        cells: What stands in the known columns, without surrounding blanks; empty cells are left out.
        fault: Column and remedy where the row cannot be taken apart.
        short: Whether it has fewer cells than the header.
        torn: Other readings, where the amount may be torn at a comma.
        is_witness: Whether an amount that is surely whole stands beside a number of three digits.
    """

    number: int
    line: int
    cells: dict[str, str]
    fault: tuple[str, str] | None = None
    short: bool = False
    torn: tuple[Torn, ...] = ()
    is_witness: bool = False


@attrs.frozen(kw_only=True)
class Layout:
    """How a file is read; found out once, so that it is read the same way each time.

    Attributes:
        format: ``"csv"``, ``"jsonl"`` or ``"xlsx"``.
        encoding: Of a text file.
        delimiter: Of a CSV file.
        sheet: Name of the sheet in a workbook; ``None`` for the first one.
        note: What a person should know of how it was found out.
        fingerprint: The content it was found out from.
    """

    format: Format
    encoding: str
    delimiter: str
    sheet: str | None
    note: str | None
    fingerprint: Fingerprint


@attrs.define
class Table:
    """A file that is open.

    Attributes:
        columns: From the header; ``None`` when the format has none (each row names its own) or the file is empty.
        rows: Can be walked through once.
        unknown: Names that rows used without a header to say so; known once the rows were walked through.
        sheet: The sheet of a workbook that is read.
    """

    columns: Columns | None
    rows: Iterator[Row]
    unknown: dict[str, None] = attrs.field(factory=dict)
    sheet: Sheet | None = None


@contextmanager
def open_table(path: Path, layout: Layout, *, looks: bool = False) -> Iterator[Table]:
    """Open the file as it was when its layout was found out.

    Args:
        looks: See to it that a workbook is no trap, and find out what is hidden in it. Once is enough.

    Raises:
        BatchChanged: Here or while rows are read, when the file is another one now.
        ImportError: For a workbook, when python-calamine is not installed.
        ValueError: For a workbook that cannot be opened, or that has no such sheet.
    """
    check_unchanged(path, layout.fingerprint)
    with io.BufferedReader(CheckedFile(path, layout.fingerprint)) as file:
        match layout.format:
            case "xlsx":
                with open_sheet(file, layout.sheet, looks=looks) as sheet:
                    yield _spreadsheet(sheet)
            case "csv":
                yield _csv(io.TextIOWrapper(file, layout.encoding, newline=""), layout.delimiter)
            case "jsonl":
                yield _json_lines(io.TextIOWrapper(file, layout.encoding, newline=""))


def format_of(head: bytes, encoding: str) -> Format:
    """The format by the first bytes of a file: names of files are too often wrong."""
    if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        return "xlsx"
    return "jsonl" if head.decode(encoding, "ignore").lstrip("\ufeff \t\r\n")[:1] in {"{", "["} else "csv"


def find_delimiter(head: bytes, encoding: str) -> str:
    """The delimiter that lets the header name the most columns; any sign will do that is no letter, digit or quote."""
    lines = [line for line in head.decode(encoding, "ignore").lstrip("\ufeff").splitlines() if line.strip(_USUAL + " ")]
    if not lines:
        return ","
    if told := _SEPARATOR_LINE.fullmatch(lines[0]):
        return str(told[1])
    unusual = (sign for sign in dict.fromkeys(lines[0]) if not sign.isalnum() and sign not in _USUAL + "\"'_ \r\n")

    def fit(delimiter: str) -> int:
        return sum(column_named(cell) is not None for cell in lines[0].replace('"', "").split(delimiter))

    candidates: list[str] = [*_USUAL, *unusual]
    return max(candidates, key=fit)  # max takes the first of equals


def _csv(text: io.TextIOWrapper, delimiter: str) -> Table:
    records = _records(text, delimiter)
    for number, line, record, fault in records:
        if fault:  # without a header no row can be understood
            return Table(None, iter([Row(number, line, {}, ("", fault))]))
        if not any(map(str.strip, record)) or (number == 1 and _is_separator_line(record, delimiter)):
            continue
        columns = match_columns(number, record)
        return Table(columns, _named(records, columns, delimiter))
    return Table(None, iter(()))


def _is_separator_line(record: Sequence[str], delimiter: str) -> bool:
    return bool(_SEPARATOR_LINE.fullmatch(delimiter.join(record)))


class _EndlessLine(Exception):
    """A line so long that it would fill the memory."""


_Record = tuple[int, int, list[str], str | None]  # row, line, cells, remedy


def _records(text: io.TextIOWrapper, delimiter: str) -> Iterator[_Record]:
    """Each record with its place; one that cannot be taken apart has a remedy in place of cells."""
    # strict, or a forgotten quotation mark would swallow the rows up to the next one without a word
    reader = csv.reader(_lines(text), delimiter=delimiter, strict=True, skipinitialspace=True)
    number = 0
    while True:
        line, number, remedy = reader.line_num + 1, number + 1, None
        record: list[str] = []
        try:
            record = next(reader)
            if reader.line_num > line and _swallowed(record, delimiter):
                remedy = _torn(line, reader.line_num, "a cell holds whole lines of the file")
        except StopIteration:
            return
        except csv.Error as error:
            remedy = _torn(line, max(line, reader.line_num), str(error))
        except (UnicodeError, _EndlessLine) as error:
            yield number, line, [], _unreadable(error)
            return
        yield number, line, record, remedy


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise _EndlessLine
        yield line


def _swallowed(record: Sequence[str], delimiter: str) -> bool:
    enough = max(2, len(record) - 2)
    return any(line.count(delimiter) >= enough for cell in record for line in cell.splitlines()[1:])


def _torn(first: int, last: int, why: str) -> str:
    lines = f"line {first} was" if first == last else f"lines {first} to {last} were"
    return f"{lines} not read: {why}; look for a quotation mark that is missing, too many or not doubled"


def _unreadable(error: UnicodeError | _EndlessLine) -> str:
    what = "has an endless line" if isinstance(error, _EndlessLine) else "is damaged or mixes encodings"
    return f"the file {what}, and nothing from here on was read; save it again as UTF-8"


def _named(records: Iterator[_Record], columns: Columns, delimiter: str) -> Iterator[Row]:
    wanted = [(position, name) for position, name in enumerate(columns.names) if name]
    width = len(columns.names)
    amount = columns.names.index("amount") if delimiter in _GROUPING and "amount" in columns.names else width
    for number, line, record, remedy in records:
        if remedy:
            yield Row(number, line, {}, ("", remedy))
            continue
        beside = record[amount + 1].strip() if amount + 1 < len(record) else ""
        torn = _torn_amounts(record, amount, columns.names) if beside[:1].isdecimal() else ()
        is_witness = bool(beside) and _is_witness(record[amount].strip(), beside)
        if short := len(record) < width:
            record += [""] * (width - len(record))
        cells = {name: cell for position, name in wanted if (cell := record[position].strip())}
        if len(record) > width and any(map(str.strip, record[width:])):
            remedy = (
                f"{len(record)} cells where the header has {width}; "
                f"put a value that contains {delimiter!r}, such as an amount, in quotation marks"
            )
            yield Row(number, line, cells, ("", remedy))
        elif cells or any(map(str.strip, record)):
            yield Row(number, line, cells, None, short, torn, is_witness)


def _torn_amounts(record: Sequence[str], amount: int, names: Sequence[str | None]) -> tuple[Torn, ...]:
    """What a row says if its amount goes on in the cells beside it: thousands in one or more of them, or cents."""
    cells = [cell.strip() for cell in record]
    beside = names[amount + 1] if amount + 1 < len(names) else None
    found: list[Torn] = []

    def add(whole: str, last: int) -> None:
        joined = [*cells[:amount], whole, *cells[last + 1 :]]
        named = {name: cell for name, cell in zip(names, joined, strict=False) if name and cell}
        found.append(Torn(named, may_be_code=beside not in _WORDS))

    if _FIRST_GROUP.fullmatch(cells[amount]):
        last = amount + 1
        while last < len(cells) and _LAST_GROUP.fullmatch(cells[last]):
            add(",".join(cells[amount : last + 1]), last)
            if not _MIDDLE_GROUP.fullmatch(cells[last]):
                break
            last += 1
    if beside in _WORDS and _ANY_WHOLE.fullmatch(cells[amount]) and _CENTS.fullmatch(cells[amount + 1]):
        add(f"{cells[amount]}.{cells[amount + 1]}", amount + 1)
    return tuple(found)


def _is_witness(amount: str, beside: str) -> bool:
    return bool(_MIDDLE_GROUP.fullmatch(beside) and _WHOLE_AMOUNT.fullmatch(amount))


def _spreadsheet(sheet: Sheet) -> Table:
    for number, record in sheet.rows:
        if any(record):
            columns = match_columns(number, record)
            return Table(columns, _named(((n, n, cells, None) for n, cells in sheet.rows), columns, ""), {}, sheet)
    return Table(None, iter(()), {}, sheet)


def _json_lines(text: io.TextIOWrapper) -> Table:
    unknown: dict[str, None] = {}
    return Table(None, _objects(text, unknown), unknown)


def _objects(text: io.TextIOWrapper, unknown: dict[str, None]) -> Iterator[Row]:
    number = 0
    while True:
        number += 1
        try:
            line = text.readline(_LONGEST_LINE)
        except UnicodeError as error:
            yield Row(number, number, {}, ("", _unreadable(error)))
            return
        if not line:
            return
        if len(line) == _LONGEST_LINE:
            yield Row(number, number, {}, ("", _unreadable(_EndlessLine())))
            return
        if line.strip():
            yield _object(number, line, unknown)


def _object(number: int, line: str, unknown: dict[str, None]) -> Row:
    try:
        pairs = json.loads(
            line, parse_float=NumberCell, parse_int=NumberCell, parse_constant=NumberCell, object_pairs_hook=_Pairs
        )
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, _Pairs):
        return Row(number, number, {}, ("", "not a JSON object; write one {...} on each line, without commas between"))
    cells: dict[str, str] = {}
    seen: set[str] = set()
    for key, value in pairs:
        name = column_named(key)
        if name is None:
            if len(unknown) < 100:
                unknown[key] = None
            continue
        if name in seen:
            return Row(number, number, cells, (name, "given twice in one object; keep one of them"))
        seen.add(name)
        if isinstance(value, list) and name != "metadata":
            return Row(number, number, cells, (name, "an object or a list; write a text or a number"))
        try:
            cell = _nested(line, key) if isinstance(value, list) else _json_text(value)
        except RecursionError:
            return Row(number, number, cells, (name, "objects within objects without end; write a text"))
        if cell:
            cells[name] = cell
    return Row(number, number, cells)


class _Pairs(list[tuple[str, object]]):
    """A JSON object with its keys in order, doubled ones included."""


def _json_text(value: object) -> str:
    match value:
        case NumberCell():
            return value
        case str():
            return value.strip()
        case bool():
            return str(value).lower()
        case _:
            return ""


def _nested(line: str, key: str) -> str:
    """An object or a list within a row, as compact JSON with its numbers unchanged."""
    return _exact_json.encode(json.loads(line, parse_float=Decimal, parse_int=_whole)[key]).decode()


def _whole(digits: str) -> int | Decimal:
    """A whole number; Python makes no ``int`` of very many digits."""
    return int(digits) if len(digits) < _LONGEST_INT else Decimal(digits)

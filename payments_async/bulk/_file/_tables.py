"""A batch file opened as a table of rows: the bytes that were checked, in whichever of the three formats they are."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Literal, NamedTuple

import attrs
import msgspec

from payments_async._values.frozen import field, frozen
from payments_async.bulk._file._cells import ExactCell
from payments_async.bulk._file._headings import Columns, FileColumn, Mapped, Naming, file_column
from payments_async.bulk._file._workbooks import Sheet, open_sheet

BLOCK = 2**20
_MARK = 16  # bytes of digest kept for each block, so 16 MB for a file of 1 TB
_HEAD = 4096
_BYTE_ORDER_MARKS = (  # UTF-32 begins as UTF-16 does, so it comes first
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
Format = Literal["csv", "jsonl", "xlsx"]
_LONGEST_LINE = 2**20
_LONGEST_INT = 4000  # digits
_USUAL = ",;\t|"  # the first of two that fit equally well is taken
_WRITTEN_OUT = {"tab": "\t", r"\t": "\t"}  # signs that are hard to type
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
FEWEST_COLUMNS = 3  # a row of cells may have one that sounds like a column, such as a kind "bank"
_TITLES = 10  # rows above the header at most
_MOST_NAMES = 100  # of JSON lines that are told; each line may have others
_LONGEST_TITLE = 3  # cells: a row of more may be a payment
# What stands beside the sum of a column; whoever pays has a number of their own, and a sum has none.
_TOTAL = re.compile(r"(?:(?:grand|sub|net|page|control|batch|overall)[ -]?)?totals?\b.{0,40}|sum|jumla", re.I)
# How a line begins in which somebody signs below the payments. It has no amount, and no number of anybody.
_SIGNED = re.compile(
    r"(?:(?:prepared|checked|approved|authori[sz]ed|verified|reviewed|certified|received|signed) by|signature|signed)\b"
    r"|date\s*:",
    re.I,
)
_PAYS_TO = ("phone_number", "account_number", "customer_reference")
_BESIDE_TOTAL = frozenset({"amount", "currency"})
_WORDS = frozenset({"message", "metadata"})  # columns in which nobody writes a bare number of two or three digits
_exact_json = msgspec.json.Encoder(decimal_format="number")


class BatchChanged(RuntimeError):
    """The file is not the one that ``read_batch`` checked: read it again, and look at its problems again."""


@frozen(kw_only=True)
class Fingerprint:
    """What identifies the content of a file.

    Attributes:
        size: Its length in bytes.
        modified: When it was last written, in nanoseconds.
        digest: SHA-256 of its bytes, in hexadecimal digits.
        blocks: A short digest of each MiB, one after the other.
        head: The first 4096 bytes.
        is_utf8: Whether the whole file is valid UTF-8.
        ends_a_line: Whether the last line is complete.
    """

    size: int
    modified: int
    digest: str
    blocks: bytes = field(repr=False)
    head: bytes = field(repr=False)
    is_utf8: bool
    ends_a_line: bool


def fingerprint(path: Path, *, go_on: Callable[[], None] = lambda: None) -> Fingerprint:
    """Read the file once, a MiB at a time.

    Args:
        go_on: Called between two blocks; it may raise to stop the reading.

    Raises:
        ValueError: When the path is not a regular file, such as a pipe, which cannot be read twice.
    """
    _check_regular(path.stat())  # before it is opened: a pipe that nobody writes to would be waited for
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        _check_regular(about)
        whole, marks, head, tail, size = hashlib.sha256(), bytearray(), b"", b"", 0
        decoder, is_utf8 = codecs.getincrementaldecoder("utf-8")(), True
        while block := file.read(BLOCK):
            go_on()
            whole.update(block)
            is_utf8 = is_utf8 and _decodes(decoder, block)
            marks += _mark(block)
            head = head or block[:_HEAD]
            tail = block[-4:]
            size += len(block)
    return Fingerprint(
        size=size,
        modified=about.st_mtime_ns,
        digest=whole.hexdigest(),
        blocks=bytes(marks),
        head=head,
        is_utf8=is_utf8 and _decodes(decoder, b"", final=True),
        ends_a_line=tail.rstrip(b"\0")[-1:] in (b"\n", b"\r"),
    )


def _decodes(decoder: codecs.IncrementalDecoder, block: bytes, *, final: bool = False) -> bool:
    """Whether a text that was valid so far goes on as such."""
    try:
        decoder.decode(block, final)
    except UnicodeDecodeError:
        return False
    return True


def _check_regular(about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise ValueError("path: not a regular file, and a batch is read more than once; save it to disk first")


def _check_unchanged(path: Path, known: Fingerprint) -> None:
    """Compare the file with what is known of it; its content is read only if its time stamp differs.

    Raises:
        BatchChanged: When it has another content.
    """
    about = path.stat()
    if about.st_size == known.size and about.st_mtime_ns == known.modified:
        return  # what is read is still compared, block by block
    if about.st_size != known.size or fingerprint(path).digest != known.digest:
        raise BatchChanged(f"{path.name} was changed since it was checked; call read_batch again")


def _text_encoding(known: Fingerprint) -> tuple[str, str | None]:
    """The encoding of a text file, and a note where it had to be guessed."""
    for byte_order_mark, encoding in _BYTE_ORDER_MARKS:
        if known.head.startswith(byte_order_mark):
            return encoding, None
    nulls = known.head[0::2].count(0), known.head[1::2].count(0)
    if max(nulls) * 4 > len(known.head):  # letters of western languages are half nulls in UTF-16
        encoding = "utf-16-be" if nulls[0] > nulls[1] else "utf-16-le"
        return encoding, f"the file does not say its encoding; read as {encoding.upper()}: check a few names"
    if known.is_utf8:
        return "utf-8", None
    return "cp1252", "the file is not UTF-8; read as CP1252 (Windows, western Europe): check names with accents"


class _CheckedFile(io.RawIOBase):
    """A file that hands out no byte before the block it is in was found unchanged.

    Raises:
        BatchChanged: On reading, when a block is not what it was.
    """

    def __init__(self, path: Path, known: Fingerprint) -> None:
        self._file = path.open("rb")
        self._name = path.name
        self._marks = known.blocks
        self._number = 0
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Whether it can be read: yes."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # what BufferedReader passes
        """Fill the buffer from the block at hand, or from the next one."""
        if not self._rest:
            self._rest = memoryview(self._next_block())
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def _next_block(self) -> bytes:
        block = self._file.read(BLOCK)
        expected = self._marks[self._number * _MARK : (self._number + 1) * _MARK]
        if (_mark(block) if block else b"") != expected:
            raise BatchChanged(f"{self._name} was changed since it was checked; call read_batch again")
        self._number += 1
        return block


def _mark(block: bytes) -> bytes:
    return hashlib.blake2b(block, digest_size=_MARK).digest()


_Record = tuple[int, int, list[str], str | None]  # row, line, cells, remedy


class Torn(NamedTuple):
    """A row read otherwise: its amount may go on in the next cells.

    Attributes:
        cells: As in ``FileRow``, with the amount in one piece.
        may_be_code: The next column may hold codes of three digits, so that the amount ends where it seems to.
    """

    cells: dict[str, str]
    may_be_code: bool


class FileRow(NamedTuple):
    """One row with something in it.

    Attributes:
        number: As a spreadsheet numbers it.
        line: Line of a text file where it begins.
        cells: What stands in the known columns, without surrounding blanks; empty cells are left out.
        problem: Column and remedy where the row cannot be taken apart.
        short: Whether it has fewer cells than the header.
        torn: Other readings, where the amount may be torn at a comma.
        is_witness: Whether an amount that is surely whole stands beside a number of three digits.
        total: For a row that is not a payment but the sum of those above, what stands there for the amount.
        signed: For a row that is not a payment but the place where somebody signs, what stands there.
    """

    number: int
    line: int
    cells: dict[str, str]
    problem: tuple[str, str] | None = None
    short: bool = False
    torn: tuple[Torn, ...] = ()
    is_witness: bool = False
    total: str | None = None
    signed: str | None = None


@frozen(kw_only=True)
class Layout:
    """How a file is read; found out once, so that it is read the same way each time.

    Attributes:
        format: ``"csv"``, ``"jsonl"`` or ``"xlsx"``.
        encoding: Of a text file.
        delimiter: Of a CSV file.
        sheet: Name of the sheet in a workbook; ``None`` for the first one.
        note: What a person should know of how it was found out.
        fingerprint: The content it was found out from.
        mapped: What somebody said of its headings.
    """

    format: Format
    encoding: str
    delimiter: str
    sheet: str | None
    note: str | None
    fingerprint: Fingerprint
    mapped: Mapped = field(factory=dict)


@attrs.define
class Table:
    """A file that is open.

    Attributes:
        columns: From the header; ``None`` when the format has none (each row names its own) or the file is empty.
        rows: Can be walked through once.
        used: What becomes of the names that rows used without a header to say so, the first hundred; known once the
            rows were walked through.
        sheet: The sheet of a workbook that is read.
        mapping: What somebody said of the headings, by column; without a header known after the first row.
        titles: Rows above the header, each with what stands there.
    """

    columns: Columns | None
    rows: Iterator[FileRow]
    used: dict[str, FileColumn] = attrs.field(factory=dict)
    sheet: Sheet | None = None
    mapping: dict[str, str] = attrs.field(factory=dict)
    titles: Sequence[tuple[int, str]] = ()


@contextmanager
def open_table(path: Path, layout: Layout, *, looks: bool = False) -> Iterator[Table]:
    """Open the file as it was when its layout was found out.

    Args:
        looks: See to it that a workbook is not a trap, and find out what is hidden in it. Once is enough.

    Raises:
        BatchChanged: Here or while rows are read, when the file is another one now.
        ImportError: For a workbook, when python-calamine is not installed.
        ValueError: For a workbook that cannot be opened, or that has no such sheet.
    """
    _check_unchanged(path, layout.fingerprint)
    with io.BufferedReader(_CheckedFile(path, layout.fingerprint)) as file:
        match layout.format:
            case "xlsx":
                with open_sheet(file, layout.sheet, looks=looks) as sheet:
                    yield _spreadsheet(sheet, layout)
            case "csv":
                yield _csv(io.TextIOWrapper(file, layout.encoding, newline=""), layout)
            case "jsonl":
                yield _objects(io.TextIOWrapper(file, layout.encoding, newline=""), layout)


@contextmanager
def open_cells(path: Path, layout: Layout) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """Open the file for all that stands in it, row by row, as it was when its layout was found out.

    Raises:
        BatchChanged: Here or while rows are read, when the file is another one now.
        ValueError: It has no rows of cells.
    """
    _check_unchanged(path, layout.fingerprint)
    with io.BufferedReader(_CheckedFile(path, layout.fingerprint)) as file:
        match layout.format:
            case "xlsx":
                with open_sheet(file, layout.sheet, looks=False) as sheet:
                    yield sheet.rows
            case "csv":
                records = _records(io.TextIOWrapper(file, layout.encoding, newline=""), layout.delimiter)
                yield ((number, cells) for number, _, cells, _ in records)
            case "jsonl":
                raise ValueError("JSON lines have no rows of cells; name a CSV file or a workbook")


def find_layout(
    path: Path,
    *,
    encoding: str | None,
    delimiter: str | None,
    sheet: str | None,
    mapped: Mapped,
    go_on: Callable[[], None],
) -> Layout:
    """Read a file once, and find out what was not told of it.

    Args:
        mapped: What somebody says of its headings.
        go_on: Called now and then; it may raise to stop the reading.

    Raises:
        ValueError: For a wrong argument, or a path that is not a regular file.
    """
    content = fingerprint(path, go_on=go_on)
    guess, guessed = _text_encoding(content)
    delimiter = _WRITTEN_OUT.get(delimiter or "", delimiter)
    try:
        codecs.lookup(encoding or guess)
        format_ = _format_of(content.head, encoding or guess)
    except LookupError:
        raise ValueError(f"encoding: Python knows no {encoding!r}; leave it out to have it guessed") from None
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError("delimiter: expected one sign, or tab, and no quotation mark; leave it out to have it guessed")
    return Layout(
        format=format_,
        encoding=encoding or guess,
        delimiter=delimiter or find_delimiter(content.head, encoding or guess, Naming(mapped)),
        sheet=sheet,
        note=None if encoding or format_ == "xlsx" else guessed,
        fingerprint=content,
        mapped=mapped,
    )


def _format_of(head: bytes, encoding: str) -> Format:
    """The format by the first bytes of a file: names of files are too often wrong."""
    if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        return "xlsx"
    return "jsonl" if head.decode(encoding, "ignore").lstrip("\ufeff \t\r\n")[:1] in {"{", "["} else "csv"


def find_delimiter(head: bytes, encoding: str, naming: Naming | None = None) -> str:
    """The delimiter that lets the header name the most columns; any sign will do that is not a letter, digit or quote.

    Where no sign does, the usual one of which there are the most.
    """
    naming = naming or Naming({})
    lines = [line for line in head.decode(encoding, "ignore").lstrip("\ufeff").splitlines() if line.strip(_USUAL + " ")]
    if not lines:
        return ","
    if told := _SEPARATOR_LINE.fullmatch(lines[0]):
        return str(told[1])
    lines = lines[: _TITLES + 1]  # the header may stand below a title
    signs = (sign for sign in dict.fromkeys("".join(lines)) if not sign.isalnum() and sign not in _USUAL + "\"'_ \r\n")

    def fit(delimiter: str) -> int:
        headings = (line.replace('"', "").split(delimiter) for line in lines)
        return max(sum(name is not None for name in naming.names(cells)) for cells in headings)

    candidates: list[str] = [*_USUAL, *signs]
    best = max(candidates, key=fit)  # max takes the first of equals
    return best if fit(best) > 1 else max(_USUAL, key="".join(lines).count)


def _csv(text: io.TextIOWrapper, layout: Layout) -> Table:
    records = _records(text, layout.delimiter)
    header = _find_header(records, Naming(layout.mapped), layout.delimiter)
    if not isinstance(header, _Header):  # without a header no row can be understood
        return Table(None, iter(header))
    rows = _named(records, header.columns, layout.delimiter)
    return Table(header.columns, rows, mapping=header.columns.mapping, titles=header.titles)


@frozen(kw_only=True)
class _Header:
    """The header line of a file, and what stands above it."""

    columns: Columns
    titles: Sequence[tuple[int, str]] = ()


def _find_header(records: Iterator[_Record], naming: Naming, delimiter: str) -> _Header | list[FileRow]:
    """The first row that names columns, where only titles stand above it; else the row that comes next to it.

    Returns:
        A damaged row in place of one, or no row where there is none.
    """
    best: Columns | None = None
    titles: list[tuple[int, str]] = []
    for number, line, record, problem in records:
        if problem:
            return [FileRow(number, line, {}, ("", problem))] if best is None else _Header(columns=best)
        filled = [cell.strip() for cell in record if cell.strip()]
        if not filled or (number == 1 and _SEPARATOR_LINE.fullmatch(delimiter.join(record))):
            continue
        columns = naming.columns(number, record)
        if columns.known >= FEWEST_COLUMNS:
            return _Header(columns=columns, titles=titles)
        best = columns if best is None or columns.known > best.known else best
        titles.append((number, " ".join(filled)))
        if len(filled) > _LONGEST_TITLE or len(titles) > _TITLES:
            break
    return [] if best is None else _Header(columns=best)


class _EndlessLine(Exception):
    """A line so long that it would fill the memory."""


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


def _named(records: Iterator[_Record], columns: Columns, delimiter: str) -> Iterator[FileRow]:
    """Rows with their cells by the name of the column."""
    names = columns.names
    width = len(names)
    amount = names.index("amount") if delimiter in _GROUPING and "amount" in names else width
    for number, line, record, remedy in records:
        if remedy:
            yield FileRow(number, line, {}, ("", remedy))
            continue
        beside = record[amount + 1].strip() if amount + 1 < len(record) else ""
        torn: tuple[Torn, ...] = ()
        is_witness = False
        if beside[:1].isdecimal():
            torn = _torn_amounts(record, amount, names)
            is_witness = bool(_MIDDLE_GROUP.fullmatch(beside) and _WHOLE_AMOUNT.fullmatch(record[amount].strip()))
        if short := len(record) < width:
            record += [""] * (width - len(record))
        cells = {
            name: cell for name, text in zip(names, record, strict=False) if text and name and (cell := text.strip())
        }
        if len(record) > width and any(map(str.strip, record[width:])):
            remedy = (
                f"{len(record)} cells where the header has {width}; "
                f"put a value that contains {delimiter!r}, such as an amount, in quotation marks"
            )
            yield FileRow(number, line, cells, ("", remedy))
        elif cells or any(map(str.strip, record)):
            total = signed = None
            if not _has_payee(cells):
                total = _total(record, names, cells)
                signed = None if "amount" in cells else _signed(record)
            yield FileRow(number, line, cells, None, short, torn, is_witness, total, signed)


def _has_payee(cells: Mapping[str, str]) -> bool:
    """Whether a row surely has a number of somebody: such numbers end with a digit, and the word for a sum does not."""
    for name in _PAYS_TO:  # noqa: SIM110 - `any` makes a generator for each row
        if name in cells and cells[name][-1:].isdigit():
            return True
    return False


def _total(record: Sequence[str], names: Sequence[str | None], cells: Mapping[str, str]) -> str | None:
    """What a row has for the amount that is the sum of others; ``None`` for any other row."""
    labels = {name for name, cell in zip(names, record, strict=False) if _TOTAL.fullmatch(cell.strip())}
    if not labels or not labels.union(_BESIDE_TOTAL).issuperset(cells):
        return None
    return cells.get("amount", "") if "amount" not in labels else ""


def _signed(record: Sequence[str]) -> str | None:
    """What stands in a row in which somebody signs; ``None`` for any other row."""
    filled = [cell.strip() for cell in record if cell.strip()]
    return " ".join(filled) if filled and _SIGNED.match(filled[0]) else None


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


def _spreadsheet(sheet: Sheet, layout: Layout) -> Table:
    records: Iterator[_Record] = ((number, number, cells, None) for number, cells in sheet.rows)
    header = _find_header(records, Naming(layout.mapped), "")
    if not isinstance(header, _Header):
        return Table(None, iter(header), sheet=sheet)
    rows = _named(records, header.columns, "")
    return Table(header.columns, rows, sheet=sheet, mapping=header.columns.mapping, titles=header.titles)


def _objects(text: io.TextIOWrapper, layout: Layout) -> Table:
    table = Table(None, iter(()))
    table.rows = _each_object(_lines(text), table, Naming(layout.mapped))
    return table


def _each_object(lines: Iterator[str], table: Table, naming: Naming) -> Iterator[FileRow]:
    number = 0
    named: Naming | None = None
    while True:
        number += 1
        try:
            line = next(lines, None)
        except (UnicodeError, _EndlessLine) as error:
            yield FileRow(number, number, {}, ("", _unreadable(error)))
            return
        if line is None:
            return
        if not line.strip():
            continue
        pairs = _pairs(line)
        if pairs is None:
            remedy = "not a JSON object; write one {...} on each line, without commas between"
            yield FileRow(number, number, {}, ("", remedy))
            continue
        if named is None:  # the keys of the first object are its header
            table.mapping = naming.mapping([key for key, _ in pairs])
            named = Naming(table.mapping)
        yield _object(number, line, pairs, named, table)


def _pairs(line: str) -> _Pairs | None:
    try:
        pairs = json.loads(
            line, parse_float=ExactCell, parse_int=ExactCell, parse_constant=ExactCell, object_pairs_hook=_Pairs
        )
    except (ValueError, RecursionError):
        return None
    return pairs if isinstance(pairs, _Pairs) else None


def _object(number: int, line: str, pairs: _Pairs, naming: Naming, table: Table) -> FileRow:
    cells: dict[str, str] = {}
    seen: set[str] = set()
    names = naming.names([key for key, _ in pairs])
    for (key, value), name in zip(pairs, names, strict=True):
        if key not in table.used and len(table.used) < _MOST_NAMES:
            table.used[key] = file_column(key, name, table.mapping)
        if name is None:
            continue
        if name in seen:
            return FileRow(number, number, cells, (name, "given twice in one object; keep one of them"))
        seen.add(name)
        if isinstance(value, list) and name != "metadata":
            return FileRow(number, number, cells, (name, "an object or a list; write a text or a number"))
        try:
            cell = _nested(line, key) if isinstance(value, list) else _json_text(value)
        except RecursionError:
            return FileRow(number, number, cells, (name, "objects within objects without end; write a text"))
        if cell:
            cells[name] = cell
    return FileRow(number, number, cells)


class _Pairs(list[tuple[str, object]]):
    """A JSON object with its keys in order, doubled ones included."""


def _json_text(value: object) -> str:
    match value:
        case ExactCell():
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

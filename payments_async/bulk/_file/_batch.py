"""A batch file, checked as a whole and read again for its orders."""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

import attrs

from payments_async._values.checks import check_instance
from payments_async._values.frozen import field, frozen
from payments_async._values.masking import redact
from payments_async._values.request_ids import plain_id
from payments_async._wire.orders import PayoutOrder
from payments_async.bulk._file._buckets import Buckets
from payments_async.bulk._file._cells import PhoneReader, Unusable, read_currency, read_identifier
from payments_async.bulk._file._headings import COLUMNS, GIVEN_BACK, Columns, FileColumn
from payments_async.bulk._file._rows import RowReading, Rules, always_needed, read_good_row, read_kind, read_row
from payments_async.bulk._file._tables import FEWEST_COLUMNS, FileRow, Layout, Table, find_layout, open_table
from payments_async.bulk._file._totals import EXACT, TOTAL, ControlSums
from payments_async.bulk._file._workbooks import Sheet
from payments_async.bulk._problems import Issue, Problem, harmless, problem

T = TypeVar("T")

RepeatKind = Literal["nothing", "amount", "details"]
_RECORD = struct.Struct("<16sQQqq")
_ID = 16
_REPEATED = {
    "nothing": "repeats row {first} exactly; delete it, or give it an id of its own if both are meant",
    "amount": "row {first} has this id with another amount; delete the wrong one, or give this one an id of its own",
    "details": "row {first} has this id with the same amount and other details; delete the wrong one, "
    "or give this one an id of its own",
}
_IN_OTHER_LETTERS = "; small and capital letters make no difference, for the service may not tell them apart"
_CUT_OFF = "the file ends within this row and may be cut off; export it again, with a line break after the last row"
_NO_HEADER = (
    "no header, or none that is known; put one such as request_id,kind,amount,name,... above the rows, or say which "
    "heading is which (--map name='Employee Name')"
)
_OTHER_SHEETS = "; only the sheet {} was looked at, and the workbook also has {}: name the right one (--sheet)"
_TORN = (
    "followed by {}, which may be the rest of it; put an amount with a comma in quotation marks, and write {}.00 where "
    "that is the whole amount"
)
_NAMED = 5  # rows
_MOST_PROBLEMS = 100_000  # more would fill the memory, and nobody mends so many one by one
_TOO_MANY = f"more than {_MOST_PROBLEMS:,} problems: the rest was not read, and no row is taken; is it the right file?"
_HIDDEN_ROWS = (
    "rows are hidden in the spreadsheet, by a filter or by hand, and would be paid: {} of them, the first is row {}; "
    "show them and look at them, or delete them"
)
_SHOWN_CURRENCY = (
    "rows show their amount in this currency, and no currency is named: {} of them, the first is row {}; they are paid "
    "in the account's, so name the currency of the batch (--currency)"
)
_HIDDEN_COLUMN = "the column is hidden in the spreadsheet, and is read; show it and look at it"
_SENT_ALREADY = (
    "the file was given back with what became of its rows: they were sent, and would be paid once more; send the file "
    "of those that were not paid (bulk retry-file), or look at each row"
)
_SUCH_A_SHEET = "this sheet has such headings too, and {} is read: name the one that is meant (--sheet)"
_HIDDEN_SHEET = "the sheet is hidden in the spreadsheet, and would be paid; show it and look at it, or name another"


@frozen(kw_only=True)
class Repeat:
    """A row that uses the request id of an earlier one.

    Attributes:
        row: The later row; it is not among the orders.
        line: The line of a text file where it begins.
        first_row: The row that used the id first.
        difference: What sets them apart: ``"nothing"``, the ``"amount"``, or other ``"details"`` of the payout.
    """

    row: int
    line: int
    first_row: int
    difference: RepeatKind


@attrs.frozen(kw_only=True)
class BatchOrders(Iterable[PayoutOrder], AsyncIterable[PayoutOrder]):
    """The good rows of a file as orders, read anew each time it is walked through: nothing is kept in memory.

    With ``async for`` the file is read in threads, and nobody else has to wait for it.

    Raises:
        BatchChanged: While walking, before the first order that could be wrong, when the file is another one now.
    """

    _path: Path
    _layout: Layout
    _rules: Rules
    _refused: frozenset[int]
    _count: int

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PayoutOrder]:
        return (order for _, order in self.with_rows())

    def found(self, request_ids: Collection[str]) -> dict[str, tuple[int, PayoutOrder]]:
        """Some orders with their rows, by their ids. The file is read again."""
        return {order.request_id: (row, order) for row, order in self.with_rows() if order.request_id in request_ids}

    @property
    def layout(self) -> Layout:
        """How the file is read."""
        return self._layout

    def with_rows(self) -> Iterator[tuple[int, PayoutOrder]]:
        """The orders, each with the number of its row."""
        if not self._count:
            return
        with open_table(self._path, self._layout) as table:
            for row in table.rows:
                if row.total is None and row.signed is None and row.number not in self._refused:
                    yield row.number, read_good_row(row.cells, self._rules)

    async def __aiter__(self) -> AsyncIterator[PayoutOrder]:
        async for some in read_in_threads(self):
            for order in some:
                yield order


async def read_in_threads(items: Iterable[T], size: int = 500) -> AsyncIterator[list[T]]:
    """Lists of so many items, each taken in a thread, one after the other.

    Who is cancelled waits for that thread: nobody else takes the items up, or closes their file, before it is done.
    """
    iterator = iter(items)

    def take() -> list[T]:
        return list(islice(iterator, size))

    while True:
        taking = asyncio.ensure_future(asyncio.to_thread(take))
        try:
            some = await asyncio.shield(taking)
        finally:
            while not taking.done():  # cancelled, perhaps once more
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([taking])
        if not some:
            return
        yield some


@frozen(kw_only=True)
class Guess:
    """Orders whose item follows from the operators that their telephone numbers were given to.

    People keep their numbers when they change the operator: a person has to look at it.

    Attributes:
        operator, kind, product_item_id: What was guessed of which.
        orders: How many.
        total: The exact sum of their amounts.
    """

    operator: str
    kind: str
    product_item_id: str
    orders: int
    total: Decimal


@frozen(kw_only=True)
class Batch:
    """A file that was checked from the first row to the last.

    Look at ``problems`` and ``concerns`` before anything is sent: ``orders`` leaves bad rows out, so an incomplete
    batch looks like a complete one. Of several rows with one request id, the first is among the orders and the others
    are problems.

    Attributes:
        path: The file.
        orders: The good rows, in the order of the file; see ``BatchOrders``. Its length is their number.
        problems: Everything that is wrong, by row and column. Empty means that every row is among the orders. After
            100,000 of them the rest is not read, and no row is among the orders.
        concerns: What a person must have looked at, though it may be right: hidden rows that would be paid, a hidden
            column that is read. ``plan`` takes them as problems until they are acknowledged.
        notes: What a person should know, though nothing is wrong: a guessed encoding, a total that agrees.
        repeats: The rows with a request id that an earlier row has; each is among the problems too.
        rows: Rows with something in them, good and bad, without the header, titles above it, and rows of totals.
        digest: SHA-256 of the file's bytes, in hexadecimal digits.
        columns: Each column that has a heading, with what becomes of it, and who gets what stands there.
        headings: Of the header, as the file has them; empty where it has none.
        mapping: The headings that were mapped to these columns, as far as the file has them.
        guesses: The items that were guessed, with ``guess_items``.
    """

    path: Path
    orders: BatchOrders
    problems: tuple[Problem, ...]
    concerns: tuple[Issue, ...]
    notes: tuple[str, ...]
    repeats: tuple[Repeat, ...]
    rows: int
    digest: str
    columns: tuple[FileColumn, ...] = ()
    headings: tuple[str, ...] = ()
    mapping: Mapping[str, str] = field(factory=dict)
    guesses: tuple[Guess, ...] = ()


@frozen(kw_only=True)
class FileFormat:
    """How a batch file is written.

    Attributes:
        mapping: The heading of each column, as in ``{"name": "Employee Name"}``. Other headings are known by their
            words. A function gets the headings and returns the mapping.
        region: The country of telephone numbers without a country code.
        encoding: Of a text file. By default it is guessed.
        delimiter: Of a CSV file. By default it is guessed.
        sheet: Of a workbook. By default the first one is read, or the only one with headings that are known.

    >>> FileFormat(sheet="November", mapping={"name": "Employee Name"}).region
    'UG'
    """

    mapping: Mapping[str, str] | Callable[[Sequence[str]], Mapping[str, str]] | None = None
    region: str = "UG"
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None


async def read_batch(
    path: str | os.PathLike[str],
    *,
    kind: str | None = None,
    derive_request_ids: bool = False,
    batch_id: str | None = None,
    item: str | None = None,
    guess_items: bool = False,
    currency: str | None = None,
    file: FileFormat = FileFormat(),  # noqa: B008 - frozen
    progress: Callable[[int], object] | None = None,
) -> Batch:
    """Check a file of payouts (CSV, JSON lines or XLSX) in a thread of its own, and report every bad row at once.

    Memory stays the same for CSV and JSON lines of any length, but for the problems themselves. Request ids cost 48
    bytes each: in memory up to 16 MiB, then in a temporary file (480 MB for 10,000,000 rows). An XLSX sheet is read by
    a process of its own, which holds all of it: up to 10,000,000 cells (some 600,000 rows of fifteen columns), with
    limits of memory and time where the operating system has them.

    Names, messages and metadata go into the orders exactly as they are, without surrounding blanks. A name, an id or
    a code that begins like a spreadsheet formula is refused; a message may begin as it likes.

    Args:
        path: A regular file; its format is told by its content.
        kind: Kind of the rows that name none.
        derive_request_ids: Give rows without a request id one that ``request_id_for`` derives from ``batch_id``,
            kind, amount, currency, product and item, message, metadata and destination (the wallet's or line's number;
            account and bank code; customer reference and area). The same file exported again gives the same ids, and
            so do rows that are alike in all of these: they are told as repeated. Without ``batch_id`` or a message
            that names the month, next month's salary has the id of this month's.
        batch_id: Batch that all orders are marked with.
        item: Item of the rows that name none.
        guess_items: Give rows without an item the one of the operator that their telephone number was given to, where
            that is known: mobile money, and airtime. It is a guess; see ``Batch.guesses``. ``item`` comes before it.
        currency: Currency of the rows that name none; a row that names another is refused. By default the one in the
            heading of the amounts, as in `Net Pay (UGX)`.
        file: How the file is written: its headings, text and telephone numbers.
        progress: Called now and then, in the thread, with the number of rows that were read.

    Titles above the header and rows of totals are skipped: it has to agree with the sum of all amounts
    above it, or of those since the total before.

    Raises:
        OSError: When the file cannot be read.
        ImportError: When an extra is not installed: ``cli`` for telephone numbers, ``xlsx`` for workbooks.
        ValueError: For a wrong argument, a path that is not a regular file, or a workbook that cannot be read: damaged,
            protected, too large, or a trap.
        BatchChanged: When the file is written to while it is checked.
    """
    check_instance("file", file, FileFormat, "FileFormat(...)")
    rules = Rules(
        kind=None if kind is None else read_kind(kind),
        item=None if item is None else _read_item(item),
        guess_items=guess_items,
        currency=None if currency is None else read_currency(currency),
        batch_id=batch_id,
        derive_request_ids=derive_request_ids,
        phone=PhoneReader(file.region),
    )
    stopped = threading.Event()

    def go_on() -> None:
        if stopped.is_set():
            raise InterruptedError("the reading of the batch was cancelled")

    def told(rows: int) -> None:
        go_on()
        if progress is not None:
            progress(rows)

    def work() -> Batch:
        source = Path(path)
        layout = find_layout(
            source,
            encoding=file.encoding,
            delimiter=file.delimiter,
            sheet=file.sheet,
            mapped=file.mapping or {},
            go_on=go_on,
        )
        return _survey(source, layout, rules, told)

    try:
        return await asyncio.to_thread(work)
    finally:
        stopped.set()  # a cancelled caller leaves no thread behind that reads for minutes


@contextmanager
def sample_payroll() -> Iterator[Path]:
    """The batch file that comes with the package: 200 payouts of every kind to people who do not exist.

    A package in a zip file has it unpacked for as long as the ``with`` block lasts, so read the orders within it.
    """
    with as_file(files("payments_async.bulk") / "sample_payroll.csv") as path:
        yield path


def _read_item(item: str) -> str:
    try:
        return read_identifier(item.strip() or "=")
    except Unusable as error:
        raise ValueError(f"item: {item!r} is none; {error}") from None


def _survey(path: Path, layout: Layout, rules: Rules, told: Callable[[int], None]) -> Batch:
    """Check every row of a file, in one walk that keeps no row.

    Args:
        told: Called now and then with the number of rows; it may raise to stop the walk.
    """
    with open_table(path, layout, looks=True) as table, Repeats() as repeats:
        walk = _Walk(path, layout, table, rules)
        sound = walk.check_header(table.columns)
        if sound is None and (only := _only_sheet_with_rows(path, layout, table.sheet)) is not None:
            return _survey(path, only, rules, told)
        if sound is not None and not walk.check_rows(repeats, told):
            return walk.given_up()
        found = tuple(sorted(islice(repeats.found(), _MOST_PROBLEMS + 1), key=lambda repeat: repeat.row))
    if len(found) > _MOST_PROBLEMS:
        return walk.given_up()
    if walk.last and walk.last.short and not layout.fingerprint.ends_a_line and layout.format == "csv":
        walk.refuse(walk.last.number, walk.last.line, "", "", _CUT_OFF)
    ids = _request_ids(path, walk.layout, {row for one in found for row in (one.row, one.first_row)}) if found else {}
    for repeat in found:
        walk.refuse(repeat.row, repeat.line, "request_id", ids.get(repeat.row, ""), _repeated(repeat, ids))
    if walk.torn > _MOST_PROBLEMS:
        return walk.given_up()
    walk.tell_torn()
    walk.tell_lacking()
    walk.forget_guesses()
    good = walk.good - len(walk.refused) if sound else 0
    if sound is None:
        return walk.batch(good, repeats=found)
    return walk.batch(good, concerns=tuple(walk.concerns()), notes=tuple(walk.notes()), repeats=found)


def _only_sheet_with_rows(path: Path, layout: Layout, first: Sheet | None) -> Layout | None:
    """How to read a workbook whose first sheet has no known headings, and one other has, as behind a cover sheet."""
    if layout.sheet is not None or first is None:
        return None
    found = list(_headed_sheets(path, layout, first))
    return attrs.evolve(layout, sheet=found[0]) if len(found) == 1 else None


def _headed_sheets(path: Path, layout: Layout, first: Sheet) -> Mapping[str, Columns]:
    """The other sheets of a workbook that have known headings and can be read."""
    found: dict[str, Columns] = {}
    for name in first.others:
        with suppress(ValueError), open_table(path, attrs.evolve(layout, sheet=name), looks=True) as table:
            if table.columns is not None and table.columns.known > 1:
                found[name] = table.columns
    return found


def _repeated(repeat: Repeat, ids: Mapping[int, str]) -> str:
    """What is to be done about a row whose id an earlier one has, or almost."""
    remedy = _REPEATED[repeat.difference].format(first=repeat.first_row)
    almost = ids.get(repeat.row, "").strip() != ids.get(repeat.first_row, "").strip()
    return remedy + _IN_OTHER_LETTERS if almost else remedy


class _Walk:
    """What was seen so far."""

    def __init__(self, path: Path, layout: Layout, table: Table, rules: Rules) -> None:
        self._path = path
        self._table = table
        self._first_layout = layout
        columns = table.columns
        stated = columns.currency if columns else None
        absent = columns.absent if columns else frozenset[str]()
        self._rules = attrs.evolve(rules, unusable=absent, currency=rules.currency or stated)
        self._header_row = columns.row if columns else 1
        self.problems: list[Problem] = []
        self.refused: set[int] = set()
        self.rows = 0
        self.good = 0
        self.last: FileRow | None = None
        self._sums = ControlSums()
        self._remarks: list[tuple[int, str]] = []  # rows in which somebody signs
        self._guessed: dict[tuple[str, str, str], tuple[int, Decimal]] = {}
        self._ignored: dict[str, list[int]] = {}  # column: how many rows fill it in vain, and the first of them
        self._hidden: list[int] = []  # rows nobody sees and that would be paid
        self._shown: dict[str, list[int]] = {}  # by the currency that the sheet shows, where none is named, likewise
        self._torn: list[tuple[int, int, str, str]] | None = []  # None once a column of codes explains all of them
        self._bad: set[int] = set()
        self._told: set[str] = set()  # columns the header was already blamed for
        self._lacking: dict[str, tuple[int, str | None]] = {}  # column: first row that needs it, and its kind

    def batch(
        self,
        good: int,
        *,
        concerns: tuple[Issue, ...] = (),
        notes: tuple[str, ...] = (),
        repeats: tuple[Repeat, ...] = (),
    ) -> Batch:
        """What was found; ``good`` of the rows are orders."""
        refused = frozenset(self.refused | self._bad)
        columns = self._table.columns
        return Batch(
            path=self._path,
            orders=BatchOrders(path=self._path, layout=self.layout, rules=self._rules, refused=refused, count=good),
            problems=tuple(sorted(self.problems, key=_place)),
            concerns=concerns,
            notes=notes,
            repeats=repeats,
            rows=self.rows,
            digest=self.layout.fingerprint.digest,
            columns=columns.used if columns else tuple(self._table.used.values()),
            headings=columns.headings if columns else (),
            mapping=self._mapping(),
            guesses=tuple(
                Guess(operator=operator, kind=kind, product_item_id=item, orders=orders, total=total)
                for (operator, kind, item), (orders, total) in sorted(self._guessed.items())
                if orders
            ),
        )

    @property
    def layout(self) -> Layout:
        """How the file is read, and is to be read again."""
        return attrs.evolve(self._first_layout, mapped=self._table.mapping)

    def _mapping(self) -> dict[str, str]:
        """What somebody said of headings that the file has."""
        columns = self._table.columns
        said = self._table.mapping.items()
        return {column: heading for column, heading in said if columns is None or column in columns.names}

    def given_up(self) -> Batch:
        """A file that is wrong from end to end: none of its rows is an order."""
        row = self.last.number + 1 if self.last else 1
        self.problems.append(Problem(row=row, column="", value="", remedy=_TOO_MANY))
        return self.batch(0)

    def check_rows(self, repeats: Repeats, told: Callable[[int], None]) -> bool:
        """Check each row; tells whether all were, or there are too many problems."""
        for row in self._table.rows:
            if not self.rows % 1024:
                told(self.rows)
            self.check_row(row, repeats)
            if len(self.problems) > _MOST_PROBLEMS:
                return False
        return True

    def check_header(self, columns: Columns | None) -> bool | None:
        """Whether rows can be paid by this header; ``None`` when they cannot even be read."""
        if columns is None:
            return True  # each row names its own, or there is none
        if columns.known < FEWEST_COLUMNS:
            sheet = self._table.sheet
            remedy = _NO_HEADER  # what else stands there may be a person's
            if columns.known:
                remedy += f"; row {columns.row} has {', '.join(filter(None, columns.names))} alone"
            if sheet is not None and sheet.others:
                remedy += _OTHER_SHEETS.format(_listed([sheet.name]), _listed(sheet.others))
            self._blame_header("", "", remedy)
            return None
        if columns.currency not in (None, self._rules.currency):
            remedy = f"the heading says {columns.currency}, the batch is in {self._rules.currency}; correct one of them"
            self._blame_header("amount", columns.currency or "", remedy)
        for column, heading in columns.mapping.items():
            if column not in columns.names and column not in columns.doubled:
                remedy = f"the file has no such heading; it has {_listed([h for h in columns.headings if h])}"
                self._blame_header(column, heading, remedy)
        for column, headings in columns.doubled.items():
            self._blame_header(column, " / ".join(headings), "the file has this column twice; keep one of them")
        for column in sorted(always_needed(self._rules) & columns.absent - columns.doubled.keys() - self._told):
            others = f"; it has no use for {_listed(columns.unknown)}" if columns.unknown else ""
            self._blame_header(column, "", f"the file has no such column{others}; {_missing(column, columns.unknown)}")
        return not self.problems

    def check_row(self, row: FileRow, repeats: Repeats) -> None:
        """Read one row, and keep what is to be said about it."""
        if row.total is not None:
            self._check_total(row, row.total)
            return
        if row.signed is not None:
            self._remarks.append((row.number, row.signed))
            return
        self.rows += 1
        self.last = row
        if row.problem:
            column, remedy = row.problem
            self._blame(row, column, row.cells.get(column, ""), remedy)
            self._sums.add(row.number, None)
            return
        reading = read_row(row.cells, self._rules)
        for column, value, remedy in reading.problems:
            self._blame(row, column, value, remedy)
        self._sums.add(row.number, reading.amount, row.cells.get("amount"))
        for column in reading.lacking:
            self._bad.add(row.number)
            self._lacking.setdefault(column, (row.number, reading.kind))
        for column in reading.ignored:
            self._ignored.setdefault(column, [0, row.number])[0] += 1
        if request_id := reading.values.get("request_id"):
            repeats.add(plain_id(request_id), row.number, row.line, *_hashes(reading))
        if reading.is_good:
            self._take_order(row, reading)
        if row.is_witness:
            self._torn = None

    def _check_total(self, row: FileRow, stated: str) -> None:
        remedy = self._sums.check(row.number, stated)
        if remedy is not None:
            self.problems.append(problem(row.number, row.line, TOTAL, stated, remedy))

    def _take_order(self, row: FileRow, reading: RowReading) -> None:
        """Count a row that makes an order."""
        self.good += 1
        if reading.operator is not None and reading.order is not None:
            self._count_guess(reading.operator, reading.order, 1)
        if self._table.sheet is not None and row.number in self._table.sheet.hidden_rows:
            self._hidden.append(row.number)
        if reading.shown is not None:
            self._shown.setdefault(reading.shown, [0, row.number])[0] += 1
        if row.torn:
            self._take_torn(row)

    @property
    def torn(self) -> int:
        """How many rows may be torn, as far as they are counted."""
        return len(self._torn or ())

    def refuse(self, row: int, line: int, column: str, value: str, remedy: str) -> None:
        """Blame a row for what only shows in the company of others."""
        self.problems.append(problem(row, line, column, value, remedy))
        if row not in self._bad:
            self.refused.add(row)

    def _take_torn(self, row: FileRow) -> None:
        """Keep a row that makes an order as it stands, and another one if its amount goes on in the next cell."""
        for torn in row.torn:
            if not _may_be_meant(read_row(torn.cells, self._rules)):
                continue
            amount, whole = row.cells["amount"], torn.cells["amount"]
            if not torn.may_be_code:
                self._refuse_torn(row.number, row.line, amount, whole)
            elif self._torn is not None and len(self._torn) <= _MOST_PROBLEMS:
                self._torn.append((row.number, row.line, amount, whole))
            return

    def _refuse_torn(self, row: int, line: int, amount: str, whole: str) -> None:
        self.refuse(row, line, "amount", amount, _TORN.format(whole[len(amount) + 1 :], amount))

    def tell_torn(self) -> None:
        """Refuse the rows whose amount may be torn, unless whole amounts stand beside such numbers too."""
        for place in self._torn or ():
            self._refuse_torn(*place)

    def forget_guesses(self) -> None:
        """Do not count what was guessed of rows that were refused later."""
        if not self._guessed or not self.refused:
            return
        with open_table(self._path, self.layout) as table:
            for row in table.rows:
                if row.number in self.refused:
                    reading = read_row(row.cells, self._rules)
                    if reading.operator is not None and reading.order is not None:
                        self._count_guess(reading.operator, reading.order, -1)

    def _count_guess(self, operator: str, order: PayoutOrder, count: int) -> None:
        key = operator, order.kind, order.product_item_id
        orders, total = self._guessed.get(key, (0, Decimal(0)))
        self._guessed[key] = orders + count, EXACT.fma(order.amount, count, total)

    def tell_lacking(self) -> None:
        """Say once which columns rows need that the file is without."""
        if not self.rows and not self.problems:
            self._blame_header("", "", "there is no row to pay; is it the right file?")
        for column, (row, kind) in self._lacking.items():
            if column not in self._told:
                remedy = f"the file has no such column, and {kind or 'some'} rows need it (first in row {row}); add it"
                self._blame_header(column, "", remedy)

    def _blame(self, row: FileRow, column: str, value: str, remedy: str) -> None:
        self._bad.add(row.number)
        self.problems.append(problem(row.number, row.line, column, value, remedy))

    def _blame_header(self, column: str, value: str, remedy: str) -> None:
        self._told.add(column)
        self.problems.append(Problem(row=self._header_row, column=column, value=harmless(value), remedy=remedy))

    def notes(self) -> Iterator[str]:
        """What a person should know, though nothing is wrong."""
        table = self._table
        if self.layout.note:
            yield self.layout.note
        for number, title in table.titles:
            yield f"row {number} stands above the header and is not a payment: {_listed([title])}"
        if agreed := self._sums.agreed:
            rows = f"row {agreed[0]} is a total, and agrees"
            if len(agreed) > 1:
                rows = f"{len(agreed):,} totals agree (rows {', '.join(map(str, agreed[:_NAMED]))}"
                rows += ", ...)" if len(agreed) > _NAMED else ")"
            yield f"{rows} with the amounts above"
        if self._remarks:
            more = f", and {len(self._remarks) - 1:,} more such rows" if len(self._remarks) > 1 else ""
            number, words = self._remarks[0]
            yield f"row {number} is signed and no payment: {_listed([words])}{more}"
        if self._rules.item is not None:
            yield f"rows that name no item have {harmless(self._rules.item)}"
        for column, (count, first) in self._ignored.items():
            yield (
                f"{column} is filled in {count} rows whose kind has no use for it (first in row {first}); "
                "it is not sent"
            )
        if table.sheet is not None and table.sheet.others:
            name = _listed([table.sheet.name])
            yield f"only the sheet {name} is read; the workbook also has {_listed(table.sheet.others)}"
        if self._rules.derive_request_ids and not self._rules.batch_id:
            yield (
                "request ids are derived without a batch id: rows that are alike in the file of another month "
                "get the same ids; pass a batch id"
            )

    def concerns(self) -> Iterator[Issue]:
        """What a person must have looked at: rows that were sent, and what the workbook hides."""
        sheet, columns = self._table.sheet, self._table.columns
        headings = columns.headings if columns else ()
        if self.good and self._rules.derive_request_ids and set(GIVEN_BACK).issubset(headings):
            yield Issue(field="", value=GIVEN_BACK[0], remedy=_SENT_ALREADY)
        for currency, (count, first) in self._shown.items():
            yield Issue(field="amount", value=harmless(currency), remedy=_SHOWN_CURRENCY.format(count, first))
        if sheet is not None:
            yield from self._alike(sheet)
            yield from self._hidden_parts(sheet)

    def _alike(self, sheet: Sheet) -> Iterator[Issue]:
        """Other sheets that may be the one that is meant."""
        if self._first_layout.sheet is not None:
            return
        for other, found in _headed_sheets(self._path, self._first_layout, sheet).items():
            is_alike = found.known >= FEWEST_COLUMNS and not always_needed(self._rules) & found.absent
            if is_alike or other == sheet.shown:
                yield Issue(field="sheet", value=harmless(other), remedy=_SUCH_A_SHEET.format(_listed([sheet.name])))

    def _hidden_parts(self, sheet: Sheet) -> Iterator[Issue]:
        if sheet.is_hidden and self.good:
            yield Issue(field="sheet", value=harmless(sheet.name), remedy=_HIDDEN_SHEET)
        if self._hidden:
            yield Issue(field="rows", value="", remedy=_HIDDEN_ROWS.format(len(self._hidden), self._hidden[0]))
        columns = self._table.columns
        names = columns.names if columns else ()
        for position in sorted(sheet.hidden_columns):
            if position < len(names) and (name := names[position]) is not None:
                yield Issue(field=name, value="", remedy=_HIDDEN_COLUMN)


def _missing(column: str, unknown: Sequence[str]) -> str:
    """What to do about a column that the file does not have."""
    if column == "product_item_id":
        return "add it, name one for all rows (--item), or have it guessed by the numbers' operators (--guess-items)"
    if column == "request_id":
        return (
            "add it, with an id that no other payout ever had (the number of a person is the same each month), or have "
            "stable ids derived (--derive-request-ids)"
        )
    if column == "kind":
        return "add it, or name one for all rows (--kind mobile_money)"
    mapped = f", or say which heading it is (--map {column}='...')" if unknown else ""
    return f"add it, or mend its heading{mapped}"


def _may_be_meant(reading: RowReading) -> bool:
    """Whether a row that was read otherwise has an amount, in whatever currency, and an account that has digits."""
    account = reading.cells.get("account_number") if reading.kind == "bank_transfer" else None
    is_read = reading.amount is not None and not reading.lacking
    is_read = is_read and all(column == "amount" for column, *_ in reading.problems)
    return is_read and (account is None or any(map(str.isdecimal, account)))


def _place(problem: Problem) -> tuple[int, int]:
    return problem.row, COLUMNS.index(problem.column) if problem.column in COLUMNS else -1


def _hashes(reading: RowReading) -> tuple[int, int]:
    """Of the amount, and of all that the row says: what is alike once read counts as alike."""
    amount = hash(reading.amount if reading.amount is not None else reading.cells.get("amount"))
    content = reading.values if reading.is_good else reading.cells
    return amount, hash((reading.currency, frozenset(content.items())))


def _request_ids(path: Path, layout: Layout, rows: set[int]) -> dict[int, str]:
    """The ids in some rows, read again: all of them would not fit into memory."""
    with open_table(path, layout) as table:
        return {row.number: row.cells.get("request_id", "") for row in table.rows if row.number in rows}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(harmless(redact(name))) for name in names)


class Repeats(ExitStack):
    """Collects the ids of a file of any length, and says at the end which came twice.

    Each id costs 48 bytes. Up to ``memory`` bytes they stay in memory; then they go to a temporary file without a
    name (480 MB for 10,000,000 rows), sorted into 256 buckets that are compared one at a time.

    Args:
        memory: Bytes of records kept in memory.
    """

    def __init__(self, *, memory: int = 16 * 2**20) -> None:
        super().__init__()
        self._buckets = self.enter_context(Buckets(memory=memory))

    def add(self, request_id: str, row: int, line: int, amount: int, content: int) -> None:
        """Take down one row.

        Args:
            amount: Hash of the amount.
            content: Hash of all that the row says.
        """
        digest = hashlib.blake2b(request_id.encode("utf-8", "surrogatepass"), digest_size=_ID).digest()
        self._buckets.add((_RECORD.pack(digest, row, line, amount, content),))

    def found(self) -> Iterator[Repeat]:
        """Every row whose id an earlier row has, in no particular order."""
        for records in self._buckets.each():
            first: dict[bytes, tuple[int, int, int]] = {}
            for digest, row, line, amount, content in _RECORD.iter_unpack(records):
                if (earlier := first.setdefault(digest, (row, amount, content)))[0] != row:
                    difference = _difference(earlier[1:], (amount, content))
                    yield Repeat(row=row, line=line, first_row=earlier[0], difference=difference)


def _difference(first: tuple[int, int], later: tuple[int, int]) -> RepeatKind:
    if first == later:
        return "nothing"
    return "amount" if first[0] != later[0] else "details"

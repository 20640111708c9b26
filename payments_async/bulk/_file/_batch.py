"""A batch file, checked as a whole and read again for its orders. Sends nothing and writes nothing down."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs

from payments_async._orders import PayoutOrder
from payments_async.bulk._concerns import Concern
from payments_async.bulk._file._formats import Layout, find_delimiter, format_of, open_table
from payments_async.bulk._file._kinds import read_kind
from payments_async.bulk._file._money import read_currency
from payments_async.bulk._file._phones import PhoneReader
from payments_async.bulk._file._repeats import Repeat
from payments_async.bulk._file._rows import Rules, read_row
from payments_async.bulk._file._source import fingerprint, text_encoding
from payments_async.bulk._file._survey import Findings, survey
from payments_async.bulk._problems import Problem

__all__ = ["Batch", "Orders", "read_batch"]


@attrs.frozen(kw_only=True)
class Orders(Iterable[PayoutOrder]):
    """The good rows of a file as orders, read anew each time it is walked through: nothing is kept in memory.

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
        if not self._count:
            return
        with open_table(self._path, self._layout) as table:
            for row in table.rows:
                if row.fault or row.number in self._refused:
                    continue
                order = read_row(row.cells, self._rules).order
                if order is not None:
                    yield order


@attrs.frozen(kw_only=True)
class Batch:
    """A file that was checked from the first row to the last.

    Look at ``problems`` and ``concerns`` before anything is sent: ``orders`` leaves bad rows out, so an incomplete
    batch looks like a complete one. Of several rows with one request id, the first is among the orders and the others
    are problems.

    Attributes:
        path: The file.
        orders: The good rows, in the order of the file; see ``Orders``. Its length is their number.
        problems: Everything that is wrong, by row and column. Empty means that every row is among the orders. After
            100,000 of them the rest is not read, and no row is among the orders.
        concerns: What a person must have looked at, though it may be right: hidden rows that would be paid, a hidden
            column that is read. ``plan`` takes them as problems until they are acknowledged.
        notes: What a person should know, though nothing is wrong: a guessed encoding, columns nobody reads.
        repeats: The rows with a request id that an earlier row has; each is among the problems too.
        rows: Rows with something in them, good and bad, without the header.
        digest: SHA-256 of the file's bytes, in hexadecimal digits.
    """

    path: Path
    orders: Orders
    problems: tuple[Problem, ...]
    concerns: tuple[Concern, ...]
    notes: tuple[str, ...]
    repeats: tuple[Repeat, ...]
    rows: int
    digest: str


async def read_batch(
    path: str | os.PathLike[str],
    *,
    kind: str | None = None,
    derive_request_ids: bool = False,
    batch_id: str | None = None,
    currency: str | None = None,
    region: str = "UG",
    encoding: str | None = None,
    delimiter: str | None = None,
    sheet: str | None = None,
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
        currency: Currency of the rows that name none; a row that names another is refused.
        region: Where telephone numbers without a country code belong.
        encoding: Of a text file, when the guess is wrong.
        delimiter: Of a CSV file, when the guess is wrong.
        sheet: Of a workbook; the first one by default.

    Raises:
        OSError: When the file cannot be read.
        ImportError: When an extra is not installed: ``cli`` for telephone numbers, ``xlsx`` for workbooks.
        ValueError: For a wrong argument, a path that is no regular file, or a workbook that cannot be read: damaged,
            protected, too large, or a trap.
        BatchChanged: When the file is written to while it is checked.
    """
    rules = Rules(
        kind=None if kind is None else read_kind(kind),
        currency=None if currency is None else read_currency(currency),
        batch_id=batch_id,
        derive_request_ids=derive_request_ids,
        phone=PhoneReader(region),
    )
    stopped = threading.Event()

    def go_on() -> None:
        if stopped.is_set():
            raise InterruptedError("the reading of the batch was cancelled")

    def work() -> Batch:
        source = Path(path)
        layout = _find_layout(source, encoding, delimiter, sheet, go_on)
        return _batch_of(source, layout, survey(source, layout, rules, go_on=go_on))

    try:
        return await asyncio.to_thread(work)
    finally:
        stopped.set()  # a cancelled caller leaves no thread behind that reads for minutes


def _find_layout(
    path: Path, encoding: str | None, delimiter: str | None, sheet: str | None, go_on: Callable[[], None]
) -> Layout:
    content = fingerprint(path, between=go_on)
    guess, guessed = text_encoding(content)
    try:
        format_ = format_of(content.head, encoding or guess)
    except LookupError:
        raise ValueError(f"encoding: Python knows no {encoding!r}; leave it out to have it guessed") from None
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError("delimiter: expected one sign, and no quotation mark; leave it out to have it guessed")
    return Layout(
        format=format_,
        encoding=encoding or guess,
        delimiter=delimiter or find_delimiter(content.head, encoding or guess),
        sheet=sheet,
        note=None if encoding or format_ == "xlsx" else guessed,
        fingerprint=content,
    )


def _batch_of(path: Path, layout: Layout, findings: Findings) -> Batch:
    return Batch(
        path=path,
        orders=Orders(path=path, layout=layout, rules=findings.rules, refused=findings.refused, count=findings.good),
        problems=findings.problems,
        concerns=findings.concerns,
        notes=findings.notes,
        repeats=findings.repeats,
        rows=findings.rows,
        digest=layout.fingerprint.digest,
    )

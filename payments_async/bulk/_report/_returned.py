"""The batch file that came, given back with what became of each row: her own columns, and five more."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from payments_async._values.frozen import frozen
from payments_async.bulk._file._batch import Batch, read_in_threads
from payments_async.bulk._file._cells import NumberCell
from payments_async.bulk._file._headings import GIVEN_BACK
from payments_async.bulk._file._particulars import Row, rows_with_ids
from payments_async.bulk._file._tables import open_cells
from payments_async.bulk._report._files import csv_lines, harmless_line, place_of, replacing
from payments_async.bulk._report._lines import line_of, moment_text
from payments_async.journal import Journal
from payments_async.journal._records import ArchivedOrder, Entry, OutcomeWithHistory

NEVER = b"\0"  # how no file of this kind begins: one that is there is never replaced
_NO_WRITER = "workbooks are written with XlsxWriter: pip install 'payments-async[xlsx]'; or name a file ending in .csv"


@frozen(kw_only=True)
class Returned:
    """What was written.

    Attributes:
        path: The file.
        rows: Its rows that pay or should, as ``Batch.rows``.
        found: Of these, rows whose order the batch holds.
    """

    path: Path
    rows: int
    found: int


async def returned_file(
    journal: Journal,
    batch_id: str,
    batch: Batch,
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int], object] | None = None,
) -> Returned:
    """Write the rows of a batch file once more, each with its outcome, when, the transaction and what is wrong.

    Everything that stands in the file stands there again, also names and numbers; the file is readable by its owner
    alone. Memory stays the same for a file of any length.

    Args:
        batch: The file, read as it was for the batch.
        path: Of a workbook (``.xlsx``), which needs the extra ``xlsx``; of a CSV table otherwise. It must not be there.
        progress: Called now and then with how many rows were written.

    Raises:
        RunUnknown: The journal holds no such batch.
        ValueError: The path is there or is the journal's, the batch file is of JSON lines, or a workbook cannot hold it
            (1,048,576 rows, 32,767 characters in a cell); nothing was written.
        ImportError: XlsxWriter is not installed.
        BatchChanged: The batch file was changed since it was read.
        OSError: The file cannot be written.
        JournalUnavailable: The journal cannot be read.
    """
    await journal.run(batch_id)
    found = 0

    async def outcomes(rows: Sequence[Row]) -> list[Sequence[str]]:
        nonlocal found
        ids = [request_id for _, _, request_id in rows if request_id is not None]
        known = await journal.orders_of(ids) if ids else {}
        orders = [known.get(request_id or "") for *_, request_id in rows]
        found += sum(order is not None and order.batch_id == batch_id for order in orders)
        return [_outcome(order, batch_id) for order in orders]

    await _rewrite(batch, Path(path), GIVEN_BACK, outcomes, progress, journal=getattr(journal, "path", None))
    return Returned(path=Path(path), rows=batch.rows, found=found)


async def problems_file(batch: Batch, path: str | os.PathLike[str]) -> Returned:
    """Write the rows of a batch file once more, each with what is wrong with it, to be mended and planned again.

    Args:
        batch: The file, read.
        path: As for ``returned_file``.

    Returns:
        ``found`` is how many rows have something wrong.

    Raises:
        ValueError, ImportError, BatchChanged, OSError: As for ``returned_file``.
    """
    wrong: dict[int, list[str]] = {}
    for one in batch.problems:
        wrong.setdefault(one.row, []).append(f"{one.column}: {one.remedy}" if one.column else one.remedy)

    async def complaints(rows: Sequence[Row]) -> list[Sequence[str]]:
        return [["; ".join(wrong.get(number, ()))] for number, *_ in rows]

    await _rewrite(batch, Path(path), GIVEN_BACK[3:], complaints, None, journal=None)
    return Returned(path=Path(path), rows=batch.rows, found=len(wrong))


async def _rewrite(
    batch: Batch,
    path: Path,
    columns: Sequence[str],
    beside: Callable[[Sequence[Row]], Awaitable[list[Sequence[str]]]],
    progress: Callable[[int], object] | None,
    *,
    journal: Path | None,
) -> None:
    """Write the rows of a file with further columns, of which the last is the number of the row."""
    place = place_of(path, marker=NEVER, overwrite=False, journal=journal)
    layout = batch.orders.layout
    open_sheet = workbook if path.suffix.lower() == ".xlsx" else _table
    written, below = 0, False
    with (
        open_cells(batch.path, layout) as cells,
        closing(rows_with_ids(batch, cells)) as source,
        replacing(place, marker=NEVER, overwrite=False) as file,
        open_sheet(file, layout.delimiter) as write,
    ):
        async for some in read_in_threads(source):
            lines: list[list[str]] = []
            for (number, row, _), more in zip(some, await beside(some), strict=True):
                if not below and (not batch.headings or tuple(cell.strip() for cell in row) == batch.headings):
                    below = True
                    lines.append([*row, *columns])
                    continue
                written += 1
                padding = [""] * (len(batch.headings) - len(row))
                lines.append([*row, *padding, *more, NumberCell(number)] if below else row)
            await asyncio.to_thread(write, lines)
            if progress is not None:
                progress(written)


def _outcome(order: Entry | ArchivedOrder | None, batch_id: str) -> Sequence[str]:
    """The cells of an order: how it stands, since when, its transaction, and what is wrong."""
    match order:
        case None:
            return "", "", "", ""
        case ArchivedOrder():
            return order.state.meaning.short, "", order.transaction_id or "", "in an archive"
        case _:
            line = line_of(OutcomeWithHistory(entry=order), personal=True)
            elsewhere = "" if order.batch_id == batch_id else f"it is of batch {order.batch_id}"
            wrong = "; ".join(filter(None, (elsewhere, line.need, line.unpaid)))
            at = "" if line.at is None else moment_text(line.at)
            return order.state.meaning.short, at, line.transaction_id, wrong


@contextmanager
def _table(file: IO[bytes], delimiter: str) -> Iterator[Callable[[list[list[str]]], None]]:
    """A CSV table, which spreadsheets read right: with a byte order mark, and the delimiter of the file that came."""
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    writer = csv.writer(text, delimiter=delimiter)
    yield lambda rows: writer.writerows(list(map(harmless_line, row)) for row in rows)
    text.flush()
    text.detach()


@contextmanager
def workbook(file: IO[bytes], _delimiter: str = "") -> Iterator[Callable[[list[list[str]]], None]]:
    """A workbook of one sheet. Texts stay texts, also those that look like a formula."""
    try:
        import xlsxwriter  # type: ignore[import-untyped,import-not-found,unused-ignore]  # has no types, or is not there
    except ImportError as error:
        raise ImportError(_NO_WRITER) from error
    sheet: Any
    at = 0

    def write(rows: list[list[str]]) -> None:
        nonlocal at
        for row in rows:
            for column, cell in enumerate(row):
                left_out = 0
                if isinstance(cell, NumberCell):
                    left_out = sheet.write_number(at, column, float(Decimal(cell)))
                elif cell:
                    left_out = sheet.write_string(at, column, cell)
                if left_out:
                    raise ValueError(f"row {at + 1} is more than a workbook holds; name a file ending in .csv")
            at += 1

    with (
        tempfile.TemporaryDirectory() as folder,  # rows lie there meanwhile, and would stay where something goes wrong
        closing(xlsxwriter.Workbook(file, {"constant_memory": True, "tmpdir": folder})) as book,
    ):
        sheet = book.add_worksheet()
        yield write


def header_of(path: str | os.PathLike[str], columns: Sequence[str]) -> bytes:
    """How a file of these columns begins, by which it is known; no workbook is."""
    return NEVER if Path(path).suffix.lower() == ".xlsx" else csv_lines([columns], "utf-8-sig")


@contextmanager
def lines_below(
    file: IO[bytes], header: bytes, columns: Sequence[str]
) -> Iterator[Callable[[list[list[str]]], object]]:
    """What writes lines below these columns, of a workbook or of a CSV table with this header."""
    if header == NEVER:
        with workbook(file) as write:
            write([list(columns)])
            yield write
    else:
        file.write(header)
        yield lambda rows: file.write(csv_lines(rows))

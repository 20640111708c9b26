"""The batch file that came, given back with what became of each row: her own columns, and five more."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from payments_async._values.frozen import frozen
from payments_async.bulk._file._batch import Batch, read_in_threads
from payments_async.bulk._file._cells import NumberCell
from payments_async.bulk._file._particulars import rows_with_ids
from payments_async.bulk._file._tables import open_cells
from payments_async.bulk._report._files import harmless_line, place_of, replacing
from payments_async.bulk._report._lines import line_of, moment_text
from payments_async.journal import Journal
from payments_async.journal._records import ArchivedOrder, Entry, OutcomeWithHistory

_COLUMNS = ("Outcome", "When (UTC)", "Transaction", "What is wrong", "Row")
_NEVER = b"\0"  # how no file of this kind begins: one that is there is never replaced
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
    written = Path(path)
    place = place_of(written, marker=_NEVER, overwrite=False, journal=getattr(journal, "path", None))
    layout = batch.orders.layout
    open_sheet = _workbook if written.suffix.lower() == ".xlsx" else _table
    rows = found = 0
    with (
        open_cells(batch.path, layout) as cells,
        closing(rows_with_ids(batch, cells)) as source,
        replacing(place, marker=_NEVER, overwrite=False) as file,
        open_sheet(file, layout.delimiter) as write,
    ):
        below = False
        async for some in read_in_threads(source):
            ids = [request_id for _, _, request_id in some if request_id is not None]
            known = await journal.orders_of(ids) if ids else {}
            lines = []
            for number, row, request_id in some:
                order = known.get(request_id or "")
                if not below and (not batch.headings or tuple(cell.strip() for cell in row) == batch.headings):
                    below = True
                    lines.append([*row, *_COLUMNS])
                    continue
                rows += 1
                found += order is not None and order.batch_id == batch_id
                padding = [""] * (len(batch.headings) - len(row))
                lines.append([*row, *padding, *_outcome(order, batch_id), NumberCell(number)] if below else row)
            await asyncio.to_thread(write, lines)
            if progress is not None:
                progress(rows)
    return Returned(path=written, rows=batch.rows, found=found)


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
def _workbook(file: IO[bytes], _delimiter: str) -> Iterator[Callable[[list[list[str]]], None]]:
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

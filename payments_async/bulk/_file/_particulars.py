"""The rows of a batch file with all that stands in them, beside the orders that they make."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import closing

from payments_async.bulk._file._batch import Batch, read_in_threads
from payments_async.bulk._file._cells import NumberCell
from payments_async.bulk._file._headings import FileColumn
from payments_async.bulk._file._tables import open_cells
from payments_async.journal import Particulars

_AMOUNT = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,2})?", re.ASCII)  # what a spreadsheet keeps exactly
_LONGEST = 200  # characters of a cell that are kept
Row = tuple[int, list[str], str | None]  # its number, what stands there, the request id of the order it makes


async def particulars_in(batch: Batch) -> AsyncIterator[Sequence[tuple[str, Particulars]]]:
    """What a file says beside its orders, some hundreds at a time: their rows, and the cells that are not read.

    Of JSON lines nothing: they have no cells.

    Raises:
        BatchChanged: The file was changed since it was read.
        OSError: It cannot be read.
    """
    beside = {number: one.heading for number, one in _columns(batch) if one.column is None}
    if batch.orders.layout.format == "jsonl":
        return
    with open_cells(batch.path, batch.orders.layout) as cells, closing(rows_with_ids(batch, cells)) as source:
        async for some in read_in_threads(source):
            told = []
            for number, row, request_id in some:
                kept = {beside[place]: cell[:_LONGEST] for place, cell in enumerate(row) if place in beside and cell}
                if request_id is not None:
                    told.append((request_id, Particulars(file_row=number, cells=kept)))
            if told:
                yield told


def rows_with_ids(batch: Batch, cells: Iterator[tuple[int, list[str]]]) -> Generator[Row, None, None]:
    """The rows of the file. A plain amount is a number, so that it can be summed."""
    amount = next((number for number, one in _columns(batch) if one.column == "amount"), None)
    orders = batch.orders.with_rows()
    order = next(orders, None)
    for number, row in cells:
        if amount is not None and amount < len(row) and _AMOUNT.fullmatch(row[amount]):
            row[amount] = NumberCell(row[amount])
        if order is not None and order[0] == number:
            yield number, row, order[1].request_id
            order = next(orders, None)
        else:
            yield number, row, None


def _columns(batch: Batch) -> Iterator[tuple[int, FileColumn]]:
    """The columns that have a heading, each with its place in a row."""
    columns = iter(batch.columns)
    return ((place, next(columns)) for place, heading in enumerate(batch.headings) if heading)

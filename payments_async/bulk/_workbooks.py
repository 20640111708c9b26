"""Rows of a workbook (XLSX) by way of python-calamine. The whole sheet is in memory: its format allows nothing else."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from types import ModuleType

from payments_async.bulk._cells import DateCell, NumberCell

__all__ = ["sheet_rows"]

_EXACT = 10**15  # a spreadsheet keeps 15 digits


def sheet_rows(data: bytes, sheet: str | None) -> tuple[Iterator[tuple[int, list[str]]], Sequence[str]]:
    """The rows of a sheet with their numbers, and the names of the other sheets.

    Raises:
        ImportError: When python-calamine is not installed.
        ValueError: When the workbook cannot be opened or has no such sheet.
    """
    calamine = _calamine()
    try:
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    except (calamine.CalamineError, OSError) as error:
        raise ValueError("the workbook cannot be opened; is it damaged, or protected by a password?") from error
    names = book.sheet_names
    if not names:
        raise ValueError("the workbook has no sheet")
    if sheet is None:
        sheet = names[0]
    if sheet not in names:
        raise ValueError(f"sheet: the workbook has no sheet {sheet!r}; it has {', '.join(map(repr, names))}")
    cells = book.get_sheet_by_name(sheet)
    rows = cells.iter_rows() if cells.height else ()  # before 0.9, calamine panics at the rows of an empty sheet
    others = [name for name in names if name != sheet]
    return ((number, [_cell_text(cell) for cell in row]) for number, row in enumerate(rows, start=1)), others


def _calamine() -> ModuleType:
    try:
        import python_calamine
    except ImportError as error:
        raise ImportError("XLSX files need python-calamine: pip install 'payments-async[xlsx]'") from error
    return python_calamine


def _cell_text(cell: object) -> str:
    match cell:
        case str():
            return cell
        case bool():
            return str(cell).upper()
        case int() | float():
            return NumberCell(int(cell) if cell == cell // 1 and abs(cell) < _EXACT else cell)
        case date() | time():
            return DateCell(cell.isoformat())
        case timedelta():
            return DateCell(cell)
        case _:
            return str(cell)

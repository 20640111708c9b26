"""Rows of a workbook (XLSX), from a process of its own that reads it: one that is a trap ends that process alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Context, Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from payments_async._values.frozen import field, frozen
from payments_async.bulk._file._cells import (
    ROUNDED,
    DateCell,
    NumberCell,
    PercentCell,
    ShownCell,
    StruckCell,
    UnsavedCell,
)

_READER = Path(__file__).with_name("_workbook_reader.py")
# It is imported: Python compiles a script each time. At its end nothing has to be put in order.
_READ = "import os, sys; sys.path.append(sys.argv[1]); __import__(sys.argv[2]).main(); os._exit(0)"
_STRUCK = "-"  # the reader's mark of a cell that is struck through
_EXACT = 10**15  # a spreadsheet keeps 15 digits
_PERCENT = Context(prec=15)  # what a spreadsheet keeps; a hundred times it has no more
_PIECE = 2**20
_PATIENCE = 360.0  # seconds until the next rows; the reader's own limit of computing time is lower
_GOODBYE = 60.0  # seconds that it takes at most to end, once it writes no more
_GAVE_UP = "the workbook takes too much memory or time to be read; export the sheet as CSV"
_NO_PYTHON = (
    "a workbook is read by a Python in a process of its own, and {}: export the sheet as CSV, or read it in a program "
    "that a Python runs"
)


@frozen(kw_only=True)
class Sheet:
    """A sheet that is open.

    Attributes:
        name: Of the sheet.
        others: Names of the other sheets.
        shown: Name of the sheet on which the workbook opens.
        is_hidden: Nobody sees the sheet who opens the workbook.
        hidden_rows: Numbers of rows with something in them that nobody sees, by hand or by a filter; empty when nobody
            looked.
        hidden_columns: Positions of columns that nobody sees, from 0; likewise.
        rows: Each with its number. Can be walked through once.
    """

    name: str
    others: Sequence[str]
    shown: str
    is_hidden: bool
    hidden_rows: frozenset[int]
    hidden_columns: frozenset[int]
    rows: Iterator[tuple[int, list[str]]] = field(repr=False)


@contextmanager
def open_sheet(workbook: IO[bytes], name: str | None, *, looks: bool = True) -> Iterator[Sheet]:
    """Read a sheet; the first one by default. The whole of it is in the memory of the process that reads it.

    Args:
        looks: Also measure it, and find out what is hidden, which takes as long again. Leave it out only for a
            workbook that was looked at.

    Raises:
        ImportError: python-calamine is not installed.
        ValueError: Here or while rows are read: the workbook cannot be read, or has no such sheet.
    """
    library = find_spec("python_calamine")
    if library is None or library.origin is None:
        raise ImportError("XLSX files need python-calamine: pip install 'payments-async[xlsx]'")
    with _started() as process:
        try:
            lines = _Lines(process)
            lines.hand_over(json.dumps([name, looks, str(Path(library.origin).parent.parent)]), workbook)
            about = lines.next()
            if not isinstance(about, dict):
                raise ValueError(_GAVE_UP)
            yield Sheet(
                name=about["name"],
                others=tuple(about["others"]),
                shown=about["shown"],
                is_hidden=about["is_hidden"],
                hidden_rows=frozenset(about["rows"]),
                hidden_columns=frozenset(about["columns"]),
                rows=lines.rows(*(_Stretches(about[kind]) for kind in ("marks", "rounded", "formulas"))),
            )
        finally:
            process.kill()


def _started() -> subprocess.Popen[bytes]:
    """The process that reads a workbook.

    Raises:
        ValueError: There is no Python that could.
    """
    python = _python()
    if python is None:
        raise ValueError(_NO_PYTHON.format("this program comes without one"))
    try:
        # -P: what lies in the current folder is not imported in place of a library. -S: nothing that other packages
        # have each Python begin with is run, for it may write to our output; it is 3 ms less, too
        return subprocess.Popen(  # noqa: S603 - nothing of the command comes from outside
            [python, "-P", "-S", "-c", _READ, str(_READER.parent), _READER.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ValueError(_NO_PYTHON.format(f"{python} cannot be started ({error.strerror})")) from error


def _python() -> str | None:
    """The Python that runs this program, or the one of its library; ``None`` where neither is one, as in a frozen one.

    What is not named as a Python is never started: it may be this very program, which would begin its work again.
    """
    if getattr(sys, "frozen", False):
        return None
    if Path(sys.executable or "").name.lower().startswith(("python", "pypy")):
        return sys.executable
    names = ("python.exe",) if os.name == "nt" else (f"bin/python3.{sys.version_info.minor}", "bin/python3")
    places = (Path(prefix, name) for prefix in (sys.prefix, sys.base_prefix) for name in names)
    return next((str(place) for place in places if os.access(place, os.X_OK)), None)


class _Lines:
    """What the reader writes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._into, self._out = process.stdin, process.stdout

    def hand_over(self, wish: str, workbook: IO[bytes]) -> None:
        """Give it what it is asked for, and the workbook. It reads all of it before it writes."""
        with suppress(BrokenPipeError):  # it has ended already, and says why
            self._into.write(f"{wish}\n".encode())
            while piece := workbook.read(_PIECE):
                self._into.write(piece)
            self._into.close()

    def next(self) -> Any:
        """What it says next; ``None`` after the last.

        Raises:
            ValueError: It could not go on.
        """
        watch = threading.Timer(_PATIENCE, self._process.kill)
        watch.start()
        try:
            line = self._out.readline()
        finally:
            watch.cancel()
        if not line.endswith(b"\n"):  # it was ended by the operating system, or ended as no reader of ours does
            with suppress(subprocess.TimeoutExpired):
                if (status := self._process.wait(_GOODBYE)) > 0:
                    raise ValueError(_NO_PYTHON.format(f"that one ended with status {status}"))
            raise ValueError(_GAVE_UP)
        if line.startswith(b"["):
            return _told_rows(line.decode())
        told = json.loads(line)
        if "error" in told:
            raise ValueError(told["error"])
        return None if told == {"end": True} else told

    def rows(self, marks: _Stretches, rounded: _Stretches, formulas: _Stretches) -> Iterator[tuple[int, list[str]]]:
        """All rows with their numbers.

        Args:
            marks: Where cells show more than what they hold, or something else, as far as they were looked at.
            rounded: Where they show so many decimals at most, likewise.
            formulas: Where they are, likewise.
        """
        number = 0
        while (block := self.next()) is not None:
            for cells in block:
                number += 1
                for position, mark in marks.at(number, len(cells)):
                    if mark == _STRUCK:
                        cells[position] = cells[position] and StruckCell(cells[position])
                    elif isinstance(cells[position], NumberCell):
                        cells[position] = _marked(cells[position], mark)
                for position, decimals in rounded.at(number, len(cells)):
                    cell = cells[position]
                    if isinstance(cell, NumberCell) and len(cell.partition(".")[2]) > int(decimals):
                        cells[position] = ShownCell(cell, ROUNDED)
                for position, _ in formulas.at(number, len(cells)):
                    cells[position] = cells[position] or UnsavedCell("a formula")
                yield number, cells


class _Stretches:
    """Cells of a kind, as first and last rows by column, each with a mark; asked row after row.

    Args:
        told: These by the column's position, as the reader tells them.
    """

    def __init__(self, told: Mapping[str, Sequence[tuple[int, int, str]]]) -> None:
        self._left = {int(position): list(reversed(stretches)) for position, stretches in told.items()}

    def at(self, row: int, width: int) -> Iterable[tuple[int, str]]:
        """The columns that have one in this row, below a width, and its mark."""
        return self._at(row, width) if self._left else ()

    def _at(self, row: int, width: int) -> Iterator[tuple[int, str]]:
        for position, stretches in self._left.items():
            while stretches and stretches[-1][1] < row:
                stretches.pop()
            if stretches and stretches[-1][0] <= row and position < width:
                yield position, stretches[-1][2]


def _number(digits: str) -> NumberCell:
    number = float(digits)
    return NumberCell(int(number) if number == number // 1 and abs(number) < _EXACT else number)


_told_rows = json.JSONDecoder(
    parse_int=NumberCell,
    parse_float=_number,
    parse_constant=_number,
    object_hook=lambda told: DateCell(told["moment"]),
).decode


def _marked(number: str, mark: str) -> str:
    """A number, and what the sheet shows of it."""
    if mark == "%":
        return PercentCell(f"{_PERCENT.multiply(Decimal(number), 100):f}%")
    return ShownCell(number, mark)

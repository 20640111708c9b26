"""One walk through a batch file that gathers everything there is to say about it. Keeps no row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import attrs

from payments_async._masking import redact
from payments_async.bulk._concerns import Concern
from payments_async.bulk._file._columns import COLUMNS, Columns
from payments_async.bulk._file._formats import Layout, Row, Table, open_table
from payments_async.bulk._file._repeats import Repeat, Repeats
from payments_async.bulk._file._rows import Reading, Rules, always_needed, read_row
from payments_async.bulk._file._workbooks import Sheet
from payments_async.bulk._problems import Problem, harmless, problem

__all__ = ["Findings", "survey"]

_REPEATED = {
    "nothing": "repeats row {first} exactly; delete it, or give it an id of its own if both are meant",
    "amount": "row {first} has this id with another amount; delete the wrong one, or give this one an id of its own",
    "details": "row {first} has this id with the same amount and other details; delete the wrong one, "
    "or give this one an id of its own",
}
_CUT_OFF = "the file ends within this row and may be cut off; export it again, with a line break after the last row"
_NO_HEADER = "no header, or none that is known; put one such as request_id,kind,amount,name,... above the rows"
_TORN = (
    "followed by {}, which may be the rest of it; put an amount with a comma in quotation marks, and write {}.00 where "
    "that is the whole amount"
)
_MOST_PROBLEMS = 100_000  # more would fill the memory, and nobody mends so many one by one
_TOO_MANY = f"more than {_MOST_PROBLEMS:,} problems: the rest was not read, and no row is taken; is it the right file?"
_HIDDEN_ROWS = (
    "rows are hidden in the spreadsheet, by a filter or by hand, and would be paid: {} of them, the first is row {}; "
    "show them and look at them, or delete them"
)
_HIDDEN_COLUMN = "the column is hidden in the spreadsheet, and is read; show it and look at it"
_HIDDEN_SHEET = "the sheet is hidden in the spreadsheet, and would be paid; show it and look at it, or name another"
_FEWEST_COLUMNS = 3  # a row of cells may have one that sounds like a column, such as a kind "bank"


@attrs.frozen(kw_only=True)
class Findings:
    """What a walk through a file found.

    Attributes:
        rules: The rules by which to read the rows again.
        refused: Good rows that are left out all the same.
        good: How many rows make an order.
        rows, problems, concerns, notes, repeats: As in ``Batch``.
    """

    rules: Rules
    refused: frozenset[int]
    good: int
    rows: int
    problems: tuple[Problem, ...]
    concerns: tuple[Concern, ...]
    notes: tuple[str, ...]
    repeats: tuple[Repeat, ...]


def survey(path: Path, layout: Layout, rules: Rules, *, go_on: Callable[[], None] = lambda: None) -> Findings:
    """Check every row of a file.

    Args:
        go_on: Called now and then; it may raise to stop the walk.
    """
    with open_table(path, layout, looks=True) as table, Repeats() as repeats:
        walk = _Walk(table.columns, rules, frozenset() if table.sheet is None else table.sheet.hidden_rows)
        sound = walk.check_header(table.columns)
        if sound is not None:
            for row in table.rows:
                if not walk.rows % 1024:
                    go_on()
                walk.check_row(row, repeats)
                if len(walk.problems) > _MOST_PROBLEMS:
                    return _given_up(walk)
        found = tuple(sorted(islice(repeats.found(), _MOST_PROBLEMS + 1), key=lambda repeat: repeat.row))
    if len(found) > _MOST_PROBLEMS:
        return _given_up(walk)
    if walk.last and walk.last.short and not layout.fingerprint.ends_a_line and layout.format == "csv":
        walk.refuse(walk.last.number, walk.last.line, "", "", _CUT_OFF)
    ids = _request_ids(path, layout, {repeat.row for repeat in found}) if found else {}
    for repeat in found:
        remedy = _REPEATED[repeat.difference].format(first=repeat.first_row)
        walk.refuse(repeat.row, repeat.line, "request_id", ids.get(repeat.row, ""), remedy)
    if walk.torn > _MOST_PROBLEMS:
        return _given_up(walk)
    walk.tell_torn()
    walk.tell_lacking()
    return Findings(
        rules=walk.rules,
        refused=frozenset(walk.refused),
        good=walk.good - len(walk.refused) if sound else 0,
        rows=walk.rows,
        problems=tuple(sorted(walk.problems, key=_place)),
        concerns=() if sound is None or table.sheet is None else tuple(_concerns(table, table.sheet, walk)),
        notes=() if sound is None else tuple(_notes(table, layout, walk)),
        repeats=found,
    )


def _given_up(walk: _Walk) -> Findings:
    """A file that is wrong from end to end: none of its rows is an order."""
    walk.problems.append(Problem(row=walk.last.number + 1 if walk.last else 1, column="", value="", remedy=_TOO_MANY))
    return Findings(
        rules=walk.rules, refused=frozenset(), good=0, rows=walk.rows,
        problems=tuple(sorted(walk.problems, key=_place)), concerns=(), notes=(), repeats=(),
    )  # fmt: skip


class _Walk:
    """What was seen so far."""

    def __init__(self, columns: Columns | None, rules: Rules, hidden: frozenset[int]) -> None:
        self.rules = attrs.evolve(rules, unusable=columns.absent if columns else frozenset())
        self.header_row = columns.row if columns else 1
        self.problems: list[Problem] = []
        self.refused: set[int] = set()
        self.rows = 0
        self.good = 0
        self.last: Row | None = None
        self.ignored: dict[str, list[int]] = {}  # column: how many rows fill it in vain, and the first of them
        self.hidden: list[int] = []  # rows nobody sees and that would be paid
        self._hidden = hidden
        self._torn: list[tuple[int, int, str, str]] | None = []  # None once a column of codes explains all of them
        self._bad: set[int] = set()
        self._told: set[str] = set()  # columns the header was already blamed for
        self._lacking: dict[str, tuple[int, str | None]] = {}  # column: first row that needs it, and its kind

    def check_header(self, columns: Columns | None) -> bool | None:
        """Whether rows can be paid by this header; ``None`` when they cannot even be read."""
        if columns is None:
            return True  # each row names its own, or there is none
        if len(columns.doubled) + sum(map(bool, columns.names)) < _FEWEST_COLUMNS:
            self._blame_header("", "", _NO_HEADER)  # what stands there may be a person's
            return None
        for column, headings in columns.doubled.items():
            self._blame_header(column, " / ".join(headings), "the file has this column twice; keep one of them")
        for column in sorted(always_needed(self.rules) & columns.absent - columns.doubled.keys()):
            others = f"; it has no use for {_listed(columns.unknown)}" if columns.unknown else ""
            self._blame_header(column, "", f"the file has no such column{others}; add it, or mend its heading")
        return not self.problems

    def check_row(self, row: Row, repeats: Repeats) -> None:
        """Read one row, and keep what is to be said about it."""
        self.rows += 1
        self.last = row
        if row.fault:
            column, remedy = row.fault
            self._blame(row, column, row.cells.get(column, ""), remedy)
            return
        reading = read_row(row.cells, self.rules)
        for column, value, remedy in reading.faults:
            self._blame(row, column, value, remedy)
        for column in reading.lacking:
            self._bad.add(row.number)
            self._lacking.setdefault(column, (row.number, reading.kind))
        for column in reading.ignored:
            self.ignored.setdefault(column, [0, row.number])[0] += 1
        if request_id := reading.values.get("request_id"):
            repeats.add(request_id, row.number, row.line, *_hashes(reading))
        if reading.order is not None:
            self.good += 1
            if row.number in self._hidden:
                self.hidden.append(row.number)
            if row.torn:
                self._take_torn(row)
        if row.is_witness:
            self._torn = None

    @property
    def torn(self) -> int:
        """How many rows may be torn, as far as they are counted."""
        return len(self._torn or ())

    def refuse(self, row: int, line: int, column: str, value: str, remedy: str) -> None:
        """Blame a row for what only shows in the company of others."""
        self.problems.append(problem(row, line, column, value, remedy))
        if row not in self._bad:
            self.refused.add(row)

    def _take_torn(self, row: Row) -> None:
        """Keep a row that makes an order as it stands, and another one if its amount goes on in the next cell."""
        for torn in row.torn:
            if not _may_be_meant(read_row(torn.cells, self.rules)):
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

    def tell_lacking(self) -> None:
        """Say once which columns rows need that the file is without."""
        if not self.rows and not self.problems:
            self._blame_header("", "", "there is no row to pay; is it the right file?")
        for column, (row, kind) in self._lacking.items():
            if column not in self._told:
                remedy = f"the file has no such column, and {kind or 'some'} rows need it (first in row {row}); add it"
                self._blame_header(column, "", remedy)

    def _blame(self, row: Row, column: str, value: str, remedy: str) -> None:
        self._bad.add(row.number)
        self.problems.append(problem(row.number, row.line, column, value, remedy))

    def _blame_header(self, column: str, value: str, remedy: str) -> None:
        self._told.add(column)
        self.problems.append(Problem(row=self.header_row, column=column, value=harmless(value), remedy=remedy))


def _may_be_meant(reading: Reading) -> bool:
    """Whether a row that was read otherwise makes an order, into an account that has digits."""
    account = reading.cells.get("account_number") if reading.kind == "bank_transfer" else None
    return reading.order is not None and (account is None or any(map(str.isdecimal, account)))


def _place(problem: Problem) -> tuple[int, int]:
    return problem.row, COLUMNS.index(problem.column) if problem.column in COLUMNS else -1


def _hashes(reading: Reading) -> tuple[int, int]:
    """Of the amount, and of all that the row says: what is alike once read counts as alike."""
    amount = hash(reading.amount if reading.amount is not None else reading.cells.get("amount"))
    content = hash(reading.order) if reading.order is not None else hash(frozenset(reading.cells.items()))
    return amount, content


def _request_ids(path: Path, layout: Layout, rows: set[int]) -> dict[int, str]:
    """The ids in some rows, read again: all of them would not fit into memory."""
    with open_table(path, layout) as table:
        return {row.number: row.cells.get("request_id", "") for row in table.rows if row.number in rows}


def _notes(table: Table, layout: Layout, walk: _Walk) -> Iterator[str]:
    if layout.note:
        yield layout.note
    if unknown := [*(table.columns.unknown if table.columns else ()), *table.unknown]:
        yield f"columns that are not known and not read: {_listed(unknown)}"
    for column, (count, first) in walk.ignored.items():
        yield f"{column} is filled in {count} rows whose kind has no use for it (first in row {first}); it is not sent"
    if table.sheet is not None and table.sheet.others:
        yield f"only one sheet is read; the workbook also has {_listed(table.sheet.others)}"
    if walk.rules.derive_request_ids and not walk.rules.batch_id:
        yield (
            "request ids are derived without a batch id: rows that are alike in the file of another month "
            "get the same ids; pass a batch id"
        )


def _concerns(table: Table, sheet: Sheet, walk: _Walk) -> Iterator[Concern]:
    if sheet.is_hidden and walk.good:
        yield Concern(field="sheet", value=harmless(sheet.name), remedy=_HIDDEN_SHEET)
    if walk.hidden:
        yield Concern(field="rows", value="", remedy=_HIDDEN_ROWS.format(len(walk.hidden), walk.hidden[0]))
    names = table.columns.names if table.columns else ()
    for position in sorted(sheet.hidden_columns):
        if position < len(names) and (name := names[position]) is not None:
            yield Concern(field=name, value="", remedy=_HIDDEN_COLUMN)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(harmless(redact(name))) for name in names)

"""What is wrong with a file, an order or a batch, fit to be shown: masked where it is personal, and never a formula."""

from __future__ import annotations

import re
from typing import NamedTuple

from payments_async._values.frozen import frozen
from payments_async._values.masking import mask

PERSONAL = frozenset(
    {"name", "phone_number", "email_address", "account_number", "customer_reference", "message", "metadata"}
)
FORMULA = frozenset("=+-@\t\r\uff1d\uff0b\uff0d\uff20")  # spreadsheets take the wide signs for the narrow ones
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_ROUNDED = re.compile(r"[+-]?[0-9](?:[.,][0-9]{1,6})?[eE]\+?[0-9]+", re.ASCII)
_LONGEST_VALUE = 60


@frozen(kw_only=True)
class Problem:
    """One thing that keeps a row, or the whole file, from being paid out.

    Attributes:
        row: The row as a spreadsheet numbers it: the header is row 1, blank rows count, and a cell with a line break
            in it is still one row.
        column: Name of the column as this package calls it; as the file does for one it does not know; empty when the
            problem is the row as a whole.
        value: What stands there; masked when it is personal, and written so that no spreadsheet makes a formula of it.
        remedy: What is wrong and what to do about it.
        line: The line of a text file where the row begins. It runs ahead of ``row`` after a cell with a line break.
    """

    row: int
    column: str
    value: str
    remedy: str
    line: int | None = None

    def __str__(self) -> str:
        line = f" (line {self.line})" if self.line not in {None, self.row} else ""
        return f"row {self.row}{line}, {self.column or 'whole row'} {self.value!r}: {self.remedy}"


def problem(row: int, line: int | None, column: str, value: str, remedy: str) -> Problem:
    """A problem whose value may be shown."""
    if column in PERSONAL and not _ROUNDED.fullmatch(value):  # a rounded number tells nobody's number any more
        value = mask(value) if value else ""
    return Problem(row=row, column=harmless(column), value=harmless(value), remedy=remedy, line=line)


def begins_formula(text: str) -> bool:
    """Whether a spreadsheet might run this text as a formula."""
    return text[:1] in FORMULA


def harmless(text: str) -> str:
    r"""The text on one line, at most 60 characters, with an apostrophe before what would begin a formula.

    >>> harmless("=1+1"), harmless("-500"), harmless("two\nlines")
    ("'=1+1", "'-500", 'two lines')
    """
    quoted = begins_formula(text.lstrip(" "))
    text = _UNPRINTABLE.sub(" ", text)
    if len(text) > _LONGEST_VALUE:
        text = f"{text[:_LONGEST_VALUE]}..."
    return f"'{text}" if quoted or begins_formula(text.lstrip(" ")) else text


class OrderIssue(NamedTuple):
    """Something about one order.

    Attributes:
        field: Of the order.
        value: What stands there, fit to be shown.
        remedy: What is wrong and what to do about it.
        blocks: Whether it keeps the order from being sent.
        concerns: Whether somebody has to look at it before, where it does not block; a warning otherwise.
    """

    field: str
    value: str
    remedy: str
    blocks: bool = True
    concerns: bool = False


@frozen(kw_only=True)
class Issue:
    """One thing a person has to know before a batch is sent.

    Attributes:
        field: Of the order or the file; ``balance`` or ``batch`` for what concerns all of it.
        value: What stands there; masked when it is personal, and written so that no spreadsheet makes a formula of it.
        remedy: What is wrong and what to do about it.
        request_id: The first order it concerns, where it concerns orders.
        row: Row of the file, for what the file's reader refused.
        orders: How many orders it concerns; of what concerns payees, how many of them.
        examples: The first of these orders.
    """

    field: str
    value: str
    remedy: str
    request_id: str | None = None
    row: int | None = None
    orders: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "the batch"
        if self.row is not None:
            where = f"row {self.row}"
        elif self.request_id is not None:
            more = f" and {self.orders - 1:,} more" if self.orders > 1 else ""
            where = f"{self.request_id}{more}"
        field = "" if self.field == "batch" else f", {self.field or 'whole row'}"
        value = f" {self.value!r}" if self.value else ""
        return f"{where}{field}{value}: {self.remedy}"

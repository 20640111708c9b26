"""What one cell may hold: identifiers, account numbers, names and texts. Knows no row and no file format."""

from __future__ import annotations

import re

from payments_async.bulk._problems import begins_formula

__all__ = [
    "DateCell",
    "NumberCell",
    "Unusable",
    "read_account",
    "read_email",
    "read_identifier",
    "read_name",
    "read_text",
]

RUINED = "ruined by a spreadsheet"
AS_TEXT = "format the column as text in the spreadsheet, enter it again and export again"
_LONGEST_ID = 128
_LONGEST_NAME = 256
_LONGEST_TEXT = 4096
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,127}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ZERO_FRACTION = re.compile(r"[0-9]+[.,]0+", re.ASCII)
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)*")
# A spreadsheet always writes the sign of the exponent; an id such as 12E5 has none.
_SCIENTIFIC = re.compile(r"[0-9]+(?:[.,][0-9]+)?[eE][+][0-9]+", re.ASCII)


class Unusable(ValueError):
    """A cell that cannot be read; its text is the remedy."""


class _TypedCell(str):
    """The text of a cell that the file holds as something other than text."""

    __slots__ = ()

    def strip(self, chars: str | None = None, /) -> str:
        """Itself: it has no surrounding blanks, and stays what it is."""
        return self


class NumberCell(_TypedCell):
    """The digits of a cell that the file holds as a number, so that leading zeros may be missing."""

    __slots__ = ()


class DateCell(_TypedCell):
    """The text of a cell that the file holds as a date or a time."""

    __slots__ = ()


def read_identifier(text: str) -> str:
    """A request id, a product or a bank code: any text of one line that is no formula and was not rounded."""
    if type(text) is str and _PLAIN.fullmatch(text):
        return text
    if isinstance(text, DateCell):
        raise Unusable(f"{RUINED}, which made a date of it; {AS_TEXT}")
    if isinstance(text, NumberCell) and not text.isdecimal():
        raise Unusable(f"a number with a fraction or more than 15 digits is no identifier; {AS_TEXT}")
    if _SCIENTIFIC.fullmatch(text):
        raise Unusable(f"{RUINED}, which rounded it; {AS_TEXT}")
    if begins_formula(text):
        raise Unusable("begins like a spreadsheet formula; write it without a sign = + - @ in front")
    if _CONTROL.search(text):
        raise Unusable("contains a line break or an unprintable character; remove it")
    if len(text) > _LONGEST_ID:
        raise Unusable(f"longer than {_LONGEST_ID} characters; shorten it")
    return str(text)


def read_account(text: str) -> str:
    """The number of an account or a meter, where leading zeros count."""
    if isinstance(text, NumberCell):
        raise Unusable(f"stored as a number, so leading zeros may be lost; {AS_TEXT}")
    text = text.removeprefix("'")  # how spreadsheets mark a text
    if _ZERO_FRACTION.fullmatch(text):
        raise Unusable(f"{RUINED}, which took it for a number; {AS_TEXT}")
    if not text:
        raise Unusable("empty but for an apostrophe; enter the number")
    return read_identifier(text)


def read_name(text: str) -> str:
    """The name of a person or a business. One that is a formula is an attack or an accident, and refused."""
    if text.isascii() and text.replace(" ", "").isalpha() and len(text) <= _LONGEST_NAME:
        return text
    if begins_formula(text):
        raise Unusable("a spreadsheet formula, not a name: an accident or an attack; ask where it came from")
    if isinstance(text, NumberCell | DateCell) or not any(map(str.isalpha, text)):
        raise Unusable("not a name; enter the name of the person or business")
    if _CONTROL.search(text):
        raise Unusable("contains a line break or an unprintable character; perhaps a quotation mark is missing")
    if len(text) > _LONGEST_NAME:
        raise Unusable(f"longer than {_LONGEST_NAME} characters; perhaps a quotation mark is missing")
    return text


def read_email(text: str) -> str:
    """An e-mail address."""
    if begins_formula(text) or _CONTROL.search(text) or not _EMAIL.fullmatch(text):
        raise Unusable("not an e-mail address; correct it or leave the cell empty")
    return text


def read_text(text: str) -> str:
    """A message or metadata, kept exactly: it is data even where it looks like a formula."""
    if len(text) > _LONGEST_TEXT:
        raise Unusable(f"longer than {_LONGEST_TEXT} characters; perhaps a quotation mark is missing")
    return str(text)

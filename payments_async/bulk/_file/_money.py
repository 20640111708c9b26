"""Amounts and currencies as people write them. What can be read in two ways is refused, never guessed."""

from __future__ import annotations

import re
from decimal import Decimal

from payments_async.bulk._file._cells import DateCell, NumberCell, Unusable

__all__ = ["read_currency", "read_money"]

MAX_DIGITS = 15  # what a spreadsheet keeps exactly; and nobody is paid more
_SHILLINGS = {"USH": "UGX", "USHS": "UGX", "KSH": "KES", "KSHS": "KES", "TSH": "TZS", "TSHS": "TZS"}
_CODE = re.compile(r"[A-Za-z]{3}", re.ASCII)
_WORD_BEFORE = re.compile(r"([A-Za-z]{3,4})\.? ?(?=[0-9(+-])", re.ASCII)
_WORD_AFTER = re.compile(r"(?<=[0-9]) ?([A-Za-z]{3,4})", re.ASCII)
_WHOLE = re.compile(r"[1-9][0-9]*", re.ASCII)
_PLAIN = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", re.ASCII)
_COMMAS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?", re.ASCII)
_BLANKS = re.compile(r"[1-9][0-9]{0,2}(?: [0-9]{3})+(?:\.[0-9]+)?", re.ASCII)
_POINT_AND_THREE = re.compile(r"[0-9]+\.[0-9]{3}", re.ASCII)

_EXPECTED = "write digits with commas between thousands and one point before cents, as in 1,500,000 or 500.50"
# What an amount looks like that is refused, first match wins, and the remedy.
_REFUSALS = (
    (re.compile(r"[+-]?(?:s?nan|inf(?:inity)?)[0-9]*", re.I), "not a number; enter the amount"),
    (re.compile(r"[-\u2212(].*|.*-"), "negative; an amount is above zero, the direction comes from the kind"),
    (re.compile(r"\+.*"), "begins with a sign; write the digits alone"),
    (re.compile(r"0[0-9].*", re.S), "begins with a zero, as a telephone or account number does; enter the amount"),
    (re.compile(r"0,[0-9]+"), f"ambiguous: the comma may mean thousands or cents; {_EXPECTED}"),
    (re.compile(r"[0-9]+(?:[.,][0-9]+)?[eE][+-]?\d+"), "in scientific notation and perhaps rounded; write all digits"),
    (re.compile(r"[0-9]+,[0-9]{1,2}"), f"ambiguous: the comma may mean thousands or cents; {_EXPECTED}"),
    (re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+"), f"ambiguous: point and comma change places; {_EXPECTED}"),
    (re.compile(r"[0-9.]*\.[0-9.]*"), f"more than one point, or a point without digits; {_EXPECTED}"),
)


def read_money(text: str) -> tuple[Decimal, str | None]:
    """An amount above zero, exact, and the currency written beside it, if any.

    Raises:
        Unusable: For what is ambiguous, negative, zero, no number, or has more than two decimals or 15 digits.

    >>> read_money("1,500,000"), read_money("UGX 500.50"), read_money("14,500/=")
    ((Decimal('1500000'), None), (Decimal('500.50'), 'UGX'), (Decimal('14500'), None))
    """
    if _WHOLE.fullmatch(text) and len(text) <= MAX_DIGITS:
        return Decimal(text), None
    if isinstance(text, DateCell):
        raise Unusable("a spreadsheet made a date of it; format the column as a number and enter the amount again")
    digits, currency = _without_currency(text.replace("\u00a0", " ").replace("\u202f", " "))
    amount = _exact(digits, point_is_sure=isinstance(text, NumberCell))
    if not amount:
        raise Unusable("zero; an amount is above zero: enter it, or leave the order out")
    return amount, currency


def read_currency(text: str) -> str:
    """A currency code of three letters, in capitals."""
    if not _CODE.fullmatch(text):
        raise Unusable("not a currency code; write three letters such as UGX")
    return text.upper()


def _without_currency(text: str) -> tuple[str, str | None]:
    text = text.removesuffix("/=").removesuffix("/-").strip()  # 14,500/= is how shillings are written
    before, after = _WORD_BEFORE.match(text), _WORD_AFTER.search(text)
    if before:
        return text[before.end() :].strip(), _currency_word(before.group(1))
    if after and after.end() == len(text):
        return text[: after.start()], _currency_word(after.group(1))
    return text, None


def _currency_word(word: str) -> str:
    word = word.upper()
    code = _SHILLINGS.get(word, word)
    if code == "NAN" or len(code) != 3:
        raise Unusable(f"not a number; {_EXPECTED}")
    return code


def _exact(digits: str, *, point_is_sure: bool) -> Decimal:
    if not point_is_sure and _POINT_AND_THREE.fullmatch(digits):
        raise Unusable(f"ambiguous: the point may mean thousands or cents; {_EXPECTED}")
    if not (_PLAIN.fullmatch(digits) or _COMMAS.fullmatch(digits) or _BLANKS.fullmatch(digits)):
        remedies = (remedy for form, remedy in _REFUSALS if form.fullmatch(digits))
        raise Unusable(next(remedies, f"no amount; {_EXPECTED}"))
    plain = digits.replace(",", "").replace(" ", "")
    whole, _, cents = plain.partition(".")
    if len(cents.rstrip("0")) > 2:
        raise Unusable("more than two decimals; round it to cents in the file")
    if len(whole) + len(cents) > MAX_DIGITS:
        raise Unusable(f"more than {MAX_DIGITS} digits; enter the amount")
    return Decimal(plain)

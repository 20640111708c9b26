"""Which heading of a file stands for which column: by the words people write, or as somebody said."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from payments_async._values.frozen import field, frozen
from payments_async._values.masking import redact
from payments_async.bulk._problems import harmless

_SYNONYMS = {
    "request_id": "id, request, request no, request number, request ref, request reference, payment id, payout id, "
    "payment reference, payment ref, client reference, external id, external reference, unique id",
    "kind": "type, payment type, payout type, payment method, payout method, method, channel, kind of payout",
    "amount": "amt, sum, value, net pay, net amount, net salary, payment amount, payout amount, amount to pay",
    "currency": "ccy, cur, currency code",
    "name": "full name, names, beneficiary, beneficiary name, recipient, recipient name, payee, payee name, "
    "employee, employee name, employee names, name of employee, customer name, account name, staff name, staff names, "
    "name of staff",
    "phone_number": "phone, phone no, telephone, telephone number, telephone no, tel, tel no, mobile, mobile number, "
    "mobile no, mobile phone, msisdn, cell, cell phone, cellphone number, wallet, wallet number, contact, "
    "contact number, beneficiary phone, beneficiary phone number, recipient phone, mobile money number, "
    "mobile money no, momo number",
    "email_address": "email, e mail, mail, e mail address, beneficiary email",
    "product_id": "product, product code",
    "product_item_id": "product item, item, item id, product item code, provider item id",
    "account_number": "account, account no, acct, acct no, acct number, acc no, acc number, bank account, "
    "bank account no, bank account number, beneficiary account, beneficiary account number, iban",
    "bank_code": "bank, bank id, sort code, bank sort code",
    "customer_reference": "customer ref, customer number, customer no, customer id, customer account, meter, "
    "meter number, meter no, utility account, utility account number",
    "area": "customer area, town, branch area, service area",
    "message": "payment message, message to beneficiary, message to payee",
    "metadata": "meta, meta data",
}
COLUMNS = tuple(_SYNONYMS)
GIVEN_BACK = ("Outcome", "When (UTC)", "Transaction", "What is wrong", "Row")  # of a file with what became of it
_IN_CURRENCY = re.compile(r"(?P<words>.*\w)\s*[(\[]\s*(?P<code>\w{3})\s*[)\]]\s*:?\s*")
_CURRENCIES = (
    *("AED", "BIF", "BWP", "CDF", "CNY", "ETB", "EUR", "GBP", "GHS", "INR", "JPY", "KES", "MWK", "MZN", "NGN", "RWF"),
    *("SOS", "SSP", "TZS", "UGX", "USD", "XAF", "XOF", "ZAR", "ZMW"),
)
# What people write under these is often for themselves. It stays in the file unless they say that it is the message.
_FREE_TEXT = (
    "remarks, remark, reason, purpose, note, notes, comment, comments, narration, narrative, description, details, "
    "particulars, memo, extra, extra data"
)
GoesTo: TypeAlias = Literal["service", "beneficiary"]
_NOT_SENT = ("currency",)  # it is compared with the account, and with the records
_TO_BENEFICIARY = ("message",)
Mapped: TypeAlias = Mapping[str, str] | Callable[[Sequence[str]], Mapping[str, str]]
"""Headings by column; or a function that is given the headings of a file and tells that."""


def plain_word(text: str) -> str:
    """The letters and digits of a text, without regard to case, accents, blanks and punctuation."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))


_BY_WORD = {plain_word(name): name for name in COLUMNS} | {
    plain_word(word): name for name, words in _SYNONYMS.items() for word in words.split(",")
}


_FREE_WORDS = frozenset(plain_word(word) for word in _FREE_TEXT.split(","))


@lru_cache(maxsize=1024)  # the keys of JSON lines are the same on every line
def column_named(heading: str) -> str | None:
    """The column that a heading stands for.

    >>> column_named("Request ID"), column_named(" E-mail:"), column_named("shoe size")
    ('request_id', 'email_address', None)
    """
    column = _BY_WORD.get(plain_word(heading))
    if column is None and currency_in(heading) is not None and (found := _IN_CURRENCY.fullmatch(heading)):
        return "amount" if _BY_WORD.get(plain_word(found["words"])) == "amount" else None
    return column


def currency_in(heading: str) -> str | None:
    """The currency in brackets behind the words of a heading.

    >>> currency_in("Net Pay (UGX)"), currency_in("Net Pay (Nov)")
    ('UGX', None)
    """
    found = _IN_CURRENCY.fullmatch(heading)
    return found["code"].upper() if found and found["code"].upper() in _CURRENCIES else None


def check_mapping(mapping: Mapping[str, str]) -> dict[str, str]:
    """What somebody said of headings, by the names of the columns.

    Raises:
        ValueError: It names no column, no heading, or one of them twice.
    """
    checked: dict[str, str] = {}
    for name, heading in mapping.items():
        column = column_named(name)
        if column is None:
            raise ValueError(f"mapping: there is no column {name!r}; write one of {', '.join(COLUMNS)}")
        if not heading.strip():
            raise ValueError(f"mapping: no heading for {column}; write the one that the file has")
        if column in checked or _key(heading) in map(_key, checked.values()):
            raise ValueError(f"mapping: {column} or {heading.strip()!r} is named twice; name each of them once")
        checked[column] = heading.strip()
    return checked


def _key(heading: str) -> str:
    return plain_word(heading) or heading.strip()


@frozen(kw_only=True)
class FileColumn:
    """A column of a batch file, and what becomes of its cells.

    Attributes:
        heading: As the file has it.
        column: What it is read as; ``None`` for one that is not read.
        is_mapped: Whether it was mapped; otherwise it is known by its words.
        is_free_text: Whether it is not read because people write there for themselves, as in ``Remarks``. Map
            ``message`` to it to send it.
        goes_to: Who gets what stands there: the ``"service"``, or also the ``"beneficiary"``; ``None`` where it stays
            in the file.
    """

    heading: str
    column: str | None
    is_mapped: bool
    is_free_text: bool
    goes_to: GoesTo | None


def file_column(heading: str, column: str | None, mapping: Mapping[str, str]) -> FileColumn:
    """What becomes of the cells below a heading."""
    return FileColumn(
        heading=harmless(redact(heading.strip())),
        column=column,
        is_mapped=column in mapping,
        is_free_text=column is None and plain_word(heading) in _FREE_WORDS,
        goes_to=_goes_to(column),
    )


def _goes_to(column: str | None) -> GoesTo | None:
    if column is None or column in _NOT_SENT:
        return None
    return "beneficiary" if column in _TO_BENEFICIARY else "service"


@frozen(kw_only=True)
class Columns:
    """What a header line says.

    Attributes:
        row: The row it stands in.
        names: Name of each column by position; ``None`` for one that is not known or is doubled.
        headings: As the file has them.
        doubled: For each column that is there twice, how the file heads it.
        mapping: What somebody said of the headings.
    """

    row: int
    names: tuple[str | None, ...]
    headings: tuple[str, ...] = ()
    doubled: dict[str, tuple[str, ...]] = field(factory=dict)
    mapping: dict[str, str] = field(factory=dict)

    @property
    def used(self) -> tuple[FileColumn, ...]:
        """What becomes of each column that has a heading."""
        pairs = zip(self.headings, self.names, strict=True)
        return tuple(file_column(heading, name, self.mapping) for heading, name in pairs if heading)

    @property
    def currency(self) -> str | None:
        """What the heading of the amounts says that they are in."""
        pairs = zip(self.headings, self.names, strict=True)
        return next((currency_in(heading) for heading, name in pairs if name == "amount"), None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Headings that no column is known by; blank headings are not among them."""
        doubled = {harmless(redact(heading.strip())) for headings in self.doubled.values() for heading in headings}
        return tuple(one.heading for one in self.used if one.column is None and one.heading not in doubled)

    @property
    def absent(self) -> frozenset[str]:
        """The columns that the file does not have, or has twice."""
        return frozenset(COLUMNS).difference(self.names)

    @property
    def known(self) -> int:
        """How many columns are known by their headings."""
        return len(self.doubled) + sum(map(bool, self.names))


class Naming:
    """Tells the column of a heading.

    Args:
        mapped: What somebody said of it; of everything else the words decide.
    """

    def __init__(self, mapped: Mapped) -> None:
        self._mapped = mapped
        if not callable(mapped):
            check_mapping(mapped)

    def mapping(self, headings: Sequence[str]) -> dict[str, str]:
        """What holds for these headings."""
        return check_mapping(self._mapped(headings) if callable(self._mapped) else self._mapped)

    def names(self, headings: Sequence[str]) -> list[str | None]:
        """The column of each heading."""
        return _named(headings, self.mapping(headings))

    def columns(self, row: int, headings: Sequence[str]) -> Columns:
        """The known columns of a header line."""
        mapping = self.mapping(headings)
        names = _named(headings, mapping)
        found: dict[str, list[str]] = {}
        for name, heading in zip(names, headings, strict=True):
            if name:
                found.setdefault(name, []).append(heading.strip())
        doubled = {name: tuple(given) for name, given in found.items() if len(given) > 1}
        return Columns(
            row=row,
            names=tuple(None if name in doubled else name for name in names),
            headings=tuple(heading.strip() for heading in headings),
            doubled=doubled,
            mapping=mapping,
        )


def _named(headings: Sequence[str], mapping: Mapping[str, str]) -> list[str | None]:
    if not mapping:
        return [column_named(heading) for heading in headings]
    told = {_key(heading): column for column, heading in mapping.items()}
    found = [told.get(_key(heading)) or column_named(heading) for heading in headings]
    # who says where a column stands says so of the others too that sound like it
    return [None if name in mapping and _key(h) not in told else name for name, h in zip(found, headings, strict=True)]

"""The columns of a batch file and the many names people give them. Reads no cell."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import attrs

__all__ = ["COLUMNS", "Columns", "column_named", "match_columns", "plain_word"]

COLUMNS = (
    "request_id",
    "kind",
    "amount",
    "currency",
    "name",
    "phone_number",
    "email_address",
    "product_id",
    "product_item_id",
    "account_number",
    "bank_code",
    "customer_reference",
    "area",
    "message",
    "metadata",
)
_SYNONYMS = {
    "request_id": "id, request, request no, request number, request ref, request reference, payment id, payout id, "
    "payment reference, payment ref, client reference, external id, external reference, unique id",
    "kind": "type, payment type, payout type, payment method, payout method, method, channel, kind of payout",
    "amount": "amt, sum, value, net pay, net amount, net salary, payment amount, payout amount, amount to pay",
    "currency": "ccy, cur, currency code",
    "name": "full name, names, beneficiary, beneficiary name, recipient, recipient name, payee, payee name, "
    "employee, employee name, customer name, account name, staff name",
    "phone_number": "phone, phone no, telephone, telephone number, telephone no, tel, tel no, mobile, mobile number, "
    "mobile no, mobile phone, msisdn, cell, cell phone, cellphone number, wallet, wallet number, contact, "
    "contact number, beneficiary phone, beneficiary phone number, recipient phone",
    "email_address": "email, e mail, mail, e mail address, beneficiary email",
    "product_id": "product, product code",
    "product_item_id": "product item, item, item id, product item code, provider item id",
    "account_number": "account, account no, acct, acct no, acct number, acc no, acc number, bank account, "
    "bank account no, bank account number, beneficiary account, beneficiary account number, iban",
    "bank_code": "bank, bank id, sort code, bank sort code",
    "customer_reference": "customer ref, customer number, customer no, customer id, customer account, meter, "
    "meter number, meter no, utility account, utility account number",
    "area": "customer area, town, branch area, service area",
    "message": "narration, description, remarks, remark, reason, purpose, note, notes, comment, "
    "comments, payment message",
    "metadata": "meta, meta data, extra, extra data",
}


@attrs.frozen(kw_only=True)
class Columns:
    """What a header line says.

    Attributes:
        row: The row it stands in.
        names: Name of each column by position; ``None`` for one that is not known or is doubled.
        unknown: Headings that no column is known by; blank headings are not among them.
        doubled: For each column that is there twice, how the file heads it.
    """

    row: int
    names: tuple[str | None, ...]
    unknown: tuple[str, ...] = ()
    doubled: dict[str, tuple[str, ...]] = attrs.field(factory=dict)

    @property
    def absent(self) -> frozenset[str]:
        """The columns that the file does not have, or has twice."""
        return frozenset(COLUMNS).difference(self.names)


def plain_word(text: str) -> str:
    """The letters and digits of a text, without regard to case, accents, blanks and punctuation."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))


_BY_WORD = {plain_word(name): name for name in COLUMNS} | {
    plain_word(word): name for name, words in _SYNONYMS.items() for word in words.split(",")
}


@lru_cache(maxsize=1024)  # the keys of JSON lines are the same on every line
def column_named(heading: str) -> str | None:
    """The column that a heading stands for.

    >>> column_named("Request ID"), column_named(" E-mail:"), column_named("shoe size")
    ('request_id', 'email_address', None)
    """
    return _BY_WORD.get(plain_word(heading))


def match_columns(row: int, headings: Sequence[str]) -> Columns:
    """Find the known columns in a header line."""
    found: dict[str, list[str]] = {}
    names = [column_named(heading) for heading in headings]
    for name, heading in zip(names, headings, strict=True):
        if name:
            found.setdefault(name, []).append(heading.strip())
    doubled = {name: tuple(given) for name, given in found.items() if len(given) > 1}
    return Columns(
        row=row,
        names=tuple(None if name in doubled else name for name in names),
        unknown=tuple(h.strip() for h, name in zip(headings, names, strict=True) if name is None and h.strip()),
        doubled=doubled,
    )

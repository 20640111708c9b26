"""The five kinds of payout, the words people have for them, and which columns each one needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from payments_async._orders import (
    AirtimeLine,
    BankAccount,
    Destination,
    InternetLine,
    MobileMoneyWallet,
    UtilityAccount,
)
from payments_async.bulk._file._cells import Unusable
from payments_async.bulk._file._columns import plain_word

__all__ = ["DESTINATIONS", "NEEDED", "destination_of", "needs_area", "read_kind"]

_WORDS = {
    "mobile_money": "momo, mm, mobile wallet, wallet, mobile money payout, mobile money transfer, mtn mobile money, "
    "mtn momo, airtel money, airtel mobile money",
    "bank_transfer": "bank, bank account, bank payment, bank payout, eft, rtgs",
    "airtime": "air time, top up, airtime top up",
    "internet": "data, data bundle, data bundles, mobile data, internet bundle, internet data, bundle, bundles",
    "utility": "utilities, bill, bills, bill payment, utility bill, utility payment, water, water bill, electricity, "
    "power",
}
_BY_WORD = {plain_word(kind): kind for kind in _WORDS} | {
    plain_word(word): kind for kind, words in _WORDS.items() for word in words.split(",")
}
# The columns that say where the money goes, needed ones first. A bank row's account_number is the receiving account.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "mobile_money": ("phone_number",),
    "bank_transfer": ("account_number", "bank_code"),
    "airtime": ("phone_number",),
    "internet": ("phone_number",),
    "utility": ("customer_reference",),
}
DESTINATIONS = frozenset({"account_number", "bank_code", "customer_reference", "area"})  # used by one kind alone


@lru_cache(maxsize=256)
def read_kind(text: str) -> str:
    """The kind that a word means, without regard to case, blanks and punctuation.

    >>> read_kind("Mobile Money"), read_kind("BANK"), read_kind("data bundle")
    ('mobile_money', 'bank_transfer', 'internet')
    """
    kind = _BY_WORD.get(plain_word(text))
    if kind is None:
        raise Unusable(f"no such kind; write one of {', '.join(_WORDS)}")
    return kind


def needs_area(kind: str, products: str) -> bool:
    """Whether the destination needs an area; ``products`` holds the ids of product and item."""
    # Spec: "beneficiary.data.area is required for national water bill payments"
    return kind == "utility" and "NWSC" in products.upper()


def destination_of(kind: str, cells: Mapping[str, str]) -> Destination:
    """Where the money of a row goes, from cells that were read."""
    return _MAKERS[kind](cells)


_MAKERS: Mapping[str, Callable[[Mapping[str, str]], Destination]] = {
    "mobile_money": lambda cells: MobileMoneyWallet(cells["phone_number"]),
    "bank_transfer": lambda cells: BankAccount(cells["account_number"], cells["bank_code"]),
    "airtime": lambda cells: AirtimeLine(cells["phone_number"]),
    "internet": lambda cells: InternetLine(cells["phone_number"]),
    "utility": lambda cells: UtilityAccount(cells["customer_reference"], cells.get("area")),
}

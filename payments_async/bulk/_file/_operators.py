"""Which operator a telephone number was given out to, and which item of the service pays through it.

People keep their numbers when they change the operator, so what follows from a number is a guess.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files

_PLACE = "payments_async.bulk"
_START = 8  # a plus and seven digits: the longest prefix of the table
WORKS_BY_NUMBER = frozenset({"mobile_money", "airtime", "internet"})  # kinds whose item belongs to an operator


def operator_of(phone_number: str) -> str | None:
    """The operator that numbers beginning like this one were given to; ``None`` where that is not known.

    >>> operator_of("+256772000017"), operator_of("+256 752-000017"), operator_of("+256414000017")
    ('MTN', 'Airtel', None)
    """
    start = phone_number[:_START]
    if not start[1:].isdecimal():
        start = f"+{''.join(filter(str.isdecimal, phone_number))}"[:_START]
    return _operator_of_start(start)


@lru_cache(maxsize=4096)  # few operators, and fewer beginnings than numbers
def _operator_of_start(start: str) -> str | None:
    prefixes = _prefixes()
    return next((prefixes[start[:n]] for n in range(len(start), 0, -1) if start[:n] in prefixes), None)


@lru_cache(maxsize=256)
def operator_named_by(product_item_id: str) -> str | None:
    """The operator whose name an item begins with."""
    word = product_item_id.casefold()
    operators = _prefixes().values()
    return next((operator for operator in operators if word.startswith(operator.casefold())), None)


def guess_item(kind: str, phone_number: str) -> tuple[str | None, str | None]:
    """The operator that a number was given to, and the item that pays this kind through it; ``None`` where unknown.

    People keep numbers when they change the operator: have a person look at it before you pay.

    >>> guess_item("mobile_money", "+256752000017")
    ('Airtel', 'AIRTELMOBILEMONEYPAYOUTUG_AIRTELMOBILEMONEYPAYOUTUG')
    """
    operator = operator_of(phone_number) if kind in WORKS_BY_NUMBER else None
    return operator, None if operator is None else _items().get((operator, kind))


@cache
def _prefixes() -> Mapping[str, str]:
    """The operator by the first digits."""
    return {row["prefix"]: row["operator"] for row in _table("operators.csv")}


@cache
def _items() -> Mapping[tuple[str, str], str]:
    return {(row["operator"], row["kind"]): row["product_item_id"] for row in _table("operator_items.csv")}


def _table(name: str) -> list[dict[str, str]]:
    text = (files(_PLACE) / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))

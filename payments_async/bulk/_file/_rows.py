"""One row of a batch file as an order, or as everything that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from typing import Any

import attrs

from payments_async._values.frozen import restored
from payments_async._values.request_ids import request_id_for
from payments_async._wire.kinds import PAYOUT_KINDS
from payments_async._wire.orders import LONGEST_TEXT, Beneficiary, PayoutOrder
from payments_async.bulk._file._cells import (
    PLAIN_ID,
    SHILLINGS,
    SPOILED,
    NumberCell,
    ShownCell,
    Unusable,
    check_shown,
    read_account,
    read_currency,
    read_email,
    read_identifier,
    read_money,
    read_name,
    read_text,
)
from payments_async.bulk._file._headings import plain_word
from payments_async.bulk._file._operators import WORKS_BY_NUMBER, guess_item

_KIND_BY_WORD = {
    plain_word(word): name for name, kind in PAYOUT_KINDS.items() for word in (name, *kind.words.split(","))
}
_NEEDED = {
    name: tuple(column for column in kind.members if column not in kind.optional) for name, kind in PAYOUT_KINDS.items()
}
# The columns that some kinds alone have a use for: a telephone number is the beneficiary's too.
_DESTINATIONS = frozenset(column for kind in PAYOUT_KINDS.values() for column in kind.members) - {"phone_number"}


@lru_cache(maxsize=256)
def read_kind(text: str) -> str:
    """The kind that a word means, without regard to case, blanks and punctuation.

    >>> read_kind("Mobile Money"), read_kind("BANK"), read_kind("data bundle")
    ('mobile_money', 'bank_transfer', 'internet')
    """
    kind = _KIND_BY_WORD.get(plain_word(text))
    if kind is None:
        raise Unusable(f"no such kind; write one of {', '.join(PAYOUT_KINDS)}")
    return kind


# The usual row, looked at as a whole: each cell is as it is sent, and needs no other look. For a column that is not
# filled stands something that is right there.
_ACCOUNT = PLAIN_ID.replace(".", "")  # a point may be what a spreadsheet made of a number
_USUAL = {
    "amount": ("1", r"[1-9][0-9]{0,14}"),
    "name": ("A", r"[A-Za-z][A-Za-z ]{0,199}"),
    "phone_number": ("+0000000", r"\+[0-9]{7,15}"),
    "email_address": ("a@a", r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}@[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*"),
    "currency": ("UGX", r"[A-Z]{3}"),
    **dict.fromkeys(("request_id", "product_item_id", "product_id", "area"), ("0", PLAIN_ID)),
    **dict.fromkeys(("account_number", "bank_code", "customer_reference"), ("0", _ACCOUNT)),
}
_LOOK = re.compile("\n".join(pattern for _, pattern in _USUAL.values()), re.ASCII)
_USUAL_AMOUNT = re.compile(_USUAL["amount"][1], re.ASCII)
_BLANKS = {column: blank for column, (blank, _) in _USUAL.items()}
_looked_at = itemgetter(*_USUAL)
_TEXTS = frozenset({str})
_AMOUNTS = frozenset({NumberCell, ShownCell})
# Of each kind: the columns that a usual row fills, and those that it has no use for.
_FILLED = {
    name: frozenset({"request_id", "amount", "name", "product_item_id", *columns}) for name, columns in _NEEDED.items()
}
_UNUSED = {name: _DESTINATIONS.difference(kind.members) for name, kind in PAYOUT_KINDS.items()}
# ... and those that are not sent as they stand there.
_REWRITTEN = {
    name: ("currency", "phone_number", *({"account_number", "bank_code", "customer_reference"} & kind.members.keys()))
    for name, kind in PAYOUT_KINDS.items()
}


# What a derived request id is made of, with the batch id and the columns that say where the money goes, in this very
# sequence. How the beneficiary is called or reached is left out, so that a corrected spelling is not a second payment.
DERIVED_FROM = ("kind", "amount", "currency", "product_id", "product_item_id", "message", "metadata")
_NEEDED_BY_ALL = ("request_id", "kind", "amount", "name", "product_item_id")
# The columns whose cells are read alone; the amount, the kind and telephone numbers are not among them.
_READERS: Mapping[str, Callable[[str], str]] = {
    "request_id": read_identifier,
    "currency": read_currency,
    "name": read_name,
    "email_address": read_email,
    "product_id": read_identifier,
    "product_item_id": read_identifier,
    "account_number": read_account,
    "bank_code": read_account,
    "customer_reference": read_account,
    "area": read_identifier,
    "message": read_text,
    "metadata": read_text,
}
_EMPTY = "empty; fill it in"
_NO_ITEM = (
    "empty; fill it in, name one for all rows (--item), or have it guessed by the numbers' operators (--guess-items)"
)
_NO_KIND = f"empty; write {', '.join(list(PAYOUT_KINDS)[:-1])} or {list(PAYOUT_KINDS)[-1]}"


@attrs.frozen(kw_only=True)
class Rules:
    """What holds for all rows of one batch.

    Attributes:
        kind: Kind of the rows that name none.
        currency: Currency of the rows that name none; one that names another is refused.
        batch_id: Batch that the orders are marked with.
        derive_request_ids: Whether a row without a request id gets one.
        item: Item of the rows that name none.
        guess_items: Whether a row without one gets the item of the operator that its telephone number was given to.
        phone: Reads a telephone number.
        unusable: Columns the file does not have, or has twice. That was said once; rows do not repeat it.
        readers: Reads a cell, by its column.
        is_usual: Whether what holds for all rows needs no other look either.
    """

    kind: str | None
    currency: str | None
    batch_id: str | None
    derive_request_ids: bool
    item: str | None = None
    guess_items: bool = False
    phone: Callable[[str], str]
    unusable: frozenset[str] = frozenset()
    readers: Mapping[str, Callable[[str], str]] = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: {**_READERS, "phone_number": self.phone}, True)
    )
    is_usual: bool = attrs.field(init=False, repr=False)

    @is_usual.default
    def _looks_usual(self) -> bool:
        return self.batch_id is None or re.fullmatch(PLAIN_ID, self.batch_id, re.ASCII) is not None


@attrs.define
class RowReading:
    """A row that was read.

    Attributes:
        is_good: It makes an order.
        order: The order, where that had to be made to know this.
        problems: Column, value as it stands, and remedy, for each thing that is wrong.
        lacking: Columns that the row needs and the whole file is without.
        ignored: Columns that are filled and mean nothing for this kind.
        values: What could be read, by column.
        kind: The kind, as far as it is known.
        amount: The amount, as far as it could be read.
        currency: The currency, likewise.
        operator: Whose item was guessed, where it was.
        shown: The currency in which the sheet shows the amount, where the row is in none that was named.
    """

    cells: Mapping[str, str]
    unusable: frozenset[str]
    is_good: bool = False
    order: PayoutOrder | None = None
    problems: list[tuple[str, str, str]] = attrs.field(factory=list)
    lacking: list[str] = attrs.field(factory=list)
    ignored: list[str] = attrs.field(factory=list)
    values: dict[str, str] = attrs.field(factory=dict)
    kind: str | None = None
    amount: Decimal | None = None
    currency: str | None = None
    operator: str | None = None
    shown: str | None = None

    def need(self, column: str, remedy: str = _EMPTY) -> None:
        """Complain of a cell that is empty."""
        if column in self.unusable:
            self.lacking.append(column)
        elif column not in self.cells:
            self.problems.append((column, "", remedy))


def always_needed(rules: Rules) -> frozenset[str]:
    """The columns without which no row can be read."""
    given = {
        "kind": rules.kind is not None,
        "request_id": rules.derive_request_ids,
        "product_item_id": rules.item is not None or rules.guess_items,
    }
    return frozenset(column for column in _NEEDED_BY_ALL if not given.get(column))


def read_row(cells: Mapping[str, str], rules: Rules) -> RowReading:
    """Read a row; everything that is wrong with it is found, not only the first thing."""
    return _usual_row(cells, rules) or read_cells(cells, rules)


def _usual_row(cells: Mapping[str, str], rules: Rules) -> RowReading | None:
    """A row whose cells are as they mostly are, read by one look at all of them; ``None`` for any other."""
    told = cells.get
    written, currency = told("amount"), told("currency") or rules.currency
    try:
        kind = read_kind(word) if (word := told("kind")) else rules.kind
        phone = rules.phone(number) if (number := told("phone_number")) else None
        shown = written.shown if isinstance(written, ShownCell) and not check_shown(written, currency) else None
    except Unusable:
        return None
    if kind is None or not (cells.keys() >= _FILLED[kind] and rules.is_usual and _UNUSED[kind].isdisjoint(cells)):
        return None
    needs_area = PAYOUT_KINDS[kind].area_needed_for
    if needs_area is not None and "area" not in cells and needs_area(told("product_id"), told("product_item_id")):
        return None
    values = {**cells, "kind": kind}
    if phone is not None:
        values["phone_number"] = phone
    if _LOOK.fullmatch("\n".join(_looked_at({**_BLANKS, **values}))) is None:
        return None
    texts = told("message", "") + told("metadata", "")
    types = [*map(type, cells.values())]
    numbers = (written.__class__ in _AMOUNTS) + (number.__class__ is NumberCell)  # these two may be
    if not (
        types.count(str) + numbers == len(types)
        and (not rules.currency or currency == rules.currency)
        and texts.isascii()
        and len(texts) <= LONGEST_TEXT
    ):
        return None
    del values["amount"]
    return RowReading(
        cells,
        rules.unusable,
        is_good=True,
        values=values,
        kind=kind,
        amount=Decimal(cells["amount"]),
        currency=currency,
        shown=shown,
    )


def read_cells(cells: Mapping[str, str], rules: Rules) -> RowReading:
    """Read a row cell by cell, and make its order."""
    row = RowReading(cells, rules.unusable)
    _take_kind(row, rules)
    _find_ignored(row)
    values, readers, ignored = row.values, rules.readers, row.ignored
    for column, cell in cells.items():
        if cell.__class__ is not str and cell.__class__ in SPOILED:
            row.problems.append((column, cell, cell.remedy))  # type: ignore[attr-defined]  # all of these have one
        elif column in readers and column not in ignored:
            try:
                values[column] = readers[column](cell)
            except Unusable as error:
                row.problems.append((column, cell, str(error)))
    _take_money(row, rules)
    for column in ("amount", "name"):
        if column not in cells:
            row.need(column)
    if "product_item_id" not in cells:
        _take_item(row, rules)
    _check_destination(row)
    if "request_id" not in cells:
        _name_row(row, rules)
    if not row.problems and not row.lacking:
        _make_order(row, rules)
    return row


def read_good_row(cells: Mapping[str, str], rules: Rules) -> PayoutOrder:
    """The order of a row that ``read_row`` has made an order of: what was found right is not looked at again."""
    word, written, readers = cells.get("kind"), cells["amount"], rules.readers
    kind = (read_kind(word) if word else rules.kind) or ""
    is_text = _TEXTS.issuperset(map(type, cells.values()))
    values = {**cells} if is_text else {name: str(cells[name]) for name in cells}
    for column in _REWRITTEN[kind]:
        if column in cells:
            values[column] = readers[column](cells[column])
    if is_text and _USUAL_AMOUNT.fullmatch(written) and "product_item_id" in cells and "request_id" in cells:
        amount, currency = Decimal(written), values.get("currency") or rules.currency
    else:
        row = RowReading(cells, rules.unusable, values=values | {"kind": kind}, kind=kind)
        values = row.values
        _take_money(row, rules)
        if "product_item_id" not in cells:
            _take_item(row, rules)
        if "request_id" not in cells:
            _name_row(row, rules)
        amount, currency = row.amount or Decimal(0), row.currency
    members = _members(values, kind, amount, currency, rules)
    members["destination"] = restored(PAYOUT_KINDS[kind].destination, members["destination"])
    members["beneficiary"] = restored(Beneficiary, members["beneficiary"])
    return restored(PayoutOrder, members)


def _take_kind(row: RowReading, rules: Rules) -> None:
    """The kind of the row, or that of all rows."""
    row.kind = rules.kind
    if cell := row.cells.get("kind"):
        try:
            row.kind = read_kind(cell)
        except Unusable as error:
            row.kind = None
            row.problems.append(("kind", cell, str(error)))
    if row.kind:
        row.values["kind"] = row.kind
    else:
        row.need("kind", _NO_KIND)


def _take_money(row: RowReading, rules: Rules) -> None:
    """The amount and its currency, which may stand in a column, beside the amount, or hold for all rows."""
    stated = row.values.get("currency")
    named = stated or (rules.currency if "currency" not in row.cells else None)
    beside = None
    if (cell := row.cells.get("amount")) and cell.__class__ not in SPOILED:
        try:
            row.amount, beside = read_money(cell, named)
        except Unusable as error:
            row.problems.append(("amount", cell, str(error)))
    if beside == SHILLINGS and named is None:
        beside = None
        row.problems.append(("amount", cell or "", "in shillings of a country that is not told; name the currency"))
    if beside and stated and beside != stated:
        told = "shillings" if beside == SHILLINGS else beside
        remedy = f"in {told}, but the currency column says {stated}; correct one of them"
        row.problems.append(("amount", cell or "", remedy))
    row.currency = stated or beside or named
    if rules.currency and row.currency and row.currency != rules.currency:
        where, value = ("currency", stated) if stated else ("amount", cell or "")
        row.problems.append((where, value, f"the batch is in {rules.currency}; move this row to a batch of its own"))
    if isinstance(cell, ShownCell):
        try:
            row.shown = None if check_shown(cell, row.currency) else cell.shown
        except Unusable as error:
            row.problems.append(("amount", cell, str(error)))


def _take_item(row: RowReading, rules: Rules) -> None:
    """The item of a row that names none: that of all rows, or the one of the operator of its telephone number."""
    if rules.item is not None:
        row.values["product_item_id"] = rules.item
        return
    if not rules.guess_items or row.kind is None:
        row.need("product_item_id", _NO_ITEM)
        return
    phone = row.values.get("phone_number") if row.kind in WORKS_BY_NUMBER else None
    operator, item = guess_item(row.kind, phone) if phone else (None, None)
    if item is not None:
        row.operator, row.values["product_item_id"] = operator, item
    elif phone or row.kind not in WORKS_BY_NUMBER:  # a row without its number is blamed for that
        what = f"no item for {row.kind} through {operator}" if operator else "no item that follows from the number"
        remedy = f"empty, and there is {what}; fill it in (see `payments-async products`)"
        row.problems.append(("product_item_id", "", remedy))


def _check_destination(row: RowReading) -> None:
    """Complain of what is missing to say where the money goes."""
    if row.kind is None:
        return
    for column in _NEEDED[row.kind]:
        if column not in row.cells:
            row.need(column, f"empty, and a {row.kind} row needs it; fill it in")
    needs_area, values = PAYOUT_KINDS[row.kind].area_needed_for, row.values
    if needs_area is not None and needs_area(values.get("product_id"), values.get("product_item_id")):
        row.need("area", "empty, and national water needs it; enter the area, such as Kampala")


def _find_ignored(row: RowReading) -> None:
    """Find what is filled in, and is of no use for this kind."""
    if row.kind and not _DESTINATIONS.isdisjoint(row.cells):
        used = PAYOUT_KINDS[row.kind].members
        row.ignored += [column for column in row.cells if column in _DESTINATIONS and column not in used]


def _name_row(row: RowReading, rules: Rules) -> None:
    """Derive the request id of a row that has none, or complain of that."""
    if not rules.derive_request_ids:
        row.need(
            "request_id",
            "empty; enter an id that no other payout ever had, or have stable ids derived (--derive-request-ids)",
        )
    elif not row.problems and not row.lacking and row.amount:
        values = row.values | {"amount": format(row.amount.normalize(), "f"), "currency": row.currency or ""}
        columns = (*DERIVED_FROM, *PAYOUT_KINDS[values["kind"]].members)
        parts = [f"{column}={values[column]}" for column in columns if values.get(column)]
        row.values["request_id"] = request_id_for("payout", f"batch={rules.batch_id or ''}", *parts)


def _make_order(row: RowReading, rules: Rules) -> None:
    """The order, from cells that were read."""
    kind = row.values["kind"]
    members = _members(row.values, kind, row.amount, row.currency, rules)
    try:
        members["destination"] = PAYOUT_KINDS[kind].destination(**members["destination"])
        members["beneficiary"] = Beneficiary(**members["beneficiary"])
        row.order = PayoutOrder(**members)
        row.is_good = True
    except ValueError as error:  # a rule of the order that no cell of its own broke
        column = str(error).partition(":")[0].rpartition(".")[2]
        known = column if column in row.cells else ""
        row.problems.append((known, row.cells.get(known, ""), str(error)))


def _members(
    values: Mapping[str, str], kind: str, amount: Decimal | None, currency: str | None, rules: Rules
) -> dict[str, Any]:
    """The members of an order, of its destination and of its beneficiary, from cells that were read."""
    told = values.get
    return {
        "request_id": values["request_id"],
        "amount": amount,
        "destination": {column: told(column) for column in PAYOUT_KINDS[kind].members},
        "product_item_id": values["product_item_id"],
        "beneficiary": {
            "name": values["name"],
            "phone_number": told("phone_number"),
            "email_address": told("email_address"),
        },
        "product_id": told("product_id"),
        "batch_id": rules.batch_id,
        "message": told("message"),
        "metadata": told("metadata"),
        "currency": currency,
    }

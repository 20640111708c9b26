"""One row of a batch file made into an order, or into everything that is wrong with it. Reads no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

import attrs

from payments_async._orders import Beneficiary, PayoutOrder
from payments_async._request_ids import request_id_for
from payments_async.bulk._file._cells import (
    Unusable,
    read_account,
    read_email,
    read_identifier,
    read_name,
    read_text,
)
from payments_async.bulk._file._kinds import DESTINATIONS, NEEDED, destination_of, needs_area, read_kind
from payments_async.bulk._file._money import read_currency, read_money

__all__ = ["DERIVED_FROM", "Reading", "Rules", "always_needed", "read_row"]

# What a derived request id is made of, with the batch id and the columns that say where the money goes. How the
# beneficiary is called or reached is left out, so that a corrected spelling is no second payment.
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


@attrs.frozen(kw_only=True)
class Rules:
    """What holds for all rows of one batch.

    Attributes:
        kind: Kind of the rows that name none.
        currency: Currency of the rows that name none; one that names another is refused.
        batch_id: Batch that the orders are marked with.
        derive_request_ids: Whether a row without a request id gets one.
        phone: Reads a telephone number.
        unusable: Columns the file does not have, or has twice. That was said once; rows do not repeat it.
        readers: Reads a cell, by its column.
    """

    kind: str | None
    currency: str | None
    batch_id: str | None
    derive_request_ids: bool
    phone: Callable[[str], str]
    unusable: frozenset[str] = frozenset()
    readers: Mapping[str, Callable[[str], str]] = attrs.field(
        init=False, repr=False, default=attrs.Factory(lambda self: {**_READERS, "phone_number": self.phone}, True)
    )


@attrs.define
class Reading:
    """A row that was read.

    Attributes:
        order: The order; ``None`` when something is wrong.
        faults: Column, value as it stands, and remedy, for each thing that is wrong.
        lacking: Columns that the row needs and the whole file is without.
        ignored: Columns that are filled and mean nothing for this kind.
        values: What could be read, by column.
        kind: The kind, as far as it is known.
        amount: The amount, as far as it could be read.
        currency: The currency, likewise.
    """

    cells: Mapping[str, str]
    unusable: frozenset[str]
    order: PayoutOrder | None = None
    faults: list[tuple[str, str, str]] = attrs.field(factory=list)
    lacking: list[str] = attrs.field(factory=list)
    ignored: list[str] = attrs.field(factory=list)
    values: dict[str, str] = attrs.field(factory=dict)
    kind: str | None = None
    amount: Decimal | None = None
    currency: str | None = None

    def need(self, column: str, remedy: str = _EMPTY) -> None:
        """Complain of a cell that is empty."""
        if column in self.unusable:
            self.lacking.append(column)
        elif column not in self.cells:
            self.faults.append((column, "", remedy))


def always_needed(rules: Rules) -> frozenset[str]:
    """The columns without which no row can be read."""
    given = {"kind"} if rules.kind else set()
    return frozenset(_NEEDED_BY_ALL) - given - ({"request_id"} if rules.derive_request_ids else set())


def read_row(cells: Mapping[str, str], rules: Rules) -> Reading:
    """Read a row; everything that is wrong with it is found, not only the first thing."""
    row = Reading(cells, rules.unusable)
    _take_kind(row, rules)
    _find_ignored(row)
    for column, cell in cells.items():
        read = rules.readers.get(column)
        if read is not None and column not in row.ignored:
            try:
                row.values[column] = read(cell)
            except Unusable as fault:
                row.faults.append((column, cell, str(fault)))
    _take_money(row, rules)
    for column in ("amount", "name", "product_item_id"):
        if column not in cells:
            row.need(column)
    _check_destination(row)
    if "request_id" not in cells:
        _name_row(row, rules)
    if not row.faults and not row.lacking:
        _make_order(row, rules)
    return row


def _take_kind(row: Reading, rules: Rules) -> None:
    row.kind = rules.kind
    if cell := row.cells.get("kind"):
        try:
            row.kind = read_kind(cell)
        except Unusable as fault:
            row.kind = None
            row.faults.append(("kind", cell, str(fault)))
    if row.kind:
        row.values["kind"] = row.kind
    else:
        row.need("kind", "empty; write mobile_money, bank_transfer, airtime, internet or utility")


def _take_money(row: Reading, rules: Rules) -> None:
    stated = row.values.get("currency")
    beside = None
    if cell := row.cells.get("amount"):
        try:
            row.amount, beside = read_money(cell)
        except Unusable as fault:
            row.faults.append(("amount", cell, str(fault)))
    if beside and stated and beside != stated:
        remedy = f"in {beside}, but the currency column says {stated}; correct one of them"
        row.faults.append(("amount", cell or "", remedy))
    row.currency = stated or beside or (rules.currency if "currency" not in row.cells else None)
    if rules.currency and row.currency and row.currency != rules.currency:
        where, value = ("currency", stated) if stated else ("amount", cell or "")
        row.faults.append((where, value, f"the batch is in {rules.currency}; move this row to a batch of its own"))


def _check_destination(row: Reading) -> None:
    if row.kind is None:
        return
    for column in NEEDED[row.kind]:
        if column not in row.cells:
            row.need(column, f"empty, and a {row.kind} row needs it; fill it in")
    values = row.values
    if "area" not in row.cells and row.kind == "utility":
        products = f"{values.get('product_id', '')} {values.get('product_item_id', '')}"
        if needs_area(row.kind, products):
            row.need("area", "empty, and national water needs it; enter the area, such as Kampala")


def _find_ignored(row: Reading) -> None:
    if row.kind and not DESTINATIONS.isdisjoint(row.cells):
        used = _destination_columns(row.kind)
        row.ignored += [column for column in row.cells if column in DESTINATIONS and column not in used]


def _destination_columns(kind: str) -> tuple[str, ...]:
    return (*NEEDED[kind], "area") if kind == "utility" else NEEDED[kind]


def _name_row(row: Reading, rules: Rules) -> None:
    if not rules.derive_request_ids:
        row.need(
            "request_id",
            "empty; enter an id that no other payout ever had, or let stable ids be derived (derive_request_ids)",
        )
    elif not row.faults and not row.lacking and row.amount:
        values = row.values | {"amount": format(row.amount.normalize(), "f"), "currency": row.currency or ""}
        columns = (*DERIVED_FROM, *_destination_columns(values["kind"]))
        parts = [f"{column}={values[column]}" for column in columns if values.get(column)]
        row.values["request_id"] = request_id_for("payout", f"batch={rules.batch_id or ''}", *parts)


def _make_order(row: Reading, rules: Rules) -> None:
    values = row.values
    assert row.kind is not None
    assert row.amount is not None
    try:
        row.order = PayoutOrder(
            request_id=values["request_id"],
            amount=row.amount,
            destination=destination_of(row.kind, values),
            product_item_id=values["product_item_id"],
            beneficiary=Beneficiary(
                name=values["name"],
                phone_number=values.get("phone_number"),
                email_address=values.get("email_address"),
            ),
            product_id=values.get("product_id"),
            batch_id=rules.batch_id,
            message=values.get("message"),
            metadata=values.get("metadata"),
            currency=row.currency,
        )
    except ValueError as error:  # a rule of the order that no cell of its own broke
        column = str(error).partition(":")[0].rpartition(".")[2]
        known = column if column in row.cells else ""
        row.faults.append((known, row.cells.get(known, ""), str(error)))

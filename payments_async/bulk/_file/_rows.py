"""One row of a batch file, under the headings people write, as an order or as everything that is wrong with it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache

import attrs

from payments_async._frozen import field, frozen
from payments_async._kinds import PAYOUT_KINDS
from payments_async._orders import Beneficiary, PayoutOrder
from payments_async._request_ids import request_id_for
from payments_async.bulk._file._cells import (
    Unusable,
    read_account,
    read_currency,
    read_email,
    read_identifier,
    read_money,
    read_name,
    read_text,
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
COLUMNS = tuple(_SYNONYMS)


@frozen(kw_only=True)
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
    doubled: dict[str, tuple[str, ...]] = field(factory=dict)

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


# What a derived request id is made of, with the batch id and the columns that say where the money goes, in this very
# sequence. How the beneficiary is called or reached is left out, so that a corrected spelling is no second payment.
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
_NO_KIND = f"empty; write {', '.join(list(PAYOUT_KINDS)[:-1])} or {list(PAYOUT_KINDS)[-1]}"


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
class RowReading:
    """A row that was read.

    Attributes:
        order: The order; ``None`` when something is wrong.
        problems: Column, value as it stands, and remedy, for each thing that is wrong.
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
    problems: list[tuple[str, str, str]] = attrs.field(factory=list)
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
            self.problems.append((column, "", remedy))


def always_needed(rules: Rules) -> frozenset[str]:
    """The columns without which no row can be read."""
    given = {"kind"} if rules.kind else set()
    return frozenset(_NEEDED_BY_ALL) - given - ({"request_id"} if rules.derive_request_ids else set())


def read_row(cells: Mapping[str, str], rules: Rules) -> RowReading:
    """Read a row; everything that is wrong with it is found, not only the first thing."""
    row = RowReading(cells, rules.unusable)
    _take_kind(row, rules)
    _find_ignored(row)
    for column, cell in cells.items():
        read = rules.readers.get(column)
        if read is not None and column not in row.ignored:
            try:
                row.values[column] = read(cell)
            except Unusable as error:
                row.problems.append((column, cell, str(error)))
    _take_money(row, rules)
    for column in ("amount", "name", "product_item_id"):
        if column not in cells:
            row.need(column)
    _check_destination(row)
    if "request_id" not in cells:
        _name_row(row, rules)
    if not row.problems and not row.lacking:
        _make_order(row, rules)
    return row


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
    beside = None
    if cell := row.cells.get("amount"):
        try:
            row.amount, beside = read_money(cell)
        except Unusable as error:
            row.problems.append(("amount", cell, str(error)))
    if beside and stated and beside != stated:
        remedy = f"in {beside}, but the currency column says {stated}; correct one of them"
        row.problems.append(("amount", cell or "", remedy))
    row.currency = stated or beside or (rules.currency if "currency" not in row.cells else None)
    if rules.currency and row.currency and row.currency != rules.currency:
        where, value = ("currency", stated) if stated else ("amount", cell or "")
        row.problems.append((where, value, f"the batch is in {rules.currency}; move this row to a batch of its own"))


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
            "empty; enter an id that no other payout ever had, or let stable ids be derived (derive_request_ids)",
        )
    elif not row.problems and not row.lacking and row.amount:
        values = row.values | {"amount": format(row.amount.normalize(), "f"), "currency": row.currency or ""}
        columns = (*DERIVED_FROM, *PAYOUT_KINDS[values["kind"]].members)
        parts = [f"{column}={values[column]}" for column in columns if values.get(column)]
        row.values["request_id"] = request_id_for("payout", f"batch={rules.batch_id or ''}", *parts)


def _make_order(row: RowReading, rules: Rules) -> None:
    """The order, from cells that were read."""
    values = row.values
    assert row.kind is not None
    assert row.amount is not None
    kind = PAYOUT_KINDS[row.kind]
    try:
        row.order = PayoutOrder(
            request_id=values["request_id"],
            amount=row.amount,
            destination=kind.destination(**{column: values[column] for column in kind.members if column in values}),
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
        row.problems.append((known, row.cells.get(known, ""), str(error)))

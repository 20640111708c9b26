"""The body of a post endpoint, checked to the letter."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

import attrs

from ._catalogue import ITEMS, PRODUCTS, Channel, Item, Product
from ._quirks import Quirks
from ._spelling import Code, Refusal, optional_text, required_text

Kind = Literal["payout", "collection"]
_OPTIONAL_TEXTS = ("batchId", "accountNumber", "message", "metadata")
_BENEFICIARY_TEXTS = ("id", "name", "emailAddress", "phoneNumber")
# No payment has 18 digits before or behind the point; a number that does would cost time and exactness further on.
_DIGITS = 18


@attrs.frozen(kw_only=True)
class Counterparty:
    """Who is paid, or who pays: the beneficiary, as the order named them.

    Attributes:
        reference: The wallet, account, line or customer number.
    """

    id: str = ""
    name: str = ""
    email_address: str = ""
    phone_number: str = ""
    reference: str = ""


@attrs.frozen(kw_only=True)
class Order:
    """One payout or collection that passed every check."""

    request_id: str
    batch_id: str
    amount: Decimal
    kind: Kind
    item_id: str
    message: str
    beneficiary: Counterparty


@attrs.frozen
class OrderRules:
    """What one post endpoint asks for."""

    channel: Channel

    @property
    def kind(self) -> Kind:
        """Whether money goes out or comes in."""
        return "collection" if self.channel == "collections" else "payout"

    @property
    def type(self) -> str:
        """The value of `type`. # Spec: "`DEBIT` in payout requests, `CREDIT` in collection requests"."""
        return "CREDIT" if self.channel == "collections" else "DEBIT"


def read_order(body: Mapping[str, object], rules: OrderRules, quirks: Quirks, account_number: int) -> Order:
    """Check a transaction request and return what it orders.

    Raises:
        Refusal: Something the specification does not allow; the message names the field.
    """
    request_id = required_text(body, "requestId")
    texts = {name: optional_text(body, name) for name in _OPTIONAL_TEXTS}
    if texts["accountNumber"] not in ("", str(account_number)):
        raise Refusal(400, Code.WRONG_VALUE, "accountNumber is not an account of this user")
    amount = read_amount(body)
    # Spec: "Described as initially not set.", while every sample sets it
    if body.get("type") != rules.type:
        raise Refusal(400, Code.WRONG_VALUE, f"type must be {rules.type}")
    item = _item(body, rules)
    if quirks.enforces_bounds and (refusal := item.refusal(amount)):
        raise Refusal(400, Code.WRONG_VALUE, refusal)
    return Order(
        request_id=request_id,
        batch_id=texts["batchId"],
        amount=amount,
        kind=rules.kind,
        item_id=item.item_id,
        message=texts["message"],
        beneficiary=_beneficiary(body, rules, PRODUCTS[item.product_id], quirks),
    )


def read_amount(body: Mapping[str, object]) -> Decimal:
    """Return the amount: a JSON number above zero."""
    amount = body.get("amount")
    if amount is None:
        raise Refusal(400, Code.MISSING, "amount is required")
    if isinstance(amount, bool) or not isinstance(amount, int | Decimal):
        raise Refusal(400, Code.WRONG_VALUE, "amount must be a number")
    exact = Decimal(amount)
    if exact <= 0:
        raise Refusal(400, Code.WRONG_VALUE, "amount must be above zero")
    if exact.adjusted() >= _DIGITS or -int(exact.as_tuple().exponent) > _DIGITS:
        raise Refusal(400, Code.WRONG_VALUE, "amount has too many digits")
    return exact


def _member(body: Mapping[str, object], name: str, path: str) -> Mapping[str, object]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refusal(400, Code.WRONG_VALUE, f"{path} must be an object")
    return value


def _item(body: Mapping[str, object], rules: OrderRules) -> Item:
    # Spec: "provider.providerItemId | Collections only: item identifier within the provider."
    owner, key = ("provider", "providerItemId") if rules.kind == "collection" else ("product", "productItemId")
    chosen = _member(body, owner, owner)
    item = ITEMS.get(required_text(chosen, key, f"{owner}.{key}"))
    if item is None or PRODUCTS[item.product_id].channel != rules.channel:
        raise Refusal(400, Code.UNKNOWN_ITEM, f"{owner}.{key} is not an item of {rules.channel}")
    if optional_text(chosen, "id", f"{owner}.id") not in ("", item.product_id):
        raise Refusal(400, Code.WRONG_VALUE, f"{owner}.id does not own this item")
    return item


def _beneficiary(body: Mapping[str, object], rules: OrderRules, product: Product, quirks: Quirks) -> Counterparty:
    beneficiary = _member(body, "beneficiary", "beneficiary")
    texts = {name: optional_text(beneficiary, name, f"beneficiary.{name}") for name in _BENEFICIARY_TEXTS}
    data = _member(beneficiary, "data", "beneficiary.data")
    return Counterparty(
        id=texts["id"],
        name=texts["name"],
        email_address=texts["emailAddress"],
        phone_number=texts["phoneNumber"],
        reference=_reference(data, rules, product, quirks),
    )


def _reference(data: Mapping[str, object], rules: OrderRules, product: Product, quirks: Quirks) -> str:
    match rules.channel:
        case "mobilemoney" | "airtime" | "internet" | "collections":
            return required_text(data, "phoneNumber", "beneficiary.data.phoneNumber")
        case "banktransfers":
            _bank_code(data, quirks)
            return required_text(data, "bankAccount", "beneficiary.data.bankAccount")
        case "utilities":
            # Spec: "`beneficiary.data.area` is required for national water bill payments and optional for electricity"
            area = required_text if product.needs_area else optional_text
            area(data, "area", "beneficiary.data.area")
            return required_text(data, "customerReference", "beneficiary.data.customerReference")


def _bank_code(data: Mapping[str, object], quirks: Quirks) -> None:
    given = {optional_text(data, key, f"beneficiary.data.{key}") for key in quirks.bank_code_keys} - {""}
    if not given:
        raise Refusal(400, Code.MISSING, f"beneficiary.data.{' or '.join(quirks.bank_code_keys)} is required")
    if len(given) > 1:
        raise Refusal(400, Code.WRONG_VALUE, "beneficiary.data names two different banks")

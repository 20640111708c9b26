"""An order as it is kept on disk: the bytes of its request, in the specification's own spelling, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

import attrs
import msgspec

from payments_async._amounts import amount_text
from payments_async._dialect import Dialect
from payments_async._orders import (
    AirtimeLine,
    BankAccount,
    Beneficiary,
    CollectionOrder,
    Destination,
    InternetLine,
    MobileMoneyWallet,
    Order,
    PayoutOrder,
    UtilityAccount,
)
from payments_async._wire.bodies import collection_body, payout_body
from payments_async._wire.codec import encode

__all__ = ["COLLECTION", "currency_of", "is_sent_as_written", "kind_of", "read_order", "request_of", "write_order"]

T = TypeVar("T")
COLLECTION = "collection"  # the kind of money in
_STANDARD = Dialect()
_SPELLINGS = ("bank_code_keys", "phone_format", "empty_members")  # the fields of a dialect that a body depends on
_DATA: Mapping[str, tuple[type[Destination], tuple[str, ...]]] = {  # what a destination's data holds, field by field
    "mobile_money": (MobileMoneyWallet, ("phoneNumber",)),
    "bank_transfer": (BankAccount, ("bankAccount", "bankCode")),
    "airtime": (AirtimeLine, ("phoneNumber",)),
    "internet": (InternetLine, ("phoneNumber",)),
    "utility": (UtilityAccount, ("customerReference", "area")),
    COLLECTION: (MobileMoneyWallet, ("phoneNumber",)),
}
_SHARED = {
    "batchId": "batch_id", "accountNumber": "account_number", "message": "message", "metadata": "metadata",
}  # fmt: skip
_PERSON = {"id": "id", "name": "name", "emailAddress": "email_address", "phoneNumber": "phone_number"}
_PUT: Mapping[type, Mapping[str, Callable[[object, Any], None]]] = {
    kind: {field.name: getattr(kind, field.name).__set__ for field in attrs.fields(kind)}
    for kind in (*dict(_DATA.values()), Beneficiary, PayoutOrder, CollectionOrder)
}
_decode = msgspec.json.Decoder().decode
_parts = msgspec.json.Decoder(tuple[str, str | None, msgspec.Raw]).decode


def kind_of(order: Order) -> str:
    """The kind of an order, by the names that batch files have for it; ``collection`` for money in."""
    if isinstance(order, CollectionOrder):
        return COLLECTION
    match order.destination:
        case MobileMoneyWallet():
            return "mobile_money"
        case BankAccount():
            return "bank_transfer"
        case AirtimeLine():
            return "airtime"
        case InternetLine():
            return "internet"
        case UtilityAccount():
            return "utility"


def is_sent_as_written(dialect: Dialect) -> bool:
    """Whether the body that a dialect sends is, byte for byte, the one that ``write_order`` keeps."""
    return all(getattr(dialect, name) == getattr(_STANDARD, name) for name in _SPELLINGS)


def write_order(order: Order) -> bytes:
    """All of an order but its request id and amount, which are kept beside it. The same bytes for equal orders.

    A JSON array: its kind, the currency its caller means, which is never sent, and the members of its request.
    """
    members = payout_body(order, _STANDARD) if isinstance(order, PayoutOrder) else collection_body(order, _STANDARD)
    del members["requestId"], members["amount"]
    return encode((kind_of(order), order.currency, members))


def request_of(request_id: str, amount: Decimal, written: bytes) -> tuple[str, bytes]:
    """The kind of an order and the body of its request, from what ``write_order`` wrote.

    Raises:
        ValueError: When the bytes are no order.
    """
    kind, _, members = _split(written)
    head = b'{"requestId":%b,"amount":%b,' % (encode(request_id), amount_text(amount).encode())
    return kind, head + bytes(members)[1:]


def currency_of(written: bytes) -> str | None:
    """What ``write_order`` kept as the currency of an order.

    Raises:
        ValueError: When the bytes are no order.
    """
    return _split(written)[1]


def read_order(request_id: str, amount: Decimal, written: bytes) -> Order:
    """The order that ``write_order`` wrote, as it was then: a stricter check of today does not keep it back.

    Raises:
        ValueError: When the bytes are no order.
    """
    kind, currency, members = _split(written)
    try:
        return _read(kind, _decode(members), {"request_id": request_id, "amount": amount, "currency": currency})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("the bytes are no order of ours") from error


def _split(written: bytes) -> tuple[str, str | None, msgspec.Raw]:
    try:
        parts = _parts(written)
    except msgspec.DecodeError as error:
        raise ValueError("the bytes are no order of ours") from error
    if parts[0] not in _DATA:
        raise ValueError(f"an order of a kind that is not known here: {parts[0]}")
    return parts


def _read(kind: str, members: Any, known: dict[str, Any]) -> Order:
    person = members.pop("beneficiary")
    place, names = _DATA[kind]
    data = person.pop("data")
    known["beneficiary"] = _restored(Beneficiary, _moved(person, _PERSON))
    target = _restored(place, dict(zip(_PUT[place], map(data.get, names), strict=True)))
    if kind == COLLECTION:
        known |= {"payer": target, "provider_item_id": members.pop("provider")["providerItemId"]}
        return _restored(CollectionOrder, known | _moved(members, _SHARED))
    product = members.pop("product")
    known |= {"destination": target, "product_item_id": product["productItemId"], "product_id": product.get("id")}
    return _restored(PayoutOrder, known | _moved(members, _SHARED))


def _moved(members: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[name]: value for name, value in members.items() if name != "type"}


def _restored(kind: type[T], members: Mapping[str, Any]) -> T:
    """Bring an object back as unpickling does: it was checked when it was made, and its digest proves it the same."""
    restored = kind.__new__(kind)
    for name, put in _PUT[kind].items():
        put(restored, members.get(name))  # whatever has a default has this one
    return restored

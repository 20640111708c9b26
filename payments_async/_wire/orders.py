"""Orders as JSON: the body that is sent, the bytes that are kept on disk, and the way back from these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

import attrs
import msgspec

from payments_async._amounts import amount_text
from payments_async._dialect import Dialect
from payments_async._kinds import KINDS, Kind, reference_of
from payments_async._orders import Beneficiary, CollectionOrder, Destination, Order, PayoutOrder
from payments_async._wire.codec import encode

__all__ = [
    "currency_of",
    "is_sent_as_written",
    "json_amount",
    "order_members",
    "private_texts",
    "read_order",
    "request_of",
    "write_order",
]

T = TypeVar("T")
_STANDARD = Dialect()
_SPELLINGS = ("bank_code_keys", "phone_format", "empty_members")  # the fields of a dialect that a body depends on
_SHARED = {
    "batchId": "batch_id",
    "accountNumber": "account_number",
    "message": "message",
    "metadata": "metadata",
}
_PERSON = {"id": "id", "name": "name", "emailAddress": "email_address", "phoneNumber": "phone_number"}
_PUT: Mapping[type, Mapping[str, Callable[[object, Any], None]]] = {
    kind: {field.name: getattr(kind, field.name).__set__ for field in attrs.fields(kind)}
    for kind in (*(row.destination for row in KINDS.values()), Beneficiary, PayoutOrder, CollectionOrder)
}
_decode = msgspec.json.Decoder().decode
_parts = msgspec.json.Decoder(tuple[str, str | None, msgspec.Raw]).decode


def order_members(order: Order, dialect: Dialect) -> dict[str, Any]:
    """The members of a payout (sections 2 to 6) or of a collection (section 7)."""
    if isinstance(order, PayoutOrder):
        members, destination = _shared_members(order, "DEBIT", dialect), order.destination
        product = {"productItemId": order.product_item_id}
        members["product"] = product if order.product_id is None else {"id": order.product_id} | product
    else:
        members, destination = _shared_members(order, "CREDIT", dialect), order.payer
        members["provider"] = {"providerItemId": order.provider_item_id}
    data = _destination_data(KINDS[order.kind], destination, dialect)
    members["beneficiary"] = _beneficiary(order.beneficiary, data, dialect)
    return members


def json_amount(amount: Decimal) -> msgspec.Raw:
    """The amount as a JSON number: all digits, its scale, no exponent."""
    return msgspec.Raw(amount_text(amount).encode())


def private_texts(order: Order) -> tuple[str, ...]:
    """The personal texts of an order, to be masked in words that come back."""
    who = order.beneficiary
    texts = (
        reference_of(order),
        who.name,
        who.phone_number,
        who.email_address,
        who.id,
        order.account_number,
        order.message,
        order.metadata,
        *who.name.split(),  # words from outside may say only a part of it
    )
    return tuple(sorted(filter(None, texts), key=len, reverse=True))  # the longest first: it may hold a shorter one


def is_sent_as_written(dialect: Dialect) -> bool:
    """Whether the body that a dialect sends is, byte for byte, the one that ``write_order`` keeps."""
    return all(getattr(dialect, name) == getattr(_STANDARD, name) for name in _SPELLINGS)


def write_order(order: Order) -> bytes:
    """All of an order but its request id and amount, which are kept beside it. The same bytes for equal orders.

    A JSON array: its kind, the currency its caller means, which is never sent, and the members of its request.
    """
    members = order_members(order, _STANDARD)
    del members["requestId"], members["amount"]
    return encode((order.kind, order.currency, members))


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


def _destination_data(kind: Kind, destination: Destination, dialect: Dialect) -> dict[str, str]:
    """What ``beneficiary.data`` holds; what is empty is left out."""
    data: dict[str, str] = {}
    for field, member in kind.members.items():
        value = getattr(destination, field)
        if field == "phone_number":
            data[member] = _phone(value, dialect)
        elif field == "bank_code":
            data |= dict.fromkeys(dialect.bank_code_keys, value)
        elif value:
            data[member] = value
    return data


def _shared_members(order: Order, direction: str, dialect: Dialect) -> dict[str, Any]:
    """What payouts and collections have in common, in the order of the samples."""
    null_too = dialect.empty_members == "null"
    members: dict[str, Any] = {"requestId": order.request_id, "amount": json_amount(order.amount)}
    if order.batch_id is not None or null_too:
        members["batchId"] = order.batch_id
    if order.account_number is not None:  # Spec: "described but absent from all sample requests"
        members["accountNumber"] = order.account_number
    members["type"] = direction
    if order.message is not None or null_too:
        members["message"] = order.message
    if order.metadata is not None or null_too:
        members["metadata"] = order.metadata
    return members


def _beneficiary(beneficiary: Beneficiary, data: dict[str, str], dialect: Dialect) -> dict[str, Any]:
    """Who is paid, with the data that says where the money goes."""
    null_too = dialect.empty_members == "null"
    phone = beneficiary.phone_number
    members: dict[str, Any] = {} if beneficiary.id is None else {"id": beneficiary.id}
    members["name"] = beneficiary.name
    if beneficiary.email_address is not None or null_too:
        members["emailAddress"] = beneficiary.email_address
    if phone is not None or null_too:
        members["phoneNumber"] = phone and _phone(phone, dialect)
    members["data"] = data
    return members


def _phone(number: str, dialect: Dialect) -> str:
    """A telephone number, spelled as the dialect wants it."""
    if dialect.phone_format == "as_given":
        return number
    country = dialect.phone_country_code
    digits = "".join(filter(str.isdecimal, number))
    if number.strip().startswith("+"):
        full = digits
    elif digits.startswith("00"):
        full = digits[2:]
    elif digits.startswith("0"):
        full = country + digits[1:]
    else:
        full = digits if digits.startswith(country) and len(digits) > 9 else country + digits
    if dialect.phone_format == "e164":
        return f"+{full}"
    if dialect.phone_format == "digits" or not full.startswith(country):
        return full
    return f"0{full[len(country) :]}"


def _split(written: bytes) -> tuple[str, str | None, msgspec.Raw]:
    """Kind, currency and members of a written order."""
    try:
        parts = _parts(written)
    except msgspec.DecodeError as error:
        raise ValueError("the bytes are no order of ours") from error
    if parts[0] not in KINDS:
        raise ValueError(f"an order of a kind that is not known here: {parts[0]}")
    return parts


def _read(kind: str, members: Any, known: dict[str, Any]) -> Order:
    """The order of these members; ``known`` is what is kept beside them."""
    person = members.pop("beneficiary")
    row = KINDS[kind]
    data = person.pop("data")
    known["beneficiary"] = _restored(Beneficiary, _moved(person, _PERSON))
    destination = _restored(row.destination, {field: data.get(member) for field, member in row.members.items()})
    if kind == CollectionOrder.kind:
        known |= {"payer": destination, "provider_item_id": members.pop("provider")["providerItemId"]}
        return _restored(CollectionOrder, known | _moved(members, _SHARED))
    product = members.pop("product")
    known |= {"destination": destination, "product_item_id": product["productItemId"], "product_id": product.get("id")}
    return _restored(PayoutOrder, known | _moved(members, _SHARED))


def _moved(members: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Members under the names of our fields."""
    return {names[name]: value for name, value in members.items() if name != "type"}


def _restored(kind: type[T], members: Mapping[str, Any]) -> T:
    """Bring an object back as unpickling does: it was checked when it was made, and its digest proves it the same."""
    restored = kind.__new__(kind)
    for name, put in _PUT[kind].items():
        put(restored, members.get(name))  # whatever has a default has this one
    return restored

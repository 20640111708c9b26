"""Orders as JSON: the body that is sent, the bytes that are kept on disk, and the way back from these."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from payments_async._values.amounts import amount_text
from payments_async._values.frozen import restored
from payments_async._wire.codec import encode
from payments_async._wire.dialect import Dialect
from payments_async._wire.kinds import KINDS, Kind, reference_of
from payments_async._wire.orders import Beneficiary, CollectionOrder, Destination, Order, PayoutOrder

_STANDARD = Dialect()
_SPELLINGS = ("bank_code_keys", "phone_format", "empty_members")  # the fields of a dialect that a body depends on
_SHARED = {
    "batchId": "batch_id",
    "accountNumber": "account_number",
    "message": "message",
    "metadata": "metadata",
}
_PERSON = {"id": "id", "name": "name", "emailAddress": "email_address", "phoneNumber": "phone_number"}
_decode = msgspec.json.Decoder().decode
_parts = msgspec.json.Decoder(tuple[str, str | None, msgspec.Raw]).decode


class _Person(msgspec.Struct):
    """Who is paid, with the data that says where the money goes."""

    id: str | UnsetType
    name: str
    emailAddress: str | UnsetType | None  # noqa: N815 - the service's own spelling
    phoneNumber: str | UnsetType | None  # noqa: N815
    data: dict[str, str]

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # what tools ask for that take records apart
        return []

    __repr__ = object.__repr__  # it is all personal


class _Paid(msgspec.Struct):
    """Who is paid, as it was kept; the rest of the members is passed over."""

    name: str
    id: str | None = None
    phoneNumber: str | None = None  # noqa: N815
    data: dict[str, str] = {}

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []

    __repr__ = object.__repr__


class _Kept(msgspec.Struct):
    """The members of an order, as far as they name a person."""

    beneficiary: _Paid
    accountNumber: str | None = None  # noqa: N815

    __repr__ = object.__repr__


_whole = msgspec.json.Decoder(tuple[str, str | None, _Kept]).decode


class Members(msgspec.Struct):
    """The members of an order's request, in the order of the samples; one that is ``UNSET`` is left out."""

    requestId: str | UnsetType  # noqa: N815 - the service's own spelling
    amount: msgspec.Raw | UnsetType
    batchId: str | UnsetType | None  # noqa: N815
    accountNumber: str | UnsetType  # noqa: N815 - Spec: "described but absent from all sample requests"
    type: str
    message: str | UnsetType | None
    metadata: str | UnsetType | None
    product: dict[str, str] | UnsetType
    provider: dict[str, str] | UnsetType
    beneficiary: _Person

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("requestId", self.requestId)]

    def __repr__(self) -> str:
        return f"<Members of {self.requestId}>"  # the rest holds personal data


def order_members(order: Order, dialect: Dialect) -> Members:
    """The members of a payout (sections 2 to 6) or of a collection (section 7)."""
    members = _without_amount(order, dialect)
    members.requestId, members.amount = order.request_id, json_amount(order.amount)
    return members


def _without_amount(order: Order, dialect: Dialect) -> Members:
    """The same but for its request id and its amount."""
    unfilled = None if dialect.empty_members == "null" else UNSET
    product: dict[str, str] | UnsetType = UNSET
    provider: dict[str, str] | UnsetType = UNSET
    if isinstance(order, PayoutOrder):
        direction, destination, product = "DEBIT", order.destination, {"productItemId": order.product_item_id}
        if order.product_id is not None:
            product = {"id": order.product_id} | product
    else:
        direction, destination, provider = "CREDIT", order.payer, {"providerItemId": order.provider_item_id}
    who = order.beneficiary
    return Members(
        requestId=UNSET,
        amount=UNSET,
        batchId=unfilled if order.batch_id is None else order.batch_id,
        accountNumber=UNSET if order.account_number is None else order.account_number,
        type=direction,
        message=unfilled if order.message is None else order.message,
        metadata=unfilled if order.metadata is None else order.metadata,
        product=product,
        provider=provider,
        beneficiary=_Person(
            id=UNSET if who.id is None else who.id,
            name=who.name,
            emailAddress=unfilled if who.email_address is None else who.email_address,
            phoneNumber=unfilled if who.phone_number is None else _phone(who.phone_number, dialect),
            data=_destination_data(KINDS[order.kind], destination, dialect),
        ),
    )


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
    return encode((order.kind, order.currency, _without_amount(order, _STANDARD)))


def request_of(request_id: str, amount: Decimal, written: bytes) -> tuple[str, bytes]:
    """The kind of an order and the body of its request, from what ``write_order`` wrote.

    Raises:
        ValueError: When the bytes are not an order.
    """
    kind, _, members = _split(written)
    head = b'{"requestId":%b,"amount":%b,' % (encode(request_id), amount_text(amount).encode())
    return kind, head + bytes(members)[1:]


def currency_of(written: bytes) -> str | None:
    """What ``write_order`` kept as the currency of an order.

    Raises:
        ValueError: When the bytes are not an order.
    """
    return _split(written)[1]


def person_in(written: bytes) -> tuple[str, tuple[str, ...]]:
    """The name that ``write_order`` kept, and the numbers that say where the money goes.

    Raises:
        ValueError: When the bytes are not an order.
    """
    try:
        who = _whole(written)[2].beneficiary
    except msgspec.DecodeError as error:
        raise ValueError("the bytes are not an order of ours") from error
    numbers = (who.phoneNumber, who.id, *who.data.values())
    return who.name, tuple(filter(None, numbers))


def account_of(written: bytes) -> str | None:
    """The account that ``write_order`` kept for an order to be paid from; ``None`` where it named none."""
    if b'"accountNumber"' not in written:
        return None
    try:
        return _whole(written)[2].accountNumber
    except msgspec.DecodeError:
        return None


def without_members(written: bytes) -> bytes:
    """What ``write_order`` wrote, without anything that names a person: its kind and its currency alone.

    Raises:
        ValueError: When the bytes are not an order.
    """
    kind, currency, _ = _split(written)
    return encode((kind, currency, {}))


def read_order(request_id: str, amount: Decimal, written: bytes) -> Order:
    """The order that ``write_order`` wrote, as it was then: a stricter check of today does not keep it back.

    Raises:
        ValueError: When the bytes are not an order.
    """
    kind, currency, members = _split(written)
    try:
        return _read(kind, _decode(members), {"request_id": request_id, "amount": amount, "currency": currency})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("the bytes are not an order of ours") from error


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
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("the bytes are not an order of ours") from error
    if parts[0] not in KINDS:
        raise ValueError(f"an order of a kind that is not known here: {parts[0]}")
    return parts


def _read(kind: str, members: Any, known: dict[str, Any]) -> Order:
    """The order of these members; ``known`` is what is kept beside them."""
    person = members.pop("beneficiary")
    row = KINDS[kind]
    data = person.pop("data")
    known["beneficiary"] = restored(Beneficiary, _moved(person, _PERSON))
    destination = restored(row.destination, {field: data.get(member) for field, member in row.members.items()})
    if kind == CollectionOrder.kind:
        known |= {"payer": destination, "provider_item_id": members.pop("provider")["providerItemId"]}
        return restored(CollectionOrder, known | _moved(members, _SHARED))
    product = members.pop("product")
    known |= {"destination": destination, "product_item_id": product["productItemId"], "product_id": product.get("id")}
    return restored(PayoutOrder, known | _moved(members, _SHARED))


def _moved(members: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Members under the names of our fields."""
    return {names[name]: value for name, value in members.items() if name != "type"}

"""Orders and events as bytes on disk, and back: exact, compact and readable by eye. Opens no file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import attrs
import msgspec

from payments_async._amounts import amount_text
from payments_async._events import (
    TransactionEvent,
    TransactionFailed,
    TransactionProcessing,
    TransactionSucceeded,
    TransactionUnrecognised,
)
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

__all__ = [
    "body_digest",
    "order_body",
    "pack_event",
    "pack_transaction_id",
    "read_event",
    "read_order",
    "unpack_transaction_id",
]

_KINDS: Mapping[str, type[Destination]] = {
    "wallet": MobileMoneyWallet,
    "bank": BankAccount,
    "airtime": AirtimeLine,
    "internet": InternetLine,
    "utility": UtilityAccount,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_PAYER = "payer"  # the kind of a collection
_OPTIONAL: tuple[str, ...] = ("product_id", "batch_id", "account_number", "message", "metadata", "currency")
_SHARED: tuple[str, ...] = ("batch_id", "account_number", "message", "metadata", "currency")
_PERSON: tuple[str, ...] = ("phone_number", "email_address", "id")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_EVENTS: Mapping[int, type[TransactionEvent]] = {
    0: TransactionSucceeded,
    1: TransactionProcessing,
    2: TransactionFailed,
}
_EVENT_TEXTS = (
    "request_id", "account_id", "subscription_id", "batch_id", "status_message", "correlation_id", "currency_code",
)  # fmt: skip
_DECIMAL = "$decimal"  # how an exact number among the unknown members of an event is marked


def order_body(order: Order) -> bytes:
    """All of an order but its request id and amount, which have columns. The same bytes for equal orders."""
    if type(order) is PayoutOrder:
        place: Destination = order.destination
        members: dict[str, Any] = {"to": [_NAMES[type(place)], *attrs.astuple(place)], "item": order.product_item_id}
        names = _OPTIONAL
    else:
        place = order.payer  # type: ignore[union-attr]
        members = {"to": [_PAYER, *attrs.astuple(place)], "item": order.provider_item_id}  # type: ignore[union-attr]
        names = _SHARED
    person = order.beneficiary
    members["name"] = person.name
    for name in _PERSON:
        value = getattr(person, name)
        if value is not None:
            members[name] = value
    for name in names:
        value = getattr(order, name)
        if value is not None:
            members[name] = value
    return _encode(members)


def body_digest(request_id: str, amount: str, body: bytes) -> bytes:
    """SHA-256 of everything an order says: equal for the same order, and proof that nobody edited the file."""
    return hashlib.sha256(b"\0".join((request_id.encode(), amount.encode(), body))).digest()


def read_order(request_id: str, amount: str, body: bytes) -> Order:
    """The order that ``order_body`` wrote.

    Raises:
        ValueError, TypeError, KeyError: When the bytes are no order.
    """
    members = _decode(body)
    kind, *place = members.pop("to")
    person = Beneficiary(
        name=members.pop("name"),
        phone_number=members.pop("phone_number", None),
        email_address=members.pop("email_address", None),
        id=members.pop("id", None),
    )
    item, exact = members.pop("item"), Decimal(amount)
    if kind == _PAYER:
        return CollectionOrder(
            request_id=request_id, amount=exact, payer=MobileMoneyWallet(*place), provider_item_id=item,
            beneficiary=person, **members,
        )  # fmt: skip
    return PayoutOrder(
        request_id=request_id, amount=exact, destination=_KINDS[kind](*place), product_item_id=item,
        beneficiary=person, **members,
    )  # fmt: skip


def pack_transaction_id(text: str | None) -> bytes | str | None:
    """A transaction id as it is stored: 16 bytes for a UUID, whatever its case; any other as it came."""
    if text is None or len(text) != 36:
        return text
    lower = text.lower()
    return bytes.fromhex(lower.replace("-", "")) if _UUID.fullmatch(lower) else text


def unpack_transaction_id(stored: bytes | str | None) -> str | None:
    """The text of a stored transaction id; ``None`` for 16 zero bytes, which keep its place."""
    if not isinstance(stored, bytes):
        return stored
    digits = stored.hex()
    if not any(stored):
        return None
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def pack_event(event: TransactionEvent) -> bytes:
    """What an event says beyond its transaction, status code and amount."""
    members = {name: value for name in _EVENT_TEXTS if (value := getattr(event, name)) is not None}
    if event.created_on is not None:
        members["created_on"] = event.created_on.isoformat()
    if event.amount is not None:
        members["amount"] = amount_text(event.amount)
    if event.extra:
        members["extra"] = _marked(event.extra)
    return _encode(members)


def read_event(transaction_id: str, status_code: int, packed: bytes) -> TransactionEvent:
    """The event that ``pack_event`` wrote."""
    members = _decode(packed)
    if "created_on" in members:
        members["created_on"] = datetime.fromisoformat(members["created_on"])
    if "amount" in members:
        members["amount"] = Decimal(members["amount"])
    if "extra" in members:
        members["extra"] = _unmarked(members["extra"])
    kind = _EVENTS.get(status_code, TransactionUnrecognised)
    return kind(transaction_id=transaction_id, status_code=status_code, **members)


def _marked(value: Any) -> Any:
    match value:
        case Decimal():
            return {_DECIMAL: str(value)}
        case int() if not isinstance(value, bool) and value.bit_length() > 63:
            return {_DECIMAL: str(value), "int": True}
        case Mapping():
            return {name: _marked(member) for name, member in value.items()}
        case list() | tuple():
            return [_marked(member) for member in value]
        case str() | int() | float() | bool() | None:
            return value
        case _:
            return str(value)


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        text = value.get(_DECIMAL)
        if isinstance(text, str) and set(value) <= {_DECIMAL, "int"}:
            try:
                return int(text) if "int" in value else Decimal(text)
            except (ValueError, InvalidOperation):
                return value  # a sender's own member of that name
        return {name: _unmarked(member) for name, member in value.items()}
    return [_unmarked(member) for member in value] if isinstance(value, list) else value

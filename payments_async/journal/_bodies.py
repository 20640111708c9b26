"""Orders and events as bytes on disk, and back: exact, compact and readable by eye. Opens no file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import attrs
import msgspec

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

T = TypeVar("T")
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
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EVENTS: Mapping[int, type[TransactionEvent]] = {
    0: TransactionSucceeded,
    1: TransactionProcessing,
    2: TransactionFailed,
}
_SLOTS: Mapping[type, Mapping[str, Callable[[object, Any], None]]] = {
    kind: {field.name: getattr(kind, field.name).__set__ for field in attrs.fields(kind)}
    for kind in (*_NAMES, Beneficiary, PayoutOrder, CollectionOrder)
}
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
    """The order that ``order_body`` wrote, as it was then: a stricter check of today does not keep it back.

    Raises:
        ValueError, TypeError, KeyError: When the bytes are no order.
    """
    members = _decode(body)
    kind, *place = members.pop("to")
    members["request_id"], members["amount"] = request_id, Decimal(amount)
    members["beneficiary"] = _restored(Beneficiary, members)
    if kind == _PAYER:
        members["payer"], members["provider_item_id"] = _placed(MobileMoneyWallet, place), members.pop("item")
        order: Order = _restored(CollectionOrder, members)
    else:
        members["destination"], members["product_item_id"] = _placed(_KINDS[kind], place), members.pop("item")
        order = _restored(PayoutOrder, members)
    if members:
        raise KeyError(*members)
    return order


def _restored(kind: type[T], members: dict[str, Any]) -> T:
    """Bring an object back as unpickling does: it was checked when it was made, and its digest proves it the same."""
    restored = kind.__new__(kind)
    for name, put in _SLOTS[kind].items():
        put(restored, members.pop(name, None))  # whatever has a default has this one
    return restored


def _placed(kind: type[T], values: Sequence[Any]) -> T:
    return _restored(kind, dict(zip(_SLOTS[kind], values, strict=True)))


def pack_transaction_id(text: str | None) -> bytes | str | None:
    """A transaction id as it is stored: 16 bytes for a UUID, whatever its case; any other as it came."""
    if text is None or len(text) != 36:
        return text
    return bytes.fromhex(text.replace("-", "")) if _UUID.fullmatch(text) else text


def unpack_transaction_id(stored: bytes | str | None) -> str | None:
    """The text of a stored transaction id; ``None`` for 16 zero bytes, which keep its place."""
    if not isinstance(stored, bytes):
        return stored
    digits = stored.hex()
    if not any(stored):
        return None
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def pack_event(event: TransactionEvent) -> str:
    """What an event says beyond its transaction and status code, as JSON."""
    members = event.__dict__.copy()  # half the time of going through its attributes
    del members["transaction_id"], members["status_code"], members["event_id"]
    members.pop("conflict", None)  # is told by the inbox, not by the service
    if extra := members.pop("extra"):
        members["extra"] = _marked(extra)
    return _encode(members).decode()


def read_event(transaction_id: str, status_code: int, packed: str) -> TransactionEvent:
    """The event that ``pack_event`` wrote."""
    members = _decode(packed)
    if (text := members.get("created_on")) is not None:
        members["created_on"] = datetime.fromisoformat(text)
    if (text := members.get("amount")) is not None:
        members["amount"] = Decimal(text)
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

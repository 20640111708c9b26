"""Orders, events and ids as they are stored, and back: exact, compact and readable by eye. Opens no file."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from payments_async._events import EVENT_TYPES, TransactionEvent, TransactionUnrecognised
from payments_async._orders import Order
from payments_async._wire.notifications import UnreadableNotification, read_notification
from payments_async._wire.orders import read_order
from payments_async.journal._faults import JournalCorrupt

__all__ = [
    "body_digest",
    "order_of",
    "pack_body",
    "pack_event",
    "pack_transaction_id",
    "proved",
    "read_event",
    "unpack_body",
    "unpack_transaction_id",
]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_LARGE = 1024  # bytes from which on a body is kept compressed
_COMPRESSED = b"\0z"  # what stands before it then; no JSON begins so
_DECIMAL = "$decimal"  # how an exact number among the unknown members of an event is marked


def body_digest(request_id: str, amount: str, body: bytes) -> bytes:
    """SHA-256 of everything an order says: equal for the same order, and proof that nobody edited the file."""
    return hashlib.sha256(b"\0".join((request_id.encode(), amount.encode(), body))).digest()


def proved(request_id: str, amount: str, body: bytes, body_sha256: bytes) -> bytes:
    """The body of an order.

    Raises:
        JournalCorrupt: The row is not what was loaded.
    """
    if body_digest(request_id, amount, body) != body_sha256:
        raise JournalCorrupt(f"order {request_id} is not what was loaded")
    return body


def order_of(request_id: str, amount: Decimal, body: bytes) -> Order:
    """The order in a row that was proved.

    Raises:
        JournalCorrupt: It cannot be read.
    """
    try:
        return read_order(request_id, amount, body)
    except ValueError as error:
        raise JournalCorrupt(f"order {request_id} cannot be read") from error


def pack_transaction_id(text: str | None) -> bytes | str | None:
    """A transaction id as it is stored: 16 bytes for a UUID, whatever its case; any other as it came."""
    if text is None or len(text) != 36 or text[8:24:5] != "----":
        return text
    try:
        packed = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return text
    return packed if len(packed) == 16 else text  # blanks and further dashes are passed over above


def unpack_transaction_id(stored: bytes | str | None) -> str | None:
    """The text of a stored transaction id; ``None`` for 16 zero bytes, which keep its place."""
    if not isinstance(stored, bytes):
        return stored
    digits = stored.hex()
    if not any(stored):
        return None
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def pack_body(body: bytes) -> bytearray:
    """A notification's body as it is stored: a large one compressed. The same gives the same."""
    if len(body) < _LARGE and not body.startswith(_COMPRESSED):
        return bytearray(body)  # None and bytes go through the adapters of sqlite3, which are dear
    packed = zlib.compress(body, 6)
    return bytearray(_COMPRESSED + packed if len(packed) < len(body) or body.startswith(_COMPRESSED) else body)


def unpack_body(stored: bytes) -> bytes:
    """A body as it came.

    Raises:
        JournalCorrupt: It is not what was stored.
    """
    if not stored.startswith(_COMPRESSED):
        return stored
    try:
        return zlib.decompress(stored[len(_COMPRESSED) :])
    except zlib.error as error:
        raise JournalCorrupt("the body of a notification cannot be read") from error


def pack_event(event: TransactionEvent) -> str | bytearray:
    """What an event says beyond its transaction and status code, as JSON; compressed where it says much."""
    members = event.__dict__.copy()  # half the time of going through its attributes
    del members["transaction_id"], members["status_code"], members["event_id"]
    members.pop("conflict", None)  # is told by the inbox, not by the service
    if extra := members.pop("extra"):
        members["extra"] = _marked(extra)
    packed = _encode(members)
    return packed.decode() if len(packed) < _LARGE else pack_body(packed)


def read_event(transaction_id: str, status_code: int, packed: str | bytes, body: bytes, query: str) -> TransactionEvent:
    """The event in a row: what ``pack_event`` wrote, or what the delivery says where nothing was written.

    Raises:
        JournalCorrupt: It does not say it, or cannot be read.
    """
    try:
        return _unpacked(transaction_id, status_code, packed) if packed else _read_again(
            transaction_id, status_code, body, query
        )  # fmt: skip
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise JournalCorrupt(f"the notification of transaction {transaction_id} cannot be read") from error


def _unpacked(transaction_id: str, status_code: int, packed: str | bytes) -> TransactionEvent:
    members = _decode(packed if isinstance(packed, str) else unpack_body(packed))
    if (text := members.get("created_on")) is not None:
        members["created_on"] = datetime.fromisoformat(text)
    if (text := members.get("amount")) is not None:
        members["amount"] = Decimal(text)
    if "extra" in members:
        members["extra"] = _unmarked(members["extra"])
    return EVENT_TYPES.get(status_code, TransactionUnrecognised)(
        transaction_id=transaction_id, status_code=status_code, **members
    )


def _read_again(transaction_id: str, status_code: int, body: bytes, query: str) -> TransactionEvent:
    cause: UnreadableNotification | None = None
    try:
        event = read_notification(unpack_body(body), query)
        if (event.transaction_id, event.status_code) == (transaction_id, status_code):
            return event
    except UnreadableNotification as error:
        cause = error
    raise JournalCorrupt(f"the notification of transaction {transaction_id} is not what was stored") from cause


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

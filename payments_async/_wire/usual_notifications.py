"""The two documented shapes of a notification, complete and without surprises, read in one step.

Whatever is unusual is left to ``notifications``, which reads everything; here it only costs a few comparisons.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any, Protocol, get_type_hints

import msgspec

from payments_async._events import EVENT_TYPES, TransactionEvent, TransactionUnrecognised

__all__ = ["read_usual"]

_LONGEST_QUERY = 256  # and so the longest id
_LONGEST_AMOUNT = 15
_BACKSLASH, _TAB, _LF, _CR = b"\\\t\n\r"  # as numbers: looking for bytes within bytes makes, and drops, a TypeError


class _Told(Protocol):
    """The members that both shapes have."""

    account_id: str | int
    subscription_id: str | int
    transaction_id: str
    batch_id: str
    request_id: str
    status_message: str
    status_code: int
    correlation_id: str
    created_on: str
    amount: Decimal
    currency_code: str


class _Reference(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    created_on: str
    request_id: str


_MEMBERS = get_type_hints(_Told)
_pascal = msgspec.json.Decoder(
    msgspec.defstruct("Pascal", _MEMBERS.items(), rename="pascal", forbid_unknown_fields=True, gc=False)
).decode
_camel = msgspec.json.Decoder(
    msgspec.defstruct(
        "Camel",
        [*_MEMBERS.items(), ("request_reference", _Reference)],
        rename="camel",
        forbid_unknown_fields=True,
        gc=False,
    )
).decode
_PASCAL_MEMBERS, _CAMEL_MEMBERS = 11, 14


def read_usual(body: bytes, query: str, timezone: tzinfo) -> TransactionEvent | None:
    """The event of a usual notification, exactly as ``read_notification`` gives it, or ``None`` for any other."""
    # so that each member is followed by '":' and can be counted: none came twice
    if _BACKSLASH in body or _TAB in body or _LF in body or _CR in body or body.find(b" :") >= 0:
        return None
    members = body.count(b'":')
    extra: dict[str, Any] = {}
    try:
        if members == _PASCAL_MEMBERS:
            told: Any = _pascal(body)
        elif members == _CAMEL_MEMBERS:
            told = _camel(body)
            reference = told.request_reference
            if reference.request_id != told.request_id:
                return None
            extra["requestReference"] = {"createdOn": reference.created_on, "requestId": reference.request_id}
        else:
            return None
    except (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError):
        return None
    return _event(told, query, timezone, extra)


def _event(told: _Told, query: str, timezone: tzinfo, extra: dict[str, Any]) -> TransactionEvent | None:
    transaction_id, request_id, amount, batch_id = told.transaction_id, told.request_id, told.amount, told.batch_id
    account_id, subscription_id, code = str(told.account_id), str(told.subscription_id), told.status_code
    digits = str(amount)
    # Spec: "Query string of the call: transactionId, subscriptionId, accountId, requestId, Amount (double)."
    if (
        query
        != f"transactionId={transaction_id}&subscriptionId={subscription_id}&accountId={account_id}"
        f"&requestId={request_id}&Amount={digits}"
        or query.count("&") != 4
        or len(query) > _LONGEST_QUERY
        or len(digits) > _LONGEST_AMOUNT
        or "E" in digits
        or not amount.is_finite()
        or not (transaction_id and request_id and account_id and subscription_id)
        or transaction_id != transaction_id.lower()
        or batch_id != batch_id.strip()
        or len(batch_id) > _LONGEST_QUERY
        or not -(10**9) < code < 10**9
        or not query.isascii()
        or " " in query
    ):
        return None
    created_on = _moment(told.created_on, timezone)
    if created_on is None:
        return None
    event = object.__new__(EVENT_TYPES.get(code, TransactionUnrecognised))
    event.__dict__.update(  # what calling its class does, in half the time
        transaction_id=transaction_id, status_code=code, request_id=request_id, account_id=account_id,
        subscription_id=subscription_id, batch_id=batch_id, status_message=told.status_message,
        correlation_id=told.correlation_id, created_on=created_on, amount=amount, currency_code=told.currency_code,
        extra=extra, event_id=None,
    )  # fmt: skip
    return event


def _moment(text: str, timezone: tzinfo) -> datetime | None:
    """``YYYY-MM-DD HH:mm:ss`` with a space or a ``T``, or ``None``."""
    if len(text) != 19 or text[:2] != "20" or text[4] != "-":
        return None
    try:
        if timezone is UTC:
            return datetime.fromisoformat(text + "+00:00")  # half the time of replace()
        return datetime.fromisoformat(text).replace(tzinfo=timezone)
    except ValueError:
        return None

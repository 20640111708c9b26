"""One made-up notification in any documented spelling, to try a receiver out. Sends nothing."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

__all__ = ["Spelling", "notification"]

_AMOUNT = "AMOUNT-GOES-HERE"  # the standard JSON writer cannot write an exact number
_SNAKE = {
    "AccountId": "account_number",
    "SubscriptionId": "subscription_id",
    "TransactionId": "transaction_id",
    "BatchId": "batch_id",
    "RequestId": "client_referenceId",
    "StatusMessage": "status_message",
    "StatusCode": "status_code",
    "CorrelationId": "correlation_id",
    "CreatedOn": "created_on",
    "Amount": "amount",
}
_WORDS = {0: "Transaction completed successfully", 1: "Transaction is being processed", 2: "Transaction failed"}


class Spelling(enum.StrEnum):
    """How a notification spells its members."""

    PASCAL = "pascal"
    CAMEL = "camel"
    SNAKE = "snake"


def notification(
    spelling: Spelling,
    transaction_id: str,
    request_id: str,
    amount: Decimal,
    currency: str,
    status_code: int,
    created_on: datetime,
) -> tuple[dict[str, str], bytes]:
    """Query and body of a notification (section "IPN")."""
    members: dict[str, object] = {
        "AccountId": "6",
        "SubscriptionId": "1",
        "TransactionId": transaction_id,
        "BatchId": "demo",
        "RequestId": request_id,
        "StatusMessage": _WORDS.get(status_code, "Something else"),
        "StatusCode": status_code,
        "CorrelationId": f"corr-{transaction_id}",
        "CreatedOn": created_on.strftime("%Y-%m-%d %H:%M:%S"),
        "Amount": _AMOUNT,
        "CurrencyCode": currency,
    }
    exact = format(amount, "f")
    query = {"transactionId": transaction_id, "requestId": request_id, "accountId": "6", "subscriptionId": "1"}
    body = json.dumps(_spelled(members, spelling)).replace(f'"{_AMOUNT}"', exact)
    return {**query, "Amount": exact}, body.encode()


def _spelled(members: Mapping[str, object], spelling: Spelling) -> dict[str, object]:
    match spelling:
        case Spelling.PASCAL:
            return dict(members)
        case Spelling.CAMEL:
            return {name[0].lower() + name[1:]: value for name, value in members.items()}
        case Spelling.SNAKE:
            return {_SNAKE[name]: value for name, value in members.items() if name in _SNAKE}

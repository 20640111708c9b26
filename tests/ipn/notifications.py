"""Notifications for these tests, written by hand: small, in one spelling."""

import json
from typing import Any


def notification(transaction_id: str = "t-1", code: int = 0, **members: Any) -> bytes:
    """A body; ``members`` are further PascalCase members."""
    body = {"TransactionId": transaction_id, "StatusCode": code, "RequestId": f"r-{transaction_id}", "Amount": 500}
    return json.dumps(body | members).encode()

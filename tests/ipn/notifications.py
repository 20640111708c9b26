"""Notifications for these tests, written by hand: small, in one spelling."""

import hashlib
import hmac
import json
from typing import Any

from payments_async.ipn import Delivery

KEY = b"k" * 16


def notification(transaction_id: str = "t-1", code: int = 0, **members: Any) -> bytes:
    """A body; ``members`` are further PascalCase members."""
    body = {"TransactionId": transaction_id, "StatusCode": code, "RequestId": f"r-{transaction_id}", "Amount": 500}
    return json.dumps(body | members).encode()


def signed(body: bytes) -> str:
    """What a header holds that proves where a body comes from."""
    return hmac.new(KEY, body, hashlib.sha256).hexdigest()


async def is_signed(delivery: Delivery) -> bool:
    """A verifier as an application writes it."""
    return hmac.compare_digest(signed(delivery.body), delivery.headers.get("X-Signature", ""))

"""A flight recorder for chaos: which orders left a process, and so why each parked one could not be settled."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from payments_async._session.transport import Outgoing
from payments_async.sandbox import Sandbox

LOST = "reached the service, which was told to lose it"
ON_THE_WAY = "left, and was lost on the line or with its process"
NEVER_LEFT = "never left, and nobody proved that"


def record(folder: Path) -> None:
    """Write down in this process each order whose first byte is about to leave, in a way that survives a kill."""
    file = os.open(folder / "flights", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    leave = Outgoing.leave

    def noted(outgoing: Outgoing) -> None:
        leave(outgoing)
        if (request_id := _id_in(outgoing._value)) is not None:
            os.write(file, f"{request_id}\n".encode())

    Outgoing.leave = noted  # type: ignore[method-assign]


def causes(parked: Collection[str], folder: Path, sandbox: Sandbox) -> Counter[str]:
    """How many of these orders are parked for which cause."""
    flights = folder / "flights"
    left = set(flights.read_text(encoding="utf-8").split()) if flights.exists() else set()
    arrived = {_id_in(one.body) for one in sandbox.requests}
    return Counter(LOST if one in arrived else ON_THE_WAY if one in left else NEVER_LEFT for one in parked)


def _id_in(body: bytes) -> str | None:
    """The request id of an order; ``None`` for any other body."""
    if b'"requestId"' not in body:
        return None
    found: str = json.loads(body)["requestId"]
    return found

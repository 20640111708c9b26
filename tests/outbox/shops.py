"""An outbox's orders, accepted by the service as far as the journal knows, for tests of who is told of that."""

from __future__ import annotations

from collections.abc import Iterable

from journal.factories import IDENTITY, order, orders

from payments_async.journal import Journal, Signal
from payments_async.journal.contract import Evidence

SHOP = "shop"


async def stocked(journal: Journal, count: int) -> None:
    """So many planned orders of the outbox."""
    await journal.open_run(SHOP, IDENTITY, outbox=SHOP)
    await journal.load(SHOP, orders(count, batch=SHOP), owner="loader")


async def found(journal: Journal, numbers: Iterable[int], signal: Signal = Signal.ACCEPTED) -> None:
    """Evidence about these orders."""
    for number in numbers:
        about = order(number, batch=SHOP)
        await journal.apply_evidence(
            Evidence(
                signal=signal,
                source="record",
                request_id=about.request_id,
                amount=about.amount,
                currency=about.currency,
            )
        )

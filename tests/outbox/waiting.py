"""An outbox whose orders wait to be settled: a service, a session and a journal, all by one clock that is moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
from bulk.worlds import payout, session
from nested import for_sandbox

from payments_async import OutcomeUnknown, PaymentsSession, PayoutOrder
from payments_async.journal import Journal, Signal, SqliteJournal
from payments_async.journal.contract import Chunk, ClaimedOrder, Outcome, Permit
from payments_async.outbox._scans import account_of
from payments_async.outbox._settling import Settler
from payments_async.sandbox import ManualClock, Quirks, Sandbox
from payments_async.testing import Testing

OUTBOX = "shop"
Attempt = Callable[[Chunk, ClaimedOrder], Awaitable[None]]


@attrs.define
class Waiting:
    """What there is, and what can be done with it."""

    sandbox: Sandbox
    payments: PaymentsSession
    journal: Journal
    clock: ManualClock
    settler: Settler

    def now(self) -> float:
        """Unix seconds."""
        return self.clock.now().timestamp()

    async def send(self, *orders: int | PayoutOrder) -> None:
        """Send orders, or those of these numbers, from the outbox; what is scripted in the sandbox happens to them."""
        await self.work(orders, self._send)

    async def lose(self, *numbers: int, outbox: str | None = OUTBOX) -> None:
        """Orders that never reached the service, and nobody knows."""
        await self.work(numbers, self._lose, outbox)

    async def pass_(self, seconds: float) -> None:
        """Let time pass for everybody, and let the settler do what is due then."""
        await self.sandbox.advance(seconds)
        await self.settler.turn()

    async def states(self) -> dict[str, int]:
        """How many orders are in which state."""
        progress = await self.journal.progress()
        return {state: count for state, count in progress.counts.items() if count}

    def asked(self) -> list[str]:
        """The lists and records that the service was asked for, without their days."""
        found = []
        for one in self.sandbox.requests:
            if one.method == "GET" and one.path.startswith("/api/transactions"):
                number, status = one.query.get("pageNumber"), one.query.get("transactionStatus")
                found.append(" ".join(filter(None, (one.path.removeprefix("/api/"), number, status))))
        return found

    async def work(self, wanted: Iterable[int | PayoutOrder], how: Attempt, outbox: str | None = OUTBOX) -> None:
        """Load orders, or those of these numbers, as a run of an outbox, and have each of them permitted and ended."""
        orders = [payout(one) if isinstance(one, int) else one for one in wanted]
        batch = f"run of {orders[0].request_id}"
        await self.journal.open_run(batch, account_of(self.payments), outbox=outbox)
        await self.journal.load(batch, orders, owner="test")
        while (chunk := await self.journal.claim_chunk(batch, "test")) is not None:
            await asyncio.gather(*(how(chunk, claimed) for claimed in chunk.orders))
            await self.journal.release_chunk(chunk)

    async def _lose(self, chunk: Chunk, claimed: ClaimedOrder) -> None:
        permit = await self.journal.permit(chunk, claimed)
        assert isinstance(permit, Permit)
        await self.journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN))

    async def _send(self, chunk: Chunk, claimed: ClaimedOrder) -> None:
        permit = await self.journal.permit(chunk, claimed)
        assert isinstance(permit, Permit)
        try:
            acceptance = await self.payments.payouts.send(claimed.order)  # type: ignore[arg-type]
        except OutcomeUnknown:
            outcome = Outcome(permit=permit, signal=Signal.UNKNOWN)
        else:
            outcome = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=acceptance.transaction_id)
        await self.journal.record(outcome)


@asynccontextmanager
async def waiting(
    folder: Path,
    quirks: dict[str, Any] | None = None,
    *,
    settler: dict[str, Any] | None = None,
    opens: Callable[..., AbstractAsyncContextManager[Journal]] | None = None,
    **settings: Any,
) -> AsyncIterator[Waiting]:
    """Open everything; settings are the sandbox's, whose orders take a day unless they say otherwise.

    Args:
        opens: Opens the journal, where it is another than a file in the folder.
    """
    clock = ManualClock()

    def now() -> float:
        return clock.now().timestamp()

    plain: dict[str, Any] = {"clock": now, "ticks": now, "sleep": clock.sleep, "chance": lambda: 0.5}
    async with AsyncExitStack() as stack:
        asked = {"clock": clock, "processing_delay": 86_400.0} | settings
        sandbox = await stack.enter_async_context(Sandbox(quirks=Quirks(**quirks or {}), **for_sandbox(asked)))
        held = SqliteJournal(folder / "journal.db", testing=Testing(now=now)) if opens is None else opens(clock=now)
        journal = await stack.enter_async_context(held)
        payments = await stack.enter_async_context(session(sandbox))
        yield Waiting(
            sandbox,
            payments,
            journal,
            clock,
            Settler(payments, journal, OUTBOX, owner="here", **(plain | (settler or {}))),
        )

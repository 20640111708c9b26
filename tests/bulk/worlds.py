"""A world for runs: orders, a sandbox, a journal in a folder, and sessions with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import attrs
from nested import for_sandbox, for_session

from payments_async import (
    Beneficiary,
    Credentials,
    Limits,
    MobileMoneyWallet,
    PaymentsSession,
    PayoutOrder,
    RetryPolicy,
)
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Quirks, Sandbox

BATCH = "salaries-2026-11"


def payout(number: int, **changes: Any) -> PayoutOrder:
    """One payout of a batch; each has an amount of its own."""
    members: dict[str, Any] = {
        "request_id": f"{BATCH}-{number:06d}",
        "amount": Decimal(1000 + number),
        "currency": "UGX",
        "destination": MobileMoneyWallet("+256772000017"),
        "product_item_id": "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        "beneficiary": Beneficiary(name="Grace Akello", phone_number="+256772000017"),
    }
    return PayoutOrder(**(members | changes))


def payouts(count: int) -> list[PayoutOrder]:
    """A batch of payouts."""
    return [payout(number) for number in range(count)]


def session(sandbox: Sandbox, **settings: Any) -> PaymentsSession:
    """A session whose patience no busy machine wears out; what no answer comes for needs a shorter one."""
    who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
    plain: dict[str, Any] = {
        "timeout": aiohttp.ClientTimeout(total=60),
        "limits": Limits(concurrency=200),
        "retry": RetryPolicy(wait_initial=0.01),  # nobody has to be spared here
    }
    return PaymentsSession(sandbox.base_url, who, **for_session(plain | settings))


@attrs.define
class World:
    """A service, a session with it, and a journal."""

    sandbox: Sandbox
    payments: PaymentsSession
    journal: SqliteJournal

    async def states(self) -> dict[str, int]:
        """How many orders are in which state."""
        progress = await self.journal.progress()
        return {state: count for state, count in progress.counts.items() if count}

    async def state(self, number: int) -> str:
        """Where one order stands."""
        entry = await self.journal.entry(payout(number).request_id)
        assert entry is not None
        return entry.state

    async def check(self, count: int) -> None:
        """Nothing was carried out twice, nothing is lost, and no state contradicts the ledger."""
        assert [] == self.sandbox.duplicates()
        executions = {execution.request_id: execution for execution in self.sandbox.ledger}
        seen: Counter[str] = Counter()
        async for entry in self.journal.entries():
            seen[entry.state] += 1
            disagreement = contradiction(entry.state, executions.get(entry.request_id))
            assert disagreement is None, f"{entry.request_id}: {disagreement}"
        assert count == seen.total()


def contradiction(state: str, execution: Any) -> str | None:
    """Why a state cannot be true of what the ledger says, if it cannot."""
    status = None if execution is None else str(execution.status)
    match state, status:
        case "planned" | "rejected" | "cancelled" as stands, str():
            return f"is {stands}, and was carried out"
        case "accepted" | "successful" | "failed" | "reversed" as stands, None:
            return f"is {stands}, and was never carried out"
        case "successful" | "failed" | "reversed" as stands, str() as ended if not ended.lower().startswith(stands):
            return f"is {stands}, and ended {ended}"
        case "sending", _:
            return "is still being sent"
    return None


@asynccontextmanager
async def world(folder: Path, quirks: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[World]:
    """Open everything; settings are the sandbox's."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(quirks=Quirks(**quirks or {}), **for_sandbox(settings)))
        journal = await stack.enter_async_context(SqliteJournal(folder / "journal.db"))
        payments = await stack.enter_async_context(session(sandbox))
        yield World(sandbox, payments, journal)

"""A machine whose clock is days behind the service's: it looks for orders in the days of both."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from bulk.worlds import payout, session

from payments_async.sandbox import ManualClock, Sandbox


@attrs.define
class DatedClock:
    """A clock that is days from this machine's, by which the service also dates its answers."""

    days: int
    moved: ManualClock = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.moved = ManualClock(datetime.now(UTC) + timedelta(days=self.days))

    def now(self) -> datetime:
        """The present instant."""
        return self.moved.now()

    async def sleep(self, seconds: float) -> None:
        """Wait until it was moved as far."""
        await self.moved.sleep(seconds)


@pytest.fixture(params=[3, -3], ids=["behind", "ahead"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A service whose clock is days away from this machine's, which is behind or ahead."""
    clock: Any = DatedClock(request.param)
    async with Sandbox(clock=clock, processing_delay=0.0) as sandbox:
        yield sandbox


async def test_an_order_is_found_in_a_list_that_ends_today(sandbox: Sandbox) -> None:
    """Today is that of the service too, as its last answer told it."""
    async with session(sandbox) as payments:
        accepted = await payments.payouts.send(payout(1))
        found = await payments.transactions.find_all(payout(1).request_id)
        listed = [one async for one in payments.transactions.iterate()]
    assert 2 * [accepted.transaction_id] == [one.transaction_id for one in (*found, *listed)]


async def test_an_order_that_another_process_sent_is_settled_by_its_id(sandbox: Sandbox) -> None:
    """Of which this session remembers no day: it looks in those around today, by either clock."""
    async with session(sandbox) as sends, session(sandbox) as payments:
        await sends.payouts.send(payout(1))
        await payments.log_in()
        settlement = await payments.transactions.settled(payout(1).request_id, timeout=5.0)
    assert "SUCCESSFUL" == settlement.status.name

"""Orders of an outbox that are cancelled before they are sent."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bulk.worlds import payout
from outbox.desks import A_MINUTE, desk

from payments_async.journal import Entry, NotCancelled, State

SIGNED = {"who": "shop", "why": "the customer has left"}


async def test_an_order_for_tomorrow_is_never_sent(tmp_path: Path) -> None:
    """Its handlers are told, and so is everybody who waits for its end."""
    told = asyncio.get_running_loop().create_future()
    async with desk(tmp_path, outbox={"settles": False}) as here:

        @here.outbox.on(State.CANCELLED)
        async def cancelled(entry: Entry) -> None:
            told.set_result(entry)

        tomorrow = datetime.now(UTC) + timedelta(days=1)
        await here.outbox.put(payout(0), not_before=tomorrow)
        waiting = asyncio.create_task(here.outbox.settled(payout(0).request_id, timeout=A_MINUTE))
        await asyncio.sleep(0)
        entry = await here.outbox.cancel(payout(0).request_id, **SIGNED)
        assert State.CANCELLED is entry.state is (await waiting).state
        async with asyncio.timeout(A_MINUTE):
            assert entry.request_id == (await told).request_id
        await here.outbox.pay(payout(1), timeout=A_MINUTE)
        assert State.CANCELLED is (await here.outbox.pay(payout(0), timeout=A_MINUTE)).state
        assert [payout(1).request_id] == here.executions()


async def test_cancelled_while_workers_take_orders(tmp_path: Path) -> None:
    """Each order is cancelled or sent, never both, and the one who cancels knows which."""
    numbers = range(60)
    async with desk(tmp_path, outbox={"settles": False}) as here:
        await here.outbox.pay(payout(1000), timeout=A_MINUTE)  # the list was read before

        async def put_and_cancel(number: int) -> bool:
            await here.outbox.put(payout(number))
            await asyncio.sleep(number / 20_000)
            try:
                await here.outbox.cancel(payout(number).request_id, **SIGNED)
            except NotCancelled:
                return False
            return True

        cancelled = await asyncio.gather(*map(put_and_cancel, numbers))
        sent = [payout(number).request_id for number in numbers if not cancelled[number]]
        counted = {"cancelled": sum(cancelled), "accepted": 1 + len(sent)}
        await here.comes_to({state: count for state, count in counted.items() if count})
        assert sorted([payout(1000).request_id, *sent]) == sorted(here.executions())


async def test_what_waits_in_a_paused_outbox(tmp_path: Path) -> None:
    """Is cancelled, and not sent when it goes on; the others are."""
    async with desk(tmp_path, outbox={"settles": False}) as here:
        await here.outbox.pause("Ann", "lunch")
        for number in range(3):
            await here.outbox.put(payout(number))
        await here.outbox.cancel(payout(1).request_id, **SIGNED)
        await here.outbox.resume("Ann", "back")
        await here.comes_to({"cancelled": 1, "accepted": 2})
        assert payout(1).request_id not in here.executions()

"""Callers that give up waiting: what they asked for goes on, and so does every task that works for others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bulk.worlds import payout
from outbox.desks import A_MINUTE, desk, ids


async def test_payments_that_are_cancelled_while_they_are_written_down(tmp_path: Path) -> None:
    """Each is sent all the same, and no worker ends: the next orders are paid as fast as ever."""
    async with desk(tmp_path, outbox={"concurrency": 2, "settles": False}) as here:
        await here.outbox.pay(payout(99), timeout=A_MINUTE)
        for number in range(12):
            paying = asyncio.ensure_future(here.outbox.pay(payout(number), timeout=A_MINUTE))
            for _ in range(1 + number % 4):
                await asyncio.sleep(0)
            paying.cancel()
            await asyncio.wait([paying])
        assert "accepted" == (await here.outbox.pay(payout(12), timeout=A_MINUTE)).state
        await here.comes_to({"accepted": 14})
        assert sorted(ids(range(13)) + ids(range(99, 100))) == sorted(here.executions())

"""A permit that never reached its caller is given back, and no other one with it."""

from __future__ import annotations

import attrs
import pytest
from journal.factories import order
from journal.test_asked_back import shop
from journal.test_contract_puts import held, put

from payments_async.journal import Journal, State
from payments_async.journal._statements._permits import withdraw
from payments_async.journal.contract import Permit

__all__ = ["shop"]  # a fixture


@pytest.mark.parametrize("other", [{"token": 7}, {"at": 7.0}, {"attempt": 2}])
async def test_a_permit_that_is_another_one(shop: Journal, other: dict[str, float]) -> None:
    """The order is being sent, its story says nothing of it, and the permit itself can be withdrawn."""
    assert isinstance(shop, Journal)
    permit = await shop.permit(*held(await put(shop)))
    assert isinstance(permit, Permit)
    before = await shop.history(order(1).request_id)
    await shop._submit("withdraw", withdraw, attrs.evolve(permit, **other), "its answer was lost")
    entry = await shop.entry(order(1).request_id)
    assert entry is not None
    assert (State.SENDING, before) == (entry.state, await shop.history(order(1).request_id))
    await shop._submit("withdraw", withdraw, permit, "its answer was lost")
    entry = await shop.entry(order(1).request_id)
    assert entry is not None
    assert State.PLANNED is entry.state

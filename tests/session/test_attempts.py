"""A hook hears of each attempt of a call: how it ended, and whether the call is tried again."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from bulk.worlds import payout, session

from payments_async import Attempt, OutcomeUnknown, RetryPolicy
from payments_async.journal import SqliteJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Quirks, Sandbox


async def test_each_attempt_and_the_wait_before_the_next_one() -> None:
    """A read that is turned away is told with the wait; then the attempt that succeeds, with its correlation id.

    A hook that fails with a cancellation cancels no call: a function that waits for nothing is never cancelled.
    """
    told: list[Attempt] = []
    retry = RetryPolicy(wait_initial=0.001)
    async with (
        Sandbox(quirks=Quirks(envelope_correlation_id=True)) as sandbox,
        session(sandbox, retry=retry) as payments,
    ):

        @payments.on_attempt
        def waits_for_what_was_cancelled(_: Attempt) -> None:
            raise asyncio.CancelledError

        assert payments.on_attempt(told.append) == told.append
        await payments.log_in()
        sandbox.script(Fault.RATE_LIMITED)
        acceptance = await payments.with_options(timeout=30.0).payouts.send(payout(1))
    first, second = told
    assert ("POST", payout(1).request_id) == (first.method, first.request_id)
    assert (1, 429, "NotSent") == (first.number, first.status, first.error)
    assert first.again_in is not None
    assert (2, 200, None, None) == (second.number, second.status, second.error, second.again_in)
    assert second.correlation_id == acceptance.correlation_id
    assert second.correlation_id is not None


async def test_an_answer_that_is_lost(caplog: pytest.LogCaptureFixture, service: Sandbox) -> None:
    """The hook hears of it, there is no other attempt, and a hook that fails changes nothing."""
    told: list[Attempt] = []
    async with session(service) as payments:

        @payments.on_attempt
        def fails(_: Attempt) -> None:
            raise KeyError("+256772000017")

        payments.on_attempt(told.append)
        service.script(Fault.LOST_AFTER, on="money")
        with pytest.raises(OutcomeUnknown):
            await payments.payouts.send(payout(1))
        assert 1 == service.executions(payout(1).request_id)
    assert [("OutcomeUnknown", None, None)] == [(one.error, one.status, one.again_in) for one in told]
    (said,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert ("a hook of attempts failed: KeyError", False) == (said.getMessage(), "256772" in caplog.text)


async def test_an_order_that_an_outbox_sends_again(tmp_path: Any, service: Sandbox) -> None:
    """Its attempts are numbered by its permits."""
    told: list[Attempt] = []
    async with session(service) as payments, SqliteJournal(tmp_path / "j.db") as journal:
        payments.on_attempt(told.append)
        service.script(Fault.RATE_LIMITED, on="money")
        async with Outbox(payments, journal) as outbox:
            await outbox.pay(payout(1), timeout=60)
    assert [(1, 429), (2, 200)] == [(one.number, one.status) for one in told if one.request_id is not None]


async def test_a_hook_that_cannot_be_one(service: Sandbox) -> None:
    """It would never be awaited."""
    async with session(service) as payments:

        async def hook(_: Attempt) -> None: ...

        with pytest.raises(TypeError, match="define it with 'def'"):
            payments.on_attempt(hook)

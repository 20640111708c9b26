"""An order that failed as a notification alone has told is looked for as a refused one is: it may be a forgery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from bulk.worlds import payout
from journal import postgres
from journal.conftest import KINDS
from nested import for_reconcile
from outbox.waiting import OUTBOX, Waiting, waiting

from payments_async.bulk import reconcile
from payments_async.ipn import read_notification
from payments_async.journal import Entry, Journal, State
from payments_async.journal.contract import RawNotification
from payments_async.sandbox import Fault
from payments_async.testing import notification

ORDER = payout(0)
DAY = 86_400.0
Opens = Callable[..., AbstractAsyncContextManager[Journal]]
PAID = "says that it was paid, but it was known to be failed"


@pytest.fixture(params=KINDS)
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opens]:
    """What opens a journal of each kind."""
    yield KINDS[request.param](tmp_path).opens
    postgres.give_back()


async def told_that_it_failed(here: Waiting, **names: Any) -> Entry:
    """A notification that nobody confirms says that the order failed; how the order stands then."""
    made = notification(ORDER.request_id, status_code=2, amount=ORDER.amount, **names)
    event = read_notification(made.body, made.query)
    raw = RawNotification(body=made.body, query=made.query, peer="192.0.2.7", received_at=here.now())
    await here.journal.receive(raw, event, owner="test", lease=1.0)
    return await standing(here)


async def standing(here: Waiting) -> Entry:
    """How the order stands."""
    entry = await here.journal.entry(ORDER.request_id)
    assert entry is not None
    return entry


def true_name(here: Waiting) -> dict[str, str]:
    """The transaction that the service made of the order."""
    return {"transaction_id": here.sandbox.ledger[-1].transaction_id}


@pytest.mark.parametrize("knows_transaction", [True, False])
async def test_an_order_that_was_paid(
    opens: Opens, tmp_path: Path, knows_transaction: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The list shows it minutes later: the order stays failed, and the contradiction is said aloud, for a person."""
    async with waiting(tmp_path, opens=opens, processing_delay=30.0) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(0)
        before = await told_that_it_failed(here, **(true_name(here) if knows_transaction else {}))
        await here.pass_(301.0)
        after = await standing(here)
        assert [(State.FAILED, True), State.FAILED] == [(before.state, before.failed_by_notification), after.state]
        assert (PAID if knows_transaction else "another transaction") in str(after.conflict)
        assert 1 == (await here.journal.progress(outbox=OUTBOX)).conflicts
    (line,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert ORDER.request_id in line.getMessage()


async def test_an_order_that_was_paid_and_is_reconciled(opens: Opens, tmp_path: Path) -> None:
    """By whoever asks for it, for all batches or for that order."""
    async with waiting(tmp_path, opens=opens, processing_delay=30.0) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(0)
        await told_that_it_failed(here, **true_name(here))
        await here.sandbox.advance(60.0)
        options = for_reconcile({"now": here.now, "sleep": here.clock.sleep})
        found = await reconcile(here.payments, here.journal, request_id=ORDER.request_id, **options)
        assert (ORDER.request_id,) == found.conflicts
        assert PAID in str((await standing(here)).conflict)


async def test_an_order_that_failed_indeed(opens: Opens, tmp_path: Path) -> None:
    """The list shows the same: that is on record, and nothing is asked for it any more."""
    async with waiting(tmp_path, opens=opens, processing_delay=30.0) as here:
        here.sandbox.script(Fault.FAILS, on="payout")
        await here.send(0)
        await here.sandbox.advance(60.0)
        before = await told_that_it_failed(here, **true_name(here))
        await here.pass_(301.0)
        after, asked = await standing(here), len(here.asked())
        assert [True, False] == [one.failed_by_notification for one in (before, after)]
        assert (State.FAILED, None) == (after.state, after.conflict)
        await here.pass_(DAY)
        assert asked == len(here.asked())


@pytest.mark.parametrize("is_listed", [True, False])
async def test_an_order_of_which_no_list_tells_an_end(opens: Opens, tmp_path: Path, is_listed: bool) -> None:
    """It is looked for until a list that was read a day later is on record, whether that shows it or not."""
    async with waiting(tmp_path, {"ignores_status_filter": True}, opens=opens) as here:
        await here.lose(1)
        await (here.send(0) if is_listed else here.lose(0))
        await told_that_it_failed(here, **(true_name(here) if is_listed else {}))
        await here.pass_(DAY / 2)
        assert (await standing(here)).failed_by_notification
        await here.pass_(DAY)
        after = await standing(here)
        assert (State.FAILED, None, False) == (after.state, after.conflict, after.failed_by_notification)
        assert [] == [page async for page in here.journal.open_orders(OUTBOX, State.FAILED)]

"""Reconciling by pages and by lists: what is found is that of order by order, with few commits and few requests."""

from pathlib import Path
from typing import Any

import pytest
from bulk.worlds import BATCH, payouts, world

from payments_async.bulk import RunSettings, reconcile, run_batch
from payments_async.outbox import _reconcile, _scans
from payments_async.sandbox import Fault
from payments_async.testing import Testing

COUNT = 40
TROUBLE = {Fault.LOST_BEFORE: 0.2, Fault.LOST_AFTER: 0.2, Fault.FAILS: 0.2, Fault.REFUSED: 0.1, Fault.REVERSED: 0.1}


class Ahead:
    """A clock that is years ahead, and moves by sleeping."""

    def __init__(self) -> None:
        self.now = 2_000_000_000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Move on."""
        self.now += seconds


async def reconciled(folder: Path, seed: int, **quirks: Any) -> Any:
    """What the journal says of each order, and the report, after a run with trouble; some are told of once more."""
    async with world(folder, quirks, processing_delay=0.01) as here:
        here.sandbox.chaos(TROUBLE, seed=seed)
        await run_batch(here.payments, here.journal, BATCH, payouts(COUNT), settings=RunSettings(concurrency=1))
        await here.sandbox.settle()
        here.sandbox.chaos({})
        clock = Ahead()
        report = await reconcile(
            here.payments, here.journal, BATCH, testing=Testing(now=clock, sleep=clock.sleep), reversals=True
        )
        await here.check(COUNT)
        stories = {}
        async for entry in here.journal.entries(BATCH):
            story = await here.journal.history(entry.request_id)
            words = [(one.what, one.by, one.signal, one.state, one.conflict) for one in story if one.what == "evidence"]
            stories[entry.request_id] = (entry.state, entry.transaction_id, entry.conflict, words)
        return stories, report.settled, report.parked, report.unknown, report.conflicts, report.doubles, report.unread


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("has_status", [True, False], ids=["records_with_status", "records_without"])
async def test_by_pages_is_what_order_by_order_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, *, has_status: bool
) -> None:
    """States, transactions, contradictions, evidence and report are the same, whatever is written down at once."""
    for name in ("pages", "each"):
        (tmp_path / name).mkdir()
    by_pages = await reconciled(tmp_path / "pages", seed, record_has_status=has_status)
    for module in (_reconcile, _scans):
        monkeypatch.setattr(module, "PAGE", 1)
    assert by_pages == await reconciled(tmp_path / "each", seed, record_has_status=has_status)


@pytest.mark.parametrize(
    ("quirks", "least", "most"),
    [({}, 20, 20), ({"ignores_status_filter": True}, 60, 60), ({"record_has_status": False}, 20, 30)],
    ids=["filters", "ignores_filters", "records_without_status"],
)
async def test_orders_that_the_list_shows_as_under_way_are_not_asked_for_one_by_one(
    tmp_path: Path, quirks: dict[str, Any], least: int, most: int
) -> None:
    """Sixty accepted ones: a handful of records, where the list under that status is believed; all where it is not."""
    async with world(tmp_path, {"record_has_status": True} | quirks, processing_delay=600.0) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(60))
        asked = len(here.sandbox.requests)
        await reconcile(here.payments, here.journal, BATCH)
        paths = [one.path for one in here.sandbox.requests[asked:]]
        looked_at = sum(1 for path in paths if "/transactions/" in path)
        assert {"accepted": 60} == await here.states()
    assert least <= looked_at <= most

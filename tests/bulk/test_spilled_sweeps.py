"""Sweeps over more orders than memory is spent on: what they come to is what they come to in memory."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from bulk.worlds import BATCH, World, payout, payouts, session

from payments_async import PaymentsError
from payments_async._values import spill as _spill
from payments_async.bulk import RunSettings, reconcile, run_batch
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Fault, ManualClock, Quirks, Sandbox
from payments_async.testing import Testing

ORDERS = 24
RATES = {
    Fault.LOST_BEFORE: 0.25,
    Fault.LOST_AFTER: 0.25,
    Fault.WRONG_ECHO: 0.1,
    Fault.REFUSED: 0.1,
    Fault.FAILS: 0.2,
    Fault.REVERSED: 0.3,
}
# what the service is like, and where some orders come to stand with it
QUIRKS: list[tuple[dict[str, Any], set[str]]] = [
    ({"request_id_case": "upper"}, {"successful", "failed", "parked"}),
    ({"record_has_status": True, "ignores_status_filter": True}, {"successful", "failed", "parked"}),
    ({"ignores_status_filter": True}, {"accepted", "parked"}),
    ({"total_error": 1}, {"accepted", "unknown"}),
    ({"filter_words": "other", "max_page_size": 5, "newest_first": True}, {"successful", "reversed", "parked"}),
]


# The sandbox dates its answers by the computer's clock. Permits are dated by them where ours is behind, or far ahead.
NOW = datetime.now(UTC) + timedelta(hours=6)


async def come_to(file: Path, quirks: dict[str, Any], seed: int) -> list[Any]:
    """What is found in turn of a batch that met much trouble, and what the journal says then."""
    clock, chance = ManualClock(NOW), Random(seed)

    async def pass_by(seconds: float) -> None:
        clock.advance(seconds)

    async with (
        Sandbox(quirks=Quirks(**quirks), clock=clock, processing_delay=90.0, seed=seed) as sandbox,
        SqliteJournal(file, testing=Testing(now=lambda: clock.now().timestamp())) as journal,
        session(sandbox) as payments,
    ):
        here = World(sandbox, payments, journal)
        sandbox.chaos(RATES)
        await run_batch(
            payments,
            journal,
            BATCH,
            payouts(ORDERS),
            settings=RunSettings(concurrency=1, look_first="never", testing=Testing(now=journal_time(clock))),
        )
        for number in chance.sample(range(ORDERS), 3):  # somebody sends them past the journal
            try:
                async with session(sandbox) as somebody:
                    await somebody.payouts.send(payout(number, amount=payout(number).amount + chance.randrange(2)))
            except PaymentsError:
                pass
        found: list[Any] = []
        for seconds in (0.0, 1000.0, 90_000.0):
            clock.advance(seconds)
            await sandbox.settle()
            report = await reconcile(
                payments,
                journal,
                BATCH,
                testing=Testing(now=journal_time(clock), sleep=pass_by),
                reversals=seconds > 1000.0,
            )
            found.append((report, sorted(payments.unsettled), await here.states()))
        told = [one for number in range(ORDERS) for one in await journal.history(payout(number).request_id)]
        # whoever did it has a name that was drawn
        return [*found, len(sandbox.requests), [attrs.evolve(one, by=one.by and "somebody") for one in told]]


def journal_time(clock: ManualClock) -> Any:
    """Unix seconds."""
    return lambda: clock.now().timestamp()


@pytest.mark.parametrize("number", [0, 4, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 3))])
async def test_what_is_found_does_not_depend_on_where_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Every report, every order and all evidence of it: kept in memory, in files, or moved between two pages."""
    quirks, states = QUIRKS[number]
    expected = await come_to(tmp_path / "memory.db", quirks, number)
    assert states <= set(expected[1][2]) | set(expected[2][2])
    for most in (0, ORDERS // 2):
        monkeypatch.setattr(_spill, "MOST", most)
        assert expected == await come_to(tmp_path / f"{most}.db", quirks, number)

"""An order that a session sent by itself days before it is put: it is looked for where it was sent."""

from collections.abc import Callable
from typing import Any

import pytest
from bulk.worlds import payout
from journal.conftest import Home
from journal.places import DAY, opener
from journal.test_listing_deadlines import WAITS, given

from payments_async import OutcomeUnknown
from payments_async.bulk import RunSettings, run_batch
from payments_async.sandbox import Fault
from payments_async.testing import Testing


@pytest.fixture
def places(home: Home) -> Callable[..., Any]:
    """Opens everything."""
    return opener(home)


@pytest.mark.parametrize(("fault", "days"), [(None, 5), (Fault.LOST_AFTER, 5), (Fault.LOST_BEFORE, 0)])
async def test_it_is_looked_for_in_the_days_in_which_it_was_sent(places: Any, fault: Fault | None, days: int) -> None:
    """Its list settles it. What no list shows is a person's, whatever listing deadline holds: it has no permit."""
    async with places() as here:
        await given(here)
        async with here.session() as payments:
            if fault is None:
                await payments.payouts.send(payout(1))
            else:
                here.sandbox.script(fault, on="money", request_id=payout(1).request_id)
                with pytest.raises(OutcomeUnknown):
                    await payments.payouts.send(payout(1))
            await here.pass_(days * DAY)
            await here.send(9)
            await run_batch(
                payments,
                here.journal,
                "batch 1",
                [payout(1)],
                settings=RunSettings(testing=Testing(now=here.now), look_first="never"),
            )
        await here.pass_(WAITS + 1.0)
        found = await here.look()
        never_came = fault is Fault.LOST_BEFORE
        assert ("parked" if never_came else "successful", ()) == (await here.state(1), found.sent_again)
        assert int(not never_came) == here.sandbox.executions(payout(1).request_id)
        assert () == (await here.journal.examine()).flaws

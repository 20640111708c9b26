"""What an outbox tells of itself."""

import asyncio
import json
import sqlite3
from contextlib import closing

import attrs
import pytest

from payments_async import Beneficiary, Credentials, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async.journal import Entry, JournalCorrupt, SqliteJournal, State
from payments_async.outbox import HandlerPolicy, Outbox
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import payments_journal, payments_sandbox, payments_session

__all__ = ["payments_journal", "payments_sandbox", "payments_session"]  # fixtures

ORDER = PayoutOrder(
    request_id="r-1",
    amount=1500,
    destination=MobileMoneyWallet("+256772000017"),
    product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
    beneficiary=Beneficiary(name="Grace Akello"),
)


async def test_a_handler_that_fails_for_good_is_seen(
    payments_session: PaymentsSession, payments_journal: SqliteJournal
) -> None:
    """Somebody was not told what became of an order: that is shown until it is handled."""
    is_mended, told, failed = False, asyncio.Event(), asyncio.Event()
    outbox = Outbox(payments_session, payments_journal, policy=HandlerPolicy(attempts=1))

    @outbox.on(State.ACCEPTED)
    async def accepted(entry: Entry) -> None:
        (told if is_mended else failed).set()
        if not is_mended:
            raise RuntimeError("the application's database is away")

    async with asyncio.timeout(60), outbox:
        await outbox.pay(ORDER, timeout=60)
        await failed.wait()
        while not (health := await outbox.health()).handlers.dead:  # noqa: ASYNC110 - written down after the handler
            await asyncio.sleep(0.01)
        assert (True, 0, 1) == (health.is_well, health.handlers.pending, health.handlers.dead)
        is_mended = True
        assert 1 == await outbox.replay()
        await told.wait()
        while (health := await outbox.health()).handlers.pending:  # noqa: ASYNC110 - written down after the handler
            await asyncio.sleep(0.01)
        assert 0 == health.handlers.dead


async def test_a_paused_outbox_is_not_well_and_takes_orders(
    payments_session: PaymentsSession, payments_journal: SqliteJournal
) -> None:
    """Nothing is sent before a person resumes it, and what was put meanwhile is sent then."""
    async with Outbox(payments_session, payments_journal) as outbox:
        await outbox.pause("Ann", "the rates are wrong")
        assert State.PLANNED == (await outbox.put(ORDER)).state
        health = await outbox.health()
        assert (False, True) == (health.is_well, health.is_open)
        paused = health.problems[0]
        assert ("paused", 1, ("Ann",), True) == (paused.code, paused.count, paused.subjects, paused.needs_person)
        assert paused.what.endswith(" UTC: the rates are wrong")
        assert 1 == health.progress.counts[State.PLANNED]
        told = json.loads(json.dumps(attrs.asdict(health), default=str))
        assert ("paused", ["Ann"]) == (told["problems"][0]["code"], told["problems"][0]["subjects"])
        assert await outbox.resume("Ann", "they are right")
        assert State.ACCEPTED == (await outbox.pay(ORDER, timeout=60)).state
        assert (await outbox.health()).is_well


async def test_an_outbox_whose_journal_takes_no_order_is_not_well(
    payments_session: PaymentsSession, payments_journal: SqliteJournal
) -> None:
    """Another program has deleted rows: health names the order that shows it, as the put does."""
    async with Outbox(payments_session, payments_journal) as outbox:
        await outbox.pay(ORDER, timeout=60)
        with closing(sqlite3.connect(payments_journal.path)) as stranger:
            stranger.execute("DELETE FROM chunk")
            stranger.commit()
        with pytest.raises(JournalCorrupt, match="lost the chunk of order r-1"):
            await outbox.put(attrs.evolve(ORDER, request_id="r-2"))
        async with asyncio.timeout(60):
            while (health := await outbox.health()).is_well:  # noqa: ASYNC110 - its task ends first
                await asyncio.sleep(0.01)
        assert "lost the chunk of order r-1" in health.problems[0].what


async def test_an_outbox_that_cannot_look_first_is_not_well(
    payments_sandbox: Sandbox, payments_journal: SqliteJournal
) -> None:
    """From its first moment on, and until the list was read: nothing is sent meanwhile, and nothing is said to be."""
    payments_sandbox.script(Fault.ERROR_BEFORE, times=3, on="transactions")
    who = Credentials(
        app_key=payments_sandbox.app_key, app_password=payments_sandbox.app_password, user_id=payments_sandbox.user_id
    )
    async with (
        PaymentsSession(payments_sandbox.base_url, who) as payments,
        Outbox(payments, payments_journal) as outbox,
    ):
        health = await outbox.health()
        assert (False, True) == (health.is_well, "looked for" in health.problems[0].what)
        assert State.ACCEPTED == (await outbox.pay(ORDER, timeout=60)).state
        assert (await outbox.health()).is_well

"""The demo's judge can say no, and its outcomes tell what each of them rests on."""

from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from cli.commands import send

from payments_async import Beneficiary, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async._cli.demo.run import LedgerVerdict, OrderOutcome, judge, outcomes
from payments_async._cli.demo.service import DemoService, LedgerRow, ServiceGone
from payments_async.bulk import ReconcileSettings, reconcile, run_batch
from payments_async.journal import Signal, SqliteJournal, State
from payments_async.journal.contract import Evidence
from payments_async.sandbox import Fault, Sandbox

BATCH = "judged"


def order(request_id: str, amount: str = "1000") -> PayoutOrder:
    """A payout to nobody."""
    return PayoutOrder(
        request_id=request_id,
        amount=Decimal(amount),
        destination=MobileMoneyWallet("+256772000017"),
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Demo Person"),
    )


@attrs.frozen
class World:
    """A sandbox, a session with it, and the journal of a batch."""

    sandbox: Sandbox
    payments: PaymentsSession
    journal: SqliteJournal
    service: DemoService

    async def sent(self, *orders: PayoutOrder) -> None:
        """Send a batch, and let the service come to rest. Nobody listens to its notifications."""
        await run_batch(self.payments, self.journal, BATCH, orders)
        await self.sandbox.settle()

    async def judged(self, opening: Decimal = Decimal(1_000_000_000)) -> tuple[list[OrderOutcome], LedgerVerdict]:
        """What the journal holds, and what the ledger says of it."""
        counted = await outcomes(self.journal, BATCH)
        return counted, judge(await self.service.books(), counted, opening)


@pytest.fixture
async def world(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[World]:
    """A world in which nothing has happened yet."""
    service = DemoService(
        base_url=sandbox.base_url,
        app_key=sandbox.app_key,
        app_password=sandbox.app_password,
        user_id=sandbox.user_id,
        ipn_url="",
        pid=0,
    )
    async with SqliteJournal(tmp_path / "j.sqlite") as journal, service.session(10) as payments:
        yield World(sandbox, payments, journal, service)


async def test_the_judge_agrees_with_what_happened(world: World) -> None:
    """A payout that was carried out once and is known as successful is no point of disagreement."""
    await world.sent(order("D-1"))
    await reconcile(world.payments, world.journal, BATCH, settings=ReconcileSettings(interval=0))
    _, verdict = await world.judged()
    assert LedgerVerdict(carried_out=1, paid_twice=0, lost=0, paid=Decimal(1000), disagreements=()) == verdict
    assert verdict.agrees


async def test_the_judge_sees_a_second_payment(world: World) -> None:
    """The same order sent twice on purpose is found, and so is the missing money."""
    await world.sent(order("D-1"))
    await reconcile(world.payments, world.journal, BATCH, settings=ReconcileSettings(interval=0))
    await send(world.sandbox, order("D-1"))  # its own session would not
    await world.sandbox.settle()
    _, verdict = await world.judged()
    assert (False, 1, 0, 2) == (verdict.agrees, verdict.paid_twice, verdict.lost, verdict.carried_out)
    assert (
        "D-1: carried out 2 times",
        "the balance fell by 2,000, the successful orders are 1,000",
    ) == verdict.disagreements


async def test_the_judge_sees_what_was_lost_or_invented(world: World) -> None:
    """Unknown here but paid, successful here but never carried out, no end here, paid but not ours: each is named."""
    world.sandbox.script(Fault.LOST_AFTER, request_id="D-1")
    world.sandbox.script(Fault.LOST_BEFORE, request_id="D-2")
    await world.sent(order("D-1"), order("D-2"), order("D-3"))
    await world.payments.payouts.send(order("D-4"))
    invented = Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="a rumour", request_id="D-2", amount=Decimal(1000))
    await world.journal.apply_evidence(invented)
    await world.sandbox.settle()
    _, verdict = await world.judged()
    assert (0, 2, 3) == (verdict.paid_twice, verdict.lost, verdict.carried_out)
    assert {
        "D-1: unknown here, but carried out",
        "D-2: successful here, but never carried out",
        "D-3: accepted here, SUCCESSFULL in the ledger",
        "D-4: carried out, but not in this batch",
        "the balance fell by 3,000, the successful orders are 1,000",
    } == set(verdict.disagreements)


async def test_the_judge_sees_another_end_another_amount_and_a_contradiction(world: World) -> None:
    """A failure that is known as a success, an amount that changed on the way, evidence against evidence."""
    world.sandbox.script(Fault.FAILS, request_id="D-1")
    await world.sent(order("D-1"), order("D-2"))
    said = Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="a rumour", request_id="D-1", amount=Decimal(1000))
    await world.journal.apply_evidence(said)
    await world.journal.apply_evidence(attrs.evolve(said, signal=Signal.LOOKED_UP_FAILED))
    counted, _ = await world.judged()
    books = await world.service.books()
    ledger = [attrs.evolve(row, amount=Decimal(999)) if row.request_id == "D-2" else row for row in books.ledger]
    verdict = judge(attrs.evolve(books, ledger=tuple(ledger)), counted, Decimal(1_000_000_000))
    assert not verdict.agrees
    assert "D-1: successful here, FAILED in the ledger" in verdict.disagreements
    assert "D-2: 1000 here, 999 in the ledger" in verdict.disagreements
    contradicted = [words for words in verdict.disagreements if words.startswith("D-1") and "ledger" not in words]
    assert 1 == len(contradicted)


async def test_every_outcome_is_told_with_what_it_rests_on(world: World) -> None:
    """The answer, the lists, or nothing at all; and which orders had no usable answer at some time."""
    world.sandbox.script(Fault.REFUSED, request_id="D-1")
    world.sandbox.script(Fault.LOST_AFTER, request_id="D-2")
    world.sandbox.script(Fault.LOST_BEFORE, request_id="D-3")
    await world.sent(*(order(f"D-{number}") for number in (1, 2, 3, 4)))
    counted, _ = await world.judged()
    assert {(State.REJECTED, "answer"): 1, (State.ACCEPTED, "answer"): 1} == Counter(
        (one.entry.state, one.told_by) for one in counted if one.entry.state in (State.REJECTED, State.ACCEPTED)
    )
    await reconcile(world.payments, world.journal, BATCH, settings=ReconcileSettings(grace=0, interval=0))
    counted, _ = await world.judged()
    assert {"D-1": "answer", "D-2": "list", "D-3": "no answer, in no list", "D-4": "list"} == {
        one.entry.request_id: one.told_by for one in counted
    }
    assert ["D-2", "D-3"] == [one.entry.request_id for one in counted if one.was_doubtful]
    successful = [one.entry.amount for one in counted if one.entry.state is State.SUCCESSFUL]
    parked = [one.entry.request_id for one in counted if one.entry.state is State.PARKED]
    assert (2, Decimal(2000), ["D-3"]) == (len(successful), sum(successful), parked)


@pytest.mark.slow
async def test_a_long_ledger_is_read_to_its_end(world: World) -> None:
    """It comes in pages of a thousand rows."""
    orders = [order(f"D-{number:04}") for number in range(1, 1202)]
    await run_batch(world.payments, world.journal, BATCH, orders)
    books = await world.service.books()
    assert {row.request_id for row in orders} == {row.request_id for row in books.ledger}
    assert isinstance(books.ledger[0], LedgerRow)


async def test_a_service_that_is_another_one_is_gone(sandbox: Sandbox, world: World) -> None:
    """Somebody else may have its port by now: only who knows the address for notifications is it."""
    assert not await world.service.is_there()
    sandbox.ipn_url = "http://127.0.0.1:9/ipn/nobody-can-guess-this"
    assert await attrs.evolve(world.service, ipn_url=sandbox.ipn_url).is_there()
    nobody = attrs.evolve(world.service, base_url="http://127.0.0.1:9")
    assert not await nobody.is_there()
    with pytest.raises(ServiceGone, match="does not answer"):
        await nobody.books()
    with pytest.raises(ServiceGone, match="something else"):
        await attrs.evolve(world.service, base_url=f"{sandbox.base_url}/elsewhere").settled(1)

"""What a receiver believes: nothing before the service's record bears it out, and nothing of a stranger."""

import asyncio
import logging
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ipn.faces import FACES
from ipn.memory_inbox import MemoryInbox
from ipn.notifications import notification
from journal.factories import BATCH, claimed, order, permitted, transaction_id

from payments_async import Rejected
from payments_async.ipn import HandlerPolicy, Receiver, ReceiverSettings, TransactionEvent
from payments_async.journal import Journal, Signal, SqliteJournal, State
from payments_async.journal.contract import Doubt, Outcome

LOCAL = ["127.0.0.1"]
QUICK = HandlerPolicy(poll=0.01, wait_initial=0.001, wait_max=0.001, attempts=3, drain=1.0)


@pytest.fixture(params=list(FACES))
def face(request: pytest.FixtureRequest) -> Any:
    """Each face in turn."""
    return FACES[request.param]


class Service:
    """Has the records it is given; may be down."""

    def __init__(self) -> None:
        self.records: dict[str, Any] = {}
        self.asked = 0
        self.is_down = False

    @property
    def transactions(self) -> "Service":
        return self

    async def get(self, transaction_id: str) -> Any:
        self.asked += 1
        if self.is_down:
            raise ConnectionError("down")
        if transaction_id not in self.records:
            raise Rejected("no such transaction", status=404)
        record = self.records[transaction_id]
        record.transaction_id = transaction_id
        return record


class Record:
    transaction_id = ""

    def __init__(self, request_id: str, amount: Decimal, currency: str = "UGX") -> None:
        self.request_id, self.amount, self.currency, self.status = request_id, amount, currency, None


async def until(condition: Callable[[], Any]) -> None:
    """Let the receiver work until something holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.002)


def listening(receiver: Receiver) -> list[TransactionEvent]:
    """All that its handler hears."""
    heard: list[TransactionEvent] = []

    @receiver.on(TransactionEvent)
    async def hear(event: TransactionEvent) -> None:
        heard.append(event)

    return heard


async def unknown(journal: Journal) -> None:
    """An order that was sent, and nobody knows what became of it."""
    chunk = await claimed(journal, 1)
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN))


async def state(journal: Journal) -> State:
    """Where it stands."""
    entry = await journal.entry(order(0).request_id)
    assert entry is not None
    return entry.state


def about(code: int, transaction: str, **more: Any) -> bytes:
    """A notification about the order."""
    fields: dict[str, Any] = {"RequestId": order(0).request_id, "Amount": float(order(0).amount), **more}
    return notification(transaction, code=code, **fields)


async def test_a_forged_failure_of_a_transaction_that_does_not_exist_moves_nothing(
    face: Any, journal: SqliteJournal
) -> None:
    """With ``confirm`` the order stays unknown; the event is a dead letter in the end, and no handler heard it."""
    await unknown(journal)
    receiver = Receiver(journal, senders=LOCAL, confirm=Service(), policy=QUICK)
    heard = listening(receiver)
    async with face(receiver) as send:
        assert 200 == (await send(about(2, "forged"))).status
        async with asyncio.timeout(60):
            while not (await journal.backlog()).dead:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.002)
    assert State.UNKNOWN is await state(journal)
    assert [] == heard
    assert [Doubt.UNCONFIRMED] == [stored.doubt async for stored in journal.dubious()]


async def test_a_notification_waits_for_a_service_that_cannot_be_asked(face: Any, tmp_path: Path) -> None:
    """However long, and across a restart; it is shown as notified and not confirmed until then."""
    service = Service()
    service.is_down = True
    service.records[transaction_id(0)] = Record(order(0).request_id, -order(0).amount)
    path = tmp_path / "journal.db"
    async with SqliteJournal(path) as journal:
        await unknown(journal)
        receiver = Receiver(journal, senders=LOCAL, confirm=service, policy=QUICK)
        async with face(receiver) as send:
            assert 200 == (await send(about(0, transaction_id(0)))).status
            await until(lambda: service.asked > 2 * QUICK.attempts)
            entry = await journal.entry(order(0).request_id)
            assert entry is not None
            assert (State.UNKNOWN, 1) == (entry.state, entry.unconfirmed)
            assert 1 == (await journal.progress(BATCH)).unconfirmed
            story = await journal.history(order(0).request_id)
            assert ["notified, not confirmed" in (one.detail or "") for one in story if one.what == "delivery"] == [
                True
            ]
            assert 0 == (await journal.backlog()).dead
    service.is_down = False
    async with SqliteJournal(path) as journal, Receiver(journal, confirm=service, policy=QUICK) as receiver:
        event = await receiver.wait_for(order(0).request_id, timeout=60)
        assert (0, State.SUCCESSFUL) == (event.status_code, await state(journal))


async def test_what_the_record_does_not_bear_out_is_kept_and_moves_nothing(face: Any, journal: SqliteJournal) -> None:
    """It is disputed, and shown; nobody who waits is told."""
    service = Service()
    service.records[transaction_id(0)] = Record(order(0).request_id, Decimal(7))
    await unknown(journal)
    receiver = Receiver(journal, senders=LOCAL, confirm=service, policy=QUICK)
    async with face(receiver) as send:
        await send(about(0, transaction_id(0)))
        async with asyncio.timeout(60):
            while (await journal.backlog()).pending:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.002)
        with pytest.raises(TimeoutError):
            await receiver.wait_for(order(0).request_id, timeout=0.02)
    assert State.UNKNOWN is await state(journal)
    (stored,) = [stored async for stored in journal.dubious()]
    assert ("disputed", True) == (stored.state, "amount" in (stored.error or ""))


@pytest.mark.parametrize("kept", [True, False])
async def test_in_shadow_nothing_of_a_stranger_is_believed(
    face: Any, journal: SqliteJournal, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """He is answered 200 and reported: no order moves, no handler hears him, nobody who waits is told."""
    caplog.set_level(logging.WARNING)
    await unknown(journal)
    reported: list[tuple[int, str]] = []
    receiver = Receiver(
        journal if kept else None,
        senders=[],
        settings=ReceiverSettings(
            shadow=True, reported=lambda event, sender: reported.append((event.status_code, sender))
        ),
        policy=QUICK,
    )
    heard = listening(receiver)
    async with face(receiver) as send:
        assert 200 == (await send(about(0, transaction_id(0)))).status
        with pytest.raises(TimeoutError):
            await receiver.wait_for(order(0).request_id, timeout=0.02)
    assert (State.UNKNOWN, []) == (await state(journal), heard)
    assert [(0, "127.0.0.1")] == reported
    assert "a sender is not known" in caplog.text
    assert [Doubt.REPORTED][:kept] == [stored.doubt async for stored in journal.dubious()]


@pytest.mark.parametrize("kept", [True, False])
async def test_a_wait_ends_with_a_final_event_only(face: Any, kept: bool) -> None:
    """Processing first and the success after it is a success."""
    receiver = Receiver(MemoryInbox(time.time) if kept else None, senders=LOCAL, policy=QUICK)
    async with face(receiver) as send:
        waiting = asyncio.ensure_future(receiver.wait_for("r-t-1", timeout=60))
        await asyncio.sleep(0)
        for code in (1, 9, 0):
            await send(notification("t-1", code=code))
        assert 0 == (await waiting).status_code


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("before", [True, False])
async def test_a_wait_for_one_transaction_passes_over_another_of_its_request_id(
    face: Any, kept: bool, before: bool
) -> None:
    """Also when both came before, and though the right one leaves the request id out."""
    receiver = Receiver(MemoryInbox(time.time) if kept else None, senders=LOCAL, policy=QUICK)
    async with face(receiver) as send:
        waiting = None
        if not before:
            waiting = asyncio.ensure_future(receiver.wait_for("r", timeout=60, transaction_id="mine"))
            await asyncio.sleep(0)
        assert 200 == (await send(notification("other", code=2, RequestId="r"))).status
        assert 200 == (await send(notification("mine", code=0, RequestId=None))).status
        event = await (waiting or receiver.wait_for("r", timeout=60, transaction_id="mine"))
    assert ("mine", 0) == (event.transaction_id, event.status_code)


@pytest.mark.parametrize("kept", [True, False])
async def test_a_nameless_success_told_again_with_its_request_id_ends_a_wait(
    face: Any, journal: SqliteJournal, kept: bool
) -> None:
    """The repeat says more than the first said; handlers heard of it once."""
    receiver = Receiver(journal if kept else None, senders=LOCAL, policy=QUICK)
    heard = listening(receiver)
    async with face(receiver) as send:
        waiting = asyncio.ensure_future(receiver.wait_for("r", timeout=60))
        await send(notification("t", RequestId=None))
        await send(notification("t", RequestId="r"))
        assert "r" == (await waiting).request_id
    assert 1 == len(heard)


@pytest.mark.parametrize("differs", [{"Amount": 7}, {"CurrencyCode": "KES"}])
async def test_a_wait_may_ask_for_more(face: Any, differs: dict[str, Any]) -> None:
    """Such as the amount that was sent; what does not fit is passed over."""
    receiver = Receiver(senders=LOCAL, policy=QUICK)
    async with face(receiver) as send:
        waiting = asyncio.ensure_future(
            receiver.wait_for("r", timeout=60, when=lambda event: (event.amount, event.currency_code) == (500, "UGX"))
        )
        await send(notification("other", code=2, RequestId="r", **differs))
        await send(notification("mine", RequestId="r", Amount=500, CurrencyCode="UGX"))
        assert "mine" == (await waiting).transaction_id


async def test_dead_letters_are_hours_away() -> None:
    """An outage of the user's database costs no event: by default the waits add up to six hours on average."""
    policy = HandlerPolicy()
    waits = [policy.wait(tries, 0.5) for tries in range(policy.attempts - 1)]
    assert 6.0 < sum(waits) / 3600 < 6.5
    assert 12.0 < sum(policy.wait(tries, 1.0) for tries in range(policy.attempts - 1)) / 3600 < 12.6

"""Orders, events and deliveries for the tests of the journal, and a clock that stands until it is moved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs

from payments_async._wire.events import TransactionEvent, TransactionFailed, TransactionProcessing, TransactionSucceeded
from payments_async._wire.orders import Beneficiary, MobileMoneyWallet, PayoutOrder
from payments_async.journal import (
    ApprovalRule,
    ApproverKey,
    Entry,
    Happening,
    Journal,
    ListScan,
    Particulars,
    Proposal,
    RunIdentity,
    Signature,
    approval_request,
    read_request,
)
from payments_async.journal.contract import Chunk, Outcome, Permit, RawNotification

IDENTITY = RunIdentity(base_address="https://service.example/", key_fingerprint="0123456789abcdef", user_id="7")
BATCH = "payroll"
_EVENTS: dict[int, type[TransactionEvent]] = {0: TransactionSucceeded, 1: TransactionProcessing, 2: TransactionFailed}


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


def order(
    number: int = 1, amount: str | None = None, *, batch: str = BATCH, currency: str | None = "UGX"
) -> PayoutOrder:
    """The order of that number; the same every time."""
    return PayoutOrder(
        request_id=f"{batch}-{number:06d}",
        batch_id=batch,
        amount=Decimal(amount or f"{1000 + number}.50"),
        destination=MobileMoneyWallet("+256772000017"),
        product_item_id="WALLETUG_WALLETUG",
        beneficiary=Beneficiary(name="Grace Akello", phone_number="+256772000017"),
        message="November salary",
        currency=currency,
    )


def orders(count: int, *, batch: str = BATCH) -> list[PayoutOrder]:
    """So many orders of a batch."""
    return [order(number, batch=batch) for number in range(count)]


def transaction_id(number: int = 1) -> str:
    """What the service calls the order of that number."""
    return str(UUID(int=(7 << 64) + number))


def event(
    status_code: int = 0, number: int = 1, *, amount: str | None = "order's", transaction: str | None = None,
    request_id: str | None = "order's", currency: str | None = "UGX",
) -> TransactionEvent:  # fmt: skip
    """A notification about the order of that number."""
    about = order(number)
    return _EVENTS.get(status_code, TransactionEvent)(
        transaction_id=transaction or transaction_id(number),
        status_code=status_code,
        request_id=about.request_id if request_id == "order's" else request_id,
        amount=about.amount if amount == "order's" else None if amount is None else Decimal(amount),
        currency_code=currency,
    )


def delivery(body: bytes = b"{}", *, peer: str = "192.0.2.7", at: float = 1_000_000.0) -> RawNotification:
    """A notification as it came."""
    return RawNotification(body=body, query="", peer=peer, received_at=at)


async def final_event(journal: Journal, request_id: str) -> TransactionEvent | None:
    """The first final event of an order, if there is one."""
    return (await journal.final_events_of([request_id])).get(request_id)


async def approve(journal: Journal) -> None:
    """A plan is proposed, and approved by two others, one of them far away; two take that back."""
    maker, checker = Signature(who="Ann"), Signature(who="Ben")
    await journal.require_approvals(ApprovalRule(needed=0, why="nobody else is there", by=maker))
    await journal.propose(
        Proposal(digest="a" * 64, batch_id=BATCH, orders=1, amount=Decimal(1), currency=None, file="f", by=maker)
    )
    await journal.approve("a" * 64, by=checker, note="seen")
    await journal.withdraw_approval("a" * 64, by=checker)
    key = ApproverKey(name="Dan", private_key="1" * 64)
    await journal.register_approver(key.name, key.public_key, by=checker, why="he is on a journey")
    for asked in await journal.proposals("a" * 64):
        if asked.withdrawn is None:
            answer = key.sign(read_request(approval_request(asked)), by=Signature(who=key.name), note="seen")
            await journal.approve_signed(answer)
    await journal.withdraw_approver(key.name, by=checker, why="he is back")
    await journal.withdraw_proposal("a" * 64, by=maker)
    await journal.note_particulars([(order(0).request_id, Particulars(file_row=2))])


async def loaded(journal: Journal, count: int = 3, *, batch: str = BATCH) -> None:
    """A batch of so many orders, ready to be sent."""
    await journal.open_run(batch, IDENTITY)
    await journal.load(batch, orders(count, batch=batch), owner="loader")


async def claimed(journal: Journal, count: int = 3, *, owner: str = "worker", lease: float = 30.0) -> Chunk:
    """A batch of so many orders, all of them claimed."""
    await loaded(journal, count)
    chunk = await journal.claim_chunk(BATCH, owner, lease=lease)
    assert chunk is not None
    return chunk


async def in_outbox(
    journal: Journal, count: int = 3, *, outbox: str = "shop", batch: str = "shop", owner: str = "worker"
) -> Chunk:
    """So many orders of an outbox, single ones or a batch of another name, all of them claimed."""
    if batch == outbox:
        await journal.open_outbox(outbox, IDENTITY)
        await asyncio.gather(*(journal.put(outbox, one) for one in orders(count, batch=batch)))
    else:
        await journal.open_run(batch, IDENTITY, outbox=outbox)
        await journal.load(batch, orders(count, batch=batch), owner="loader")
    chunk = await journal.claim_chunk(batch, owner)
    assert chunk is not None
    return chunk


async def permitted(journal: Journal, chunk: Chunk, place: int = 0, *, after: Outcome | None = None) -> Permit:
    """A permit for one order of a chunk."""
    permit = await journal.permit(chunk, chunk.orders[place], after=after)
    assert isinstance(permit, Permit), permit
    return permit


async def swept(
    journal: Journal, *, batch: str | None = BATCH, since: date = date(1970, 1, 1), **ended: Any
) -> ListScan:
    """A list of all days that was read to its end; ``ended`` is how it ended else."""
    begun = await journal.begin_list_scan(batch, since=since, until=date(2100, 1, 1))
    told = {"rows": 3, "requests": 1, "counted": True, "clean": True, "problem": None}
    scan = attrs.evolve(begun, **told | ended)
    await journal.end_list_scan(scan, grace=0.0, interval=0.0)
    return scan


async def missed(journal: Journal, batch: str = BATCH) -> None:
    """All that lifting a quarantine asks for."""
    for _ in range(2):
        await swept(journal, batch=batch)


def ids(entries: Iterable[object]) -> list[str]:
    """The request ids of entries."""
    return [entry.request_id for entry in entries]  # type: ignore[attr-defined]


def turn(entry: Entry, story: Sequence[Happening]) -> Happening | None:
    """What brought an order to where it stands, by the words of the contract."""
    stood = [happening for happening in story if happening.state is not None]
    for place in range(len(stood)):
        if all(happening.state is entry.state for happening in stood[place:]):
            return None if stood[place].what == "planned" else stood[place]
    return None

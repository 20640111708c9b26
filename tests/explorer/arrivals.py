"""All ways in which one notification comes: who brings it, what the record says, how it is stored, handled and ended.

The inbox's own pipeline, senders and comparison with records; what a disk, a handler and a service do is drawn up here.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any

import attrs
from explorer.desks import NOON, Report
from explorer.journals import MemoryJournal, run_in_a_loop
from journal.factories import event, order, transaction_id
from multidict import CIMultiDict

from payments_async import Transaction, TransactionStatus
from payments_async._values.handlers import HandlerPolicy
from payments_async._wire.events import TransactionEvent
from payments_async.ipn._confirm import difference
from payments_async.ipn._durable import DurablePipeline
from payments_async.ipn._routes import EventRouter
from payments_async.ipn._senders import Sender, Senders
from payments_async.journal import JournalUnavailable

KNOWN, OTHER, STRANGER, PROXY = "192.0.2.1", "192.0.2.2", "198.51.100.7", "10.0.0.1"
LEASE = 90.0  # seconds, of the policy by default
_TURNS, _PATIENCE = 500, 20  # turns of the loop: in all, and while one waits who waits longer than work takes
STORED, REFUSED, BROKEN_OFF, SLOW = "stored", "refused", "broken off", "stored late"
AGREES, DIFFERS, MISSING = "the record agrees", "the record differs", "there is no record"


# Senders


def senders() -> Iterator[str]:
    """A sender is known that connects by itself, or that the nearest headers of a trusted proxy all name."""
    checked = Senders([KNOWN, OTHER], [PROXY])
    chains = [
        (),
        *((one,) for one in (KNOWN, OTHER, STRANGER, PROXY)),
        *itertools.product((KNOWN, STRANGER), (STRANGER, PROXY)),
    ]
    for peer, *found in itertools.product((KNOWN, STRANGER, PROXY), chains, chains):
        headers = CIMultiDict[str]()
        for name, form, chain in zip(("X-Forwarded-For", "Forwarded"), ("{}", "for={}"), found, strict=True):
            if chain:
                headers.add(name, ", ".join(form.format(hop) for hop in chain))
        named = {next((hop for hop in reversed(chain) if hop != PROXY), chain[0]) for chain in found if chain}
        behind = {peer} if peer != PROXY else named
        is_known = len(behind) == 1 and behind <= {KNOWN, OTHER}
        told = checked.check(peer, headers)
        wrong = "" if told.is_known is is_known else f"{peer} with {dict(headers)}: {told.why}"
        yield wrong


# Records


def records() -> Iterator[str]:
    """A record bears a notification out that names nothing else."""
    told = event(0, 1, currency="UGX")
    same = {
        "transaction_id": transaction_id(1), "request_id": told.request_id, "amount": told.amount, "currency": "UGX",
        "status": TransactionStatus.SUCCESSFUL,
    }  # fmt: skip
    other = {
        "transaction_id": transaction_id(2), "request_id": "another", "amount": Decimal(7), "currency": "KES",
        "status": TransactionStatus.FAILED,
    }  # fmt: skip
    for differs in itertools.product((False, True), repeat=len(same)):
        record = {
            name: (other if is_other else same)[name] for (name, _), is_other in zip(same.items(), differs, strict=True)
        }
        try:
            found = run_in_a_loop(difference(_Source(Transaction(**record)), told, 1.0))  # type: ignore[arg-type]
        except LookupError:
            found = "another transaction"
        yield "" if bool(found) is any(differs) else f"it bears out what it is not: {record}"


@attrs.frozen
class _Source:
    """A session, with one record or none."""

    record: Transaction | None

    @property
    def transactions(self) -> _Source:
        return self

    async def get(self, _: str, /) -> Transaction:
        if self.record is None:
            raise LookupError("no such transaction")
        return self.record


# The pipeline


class Inbox(MemoryJournal):
    """A journal on a disk that fails once: when a notification is stored, or when its end is."""

    def __init__(self) -> None:
        super().__init__(whole=True)
        self._first = self.image()

    def begin(self, way: Way) -> None:
        """Be empty."""
        self.touched()
        self.restore(self._first)
        self._way, self._fails_to_end = way, way.fails_to_end
        self.moment.now, self.moment.holder = NOON, "receiver"

    async def receive_all(self, arrivals: Any, *, owner: str, handled: Sequence[int] = ()) -> Any:
        if arrivals and self._way.storing == REFUSED:
            raise JournalUnavailable("the disk is full")
        if arrivals and self._way.storing == BROKEN_OFF:
            raise asyncio.CancelledError
        if handled and self._fails_to_end:
            self._fails_to_end = False
            raise JournalUnavailable("the disk is full")
        told = await super().receive_all(arrivals, owner=owner, handled=handled)
        if arrivals and self._way.storing == SLOW:
            self.moment.now += LEASE - 20.0
        return told


@attrs.frozen(kw_only=True)
class Way:
    """How one notification comes."""

    is_known: bool
    record: str
    storing: str
    fails: bool
    fails_to_end: bool

    def source(self) -> _Source | None:
        """What is asked for its record."""
        if not self.record:
            return None
        amount = order(1).amount if self.record == AGREES else Decimal(7)
        record = Transaction(transaction_id=transaction_id(1), request_id=order(1).request_id, amount=amount)
        return _Source(None if self.record == MISSING else record)


async def come(journal: Inbox, way: Way) -> str:
    """Let it come, and tell what is wrong."""
    journal.begin(way)
    heard, believed, wrong = list[float](), list[Any](), list[str]()
    policy = HandlerPolicy(wait_initial=0.5, attempts=3, poll=10.0)
    router = EventRouter(concurrency=9, timeout=30.0)

    async def hear(told: TransactionEvent) -> None:
        heard.append(journal.moment.now)
        ((until,),) = journal.connection.execute("SELECT due_at FROM delivery").fetchall()
        if until - journal.moment.now < policy.timeout:
            wrong.append("a handler begins whose lease is about to end")
        if way.fails and len(heard) == 1:
            raise ValueError("not yet")

    async def sleep(seconds: float) -> None:
        for _ in range(_PATIENCE):
            await asyncio.sleep(0)
        journal.moment.now += seconds

    router.add(TransactionEvent, None, hear, "hear")
    pipeline = DurablePipeline(
        inbox=journal, router=router, policy=policy, owner="receiver", confirm=way.source(),
        believed=believed.append, clock=lambda: journal.moment.now, sleep=sleep, random=lambda: 0.5,
    )  # fmt: skip
    taken = pipeline.take(event(0, 1), b"{}", "", Sender(way.is_known, KNOWN, ""), False)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    stored = bool(journal.connection.execute("SELECT 1 FROM ipn_event").fetchall())
    open_ = journal.connection.execute("SELECT status FROM delivery WHERE status = 'pending'").fetchall()
    final = bool(await journal.final_events_of([order(1).request_id]))
    await pipeline.aclose()
    may_be_heard = way.is_known and way.record in ("", AGREES) and way.storing in (STORED, SLOW)
    if not taken.done() or (taken.result() is None) is not stored:
        wrong.append(f"it is {'stored' if stored else 'not stored'}, and not answered so")
    if stored is not (way.storing in (STORED, SLOW)):
        wrong.append("it is not stored, and the disk is well")
    if bool(heard) is not may_be_heard:
        wrong.append("no handler hears of it" if may_be_heard else "a handler hears of what is not believed")
    if final is not may_be_heard or bool(believed) is not may_be_heard:
        wrong.append("who waits for it hears nothing" if may_be_heard else "who waits hears of what is not believed")
    if may_be_heard and len(heard) != 1 + way.fails:
        wrong.append(f"a handler hears of it {len(heard)} times")
    if may_be_heard and open_:
        wrong.append("it was handled, and is to be handled again")
    return next(iter(wrong), "")


def ways(journal: Inbox) -> Iterator[str]:
    """All ways of one notification."""
    for is_known, record, storing, *fails in itertools.product(
        (True, False), ("", AGREES, DIFFERS, MISSING), (STORED, REFUSED, BROKEN_OFF, SLOW), *((False, True),) * 2
    ):
        if not any(fails) or (is_known and record in ("", AGREES) and storing in (STORED, SLOW)):
            way = Way(is_known=is_known, record=record, storing=storing, fails=fails[0], fails_to_end=fails[1])
            wrong = run_in_a_loop(come(journal, way))
            yield f"{way}: {wrong}" if wrong else ""


def search() -> Report:
    """See all of them."""
    began, count, journal = time.perf_counter(), 0, Inbox()
    with closing(journal.connection):
        for wrong in itertools.chain(senders(), records(), ways(journal)):
            count += 1
            if wrong:
                return Report(name="arrivals", states=count, seconds=time.perf_counter() - began, wrong=wrong)
    return Report(name="arrivals", states=count, seconds=time.perf_counter() - began)

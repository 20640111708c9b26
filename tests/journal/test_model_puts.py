"""Single orders against a dictionary that keeps the rules in a few lines: whatever two owners do, and when they die."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from journal import postgres
from journal.conftest import KINDS
from journal.factories import IDENTITY, Clock, order, transaction_id

from payments_async import PayoutOrder
from payments_async.journal import LeaseLost, OrdersDiffer, Signal, State
from payments_async.journal._records import Placed
from payments_async.journal.contract import Chunk, ClaimedOrder, Evidence, Outcome, Permit

SHOP = "shop"
NUMBERS = st.integers(0, 5)
OWNERS = st.sampled_from(["one", "two", None])
ENDS = {Signal.ACCEPTED: State.ACCEPTED, Signal.REJECTED: State.REJECTED, Signal.UNKNOWN: State.UNKNOWN}


@attrs.define
class Known:
    """What the journal should know of one order.

    Attributes:
        permits: How many were given for it that nobody has proved not to have been used.
    """

    amount: Decimal
    state: State = State.PLANNED
    permits: int = 0


def shown(about: PayoutOrder, transaction: str) -> Evidence:
    """What a list says of an order."""
    return Evidence(
        source="list",
        request_id=about.request_id,
        transaction_id=transaction,
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        amount=about.amount,
        currency="UGX",
    )


class PutMachine(RuleBasedStateMachine):
    """One outbox, two owners that put, send, stall, die and come back, somebody who only puts, and time."""

    kind = "sqlite"

    @initialize()
    def open(self) -> None:
        """An empty outbox."""
        self.place = Path(tempfile.mkdtemp())
        self.home = KINDS[self.kind](self.place)
        self.clock = Clock()
        self.runner = asyncio.Runner()
        self.journal = self.home.opens(clock=self.clock, state_folder=self.place)
        self.do(self.journal.__aenter__())
        self.do(self.journal.open_outbox(SHOP, IDENTITY))
        self.known: dict[int, Known] = {}
        self.shown: set[int] = set()
        self.own: dict[str, Chunk] = {}
        self.hands: list[tuple[Chunk, ClaimedOrder]] = []
        self.permits: list[Permit] = []

    def do(self, awaitable: Any) -> Any:
        """Wait for it."""
        return self.runner.run(awaitable)

    def teardown(self) -> None:
        """Close the file and look at the whole of it."""
        if hasattr(self, "journal"):
            self.do(self.journal.check())
            self.do(self.journal.aclose())
            self.runner.close()
            shutil.rmtree(self.place)
            postgres.give_back()

    def granted(self, permit: Permit) -> None:
        """Only for what is planned, and as long as no other one may have been used."""
        about = self.known[int(permit.request_id[-6:])]
        assert (State.PLANNED, 0) == (about.state, about.permits)
        about.state, about.permits = State.SENDING, 1
        self.permits.append(permit)

    def took_over(self) -> None:
        """Whoever takes a chunk over makes unknown what was under way in it: what did, the journal says."""
        for number, about in self.known.items():
            entry = self.do(self.journal.entry(order(number).request_id))
            if about.state is State.SENDING and entry.state is State.UNKNOWN:
                about.state = State.UNKNOWN

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=4), owner=OWNERS, permits=st.booleans(), later=st.booleans())
    def put(self, numbers: list[int], owner: str | None, permits: bool, later: bool) -> None:
        """In one commit, some of them perhaps twice: each is new once."""
        how = {"owner": owner, "permits": permits, "chunk": self.own.get(owner or "")}
        moment = self.clock.now + 90 if later else 0.0

        async def together() -> list[Placed]:
            return list(
                await asyncio.gather(
                    *(self.journal.put(SHOP, order(number), not_before=moment, **how) for number in numbers)  # type: ignore[arg-type]
                )
            )

        placed = self.do(together())
        for number, one in zip(numbers, placed, strict=True):
            assert (number not in self.known) == one.is_new
            state = State.SUCCESSFUL if number in self.shown else State.PLANNED
            self.known.setdefault(number, Known(order(number).amount, state))
            if one.chunk is not None and owner is not None:
                self.own[owner] = one.chunk
                self.hands += [(one.chunk, claimed) for claimed in one.chunk.orders]
            if one.claimed is not None:
                assert one.chunk is not None
                self.hands.append((one.chunk, one.claimed))
            if one.permit is not None:
                assert permits
                self.granted(one.permit)
        self.took_over()

    @rule(number=NUMBERS)
    def show(self, number: int) -> None:
        """The service's list has an order that the journal does not hold: put later, it is not sent."""
        if number not in self.known:
            self.do(self.journal.note_observed([shown(order(number), transaction_id(number + 1))]))
            self.shown.add(number)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), owner=OWNERS)
    def put_another(self, data: st.DataObject, owner: str | None) -> None:
        """Under an id that is taken: refused."""
        number = data.draw(st.sampled_from(sorted(self.known)))

        async def another() -> Placed:
            return await self.journal.put(SHOP, order(number, "7.00"), owner=owner, permits=True)

        try:
            self.do(another())
        except OrdersDiffer:
            return
        raise AssertionError("another order was taken")

    @rule(owner=st.sampled_from(["one", "two"]))
    def claim(self, owner: str) -> None:
        """What nobody holds any more."""
        chunk = self.do(self.journal.claim_chunk(SHOP, owner))
        self.took_over()
        if chunk is not None:
            planned = {number for number, about in self.known.items() if about.state is State.PLANNED}
            assert {int(claimed.request_id[-6:]) for claimed in chunk.orders} <= planned
            self.hands += [(chunk, claimed) for claimed in chunk.orders]

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def permit(self, data: st.DataObject) -> None:
        """For an order somebody believes to have in hand, perhaps for long."""
        chunk, claimed = data.draw(st.sampled_from(self.hands))
        granted = self.do(self.journal.permit(chunk, claimed))
        if isinstance(granted, Permit):
            self.granted(granted)

    @precondition(lambda self: self.permits)
    @rule(data=st.data(), signal=st.sampled_from([Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT]))
    def record(self, data: st.DataObject, signal: Signal) -> None:
        """How an attempt ended, at any time: each permit is used up by that."""
        permit = self.permits.pop(data.draw(st.integers(0, len(self.permits) - 1)))
        about = self.known[int(permit.request_id[-6:])]
        finding = self.do(self.journal.record(Outcome(permit=permit, signal=signal)))
        if about.state is State.SENDING:
            about.state = ENDS.get(signal, State.PLANNED)
        elif signal is Signal.ACCEPTED and about.state is State.UNKNOWN:
            about.state = State.ACCEPTED
        else:  # it was taken over meanwhile: what a late answer settles, the table of states says
            about.state = finding.state
        about.permits = 0 if about.state is State.PLANNED else 1
        assert not (about.state is State.PLANNED and signal is not Signal.NOT_SENT)

    @rule(seconds=st.sampled_from([1.0, 29.0, 31.0, 100.0, -50.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, or is set back."""
        self.clock.pass_(seconds)

    @precondition(lambda self: self.own)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        """As long as nobody took it over."""
        owner = data.draw(st.sampled_from(sorted(self.own)))
        try:
            self.own[owner] = self.do(self.journal.renew_chunk(self.own[owner]))
        except LeaseLost:
            del self.own[owner]

    @precondition(lambda self: self.own)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Anybody may have it; what was under way in it is unknown."""
        self.do(self.journal.release_chunk(self.own.pop(data.draw(st.sampled_from(sorted(self.own))))))
        self.took_over()

    @rule()
    def expire(self) -> None:
        """Leases that ran out are taken over for nobody."""
        self.do(self.journal.expire_chunks())
        self.took_over()

    @rule()
    def reopen(self) -> None:
        """Everything is on disk; whoever held something still may come back."""
        self.do(self.journal.aclose())
        self.journal = self.home.opens(clock=self.clock, state_folder=self.place)
        self.do(self.journal.__aenter__())
        self.do(self.journal.open_outbox(SHOP, IDENTITY))

    @invariant()
    def agrees(self) -> None:
        """One row for each id, each where it should stand, and the sums beside them are theirs."""
        if not hasattr(self, "journal"):
            return
        counts = dict.fromkeys(State, 0)
        for number, about in self.known.items():
            entry = self.do(self.journal.entry(order(number).request_id))
            assert (about.state, about.amount) == (entry.state, entry.amount)
            counts[about.state] += 1
        assert counts == self.do(self.journal.progress(outbox=SHOP)).counts


PutMachine.TestCase.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestPuts = pytest.mark.slow(PutMachine.TestCase)


class PostgresPutMachine(PutMachine):
    """The same in a database."""

    kind = "postgres"


PostgresPutMachine.TestCase.settings = settings(PutMachine.TestCase.settings, max_examples=7)
TestPutsInPostgres = pytest.mark.slow(PostgresPutMachine.TestCase)

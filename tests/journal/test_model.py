"""The journal against a dictionary that keeps the rules in a few lines: whatever is done, in whatever sequence."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
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
from journal.factories import IDENTITY, Clock, delivery, event, order, orders, transaction_id, turn

from payments_async.journal import LeaseLost, NotParked, Signal, State
from payments_async.journal.contract import Chunk, Evidence, Outcome, Permit, next_state

BATCHES = ("a", "b")
COUNT = 3
NUMBERS = st.tuples(st.sampled_from(BATCHES), st.integers(0, COUNT - 1))
ANSWERS = st.sampled_from([Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT])
LOOK_UPS = [
    Signal.LOOKED_UP_SUCCESSFUL,
    Signal.LOOKED_UP_FAILED,
    Signal.LOOKED_UP_REVERSED,
    Signal.LOOKED_UP_PROCESSING,
]
CONFIRMED = {State.ACCEPTED, State.SUCCESSFUL, State.FAILED, State.REVERSED}


@attrs.define
class Model:
    """What the journal should know of one order.

    Attributes:
        not_left: Attempts of which it is proved that nothing left.
        is_taken_over: It is unknown because its last attempt was taken over.
        is_spoken_of: Somebody has said more of it than that nothing left.
    """

    amount: Decimal
    state: State = State.PLANNED
    attempt: int = 0
    sent_before: bool = False
    not_left: int = 0
    is_taken_over: bool = False
    is_spoken_of: bool = False
    conflict: bool = False
    known: set[tuple[Signal, str, State]] = attrs.field(factory=set)
    against: set[tuple[Signal, str]] = attrs.field(factory=set)
    decided: set[tuple[Signal, str]] = attrs.field(factory=set)

    def learn(self, signal: Signal, source: str = "") -> None:
        """The table decides, unless a person has called this very thing false."""
        if (signal, source) in self.decided:
            return
        unsent = self.state in (State.PLANNED, State.PARKED) and self.not_left == self.attempt
        verdict = next_state(self.state, signal, sent_before=self.sent_before, unsent=unsent)
        if verdict.conflict:
            self.contradict(signal, source, verdict.state)
        if verdict.state is not self.state:
            self.not_left += signal is Signal.NOT_SENT
            if signal is not Signal.SWEPT_CLEAN_TWICE:
                self.is_taken_over = signal is Signal.LEASE_EXPIRED
        self.state = verdict.state

    def proves(self, attempt: int) -> bool:
        """Whether a proof that nothing left under this permit counts: late only if nothing else is open or said."""
        if attempt != self.attempt or self.state not in (State.UNKNOWN, State.PARKED):
            return attempt == self.attempt
        is_all = self.is_taken_over and self.not_left == self.attempt - 1
        return is_all and not (self.is_spoken_of or self.sent_before or self.conflict)

    def disagree(self, signal: Signal, source: str) -> None:
        """Something says otherwise than the order: it is never sent as long as nobody has decided about that."""
        if (signal, source) not in self.decided:
            after = State.PARKED if self.state is State.PLANNED else self.state
            self.contradict(signal, source, after)
            self.state = after

    def contradict(self, signal: Signal, source: str, after: State) -> None:
        """It is a conflict, unless a source with a name says the same of the same state again."""
        saying = (signal, source, self.state)
        self.conflict |= not source or after is not self.state or saying not in self.known
        self.known.add(saying)
        self.against.add((signal, source))


@attrs.define
class Lease:
    """What the journal should know of one chunk: one for each batch here.

    Attributes:
        token: Of the last holder. The journal raises it also where it looks for an order and finds none.
    """

    token: int = 0
    owner: str | None = None
    until: float = 0.0


class JournalMachine(RuleBasedStateMachine):
    """One journal, two batches of one chunk each, several workers that come and go, and time."""

    kind = "sqlite"

    @initialize()
    def load(self) -> None:
        """Two batches, ready to be sent."""
        self.place = Path(tempfile.mkdtemp())
        self.home = KINDS[self.kind](self.place)
        self.clock = Clock()
        self.runner = asyncio.Runner()
        self.journal = self.home.opens(clock=self.clock, state_folder=self.place)
        self.do(self.journal.__aenter__())
        self.model = {(b, n): Model(order(n, batch=b).amount) for b in BATCHES for n in range(COUNT)}
        self.leases = {batch: Lease() for batch in BATCHES}
        self.chunks: list[Chunk] = []
        self.permits: list[tuple[tuple[str, int], Permit]] = []
        self.sent = Counter[tuple[str, int]]()
        for batch in BATCHES:
            self.do(self.journal.open_run(batch, IDENTITY))
            self.do(self.journal.load(batch, orders(COUNT, batch=batch), owner="loader"))

    def do(self, awaitable: Any) -> Any:
        """Wait for it."""
        return self.runner.run(awaitable)

    def teardown(self) -> None:
        """Close the file and look at the whole of it."""
        if hasattr(self, "journal"):
            for batch in BATCHES:
                self.do(self.turns(batch))
            self.do(self.journal.check())
            self.do(self.journal.aclose())
            self.runner.close()
            shutil.rmtree(self.place)
            postgres.give_back()

    def silence(self, batch: str) -> None:
        """What was under way in this batch is unknown."""
        for (of, _), known in self.model.items():
            if of == batch and known.state is State.SENDING:
                known.learn(Signal.LEASE_EXPIRED)

    @rule()
    def reopen(self) -> None:
        """Everything is on disk."""
        self.do(self.journal.aclose())
        self.journal = self.home.opens(clock=self.clock, state_folder=self.place)
        self.do(self.journal.__aenter__())

    @rule(batch=st.sampled_from(BATCHES))
    def load_again(self, batch: str) -> None:
        """The same orders change nothing."""
        report = self.do(self.journal.load(batch, orders(COUNT, batch=batch)[::-1], owner="another"))
        assert (COUNT, 0) == (report.total, report.added)

    @rule(seconds=st.sampled_from([1.0, 29.0, 31.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.pass_(seconds)

    @rule(batch=st.sampled_from(BATCHES), owner=st.sampled_from(["one", "two"]))
    def claim(self, batch: str, owner: str) -> None:
        """The chunk goes to whoever asks once its lease is over."""
        lease = self.leases[batch]
        chunk = self.do(self.journal.claim_chunk(batch, owner))
        open_ = {State.PLANNED, State.SENDING} & {known.state for (of, _), known in self.model.items() if of == batch}
        if lease.until > self.clock.now or not open_:
            assert chunk is None
            if lease.until <= self.clock.now:
                lease.owner = None
            return
        self.silence(batch)
        planned = [n for n in range(COUNT) if self.model[batch, n].state is State.PLANNED]
        if not planned:
            lease.owner, lease.until = None, 0.0
            assert chunk is None
            return
        assert chunk.token > lease.token
        lease.token, lease.owner, lease.until = chunk.token, owner, self.clock.now + 30
        assert planned == [int(held.order.request_id[-6:]) for held in chunk.orders]
        assert [self.model[batch, n].sent_before for n in planned] == [held.sent_before for held in chunk.orders]
        self.chunks.append(chunk)

    def is_mine(self, chunk: Chunk) -> bool:
        """Whether nobody has taken it over or released it."""
        lease = self.leases[chunk.batch_id]
        return (lease.token, lease.owner) == (chunk.token, chunk.owner)

    @precondition(lambda self: self.chunks)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        """As long as nobody took it over."""
        chunk = data.draw(st.sampled_from(self.chunks))
        try:
            self.do(self.journal.renew_chunk(chunk))
        except LeaseLost:
            assert not self.is_mine(chunk)
        else:
            assert self.is_mine(chunk)
            self.leases[chunk.batch_id].until = self.clock.now + 30

    @precondition(lambda self: self.chunks)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Its holder gives it back; anybody else does nothing."""
        chunk = data.draw(st.sampled_from(self.chunks))
        self.do(self.journal.release_chunk(chunk))
        if self.is_mine(chunk):
            self.silence(chunk.batch_id)
            self.leases[chunk.batch_id] = Lease(chunk.token)

    @rule()
    def expire(self) -> None:
        """Leases that ran out are taken over for nobody."""
        self.do(self.journal.expire_chunks())
        for batch, lease in self.leases.items():
            if lease.owner is not None and lease.until <= self.clock.now:
                self.silence(batch)
                self.leases[batch] = Lease(lease.token)

    @precondition(lambda self: self.chunks)
    @rule(data=st.data(), answers=st.lists(st.none() | ANSWERS, min_size=1, max_size=6))
    def permit(self, data: st.DataObject, answers: list[Signal | None]) -> None:
        """Planned orders of a chunk that is ours and whose lease is good, asked for side by side.

        With each, the outcome of another.
        """
        asked = []
        expected: list[tuple[tuple[str, int], Model] | None] = []
        before = list(self.permits)
        for answer in answers:
            chunk = data.draw(st.sampled_from(self.chunks))
            held = data.draw(st.sampled_from(chunk.orders))
            after = None
            if answer is not None and before:
                of, permit = data.draw(st.sampled_from(before))
                after = self.outcome(of, permit, answer)
            key = (chunk.batch_id, int(held.order.request_id[-6:]))
            known, lease = self.model[key], self.leases[chunk.batch_id]
            good = self.is_mine(chunk) and lease.until > self.clock.now and known.state is State.PLANNED
            if good:
                known.learn(Signal.PERMITTED)
                known.attempt += 1
            asked.append((chunk, held, after))
            expected.append((key, attrs.evolve(known)) if good else None)
        for wanted, result in zip(expected, self.do(self.permits_for(asked)), strict=True):
            assert (wanted is not None) == isinstance(result, Permit)
            if wanted is not None:
                key, known = wanted
                assert (known.attempt, known.sent_before, known.amount) == (
                    result.attempt,
                    result.sent_before,
                    result.amount,
                )
                self.permits.append((key, result))

    @precondition(lambda self: self.chunks)
    @rule(data=st.data())
    def permit_late(self, data: st.DataObject) -> None:
        """A worker that stood still asks by its old lease, after its own process has taken the chunk again."""
        chunk = data.draw(st.sampled_from(self.chunks))
        self.wait(31.0)
        self.claim(chunk.batch_id, chunk.owner)
        results = self.do(self.permits_for([(chunk, held, None) for held in chunk.orders]))
        assert not [result for result in results if isinstance(result, Permit)]

    async def permits_for(self, asked: list[Any]) -> list[Any]:
        """What they are told, all asked before the first is answered."""
        return await asyncio.gather(*(self.journal.permit(chunk, held, after=after) for chunk, held, after in asked))

    def outcome(self, key: tuple[str, int], permit: Permit, signal: Signal) -> Outcome:
        """An answer to an attempt, and what the model makes of it."""
        known = self.model[key]
        is_plain = permit.attempt == known.attempt and known.state is State.SENDING
        known.is_spoken_of |= signal is not Signal.NOT_SENT and not is_plain
        counts = known.proves(permit.attempt) if signal is Signal.NOT_SENT else permit.attempt == known.attempt
        if counts or signal is Signal.ACCEPTED:
            known.learn(signal, f"answer {permit.attempt}")
        transaction = self.transaction(key) if signal is Signal.ACCEPTED else None
        return Outcome(permit=permit, signal=signal, transaction_id=transaction)

    def transaction(self, key: tuple[str, int]) -> str:
        """What the service calls the order."""
        return transaction_id(100 * BATCHES.index(key[0]) + key[1] + 1)

    @precondition(lambda self: self.permits)
    @rule(data=st.data(), signal=ANSWERS)
    def record(self, data: st.DataObject, signal: Signal) -> None:
        """An answer comes, sooner or later, once or twice."""
        key, permit = data.draw(st.sampled_from(self.permits))
        finding = self.do(self.journal.record(self.outcome(key, permit, signal)))
        assert self.model[key].state is finding.state

    @rule(key=NUMBERS, signal=st.sampled_from(LOOK_UPS), agrees=st.booleans())
    def look_up(self, key: tuple[str, int], signal: Signal, agrees: bool) -> None:
        """Evidence settles what agrees with it."""
        about, known = order(key[1], batch=key[0]), self.model[key]
        evidence = Evidence(
            signal=signal, source="list", request_id=about.request_id, transaction_id=self.transaction(key),
            amount=-about.amount if agrees else Decimal(1), currency="UGX",
        )  # fmt: skip
        known.is_spoken_of = True
        if agrees:
            known.learn(signal, "list")
        else:
            known.disagree(signal, "list, another amount")
        finding = self.do(self.journal.apply_evidence(evidence))
        assert known.state is finding.state

    @rule(key=NUMBERS, status_code=st.integers(0, 2))
    def notify(self, key: tuple[str, int], status_code: int) -> None:
        """A notification, of which repetitions say nothing new."""
        about, known = order(key[1], batch=key[0]), self.model[key]
        fact = attrs.evolve(
            event(status_code, transaction=self.transaction(key)), request_id=about.request_id, amount=-about.amount
        )
        known.is_spoken_of = True
        receipt = self.do(self.journal.receive(delivery(repr(fact).encode()), fact, owner="r", lease=0))
        if receipt.is_new:
            known.learn([Signal.NOTIFIED_SUCCESSFUL, Signal.NOTIFIED_PROCESSING, Signal.NOTIFIED_FAILED][status_code])

    @rule(key=NUMBERS)
    def park(self, key: tuple[str, int]) -> None:
        """Two list scans did not find it."""
        self.do(self.journal.park(order(key[1], batch=key[0]).request_id, detail="two list scans"))
        self.model[key].learn(Signal.SWEPT_CLEAN_TWICE)

    @rule(key=NUMBERS)
    def send_again(self, key: tuple[str, int]) -> None:
        """A person decides, of parked orders alone."""
        known = self.model[key]
        try:
            self.do(self.journal.send_again(order(key[1], batch=key[0]).request_id, who="Ann", why="never arrived"))
        except NotParked:
            assert known.state is not State.PARKED
        else:
            assert known.state is State.PARKED
            known.learn(Signal.WRITTEN_OFF)
            known.sent_before, known.conflict = True, False
            known.decided |= {(signal, source) for signal, source in known.against if signal is not Signal.ACCEPTED}

    @rule(key=NUMBERS)
    def acknowledge(self, key: tuple[str, int]) -> None:
        """A person has seen the conflict."""
        self.do(self.journal.acknowledge(order(key[1], batch=key[0]).request_id, who="Ann", why="seen"))
        self.model[key].conflict = False

    async def turns(self, batch: str) -> None:
        """What brought each order to where it stands, read side by side, is what its history says."""
        async for page in self.journal.standings(batch):
            for standing in page:
                story = await self.journal.history(standing.entry.request_id)
                assert turn(standing.entry, story) == standing.decision

    @invariant()
    def agrees(self) -> None:
        """Entries, counts and sums say what the model says."""
        if not hasattr(self, "model"):
            return
        for batch in BATCHES:
            entries = self.do(self.entries(batch))
            expected = [self.model[batch, number] for number in range(COUNT)]
            assert [(m.state, m.attempt, m.sent_before, m.conflict) for m in expected] == [
                (e.state, e.attempt, e.sent_before, e.conflict is not None) for e in entries
            ]
            progress = self.do(self.journal.progress(batch))
            for state in State:
                of_state = [known.amount for known in expected if known.state is state]
                assert (len(of_state), sum(of_state)) == (progress.counts[state], progress.sums[state])
            assert sum(known.conflict for known in expected) == progress.conflicts

    async def entries(self, batch: str) -> list[Any]:
        """All entries of a batch."""
        return [entry async for entry in self.journal.entries(batch)]


JournalMachine.TestCase.settings = settings(
    max_examples=12, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestJournal = pytest.mark.slow(JournalMachine.TestCase)


class PostgresMachine(JournalMachine):
    """The same in a database."""

    kind = "postgres"


PostgresMachine.TestCase.settings = settings(JournalMachine.TestCase.settings, max_examples=5)
TestJournalInPostgres = pytest.mark.slow(PostgresMachine.TestCase)

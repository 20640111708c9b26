"""Permits and ends of attempts side by side, which share statements, against the same apart, each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from journal.factories import BATCH, Clock, delivery, event, loaded, transaction_id

from payments_async.journal import Journal, Signal, SqliteJournal, State
from payments_async.journal._statements import _permits
from payments_async.journal.contract import Chunk, ClaimedOrder, NotPermitted, Outcome, Permit, TransitionResult
from payments_async.testing import Testing

COUNT = 30
MOST = 6  # orders of one round
ENDS = st.sampled_from([Signal.ACCEPTED, Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT])
AT_TIMES = st.sampled_from([False, False, False, True])


class Round(NamedTuple):
    """What is asked for side by side.

    Attributes:
        fresh: How many orders that nobody asked for before.
        again: Places of orders that may have been asked for.
        answers: How the permits of the round before ended, in turn.
        in_time: Whether the lease is still good.
        named: Whether a notification without a request id came before, of the transaction of an order under way.
        late: Whether the first answer is one to an attempt that another one has followed since.
        taken_over: Whether another worker has the chunk from now on; the first half is asked for with the lost lease.
        astray: Whether one of the orders belongs to another chunk.
        worded: Whether the answers have codes and words.
        written_off: Whether what is unknown is parked and written off before.
        alone: Whether the answers are written down by themselves, and not with the next permits.
    """

    fresh: int
    again: list[int]
    answers: list[Signal]
    in_time: bool = True
    named: bool = False
    late: bool = False
    taken_over: bool = False
    astray: bool = False
    worded: bool = False
    written_off: bool = False
    alone: bool = False


ROUNDS = st.lists(
    st.builds(
        Round,
        fresh=st.integers(1, MOST),
        again=st.one_of(st.just([]), st.just([]), st.lists(st.integers(0, MOST), max_size=3)),
        answers=st.one_of(st.just([Signal.ACCEPTED] * MOST), st.lists(ENDS, min_size=MOST, max_size=MOST)),
        in_time=AT_TIMES.map(lambda rare: not rare),
        **dict.fromkeys(("named", "late", "taken_over", "astray", "worded", "written_off", "alone"), AT_TIMES),
    ),
    min_size=2,
    max_size=5,
)


class Desk:
    """One journal with one batch of one chunk, and what has happened at it."""

    def __init__(self, place: Path, crash_at: Any = None, opens: Callable[..., Journal] | None = None) -> None:
        self.clock = Clock()
        self.journal = (
            SqliteJournal(place / "journal.db", state_folder=None, testing=Testing(now=self.clock, crash_at=crash_at))
            if opens is None
            else opens(clock=self.clock, crash_at=crash_at, state_folder=None)
        )
        self.chunk: Chunk | None = None
        self.claimed: Sequence[ClaimedOrder] = ()  # as they were at first
        self.open: list[Permit] = []
        self.past: list[Permit] = []
        self.results: list[Permit | NotPermitted | TransitionResult] = []
        self.asked = 0
        self.events = 0
        self.others = 0

    async def prepare(self, given_: Round) -> list[Coroutine[Any, Any, Permit | NotPermitted | TransitionResult]]:
        """What one round asks for: orders of the chunk, each with the outcome of a permit of the round before."""
        assert self.chunk is not None
        lost = self.chunk
        if not given_.in_time or given_.taken_over:
            self.clock.pass_(31)
        if given_.taken_over:
            self.chunk = await self.journal.claim_chunk(BATCH, "another") or lost
        if given_.named:
            self.events += 1
            about = self.open[0] if self.open else None
            fact = event(
                0,
                transaction=transaction_id(self.events if about is None else about.id),
                request_id=None,
                amount=None if about is None else str(about.amount),
            )
            await self.journal.receive(delivery(b"%d" % self.events), fact, owner="r", lease=0)
        ended = list(self.open)
        overtaken = [one for one in self.past for other in self.open if one.id == other.id and one is not other]
        if given_.late and overtaken:
            ended[0] = overtaken[0]
        outcomes = [
            Outcome(
                permit=permit,
                signal=signal,
                transaction_id=transaction_id(permit.id) if signal is Signal.ACCEPTED else None,
                code=7 if given_.worded else None,
                message="words" if given_.worded or signal is not Signal.ACCEPTED else None,
            )
            for permit, signal in zip(ended, given_.answers, strict=False)
        ]
        if given_.written_off:
            async for entry in self.journal.entries(BATCH, State.UNKNOWN):
                await self.journal.park(entry.request_id, detail="nowhere")
                await self.journal.send_again(entry.request_id, who="Grace", why="asked them")
        asked_with = [lost] * (MOST // 4) + [self.chunk] * COUNT
        wanted = [self.claimed[place] for place in (*range(self.asked, self.asked + given_.fresh), *given_.again)]
        self.asked += given_.fresh
        if given_.astray:
            wanted[0] = (await self.other()).orders[0]
        ends = [self.journal.record(outcome) for outcome in outcomes] if given_.alone else []
        after = [None] * len(wanted) if given_.alone else [*outcomes, *[None] * len(wanted)]
        asks = zip(asked_with, wanted, after, strict=False)
        return [*ends, *(self.journal.permit(chunk, order, after=outcome) for chunk, order, outcome in asks)]

    async def other(self) -> Chunk:
        """A chunk of another batch."""
        self.others += 1
        await loaded(self.journal, 1, batch=f"other {self.others}")
        chunk = await self.journal.claim_chunk(f"other {self.others}", "worker")
        assert chunk is not None
        return chunk

    def note(self, results: Sequence[Permit | NotPermitted | TransitionResult]) -> None:
        """What was granted is open until the next round."""
        self.open = [result for result in results if isinstance(result, Permit)]
        self.past += self.open
        self.results += results

    async def told(self) -> Any:
        """Everything the journal says."""
        entries = [entry async for entry in self.journal.entries(BATCH)]
        stories = [await self.journal.history(entry.request_id) for entry in entries]
        others = [entry async for entry in self.journal.entries() if entry.batch_id != BATCH]
        return self.results, entries, stories, others, await self.journal.progress(BATCH)


async def asked(
    rounds: list[Round], *, side_by_side: bool, passed: Any = None, opens: Callable[..., Journal] | None = None
) -> Any:
    """What a journal says when all of this was asked for."""
    with TemporaryDirectory() as place:
        desk = Desk(Path(place), passed, opens)
        async with desk.journal as journal:
            await loaded(journal, COUNT)
            desk.chunk = await journal.claim_chunk(BATCH, "worker")
            assert desk.chunk is not None
            desk.claimed = desk.chunk.orders
            for given_ in rounds:
                calls = await desk.prepare(given_)
                desk.note(await asyncio.gather(*calls) if side_by_side else [await call for call in calls])
            return await desk.told()


@contextmanager
def each_by_itself() -> Iterator[None]:
    """Nothing is ever done together."""
    together = {name: vars(_permits)[name] for name in ("grant_all", "record_all")}
    vars(_permits).update(dict.fromkeys(together, lambda *_: None))
    try:
        yield
    finally:
        vars(_permits).update(together)


# the answer to a first attempt comes while the second is under way; a notification came first; an answer has words
@pytest.mark.slow
@example(rounds=[Round(1, [], []), Round(1, [0], [Signal.NOT_SENT]), Round(1, [], [Signal.ACCEPTED], late=True)])
@example(rounds=[Round(1, [], []), Round(1, [], [Signal.ACCEPTED], named=True)])
@example(rounds=[Round(1, [], []), Round(1, [], [Signal.REJECTED], worded=True)])
@example(rounds=[Round(3, [], []), Round(1, [], [Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN], alone=True)])
@example(rounds=[Round(2, [], []), Round(1, [], [Signal.ACCEPTED] * 2, named=True, alone=True)])
@given(rounds=ROUNDS)
@settings(max_examples=15, deadline=None)
def test_permits_asked_for_side_by_side_are_those_asked_for_apart(rounds: list[Round]) -> None:
    """Whatever is asked for, in one statement for many, one for each, or each by itself: all of it is the same."""
    together, in_turn = (asyncio.run(asked(rounds, side_by_side=how)) for how in (True, False))
    with each_by_itself():
        apart = asyncio.run(asked(rounds, side_by_side=True))
    assert together == in_turn == apart


async def test_permits_asked_for_side_by_side_do_share_statements() -> None:
    """Two rounds of 6 orders, which would be 12 permits and 6 outcomes, each by itself."""
    passed: list[str] = []
    first = Round(6, [], [])
    second = Round(6, [], [Signal.ACCEPTED] * 5 + [Signal.REJECTED])
    await asked([first, second], side_by_side=True, passed=passed.append)
    assert passed.count("permit.begun") <= 6
    assert passed.count("permit.after_recorded") <= 3


async def test_ends_written_down_side_by_side_do_share_statements() -> None:
    """Six answers with no next order to ask for: as many commits, or a few where the machine is slow."""
    passed: list[str] = []
    await asked(
        [Round(6, [], []), Round(1, [], [Signal.ACCEPTED] * 6, alone=True)], side_by_side=True, passed=passed.append
    )
    assert passed.count("record.begun") <= 2


async def test_what_comes_turn_after_turn_of_the_loop_shares_a_commit(tmp_path: Path) -> None:
    """Ten orders asked for in ten turns: one commit, or two where the machine is slow; and one alone is not kept."""
    passed: list[str] = []
    async with SqliteJournal(tmp_path / "journal.db", testing=Testing(crash_at=passed.append)) as journal:
        await loaded(journal, COUNT)
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        passed.clear()
        async with asyncio.TaskGroup() as group:
            for claimed in chunk.orders[:10]:
                group.create_task(journal.permit(chunk, claimed))
                await asyncio.sleep(0)
        assert passed.count("commit.done") <= 2
        async with asyncio.timeout(30):
            assert isinstance(await journal.permit(chunk, chunk.orders[10]), Permit)

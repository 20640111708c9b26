"""Evidence that is told side by side, in one commit, against the same told in turn."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal.factories import BATCH, Clock, claimed, delivery, event, order, permitted, transaction_id

from payments_async.journal import Signal, SqliteJournal
from payments_async.journal._states import EVIDENCE
from payments_async.journal.contract import Evidence, Outcome
from payments_async.testing import Testing

COUNT = 6
ANSWERS = (Signal.ACCEPTED, Signal.UNKNOWN, Signal.REJECTED, Signal.NOT_SENT)
NAMES = st.one_of(st.none(), st.integers(0, COUNT).map(lambda number: order(number).request_id))
TRANSACTIONS = st.one_of(st.none(), st.integers(0, COUNT).map(transaction_id))
AMOUNTS = st.one_of(st.none(), st.integers(0, COUNT).map(lambda number: -order(number).amount), st.just(Decimal(1)))
TOLD = st.lists(
    st.builds(
        lambda named, **said: Evidence(request_id=named[0], transaction_id=named[1], **said),
        named=st.tuples(NAMES, TRANSACTIONS).filter(any),
        signal=st.sampled_from([*sorted(EVIDENCE), Signal.WRITTEN_OFF]),  # the last one is none, and is refused
        source=st.sampled_from(["list", "record"]),
        amount=AMOUNTS,
        currency=st.sampled_from([None, "ugx", "KES"]),
    ),
    max_size=30,
)


async def told(evidence: list[Evidence], *, side_by_side: bool) -> Any:
    """What a journal says when it was told all this, and what it answered."""
    with TemporaryDirectory() as place:
        async with SqliteJournal(
            Path(place) / "journal.db", testing=Testing(now=Clock()), state_folder=None
        ) as journal:
            chunk = await claimed(journal, COUNT)
            for number, signal in enumerate(ANSWERS):
                permit = await permitted(journal, chunk, number)
                known = transaction_id(number) if signal is Signal.ACCEPTED else None
                await journal.record(Outcome(permit=permit, signal=signal, transaction_id=known))
            await journal.receive(delivery(), event(0, COUNT), owner="r", lease=30)
            for number in range(2):  # a person called false what was told of the second one until then
                await journal.park(order(number).request_id, detail="nowhere")
            await journal.send_again(order(1).request_id, who="Grace", why="asked them")
            calls = [journal.apply_evidence(one) for one in evidence]
            if side_by_side:
                answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
            else:
                answers = [(await asyncio.gather(call, return_exceptions=True))[0] for call in calls]
            entries = [entry async for entry in journal.entries(BATCH)]
            stories = [await journal.history(entry.request_id) for entry in entries]
            return [_words(answer) for answer in answers], entries, stories, await journal.progress(BATCH)


def _words(answer: object) -> object:
    """An answer as it can be compared."""
    return (type(answer), str(answer)) if isinstance(answer, Exception) else answer


@pytest.mark.slow
@given(evidence=TOLD)
@settings(max_examples=20, deadline=None)
def test_evidence_told_side_by_side_is_that_told_in_turn(evidence: list[Evidence]) -> None:
    """Orders, answers, histories and sums are the same; what is not evidence is refused by itself."""
    assert asyncio.run(told(evidence, side_by_side=False)) == asyncio.run(told(evidence, side_by_side=True))


async def test_evidence_told_side_by_side_is_one_commit(tmp_path: Path) -> None:
    """A page of a list waits for the disk once."""
    passed: list[str] = []
    async with SqliteJournal(
        tmp_path / "journal.db", testing=Testing(crash_at=passed.append), state_folder=None
    ) as journal:
        await claimed(journal, COUNT)
        passed.clear()
        page = [
            Evidence(signal=Signal.ACCEPTED, source="list", request_id=order(number).request_id) for number in range(6)
        ]
        await asyncio.gather(*(journal.apply_evidence(one) for one in page))
    assert (1, 1) == (passed.count("apply_evidence.begun"), passed.count("commit.done"))

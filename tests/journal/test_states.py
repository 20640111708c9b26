"""The table of states: what may happen to an order, and what never does."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payments_async import TransactionStatus
from payments_async.journal import FINAL, Signal, State
from payments_async.journal.contract import EVIDENCE, RULES, Transition, next_state

STATES, NEWS = st.sampled_from(State), st.sampled_from(Signal)
FINAL_NEWS = sorted(EVIDENCE - {Signal.SWEPT_CLEAN_TWICE})
NOTIFIED = sorted(signal for signal in Signal if signal.startswith("notified"))


def test_every_pair_is_decided() -> None:
    """There is no signal that the table has no answer to, and an ignored one changes nothing."""
    for state, signal, sent_before, unsent in itertools.product(State, Signal, [False, True], [False, True]):
        verdict = next_state(state, signal, sent_before=sent_before, unsent=unsent)
        assert isinstance(verdict.state, State)
        assert not (verdict.ignored and (verdict.conflict or verdict.state is not state))


def test_every_news_has_a_rule() -> None:
    """What decides can be explained."""
    assert set(Signal) == set(RULES)


def test_the_ways_of_an_order() -> None:
    """Every way there is for an order that was sent once; a new one is a new promise."""
    ways = {
        (state, verdict.state)
        for state in set(State) - {State.PLANNED}
        for signal in Signal
        if (verdict := next_state(state, signal)).state is not state
    }
    settled = {State.ACCEPTED, State.SUCCESSFUL, State.FAILED, State.REVERSED}
    assert ways == (
        {(State.SENDING, after) for after in settled | {State.PLANNED, State.REJECTED, State.UNKNOWN}}
        | {(State.UNKNOWN, after) for after in settled | {State.PLANNED, State.PARKED, State.REJECTED}}
        | {(State.PARKED, after) for after in settled | {State.PLANNED, State.REJECTED}}
        | {(State.ACCEPTED, after) for after in settled - {State.ACCEPTED}}
        | {(State.SUCCESSFUL, State.REVERSED)}
    )


@given(state=STATES, signal=NEWS, sent_before=st.booleans(), unsent=st.booleans())
def test_only_a_proof_or_a_person_makes_an_order_planned(
    state: State, signal: Signal, sent_before: bool, unsent: bool
) -> None:
    """Each other way back would be a second payment."""
    after = next_state(state, signal, sent_before=sent_before, unsent=unsent).state
    if after is State.PLANNED and state is not State.PLANNED:
        proved = {(open_, Signal.NOT_SENT) for open_ in (State.SENDING, State.UNKNOWN, State.PARKED)}
        assert (state, signal) in {*proved, (State.PARKED, Signal.WRITTEN_OFF)}


@given(state=STATES, signal=NEWS, sent_before=st.booleans(), unsent=st.booleans())
def test_only_a_permit_makes_an_order_sending(state: State, signal: Signal, sent_before: bool, unsent: bool) -> None:
    """And only from planned."""
    after = next_state(state, signal, sent_before=sent_before, unsent=unsent).state
    if after is State.SENDING and state is not State.SENDING:
        assert (state, signal) == (State.PLANNED, Signal.PERMITTED)


@given(state=st.sampled_from(sorted(FINAL)), signal=NEWS, sent_before=st.booleans())
def test_a_final_state_is_never_overwritten(state: State, signal: Signal, sent_before: bool) -> None:
    """Except that a success may be reversed; what contradicts it is a conflict."""
    after = next_state(state, signal, sent_before=sent_before).state
    assert after is state or (state, after) == (State.SUCCESSFUL, State.REVERSED)


@given(signal=st.lists(NEWS, max_size=30))
def test_an_order_never_leaves_the_money_behind(signal: list[Signal]) -> None:
    """Whatever comes in whatever sequence: once evidence showed the order, only a person makes it planned again."""
    state, shown, sent_before, unsent = State.PLANNED, False, False, True
    for item in signal:
        before, state = state, next_state(state, item, sent_before=sent_before, unsent=unsent).state
        written_off = item is Signal.WRITTEN_OFF and before is State.PARKED
        is_proved = unsent or (item is Signal.NOT_SENT and before is not State.PLANNED)
        unsent = is_proved and state in (State.PLANNED, State.PARKED)
        sent_before |= written_off
        shown = (shown or item in FINAL_NEWS) and not written_off
        assert not (shown and state in (State.PLANNED, State.SENDING))


@pytest.mark.parametrize("sent_before", [False, True])
@pytest.mark.parametrize("signal", FINAL_NEWS)
def test_evidence_for_an_order_never_sent_stops_it_and_is_shown(signal: Signal, sent_before: bool) -> None:
    """Somebody may have sent it: it must not be sent, and a person has to know."""
    verdict = next_state(State.PLANNED, signal, sent_before=sent_before, unsent=True)
    assert verdict.state is not State.PLANNED
    assert verdict.conflict


@pytest.mark.parametrize("signal", NOTIFIED)
def test_a_notification_settles_no_order_that_was_never_sent(signal: Signal) -> None:
    """It may be forged: were the order settled by it, it would never be paid, and nobody could decide otherwise."""
    assert Transition(State.PARKED, conflict=True) == next_state(State.PLANNED, signal)
    assert Transition(State.PARKED, conflict=True) == next_state(State.PARKED, signal, unsent=True)
    assert Transition(State.PLANNED) == next_state(State.PARKED, Signal.WRITTEN_OFF, unsent=True)


@pytest.mark.parametrize("signal", FINAL_NEWS)
def test_an_order_that_was_written_off_is_like_unknown_on_evidence(signal: Signal) -> None:
    """The person who wrote it off was wrong: no second payment, and nothing contradicts."""
    assert next_state(State.UNKNOWN, signal) == next_state(State.PLANNED, signal, sent_before=True)


def test_a_refusal_of_an_order_that_was_written_off_proves_nothing() -> None:
    """It may mean that the service has the first one."""
    assert Transition(State.REJECTED) == next_state(State.SENDING, Signal.REJECTED)
    assert Transition(State.UNKNOWN) == next_state(State.SENDING, Signal.REJECTED, sent_before=True)


def test_absence_parks_and_nothing_more() -> None:
    """Not in the list is not proof."""
    moved = {
        state: verdict.state for state in State if not (verdict := next_state(state, Signal.SWEPT_CLEAN_TWICE)).ignored
    }
    assert {State.UNKNOWN: State.PARKED} == moved


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Signal.NOTIFIED_SUCCESSFUL, Signal.NOTIFIED_FAILED),
        (Signal.NOTIFIED_FAILED, Signal.NOTIFIED_SUCCESSFUL),
        (Signal.LOOKED_UP_FAILED, Signal.NOTIFIED_SUCCESSFUL),
        (Signal.NOTIFIED_FAILED, Signal.LOOKED_UP_REVERSED),
        (Signal.NOTIFIED_SUCCESSFUL, Signal.REJECTED),
    ],
)
def test_a_contradiction_is_a_conflict_whatever_came_first(first: Signal, second: Signal) -> None:
    """The first stands, and a person has to look."""
    settled = next_state(State.SENDING, first).state
    assert Transition(settled, conflict=True) == next_state(settled, second)


def test_a_state_equals_each_of_its_spellings() -> None:
    """A program compares with either enum, or with either word of the documents, in any letter case."""
    paid = (State.SUCCESSFUL, TransactionStatus.SUCCESSFUL, "SUCCESSFULL", "SUCCESSFUL", "successful")
    assert [one == other for one in paid[:2] for other in paid] == [True] * 10
    assert [other == one for one in paid[:2] for other in paid] == [True] * 10
    assert not any(one != other for one in paid[:2] for other in paid)
    assert State.FAILED == TransactionStatus.FAILED != TransactionStatus.SUCCESSFUL
    assert TransactionStatus.SUCCESSFUL.is_successful
    assert not TransactionStatus("somewhere").is_successful
    assert State.FAILED != 5

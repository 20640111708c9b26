"""The table of states: what may happen to an order, and what never does."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payments_async.journal import FINAL, News, State
from payments_async.journal.contract import EVIDENCE, RULES, Verdict, next_state

STATES, NEWS = st.sampled_from(State), st.sampled_from(News)
FINAL_NEWS = sorted(EVIDENCE - {News.SWEPT_CLEAN_TWICE})
NOTIFIED = sorted(news for news in News if news.startswith("notified"))


def test_every_pair_is_decided() -> None:
    """There is no news that the table has no answer to, and an ignored one changes nothing."""
    for state, news, sent_before, unsent in itertools.product(State, News, [False, True], [False, True]):
        verdict = next_state(state, news, sent_before=sent_before, unsent=unsent)
        assert isinstance(verdict.state, State)
        assert not (verdict.ignored and (verdict.conflict or verdict.state is not state))


def test_every_news_has_a_rule() -> None:
    """What decides can be explained."""
    assert set(News) == set(RULES)


def test_the_ways_of_an_order() -> None:
    """Every way there is for an order that was sent once; a new one is a new promise."""
    ways = {
        (state, verdict.state)
        for state in set(State) - {State.PLANNED}
        for news in News
        if (verdict := next_state(state, news)).state is not state
    }
    settled = {State.ACCEPTED, State.SUCCESSFUL, State.FAILED, State.REVERSED}
    assert ways == (
        {(State.SENDING, after) for after in settled | {State.PLANNED, State.REJECTED, State.UNKNOWN}}
        | {(State.UNKNOWN, after) for after in settled | {State.PLANNED, State.PARKED, State.REJECTED}}
        | {(State.PARKED, after) for after in settled | {State.PLANNED, State.REJECTED}}
        | {(State.ACCEPTED, after) for after in settled - {State.ACCEPTED}}
        | {(State.SUCCESSFUL, State.REVERSED)}
    )


@given(state=STATES, news=NEWS, sent_before=st.booleans(), unsent=st.booleans())
def test_only_a_proof_or_a_person_makes_an_order_planned(
    state: State, news: News, sent_before: bool, unsent: bool
) -> None:
    """Each other way back would be a second payment."""
    after = next_state(state, news, sent_before=sent_before, unsent=unsent).state
    if after is State.PLANNED and state is not State.PLANNED:
        proved = {(open_, News.NOT_SENT) for open_ in (State.SENDING, State.UNKNOWN, State.PARKED)}
        assert (state, news) in {*proved, (State.PARKED, News.WRITTEN_OFF)}


@given(state=STATES, news=NEWS, sent_before=st.booleans(), unsent=st.booleans())
def test_only_a_permit_makes_an_order_sending(state: State, news: News, sent_before: bool, unsent: bool) -> None:
    """And only from planned."""
    after = next_state(state, news, sent_before=sent_before, unsent=unsent).state
    if after is State.SENDING and state is not State.SENDING:
        assert (state, news) == (State.PLANNED, News.PERMITTED)


@given(state=st.sampled_from(sorted(FINAL)), news=NEWS, sent_before=st.booleans())
def test_a_final_state_is_never_overwritten(state: State, news: News, sent_before: bool) -> None:
    """Except that a success may be reversed; what contradicts it is a conflict."""
    after = next_state(state, news, sent_before=sent_before).state
    assert after is state or (state, after) == (State.SUCCESSFUL, State.REVERSED)


@given(news=st.lists(NEWS, max_size=30))
def test_an_order_never_leaves_the_money_behind(news: list[News]) -> None:
    """Whatever comes in whatever sequence: once evidence showed the order, only a person makes it planned again."""
    state, shown, sent_before, unsent = State.PLANNED, False, False, True
    for item in news:
        before, state = state, next_state(state, item, sent_before=sent_before, unsent=unsent).state
        written_off = item is News.WRITTEN_OFF and before is State.PARKED
        is_proved = unsent or (item is News.NOT_SENT and before is not State.PLANNED)
        unsent = is_proved and state in (State.PLANNED, State.PARKED)
        sent_before |= written_off
        shown = (shown or item in FINAL_NEWS) and not written_off
        assert not (shown and state in (State.PLANNED, State.SENDING))


@pytest.mark.parametrize("sent_before", [False, True])
@pytest.mark.parametrize("news", FINAL_NEWS)
def test_evidence_for_an_order_never_sent_stops_it_and_is_shown(news: News, sent_before: bool) -> None:
    """Somebody may have sent it: it must not be sent, and a person has to know."""
    verdict = next_state(State.PLANNED, news, sent_before=sent_before, unsent=True)
    assert verdict.state is not State.PLANNED
    assert verdict.conflict


@pytest.mark.parametrize("news", NOTIFIED)
def test_a_notification_settles_no_order_that_was_never_sent(news: News) -> None:
    """It may be forged: were the order settled by it, it would never be paid, and nobody could decide otherwise."""
    assert Verdict(State.PARKED, conflict=True) == next_state(State.PLANNED, news)
    assert Verdict(State.PARKED, conflict=True) == next_state(State.PARKED, news, unsent=True)
    assert Verdict(State.PLANNED) == next_state(State.PARKED, News.WRITTEN_OFF, unsent=True)


@pytest.mark.parametrize("news", FINAL_NEWS)
def test_an_order_that_was_written_off_is_like_unknown_on_evidence(news: News) -> None:
    """The person who wrote it off was wrong: no second payment, and nothing contradicts."""
    assert next_state(State.UNKNOWN, news) == next_state(State.PLANNED, news, sent_before=True)


def test_a_refusal_of_an_order_that_was_written_off_proves_nothing() -> None:
    """It may mean that the service has the first one."""
    assert Verdict(State.REJECTED) == next_state(State.SENDING, News.REJECTED)
    assert Verdict(State.UNKNOWN) == next_state(State.SENDING, News.REJECTED, sent_before=True)


def test_absence_parks_and_nothing_more() -> None:
    """Not in the list is no proof."""
    moved = {
        state: verdict.state for state in State if not (verdict := next_state(state, News.SWEPT_CLEAN_TWICE)).ignored
    }
    assert {State.UNKNOWN: State.PARKED} == moved


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (News.NOTIFIED_SUCCESSFUL, News.NOTIFIED_FAILED),
        (News.NOTIFIED_FAILED, News.NOTIFIED_SUCCESSFUL),
        (News.LOOKED_UP_FAILED, News.NOTIFIED_SUCCESSFUL),
        (News.NOTIFIED_FAILED, News.LOOKED_UP_REVERSED),
        (News.NOTIFIED_SUCCESSFUL, News.REJECTED),
    ],
)
def test_a_contradiction_is_a_conflict_whatever_came_first(first: News, second: News) -> None:
    """The first stands, and a person has to look."""
    settled = next_state(State.SENDING, first).state
    assert Verdict(settled, conflict=True) == next_state(settled, second)

"""What every journal promises of the pace of all: turns at one rate for everybody, and a pause that all hear of."""

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from journal.conftest import Home, Opens
from journal.factories import Clock

from payments_async.journal import Journal
from payments_async.journal._statements._leases import AHEAD, AT_ONCE, LONGEST_PAUSE, SCHEDULE, asked_for
from payments_async.journal.contract import RateSlots, SharedRate
from payments_async.outbox._brakes import MOMENT, Reserve

HOUR = 3600.0
A_BREATH = 1e-6  # seconds; of a million seconds a float knows no less


async def took(journal: Journal, count: int) -> int:
    """How many turns are given out."""
    return (await journal.reserve_turns(count)).count


async def drained(journal: Journal) -> int:
    """How many turns are given out until there are none for now."""
    total = 0
    while some := await took(journal, 1000):
        total += some
    return total


async def test_a_journal_where_nobody_asks_for_a_rate(journal: Journal) -> None:
    """Has none, and gives as many turns as are asked for, now."""
    assert SharedRate() == await journal.pace()
    assert RateSlots(count=7, pace=SharedRate()) == await journal.reserve_turns(7)


async def test_turns_follow_each_other_whoever_asks(opens: Opens) -> None:
    """At ten a second: what the second asks for begins where the first one's end, an interval after the last."""
    async with opens() as one, opens() as other:
        shared = await one.request_rate("a", 10.0, lease=30)
        assert SharedRate(rate=10.0, named=(10.0,)) == shared
        first, second = await one.reserve_turns(1), await other.reserve_turns(1)
        third = await one.reserve_turns(1)
    assert [0.0, 0.1, 0.2] == [pytest.approx(turns.starts_in, abs=A_BREATH) for turns in (first, second, third)]
    assert (1, 0.1) == (second.count, second.interval)


async def test_turns_that_are_too_far_ahead(journal: Journal, clock: Clock) -> None:
    """Are not given yet: whoever asks hears in how many seconds they may be, and has them then."""
    await journal.request_rate("a", 10.0, lease=30)
    assert 5 == await took(journal, 1000)
    none = await journal.reserve_turns(1)
    assert 0 == none.count
    assert pytest.approx(0.5 - AHEAD, abs=A_BREATH) == none.again_in
    clock.pass_(none.again_in + A_BREATH)
    some = await journal.reserve_turns(1)
    assert 1 == some.count
    assert pytest.approx(AHEAD, abs=2 * A_BREATH) == some.starts_in


@pytest.mark.parametrize("rate", [0.1, 1.0, 200.0])
async def test_whoever_dies_with_turns_in_hand(journal: Journal, clock: Clock, rate: float) -> None:
    """Takes these along, and nothing else: the next one waits for half a second, or for one turn, at most."""
    await journal.request_rate("killed", rate, lease=30)
    assert 0 < await drained(journal)
    clock.pass_(max(AT_ONCE, 1 / rate) + A_BREATH)
    assert 0 < await took(journal, 1)


async def test_turns_that_nobody_asked_for(journal: Journal, clock: Clock) -> None:
    """Are gone: after an hour there are no more of them at once than at the beginning."""
    await journal.request_rate("a", 100.0, lease=2 * HOUR)
    at_first = await drained(journal)
    clock.pass_(HOUR)
    assert at_first == await drained(journal)


@pytest.mark.parametrize("jump", [HOUR, -HOUR, -0.5, -3.0])
async def test_a_clock_that_jumps(journal: Journal, clock: Clock, jump: float) -> None:
    """Nobody waits for longer than a moment after it, and nothing that went by is made up for."""
    rate = 100.0
    await journal.request_rate("a", rate, lease=30)
    at_first = await drained(journal)
    clock.pass_(jump)
    seconds, given = 0.0, 0
    while not (some := await journal.reserve_turns(10_000)).count:
        assert 0 < some.again_in
        seconds += some.again_in + A_BREATH
        clock.pass_(some.again_in + A_BREATH)
    given = some.count + await drained(journal)
    assert seconds <= AT_ONCE + 2 * A_BREATH
    assert given <= at_first + 1


async def test_two_rates_are_asked_for(opens: Opens, clock: Clock) -> None:
    """The lower one counts, whoever came first, and both are told; when the lower one's process ends, the other's."""
    async with opens() as one, opens() as other:
        await one.request_rate("a", 50.0, lease=30)
        assert SharedRate(rate=20.0, named=(20.0, 50.0)) == await other.request_rate("b", 20.0, lease=30)
        assert SharedRate(rate=20.0, named=(20.0, 50.0)) == await one.request_rate("a", 50.0, lease=30)
        await other.withdraw_rate("b")
        assert SharedRate(rate=50.0, named=(50.0,)) == await one.request_rate("a", 50.0, lease=30)


async def test_a_rate_is_kept(opens: Opens, clock: Clock) -> None:
    """Whoever asks for none keeps to the last one that was asked for, also when nobody is at work who did."""
    async with opens() as journal:
        await journal.request_rate("a", 20.0, lease=30)
        await journal.withdraw_rate("a")
    clock.pass_(HOUR)
    async with opens() as journal:
        assert SharedRate(rate=20.0) == await journal.pace()
        assert SharedRate(rate=30.0, named=(30.0,)) == await journal.request_rate("b", 30.0, lease=30)


async def test_no_limit_is_asked_for(journal: Journal) -> None:
    """By infinity, which ends the last limit, and counts as long as nobody at work asks for a lower one."""
    await journal.request_rate("a", 20.0, lease=30)
    await journal.withdraw_rate("a")
    assert SharedRate(rate=None, named=(math.inf,)) == await journal.request_rate("b", math.inf, lease=30)
    assert 10_000 == await took(journal, 10_000)
    assert SharedRate(rate=5.0, named=(5.0, math.inf)) == await journal.request_rate("a", 5.0, lease=30)


@pytest.mark.parametrize("ahead", [0.0, 1e6])
async def test_a_process_that_asked_for_a_low_rate_is_gone(journal: Journal, clock: Clock, ahead: float) -> None:
    """Its rate counts for as long as its time lasts; not where a clock was ahead that is right now, if it is gone."""
    clock.pass_(ahead)
    await journal.request_rate("gone", 1.0, lease=30)
    clock.pass_(-ahead)
    assert (() if ahead else (1.0,)) == (await journal.pace()).named
    assert (9.0 if ahead else 1.0) == (await journal.request_rate("here", 9.0, lease=30)).rate
    clock.pass_(30)
    assert SharedRate(rate=9.0, named=(9.0,)) == await journal.request_rate("here", 9.0, lease=30)


async def test_a_journal_that_closes_has_no_say_any_more(opens: Opens) -> None:
    """Whoever asked for a rate through it is not at work."""
    async with opens() as other:
        async with opens() as journal:
            await journal.request_rate("a", 1.0, lease=HOUR)
            await journal.request_rate("b", 2.0, lease=HOUR)
        assert SharedRate(rate=9.0, named=(9.0,)) == await other.request_rate("c", 9.0, lease=30)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
async def test_what_is_no_rate(journal: Journal, rate: float) -> None:
    """Is refused, and nothing is changed."""
    with pytest.raises(ValueError, match="rate"):
        await journal.request_rate("a", rate, lease=30)
    assert SharedRate() == await journal.pace()


@pytest.mark.parametrize("rate", [None, 10.0])
async def test_a_pause_that_one_was_asked_for(opens: Opens, clock: Clock, rate: float | None) -> None:
    """All hear of it, with or without a rate; nobody has a turn before its end, and no heap of them after it."""
    async with opens() as one, opens() as other:
        if rate is not None:
            await one.request_rate("a", rate, lease=HOUR)
        await one.cool_down(20.0, why="slow down")
        cools = SharedRate(
            rate=rate,
            named=() if rate is None else (rate,),
            cools_for=20.0,
            cools_until=clock.now + 20.0,
            why="slow down",
        )
        assert [cools, cools] == [await one.pace(), await other.pace()]
        if rate is not None:
            none = await other.reserve_turns(1)
            assert (0, 20.0, 20.0) == (none.count, none.again_in, none.pace.cools_for)
        clock.pass_(20.0)
        over = attrs.evolve(cools, cools_for=0.0, cools_until=None, why=None)
        assert over == await other.pace()
        if rate is not None:
            assert AT_ONCE * rate == await drained(other)


async def test_two_pauses(journal: Journal, clock: Clock) -> None:
    """The longer one counts, whichever was asked for first."""
    for seconds, why in ((5.0, "five"), (20.0, "twenty"), (10.0, "ten")):
        await journal.cool_down(seconds, why=why)
    pace = await journal.pace()
    assert (20.0, "twenty") == (pace.cools_for, pace.why)
    clock.pass_(15.0)
    await journal.cool_down(10.0, why="more")
    assert 10.0 == (await journal.pace()).cools_for


async def test_an_absurd_pause(journal: Journal) -> None:
    """Is kept for a quarter of an hour; then somebody asks again."""
    for seconds in (1e9, math.inf):
        await journal.cool_down(seconds, why="come back in thirty years")
        assert LONGEST_PAUSE == (await journal.pace()).cools_for


@pytest.mark.parametrize(("jump", "left"), [(-1.0, 20.0), (-HOUR, 0.0), (HOUR, 0.0), (5.0, 15.0)])
async def test_a_pause_while_the_clock_jumps(journal: Journal, clock: Clock, jump: float, left: float) -> None:
    """It is never longer than it was asked for, whatever the clock says: an hour of standstill would come of that."""
    await journal.cool_down(20.0, why="slow down")
    clock.pass_(jump)
    assert left == (await journal.pace()).cools_for
    await journal.cool_down(30.0, why="slow down")
    assert 30.0 == (await journal.pace()).cools_for


async def test_looking_at_the_pace_writes_nothing(opens: Opens, home: Home) -> None:
    """It is looked at twice a second by everybody."""
    points: list[str] = []
    async with opens(crash_at=points.append) as journal:
        before = len(points)
        await journal.pace()
        assert [] == points[before:]
    assert [(0,)] == [tuple(row) for row in home.rows("SELECT count(*) FROM pace")]


class Process:
    """Somebody who sends, by the clock of all, and how it was."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.turns = Reserve(clock)
        self.sent: list[float] = []

    async def reserve(self, journal: Journal, waiting: int) -> None:
        """Ask for turns."""
        asked_at = self.clock()
        if count := self.turns.wanted(waiting):
            self.turns.add(await journal.reserve_turns(count), asked_at)

    def send(self, most: int) -> None:
        """Begin as many orders as may be begun now."""
        while most and self.turns.is_due():
            self.turns.take()
            self.sent.append(self.clock())
            most -= 1


def most_in_a_window(times: Sequence[float], seconds: float) -> int:
    """How many of these moments lie within so many seconds, wherever they are most."""
    first = most = 0
    for last, at in enumerate(times):
        while times[first] < at - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # who
        st.one_of(st.floats(0.0, 0.05), st.floats(0.0, 2.0)),  # seconds that pass first
        st.integers(0, 300),  # orders that wait, of which turns are asked for
        st.integers(0, 300),  # orders that are begun at most
    ),
    max_size=60,
)


@pytest.mark.parametrize("home", ["sqlite"], indirect=True)  # the statements are the same in a database
@given(rate=st.one_of(st.floats(0.2, 5.0), st.floats(5.0, 2000.0)), steps=STEPS, window=st.floats(0.001, 3.0))
@example(rate=100.0, steps=[(0, 0.0, 10, 0), (1, 0.0, 10, 0), (0, 0.3, 10, 300), (1, 0.0, 0, 300)], window=0.01)
@example(rate=200.0, steps=[(step % 3, 0.02, 300, 300) for step in range(90)], window=1.0)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whoever_asks_for_turns_in_whatever_sequence(
    journal: Journal, clock: Clock, rate: float, steps: list[tuple[int, float, int, int]], window: float
) -> None:
    """In no window of time are there more orders than the rate allows for it, and for the moment that a turn is good.

    Three processes on one journal, which ask, stand still, and send at once all that they may.
    """
    clock.pass_(HOUR)  # what was reserved in the last example is gone
    await journal.request_rate("a", rate, lease=30)
    processes = [Process(clock) for _ in range(3)]
    for one in processes:
        one.turns.follow(rate)
    for who, seconds, waiting, most in steps:
        clock.pass_(seconds)
        await processes[who].reserve(journal, waiting)
        processes[who].send(most)
    times = sorted(at for one in processes for at in one.sent)
    assert most_in_a_window(times, window) <= rate * (window + MOMENT + A_BREATH) + 1


def schedule(next_at: float, now: float, rate: float, count: int) -> tuple[float, int, float]:
    """Turns as the journal gives them out: when the first is, how many there are, and when the next one is."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE pace (id, next_at)")
        connection.execute("INSERT INTO pace VALUES (1, ?)", (next_at,))
        first, given_ = connection.execute(SCHEDULE, asked_for(now, rate, count)).fetchone()
    return first, given_, first + given_ / rate


@given(
    rate=st.floats(0.01, 10_000.0),
    asked=st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 5000)), min_size=1, max_size=200),
)
def test_the_turns_that_are_given_out(rate: float, asked: list[tuple[float, int]]) -> None:
    """No two are nearer to each other than an interval; none lies further ahead than it may, or behind."""
    now = next_at = 0.0
    last = -math.inf
    for seconds, count in asked:
        now += seconds
        first, given_, next_at = schedule(next_at, now, rate, count)
        if given_:
            assert last + 1 / rate <= first + A_BREATH
            assert now <= first <= now + AHEAD
            assert 1 <= given_ <= min(count, max(1, AT_ONCE * rate))
            last = first + (given_ - 1) / rate


@pytest.mark.slow(covered=True)
@given(rate=st.floats(0.5, 5000.0), seconds=st.floats(1.0, 20.0))
def test_nobody_is_starved_of_turns(rate: float, seconds: float) -> None:
    """Whoever asks whenever it is told to has all that the rate allows, but for one."""
    now = next_at = 0.0
    total = 0
    while now < seconds:
        first, given_, next_at = schedule(next_at, now, rate, 1000)
        total += given_
        if not given_:
            now = max(first - AHEAD, now) + A_BREATH
    assert math.floor(rate * seconds * 0.999) - 1 <= total

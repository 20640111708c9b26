"""What every journal promises of duties: one has each of them, whoever dies loses it, and nobody else."""

import pytest
from journal.conftest import Opens
from journal.factories import Clock

from payments_async.journal import Journal

DUTY = "settling"


async def test_one_has_a_duty(journal: Journal) -> None:
    """Who asks first has it, and keeps it by asking again; others have other duties meanwhile."""
    asked = [(DUTY, "a"), (DUTY, "b"), (DUTY, "a"), ("another", "b"), ("another", "a")]
    assert [True, False, True, True, False] == [await journal.take_duty(*one, lease=30) for one in asked]


async def test_a_duty_that_was_left(journal: Journal) -> None:
    """Free at once; who leaves what somebody else has, or nobody, takes it from nobody."""
    assert await journal.take_duty(DUTY, "a", lease=30)
    await journal.leave_duty(DUTY, "b")
    assert not await journal.take_duty(DUTY, "b", lease=30)
    for _ in range(2):
        await journal.leave_duty(DUTY, "a")
    assert await journal.take_duty(DUTY, "b", lease=30)
    await journal.leave_duty(DUTY, "a")
    assert not await journal.take_duty(DUTY, "a", lease=30)
    await journal.leave_duty("never taken", "a")


@pytest.mark.parametrize(("seconds", "free"), [(29.0, False), (30.0, True), (3600.0, True)])
async def test_a_duty_whose_time_is_over(journal: Journal, clock: Clock, seconds: float, free: bool) -> None:
    """It is the next one's who asks, and nobody's before that."""
    await journal.take_duty(DUTY, "a", lease=30)
    clock.pass_(seconds)
    assert free is await journal.take_duty(DUTY, "b", lease=30)
    assert free is not await journal.take_duty(DUTY, "a", lease=30)


async def test_a_duty_that_was_prolonged(journal: Journal, clock: Clock) -> None:
    """Its time begins anew."""
    for _ in range(3):
        assert await journal.take_duty(DUTY, "a", lease=30)
        clock.pass_(20)
    assert not await journal.take_duty(DUTY, "b", lease=30)


async def test_a_duty_that_was_taken_by_a_clock_that_was_ahead(journal: Journal, clock: Clock) -> None:
    """No clock's time is waited for that no lease can last: it is free, also for who would have it for longer."""
    clock.pass_(1e6)
    await journal.take_duty(DUTY, "a", lease=30)
    clock.pass_(-1e6)
    assert await journal.take_duty(DUTY, "b", lease=60)
    assert not await journal.take_duty(DUTY, "a", lease=30)


async def test_a_namesake_elsewhere_has_no_duty(opens: Opens) -> None:
    """Two that were given one name are two all the same; what one leaves is not the other's."""
    async with opens() as one, opens() as other:
        assert await one.take_duty(DUTY, "a", lease=3600)
        assert not await other.take_duty(DUTY, "a", lease=3600)
        await other.leave_duty(DUTY, "a")
        assert not await other.take_duty(DUTY, "b", lease=3600)


async def test_a_journal_that_closes_gives_back_its_duties(opens: Opens) -> None:
    """Whoever took them through it can do nothing for them any more."""
    async with opens() as other:
        async with opens() as journal:
            for name in ("first", "second"):
                assert await journal.take_duty(name, "a", lease=3600)
        assert [True, True] == [await other.take_duty(name, "b", lease=3600) for name in ("first", "second")]


async def test_asking_for_what_somebody_else_has_writes_nothing(opens: Opens) -> None:
    """Whoever waits for a duty may ask every second: that is a look, and no commit."""
    points: list[str] = []
    async with opens() as one, opens(crash_at=points.append) as other:
        await one.take_duty(DUTY, "a", lease=30)
        before = len(points)
        for _ in range(3):
            await other.take_duty(DUTY, "b", lease=30)
        assert [] == points[before:]

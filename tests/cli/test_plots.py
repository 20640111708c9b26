"""Curves over time: what is counted, and where it is drawn."""

from payments_async._pages.rendering import Course, plot

NOON = 1_700_000_000.0


def course(*moments: float) -> Course:
    """What happened at these moments."""
    made = Course()
    for at in moments:
        made.add(at)
    return made


def test_what_has_not_happened() -> None:
    """There is nothing to draw."""
    assert plot({"sent": Course()}, top=3) is None


def test_a_million_moments_take_no_more_room_than_some_hundred() -> None:
    """Steps grow wider, and none of what happened is lost."""
    made = Course()
    for second in range(0, 1_000_000, 10):
        made.add(NOON + second)
    points = made.points()
    assert (100_000, True) == (points[-1][1], len(points) < 500)
    assert points == sorted(points)


def test_a_curve_rises_from_the_floor_to_all_there_are() -> None:
    """It begins at the left below, and all of a batch is the top; one that ends early goes on as it is."""
    drawn = plot({"sent": course(NOON, NOON + 1, NOON + 99), "paid": course(NOON + 50)}, top=3)
    assert drawn is not None
    sent, paid = (curve.points.split() for curve in drawn.curves)
    assert (f"{drawn.left},{drawn.floor}", f"{drawn.right},{drawn.rows[-1][0]:g}") == (sent[0], sent[-1])
    assert f"{drawn.right}," == paid[-1].partition(",")[0] + ","
    assert (3, 1) == tuple(curve.last for curve in drawn.curves)


def test_words_below_stand_there_once() -> None:
    """Also where all of it took a second; a plot of many days names days."""
    assert ["22:13:20", "22:13:21"] == [words for _, words in plotted(NOON)]
    days = [words for _, words in plotted(NOON, NOON + 8 * 86_400)]
    assert ("14 Nov", "22 Nov") == (days[0], days[-1])


def plotted(*moments: float) -> tuple[tuple[float, str], ...]:
    """The words below a plot."""
    drawn = plot({"sent": course(*moments)}, top=1)
    assert drawn is not None
    return drawn.columns

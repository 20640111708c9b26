"""Curves over time as a page draws them: where each point, each line of the grid and its words stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import attrs

_WIDTH, _HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 10, 24
_DAY = 86_400.0
_STEPS = 4  # of each axis
_MOST_POINTS = 240
_Scale = Callable[[float], float]


class Course:
    """How often something had happened by when, in constant memory: moments are counted in ever wider steps."""

    def __init__(self) -> None:
        self._width = 1.0
        self._counts: dict[int, int] = {}

    def add(self, at: float) -> None:
        """It happened at this moment (Unix seconds)."""
        step = math.floor(at / self._width)
        self._counts[step] = self._counts.get(step, 0) + 1
        while len(self._counts) > _MOST_POINTS:
            self._widen()

    def points(self) -> list[tuple[float, int]]:
        """Moments, and how often it had happened by then; it begins with none."""
        steps = sorted(self._counts)
        total, found = 0, [(steps[0] * self._width, 0)] if steps else []
        for step in steps:
            if found[-1][0] < step * self._width:
                found.append((step * self._width, total))  # it did not rise meanwhile
            total += self._counts[step]
            found.append(((step + 1) * self._width, total))
        return found

    def _widen(self) -> None:
        self._width *= 2
        wider: dict[int, int] = {}
        for step, count in self._counts.items():
            wider[step // 2] = wider.get(step // 2, 0) + count
        self._counts = wider


@attrs.frozen(kw_only=True)
class Curve:
    """One line of a plot.

    Attributes:
        points: As SVG wants them.
        last: How high it ends.
    """

    name: str
    points: str
    last: int


@attrs.frozen(kw_only=True)
class Plot:
    """A drawing, in the units of its own box.

    Attributes:
        rows: Height and words of each line of the grid.
        columns: Place and words of each moment below it.
    """

    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT
    right: int = _WIDTH - _RIGHT
    floor: int = _HEIGHT - _BOTTOM
    curves: tuple[Curve, ...]
    rows: tuple[tuple[float, str], ...]
    columns: tuple[tuple[float, str], ...]


def plot(courses: Mapping[str, Course], *, top: int) -> Plot | None:
    """Draw what happened, by name; ``None`` where nothing has.

    Args:
        top: What the height of the drawing stands for, such as all orders of a batch.
    """
    points = {name: course.points() for name, course in courses.items()}
    moments = [at for line in points.values() for at, _ in line]
    if not moments:
        return None
    first, last = min(moments), max(moments)
    highest = max(top, *(count for line in points.values() for _, count in line))

    def across(at: float) -> float:
        return round(_LEFT + (at - first) / (last - first) * (_WIDTH - _LEFT - _RIGHT), 1)

    def up(count: float) -> float:
        return round(_HEIGHT - _BOTTOM - count / highest * (_HEIGHT - _TOP - _BOTTOM), 1)

    levels = sorted({highest * step // _STEPS for step in range(_STEPS + 1)})
    ticks = [first + (last - first) * step / _STEPS for step in range(_STEPS + 1)]
    return Plot(
        curves=tuple(
            Curve(name=name, points=_path(line, last, across, up), last=line[-1][1])
            for name, line in points.items()
            if line
        ),
        rows=tuple((up(level), f"{level:,}") for level in levels),
        columns=_named((across(at), _words(at, last - first)) for at in ticks),
    )


def _path(line: Sequence[tuple[float, int]], end: float, across: _Scale, up: _Scale) -> str:
    reached = [*line, (end, line[-1][1])]  # what happened no more stays as it is
    return " ".join(f"{across(at):g},{up(count):g}" for at, count in reached)


def _named(ticks: Iterable[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
    """Each moment in words, once."""
    return tuple({words: (at, words) for at, words in reversed(list(ticks))}.values())[::-1]


def _words(at: float, span: float) -> str:
    """A moment, as exactly as the span asks for."""
    when = datetime.fromtimestamp(at, UTC)
    if span > 2 * _DAY:
        return f"{when:%d %b}"
    return f"{when:%H:%M:%S}" if span < 600 else f"{when:%H:%M}"

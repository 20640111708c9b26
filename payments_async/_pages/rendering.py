"""How a page is made of its template: every value escaped, amounts and moments as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from jinja2 import Environment

_MISSING = "pages need jinja2: pip install 'payments-async[pages]'"


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """A whole page.

    Args:
        template: Its name, as in ``receipt.html``.
        values: What the template asks for; one that is missing is an error.

    Raises:
        ModuleNotFoundError: The extra ``pages`` is not installed.
    """
    return _environment().get_template(template).render(values)


def streamed(template: str, values: Mapping[str, Any]) -> Iterator[str]:
    """A page in pieces, as they come: what it shows of a long table is never in memory as a whole.

    Raises:
        ModuleNotFoundError: The extra ``pages`` is not installed.
    """
    return _environment().get_template(template).generate(values)


def style() -> str:
    """The style of every page: for screen and printer, light and dark."""
    return str(_environment().get_template("style.css").render())


def script(name: str) -> str:
    """A script of our own, as it is served: it is not a template, and nothing is put into it."""
    return files(f"{__package__}.templates").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(_MISSING, name=error.name) from error
    made = Environment(
        loader=PackageLoader("payments_async._pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    made.filters |= {"money": _money, "moment": _moment, "second": _second, "count": _count}
    return made


def _printable(value: object) -> object:
    """Words from outside: nothing in them turns the direction of writing round."""
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isprintable():
        return value
    return "".join(character if character.isprintable() else " " for character in value)


def _money(amount: Decimal, currency: str | None = None) -> str:
    return f"{amount:,f} {currency}" if currency else f"{amount:,f}"


def _count(number: int) -> str:
    return f"{number:,}"


def _moment(at: datetime | float | None) -> str:
    """Day and time to the minute, in UTC."""
    if at is None:
        return ""
    when = at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    return f"{when:%d %B %Y, %H:%M} UTC"


def _second(at: float) -> str:
    """Day and time to the second, in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


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

"""How a page is made of its template: every value escaped, amounts and moments as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

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

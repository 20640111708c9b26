"""How the service spells numbers and moments: JSON that is exact, and timestamps, both ways."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NoReturn

from ._quirks import DateShape


def read_json(text: bytes) -> object:
    """Read a JSON document; a number with a point or an exponent becomes a Decimal, digit for digit.

    Raises:
        ValueError: The text is no JSON. `NaN` and `Infinity` are none.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    except (RecursionError, ArithmeticError) as error:
        raise ValueError("this JSON is nested too deep or holds a number out of all bounds") from error


def write_json(value: object) -> str:
    """Write a JSON document; a Decimal becomes a number with exactly its digits.

    The standard encoder cannot do that: it only knows float, and a float is exact through 15 digits.
    """
    match value:
        case str() | bool() | None:
            return json.dumps(value)
        case Decimal():
            return _number(value)
        case int():
            return str(int(value))
        case dict():
            return "{" + ",".join(f"{json.dumps(str(key))}:{write_json(member)}" for key, member in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(write_json, value)) + "]"
        case _:
            raise TypeError(f"no JSON is known for {type(value).__name__}")


def write_date(instant: datetime, shape: DateShape) -> str:
    """Write an instant in one of the documented shapes, to the second."""
    match shape:
        case "us":  # Spec: "`M/D/YYYY h:mm:ss AM|PM`"
            half = "AM" if instant.hour < 12 else "PM"
            return f"{instant.month}/{instant.day}/{instant.year} {instant.hour % 12 or 12}:{instant:%M:%S} {half}"
        case "spaced":  # Spec: "Shaped `YYYY-MM-DD HH:mm:ss`"
            return f"{instant:%Y-%m-%d %H:%M:%S}"
        case "iso":  # Spec: "datetime in the other"
            return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def read_boundary(text: str, *, after_the_day: bool) -> datetime:
    """Read a date or a timestamp of a query.

    Args:
        after_the_day: Whether a date without a time means the end of that day.

    Raises:
        ValueError: It is neither.
    """
    if len(text) == len("YYYY-MM-DD"):
        day = date.fromisoformat(text)
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return midnight + timedelta(days=1) if after_the_day else midnight
    instant = datetime.fromisoformat(text)
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def _number(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("NaN and infinities are no JSON numbers")
    return str(value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")

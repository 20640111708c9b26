"""How the service spells: JSON that is exact, timestamps both ways, and how it says no."""

import enum
import json
import json.encoder
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NoReturn

from ._quirks import DateShape

_quoted = json.encoder.encode_basestring_ascii  # as ``json.dumps`` writes a text, without what it asks first


def read_json(text: bytes) -> object:
    """Read a JSON document; a number with a point or an exponent becomes a Decimal, digit for digit.

    Raises:
        ValueError: The text is not JSON. `NaN` and `Infinity` are none.
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
        case str():
            return _quoted(value)
        case bool() | None:
            return json.dumps(value)
        case Decimal():
            return _number(value)
        case int():
            return str(int(value))
        case dict():
            return "{" + ",".join(f"{_quoted(str(key))}:{write_json(member)}" for key, member in value.items()) + "}"
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
    raise ValueError(f"{constant} is not JSON number")


class Code(enum.IntEnum):
    """The `code` of a refusal. The numbers are the sandbox's own.

    # Spec: "The set of error code values and the body shape of error responses: not shown."
    """

    UNAUTHORISED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    WRONG_METHOD = 405
    TOO_MANY = 429
    FAILURE = 500
    UNREADABLE = 1001
    MISSING = 1002
    WRONG_VALUE = 1003
    UNKNOWN_ITEM = 1004
    REPEATED = 1005
    BALANCE = 1006


class Refusal(Exception):
    """The service says no, and why."""

    def __init__(self, status: int, code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}


def required_text(body: Mapping[str, object], name: str, path: str | None = None) -> str:
    """Return a string that must be there and not be blank; `path` is its name in the message."""
    text = optional_text(body, name, path)
    if not text.strip():
        raise Refusal(400, Code.MISSING, f"{path or name} is required")
    return text


def optional_text(body: Mapping[str, object], name: str, path: str | None = None) -> str:
    """Return a string, or "" where it is absent or null."""
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refusal(400, Code.WRONG_VALUE, f"{path or name} must be a string")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Refusal(400, Code.WRONG_VALUE, f"{path or name} is not well-formed text")
    return value

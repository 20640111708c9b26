"""JSON with exact numbers, both ways. Knows nothing of what the numbers mean."""

import json
from decimal import Decimal
from typing import NoReturn


def read(text: bytes) -> object:
    """Read a JSON document; a number with a point or an exponent becomes a Decimal, digit for digit.

    Raises:
        ValueError: The text is no JSON. `NaN` and `Infinity` are none.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    except (RecursionError, ArithmeticError) as error:
        raise ValueError("this JSON is nested too deep or holds a number out of all bounds") from error


def write(value: object) -> str:
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
            return "{" + ",".join(f"{json.dumps(str(key))}:{write(member)}" for key, member in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(write, value)) + "]"
        case _:
            raise TypeError(f"no JSON is known for {type(value).__name__}")


def _number(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("NaN and infinities are no JSON numbers")
    return str(value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")

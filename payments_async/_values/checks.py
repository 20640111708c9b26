"""Checks of what is handed in: each names the field, what it expects and what it got."""

from __future__ import annotations

import math
from typing import Any, TypeVar

T = TypeVar("T")


def check_instance(name: str, value: object, kind: type[T] | tuple[type[T], ...], remedy: str) -> T:
    """It is one of a class, or of several; this gives it back.

    Raises:
        TypeError: When it is not; the message shows how it is written.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected {remedy}, not {type(value).__name__}")
    return value


def check_callable(name: str, value: object, remedy: str) -> None:
    """It can be called.

    Raises:
        TypeError: When it cannot.
    """
    if not callable(value):
        raise TypeError(f"{name}: expected {remedy}, not {type(value).__name__}")


def check_flag(name: str, value: object) -> None:
    """It is true or false.

    Raises:
        TypeError: When it is anything else, such as the text ``"false"``.
    """
    check_instance(name, value, bool, "True or False")


def check_filled(name: str, value: object) -> str:
    """It is text, and not blanks alone; this gives it back.

    Raises:
        TypeError: When it is not text.
        ValueError: When there is nothing in it.
    """
    text = check_instance(name, value, str, "text")
    if not text.strip():
        raise ValueError(f"{name}: must not be empty")
    return text


def exact_text(value: str) -> str:
    """Text of a class that is derived from ``str``, such as an enum's or a template's, as text; all else as it is."""
    return value if value.__class__ is str or not isinstance(value, str) else str.__str__(value)


def check_text(name: str, value: object) -> None:
    """It is text without control characters.

    Raises:
        TypeError: When it is not text.
        ValueError: When a control character is in it.
    """
    if not check_instance(name, value, str, "text").isprintable():
        raise ValueError(f"{name}: must not contain control characters")


def check_currency(value: object) -> None:
    """It is a currency's code, in small or capital letters.

    Raises:
        TypeError: When it is not text.
        ValueError: When it is anything else.
    """
    code = check_instance("currency", value, str, "text")
    if len(code) != 3 or not code.isalpha():
        raise ValueError("currency: expected a code of three letters such as 'UGX'")


def check_whole(name: str, value: object, least: int) -> None:
    """It is a whole number that is not too small.

    Raises:
        TypeError: When it is not a whole number; a truth value is none.
        ValueError: When it is below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected a whole number, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}: must be {least} or more")


def check_patience(name: str, value: Any) -> None:
    """It is a number of seconds to wait for; below zero, as where a deadline is over, nothing is waited for.

    Raises:
        TypeError: When it is not a number; a truth value is none.
        ValueError: When it is NaN.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number (seconds), not {type(value).__name__}")
    if math.isnan(value):
        raise ValueError(f"{name}: must be a number of seconds, not NaN")


def check_number(name: str, value: Any, *, above_zero: bool = False, unit: str = "seconds") -> None:
    """It is a number, of seconds or of another unit; infinity is one.

    Raises:
        TypeError: When it is not a number; a truth value is none.
        ValueError: When it is NaN, negative, or zero although it must be above.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number ({unit}), not {type(value).__name__}")
    if math.isnan(value) or value < 0 or (above_zero and not value):
        raise ValueError(f"{name}: must be {'above 0' if above_zero else '0 or more'} {unit}")

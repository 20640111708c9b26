"""Exact decimal amounts: what may come in, what may go out. Nothing is ever rounded."""

from __future__ import annotations

import re
from decimal import Context, Decimal, InvalidOperation

MAX_DIGITS = 30  # far beyond any amount of money; keeps "1E+999999999" from being written out
_LEAST, _MOST = Decimal("1E-6"), Decimal("1E+15")  # the usual case; beyond it every digit is counted
_EXACT = Context(prec=1000)  # an amount that was received is bounded, but not to the usual 28 digits
_PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


def order_amount(value: Decimal | int | str) -> Decimal:
    """The amount of an order, exact and above zero.

    Args:
        value: A ``Decimal``, an ``int`` or a plain decimal text such as ``"1500.50"``, in units of the
            account's currency (not in cents).

    Raises:
        TypeError: For a ``float`` (it is not exact), a ``bool`` and anything else.
        ValueError: For zero, a negative amount, NaN, an infinity or more than 30 digits.
    """
    if type(value) is Decimal:
        amount = value
        if amount.is_finite() and _LEAST <= amount < _MOST and len(str(amount)) <= MAX_DIGITS:
            return amount  # the usual case, quickly
    amount = _exact(value)
    if not amount.is_finite():
        raise ValueError("amount: must be a finite number, not NaN or an infinity")
    if amount <= 0:
        raise ValueError("amount: must be above zero; the direction comes from the kind of order")
    return _bounded(amount)


def currency_key(currency: str | None) -> str:
    """The key of a currency, the same however it is written: ``"UGX"`` for ``" ugx"``; empty where none is named."""
    return (currency or "").strip().upper()


def _exact(value: object) -> Decimal:
    """The amount as it was given, if that is exact."""
    match value:
        case Decimal():
            return Decimal(value)  # one of a class of its own might write itself as "1,500"
        case bool():
            raise TypeError("amount: a bool is not an amount; pass decimal.Decimal")
        case int():
            return Decimal(value)
        case str():
            if value[:1] == "-" and _PLAIN.fullmatch(value[1:]):
                return Decimal(value)  # refused as any number below zero is
            if not _PLAIN.fullmatch(value):
                raise ValueError("amount: not a plain decimal number; write digits and one point, as in '1500.50'")
            return Decimal(value)
        case float():
            raise TypeError("amount: a float is not exact; pass decimal.Decimal('...') made from text")
        case _:
            raise TypeError(f"amount: expected decimal.Decimal, not {type(value).__name__}")


def read_amount(value: object) -> Decimal:
    """The exact amount a received JSON value stands for; negative and zero are fine, the scale is kept.

    Raises:
        ValueError: For anything that is not a finite number of a sensible size.
    """
    match value:
        case bool() | float():
            raise ValueError("not an exact amount")
        case Decimal():
            amount = value
        case int():
            amount = Decimal(value)
        case str() if _NUMBER.fullmatch(value.strip()):  # Decimal itself would take "1_000" too
            try:
                amount = Decimal(value.strip())
            except InvalidOperation:
                raise ValueError("not a number of a sensible size") from None
        case _:
            raise ValueError("not a number")
    if not amount.is_finite():
        raise ValueError("not a finite number")
    return _bounded(amount)


def amount_text(amount: Decimal) -> str:
    """The amount as a JSON number without an exponent, digit for digit and with its scale.

    >>> amount_text(Decimal("150000.00")), amount_text(Decimal("1E+3"))
    ('150000.00', '1000')
    """
    text = str(amount)
    return format(amount, "f") if "E" in text else text


def magnitude_text(amount: Decimal | None) -> str:
    """Equal texts for equal magnitudes; empty for no amount. Payouts are negative in records, and 500 is 500.00.

    >>> magnitude_text(Decimal("-500.00")), magnitude_text(Decimal("5E+2")), magnitude_text(None)
    ('500', '500', '')
    """
    if amount is None:
        return ""
    text = str(amount)
    if "E" in text:
        return format(_EXACT.normalize(_EXACT.abs(amount)), "f")
    text = text.lstrip("-")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bounded(amount: Decimal) -> Decimal:
    """The amount, if it has no more digits than any amount of money."""
    text = str(amount)
    if len(text) <= MAX_DIGITS and "E" not in text:
        return amount  # the usual case, quickly
    _sign, digits, exponent = amount.as_tuple()
    if not isinstance(exponent, int) or max(len(digits) + exponent, 1) + max(-exponent, 0) > MAX_DIGITS:
        raise ValueError(f"amount: more than {MAX_DIGITS} digits")
    return amount

"""Request ids that are the same for the same business key."""

from __future__ import annotations

import hashlib
import unicodedata
import uuid
from datetime import date, datetime
from decimal import Decimal

_LONGEST_KEY = 512  # characters


def request_id_for(*business_key: str | int | Decimal | date) -> str:
    """A request id that is the same for the same business key, on any machine and in any year.

    Args:
        business_key: What makes the payment that one payment, such as ``("payroll", "2026-11", employee_number)``.

    Raises:
        TypeError: For a float, ``None`` or another type whose text is not stable.
        ValueError: For an empty key or an empty part.

    >>> request_id_for("payroll", "2026-11", 17) == request_id_for("payroll", "2026-11", 17)
    True

    >>> request_id_for("refund", 17) == request_id_for("refund", 17)
    True
    """
    if not business_key:
        raise ValueError("business_key: name at least one part")
    digest = hashlib.sha256(b"".join(_key_part(part) for part in business_key)).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))


def plain_id(request_id: str) -> str:
    """The key of a request id: the same for ids that differ in letters alone (small, capital, wide) or in blanks.

    A service may take such ids for one, and a person writes one payment both ways. So they are one id everywhere: in a
    file, in a session, in a journal and in what this machine remembers. Each of them compares this key and no other.

    >>> plain_id("PAY-1") == plain_id("pay-1") == plain_id("\uff30\uff21\uff39-1")
    True
    """
    if request_id.isascii():
        return request_id.strip().lower()
    key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", request_id).casefold()).strip()
    # a few characters stand for many letters each, and no index takes texts of every length
    return key if len(key) <= _LONGEST_KEY else hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _key_part(part: object) -> bytes:
    match part:
        case bool():
            raise TypeError("business_key: a bool is not a business key")
        case str():
            kind, text = "s", unicodedata.normalize("NFC", part).strip()
        case int():
            kind, text = "n", str(part)
        case Decimal() if part.is_finite():
            kind, text = "n", _number_text(part)
        case datetime():
            raise TypeError("business_key: a time of day changes from run to run; use a date or a text")
        case date():
            kind, text = "d", part.isoformat()
        case _:
            raise TypeError(f"business_key: {type(part).__name__} has no stable text; pass str, int, Decimal or date")
    if not text:
        raise ValueError("business_key: no part may be empty")
    data = text.encode()
    return f"{kind}{len(data)}:".encode() + data


def _number_text(number: Decimal) -> str:
    """The same for equal numbers; ``normalize()`` would round to the precision of the moment."""
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text

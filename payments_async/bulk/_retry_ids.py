"""The request ids of orders that are paid again after they surely were not: stable, and they name the one before."""

from __future__ import annotations

import re

_AGAIN = re.compile(r"(?P<first>.+)-R(?P<time>[2-9]|[1-9][0-9]{1,3})", re.DOTALL)


def retried_id(request_id: str) -> str:
    """The id under which an order is tried again; always the same, so that nobody pays it twice by trying twice.

    >>> retried_id("PAY-17"), retried_id("PAY-17-R2")
    ('PAY-17-R2', 'PAY-17-R3')
    """
    found = _AGAIN.fullmatch(request_id)
    return f"{found['first']}-R{int(found['time']) + 1}" if found else f"{request_id}-R2"


def earlier_id(request_id: str) -> str | None:
    """The id of the order that this one tries again, if it is named so.

    >>> earlier_id("PAY-17-R3"), earlier_id("PAY-17-R2"), earlier_id("PAY-17")
    ('PAY-17-R2', 'PAY-17', None)
    """
    found = _AGAIN.fullmatch(request_id)
    if found is None:
        return None
    return found["first"] if found["time"] == "2" else f"{found['first']}-R{int(found['time']) - 1}"

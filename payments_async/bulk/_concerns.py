"""What a plan has to say: of one order, of many orders alike, or of the batch. Decides nothing and reads nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import attrs

from payments_async._masking import redact
from payments_async.bulk._problems import Problem, harmless

__all__ = ["Concern", "Concerns", "Fault", "Marks"]

_KEPT = 1000  # different ones; more are counted


class Fault(NamedTuple):
    """Something about one order.

    Attributes:
        field: Of the order.
        value: What stands there, fit to be shown.
        remedy: What is wrong and what to do about it.
        blocks: Whether it keeps the order from being sent.
        concerns: Whether somebody has to look at it before, where it does not block; a warning otherwise.
    """

    field: str
    value: str
    remedy: str
    blocks: bool = True
    concerns: bool = False


@attrs.frozen(kw_only=True)
class Concern:
    """One thing a person has to know before a batch is sent.

    Attributes:
        field: Of the order or the file; ``balance`` or ``batch`` for what concerns all of it.
        value: What stands there; masked when it is personal, and written so that no spreadsheet makes a formula of it.
        remedy: What is wrong and what to do about it.
        request_id: The first order it concerns, where it concerns orders.
        row: Row of the file, for what the file's reader refused.
        orders: How many orders it concerns.
    """

    field: str
    value: str
    remedy: str
    request_id: str | None = None
    row: int | None = None
    orders: int = 0

    def __str__(self) -> str:
        where = "the batch"
        if self.row is not None:
            where = f"row {self.row}"
        elif self.request_id is not None:
            more = f" and {self.orders - 1:,} more" if self.orders > 1 else ""
            where = f"{self.request_id}{more}"
        value = f" {self.value!r}" if self.value else ""
        return f"{where}, {self.field or 'whole row'}{value}: {self.remedy}"


class Concerns:
    """Concerns as they come; those that are alike become one.

    Attributes:
        count: All of them, orders counted one by one.
    """

    def __init__(self) -> None:
        self.count = 0
        self._orders: dict[Fault, tuple[str, int]] = {}
        self._others: list[Concern] = []

    def add(self, request_id: str, fault: Fault) -> None:
        """Something about one order."""
        self.count += 1
        first, orders = self._orders.get(fault, (request_id, 0))
        if orders or len(self._orders) < _KEPT:
            self._orders[fault] = first, orders + 1

    def add_batch(self, field: str, value: str, remedy: str) -> None:
        """Something about the batch as a whole."""
        self.count += 1
        self._others.append(Concern(field=field, value=value, remedy=remedy))

    def add_file(self, problems: Iterable[Problem]) -> None:
        """What the reader of a file refused."""
        for one in problems:
            self.count += 1
            if len(self._others) < _KEPT:
                self._others.append(Concern(field=one.column, value=one.value, remedy=one.remedy, row=one.row))

    def told(self) -> tuple[Concern, ...]:
        """All of them, or the first thousand: of the batch, then of rows, then of orders."""
        about_orders = (
            Concern(
                field=fault.field,
                value=harmless(redact(fault.value)),
                remedy=redact(fault.remedy),
                request_id=request_id,
                orders=orders,
            )
            for fault, (request_id, orders) in self._orders.items()
        )
        return (*sorted(self._others, key=lambda one: one.row or 0), *about_orders)


class Marks:
    """A set of numbers from 0, a bit for each."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self.count = 0

    def add(self, number: int) -> None:
        """Mark a number that was not marked."""
        byte = number >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << (number & 7)
        self.count += 1

    def __contains__(self, number: int) -> bool:
        byte = number >> 3
        return byte < len(self._bits) and bool(self._bits[byte] >> (number & 7) & 1)

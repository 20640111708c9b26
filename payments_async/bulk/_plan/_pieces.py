"""Orders a piece at a time, so that a long walk through them stops nobody else. Looks into none of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import islice

import attrs

from payments_async._orders import PayoutOrder
from payments_async.bulk._concerns import Marks
from payments_async.bulk._file._batch import Orders

__all__ = ["Planned", "in_pieces"]

_SIZE = 500


@attrs.frozen(eq=False)
class Planned(Iterable[PayoutOrder]):
    """The orders of a plan, walked through anew each time; what was left out stays out."""

    _orders: Iterable[PayoutOrder]
    _left_out: Marks

    def __iter__(self) -> Iterator[PayoutOrder]:
        return (order for number, order in enumerate(self._orders) if number not in self._left_out)


async def in_pieces(orders: Iterable[PayoutOrder]) -> AsyncGenerator[list[PayoutOrder], None]:
    """Lists of up to 500 orders. A file is read in a thread; anything else may belong to this one, so it stays."""
    iterator = iter(orders)
    from_file = isinstance(orders, Orders)
    while piece := (await asyncio.to_thread(_take, iterator) if from_file else _take(iterator)):
        yield piece
        await asyncio.sleep(0)


def _take(iterator: Iterator[PayoutOrder]) -> list[PayoutOrder]:
    return list(islice(iterator, _SIZE))

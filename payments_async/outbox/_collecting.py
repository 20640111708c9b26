"""Takes orders out of the tray, where applications have put them within transactions of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from payments_async.journal import Journal
from payments_async.journal._faults import JournalClosed, JournalError, LoadBusy
from payments_async.journal._records import WATCHED, Placed, Staged
from payments_async.outbox._standing import OutboxWorker
from payments_async.outbox._worker_pool import Handed

_log = logging.getLogger("payments_async")
_AT_ONCE = 200  # orders taken in one commit
_OFTEN = 0.02  # seconds between two looks for a while after something was taken
_LOOK = 1.0  # seconds after which the tray is looked into, whatever was heard
_AGAIN_MAX = 30.0  # ... at most, while the journal fails

_Workers = dict[int, "asyncio.Future[Handed | None]"]


class Collector:
    """Takes what lies in the tray of an outbox, and has a worker that waits send it at once.

    Args:
        name: Of the outbox.
        owner: Who works on it.
        lease: Seconds.
        crew: The crew that has room for more, if there is one now; otherwise anybody may claim what is taken.
        start: Runs something to its end, though nobody waits for it any more: what was permitted has to be sent.
    """

    def __init__(
        self,
        journal: Journal,
        name: str,
        *,
        owner: str,
        lease: float,
        pool: Callable[[], OutboxWorker | None],
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._journal = journal
        self._name = name
        self._owner = owner
        self._lease = lease
        self._worker_pool = pool
        self._start = start
        self._watched = 0.0  # until when others rely on it that we look

    async def run(self) -> None:
        """Take whatever comes, until this is cancelled or the journal closed."""
        delay, is_first, seen = _LOOK, True, 0
        now = asyncio.get_running_loop().time
        while True:
            try:
                seen = await self._journal.laid_since(seen, timeout=_OFTEN if now() < self._watched else _LOOK)
                if is_first:  # what could not be taken before may be by now, or by this version
                    await self._collect(stuck=True)
                    is_first = False
                await self._collect(stuck=False)
                delay = _LOOK
            except JournalClosed:
                return
            except JournalError as error:
                facts = {"outbox": self._name}
                _log.error("the outbox %s cannot take what was put: %s", self._name, error.message, extra=facts)
                await asyncio.sleep(delay)
                delay = min(_AGAIN_MAX, 2 * delay)

    async def _collect(self, *, stuck: bool) -> None:
        """Take all there is."""
        last = 0
        while some := await self._journal.laid(self._name, after=last, limit=_AT_ONCE, stuck=stuck):
            await asyncio.shield(self._start(self._take(some)))
            last = some[-1].id

    async def _take(self, some: Sequence[Staged]) -> None:
        """Take these, each of them permitted where a worker waits for it."""
        pool = self._worker_pool()
        numbers = [one.id for one in some]
        if pool is None:
            self._tell(some, await self._journal.take(self._name, numbers))
            return
        asked, workers = pool.executor.clock(), _reserved(pool, some)
        amounts = {one.id: one.amount for one in some}
        try:
            taken = await self._journal.take(
                self._name,
                numbers,
                owner=self._owner,
                chunk=pool.leases.own_chunk,
                lease=self._lease,
                permits=workers.keys(),
            )
        except BaseException as error:
            for number, worker in workers.items():
                pool.is_not_put(worker, amounts[number], error)
            raise
        for number, amount in amounts.items():
            placed, reserved = taken.get(number), workers.get(number)
            if isinstance(placed, Placed):
                if (rest := pool.place(placed, asked, reserved, amount)[1]) is not None:
                    await rest
            elif reserved is not None:
                pool.let_go(reserved, amount)
        self._tell(some, taken)

    def _tell(self, some: Sequence[Staged], taken: Mapping[int, Any]) -> None:
        """Look often for a while where something was taken, and say what could not be."""
        if any(isinstance(one, Placed) for one in taken.values()):
            self._watched = asyncio.get_running_loop().time() + WATCHED
        for one in some:
            error = taken.get(one.id)
            if isinstance(error, LoadBusy):
                _log.info(
                    "the outbox %s: an order that was put waits for its batch to be loaded",
                    self._name,
                    extra={"outbox": self._name},
                )
            elif isinstance(error, Exception):
                why = error.message if isinstance(error, JournalError) else type(error).__name__
                facts = {"outbox": self._name, "request_id": one.request_id, "why": why}
                _log.error("an order that was put could not be taken, and stays: %s", why, extra=facts)


def _reserved(pool: OutboxWorker, some: Sequence[Staged]) -> _Workers:
    """Workers that wait, for the first orders that are due."""
    workers: _Workers = {}
    for one in some:
        if one.not_before <= pool.now():
            worker = pool.reserve(one.amount)
            if worker is None:
                break
            workers[one.id] = worker
    return workers

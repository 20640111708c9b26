"""Between the receiver and its inbox: what came and what was handled, a batch at a time. Runs no handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from payments_async.ipn._answers import Answer
from payments_async.ipn._router import words
from payments_async.ipn._tasks import Tasks
from payments_async.journal._inbox import Arrival, Inbox, Receipt

__all__ = ["Storing"]

_log = logging.getLogger("payments_async.ipn")
_QUIET = 3  # turns of the loop: what has reached a socket needs one to be parsed, one for its task and one to get here
_MOST = 12  # turns of the loop that a batch waits for more
Stored = Callable[[Arrival, Receipt | Exception], Answer | None]


class Storing:
    """Writes one batch after the other; while one is on its way to the disk, the next gathers."""

    def __init__(self, inbox: Inbox, *, owner: Callable[[], str], tasks: Tasks) -> None:
        self._inbox = inbox
        self._owner = owner
        self._tasks = tasks
        self._stored: Stored = _untold
        self._arrivals: list[Arrival] = []
        self._waiting: list[asyncio.Future[Answer | None]] = []
        self._done: dict[int, list[str]] = {}
        self._handled: list[int] = []
        self._is_writing = False

    def tell(self, stored: Stored) -> None:
        """Name who is told what became of each arrival, though nobody waits for it any more, and gives its answer."""
        self._stored = stored

    def arrive(self, arrival: Arrival) -> asyncio.Future[Answer | None]:
        """Store an arrival."""
        future: asyncio.Future[Answer | None] = asyncio.Future()
        self._arrivals.append(arrival)
        self._waiting.append(future)
        if not self._is_writing:
            self._write_soon()
        return future

    def note_done(self, event_id: int, handler: str) -> None:
        """One handler of several has finished with an event."""
        self._done.setdefault(event_id, []).append(handler)
        self._write_soon()

    def note_handled(self, event_id: int) -> None:
        """All handlers have finished with an event. Until that is on disk its lease keeps others away from it."""
        if self._done:
            self._done.pop(event_id, None)
        self._handled.append(event_id)
        if not self._is_writing:
            self._write_soon()

    def _write_soon(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._tasks.start(self._write())

    async def _write(self) -> None:
        try:
            while self._arrivals or self._handled or self._done:
                await self._gather()
                await self._write_batch()
        finally:
            self._is_writing = False

    async def _gather(self) -> None:
        """Wait as long as more comes, which costs no time: whoever would be idle would do it later.

        The writing thread gets hold of the interpreter when the loop has nothing left to do. A small batch that was
        handed over before the rest has arrived would keep the rest waiting for a commit of its own.
        """
        count = quiet = 0
        for _ in range(_MOST):
            await asyncio.sleep(0)
            quiet = quiet + 1 if count == len(self._arrivals) else 0
            count = len(self._arrivals)
            if quiet == _QUIET:
                return

    async def _write_batch(self) -> None:
        arrivals, self._arrivals = self._arrivals, []
        waiting, self._waiting = self._waiting, []
        handled, self._handled = self._handled, []
        done, self._done = self._done, {}
        try:
            receipts = await self._store(arrivals, handled, done)
            for arrival, future, receipt in zip(arrivals, waiting, receipts, strict=True):
                answer = self._stored(arrival, receipt)
                if not future.done():  # its caller may have hung up
                    future.set_result(answer)
        finally:
            for future in waiting:
                future.cancel()  # nothing happens to those that have a result

    async def _store(
        self, arrivals: list[Arrival], handled: list[int], done: dict[int, list[str]]
    ) -> Sequence[Receipt | Exception]:
        try:
            if done:
                notes = [self._inbox.note_done(event_id, name) for event_id, names in done.items() for name in names]
                await asyncio.gather(*notes)
            if arrivals or handled:
                return await self._inbox.receive_all(arrivals, owner=self._owner(), handled=handled)
        except Exception as error:  # noqa: BLE001 - nothing is stored, whatever the reason, so none is answered 200
            if handled or done:  # their leases run out, and they are handled again
                facts = {"event_ids": [*handled, *done], "error": words(error)}
                _log.error("what became of events could not be stored", extra=facts)
            return [error] * len(arrivals)
        return ()


def _untold(arrival: Arrival, receipt: Receipt | Exception) -> Answer | None:
    raise AssertionError("arrivals come after tell()")

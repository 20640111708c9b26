"""What of a receiver works on an inbox, put together: its start, its end, its health. Judges no notification."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable

from payments_async._events import TransactionEvent
from payments_async.ipn._answers import Answer
from payments_async.ipn._confirm import Confirming
from payments_async.ipn._dispatch import Dispatcher
from payments_async.ipn._handling import Handling
from payments_async.ipn._kept import Kept
from payments_async.ipn._router import Router, words
from payments_async.ipn._storing import Storing
from payments_async.ipn._tasks import Tasks
from payments_async.journal._inbox import Inbox

__all__ = ["Keeping"]

_log = logging.getLogger("payments_async.ipn")


class Keeping:
    """Stores what comes, then has it handled.

    Args:
        owner: Name in the inbox that outlives the process; without one it is random.
        believed: Told of every event that is new, confirmed where that is asked for, and contradicts nothing.
    """

    def __init__(
        self,
        inbox: Inbox,
        router: Router,
        handling: Handling,
        *,
        owner: str | None,
        confirm: Confirming | None,
        believed: Callable[[TransactionEvent], None],
        tasks: Tasks,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._tasks = tasks
        self._clock = clock
        self._is_named = owner is not None
        self._watching: asyncio.Task[None] | None = None
        owner = owner or f"receiver-{secrets.token_hex(8)}"
        storing = Storing(inbox, owner=owner, tasks=tasks)
        self._dispatcher = Dispatcher(
            inbox, storing, router, handling, owner=owner, confirm=confirm, believed=believed, tasks=tasks,
            clock=clock, sleep=sleep, random=random,
        )  # fmt: skip
        self._kept = Kept(inbox, storing, self._dispatcher, router, confirm=confirm, believed=believed, clock=clock)

    def start(self) -> None:
        """Begin to handle what the inbox holds, unless that has begun."""
        if self._watching is None:
            self._watching = self._tasks.start(self._dispatcher.watch(again=self._is_named))

    def take(
        self, event: TransactionEvent, body: bytes, query: str, sender: str, is_usual: bool
    ) -> asyncio.Future[Answer | None]:
        """Store a delivery: the answer, if it is not 200."""
        if self._watching is None:
            self.start()
        return self._kept.take(event, body, query, sender, is_usual)

    async def stop(self) -> None:
        """Begin nothing more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        await self._dispatcher.close()

    async def give_back(self) -> None:
        """Leave to others what ``stop`` left over; from here on it may start again."""
        if self._watching is not None:
            await self._dispatcher.give_back()
            self._watching = None
        self._dispatcher.open()

    async def final_event(self, request_id: str) -> TransactionEvent | None:
        """The first final event of an order in the inbox."""
        return await self._kept.final_event(request_id)

    async def replay(self, event_id: int | None) -> int:
        """Handle one dead letter again, or all of them, and tell how many."""
        count = await self._inbox.revive(event_id)
        if self._watching is not None:
            await self._dispatcher.claim()
        return count

    async def health(self) -> Answer:
        """How much is waiting: 503 when the inbox cannot be read."""
        try:
            backlog = await self._inbox.backlog()
        except Exception as error:  # noqa: BLE001 - whatever the reason, that is what health is asked for
            _log.error("the inbox cannot be read", extra={"error": words(error)})
            return Answer(503, b'{"status":"the inbox cannot be read"}')
        oldest = None if backlog.oldest is None else round(max(0.0, self._clock() - backlog.oldest), 3)
        facts = {"status": "ok", "pending": backlog.pending, "dead": backlog.dead, "oldest_seconds": oldest}
        return Answer(200, json.dumps(facts).encode())

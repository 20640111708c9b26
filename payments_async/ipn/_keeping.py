"""What of a receiver works on an inbox, put together: its start, its end, its health. Judges no notification."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence

from payments_async._events import TransactionEvent
from payments_async.ipn._answers import Answer
from payments_async.ipn._confirm import Confirming
from payments_async.ipn._dispatch import Dispatcher
from payments_async.ipn._handling import Handling
from payments_async.ipn._kept import Kept
from payments_async.ipn._router import Router, words
from payments_async.ipn._senders import Sender
from payments_async.ipn._storing import Storing
from payments_async.ipn._tasks import Tasks
from payments_async.journal._inbox import Inbox

__all__ = ["Keeping"]

_log = logging.getLogger("payments_async.ipn")


class Keeping:
    """Stores what comes, then has it handled.

    Args:
        owner: Name in the inbox that outlives the process; without one it is random.
        finish: Ends the receiver, should the inbox close before it.
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
        finish: Callable[[], Awaitable[None]],
        tasks: Tasks,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._tasks = tasks
        self._clock = clock
        self._is_named = owner is not None
        self._finish = finish
        self._is_over = False
        self._watching: asyncio.Task[None] | None = None
        self._unhook: Callable[[], None] = lambda: None
        named = _Owner(owner)
        storing = Storing(inbox, owner=named, tasks=tasks)
        self._dispatcher = Dispatcher(
            inbox, storing, router, handling, owner=named, confirm=confirm, believed=believed, tasks=tasks,
            clock=clock, sleep=sleep, random=random,
        )  # fmt: skip
        self._kept = Kept(inbox, storing, self._dispatcher, router, confirm=confirm, believed=believed, clock=clock)

    def start(self) -> None:
        """Begin to handle what the inbox holds, unless that has begun."""
        self._is_over = False
        if self._watching is None:
            self._unhook = self._inbox.before_close(self._before_close)
            self._watching = self._tasks.start(self._dispatcher.watch(again=self._is_named))

    async def _before_close(self) -> None:
        """The inbox closes first: what is under way ends, and what comes now is not stored."""
        self._is_over = True
        await self._finish()

    def take(
        self, event: TransactionEvent, body: bytes, query: str, sender: Sender, is_usual: bool
    ) -> asyncio.Future[Answer | None]:
        """Store a delivery: the answer, if it is not 200."""
        if self._watching is None and not self._is_over:
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
            self._unhook()
            self._watching = None
        self._dispatcher.open()

    async def final_events(self, request_id: str, transaction_id: str | None = None) -> Sequence[TransactionEvent]:
        """The final events in the inbox of an order, or of a transaction of it."""
        return await self._kept.final_events(request_id, transaction_id)

    async def replay(self, event_id: int | None) -> int:
        """Handle one dead letter again, or all of them, and tell how many."""
        count = await self._inbox.revive(event_id)
        if self._watching is not None:
            await self._dispatcher.claim()
        return count

    async def health(self) -> Answer:
        """How much is waiting: 503 when the inbox cannot be read, or did not store a delivery and still cannot."""
        if not await self._kept.stores():
            return Answer(503, b'{"status":"notifications cannot be stored"}')
        try:
            backlog = await self._inbox.backlog()
        except Exception as error:  # noqa: BLE001 - whatever the reason, that is what health is asked for
            _log.error("the inbox cannot be read", extra={"error": words(error)})
            return Answer(503, b'{"status":"the inbox cannot be read"}')
        oldest = None if backlog.oldest is None else round(max(0.0, self._clock() - backlog.oldest), 3)
        facts = {"status": "ok", "pending": backlog.pending, "dead": backlog.dead, "oldest_seconds": oldest}
        facts |= {"unconfirmed": backlog.unconfirmed, "reported": backlog.reported}
        return Answer(200, json.dumps(facts).encode())


class _Owner:
    """A receiver's name in an inbox; a random one is drawn when work begins, and anew in a forked process."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._drawn = ""
        self._process = 0

    def __call__(self) -> str:
        if self._name is not None:
            return self._name
        if self._process != os.getpid():
            self._process, self._drawn = os.getpid(), f"receiver-{secrets.token_hex(8)}"
        return self._drawn

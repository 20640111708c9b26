"""From the inbox to the handlers: retries, dead letters, and what was left behind. Answers nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import attrs

from payments_async._errors import AuthenticationFailed, Rejected
from payments_async._events import TransactionConflict, TransactionEvent, numbered
from payments_async.ipn._confirm import Confirming, difference
from payments_async.ipn._handling import Handling
from payments_async.ipn._router import Failure, Router, words
from payments_async.ipn._storing import Storing
from payments_async.ipn._tasks import Tasks, Workers
from payments_async.journal._inbox import Doubt, Inbox

__all__ = ["Dispatcher", "Job", "conflict_of"]

_log = logging.getLogger("payments_async.ipn")
_PER_SLOT = 4  # events waiting in memory for each handler that may run; the rest wait in the inbox


class Job(NamedTuple):
    """One event to handle.

    Attributes:
        until: Unix seconds when its lease ends.
        tries: Rounds before this one.
        done: Names of the handlers that have finished with it.
        doubt: Why it is no evidence, if it is none.
    """

    event_id: int
    event: TransactionEvent
    until: float
    conflict: str | None = None
    tries: int = 0
    done: frozenset[str] = frozenset()
    doubt: Doubt | None = None


class Dispatcher:
    """Runs the handlers of stored events.

    Args:
        owner: Gives the receiver's name in the inbox.
        believed: Told of every event that is confirmed and contradicts nothing.
    """

    def __init__(
        self,
        inbox: Inbox,
        storing: Storing,
        router: Router,
        handling: Handling,
        *,
        owner: Callable[[], str],
        confirm: Confirming | None,
        believed: Callable[[TransactionEvent], None],
        tasks: Tasks,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._storing = storing
        self._router = router
        self._handling = handling
        self._owner = owner
        self._confirm = confirm
        self._believed = believed
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._workers = Workers(tasks, self._work, most=handling.concurrency)
        self._mine: set[int] = set()
        self._done: dict[int, list[str]] = {}  # of events with several handlers, those that have finished
        self._room = handling.concurrency * _PER_SLOT
        self._claiming = asyncio.Lock()
        self._open = True

    @property
    def lease(self) -> float:
        """Seconds to lease a new event for: none when there is no room for it here, so that anybody may claim it."""
        return self._handling.lease if self._open and len(self._mine) < self._room else 0.0

    def take(self, job: Job) -> None:
        """Handle an event that is leased to this receiver."""
        if job.event_id in self._mine:
            return
        self._mine.add(job.event_id)
        self._workers.put(job)

    async def watch(self, *, again: bool) -> None:
        """Claim what is due, again and again.

        Args:
            again: Whether a process of this name may have died: what it held is given back first.
        """
        if again:
            await self.give_back()
        while True:
            await self.claim()
            await self._sleep(self._handling.poll)

    async def claim(self) -> None:
        """Take over due events that nobody holds: retries, and those of a receiver that died."""
        async with self._claiming:
            while self._open and (room := self._room - len(self._mine)) > 0:
                until = self._clock() + self._handling.lease
                try:
                    claimed = await self._inbox.claim(self._owner(), lease=self._handling.lease, limit=room)
                except Exception as error:  # noqa: BLE001 - an inbox that is away for a while must not end the watch
                    _log.error("the inbox cannot be read", extra={"error": words(error)})
                    return
                for stored in claimed:
                    done = frozenset(stored.done)
                    self.take(
                        Job(stored.event_id, stored.event, until, stored.conflict, stored.tries, done, stored.doubt)
                    )
                if len(claimed) < room:
                    return

    def open(self) -> None:
        """Take jobs again, after ``close``."""
        self._open = True

    async def close(self) -> None:
        """Take no more and drop what has not begun: it stays in the inbox, for the next receiver."""
        self._open = False
        self._mine.difference_update(job.event_id for job in self._workers.jobs)
        self._workers.jobs.clear()
        async with self._claiming:
            pass

    async def give_back(self) -> None:
        """Give back the leases of what was dropped."""
        try:
            await self._inbox.release(self._owner())
        except Exception as error:  # noqa: BLE001 - the leases run out by themselves
            _log.warning("leases could not be given back", extra={"error": words(error)})

    async def _work(self, job: Job) -> None:
        event_id = job.event_id
        try:
            if self._clock() >= job.until - self._handling.timeout:
                return  # another receiver may have it
            believed = job if job.doubt is None else await self._confirmed(job)
            if believed is not None:
                job = believed
                event = numbered(job.event, event_id)
                if job.conflict is not None:
                    event = conflict_of(event, job.conflict)
                failures = await self._router.run(event, skip=job.done, done=self._note_done)
                if failures:
                    await self._failed(job, failures)
                else:
                    self._storing.note_handled(event_id)
        except Exception as error:  # noqa: BLE001 - not recorded, so the lease runs out and it is handled again
            facts = {"event_id": event_id, "error": words(error)}
            _log.error("what became of an event could not be stored", extra=facts)
        finally:
            self._mine.discard(event_id)
            if self._done:
                self._done.pop(event_id, None)

    async def _failed(self, job: Job, failures: Sequence[Failure]) -> None:
        for handler in self._done.get(job.event_id, ()):  # before anybody can have its next round
            await self._inbox.note_done(job.event_id, handler)
        await self._again(job, "; ".join(f"{failure.name}: {failure.why}" for failure in failures))

    def _note_done(self, event: TransactionEvent, handler: str) -> None:
        event_id = event.event_id
        assert event_id is not None
        self._done.setdefault(event_id, []).append(handler)
        self._storing.note_done(event_id, handler)

    async def _confirmed(self, job: Job) -> Job | None:
        """The same as evidence, once the service's record bears it out; ``None`` when it does not, or not yet."""
        if self._confirm is None:
            await self._again(job, "not confirmed: this receiver has no session to ask", counts=False)
            return None
        try:
            async with asyncio.timeout(self._handling.timeout):
                differs = await difference(self._confirm, job.event)
        except Exception as error:  # noqa: BLE001 - whatever the reason, there is no record to believe yet
            # a service that cannot be asked says nothing; one that has no such transaction is asked for some hours
            is_refused = isinstance(error, Rejected) and not isinstance(error, AuthenticationFailed)
            await self._again(job, f"not confirmed: {words(error)}", counts=is_refused)
            return None
        if differs is not None:
            facts = {"event_id": job.event_id, "transaction_id": job.event.transaction_id, "difference": differs}
            _log.error("a notification is disputed", extra=facts)
            await self._inbox.finish(job.event_id, "disputed", error=differs)
            return None
        conflict = await self._inbox.confirm(job.event_id)
        if conflict is None:
            self._believed(numbered(job.event, job.event_id))
        return job._replace(conflict=conflict, tries=0, doubt=None)

    async def _again(self, job: Job, error: str, *, counts: bool = True) -> None:
        if counts and job.tries + 1 >= self._handling.attempts:
            facts = {"event_id": job.event_id, "transaction_id": job.event.transaction_id, "error": error}
            _log.error("an event is a dead letter", extra=facts)
            await self._inbox.finish(job.event_id, "dead", error=error)
        else:
            delay = self._handling.wait(job.tries, self._random())
            await self._inbox.retry_later(job.event_id, delay=delay, error=error)


def conflict_of(event: TransactionEvent, conflict: str) -> TransactionConflict:
    """The event as one that contradicts an earlier final one."""
    fields = {field.name: getattr(event, field.name) for field in attrs.fields(type(event))}
    return TransactionConflict(**fields | {"conflict": conflict})

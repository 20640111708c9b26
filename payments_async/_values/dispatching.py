"""Durable handlers: what waits for them is leased, handled, and its end written down; what failed comes again later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from payments_async._values.handlers import LEAVES, HandlerPolicy, Workers, error_text
from payments_async._values.tasks import Tasks

_WATCH = "look at what is due"
_PER_HANDLER = 4  # deliveries in memory for each handler that may run; the rest wait on disk


class Leased(Protocol):
    """One delivery that this process is to handle."""

    @property
    def id(self) -> int:
        """Of what it is about; the same after a restart."""

    @property
    def until(self) -> float:
        """Unix seconds when its lease ends."""

    @property
    def tries(self) -> int:
        """Rounds before this one."""


L = TypeVar("L", bound=Leased)


class Queue(Protocol[L]):
    """What waits for handlers on disk. Several processes may share it: a delivery is leased to one of them."""

    async def claim(self, *, lease: float, limit: int, until: float) -> Sequence[L]:
        """Lease what is due."""

    async def give_back(self) -> None:
        """Give back what is leased to this process."""

    def run(self, leased: L) -> Awaitable[Sequence[str] | None]:
        """Run the handlers that have not finished; tells which failed, or ``None`` where its end is written down."""

    def unfinished(self, leased: L, done: Collection[str]) -> Sequence[str]:
        """Names of the handlers that have not finished, but for those that are done in this round."""

    async def note_done(self, number: int, handler: str) -> None:
        """One handler has finished."""

    async def retry(self, number: int, *, delay: float, error: str) -> None:
        """Count a round, and make it due again later."""

    async def bury(self, leased: L, error: str) -> None:
        """Make a dead letter of it."""


class Ends:
    """Writes down which deliveries were handled, those together that come while a commit is on its way.

    Until that is on disk the lease keeps others away. Where it fails it is tried again, for nothing undoes that
    handlers ran: it counts unless another process has the lease by then.

    Args:
        note_done: Writes down that one handler of several has finished.
        close: ... that all handlers have finished with these.
        name: Of the task that writes.
        tasks: ... which is one of them.
        log: Where trouble is told of.
        retry: Waits before it is tried again.
        given_up: What says that it cannot be written down any more.
    """

    def __init__(
        self,
        note_done: Callable[[int, str], Awaitable[None]],
        close: Callable[[Sequence[int]], Awaitable[object]],
        *,
        name: str,
        tasks: Tasks,
        log: logging.Logger,
        retry: Callable[[], Awaitable[None]],
        given_up: type[Exception],
    ) -> None:
        self.written: Callable[[Collection[int]], None] = lambda _: None  # is told whose ends are on disk, or lost
        self._note = note_done
        self._close = close
        self._name = name
        self._tasks = tasks
        self._log = log
        self._retry = retry
        self._given_up = given_up
        self._handled: list[int] = []
        self._done: dict[int, list[str]] = {}  # of deliveries with several handlers, those that have finished
        self._is_writing = False
        self._in_trouble = False

    def note_done(self, number: int, handler: str) -> None:
        """One handler of several has finished."""
        self._done.setdefault(number, []).append(handler)
        self._write_soon()

    def note_handled(self, number: int) -> None:
        """All handlers have finished."""
        if self._done:
            self._done.pop(number, None)
        self._handled.append(number)
        if not self._is_writing:
            self._write_soon()

    async def flush(self) -> None:
        """Write down what is left, once."""
        await self._write_ends(self._close)
        self._handled, self._done = [], {}

    def _is_left(self) -> bool:
        return bool(self._handled or self._done)

    def _write_soon(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._tasks.keep(self._name, self._write, stands=False)

    async def _write(self) -> None:
        """Write one batch after the other, until nothing is left."""
        self._is_writing = True
        try:
            while self._is_left():
                await self._gather()
                await self._write_batch()
                if self._in_trouble:
                    await self._retry()
        finally:
            self._is_writing = False

    async def _gather(self) -> None:
        """Wait for whatever else ends in this turn of the loop."""
        await asyncio.sleep(0)

    async def _write_batch(self) -> None:
        """Write what has gathered."""
        await self._write_ends(self._close)

    async def _write_ends(self, close: Callable[[Sequence[int]], Awaitable[object]]) -> Exception | None:
        """Write down which handlers and which deliveries have finished; tells what failed."""
        handled, done = self._handled, self._done
        self._handled, self._done = [], {}
        try:
            if done:
                await asyncio.gather(*(self._note(number, name) for number, names in done.items() for name in names))
            await close(handled)
        except Exception as error:  # noqa: BLE001 - whatever the reason, it is not on disk
            self._restore(handled, done)
            if handled or done:
                self._failed(error)
            return error
        except BaseException:  # it was broken off
            self._restore(handled, done)
            raise
        self._in_trouble = False
        if handled:
            self.written(handled)
        return None

    def _restore(self, handled: list[int], done: dict[int, list[str]]) -> None:
        """What was not written down is left to be."""
        self._handled[:0] = handled
        for number, names in done.items():
            if number not in self._handled:
                self._done[number] = names + self._done.get(number, [])

    def _failed(self, error: Exception) -> None:
        """Say so, once until it is well again."""
        facts = {"deliveries": [*self._handled, *self._done], "error": error_text(error)}
        if isinstance(error, self._given_up):
            self._log.error("the end of handlers could not be recorded: %s: %s", *facts.values(), extra=facts)
            self.written(self._handled)
            self._handled, self._done = [], {}
            return
        if not self._in_trouble:
            self._log.error("the end of handlers cannot be recorded yet: %s: %s", *facts.values(), extra=facts)
        self._in_trouble = True


class Dispatcher(Generic[L]):
    """Has what waits in a queue handled: retries, dead letters, and what another process left behind.

    Args:
        queue: What waits.
        ends: Writes down what was handled.
        policy: How patiently handlers are run, and how many at once.
        tasks: Closed with this.
        log: Where trouble is told of.
        given_up: As in ``Ends``.
        clock: Gives Unix seconds.
        sleep: Waits between two looks.
        random: Gives jitter, in [0, 1).
    """

    def __init__(
        self,
        queue: Queue[L],
        ends: Ends,
        policy: HandlerPolicy,
        *,
        tasks: Tasks,
        log: logging.Logger,
        given_up: type[Exception],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self.is_open = False
        self._queue = queue
        self._ends = ends
        self._policy = policy
        self._tasks = tasks
        self._log = log
        self._given_up = given_up
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._workers: Workers[L] = Workers(tasks, self._work, most=policy.concurrency)
        self._room = policy.concurrency * _PER_HANDLER
        self._under_way: dict[int, L] = {}  # what is leased, and waits for its handlers or for their end
        self._over: set[int] = set()  # whose round has ended, or was counted, and is not written down yet
        self._finished: dict[int, list[str]] = {}  # of deliveries with several handlers, those that have finished
        self._claiming = asyncio.Lock()
        self._is_woken = False
        self._is_more = False  # on disk, most likely, than there was room for
        self._in_trouble = False
        ends.written = self._written

    @property
    def has_room(self) -> bool:
        """Whether what comes now can be handled here; otherwise it is looked for once there is room."""
        if self.is_open and len(self._under_way) < self._room:
            return True
        self._is_more = True
        return False

    def start(self, *, anew: bool = False) -> None:
        """Begin.

        Args:
            anew: What a process of this name held, which may have died, is given back first.
        """
        self.is_open = True
        self._tasks.keep(_WATCH, self._watch_anew if anew else self._watch)

    async def aclose(self) -> None:
        """Stop, and wait for handlers under way; what has not begun is given back, for the next process.

        So is what a handler goes on with though it was cancelled: an end is not waited for that may never come.
        """
        was_open, self.is_open = self.is_open, False
        if ending := self._tasks.stop(_WATCH):
            await asyncio.wait(ending)
        for leased in self._workers.jobs:
            del self._under_way[leased.id]
        self._workers.jobs.clear()
        async with self._claiming:
            pass
        await self._tasks.aclose(self._policy.drain, leaves=LEAVES)
        for leased in self._under_way.values():
            self._tell_endless(leased, f"no end within {LEAVES:g} s of its cancellation, so closing leaves it")
        if was_open:
            await self._ends.flush()  # those whose end was being written when time was over
            await self._give_back()
        self._under_way.clear()
        self._over.clear()
        self._finished.clear()

    def put(self, leased: L) -> None:
        """Run the handlers of what is leased to this process, unless that is under way."""
        if leased.id not in self._under_way and leased.id not in self._over:
            self._under_way[leased.id] = leased
            self._workers.put(leased)

    def note_done(self, number: int, handler: str) -> None:
        """One handler of several has finished."""
        self._finished.setdefault(number, []).append(handler)
        self._ends.note_done(number, handler)

    def wake(self) -> None:
        """Look for what is due now, and not only when it is time again."""
        if self.is_open and not self._is_woken:
            self._is_woken = True
            self._tasks.start("look for what is due", self.claim())

    async def claim(self) -> None:
        """Take what is due and nobody holds: what is fresh, retries, and what a process that died has left."""
        async with self._claiming:
            self._is_woken = False  # whatever is committed from here on may be missed, and wakes again
            while self.is_open and (room := self._room - len(self._under_way)) > 0:
                until = self._clock() + self._policy.lease
                try:
                    claimed = await self._queue.claim(lease=self._policy.lease, limit=room, until=until)
                except Exception as error:  # noqa: BLE001 - a disk that is away for a while must not end the watch
                    self._tell_trouble("what waits for handlers cannot be read", error)
                    return
                self._in_trouble = False
                for leased in claimed:
                    self.put(leased)
                self._is_more = len(claimed) == room
                if not self._is_more or len(self._under_way) > self._room // 2:
                    return  # when half of the room is free again, it goes on

    async def again(self, leased: L, error: str, *, counts: bool = True) -> None:
        """Another round after a wait, or, when its rounds have run out, a dead letter.

        Args:
            counts: Whether this was a round at all.
        """
        if counts and leased.tries + 1 >= self._policy.attempts:
            await self._surely(leased, partial(self._queue.bury, leased, error))
        else:
            delay = self._policy.wait(leased.tries, self._random())
            await self._surely(leased, partial(self._queue.retry, leased.id, delay=delay, error=error))

    async def _watch_anew(self) -> None:
        await self._give_back()
        await self._watch()

    async def _watch(self) -> None:
        """Claim what is due, again and again."""
        while True:
            await self._count_endless()
            await self.claim()
            await self._sleep(self._policy.poll)

    async def _count_endless(self) -> None:
        """Count a round of a handler that goes on after its lease, though it was cancelled, and holds its place."""
        now = self._clock()
        if not (late := [one for one in self._under_way.values() if now >= one.until]):
            return
        waiting = {one.id for one in self._workers.jobs}
        for leased in [one for one in late if one.id not in waiting]:
            del self._under_way[leased.id]
            self._over.add(leased.id)
            why = f"no end within {self._policy.lease:g} s, though it was cancelled"
            try:
                await self.again(leased, self._tell_endless(leased, why))
            except Exception as error:  # noqa: BLE001 - it is told of, and another process may have the delivery
                self._tell_trouble("a round cannot be counted", error)

    def _tell_endless(self, leased: L, why: str) -> str:
        """Say which handlers of a delivery do not end; gives that in words."""
        facts = {"handler": self._unfinished(leased), "delivery": leased.id, "error": f"TimeoutError: {why}"}
        self._log.error("a handler does not end: %s, delivery %s: %s", *facts.values(), extra=facts)
        return f"{facts['handler']}: {facts['error']}"

    def _unfinished(self, leased: L) -> str:
        return ", ".join(self._queue.unfinished(leased, self._finished.get(leased.id, ())))

    async def _give_back(self) -> None:
        try:
            await self._queue.give_back()
        except Exception as error:  # noqa: BLE001 - the leases run out by themselves
            why = error_text(error)
            self._log.warning("leases could not be given back: %s", why, extra={"error": why})

    async def _work(self, leased: L) -> None:
        """Handle one delivery, and have written down what came of it.

        Not while closing, and not where its lease is about to end: another process may have it.
        """
        number, is_left = leased.id, False
        try:
            if self.is_open and self._clock() < leased.until - self._policy.timeout:
                failures = await self._queue.run(leased)
                self._under_way.pop(number, None)
                self._over.add(number)
                if failures:
                    await self._failed(leased, failures)
                elif failures is not None:
                    is_left = True
                    self._ends.note_handled(number)
        except asyncio.CancelledError:
            if number in self._under_way and not self._tasks.is_ending:  # as by a handler, of the task that it runs in
                await self.again(leased, f"{self._unfinished(leased)}: CancelledError: its task was cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - not recorded, so the lease runs out and it is handled again
            facts = {"delivery": number, "error": error_text(error)}
            self._log.error("the outcome of a delivery could not be recorded: %s: %s", *facts.values(), extra=facts)
        finally:
            if not is_left:
                self._under_way.pop(number, None)
                self._over.discard(number)
            if self._finished:
                self._finished.pop(number, None)
            if self._is_more:
                self._look_for_more()

    async def _failed(self, leased: L, failures: Sequence[str]) -> None:
        """Write down who has finished, before anybody can have the next round, and leave the others to it."""
        for handler in self._finished.get(leased.id, ()):
            await self._surely(leased, partial(self._queue.note_done, leased.id, handler))
        await self.again(leased, "; ".join(failures))

    async def _surely(self, leased: L, write: Callable[[], Awaitable[None]]) -> None:
        """Write something down, however long the disk is away, as long as the delivery is ours.

        Raises:
            Exception: It cannot be any more, or the lease is over: then another process has the next word.
        """
        while True:
            try:
                await write()
            except Exception as error:
                if isinstance(error, self._given_up) or self._clock() >= leased.until:
                    raise
                self._tell_trouble("the outcome of a delivery cannot be recorded yet", error)
            else:
                self._in_trouble = False
                return
            await self._sleep(self._policy.poll)

    def _written(self, numbers: Collection[int]) -> None:
        """Their ends are on disk, so they are ours no more."""
        self._over.difference_update(numbers)

    def _look_for_more(self) -> None:
        """Where more waits on disk, look for it once half of the room is free."""
        if len(self._under_way) <= self._room // 2:
            self._is_more = False
            self.wake()

    def _tell_trouble(self, what: str, error: Exception) -> None:
        """Say what is wrong, once until it is well again."""
        if not self._in_trouble:
            why = error_text(error)
            self._log.error("handlers cannot go on: %s: %s", what, why, extra={"error": why})
        self._in_trouble = True

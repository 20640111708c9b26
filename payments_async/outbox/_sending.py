"""Has the orders of an outbox sent: looks first where that is due, takes from the tray, runs one pool after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs

from payments_async._session.session import PaymentsSession, executor_of
from payments_async._values.errors import AuthenticationFailed, PaymentsError
from payments_async.journal import Journal, State
from payments_async.journal._faults import JournalClosed, JournalError, LoadBusy
from payments_async.journal._records import WATCHED, Awaited, Entry, Placed, Staged
from payments_async.outbox._brakes import Backoff, Budget, Fuse, SleepWatch
from payments_async.outbox._leases import Leases
from payments_async.outbox._listening import AGAIN_INITIAL, AGAIN_MAX
from payments_async.outbox._run import take_first_look, why_not
from payments_async.outbox._standing import OutboxWorker
from payments_async.outbox._worker_pool import ASK_AGAIN, Handed

_log = logging.getLogger("payments_async")
_FOREVER = float("inf")
_QUEUED = 20  # single orders in this process's hands for each worker, beyond which any process may claim further ones
_PATIENCE = 10.0  # seconds for which a page of the list that cannot be had is asked for again
_ANSWERS = (State.ACCEPTED, State.REJECTED)
_GAP = 60.0  # seconds after the last thing that the journal knows, beyond which the list is read from there on
_MARGIN = 600.0  # seconds before it, for the service's clock may be another one
_AT_ONCE = 200  # orders taken in one commit
_OFTEN = 0.02  # seconds between two looks for a while after something was taken
_LOOK = 30.0  # seconds after which the tray is looked into, whatever was heard
_AGAIN, _AGAIN_MAX = 1.0, 30.0  # seconds until it is looked again while the journal fails

_Workers = dict[int, "asyncio.Future[Handed | None]"]


@attrs.define(eq=False, kw_only=True)
class OrderSender:
    """What sends the orders of an outbox in this process. Most arguments are those of ``Outbox``.

    Args:
        poll: Seconds between two looks for what another process left behind.
        interval: Seconds between two lists that count.

    Attributes:
        owner: A name that no other process has.
        pool: The workers, while there are any.
        stopping: Set when the outbox is closed.
        hinders: Why nothing is sent.
        watch: Notices that the machine has slept, also while a list is read.
        told: Callers of ``pay`` who hear from a worker here.
    """

    payments: PaymentsSession
    journal: Journal
    name: str
    concurrency: int
    rate: float | None
    fuse: Fuse
    lease: float
    poll: float
    claims_batches: bool
    look_back: float
    grace: float
    interval: float
    now: Callable[[], float]
    owner: str = attrs.field(init=False, default="")
    pool: OutboxWorker | None = attrs.field(init=False, default=None)
    stopping: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)
    hinders: str | None = attrs.field(init=False, default=None)
    watch: SleepWatch = attrs.field(init=False)
    told: set[asyncio.Future[Entry | None]] = attrs.field(init=False, factory=set)
    _unreturned: Leases | None = attrs.field(init=False, default=None)  # of a worker pool that failed with the journal

    def begin(self, owner: str) -> None:
        """The outbox is opened, under this name."""
        self.owner, self.stopping = owner, asyncio.Event()
        self.watch = SleepWatch(outbox=self.name, now=self.now, clock=executor_of(self.payments).clock)

    def end(self) -> None:
        """Begin nothing more, and finish what is under way."""
        self.stopping.set()
        if self.pool is not None:
            self.pool.end("it is closed")

    def look(self) -> None:
        """There may be more to do."""
        if self.pool is not None:
            self.pool.look()

    def crew_with_room(self) -> OutboxWorker | None:
        """The worker pool of this process, if it will send what it is given soon."""
        pool = self.pool
        if pool is None or not pool.may_send() or pool.leases.count_own() >= _QUEUED * self.concurrency:
            return None
        return pool

    def is_under_way(self, request_id: str) -> bool:
        """Whether a worker here has an order in hand."""
        return self.pool is not None and request_id in self.pool.under_way

    def why_not(self) -> str | None:
        """What hinders the sending, in words."""
        return self.hinders or (None if self.pool is None else self.pool.trouble)

    async def run(self) -> None:
        """Send, and begin again after a failure, until it is closed."""
        delay = AGAIN_INITIAL
        while not self.stopping.is_set():
            try:
                why = await self._look_for(self.name)  # the journal may have forgotten what was sent
                if why is None:
                    if self.hinders is not None:
                        await self.journal.check_writable()  # that it can be read again says nothing of writing
                    self.hinders, delay = None, AGAIN_INITIAL
                    await self._send()
                    continue
                if not self.stopping.is_set():
                    self._hinder(why)
            except JournalClosed:
                return
            except (JournalError, PaymentsError) as error:
                self._hinder(error.message)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self.stopping.wait()
            delay = min(AGAIN_MAX, 2 * delay)

    def _hinder(self, why: str) -> None:
        """Something hinders the sending: say it once."""
        if why != self.hinders:
            facts = {"outbox": self.name, "why": why}
            _log.error("the outbox %s sends nothing: %s", self.name, why, extra=facts)
        self.hinders = why

    async def _look_for(self, batch_id: str) -> str | None:
        """Read the list for a batch, or for the outbox itself, unless that was done; tells why it failed."""
        sleeps = self.watch.count()
        run, back = await self.journal.run(batch_id), self.look_back
        if (awaits := run.awaits) is not None:
            if awaits.read_at is not None and awaits.is_early(self.now(), self.grace, self.interval):
                return self._waits_for(awaits)
        elif await self.journal.is_looked_for(batch_id):
            is_known = batch_id != self.name or await self.journal.is_known_here(batch_id)
            since = await self._known_until() if batch_id == self.name else self.now()
            if is_known and abs(self.now() - since) <= _GAP:  # or the clock was ahead once
                return None
            run, back = attrs.evolve(run, look_since=since), _MARGIN
        try:
            looked = await take_first_look(
                self.payments,
                self.journal,
                run,
                back=back,
                patience=_PATIENCE,
                now=self.now,
                stop=self.stopping,
                tell=None,
                remembers=True,
                grace=self.grace,
                interval=self.interval,
            )
        except AuthenticationFailed as error:
            return f"the credentials were refused: {error.message}"
        if (why := why_not(looked)) is not None:
            return why
        return await self._after_look(batch_id, run.awaits, sleeps)

    async def _after_look(self, batch_id: str, before: Awaited | None, sleeps: int) -> str | None:
        """Tell why nothing is sent yet, though the list was read; or read it again.

        Args:
            before: What was awaited then.
            sleeps: Of the machine, until then.
        """
        awaits = (await self.journal.run(batch_id)).awaits
        if self.watch.count() != sleeps:
            return await self._look_for(batch_id)  # it has slept meanwhile
        if awaits is None:
            if batch_id == self.name:
                self.watch.slept_since = _FOREVER
            return None
        has_counted = before is not None and awaits.lists > before.lists
        if has_counted and awaits.due(self.grace, self.interval) <= self.now():
            return await self._look_for(batch_id)
        return self._waits_for(awaits)

    def _waits_for(self, awaits: Awaited) -> str:
        """Why nothing is sent from a journal that was restored."""
        return f"the journal was copied or restored: {awaits.words(self.grace, self.interval)}"

    async def _known_until(self) -> float:
        """Unix seconds until which the journal surely knows what was sent: of the last answer to an order, or list.

        If that is long ago, nothing was sent since; or the whole disk was put back to that moment, with all that would
        tell, and what was sent since is forgotten. What a person did in the meantime, or a notification told, says
        nothing of that. Nor do answers that came after a sleep to what was under way before it.
        """
        list_scans = await self.journal.list_scans(self.name)
        looked = max((scan.begun for scan in list_scans if scan.ended and scan.problem is None), default=0.0)
        return min(self.watch.slept_since, max(looked, await self.journal.last_change(_ANSWERS) / 1e6))

    async def _send(self) -> None:
        """Have a worker pool work until it is closed or fails."""
        clock = executor_of(self.payments).clock
        pool = OutboxWorker(
            payments=self.payments,
            journal=self.journal,
            name=self.name,
            leases=Leases(self.journal, owner=self.owner, seconds=self.lease, clock=clock, now=self.now),
            fuse=self.fuse,
            meter=Budget(self.fuse, await self.journal.progress(outbox=self.name)),
            pace=Backoff(_FOREVER, clock=clock),
            size=self.concurrency,
            rate=self.rate,
            stop=self.stopping,
            now=self.now,
            watch=self.watch,
            sleeps=self.watch.sleeps,
            look_for=self._look_for,
            claims_batches=self.claims_batches,
            ask_again=max(ASK_AGAIN, self.poll),
        )
        if self._unreturned is not None:
            await self._unreturned.give_back_all()  # else what was in its hands waits until its leases are over
            self._unreturned = None
        self.pool = pool
        try:
            await pool.refresh()  # only now: a pause from here on tells the pool
            await pool.work(self.lease)
        except JournalError:
            self._unreturned = pool.leases
            raise
        finally:
            self.pool = None
            for ended in self.told:
                if not ended.done():
                    ended.set_result(None)  # nobody here has it in hand any more


class Collector:
    """Takes what lies in the tray of an outbox, and has a worker that waits send it at once.

    Args:
        name: Of the outbox.
        owner: Who works on it.
        lease: Seconds.
        pool: The worker pool that has room for more, if there is one now; otherwise anybody may claim what is taken.
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
        delay, is_first, seen = _AGAIN, True, 0
        now = asyncio.get_running_loop().time
        while True:
            try:
                seen = await self._journal.laid_since(seen, timeout=_OFTEN if now() < self._watched else _LOOK)
                if is_first:  # what could not be taken before may be by now, or by this version
                    await self._collect(stuck=True)
                    is_first = False
                await self._collect(stuck=False)
                delay = _AGAIN
            except JournalClosed:
                return
            except JournalError as error:
                facts = {"outbox": self._name}
                _log.error("outbox %s cannot ingest staged orders: %s", self._name, error.message, extra=facts)
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
                _log.error("a staged order could not be ingested, and stays: %s", why, extra=facts)


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

"""The worker pool of an outbox: it works on single orders and on batches, whatever comes, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, auto
from functools import partial
from typing import Any

import attrs

from payments_async._values.errors import PaymentsError
from payments_async._values.observing import Observer
from payments_async.journal._faults import JournalError, JournalUnavailable, JournalUnusable
from payments_async.journal._records import Outcome, Pause, Permit, Placed, Progress, Waiting
from payments_async.journal._states import Signal
from payments_async.outbox._brakes import Fuse, spent_in
from payments_async.outbox._health import OutboxHealth
from payments_async.outbox._leases import LeasedOrder
from payments_async.outbox._worker_pool import Handed, WorkerPool

_log = logging.getLogger("payments_async")

_EXPIRE = 0.3  # seconds between two looks for processes that died
_LOOK_FOR_AGAIN = 10.0  # seconds until a list that could not be read is read again
_LOOK = 0.05  # seconds between two looks for orders that anybody may claim, at least
_QUIET = 10.0  # times as long until it is looked again, where nothing waits, no other process has any, none is written
_REFUSED_INITIAL, _REFUSED_MAX = 1.0, 60.0  # seconds until a login that was refused is tried again, doubled each time
_SILENCE = 10.0  # seconds without an answer of any kind, after which others may have what was not begun
_PROBE = 3.0  # seconds between two questions whether the service is heard again
_BALANCE_AGAIN = 5.0  # seconds between two tries to read the balance
_BY_FUSE = "fuse"


class ChunkEnd(Enum):
    """What came of a chunk that was to be worked."""

    WORKED = auto()  # nothing of it is left to do
    NONE_LEFT = auto()  # the batch has no chunk that is not done
    GIVEN_BACK = auto()  # somebody else may do the rest of it at once
    NOT_NOW = auto()  # nothing may be sent, or all are in other hands


@attrs.define(eq=False, repr=False, kw_only=True)
class OutboxWorker(WorkerPool):
    """All workers of one process on one outbox.

    Attributes:
        name: Of the outbox.
        fuse: Its rules.
        paused: Why nothing is sent, or ``None``.
        trouble: What hinders the sending at the moment, in words, or ``None``.
        now: Unix seconds.
        look_for: Reads the service's list for a batch before anything of it is sent; tells why that failed.
        claims_batches: Chunks of batches are claimed by ourselves, and not only when we are handed one.
    """

    name: str
    fuse: Fuse
    now: Callable[[], float]
    look_for: Callable[[str], Awaitable[str | None]]
    claims_batches: bool = True
    paused: Pause | None = None
    trouble: str | None = None
    _day: str = attrs.field(init=False, default="")
    _refusals: int = attrs.field(init=False, default=0)
    _refused_until: float = attrs.field(init=False, default=float("-inf"))
    _looked_at: float = attrs.field(init=False, default=float("-inf"))
    _balance_at: float = attrs.field(init=False, default=float("-inf"))
    _turn: int = attrs.field(init=False, default=0)
    _is_pausing: bool = attrs.field(init=False, default=False)
    _asked: int = attrs.field(init=False, default=0)  # how often whether it is paused
    _heard: int = attrs.field(init=False, default=0)  # which of these was answered, the latest
    _expire_at: float = attrs.field(init=False, default=float("-inf"))
    _read: int = attrs.field(init=False, default=-1)  # what was written when the journal was looked into
    _others_hold: bool = attrs.field(init=False, default=True)  # chunks, as far as is known
    _looking: asyncio.Task[None] | None = attrs.field(init=False, default=None)
    _probing: asyncio.Task[None] | None = attrs.field(init=False, default=None)
    _is_cut_off: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.holds_back = self.is_told = True

    def may_send(self) -> bool:
        return super().may_send() and self.paused is None and not self._is_cut_off

    def set_aside(self, order: LeasedOrder, error: Exception) -> None:
        facts = {"outbox": self.name, "request_id": order.claimed.request_id, "why": type(error).__name__}
        words = "the outbox %s holds back order %s, which cannot be sent as it is (%s), until it is put again"
        _log.error(words, self.name, order.claimed.request_id, type(error).__name__, extra=facts)
        self.done(order)

    def warn(self, why: str) -> None:
        _log.info("the outbox stops: %s", why, extra={"outbox": self.name, "why": why})

    def blow(self, why: str) -> None:
        """A rule of the fuse forbids to send any more: until a named person resumes it, nothing is sent."""
        if self.paused is not None:
            return
        self.paused = Pause(at=self.now(), who=_BY_FUSE, why=why)
        _log.error("the outbox %s is paused: %s", self.name, why, extra={"outbox": self.name, "why": why})
        self._is_pausing = True
        self.tasks.keep("pausing", partial(self._pause, why))

    async def _pause(self, why: str) -> None:
        """Have every other process stop as well."""
        await self.survives(self.journal.pause(self.name, who=_BY_FUSE, why=why))
        self._is_pausing = False

    def refused(self, why: str) -> None:
        """The service refused our credentials: nothing is sent until it takes them, which is tried again and again."""
        now = self.executor.clock()
        if now < self._refused_until:
            return  # all who wait for one login hear of it
        delay = min(_REFUSED_MAX, _REFUSED_INITIAL * 2.0 ** min(self._refusals, 60))
        self._refusals, self._refused_until = self._refusals + 1, now + delay
        self.trouble = f"the credentials were refused: {why}"
        facts = {"outbox": self.name, "why": why, "again_in": delay}
        _log.error("the outbox %s sends nothing: the credentials were refused: %s", self.name, why, extra=facts)
        self.pace.failed(why, retry_after=delay)

    def look(self) -> None:
        """Something was written by somebody: there may be orders that can be claimed."""
        self.written += 1
        soon = self._looked_at + _LOOK
        if soon < self._ask_again:
            self._ask_again = soon
            self.hint()

    def place(
        self, placed: Placed, asked: float, worker: asyncio.Future[Handed | None] | None, amount: Decimal
    ) -> tuple[LeasedOrder | None, Coroutine[Any, Any, None] | None]:
        """Take over an order that was put for this worker pool, and hand it to the worker that was reserved for it.

        Args:
            asked: Monotonic seconds when it was put.

        Returns:
            The order, if it is in our hands now, and what has to be written where it goes back.
        """
        leased, rest = None, None
        if not self.drains or placed.permit is not None:
            leased = self.leases.take_placed(placed, asked)
        elif placed.chunk is not None:
            rest = self.leases.give_back_placed(placed.chunk)
        if leased is not None and worker is not None and placed.permit is not None:
            if not worker.done():
                worker.set_result((leased, placed.permit))
                return leased, None
            return leased, self._take_back(worker, leased, placed.permit)
        if leased is not None:
            self.wake()
        if worker is not None:
            self.let_go(worker, amount)
        return leased, rest

    def is_not_put(self, worker: asyncio.Future[Handed | None], amount: Decimal, error: BaseException) -> None:
        """An order that a worker was reserved for was not written down, or nobody knows."""
        self.let_go(worker, amount)
        if isinstance(error, JournalUnavailable | JournalUnusable):
            self.fail(error)  # it may be permitted all the same: its chunk is given back, and it is unknown

    async def _take_back(self, worker: asyncio.Future[Handed | None], order: LeasedOrder, permit: Permit) -> None:
        """A worker that was reserved was broken off meanwhile: nobody sends an order under its permit."""
        self.let_go(worker, order.claimed.amount)
        self.leases.again(order, 0.0)
        broken_off = Outcome(permit=permit, signal=Signal.NOT_SENT, message="broken off before it was sent")
        await self.survives(self.journal.record(broken_off))

    def has_plenty(self) -> bool:
        return self.leases.is_full(self.size)  # what there is of a batch must not keep single orders out

    async def claim_more(self) -> bool:
        """Lease a chunk of each batch that has some and of which little is in hand, in turn."""
        now = self.executor.clock()
        if now - self._looked_at < _LOOK or not self.may_send():
            return False
        self._looked_at, written = now, self.written
        if now >= self._expire_at and self._others_hold:
            self._expire_at = now + _EXPIRE  # what a process that died has held is free at once
            await self.journal.expire_chunks()
        waiting = await self.journal.waiting(self.name, owner=self.leases.owner)
        self._others_hold = any(run.leased > self.leases.held_of(run.run) for run in waiting)
        for run in waiting:
            if run.asked_back:
                self.leases.fill_no_more(run.run)
        ours = [run for run in waiting if run.free and (self.claims_batches or run.batch_id == self.name)]
        runs = deque(run for run in ours if run.is_looked_for or self._is_looked_for(run.batch_id))
        self._turn += 1
        runs.rotate(self._turn)
        claimed = False
        for run in sorted(runs, key=lambda run: -run.priority):
            if not self.leases.has_plenty_of(run.run, self.size):
                claimed = await self.leases.claim(run.batch_id) is not None or claimed
        if not self._others_hold and not any(run.free for run in waiting) and written == self.written:
            due = min((run.due_at for run in waiting if run.due_at is not None), default=float("inf"))
            self._ask_again = now + max(self.ask_again, min(self.ask_again * _QUIET, due - self.now()))
        return claimed

    async def work_chunk(self, batch_id: str) -> ChunkEnd:
        """Lease one chunk of a batch, if there is one, and send it; until it is in our hands no more."""
        if self.drains or not self.may_send() or self.leases.is_full(self.size):
            return ChunkEnd.NOT_NOW
        found = await self._waiting_of(batch_id)
        if found is not None and found.leased > self.leases.held_of(found.run):
            await self.journal.expire_chunks()  # what a process that died has held is free at once
            found = await self._waiting_of(batch_id)
        if found is None:
            return ChunkEnd.NONE_LEFT
        if not (found.is_looked_for or self._is_looked_for(batch_id)):
            assert self._looking is not None
            await asyncio.wait([self._looking])
            found = await self._waiting_of(batch_id)
            if found is None or not found.is_looked_for:
                return ChunkEnd.NOT_NOW
        lease = await self.leases.claim(batch_id)
        if lease is None:
            return ChunkEnd.NOT_NOW if found.leased else ChunkEnd.NONE_LEFT
        self.wake()
        await lease.ended.wait()
        return ChunkEnd.GIVEN_BACK if lease.open else ChunkEnd.WORKED

    async def _waiting_of(self, batch_id: str) -> Waiting | None:
        return next((run for run in await self.journal.waiting(self.name) if run.batch_id == batch_id), None)

    def _is_looked_for(self, batch_id: str) -> bool:
        """Whether a batch was looked for meanwhile; begins to, if nobody here does: it may have been sent elsewhere."""
        if self._looking is None or self._looking.done():
            self._looking = self.tasks.start("first look", self._look_for(batch_id))
        return False

    async def _look_for(self, batch_id: str) -> None:
        """Read the list for one batch; when that fails, again in a while."""
        try:
            why = await self.look_for(batch_id)
        except JournalError as error:
            self.fail(error)
            return
        if why is None:
            self.trouble = None
            self.look()
        elif not self.drains:
            if self.trouble != why:
                facts = {"outbox": self.name, "batch_id": batch_id, "why": why}
                _log.error("the outbox %s sends nothing of batch %s: %s", self.name, batch_id, why, extra=facts)
            self.trouble = why
            await self.executor.sleep(_LOOK_FOR_AGAIN)

    async def is_through(self) -> bool:
        return False

    async def refresh(self) -> Progress:
        """See how all orders stand, whether anybody has paused it, and whether a new day has begun."""
        was_pausing = self._is_pausing  # before it is asked: it may be written down while the answer is on its way
        progress = await self.journal.progress(outbox=self.name)
        self._asked = number = self._asked + 1
        paused = await self.journal.paused(self.name)
        is_latest, self._heard = (
            number > self._heard,
            max(number, self._heard),
        )  # else somebody has asked and heard since
        goes_on = is_latest and self.paused is not None and paused is None and not was_pausing
        if goes_on:
            self._day = ""  # whoever resumed it lets the day begin anew
        elif is_latest and paused is not None:
            self.paused = paused
        if self.executor.observer is not None:
            await self._tell_levels(self.executor.observer)
        await self._follow_clock()
        self.meter.refresh(progress)
        if goes_on:  # only now: by the limits of before it would be paused again at once
            _log.warning("the outbox %s goes on", self.name, extra={"outbox": self.name})
            self.meter.forgive()  # whoever resumed it has seen what was
            self.paused = None
            self.look()
        if not self.drains and not await self.journal.is_looked_for(self.name):
            self.drain()  # it was found that a copy has gone on: the list is read again before anything more is sent
        return progress

    async def look_after(self) -> None:
        if self.written == self._read:
            await self._follow_clock()
        else:
            self._read = self.written
            await self.refresh()

    async def _follow_clock(self) -> None:
        """Notice what time alone tells: that the service is silent, that a day begins, that the machine has slept."""
        await self._notice_silence()
        if self.pace.is_answered:
            self.trouble, self._refusals = None, 0
        await self._follow_the_day()
        self.has_slept()

    async def _tell_levels(self, observer: Observer) -> None:
        """Tell who watches how the orders stand, which changes nobody has handled, and what waits for a person."""
        health = await OutboxHealth.of(self.journal, self.name, now=self.now)
        for state, count in health.progress.counts.items():
            observer.level("orders", count, state=state)
        observer.level("changes", health.handlers.pending, state="pending")
        observer.level("changes", health.handlers.dead, state="dead")
        for reason, level in health.needs.items():
            observer.level("held_up", level, reason=reason)

    async def _notice_silence(self) -> None:
        """Where nothing is answered, it may be our own network: let others have what we have not begun, and feel it.

        Nothing is claimed before the service is heard again. Where nothing is in hand, nothing was asked either: then
        a question of our own comes first.
        """
        since = self.pace.silent_since
        if since is None and self._is_cut_off:  # an order that was under way is answered, or our own question
            _log.warning("the service answers outbox %s again", self.name, extra={"outbox": self.name})
            self._is_cut_off, self.trouble = False, None
            self.look()
        if since is None or self.executor.clock() - since < _SILENCE or self.drains:
            return
        is_probing = self._probing is not None and not self._probing.done()
        if self.leases.open and not is_probing:
            self._cut_off(since)
        if self._is_cut_off:
            await self.leases.give_back_unbegun()
        if not is_probing:
            self._probing = self.tasks.start("probe", self._probe(since))

    def _cut_off(self, since: float) -> None:
        if self._is_cut_off:
            return
        self._is_cut_off, silent = True, self.executor.clock() - since
        self.trouble = f"nothing was answered for {silent:.0f} seconds; others may have what was not begun"
        _log.error("the outbox %s sends nothing: %s", self.name, self.trouble, extra={"outbox": self.name})

    async def _probe(self, since: float) -> None:
        """Ask something that moves nothing: any answer, also a no, tells that the service is heard."""
        try:
            await self.payments.accounts.get()
        except PaymentsError as error:
            if error.status is None:
                if self.pace.silent_since is not None:
                    self._cut_off(since)
                await self.executor.sleep(_PROBE)
                return
        self.pace.silent_since = None

    async def _follow_the_day(self) -> None:
        """Let the limit of a day begin anew with each."""
        if self.fuse.max_per_day is None:
            return
        day = datetime.fromtimestamp(self.now(), UTC).astimezone(self.payments.dialect.timezone).date().isoformat()
        if day == self._day:
            return
        spent = spent_in(await self.journal.progress(outbox=self.name))
        before = await self.journal.begin_day(self.name, day, spent)
        self._day = day
        self.meter.limit(before, self.fuse.max_per_day)

    async def read_balance(self) -> None:
        now = self.executor.clock()
        if now >= self._balance_at:
            self._balance_at = now + _BALANCE_AGAIN
            await super().read_balance()

    def lacks_balance(self, why: str) -> None:
        self.trouble = f"the balance could not be read: {why}"
        _log.error("the outbox %s sends nothing: %s", self.name, self.trouble, extra={"outbox": self.name, "why": why})

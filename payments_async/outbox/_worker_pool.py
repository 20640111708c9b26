"""The worker pool of one process: workers that send one order after another, each under a permit."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import NamedTuple, TypeVar

import attrs

from payments_async._session.executor import Executor
from payments_async._session.limits import RetryPolicy
from payments_async._session.session import PaymentsSession, executor_of
from payments_async._values.errors import AuthenticationFailed, NotSent, PaymentsError, Rejected
from payments_async._values.frozen import frozen
from payments_async._values.tasks import Tasks, finished
from payments_async._wire.bodies import private_texts
from payments_async._wire.endpoints import SendsWritten
from payments_async.journal import Journal
from payments_async.journal._faults import JournalClosed, JournalError, JournalUnavailable
from payments_async.journal._records import NotPermitted, Outcome, Permit, Progress, SharedRate, TransitionResult
from payments_async.journal._states import Signal
from payments_async.outbox._brakes import Backoff, Budget, Reserve, SleepWatch
from payments_async.outbox._leases import LeasedOrder, Leases

_log = logging.getLogger("payments_async")

_TICK = 0.1  # seconds between two looks at what is due, while orders are in hand
_REFRESH = 1.0  # seconds between two looks into the journal, if anything was written
_HEAR = 0.5  # seconds between two looks at the pace of all, if anything was written
_GRAIN = 0.005  # seconds for which workers whose turn it is are woken together
ASK_AGAIN = 0.5  # seconds until free chunks are looked for again where there was none
_ONE_TRY = RetryPolicy(attempts=1, total=5.0)  # one permit, one try; a wait must not outlive the lease
_WRITES = 6  # tries to write an outcome down; after them the order is unknown when the lease runs out
_WRITE_WAIT = 0.1  # seconds before the second, doubled each time
_NO_MORE = 429  # for now, says the service to everybody
_UNREAD = 401  # the next order logs in again; nothing is the matter with the service
_LONGEST = 500  # characters of the service's words that are kept

T = TypeVar("T")
Handed = tuple[LeasedOrder, Permit]  # an order that is permitted already, for a worker that waits
ASKED_TO_STOP = "it was asked to stop"


@frozen(kw_only=True)
class FirstLook:
    """What a run did before it sent anything: it read the service's list, for the journal may have forgotten.

    That an order is not in the list proves nothing: a list may show it minutes late.

    Attributes:
        since, until: The days that were asked for.
        rows, requests, seconds: Transactions that were seen, and what that took.
        found: Orders that were there already although the journal had them as planned. They are not sent.
        counted: The service said how many transactions there are, and showed as many.
        problem: Why the list was not read to its end, or ``None``.
    """

    since: date
    until: date
    rows: int = 0
    requests: int = 0
    seconds: float = 0.0
    found: int = 0
    counted: bool = False
    problem: str | None = None

    @property
    def days(self) -> int:
        """How many days the list was asked for."""
        return (self.until - self.since).days + 1


@attrs.frozen(kw_only=True)
class RunProgress(Progress):
    """How a batch stands, and what this run has done for it.

    Attributes:
        stopped: Why the run ended before the batch was through, or ``None``. The same command goes on.
        sent: Orders this process has sent, whatever became of them.
        seconds: Since the run began.
        waits_for: Whose lease this run waits for, since there is nothing else left to do: a process that works on the
            rest of the batch, or one that died. ``None`` while it is at work itself.
        lease_left: Seconds until that lease ends, if it is not renewed.
        looked: What was looked for in the service's list before anything was sent; ``None`` where there was no need.
    """

    stopped: str | None = None
    sent: int = 0
    seconds: float = 0.0
    waits_for: str | None = None
    lease_left: float = 0.0
    looked: FirstLook | None = None

    @classmethod
    def of(cls, progress: Progress) -> RunProgress:
        """How a batch stands, before this run has done anything."""
        return cls(counts=progress.counts, sums=progress.sums, conflicts=progress.conflicts)


@attrs.define(eq=False, repr=False, kw_only=True)
class WorkerPool(ABC):
    """All workers of one process: what they share, and what ends their work. What there is to do, a subclass knows.

    Attributes:
        watch: Notices that the machine has slept.
        sleeps: How many it had noticed when the list was read.
        size: Orders under way at once.
        stop: Set from outside to finish what is under way and end.
        rate: Orders a second that all who send from the journal may begin together, as this process asks for it;
            ``None`` where it asks for none, and keeps to what the journal says.
        ask_again: Seconds until free chunks are looked for again where there was none.
        is_told: It is told when anything was written, and looks into the journal only then.
        written: How often it was told.
        call_of: Describes the sending of an order.
        note_departure: To be called for a permit before its first byte leaves.
        stopped: Why it ends early, or ``None``.
        failure: What ends it with an error, or ``None``.
        drains: Nothing more is begun.
        turns: What it has reserved of the rate of all.
        tasks: All that work here. Where one ends too early the worker pool fails, and gives back what is in hand.
        holds_back: What cannot be written as a request leaves our hands, until it is put again.
        sent: Orders sent.
        under_way: Request ids of orders that a worker sends now.
    """

    payments: PaymentsSession
    journal: Journal
    leases: Leases
    meter: Budget
    pace: Backoff
    watch: SleepWatch
    sleeps: int
    size: int
    stop: asyncio.Event | None = None
    rate: float | None = None
    ask_again: float = ASK_AGAIN
    executor: Executor = attrs.field(init=False)
    note_departure: Callable[[Permit], None] = attrs.field(init=False)
    call_of: SendsWritten = attrs.field(init=False)
    stopped: str | None = attrs.field(init=False, default=None)
    failure: Exception | None = attrs.field(init=False, default=None)
    drains: bool = attrs.field(init=False, default=False)
    holds_back: bool = attrs.field(init=False, default=False)
    sent: int = attrs.field(init=False, default=0)
    under_way: set[str] = attrs.field(init=False, factory=set)
    begun: float = attrs.field(init=False)
    turns: Reserve = attrs.field(init=False)
    tasks: Tasks = attrs.field(init=False)
    aside: list[str] = attrs.field(init=False, factory=list)
    is_told: bool = attrs.field(init=False, default=False)
    written: int = attrs.field(init=False, default=0)
    _is_full: bool = attrs.field(init=False, default=False)  # whoever claims chunks rests until fewer are in hand
    _ask_again: float = attrs.field(init=False, default=0.0)  # when to look for free chunks again
    _news: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)  # something has changed
    _wants_turns: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)
    _told_until: float = attrs.field(init=False, default=float("-inf"))  # the pause that others have heard of by us
    _overruled: float | None = attrs.field(init=False, default=None)  # the lower rate that counts, once that was said
    _idle: deque[asyncio.Future[Handed | None]] = attrs.field(init=False, factory=deque)  # workers that wait

    def __attrs_post_init__(self) -> None:
        self.executor = executor_of(self.payments)
        self.call_of = self.executor.sends_written()
        self.begun = self.executor.clock()
        self.tasks = Tasks("the worker pool", lost=self.fail)
        self.journal.use_service_clock(lambda: self.executor.transport.other_clock)
        self.note_departure = self.journal.follow_departures(self.leases.owner)
        self.turns = Reserve(self.executor.clock)

    async def work(self, lease: float) -> None:
        """Send until there is nothing left, something stops it, or it fails; then give every chunk back.

        Args:
            lease: Seconds.

        Raises:
            JournalError: The journal could not be written. What was under way was finished.
        """
        try:
            await self.survives(self._follow_pace(lease))  # before anything is sent
            self.tasks.start("keeper of leases and of the pace", self._keep(lease))
            self.tasks.start("keeper of turns", self._keep_turns())
            claiming = self.tasks.start("claiming of chunks", self._claim())
            working = [self.tasks.start("worker", _Worker(self).work()) for _ in range(self.size)]
            await asyncio.wait([claiming, *working])
        finally:
            await finished(self._end())
        if self.failure is not None:
            raise self.failure

    async def _end(self) -> None:
        await self.tasks.aclose()
        await self.survives(self._give_back())  # or the leases run out by themselves

    def end(self, why: str) -> None:
        """Begin nothing more, and say why; what is under way is finished. The first reason stands."""
        if not self.drains:
            self.stopped = why
            self.warn(why)
        self.drain()

    def warn(self, why: str) -> None:
        """Say aloud why it ends."""
        _log.warning("the worker pool stops: %s", why, extra={"why": why})

    def blow(self, why: str) -> None:
        """A rule of the fuse forbids to send any more."""
        self.end(why)

    def refused(self, why: str) -> None:
        """The service refused our credentials, and not only for a moment."""
        self.end(f"the credentials were refused: {why}")

    def fail(self, error: Exception) -> None:
        """Begin nothing more, and raise this when what is under way is finished. The first error stands."""
        if self.failure is None:
            self.failure = error
        self.drain()

    def drain(self) -> None:
        """Begin nothing more."""
        self.drains = True
        self.wake()

    def next_order(self) -> LeasedOrder | None:
        """An order to be tried now, already counted by the fuse; ``None`` when there is none at the moment."""
        if self.stop is not None and self.stop.is_set():
            self.end(ASKED_TO_STOP)
        if not self.leases.may_have_ready() or not self.may_send() or self.meter.lacks_balance:
            return None
        if self.turns.is_limited and not self.turns.is_due():
            self._wants_turns.set()
            return None
        if not self.pace.may_go():
            return None
        order = self.leases.take()
        if order is None:
            self.pace.did_not_go()
            return None
        why = self.meter.reserve(order.claimed.amount)
        if why is not None:
            self.leases.put_back(order)
            self.pace.did_not_go()
            self.blow(why)
            return None
        if self.turns.is_limited:
            self._take_turn()
        if self._is_full and not self.has_plenty():
            self.wake()
        return order

    def _take_turn(self) -> None:
        """An order is begun in its turn."""
        self.turns.take()
        if self.turns.runs_low:
            self._wants_turns.set()

    def may_send(self) -> bool:
        """Whether anything may be sent at all."""
        return not (self.has_slept() or self.drains)

    def has_slept(self) -> bool:
        """Whether the machine has slept. Then nothing more is begun here: first the list is read again."""
        if self.watch.count() == self.sleeps:
            return False
        if not self.drains:
            self.drain()
        return True

    def set_aside(self, order: LeasedOrder, error: Exception) -> None:
        """An order cannot be written as a request at all: it stays planned, and the others go on."""
        self.leases.set_aside()
        self.aside.append(f"{order.claimed.request_id} ({error})")
        self.wake()

    def wake(self) -> None:
        """Something has changed: whoever claims chunks looks again, and as many workers as can go."""
        self.hint()
        self._wake_workers()

    def hint(self) -> None:
        """Something may have changed: what claims chunks looks again, and what keeps leases."""
        self._news.set()
        self._news = asyncio.Event()

    def _wake_workers(self) -> None:
        if self._idle:
            for _ in range(self._count_to_wake()):
                waiting = self._idle.popleft()
                if not waiting.done():  # else it was cancelled
                    waiting.set_result(None)

    def rest(self) -> asyncio.Future[Handed | None]:
        """What a worker waits for: that there may be an order to send, or is one, or that nothing more is begun."""
        waiting: asyncio.Future[Handed | None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiting)
        return waiting

    def reserve(self, amount: Decimal) -> asyncio.Future[Handed | None] | None:
        """A worker for an order that is being put, which the fuse has counted; ``None`` where it has to wait its turn.

        It is to be handed the order, or to be let go. That anything may be sent was asked just before.
        """
        if self.drains or self.leases.ready or not self.payments.is_logged_in:
            return None
        while self._idle and self._idle[0].done():  # it was cancelled
            self._idle.popleft()
        if not self._idle or self.meter.lacks_balance:
            return None
        if self.turns.is_limited and not self.turns.is_due():
            self.turns.missed += 1
            self._wants_turns.set()  # which is written down beside the order
            return None
        if not self.pace.may_go():
            return None
        if self.meter.reserve(amount) is not None:
            self.pace.did_not_go()
            return None
        if self.turns.is_limited:
            self._take_turn()
        return self._idle.popleft()

    def let_go(self, worker: asyncio.Future[Handed | None], amount: Decimal) -> None:
        """A worker that was reserved has nothing to send after all."""
        self.meter.give_back(amount)
        self.pace.did_not_go()
        if not worker.done():
            worker.set_result(None)

    def _count_to_wake(self) -> int:
        """How many of the workers that wait would find something to do: thousands of them look in vain otherwise."""
        if self.drains:
            return len(self._idle)
        waiting = self._count_waiting()
        if not self.turns.is_limited:
            return waiting
        due = self.turns.count_due()
        if due < waiting:
            self._wants_turns.set()
        return min(due, waiting)

    def _count_waiting(self) -> int:
        """How many workers would go now if it were their turn."""
        if self.drains or self.meter.lacks_balance:
            return 0
        return min(self.pace.places(len(self._idle)), self.leases.count_ready(), len(self._idle))

    def tried(self, signal: Signal) -> None:
        """An order was tried, and the journal does not know it yet."""
        if signal is not Signal.NOT_SENT:
            self.sent += 1
            self.meter.ended(signal)

    def done(self, order: LeasedOrder) -> None:
        """The end of an order is written down.

        Where it was the last one in hand, more is looked for; but not for each order that is put and sent here alone.
        """
        is_put_here = order.lease.fills and not order.lease.lost
        if self.leases.done(order) or self.meter.wants_balance or not (self.leases.open or is_put_here):
            self.wake()

    def has_plenty(self) -> bool:
        """Whether no further chunk is wanted at the moment."""
        return self.leases.has_plenty(self.size)

    @abstractmethod
    async def refresh(self) -> object:
        """Look into the journal, and tell how far it is."""

    async def look_after(self) -> None:
        """See about once a second whether anything has changed."""
        await self.refresh()

    @abstractmethod
    async def claim_more(self) -> bool:
        """Lease one more chunk; tells whether there was one."""

    @abstractmethod
    async def is_through(self) -> bool:
        """Whether nothing is left to do, here or anywhere else."""

    async def _claim(self) -> None:
        """Give back chunks that are finished, and keep enough others until there are no more anywhere.

        Those of others are waited for.
        """
        leases, clock, had = self.leases, self.executor.clock, 0
        while not self.drains:
            is_one_back = await self.survives(leases.give_back_finished())
            self._is_full = self.has_plenty()
            if is_one_back or (had and not leases.open):
                self._ask_again = 0.0  # a chunk is finished, or all that was in hand
            had = leases.open
            if self._is_full or clock() < self._ask_again:
                await self._hear(None if self._is_full else self._ask_again - clock())
                continue
            self._ask_again = clock() + self.ask_again  # before: what is written meanwhile is looked for at once
            if await self.survives(self.claim_more()):
                self._ask_again = 0.0
                self.wake()
            elif not leases.open and await self.survives(self.is_through()):
                if self.aside:
                    orders = f"{len(self.aside)} orders cannot be written as a request, such as {self.aside[0]}"
                    self.end(orders)
                self.drain()

    async def _hear(self, seconds: float | None) -> None:
        """Wait until something has changed, for so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    @property
    def _is_idle(self) -> bool:
        """Whether nothing in hand waits for a moment, and all else is heard of."""
        return self.is_told and not self.leases.open and not self.meter.wants_balance

    async def _tick(self, seconds: float) -> None:
        """Wait until it is to be looked what is due: for so many seconds at most, where nothing is in hand."""
        if self._is_idle:
            await self._hear(seconds)
        else:
            await self.executor.sleep(_TICK)

    async def _keep(self, lease: float) -> None:
        """Renew leases and our say in the pace every third of their time, tell how far it is, wake who waits.

        Hear of the pace of all, and have all hear of a pause that the service asks us for.
        """
        clock, seen = self.executor.clock, -1
        renewed = told = heard = clock()
        while True:
            await self._tick(min(_REFRESH if self.written == seen else _HEAR, lease / 3))
            now = clock()
            if now - renewed >= lease / 3:
                renewed = now
                await self.survives(self.leases.renew())
                if self.rate is not None:
                    heard = now
                    await self.survives(self._follow_pace(lease))
            await self._tell_of_pause(now)
            if now - heard >= _HEAR and not (self.is_told and seen == self.written):
                heard, seen = now, self.written
                await self.survives(self._follow_pace(lease, names=False))
            if now - told >= _REFRESH:
                told = now
                await self.survives(self.look_after())
            if self.meter.wants_balance and not self.drains:
                await self.read_balance()
            if self.stop is not None and self.stop.is_set():
                self.end(ASKED_TO_STOP)
            if not self._is_idle:
                self.wake()

    async def _tell_of_pause(self, now: float) -> None:
        """Have all hear of a pause that the service asks us for."""
        asked = self.pace.asked
        if asked is not None:
            self.pace.asked, (until, words) = None, asked
            if until > max(self._told_until + _TICK, now):
                self._told_until = until
                await self.survives(self.journal.cool_down(until - now, why=words[:_LONGEST]))

    async def _follow_pace(self, lease: float, *, names: bool = True) -> None:
        """Keep to the pace of all, after saying at which rate all may send, where that was asked for."""
        if names and self.rate is not None:
            self._keep_to(await self.journal.request_rate(self.leases.owner, self.rate, lease=lease))
        else:
            self._keep_to(await self.journal.pace())

    def _keep_to(self, shared: SharedRate) -> None:
        """Go no faster than all do."""
        self.pace.hold(shared.cools_for)
        self.turns.follow(shared.rate)
        counts = self.turns.rate
        if self.rate is None or counts >= self.rate:
            self._overruled = None
        elif counts != self._overruled:
            self._overruled = counts
            words = "others on the journal ask for %g orders a second, which counts, and not the %g asked for here"
            _log.warning(words, counts, self.rate, extra={"owner": self.leases.owner, "rate": counts})

    async def _keep_turns(self) -> None:
        """Have turns at hand while there are orders for them, and wake workers when it is their turn."""
        clock, sleep = self.executor.clock, self.executor.sleep
        while True:
            await self._wants_turns.wait()
            self._wants_turns.clear()
            if self.drains or not self.turns.is_limited:
                continue
            if count := self.turns.wanted(self._count_waiting()):
                asked_at = clock()
                await self.survives(self._reserve(count, asked_at))
                self._wake_workers()
            if self._count_waiting() and not self.drains:
                await sleep(min(max(self.turns.next_in() or 0.0, _GRAIN), _TICK))
                self._wants_turns.set()
                self._wake_workers()

    async def _reserve(self, count: int, asked_at: float) -> None:
        """Reserve turns of the rate of all."""
        turns = await self.journal.reserve_turns(count)
        self.pace.hold(turns.pace.cools_for)
        self.turns.add(turns, asked_at)

    async def _give_back(self) -> None:
        """Give every chunk back, and our say in the pace."""
        await self.leases.give_back_all()
        if self.rate is not None:
            await self.journal.withdraw_rate(self.leases.owner)

    async def read_balance(self) -> None:
        """Ask for the balance, which the fuse wants."""
        try:
            account = await self.payments.accounts.get()
        except PaymentsError as error:
            self.meter.read_balance(None)
            if self.meter.lacks_balance:
                self.lacks_balance(error.message)
        else:
            self.meter.read_balance(account.balance)

    def lacks_balance(self, why: str) -> None:
        """The balance could not be read, and never was before."""
        self.end(f"the balance could not be read: {why}")

    async def survives(self, awaitable: Awaitable[object]) -> bool:
        """What comes of it; where the journal fails, the worker pool drains."""
        try:
            return bool(await awaitable)
        except JournalError as error:
            self.fail(error)
            return False


class _Tried(NamedTuple):
    """An order that was tried, whose outcome rides with the next permit."""

    order: LeasedOrder
    outcome: Outcome
    retry_after: float | None = None


class _Worker:
    """One of the places for orders under way. It never has more than one permit."""

    def __init__(self, pool: WorkerPool) -> None:
        self._worker_pool = pool
        self._clock = pool.executor.clock
        self._after: _Tried | None = None

    async def work(self) -> None:
        """Send until the worker pool drains. What was sent is written down even when this is cancelled."""
        pool = self._worker_pool
        try:
            while True:
                order = pool.next_order()
                if order is not None:
                    await self._try(order)
                elif self._after is not None:
                    await self._write_down()
                elif pool.drains:
                    return
                else:
                    await self._rest()
        finally:
            if self._after is not None:
                await finished(self._write_down())

    async def _rest(self) -> None:
        """Wait until there may be something to do; an order that is handed over permitted is sent."""
        waiting = self._worker_pool.rest()
        try:
            handed = await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and (handed := waiting.result()) is not None:
                order, permit = handed
                self._note(
                    order, Outcome(permit=permit, signal=Signal.NOT_SENT, message="broken off before it was sent")
                )
            raise
        if handed is not None:
            await self._go(*handed)

    async def _go(self, order: LeasedOrder, permit: Permit) -> None:
        """Send an order that is permitted, as long as its lease is surely good."""
        if self._clock() >= order.lease.good_until:
            # we stalled: the lease has run out since the permit was granted, and somebody may hold the order now
            self._worker_pool.pace.did_not_go()
            late = Outcome(permit=permit, signal=Signal.NOT_SENT, message="the lease ran out before it was sent")
            self._note(order, late)
        else:
            await self._send(order, permit)

    async def _try(self, order: LeasedOrder) -> None:
        """Get a permit, writing down with it how the order before ended, and send."""
        pool, before = self._worker_pool, self._after
        if not pool.payments.is_logged_in and not await self._log_in(order):
            return
        try:
            granted = await pool.journal.permit(
                order.lease.chunk, order.claimed, after=None if before is None else before.outcome
            )
        except asyncio.CancelledError:
            self._after = None  # the journal has it all the same
            raise
        except JournalError as error:
            pool.fail(error)
            pool.pace.did_not_go()
            return
        self._after = None
        if before is not None:
            self._written(before, granted.after_ended_at if isinstance(granted, Permit) else None)
        if not isinstance(granted, Permit):
            self._not_permitted(order, granted)
        else:
            await self._go(order, granted)

    async def _log_in(self, order: LeasedOrder) -> bool:
        """Log in before there is a permit, so that a login that fails leaves the order as it is."""
        pool = self._worker_pool
        try:
            await pool.payments.log_in()
        except PaymentsError as error:
            pool.meter.give_back(order.claimed.amount)
            pool.leases.put_back(order)
            self._trouble(error)
            if isinstance(error, AuthenticationFailed):
                pool.refused(error.message)
            return False
        except BaseException:
            pool.pace.did_not_go()
            raise
        return True

    def _not_permitted(self, order: LeasedOrder, refusal: NotPermitted) -> None:
        """The journal let an order not go: it is somebody else's now, or something is known of it."""
        pool = self._worker_pool
        pool.meter.give_back(order.claimed.amount)
        if refusal.lease_lost:
            pool.leases.drop(order.lease)
        pool.done(order)
        pool.pace.did_not_go()
        if order.tell is not None:
            order.tell(None, None)

    async def _send(self, order: LeasedOrder, permit: Permit) -> None:
        """Send an order once, and note how that ended, whatever happens."""
        pool, claimed = self._worker_pool, order.claimed
        try:
            call, order.call = order.call, None
            if call is None or permit.sent_before:
                call = pool.call_of(
                    claimed.request_id,
                    claimed.amount,
                    claimed.body,
                    sent_before=permit.sent_before,
                    private=lambda: private_texts(claimed.order),
                )
            call.attempt, call.traceparent = permit.attempt, claimed.traceparent
            clock, lease, note, books = self._clock, order.lease, pool.note_departure, pool.executor.books
            if books.knows(claimed.request_id) or books.is_open(claimed.request_id):  # it may have left without us
                note(permit)

            def may_leave() -> bool:
                note(permit)
                return not pool.has_slept() and clock() < lease.good_until  # asked last: a connection takes time

            pool.under_way.add(claimed.request_id)
            acceptance = await pool.executor.execute(call, retry=_ONE_TRY, may_leave=may_leave)
        except (ValueError, TypeError) as error:  # an InvalidOrder too: the session has sent another one under its id
            self._note(order, _unwritable(permit, error, left=self._left(order), holds_back=pool.holds_back))
            await self._write_down(aside=error)
        except PaymentsError as error:
            self._note(order, _refused(permit, error), error.retry_after)
            self._trouble(error)
        except BaseException as error:
            left = self._left(order) or pool.payments.knows(claimed.request_id)  # found by somebody meanwhile
            self._note(order, _broken_off(permit, error, left=left))
            raise
        else:
            pool.pace.answered()
            accepted = Outcome(
                permit=permit,
                signal=Signal.ACCEPTED,
                transaction_id=acceptance.transaction_id,
                correlation_id=acceptance.correlation_id,
            )
            self._note(order, accepted)
        finally:
            pool.under_way.discard(claimed.request_id)

    def _left(self, order: LeasedOrder) -> bool:
        """Whether a byte of it may have left."""
        return self._worker_pool.executor.books.is_open(order.claimed.request_id)

    def _note(self, order: LeasedOrder, outcome: Outcome, retry_after: float | None = None) -> None:
        """Keep how a try ended until it is written down."""
        self._worker_pool.tried(outcome.signal)
        self._after = _Tried(order, outcome, retry_after)

    def _trouble(self, error: PaymentsError) -> None:
        """What an error says of the service: slow down, or stop."""
        pace = self._worker_pool.pace
        match error:
            case AuthenticationFailed():
                # a fresh token was refused; a few times it may have been revoked since, by a login elsewhere for one
                pace.failed(error.message)
                if pace.is_stuck:
                    self._worker_pool.refused(error.message)
            case NotSent() if error.status == _UNREAD:
                pace.did_not_go()
            case Rejected():
                pace.answered()
            case _:  # it was not sent, or nobody knows, or the login failed for now
                pace.failed(
                    error.message,
                    retry_after=error.retry_after,
                    silent=error.status is None,
                    turned_away=error.status == _NO_MORE or error.retry_after is not None,
                )
        if pace.gave_up is not None:
            self._worker_pool.end(pace.gave_up)

    async def _write_down(self, *, aside: Exception | None = None) -> None:
        """Write down how the last try ended, without a next one."""
        tried, self._after = self._after, None
        if tried is not None and (found := await self._recorded(tried.outcome)) is not None:
            self._written(tried, found.ended_at, aside=aside)

    async def _recorded(self, outcome: Outcome) -> TransitionResult | None:
        """Write an outcome down, several times if need be; ``None`` where the journal does not have it."""
        pool = self._worker_pool
        for turn in range(_WRITES):
            try:
                return await pool.journal.record(outcome)
            except JournalUnavailable as error:
                pool.fail(error)
                if isinstance(error, JournalClosed):
                    return None
                await pool.executor.sleep(_WRITE_WAIT * 2**turn)
            except JournalError as error:
                pool.fail(error)
                return None
        return None

    def _written(self, tried: _Tried, ended_at: float | None, *, aside: Exception | None = None) -> None:
        """The journal knows how a try ended: count it, or have it go again."""
        pool, order, signal = self._worker_pool, tried.order, tried.outcome.signal
        if signal is not Signal.NOT_SENT:
            outcome = tried.outcome
            if _log.isEnabledFor(logging.INFO):
                facts = {
                    "request_id": order.claimed.request_id,
                    "attempt": outcome.permit.attempt,
                    "transaction_id": outcome.transaction_id,
                    "correlation_id": outcome.correlation_id,
                }
                words = "order %s is %s, by attempt %d"
                _log.info(words, order.claimed.request_id, signal.value, outcome.permit.attempt, extra=facts)
            pool.meter.written(signal, order.claimed.amount)
            pool.done(order)
            if order.tell is not None:
                order.tell(tried.outcome, ended_at)
            return
        pool.meter.give_back(order.claimed.amount)
        if aside is not None:
            pool.set_aside(order, aside)
            return
        order.tries += 1
        pool.leases.again(order, pool.pace.again_after(order.tries, tried.retry_after))


def _refused(permit: Permit, error: PaymentsError) -> Outcome:
    """The try raised one of the errors that a payout may raise."""
    match error:
        case NotSent() | AuthenticationFailed():  # credentials are refused before anybody reads the order
            signal = Signal.NOT_SENT
        case Rejected():
            signal = Signal.REJECTED
        case _:
            signal = Signal.UNKNOWN
    return Outcome(
        permit=permit,
        signal=signal,
        transaction_id=error.transaction_id if signal is Signal.UNKNOWN else None,
        code=error.code,
        message=error.message[:_LONGEST],
        correlation_id=error.correlation_id,
    )


def _broken_off(permit: Permit, error: BaseException, *, left: bool) -> Outcome:
    """The try was cancelled, or failed in a way nobody foresaw.

    Args:
        left: Whether a byte of it may have left.
    """
    signal = Signal.UNKNOWN if left else Signal.NOT_SENT
    return Outcome(permit=permit, signal=signal, message=f"broken off ({type(error).__name__})")


def _unwritable(permit: Permit, error: Exception, *, left: bool, holds_back: bool) -> Outcome:
    """The try was refused before it was made, nearly always: the order is none that can be written as a request."""
    if left:
        return _broken_off(permit, error, left=True)
    words = f"it cannot be sent as it is ({type(error).__name__})"  # its own would quote the order
    return Outcome(permit=permit, signal=Signal.NOT_SENT, message=words, holds_back=holds_back)

"""A shift: what all slots of one process share while they work on one batch, and what ends it. Sends nothing itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import attrs

from payments_async._errors import PaymentsError
from payments_async._session import PaymentsSession
from payments_async._wire import endpoints
from payments_async.journal._contract import Journal
from payments_async.journal._faults import JournalError
from payments_async.journal._records import Progress
from payments_async.journal._states import News
from payments_async.outbox._fuse import Meter
from payments_async.outbox._holdings import Holdings, Job
from payments_async.outbox._looking_first import Looked
from payments_async.outbox._pace import Pace

__all__ = ["RunProgress", "Shift"]

_log = logging.getLogger("payments_async")

_TICK = 0.1  # seconds between two looks at what is due
_REFRESH = 1.0  # seconds between two looks into the journal
_ASK_AGAIN = 0.5  # seconds until free chunks are looked for again where there was none


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
    looked: Looked | None = None


Tell = Callable[[RunProgress], object]


class Shift:
    """One run of one batch in this process.

    Args:
        slots: Orders under way at once.
        stop: Set from outside to finish what is under way and end.
        tell: Hears how far it is.
        looked: What was looked for before.

    Attributes:
        call_of: Describes the sending of an order.
        stopped: Why it ends early, or ``None``.
        failure: What ends it with an error, or ``None``.
        over: Nothing more is begun.
        sent: Orders sent.
    """

    def __init__(
        self, payments: PaymentsSession, journal: Journal, batch_id: str, *, holdings: Holdings, meter: Meter,
        pace: Pace, slots: int, stop: asyncio.Event | None = None, tell: Tell | None = None,
        looked: Looked | None = None,
    ) -> None:  # fmt: skip
        self.payments = payments
        self.call_of = endpoints.sends_written(payments.dialect)
        self.journal = journal
        self.batch_id = batch_id
        self.holdings = holdings
        self.meter = meter
        self.pace = pace
        self.slots = slots
        self.stopped: str | None = None
        self.failure: Exception | None = None
        self.over = False
        self.sent = 0
        self._aside: list[str] = []
        self._is_full = False  # whoever claims chunks rests until fewer orders are in hand
        self._ask_again = 0.0  # when to look for free chunks again
        self._waits_for: tuple[str, float] | None = None  # whose lease, and when it ends
        self._stop = stop
        self._tell = tell
        self._looked = looked
        self._begun = payments.clock()
        self._news = asyncio.Event()

    def end(self, why: str) -> None:
        """Begin nothing more, and say why; what is under way is finished. The first reason stands."""
        if not self.over:
            self.stopped = why
            _log.warning("the run stops", extra={"batch_id": self.batch_id, "why": why})
        self.close()

    def fail(self, error: Exception) -> None:
        """Begin nothing more, and raise this when what is under way is finished. The first error stands."""
        if self.failure is None:
            self.failure = error
        self.close()

    def close(self) -> None:
        """Begin nothing more."""
        self.over = True
        self.wake()

    def next_job(self) -> Job | None:
        """An order to be tried now, already counted by the fuse; ``None`` when there is none at the moment."""
        if self._stop is not None and self._stop.is_set():
            self.end("it was asked to stop")
        if self.over or self.meter.lacks_balance or not self.pace.may_go():
            return None
        job = self.holdings.take()
        if job is None:
            self.pace.did_not_go()
            return None
        why = self.meter.reserve(job.claimed.amount)
        if why is not None:
            self.holdings.put_back(job)
            self.end(why)
            return None
        if self._is_full and not self.holdings.has_plenty(self.slots):
            self.wake()
        return job

    def set_aside(self, job: Job, error: Exception) -> None:
        """An order cannot be written as a request at all: it stays planned, and the others go on."""
        self.holdings.set_aside()
        self._aside.append(f"{job.claimed.request_id} ({error})")
        self.wake()

    def wake(self) -> None:
        """Something has changed: everybody who waits looks again."""
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self) -> None:
        """Wait until something has changed."""
        await self._news.wait()

    async def claim(self) -> None:
        """Give back chunks that are finished, and keep enough others until there are no more anywhere.

        Those of others are waited for.
        """
        holdings, clock = self.holdings, self.payments.clock
        while not self.over:
            await self._survives(holdings.give_back_finished())
            self._is_full = holdings.has_plenty(self.slots)
            if self._is_full or (holdings.open and clock() < self._ask_again):
                await self.wait()
            elif await self._survives(holdings.claim()):
                self._waits_for = None
                self.wake()
            elif not self.over:
                self._ask_again = clock() + _ASK_AGAIN
                if not holdings.open and await self._survives(self._is_through()):
                    self._through()
                else:
                    await self.wait()

    async def keep(self, lease: float) -> None:
        """Renew leases every third of their time, tell how far it is, and wake who waits for a moment."""
        clock, sleep = self.payments.clock, self.payments.sleep
        renewed = told = clock()
        while True:
            await sleep(_TICK)
            now = clock()
            if now - renewed >= lease / 3:
                renewed = now
                await self._survives(self.holdings.renew())
            if now - told >= _REFRESH:
                told = now
                await self._survives(self.refresh())
            if self.meter.wants_balance and not self.over:
                await self.read_balance()
            if self._stop is not None and self._stop.is_set():
                self.end("it was asked to stop")
            self.wake()

    async def refresh(self) -> RunProgress:
        """Look into the journal, and tell."""
        progress = await self.journal.progress(self.batch_id)
        self.meter.refresh(progress)
        now = self.payments.clock()
        owner, until = self._waits_for or (None, now)
        report = RunProgress(
            counts=progress.counts, sums=progress.sums, conflicts=progress.conflicts, stopped=self.stopped,
            sent=self.sent, seconds=now - self._begun, waits_for=owner, lease_left=max(until - now, 0.0),
            looked=self._looked,
        )  # fmt: skip
        try:
            if self._tell is not None:
                self._tell(report)
        except Exception as error:  # noqa: BLE001 - a broken display must not break off what is under way
            self.fail(error)
        return report

    async def read_balance(self) -> None:
        """Ask for the balance, where the fuse wants it."""
        try:
            account = await self.payments.accounts.get()
        except PaymentsError as error:
            self.meter.read_balance(None)
            if self.meter.lacks_balance:
                self.end(f"the balance could not be read: {error.message}")
        else:
            self.meter.read_balance(account.balance)

    def ended(self, news: News) -> None:
        """An order was tried, and the journal does not know it yet."""
        if news is not News.NOT_SENT:
            self.sent += 1
            self.meter.ended(news)

    def done(self, job: Job) -> None:
        """The end of an order is written down."""
        if self.holdings.done(job) or not self.holdings.open:
            self.wake()

    async def _is_through(self) -> bool:
        chunks = await self.journal.chunks(self.batch_id)
        if chunks.quarantined:
            self.end(
                f"chunks in quarantine, since the journal was copied or restored, or its orders were adopted: "
                f"{chunks.quarantined}; reconcile, then lift it"
            )
        is_through = not chunks.open and chunks.leased <= self.holdings.held
        owner, left = chunks.next_owner, chunks.next_expiry
        if is_through or owner is None or left is None:
            self._waits_for = None
        else:
            self._waits_for = owner, self.payments.clock() + left
        return is_through

    def _through(self) -> None:
        if self._aside:
            self.end(f"{len(self._aside)} orders cannot be written as a request, such as {self._aside[0]}")
        self.close()

    async def _survives(self, awaitable: Awaitable[object]) -> bool:
        try:
            return bool(await awaitable)
        except JournalError as error:
            self.fail(error)
            return False

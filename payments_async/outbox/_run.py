"""A run of a batch: what the service shows of it already is looked for, then every other order is sent once."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from os import PathLike

import attrs

from payments_async._session.lists import Reader
from payments_async._session.session import PaymentsSession, check_session, executor_of
from payments_async._values.checks import check_filled, check_instance
from payments_async._values.errors import AuthenticationFailed
from payments_async._values.observing import watched
from payments_async._wire.orders import Order
from payments_async.journal import Journal
from payments_async.journal._faults import LoadBusy, OrdersDiffer
from payments_async.journal._places import check_journal
from payments_async.journal._records import GRACE, INTERVAL, Run, TakeoverAuthorisation
from payments_async.journal._states import State
from payments_async.outbox._brakes import Backoff, Budget, Fuse, SleepWatch
from payments_async.outbox._leases import Leases
from payments_async.outbox._reconcile import look_up_unknown
from payments_async.outbox._scans import DateRange, ListScanner, account_of
from payments_async.outbox._sent_by_session import sent_by_session
from payments_async.outbox._settings import BatchTerms, LookFirst, RunSettings, plan_of
from payments_async.outbox._worker_pool import ASKED_TO_STOP, FirstLook, RunProgress, WorkerPool

_log = logging.getLogger("payments_async")

_TELL_EVERY = 1.0  # seconds
_STEP = 1.0  # seconds of a wait after which it is looked whether the run was asked to stop
_LOAD_AGAIN = 0.5  # seconds between two tries while another process loads the batch
_UNFUSED = Fuse()


async def run_batch(
    payments: PaymentsSession,
    journal: Journal,
    batch_id: str,
    orders: Iterable[Order] | AsyncIterable[Order] | None = None,
    *,
    fuse: Fuse | None = None,
    progress: Callable[[RunProgress], object] | None = None,
    stop: asyncio.Event | None = None,
    settings: RunSettings = RunSettings(),  # noqa: B008 - frozen
    terms: BatchTerms = BatchTerms(),  # noqa: B008 - frozen
) -> RunProgress:
    """Send every planned order of a batch, written down before and after, and tell how the batch stands.

    The same call goes on after any death, and changes nothing once the batch is through. Several processes may run
    one batch on one journal; each returns when all of it is through, so chunks of a process that died are waited for
    until their lease runs out. Orders left unknown by an earlier run are looked up first, and never sent again.

    Before its first order is sent, each run reads the service's list to its end, from before the batch was made: what
    it shows was sent already, by another journal or by this one before it was restored, and is never sent again. An
    order that agrees is accepted and shown as a conflict, unless it is in quarantine; one that does not is parked. A
    list that cannot be read to its end stops the run. That an order is not in the list proves nothing: it may show it
    late. If the machine sleeps for more than a minute, the run reads the list again before it sends anything more.

    Cancelling it breaks off what is under way, and writes down as unknown what may have left; set ``stop`` to finish
    that first.

    Args:
        payments: An open session. Its login, address and user are noted in the journal.
        orders: A plan, or all orders of the batch, read once; ``None`` goes on with what the journal holds. Payees are
            compared by a plan only.
        fuse: When to stop by itself; never by default.
        progress: Called about once a second, and at the end.
        stop: Set it to begin nothing more, finish what is under way and return.
        settings: How fast and how patiently.
        terms: What the batch was approved as.

    Raises:
        HeldElsewhere: Another journal of this machine, or this one before it was restored, holds some of these orders
            and may have sent them. Nothing was sent.
        InvalidOrder: The session has sent another order under one of its request ids. Nothing was sent.
        OrdersDiffer: The journal holds another order under one of these request ids, or other orders under this
            batch; or the batch belongs to an outbox, which sends it. Nothing was sent.
        NotApproved: Too few have approved it. Nothing was written down or sent.
        NotCompared: Its plan does not know another batch of the journal. Nothing was sent.
        WrongAccount: The journal is about another account or service.
        LoadBusy: Another process, or another journal, loads these orders for longer than ``patience``; or it took them
            over in the middle, and they can be read only once. Nothing was sent.
        RunUnknown: ``orders`` is ``None`` and the journal does not hold the batch, or not all of it.
        JournalUnavailable: The journal cannot be written. What was under way was finished.
    """
    check_session(payments)
    check_journal(journal)
    check_filled("batch_id", batch_id)
    if isinstance(orders, str | bytes | PathLike):
        raise TypeError("orders: expected orders, not a file's name: pass (await read_batch(path)).orders")
    check_instance("settings", settings, RunSettings, "RunSettings(...)")
    check_instance("terms", terms, BatchTerms, "BatchTerms(...)")
    if fuse is not None and check_instance("fuse", fuse, Fuse, "Fuse(...)").max_per_day is not None:
        raise ValueError("max_per_day: the rule of an outbox; a batch has max_total")
    now, patience = settings.testing.now or time.time, settings.patience
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"  # no two runs share a name
    identity = account_of(payments)
    digest, compared = plan_of(orders, terms.source_digest)
    if orders is None:
        await journal.run(batch_id)  # before it is opened: a batch of a mistyped name must not come to be
    begun = await journal.open_run(
        batch_id,
        identity,
        source_digest=digest,
        policy=terms.policy,
        approvals=terms.approvals,
        compared=compared,
    )
    if begun.outbox is not None:
        raise OrdersDiffer(f"batch {batch_id} belongs to the outbox {begun.outbox}, which sends it")
    if orders is not None:
        await _load(
            payments, journal, batch_id, orders, owner, patience=patience, adoption=terms.adoption, tell=progress
        )
    await journal.expire_chunks(batch_id)
    executor, run = executor_of(payments), await journal.run(batch_id)
    watch = SleepWatch(batch_id=batch_id, now=now, clock=executor.clock)
    before: BatchWorker | None = None  # its machine has slept
    with watched(executor.observer, "batch", batch_id=batch_id) as work:
        while True:
            sleeps = watch.count()
            looked, refused = await _look(
                payments, journal, run, settings, has_slept=before is not None, now=now, stop=stop, tell=progress
            )
            pool = BatchWorker(
                payments=payments,
                journal=journal,
                batch_id=batch_id,
                leases=Leases(journal, owner=owner, seconds=settings.lease, clock=executor.clock),
                meter=Budget(fuse or _UNFUSED, await journal.progress(batch_id)),
                pace=Backoff(patience, clock=executor.clock),
                watch=watch,
                sleeps=sleeps,
                size=settings.concurrency,
                rate=settings.rate,
                stop=stop,
                tell=progress,
                looked=looked,
            )
            if before is not None:
                pool.begun, pool.sent, pool.looked = before.begun, before.sent, looked or before.looked
            if refused is not None:
                pool.end(refused)
            await pool.work(settings.lease)
            if pool.stopped is not None or not pool.has_slept():
                break
            before = pool
        ended = await pool.refresh()
        work.tell(unknown=ended.counts.get(State.UNKNOWN, 0), stopped=ended.stopped is not None)
        return ended


async def _look(
    payments: PaymentsSession,
    journal: Journal,
    run: Run,
    settings: RunSettings,
    *,
    has_slept: bool,
    now: Callable[[], float],
    stop: asyncio.Event | None,
    tell: Callable[[RunProgress], object] | None,
) -> tuple[FirstLook | None, str | None]:
    """Look for what was sent already, where that is due, and why nothing may be sent now."""
    looked = None
    if stop is not None and stop.is_set():
        return None, None  # nothing is asked, and nothing is sent
    try:
        if await _is_look_due(journal, run, settings.look_first, back=settings.look_back, has_slept=has_slept):
            looked = await take_first_look(
                payments,
                journal,
                run,
                back=settings.look_back,
                patience=settings.patience,
                now=now,
                stop=stop,
                tell=tell,
            )
            if (why := why_not(looked)) is not None:
                return looked, why
        await look_up_unknown(payments, journal, run.batch_id, is_listed=looked is not None)
    except AuthenticationFailed as error:
        return looked, f"the credentials were refused: {error.message}"
    return looked, None


async def _load(
    payments: PaymentsSession,
    journal: Journal,
    batch_id: str,
    orders: Iterable[Order] | AsyncIterable[Order],
    owner: str,
    *,
    patience: float,
    adoption: TakeoverAuthorisation | None,
    tell: Callable[[RunProgress], object] | None,
) -> None:
    """Write all orders down, once no other process loads them."""
    executor = executor_of(payments)
    deadline = executor.clock() + patience
    while True:
        try:
            sent = partial(sent_by_session, payments, journal)
            _, compared = plan_of(orders, None)
            await journal.load(batch_id, orders, owner=owner, adoption=adoption, sent=sent, compared=compared)
        except LoadBusy as error:
            is_read_once = isinstance(orders, Iterator | AsyncIterator)
            if executor.clock() >= deadline or (error.owner is None and is_read_once):
                raise  # without an owner it came in the middle: what was read is gone, and the rest is not the batch
            if tell is not None:
                so_far = RunProgress.of(await journal.progress(batch_id))
                tell(attrs.evolve(so_far, waits_for=error.owner, lease_left=error.seconds))
            await executor.sleep(_LOAD_AGAIN)
        else:
            return


async def _is_look_due(journal: Journal, run: Run, way: LookFirst, *, back: float, has_slept: bool) -> bool:
    """Whether a run has to look before it sends: there is something to send, and no look of before is relied on.

    One of an earlier run says nothing of what was sent since, neither by another journal, nor by this one before its
    whole machine went back to a snapshot of the midst of the batch, state folder and all. A journal that may have
    forgotten is in doubt for as long as the list of ``back`` seconds reaches to what it forgot: a look compares only
    the orders that the journal has by then.

    Args:
        back: Seconds before the batch was made from which on the list is read.
        has_slept: The machine, since the last look of this run.
    """
    if way == "never":
        return False
    chunks = await journal.chunks(run.batch_id)
    if not chunks.open and not chunks.leased:
        return False  # what is in quarantine waits for a person
    if has_slept:
        return True
    if way == "in_doubt":
        if not await journal.is_known_here(run.batch_id):
            return True
        if await journal.is_looked_for(run.batch_id):
            return False
        return not await journal.is_looked_for() or run.look_since - await _forgot_until(journal) < back
    if not await journal.is_looked_for(run.batch_id):
        return True
    return (await journal.progress(run.batch_id)).counts[State.PLANNED] > 0


async def _forgot_until(journal: Journal) -> float:
    """Unix seconds until which the journal may have forgotten: when it was made, or was last copied or restored."""
    runs = await journal.runs()
    return max(min(run.look_since for run in runs), *(run.quarantined_at or 0.0 for run in runs))


async def take_first_look(
    payments: PaymentsSession,
    journal: Journal,
    run: Run,
    *,
    back: float,
    patience: float,
    now: Callable[[], float],
    stop: asyncio.Event | None,
    tell: Callable[[RunProgress], object] | None,
    remembers: bool = False,
    grace: float = GRACE,
    interval: float = INTERVAL,
) -> FirstLook:
    """Read the list of all days in which orders of a batch may have been sent; what it shows is not sent again.

    Args:
        back: Seconds before the batch was made, for another journal may have sent it.
        patience: Seconds for which a page that cannot be had is asked for again.
        now: Unix seconds.
        stop: Set it to break off.
        tell: Hears about once a second how far it is.
        remembers: What the list shows of orders that the journal does not hold is kept there, for they may come yet.
        grace, interval: Seconds, as in ``reconcile``.

    Raises:
        AuthenticationFailed: The service refused our credentials.
    """
    executor, so_far = executor_of(payments), RunProgress.of(await journal.progress(run.batch_id))
    clock = executor.clock
    begun = told = clock()

    async def sleep(seconds: float) -> None:
        while seconds > 0:
            if stop is not None and stop.is_set():
                raise _Stopped
            await executor.sleep(min(seconds, _STEP))
            seconds -= _STEP

    reader = Reader(payments.transactions.page, clock=clock, sleep=sleep, patience=patience)
    window = DateRange.to_now(min(run.look_since, now()) - back, now(), payments.dialect.timezone)
    scanner = ListScanner(payments, journal, reader, remembers=remembers, grace=grace, interval=interval)

    def looked(*, rows: int, counted: bool = False, problem: str | None = None) -> FirstLook:
        return FirstLook(
            since=window.since,
            until=window.until,
            rows=rows,
            requests=reader.requests,
            seconds=clock() - begun,
            found=scanner.findings.found,
            counted=counted,
            problem=problem,
        )

    def told_of() -> None:
        nonlocal told
        if stop is not None and stop.is_set():
            raise _Stopped
        if tell is not None and clock() - told >= _TELL_EVERY:
            told = clock()
            tell(attrs.evolve(so_far, looked=looked(rows=scanner.rows)))

    scanner.tell = told_of
    try:
        reading = await scanner.scan(window, [run.batch_id])
    except _Stopped:
        return looked(rows=scanner.rows, problem=ASKED_TO_STOP)
    return looked(rows=reading.rows, counted=reading.counted, problem=reading.problem)


@attrs.define(eq=False, repr=False, kw_only=True)
class BatchWorker(WorkerPool):
    """All workers of one process on one batch.

    Attributes:
        tell: Hears how far it is.
        looked: What was looked for before.
    """

    batch_id: str
    tell: Callable[[RunProgress], object] | None = None
    looked: FirstLook | None = None
    _waits_for: tuple[str, float] | None = attrs.field(init=False, default=None)  # whose lease, and when it ends

    def warn(self, why: str) -> None:
        _log.warning("the run of batch %s stops: %s", self.batch_id, why, extra={"batch_id": self.batch_id, "why": why})

    async def claim_more(self) -> bool:
        if await self.leases.claim(self.batch_id) is None:
            return False
        self._waits_for = None
        return True

    async def refresh(self) -> RunProgress:
        """Look into the journal, and tell."""
        progress = await self.journal.progress(self.batch_id)
        self.meter.refresh(progress)
        now = self.executor.clock()
        owner, until = self._waits_for or (None, now)
        report = attrs.evolve(
            RunProgress.of(progress),
            stopped=self.stopped,
            sent=self.sent,
            seconds=now - self.begun,
            waits_for=owner,
            lease_left=max(until - now, 0.0),
            looked=self.looked,
        )
        try:
            if self.tell is not None:
                self.tell(report)
        except Exception as error:  # noqa: BLE001 - a broken display must not break off what is under way
            self.fail(error)
        return report

    async def is_through(self) -> bool:
        """Whether no other process has anything of the batch either; notes whom it waits for otherwise."""
        chunks = await self.journal.chunks(self.batch_id)
        if chunks.quarantined:
            awaits = (await self.journal.run(self.batch_id)).awaits
            self.end(
                f"chunks in quarantine, since the journal was copied or restored, or its orders were adopted: "
                f"{chunks.quarantined}; reconcile, then lift it" + (f" ({awaits.words()})" if awaits else "")
            )
        is_through = not chunks.open and chunks.leased <= len(self.leases)
        owner, left = chunks.next_owner, chunks.next_expiry
        if is_through or owner is None or left is None:
            self._waits_for = None
        else:
            self._waits_for = owner, self.executor.clock() + left
        return is_through


class _Stopped(Exception):
    """Whoever runs the batch wants it to end."""


def why_not(looked: FirstLook) -> str | None:
    """Why nothing may be sent after a look: it was not finished."""
    if looked.problem in (None, ASKED_TO_STOP):
        return looked.problem
    return (
        f"the service's list of {looked.since.isoformat()} to {looked.until.isoformat()} was not read to its end "
        f"({looked.problem}), so orders in it that were sent before would be sent again; nothing was sent"
    )

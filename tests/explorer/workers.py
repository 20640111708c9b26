"""All ways in which one worker sends one order: under a lease that ends meanwhile, over a wire that breaks anywhere.

Worker, leases, session and journal are the package's own. In place of the HTTP client stands the wire of ``sessions``.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import attrs
from explorer.desks import NOON, Report
from explorer.journals import MemoryJournal, at_once
from explorer.sessions import _REFUSED, ANSWERS, BREAKS, HANGS_UP, _Answer, _Writer
from journal.factories import BATCH, IDENTITY, order

from payments_async import Credentials, Dialect, PaymentsSession
from payments_async._session.session import executor_of
from payments_async._values.errors import PaymentsError
from payments_async._values.testing import Testing
from payments_async.bulk import Fuse
from payments_async.journal import Signal
from payments_async.journal.contract import Outcome, Permit
from payments_async.outbox._brakes import Backoff, Budget, SleepWatch
from payments_async.outbox._leases import Leases
from payments_async.outbox._worker_pool import WorkerPool, _Worker

ONE = order(1)
LEASE, SLOW, LONG = 30.0, 25.0, 31.0  # seconds
MINUTE, HALF_A_DAY = 60.0, 43_200.0
CLOCKS = -2e5, -3600.0, -600.0, -10.0, 0.0, 10.0, 600.0, 3600.0, 40_000.0, 2e5  # by which the service's is ahead
NEW, BY_SESSION, WRITTEN_OFF = "new", "sent by the session before", "sent again by a person's word"
FATES = (
    "is accepted", "is refused", "is turned away", "is answered by a failure", "is lost", HANGS_UP, "never connects",
)  # fmt: skip
_TURNS = 60  # of the loop, after which all waits


@attrs.frozen(kw_only=True)
class Way:
    """How an order is sent.

    Attributes:
        before: What was done with it before.
        slow: Whether the answer to a claim, or to a renewal, comes late.
        connects: Seconds that a connection takes.
        fate: What becomes of the request.
    """

    before: str
    slow: str
    connects: float
    fate: str


class Pool(WorkerPool):
    """What one worker needs."""

    async def refresh(self) -> object:
        return None

    async def claim_more(self) -> bool:
        return False

    async def is_through(self) -> bool:
        return True


@attrs.define(eq=False)
class World:
    """A journal, and a service behind a wire."""

    journal: MemoryJournal
    way: Way
    wrong: str = ""
    before: bool = True  # what is sent now is sent before the worker comes
    may_be_done: bool = False
    marked: set[int] = attrs.field(factory=set)
    left: list[int] = attrs.field(factory=list)
    closed: bool = False
    task: asyncio.Task[Any] | None = None

    @property
    def now(self) -> float:
        """Unix seconds, and those of every other clock."""
        return self.journal.moment.now

    # in place of the HTTP client

    async def request(self, _method: str, url: Any, *, data: Any, **_: Any) -> _Answer:
        """Make a request; its fate is that of the way."""
        if "ogin" in str(url):
            await data.write_with_length(_Writer(lambda: None, has_answer=False), None)
            return _Answer(200, {"Token": "token", "success": True})
        fate = "is lost" if self.before else self.way.fate
        self.journal.moment.now += 0.0 if self.before else self.way.connects
        if fate == "never connects":
            raise ConnectionRefusedError
        await data.write_with_length(_Writer(self._leaves, has_answer=False), None)
        self.may_be_done |= fate in BREAKS
        if fate == HANGS_UP:
            assert self.task is not None
            self.task.cancel()
            await asyncio.get_running_loop().create_future()
        if fate in BREAKS:
            raise BREAKS[fate]
        status, body, may_be_done = ANSWERS[fate]
        self.may_be_done |= may_be_done
        return _Answer(status, body if body else _REFUSED)

    def _leaves(self) -> None:
        if self.before:
            return
        ((attempt, until),) = self.journal.connection.execute(
            "SELECT o.attempt, c.lease_until FROM outbox o, chunk c"
        ).fetchall()
        if attempt not in self.marked:
            self.wrong = "an order leaves, and is not marked"
        if until <= self.now:
            self.wrong = "an order leaves when its lease is over"
        if attempt in self.left:
            self.wrong = "an order leaves twice by one permit"
        self.left.append(attempt)

    async def go(self) -> str:
        """All of it; what is wrong."""

        async def sleep(seconds: float) -> None:
            self.journal.moment.now += seconds

        who = Credentials(app_key="key", app_password="word", user_id="user")
        testing = Testing(clock=lambda: self.now, now=lambda: self.now, sleep=sleep)
        session = PaymentsSession("http://127.0.0.1:9", who, dialect=Dialect(), testing=testing)
        vars(executor_of(session).transport)["_http"] = self
        await session.__aenter__()
        await session.log_in()
        if self.way.before == WRITTEN_OFF:
            await self._write_off()
        if self.way.before == BY_SESSION:
            with suppress(PaymentsError):
                await session.payouts.send(ONE)
        self.before = False
        await self._work(session)
        return self.wrong or self._judged(session)

    async def _write_off(self) -> None:
        """An attempt of which nothing is known; lists miss it, and a person has it sent again."""
        journal = self.journal
        chunk = await journal.claim_chunk(BATCH, "other", lease=LEASE)
        assert chunk is not None
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN))
        await journal.release_chunk(chunk)
        await journal.park(ONE.request_id, detail="lists")
        await journal.send_again(ONE.request_id, who="Ann", why="it never arrived")

    async def _work(self, session: PaymentsSession) -> None:
        executor, journal = executor_of(session), self.journal
        journal.moment.holder = "worker"
        leases = Leases(
            _Slow(journal, self.way), owner="worker", seconds=LEASE, clock=executor.clock, now=executor.clock
        )  # type: ignore[arg-type]
        progress = await journal.progress(BATCH)
        pool = Pool(
            payments=session, journal=journal, leases=leases, size=1, sleeps=0,
            watch=SleepWatch(now=executor.clock, clock=executor.clock),
            meter=Budget(Fuse(), progress), pace=Backoff(900.0, clock=executor.clock, chance=lambda: 0.5),
        )  # fmt: skip
        pool.note_departure = lambda permit: self.marked.add(permit.attempt)
        await leases.claim(BATCH)
        if self.way.slow == "renewal":
            await leases.renew()
        for held in leases.ready:  # as of who has put it
            held.call = pool.call_of(ONE.request_id, ONE.amount, held.claimed.body, sent_before=False, private=tuple)
        self.task = asyncio.get_running_loop().create_task(_Worker(pool).work())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        pool.drain()
        await asyncio.wait([self.task])

    def _judged(self, session: PaymentsSession) -> str:
        """What is wrong in the end."""
        ((state, attempts),) = self.journal.connection.execute("SELECT state, attempt FROM outbox").fetchall()
        if self.may_be_done and state in ("planned", "rejected") and (self.left or self.way.before == BY_SESSION):
            return f"the order is {state}, and may have been carried out"
        if self.way.before == WRITTEN_OFF and state == "rejected":
            return "the order is rejected, and may have been carried out before"
        if state == "unknown" and self.left and ONE.request_id not in session.unsettled:
            return "the session counts an order as settled that is unknown"
        if self.way.before == BY_SESSION and attempts and attempts not in self.marked:
            return "the session has sent the order, and its permit is not marked"
        if self.task is not None and self.task.done() and not self.task.cancelled() and self.task.exception():
            return f"the worker ended: {self.task.exception()!r}"
        return ""


class _Slow:
    """A journal whose answers come late."""

    def __init__(self, journal: MemoryJournal, way: Way) -> None:
        self._journal, self._way = journal, way

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def claim_chunk(self, *arguments: Any, **options: Any) -> Any:
        told = await self._journal.claim_chunk(*arguments, **options)
        self._journal.moment.now += SLOW if self._way.slow == "claim" else 0.0
        return told

    async def renew_chunk(self, *arguments: Any, **options: Any) -> Any:
        told = await self._journal.renew_chunk(*arguments, **options)
        self._journal.moment.now += SLOW
        return told


def ways() -> Iterator[Way]:
    """All of them."""
    for before, slow, connects, fate in itertools.product(
        (NEW, BY_SESSION, WRITTEN_OFF), ("", "claim", "renewal"), (0.0, LEASE - SLOW + 1, LONG), FATES
    ):
        yield Way(before=before, slow=slow, connects=connects, fate=fate)


def dated(journal: MemoryJournal, difference: float) -> str:
    """A permit by a clock that the service's differs from by so many seconds: lists are read from its day on."""
    journal.use_service_clock(lambda: NOON + difference)
    chunk = at_once(journal.claim_chunk(BATCH, "worker", lease=LEASE))
    assert chunk is not None
    permit = at_once(journal.permit(chunk, chunk.orders[0]))
    journal.use_service_clock(lambda: None)
    assert isinstance(permit, Permit)
    late, early = NOON + difference - permit.at, permit.at - NOON - difference
    is_wrong = early > HALF_A_DAY or MINUTE < late < HALF_A_DAY
    return f"a permit is dated {early:g} seconds after the service's clock" if is_wrong else ""


def search() -> Report:
    """See all of them."""
    began, count, wrong = time.perf_counter(), 0, ""
    journal, loop = MemoryJournal(whole=True), asyncio.new_event_loop()
    journal.moment.now = NOON
    at_once(journal.open_outbox(BATCH, IDENTITY))
    at_once(journal.put(BATCH, ONE))
    first = journal.image()
    try:
        for way in (*CLOCKS, *ways()):
            count += 1
            journal.touched()
            journal.restore(first)
            journal.moment.now, journal.moment.holder = NOON, "other"
            wrong = dated(journal, way) if isinstance(way, float) else loop.run_until_complete(World(journal, way).go())
            if wrong:
                return Report(
                    name="a worker", states=count, seconds=time.perf_counter() - began, wrong=wrong, history=(str(way),)
                )
    finally:
        loop.close()
        journal.connection.close()
    return Report(name="a worker", states=count, seconds=time.perf_counter() - began)

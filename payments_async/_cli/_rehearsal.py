"""One whole run of a batch against the simulated service: sent, heard, reconciled, judged. Goes on after any death."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal

import attrs

from payments_async import PaymentsSession, PayoutOrder
from payments_async._cli._board import Board
from payments_async._cli._demo_service import Books, DemoService, ServiceGone
from payments_async._cli._screen import Screen
from payments_async._cli._signals import draining
from payments_async._cli._tally import Tally, tally
from payments_async._cli._trouble import Faults
from payments_async._cli._verdict import Verdict, judge
from payments_async.bulk import reconcile, run_batch
from payments_async.journal import SqliteJournal, State

__all__ = ["BATCH", "Judged", "Rehearsal", "Setup"]

BATCH = "demo"
_LEASE = 3.0  # seconds; a demo that was killed is not waited for any longer
_PATIENCE = 10.0  # seconds without any answer, after which the run stops
_GRACE = 1.0  # seconds within which the lists may still come to show an order
_PAUSE = 0.3  # seconds between two looks at the lists
_LOOKS = 5.0  # seconds of looking for what is still open
_NEWS = 0.5  # seconds between two questions whether the service has come to rest
_REST = 60.0  # seconds that it may take to
_PAGE = 100
_BROKEN_OFF = "it was broken off"
_ASKED = "it was asked to stop"


@attrs.frozen(kw_only=True)
class Setup:
    """What a rehearsal is made of.

    Attributes:
        digest: Of the file that the orders are from.
    """

    orders: Sequence[PayoutOrder]
    digest: str
    seed: int
    faults: Faults
    concurrency: int

    @property
    def total(self) -> Decimal:
        """The sum of all orders."""
        return sum((order.amount for order in self.orders), Decimal(0))

    @property
    def opening_balance(self) -> Decimal:
        """What the account holds at first."""
        return self.total * 2

    @property
    def currency(self) -> str:
        """The currency the orders name."""
        return next((order.currency for order in self.orders if order.currency), "UGX")


@attrs.frozen(kw_only=True)
class Judged:
    """What a rehearsal came to.

    Attributes:
        rate: Orders this process has sent in a second.
    """

    tally: Tally
    books: Books
    verdict: Verdict
    rate: float


class Rehearsal:
    """Sends what is still to be sent of a batch, and finds out what became of all of it.

    Attributes:
        stopped: Why it ended early, or ``None``. The same again goes on.
    """

    def __init__(
        self, setup: Setup, screen: Screen, *, journal: SqliteJournal, payments: PaymentsSession, service: DemoService
    ) -> None:
        self.stopped: str | None = None
        self._setup = setup
        self._screen = screen
        self._board = Board(screen, len(setup.orders), setup.currency)
        self._journal = journal
        self._payments = payments
        self._service = service
        self._rate = 0.0

    async def run(self, *, goes_on: bool) -> Judged | None:
        """Run it and let the ledger judge; ``None`` when it stopped early.

        Args:
            goes_on: Another process has begun it.
        """
        self._screen.say()
        with self._board, draining(self._screen) as stop:
            try:
                async with self._board.watching(self._journal, BATCH):
                    await self._carry_out(stop.drain, goes_on=goes_on)
            except asyncio.CancelledError:
                if not stop.is_hard:
                    raise
                stop.take_back()
                self.stopped = _BROKEN_OFF
            if self.stopped is not None:
                return None
            self._board.settled(await self._journal.progress(BATCH))
        counted, books = await tally(self._journal, BATCH), await self._service.books()
        verdict = judge(books, counted, self._setup.opening_balance)
        return Judged(tally=counted, books=books, verdict=verdict, rate=self._rate)

    async def _carry_out(self, stop: asyncio.Event, *, goes_on: bool) -> None:
        if goes_on:
            await self._outlast(stop)
            self._board.doing("looking up what may have been sent, which is never sent again; then sending the rest")
        self.stopped = await self._send(stop)
        for step in (self._hear_out, self._look_up):
            if self.stopped is None:
                await step(stop)
                self.stopped = _ASKED if stop.is_set() else None

    async def _outlast(self, stop: asyncio.Event) -> None:
        """Wait until nobody can hold a permit any more that the process before was granted."""
        while (chunks := await self._journal.chunks(BATCH)).leased and not stop.is_set():
            wait = (chunks.next_expiry or 0.0) + 0.05
            self._board.doing(
                f"waiting {wait:.1f} s for the lease of the process before: until then it might still send"
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait)

    async def _send(self, stop: asyncio.Event) -> str | None:
        """Send what is planned; tells why not all of it was sent, or ``None``."""
        setup = self._setup
        progress = await run_batch(
            self._payments, self._journal, BATCH, setup.orders, concurrency=setup.concurrency, stop=stop,
            lease=_LEASE, patience=_PATIENCE, source_digest=setup.digest,
        )  # fmt: skip
        self._rate = progress.sent / progress.seconds if progress.seconds else 0.0
        if progress.stopped is not None and not stop.is_set() and not await self._service.is_there():
            raise ServiceGone(progress.stopped)
        return progress.stopped

    async def _hear_out(self, stop: asyncio.Event) -> None:
        """Hear the notifications until the service has come to rest, so that its ledger stands still."""
        self._board.doing("hearing the notifications")
        until = time.monotonic() + _REST
        while not stop.is_set() and time.monotonic() < until:
            if await self._service.settled(_NEWS):
                return

    async def _look_up(self, stop: asyncio.Event) -> None:
        """Look for what no notification told, until it is found or given into the hands of a person."""
        self._board.doing("reconciling: the lists are asked for what no notification told")
        until = time.monotonic() + _LOOKS
        while not stop.is_set():
            await reconcile(self._payments, self._journal, BATCH, grace=_GRACE, interval=_PAUSE)
            counts = (await self._journal.progress(BATCH)).counts
            if not counts[State.UNKNOWN] + counts[State.ACCEPTED] or time.monotonic() > until:
                break
            await asyncio.sleep(_PAUSE)
        # nobody is told of a reversal
        await reconcile(self._payments, self._journal, BATCH, grace=_GRACE, interval=_PAUSE, reversals=True)

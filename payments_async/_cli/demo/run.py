"""One whole run of a demo: sent, heard, reconciled, judged. It goes on after any death."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import attrs
import typer

from payments_async import PaymentsError, PaymentsSession, PayoutOrder
from payments_async._cli.demo.ledger import LedgerVerdict, OrderOutcome, judge, outcomes
from payments_async._cli.demo.service import DemoService, ServiceBooks, ServiceGone
from payments_async._cli.faults import Faults
from payments_async._cli.live_view import LiveView
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen
from payments_async._cli.signals import draining
from payments_async.bulk import reconcile, run_batch
from payments_async.journal import Progress, SqliteJournal, State

BATCH = "demo"
_LEASE = 3.0  # seconds; a demo that was killed is not waited for any longer
_PATIENCE = 10.0  # seconds without any answer, after which the run stops
_GRACE = 1.0  # seconds within which the lists may still come to show an order
_PAUSE = 0.3  # seconds between two looks at the lists
_LOOKS = 5.0  # seconds of looking for what is still open
_NEWS = 0.5  # seconds between two questions whether the service has come to rest
_REST = 60.0  # seconds that it may take to
_BROKEN_OFF = "it was broken off"
_ASKED = "it was asked to stop"


@attrs.frozen(kw_only=True)
class DemoOptions:
    """What somebody chose."""

    file: Annotated[Path | None, typer.Option(help="A batch file (CSV); else the sample of 200 payouts.")] = None
    seed: Annotated[int, typer.Option(help="Decides which orders the faults strike.")] = 1
    faults: Annotated[Faults, typer.Option(help="How much goes wrong.")] = Faults.SOME
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Payouts under way at once.")] = 50
    folder: Annotated[Path, typer.Option("--dir", help="Where the journal and the report go.")] = Path(
        "payments-async-demo"
    )

    @property
    def again(self) -> str:
        """The command that goes on with this demo, without what it does by itself."""
        given = attrs.asdict(self, filter=lambda option, value: value != option.default)
        return command_line("demo", **{"dir" if name == "folder" else name: value for name, value in given.items()})


@attrs.frozen(kw_only=True)
class DemoSetup:
    """What a demo is made of.

    Attributes:
        digest: Of the file that the orders are from.
    """

    chosen: DemoOptions
    orders: Sequence[PayoutOrder]
    digest: str

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
class JudgedRun:
    """What a run came to.

    Attributes:
        orders: What became of each.
        rate: Orders this process has sent in a second.
    """

    progress: Progress
    orders: Sequence[OrderOutcome]
    books: ServiceBooks
    verdict: LedgerVerdict
    rate: float


class DemoRun:
    """Sends what is still to be sent of a batch, and finds out what became of all of it.

    Attributes:
        stopped: Why it ended early, or ``None``. The same again goes on.
    """

    def __init__(
        self,
        setup: DemoSetup,
        screen: Screen,
        *,
        journal: SqliteJournal,
        payments: PaymentsSession,
        service: DemoService,
    ) -> None:
        self.stopped: str | None = None
        self._setup = setup
        self._screen = screen
        self._view = LiveView(screen, len(setup.orders), setup.currency, settles=True)
        self._journal = journal
        self._payments = payments
        self._service = service
        self._rate = 0.0

    async def carry_out(self, *, goes_on: bool) -> JudgedRun | None:
        """Run it and let the ledger judge; ``None`` when it stopped early.

        Args:
            goes_on: Another process has begun it.

        Raises:
            ServiceGone: There is nothing left to judge by.
        """
        self._screen.say()
        self.stopped = _BROKEN_OFF  # unless it gets further
        try:
            with self._view, draining(self._screen) as stop:
                async with self._view.watching(self._journal, BATCH):
                    self.stopped = await self._go_through(stop.drain, goes_on=goes_on)
                progress = await self._journal.progress(BATCH)
                if self.stopped is None:
                    self._view.settled(progress)
        except PaymentsError as error:
            if await self._service.is_there():
                raise
            raise ServiceGone(error.message) from error
        if self.stopped is not None:
            return None
        orders, books = await outcomes(self._journal, BATCH), await self._service.books()
        verdict = judge(books, orders, self._setup.opening_balance)
        return JudgedRun(progress=progress, orders=orders, books=books, verdict=verdict, rate=self._rate)

    async def _go_through(self, stop: asyncio.Event, *, goes_on: bool) -> str | None:
        """Send, hear and look up; tells why it ended early, or ``None``."""
        if goes_on:
            self._view.doing("looking up what may have been sent, which is never sent again; then sending the rest")
        stopped = await self._send(stop)
        for step in (self._hear_out, self._look_up):
            if stopped is None:
                await step(stop)
                stopped = _ASKED if stop.is_set() else None
        return stopped

    async def _send(self, stop: asyncio.Event) -> str | None:
        """Send what is planned; tells why not all of it was sent, or ``None``."""
        progress = await run_batch(
            self._payments,
            self._journal,
            BATCH,
            self._setup.orders,
            concurrency=self._setup.chosen.concurrency,
            progress=self._view,
            stop=stop,
            lease=_LEASE,
            patience=_PATIENCE,
            source_digest=self._setup.digest,
        )
        self._rate = progress.sent / progress.seconds if progress.seconds else 0.0
        if progress.stopped is not None and not stop.is_set() and not await self._service.is_there():
            raise ServiceGone(progress.stopped)
        return progress.stopped

    async def _hear_out(self, stop: asyncio.Event) -> None:
        """Hear the notifications until the service has come to rest, so that its ledger stands still."""
        self._view.doing("hearing the notifications")
        until = time.monotonic() + _REST
        while not stop.is_set() and time.monotonic() < until:
            if await self._service.settled(_NEWS):
                return

    async def _look_up(self, stop: asyncio.Event) -> None:
        """Look for what no notification told, until it is found or given into the hands of a person."""
        self._view.doing("reconciling: the lists are asked for what no notification told")
        until = time.monotonic() + _LOOKS
        while not stop.is_set():
            await reconcile(self._payments, self._journal, BATCH, grace=_GRACE, interval=_PAUSE)
            counts = (await self._journal.progress(BATCH)).counts
            if not counts[State.UNKNOWN] + counts[State.ACCEPTED] or time.monotonic() > until:
                break
            await asyncio.sleep(_PAUSE)
        # nobody is told of a reversal
        await reconcile(self._payments, self._journal, BATCH, grace=_GRACE, interval=_PAUSE, reversals=True)

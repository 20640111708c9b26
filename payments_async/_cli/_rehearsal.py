"""One whole run of a batch against the sandbox: send, look up, hear, settle. Leaves showing and judging to others."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import attrs

from payments_async import (
    Credentials,
    IncompleteListing,
    Limits,
    PaymentsSession,
    PayoutOrder,
    Transaction,
    TransactionStatus,
)
from payments_async._cli._board import Board
from payments_async._cli._screen import Screen
from payments_async._cli._tally import Outcome, Tally
from payments_async._cli._trouble import SECONDS, Faults, rates, spelling
from payments_async._cli._verdict import Verdict, judge
from payments_async.ipn import Receiver, TransactionEvent, serving
from payments_async.sandbox import Sandbox

__all__ = ["Rehearsal", "Setup"]

_ROUNDS = 5  # of sending what was turned away unread
_GRACE = 1.5  # seconds within which the lists may still come to show an order
_PAUSE = 0.3  # seconds between two looks
_PATIENCE = 3.0  # seconds without any news before the lists are asked for what no notification told
_REST = 60.0  # seconds that the sandbox may take to come to rest
_PAGE = 100


@attrs.frozen(kw_only=True)
class Setup:
    """What a rehearsal is made of."""

    orders: Sequence[PayoutOrder]
    seed: int
    faults: Faults
    concurrency: int

    @property
    def total(self) -> Decimal:
        """The sum of all orders."""
        return sum((order.amount for order in self.orders), Decimal(0))

    @property
    def currency(self) -> str:
        """The currency the orders name."""
        return next((order.currency for order in self.orders if order.currency), "UGX")


class Rehearsal:
    """Sends a batch to a sandbox and finds out what became of it.

    Attributes:
        tally: What is known of each order.
        notifications: How many were heard, repetitions included.
        rate: Answers a second.
    """

    def __init__(self, setup: Setup, screen: Screen) -> None:
        self.tally = Tally(setup.orders)
        self.notifications = 0
        self.rate = 0.0
        self._setup = setup
        self._board = Board(screen, self.tally, setup.currency)
        self._news_at = 0.0

    async def run(self) -> Verdict:
        """Run it and let the sandbox's ledger judge."""
        setup = self._setup
        opening = setup.total * 2
        service = Sandbox(
            seed=setup.seed,
            quirks=spelling(setup.faults, setup.seed),
            balance=opening,
            currency=setup.currency,
            processing_delay=SECONDS / 2,
        )
        async with service as sandbox, self._receiver() as address:
            sandbox.ipn_url = address
            if setup.faults is not Faults.NONE:
                sandbox.chaos(rates(setup.faults), seconds=SECONDS)
            async with _session(sandbox, setup.concurrency) as payments:
                with self._board:
                    await self._run(payments, sandbox)
            return judge(sandbox, self.tally, opening)

    async def _run(self, payments: PaymentsSession, sandbox: Sandbox) -> None:
        await self._send(payments)
        await self._look_up(payments)
        await self._hear_out(payments)
        await sandbox.settle(_REST)  # so that the ledger stands still while it judges
        await self._read_lists(payments)

    async def _send(self, payments: PaymentsSession) -> None:
        """Send every order; what surely was not carried out is sent again, what may have been never is."""
        for _ in range(_ROUNDS):
            orders = self.tally.orders(Outcome.NOT_SENT)
            if not orders:
                break
            async for order, result in payments.payouts.send_many(orders, concurrency=self._setup.concurrency):
                self.tally.answer(order, result)
                self._board.sent(len(self.tally) - self.tally.count(Outcome.NOT_SENT))
        self.rate = self._board.rate

    async def _look_up(self, payments: PaymentsSession) -> None:
        """Look for the orders without a usable answer: one sweep of the transaction list for all of them."""
        doubtful = self.tally.doubtful
        deadline = time.monotonic() + _GRACE
        while True:
            await self._sweep(payments, None)
            left = self.tally.count(Outcome.UNKNOWN)
            self._board.looked_up(doubtful - left, doubtful)
            if not left or time.monotonic() > deadline:
                return
            await asyncio.sleep(_PAUSE)

    async def _hear_out(self, payments: PaymentsSession) -> None:
        """Wait for the notifications of what was accepted; the filtered lists tell of those that were lost."""
        self._news_at = time.monotonic()
        while self.tally.count(Outcome.ACCEPTED) and time.monotonic() < self._news_at + _PATIENCE:
            await asyncio.sleep(_PAUSE / 3)
            if time.monotonic() > self._news_at + SECONDS * 2:
                await self._read_lists(payments)
        self._board.settled()

    async def _read_lists(self, payments: PaymentsSession) -> None:
        """Sweep the list once by each status. An id that appears under several statuses has none."""
        shown: dict[str, list[tuple[TransactionStatus, Transaction]]] = defaultdict(list)
        for status in TransactionStatus:
            for transaction in await self._rows(payments, status):
                shown[transaction.transaction_id].append((status, transaction))
        for rows in shown.values():
            if len(rows) == 1:
                status, transaction = rows[0]
                self.tally.show(transaction, status)
        self._board.settled()

    async def _sweep(self, payments: PaymentsSession, status: TransactionStatus | None) -> None:
        for transaction in await self._rows(payments, status):
            self.tally.show(transaction, status)

    async def _rows(self, payments: PaymentsSession, status: TransactionStatus | None) -> list[Transaction]:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", IncompleteListing
            )  # what is missing is looked for again; absence proves nothing
            rows = payments.transactions.iterate(since=_yesterday(), status=status, size=_PAGE)
            return [transaction async for transaction in rows]

    @asynccontextmanager
    async def _receiver(self) -> AsyncIterator[str]:
        """A receiver for notifications on a free port of this machine; gives its address."""
        receiver = Receiver(senders=("127.0.0.0/8", "::1"))
        receiver.on(TransactionEvent)(self._heard)
        async with serving(receiver, port=0) as (host, port):
            yield f"http://{host}:{port}/ipn"

    async def _heard(self, event: TransactionEvent) -> None:
        self.notifications += 1
        self._news_at = time.monotonic()
        self.tally.hear(event)


def _session(sandbox: Sandbox, concurrency: int) -> PaymentsSession:
    credentials = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
    return PaymentsSession(sandbox.base_url, credentials, limits=Limits(concurrency=max(concurrency, 1)))


def _yesterday() -> date:
    return (datetime.now(UTC) - timedelta(days=1)).date()

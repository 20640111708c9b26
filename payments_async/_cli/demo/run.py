"""One whole run of a demo: sent, heard, reconciled, judged by its ledger. It goes on after any death, in its folder."""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from payments_async import PaymentsError, PaymentsSession, PayoutOrder
from payments_async._cli.demo.service import DemoService, LedgerRow, ServiceBooks, ServiceGone
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.faults import FaultLevel
from payments_async._cli.live_view import LiveView
from payments_async._cli.screen import Screen, command_line, plain
from payments_async._cli.signals import draining
from payments_async.bulk import BatchTerms, ReconcileSettings, RunSettings, reconcile, run_batch
from payments_async.journal import UNSETTLED, Entry, Journal, Signal, SqliteJournal, State

_SAID_BY = {"answer": "answer", "notification": "notification", "evidence": "list"}
_NOBODY = "no answer, in no list"
_DOUBTS = (Signal.UNKNOWN, Signal.LEASE_EXPIRED)
_STATUS = {State.SUCCESSFUL: "SUCCESSFULL"}  # as the service spells it


@attrs.frozen(kw_only=True)
class OrderOutcome:
    """Where an order stands.

    Attributes:
        told_by: What that rests on; empty while it is planned.
        was_doubtful: At some time it had no usable answer, or nobody was left who waited for one.
    """

    entry: Entry
    told_by: str
    was_doubtful: bool


@attrs.frozen(kw_only=True)
class LedgerVerdict:
    """What the ledger says of the orders of a batch.

    Attributes:
        carried_out: What the ledger carried out, each order counted as often as it was.
        paid_twice: Orders that were carried out more than once.
        lost: Orders that were carried out, and not known here to have been.
        paid: What left the account and did not come back.
        disagreements: One line for each; none if ledger and journal agree in every order.
    """

    carried_out: int
    paid_twice: int
    lost: int
    paid: Decimal
    disagreements: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether ledger and journal agree in every order."""
        return not self.disagreements


async def outcomes(journal: Journal, batch_id: str) -> list[OrderOutcome]:
    """Where every order of a batch stands, and what says so, as the journal tells it."""
    found: list[OrderOutcome] = []
    async for standings in journal.standings(batch_id):
        for standing in standings:
            entry, decision = standing.entry, standing.decision
            told_by = "" if decision is None else _SAID_BY.get(decision.what, "")
            story = await journal.history(entry.request_id)
            found.append(
                OrderOutcome(
                    entry=entry,
                    told_by=_NOBODY if entry.state in UNSETTLED else told_by,
                    was_doubtful=any(one.signal in _DOUBTS and one.state is State.UNKNOWN for one in story),
                )
            )
    return found


def judge(books: ServiceBooks, orders: Sequence[OrderOutcome], opening_balance: Decimal) -> LedgerVerdict:
    """Compare the outcomes with the books of the service that these orders were sent to, and nothing else ever was."""
    ledger = {row.request_id: row for row in books.ledger}
    times = Counter(row.request_id for row in books.ledger)
    known = {order.entry.request_id: order.entry.state.meaning.is_confirmed for order in orders}
    twice = [request_id for request_id, count in times.items() if count > 1]
    found = [f"{request_id}: carried out {times[request_id]} times" for request_id in twice]
    found += [words for order in orders for words in _differences(order.entry, ledger.get(order.entry.request_id))]
    found += [f"{request_id}: carried out, but not in this batch" for request_id in ledger if request_id not in known]
    paid = opening_balance - books.balance
    successful = sum((one.entry.amount for one in orders if one.entry.state is State.SUCCESSFUL), Decimal(0))
    if paid != successful:
        found.append(f"the balance fell by {paid:,f}, the successful orders are {successful:,f}")
    return LedgerVerdict(
        carried_out=len(books.ledger),
        paid_twice=len(twice),
        lost=sum(not known.get(request_id, False) for request_id in ledger),
        paid=paid,
        disagreements=tuple(found),
    )


def _differences(entry: Entry, row: LedgerRow | None) -> Iterator[str]:
    """What journal and ledger say differently of one order."""
    request_id, state = entry.request_id, entry.state
    if entry.conflict is not None:
        yield f"{request_id}: {entry.conflict}"
    if row is None:
        if state.meaning.is_confirmed:
            yield f"{request_id}: {state} here, but never carried out"
        return
    if not state.meaning.is_confirmed:
        yield f"{request_id}: {state} here, but carried out"
    elif row.status != _STATUS.get(state, state.upper()):
        yield f"{request_id}: {state} here, {row.status} in the ledger"
    if row.amount != entry.amount:
        yield f"{request_id}: {entry.amount} here, {row.amount} in the ledger"


BATCH = "demo"
_LEASE = 3.0  # seconds; a demo that was killed is not waited for any longer
_PATIENCE = 10.0  # seconds without any answer, after which the run stops
_GRACE = 1.0  # seconds within which the lists may still come to show an order
_PAUSE = 0.3  # seconds between two looks at the lists
_LOOKS = 5.0  # seconds of looking for what is still open
_NEWS = 0.5  # seconds between two questions whether the service has come to rest
_REST = 60.0  # seconds that it may take to


@attrs.frozen(kw_only=True)
class DemoOptions:
    """What somebody chose."""

    file: Annotated[Path | None, typer.Option(help="A batch file (CSV); else the sample of 200 payouts.")] = None
    seed: Annotated[int, typer.Option(help="Decides which orders the faults strike.")] = 1
    faults: Annotated[FaultLevel, typer.Option(help="How much goes wrong.")] = FaultLevel.SOME
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

    orders: Sequence[OrderOutcome]
    books: ServiceBooks
    verdict: LedgerVerdict
    rate: float


@attrs.define(kw_only=True)
class DemoRun:
    """Sends what is still to be sent of a batch, and finds out what became of all of it.

    Attributes:
        view: Shows how far it is.
        rate: Orders it has sent in a second.
    """

    setup: DemoSetup
    journal: SqliteJournal
    payments: PaymentsSession
    service: DemoService
    view: LiveView
    rate: float = 0.0

    async def carry_out(self, screen: Screen, *, goes_on: bool) -> JudgedRun | str:
        """Run it and let the ledger judge; or tell why it stopped early: the same again goes on.

        Args:
            goes_on: Another process has begun it.

        Raises:
            ServiceGone: There is nothing left to judge by.
        """
        stopped: str | None = "it was broken off"  # unless it gets further
        try:
            with self.view, draining(screen) as stop:
                async with self.view.watching(self.journal, BATCH):
                    stopped = await self._go_through(stop.drain, goes_on=goes_on)
                if stopped is None:
                    self.view.settled(await self.journal.progress(BATCH))
        except PaymentsError as error:
            if await self.service.is_there():
                raise
            raise ServiceGone(error.message) from error
        if stopped is not None:
            return stopped
        orders, books = await outcomes(self.journal, BATCH), await self.service.books()
        verdict = judge(books, orders, self.setup.opening_balance)
        return JudgedRun(orders=orders, books=books, verdict=verdict, rate=self.rate)

    async def _go_through(self, stop: asyncio.Event, *, goes_on: bool) -> str | None:
        """Send, hear and look up; tells why it ended early, or ``None``."""
        if goes_on:
            self.view.doing("looking up what may have been sent, which is never sent again; then sending the rest")
        stopped = await self._send(stop)
        for step in (self._hear_out, self._look_up):
            if stopped is None:
                await step(stop)
                stopped = "it was asked to stop" if stop.is_set() else None
        return stopped

    async def _send(self, stop: asyncio.Event) -> str | None:
        """Send what is planned; tells why not all of it was sent, or ``None``."""
        progress = await run_batch(
            self.payments,
            self.journal,
            BATCH,
            self.setup.orders,
            settings=RunSettings(concurrency=self.setup.chosen.concurrency, lease=_LEASE, patience=_PATIENCE),
            progress=self.view,
            stop=stop,
            terms=BatchTerms(source_digest=self.setup.digest),
        )
        self.rate = progress.sent / progress.seconds if progress.seconds else 0.0
        if progress.stopped is not None and not stop.is_set() and not await self.service.is_there():
            raise ServiceGone(progress.stopped)
        return progress.stopped

    async def _hear_out(self, stop: asyncio.Event) -> None:
        """Hear the notifications until the service has come to rest, so that its ledger stands still."""
        self.view.doing("hearing the notifications")
        until = time.monotonic() + _REST
        while not stop.is_set() and time.monotonic() < until:
            if await self.service.settled(_NEWS):
                return

    async def _look_up(self, stop: asyncio.Event) -> None:
        """Look for what no notification told, until it is found or given into the hands of a person."""
        self.view.doing("reconciling: the lists are asked for what no notification told")
        until = time.monotonic() + _LOOKS
        while not stop.is_set():
            await reconcile(
                self.payments, self.journal, BATCH, settings=ReconcileSettings(grace=_GRACE, interval=_PAUSE)
            )
            counts = (await self.journal.progress(BATCH)).counts
            if not counts[State.UNKNOWN] + counts[State.ACCEPTED] or time.monotonic() > until:
                break
            await asyncio.sleep(_PAUSE)
        # nobody is told of a reversal
        await reconcile(
            self.payments,
            self.journal,
            BATCH,
            settings=ReconcileSettings(grace=_GRACE, interval=_PAUSE),
            reversals=True,
        )


if sys.platform != "win32":
    import fcntl

_STATE = "demo.json"
_OURS = {".gitignore", f"{_STATE}.new"}  # what may be there before the first demo has written its state
_BESIDE = ("", "-wal", "-shm", "-mark")  # what belongs to a journal


@attrs.frozen(kw_only=True)
class DemoState:
    """How far a demo is: all that has to be known to go on with it.

    Attributes:
        file: The batch file as it was named, or ``None`` for the sample.
        digest: Of the file's bytes.
        began: When, as people read it.
        token: The last segment of the address for notifications; no other demo has it.
        port: Where notifications come to.
        service: The simulated service, or ``None`` as long as it was not started: then nothing was sent either.
        finished: The ledger has judged.
    """

    file: str | None
    digest: str
    seed: int
    faults: FaultLevel = attrs.field(converter=FaultLevel)
    began: str
    token: str
    port: int = 0
    service: DemoService | None = None
    finished: bool = False


class DemoFolder:
    """The folder, held by this process alone.

    Attributes:
        journal: The journal's file.
        csv, html: The report, as a table and as a page.
        log: What the simulated service says of itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "demo.sqlite"
        self.csv, self.html = path / "report.csv", path / "report.html"
        self.log = path / "sandbox.log"

    def last(self) -> DemoState | None:
        """The demo that was here last.

        Raises:
            BadInput: The file that tells cannot be read.
        """
        path = self.path / _STATE
        try:
            told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            service = told.pop("service")
            return DemoState(service=None if service is None else DemoService(**service), **told)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadInput(f"--dir: {path} tells of no demo of this program; name another directory") from error

    def note(self, state: DemoState) -> None:
        """Write down how far a demo is; all of it or nothing."""
        unfinished = self.path / f"{_STATE}.new"
        unfinished.write_text(json.dumps(plain(state), indent=2) + "\n", encoding="utf-8")
        unfinished.replace(self.path / _STATE)

    def clear(self) -> None:
        """Take away what the last demo left."""
        for path in self._left():
            path.unlink()

    def keep_aside(self, began: str) -> Path:
        """Put what the last demo left into a directory of its own, and tell which."""
        name = f"unfinished-{''.join(filter(str.isdigit, began))}"
        aside, number = self.path / name, 1
        while aside.exists():
            number += 1
            aside = self.path / f"{name}-{number}"
        aside.mkdir()
        for path in self._left():
            path.rename(aside / path.name)
        return aside

    def _left(self) -> list[Path]:
        journal = [self.journal.with_name(self.journal.name + end) for end in _BESIDE]
        known = [*journal, self.csv, self.html, self.log, self.path / _STATE]
        return [path for path in known if path.exists()]


@contextmanager
def held(folder: Path) -> Iterator[DemoFolder]:
    """Hold a folder, made if there is none, until the block ends or this process dies.

    Raises:
        BadInput: It cannot be made, belongs to another user, or another demo is under way in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _STATE).exists() and {path.name for path in folder.iterdir()} - _OURS:
            raise BadInput(f"--dir: {folder} holds other files; name an empty directory, or one that is not there yet")
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--dir: {folder} cannot be used ({error.strerror}); name another directory") from error
    with (folder / ".gitignore").open() as lock:  # it dies with this process
        if sys.platform != "win32":  # where no such lock exists, and two demos at a time are rare
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BadInput(
                    f"--dir: another demo is under way in {folder}; wait for it, or name another directory"
                ) from error
            except OSError:
                pass  # a file system without locks
        yield DemoFolder(folder)

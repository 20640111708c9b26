"""The whole life of a small batch in a process of its own, struck at one named point, and gone on with by another.

A life passes every point between two steps of the journal: it is loaded, copied, let out of quarantine, run, cancelled,
heard of, reconciled, decided on and run again. The judge is the ledger of the sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import aiohttp
import attrs
from bulk.nursery import Child, Nursery, say
from bulk.worlds import contradiction, payout
from journal.factories import approve

from payments_async import Credentials, PaymentsSession, PayoutOrder
from payments_async.bulk import (
    Fuse,
    ReconcileSettings,
    RunSettings,
    acknowledge,
    give_listing_deadline,
    lift_quarantine,
    reconcile,
    run_batch,
    send_again,
)
from payments_async.ipn import HandlerPolicy, Receiver, TransactionEvent, serving
from payments_async.journal import (
    Entry,
    HeldElsewhere,
    ListingDeadline,
    LoadBusy,
    NotApproved,
    NotParked,
    Signal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
    _states,
)
from payments_async.journal.contract import Evidence, Transition
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Execution, Fault, Redelivery, Sandbox
from payments_async.testing import Testing

BATCH = "a life"
TOLD = "an outbox"
SHOP = "a shop"
STRANGER = Evidence(
    source="list", request_id="of another machine", transaction_id="t-1", signal=Signal.LOOKED_UP_PROCESSING
)
COUNT = 6
MOODY, LOST_AFTER, LOST_BEFORE, DEAD, REFUSED, SLOW = range(COUNT)  # what becomes of each order
LEASE = 0.5  # seconds
PATIENCE = 3.0  # seconds for what comes by itself
LONG = 60.0  # seconds for what is sure to come, however busy the machine is
SINGLES = 3
BLOWS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_POLICY = HandlerPolicy(attempts=2, timeout=0.2, wait_initial=0.01, wait_max=0.01, poll=0.02)


def singles() -> list[PayoutOrder]:
    """The orders of the outbox that stay."""
    return [payout(100 + number) for number in range(SINGLES)]


def leaving() -> PayoutOrder:
    """The order of the outbox that leaves for an archive."""
    return payout(200)


def mistaken() -> PayoutOrder:
    """The order of the outbox that was put for tomorrow, and is cancelled."""
    return payout(300)


@attrs.define
class Life:
    """One process that lives it from where it stands to its end.

    Attributes:
        folder: Of the journals.
        point: Where it is struck; empty where it is not.
        blow: The signal that strikes it there, once.
        broken: Rule 2 is broken on purpose.
    """

    number: int
    folder: Path
    base: str
    key: str
    password: str
    user: str
    point: str = ""
    blow: str = "kill"
    broken: bool = False
    mended: bool = False
    _cancels: Callable[[], None] | None = None

    def orders(self) -> list[PayoutOrder]:
        """All of it."""
        return [payout(number, batch_id=BATCH) for number in range(COUNT)]

    def looks(self) -> Literal["always", "never"]:
        """In the control nobody looks: the list would show what is sent again because rule 2 is broken."""
        return "never" if self.broken else "always"

    def passed(self, point: str) -> None:
        """What the journal calls at each point."""
        if point == "permit.written" and self._cancels is not None:
            self._cancels()
        if point == self.point:
            self.point = ""
            self.struck()

    def struck(self) -> None:
        """The blow."""
        os.kill(os.getpid(), BLOWS[self.blow])

    def listens(self, url: str) -> None:
        """Notifications are to be sent there."""
        say(self.number, url)

    def waits(self, done: threading.Event) -> None:
        """The thread that writes waits for its event loop."""
        done.wait(PATIENCE)

    def journal(self, name: str) -> SqliteJournal:
        """One of the two files; another process may stand still while it holds it."""
        return SqliteJournal(
            self.folder / name,
            busy_timeout=30.0,
            testing=Testing(crash_at=self.passed),
            state_folder=self.folder / "state",
        )

    async def live(self) -> None:
        """Do what is still to be done."""
        who = Credentials(app_key=self.key, app_password=self.password, user_id=self.user)
        limit = aiohttp.ClientTimeout(total=2.0)
        async with PaymentsSession(self.base, who, timeout=limit) as payments:
            if not (self.folder / "journal.db").exists():
                await self.load(payments)
            async with self.journal("journal.db") as journal:
                receiver = self.receiver(journal, payments)
                async with serving(receiver, "127.0.0.1", 0) as (host, port):
                    self.listens(f"http://{host}:{port}/ipn")
                    await self.work(payments, journal, receiver)

    async def load(self, payments: PaymentsSession) -> None:
        """Write the orders down, and begin with a copy of the file: nobody may send from it before a person agrees."""
        stop = asyncio.Event()
        stop.set()
        async with self.journal("first.db") as journal:
            with contextlib.suppress(NotApproved):  # another process was quicker to take it back
                await approve(journal)
            if self.point.startswith("load_drop"):
                await self.break_off_a_load(payments, journal)
            await run_batch(payments, journal, BATCH, self.orders(), stop=stop, settings=RunSettings(lease=LEASE))
        copy = self.folder / f"copy {self.number}.db"
        with (
            contextlib.closing(sqlite3.connect(self.folder / "first.db")) as source,
            contextlib.closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        with contextlib.suppress(FileExistsError):  # another process was quicker
            (self.folder / "journal.db").hardlink_to(copy)
        copy.unlink()  # a journal has one name

    async def break_off_a_load(self, payments: PaymentsSession, journal: SqliteJournal) -> None:
        """So that the next one has something to drop."""

        def broken() -> Iterator[PayoutOrder]:
            yield from (payout(number, batch_id=BATCH) for number in range(1000, 2001))
            raise ConnectionResetError

        with contextlib.suppress(ConnectionResetError):
            await run_batch(payments, journal, BATCH, broken(), settings=RunSettings(lease=LEASE))
        half_a_minute_passes(self.folder)

    def receiver(self, journal: SqliteJournal, payments: PaymentsSession) -> Receiver:
        """Two handlers: one that never fails, one that fails once for one order, and for another until it is mended."""
        receiver = Receiver(inbox=journal, senders=["127.0.0.1"], policy=_POLICY, confirm=payments)
        seen: set[str | None] = set()

        @receiver.on(TransactionEvent, name="calm")
        async def calm(event: TransactionEvent) -> None:
            pass

        @receiver.on(TransactionEvent, name="moody")
        async def moody(event: TransactionEvent) -> None:
            first = event.request_id not in seen
            seen.add(event.request_id)
            if event.request_id == payout(DEAD).request_id and not self.mended:
                raise ValueError("it is broken")
            if event.request_id == payout(MOODY).request_id and first:
                raise ValueError("not in the mood")

        return receiver

    async def work(self, payments: PaymentsSession, journal: SqliteJournal, receiver: Receiver) -> None:
        """From the quarantine to the last decision."""
        await reconcile(payments, journal, BATCH, settings=ReconcileSettings(grace=0.0, interval=0.0))
        planned = [entry.request_id async for entry in journal.entries(BATCH, State.PLANNED)]
        await lift_quarantine(journal, BATCH, "Ann", "none of it was ever sent", request_ids=planned)
        await self.cancel_a_permit(journal)
        await run_batch(
            payments,
            journal,
            BATCH,
            self.orders(),
            settings=RunSettings(concurrency=2, lease=LEASE, look_first=self.looks()),
        )
        await self.hear(journal, receiver)
        await reconcile(payments, journal, BATCH, settings=ReconcileSettings(grace=0.0, interval=0.0))
        await self.decide(journal)
        await run_batch(payments, journal, BATCH, settings=RunSettings(lease=LEASE, look_first=self.looks()))
        await self.tell(journal)
        await self.pay(payments, journal)
        await self.archive(payments, journal)
        await journal.prune_inbox(older_than=1e9)
        await journal.check_writable()
        await self.adopt(payments, journal)

    async def tell(self, journal: SqliteJournal) -> None:
        """What becomes of an order of an outbox is told until a handler is done, with a dead letter on the way."""
        about, states = payout(COUNT + 1, batch_id=TOLD), (State.ACCEPTED, State.SUCCESSFUL)
        await journal.hear(TOLD, states)
        await journal.open_run(TOLD, (await journal.run(BATCH)).identity, outbox=TOLD)
        with contextlib.suppress(LoadBusy):  # another process does it
            await journal.load(TOLD, [about], owner=TOLD)
        for said in (Signal.ACCEPTED, Signal.LOOKED_UP_SUCCESSFUL):
            told = Evidence(
                signal=said,
                source="record",
                request_id=about.request_id,
                amount=about.amount,
                currency=about.currency,
            )
            await journal.apply_evidence(told)
        for round_ in range(3):
            for change in await journal.claim_changes(TOLD, states, f"teller {self.number}", lease=LEASE, limit=10):
                await journal.note_change_done(change.id, "handler")
                if round_ == 0:
                    await journal.retry_change(change.id, delay=0.0, error="no")
                else:
                    await journal.finish_changes([change.id], "dead" if round_ == 1 else "handled")
            await journal.revive_changes()
        await journal.release_changes(f"teller {self.number}")
        await journal.forget_changes(TOLD, State.REVERSED, who="Ann", why="nobody hears of it")
        await journal.prune_changes(older_than=1e9)

    async def pay(self, payments: PaymentsSession, journal: SqliteJournal) -> None:
        """An outbox is opened, paused and resumed; every process puts the same orders into it, and cancels one."""
        fuse = Fuse(max_per_day=Decimal(10**9))
        await journal.cool_down(0.05, why="slow down")
        async with Outbox(
            payments, journal, SHOP, concurrency=2, rate=500.0, worker=WorkerSettings(lease=LEASE), fuse=fuse
        ) as outbox:
            await outbox.put(singles()[0])
            if self.broken:  # nobody has looked: an outbox of a copy sends nothing before
                await reconcile(payments, journal, settings=ReconcileSettings(grace=0.0, interval=0.0))
            await journal.note_observed([STRANGER])
            await outbox.pause("Ann", "lunch")
            await outbox.resume("Ann", "back")
            await outbox.put(mistaken(), not_before=datetime.now(UTC) + timedelta(days=1))
            await outbox.cancel(mistaken().request_id, who="Ann", why="put by mistake")
            for order in (*singles(), leaving()):
                await outbox.pay(order, timeout=PATIENCE)

    async def archive(self, payments: PaymentsSession, journal: SqliteJournal) -> None:
        """What is old leaves for a file, after it was written there; here one order is old enough."""
        number = await journal.begin_archive(str(self.folder / f"{self.number}.jsonl"), who="Ann", why="it is old")
        about = leaving().request_id

        async def gone() -> bool:
            await reconcile(
                payments, journal, SHOP, settings=ReconcileSettings(grace=0.0, interval=0.0)
            )  # whoever else was told, or nobody
            async for page in journal.old_orders(older_than=0.001):
                if some := [old for old in page if old.request_id == about]:
                    await journal.prune_orders(number, some)
            return bool(await journal.archived_of([about]))

        await _until(gone, LONG)  # its notification may still be with a handler
        await journal.end_archive(number)

    async def adopt(self, payments: PaymentsSession, journal: SqliteJournal) -> None:
        """Orders of a journal that is lost, which may have sent them: they are taken over, and not sent."""
        others, owner = [payout(COUNT, batch_id="adopted")], "adopter"  # one name: a dead one keeps nobody waiting
        identity = (await journal.run(BATCH)).identity
        with contextlib.suppress(HeldElsewhere, LoadBusy):  # another process does it, or has done it
            async with SqliteJournal(self.folder / "lost.db", state_folder=self.folder / "state") as lost:
                if not (await lost.open_run("adopted", identity)).ready:
                    second = TakeoverAuthorisation(who="Ann", why="a journal of its own")
                    await lost.load("adopted", others, owner=owner, adoption=second)
            await journal.open_run("adopted", identity)
            adoption = TakeoverAuthorisation(who="Ann", why="the other one is lost")
            await journal.load("adopted", others, owner=owner, adoption=adoption)

    async def cancel_a_permit(self, journal: SqliteJournal) -> None:
        """A caller is cancelled while its permit is on the way to the disk."""
        chunk = await journal.claim_chunk(BATCH, f"canceller {self.number}", lease=LEASE)
        if chunk is None:
            return
        asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[-1]))
        cancelled, loop = threading.Event(), asyncio.get_running_loop()

        def cancel() -> None:
            asking.cancel()
            loop.call_soon(cancelled.set)

        def wait_for_it() -> None:
            loop.call_soon_threadsafe(cancel)
            self.waits(cancelled)

        self._cancels = wait_for_it
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        self._cancels = None
        await journal.release_chunk(chunk)

    async def hear(self, journal: SqliteJournal, receiver: Receiver) -> None:
        """Wait for the notifications; one becomes a dead letter, and is handled again once the handler is mended."""

        async def heard() -> bool:
            for number in (MOODY, DEAD):
                entry = await journal.entry(payout(number).request_id)
                if entry is not None and entry.state is State.ACCEPTED:
                    return False
            return not (await journal.backlog()).pending

        if self.broken:
            return  # there are no notifications
        await _until(heard)
        self.mended = True
        await receiver.replay()
        await _until(heard)

    async def decide(self, journal: SqliteJournal) -> None:
        """What a person decides: one order never arrived, and one contradiction is known."""
        lost, paid = payout(LOST_BEFORE), payout(MOODY)
        entry = await journal.entry(lost.request_id)
        if entry is not None and entry.state is State.PARKED and not entry.sent_before:
            with contextlib.suppress(NotParked):  # another process was quicker
                await send_again(journal, lost.request_id, "Ann", "the service never had it")
        wrong = Evidence(
            signal=Signal.LOOKED_UP_FAILED, source="statement", request_id=paid.request_id, amount=Decimal(paid.amount)
        )
        entry = await journal.entry(paid.request_id)
        if entry is not None and entry.state is State.SUCCESSFUL:
            await journal.apply_evidence(wrong)
        await acknowledge(journal, paid.request_id, "Ann", "the statement was wrong")
        word = ListingDeadline(within=900, until=4e9, orders=1, amount=1, total=1)
        await give_listing_deadline(journal, word, "Ann", "their letter")
        await journal.withdraw_listing_deadline(None, who="Ann", why="it is not so")


def half_a_minute_passes(folder: Path) -> None:
    """A load that was broken off keeps others waiting no longer."""
    if not (folder / "first.db").exists():
        return
    with contextlib.closing(sqlite3.connect(folder / "first.db")) as file:
        with contextlib.suppress(sqlite3.OperationalError):  # there are no tables yet
            file.execute("UPDATE lease SET until = 0")
        file.commit()


async def _until(holds: Callable[[], Awaitable[bool]], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not await holds() and time.monotonic() < deadline:  # noqa: ASYNC110 - looking is how it becomes known
        await asyncio.sleep(0.01)


class _Rehearsal(Life):
    """A life that hears of nothing."""

    def listens(self, url: str) -> None:
        """Tell nobody."""


def rehearse() -> None:
    """Live once; nothing of it is left but what Python keeps."""

    async def live(folder: Path) -> None:
        async with Sandbox(processing_delay=0.0) as sandbox:
            await _Rehearsal(number=0, folder=folder, broken=True, **known_of(sandbox)).live()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder)))


def begin(number: int, folder: str, **told: Any) -> None:
    """What a child of the nursery does."""
    life = Life(number=number, folder=Path(folder), **told)
    if life.broken:
        break_rule_two()
    asyncio.run(life.live())


def break_rule_two() -> None:
    """What most queues do: what an expired lease left under way is simply due again. Never outside the controls."""
    for sent_before in (False, True):
        for unsent in (False, True):
            _states._VERDICTS[State.SENDING, sent_before, unsent, Signal.LEASE_EXPIRED] = Transition(State.PLANNED)


async def strike_all(folder: Path, points: Sequence[str], *, at_once: int = 8) -> list[str]:
    """Strike a life at each point with each blow, and say what is wrong in the end.

    Args:
        at_once: Lives beside each other; where there are too many for the machine, each looks and asks more often.
    """
    places = asyncio.Semaphore(at_once)
    async with Nursery("bulk.lives") as nursery:

        async def one(number: int, point: str, blow: str) -> list[str]:
            async with places:
                return await strike(nursery, folder / f"life {number}", point, blow, seed=number)

        chosen = [(point, blow) for point in points for blow in BLOWS]
        found = await asyncio.gather(*(one(number, *blow) for number, blow in enumerate(chosen)))
    return [problem for problems in found for problem in problems]


@contextlib.asynccontextmanager
async def service(seed: int, *, broken: bool = False, **options: Any) -> AsyncIterator[Sandbox]:
    """A service that does to each order of the batch what its name says."""
    async with Sandbox(
        seed=seed,
        processing_delay=0.02,
        redelivery=Redelivery(attempts=99, wait_initial=0.05, wait_max=0.2, timeout=0.5),
        **options,
    ) as sandbox:
        faults = {LOST_AFTER: Fault.LOST_AFTER, LOST_BEFORE: Fault.LOST_BEFORE, REFUSED: Fault.REFUSED}
        for number, fault in faults.items():
            sandbox.script(fault, on="money", request_id=payout(number).request_id)
        sandbox.script(Fault.SLOW, on="money", request_id=payout(SLOW).request_id, seconds=LEASE / 2)
        if broken:
            sandbox.chaos({Fault.NOTIFY_LOST: 1.0})  # a notification would settle what is wrong in time
        yield sandbox


def known_of(sandbox: Sandbox) -> dict[str, str]:
    """What a life is told of the service."""
    return {
        "base": sandbox.base_url,
        "key": sandbox.app_key,
        "user": sandbox.user_id,
        "password": sandbox.app_password,
    }


async def strike(
    nursery: Nursery, folder: Path, point: str, blow: str, *, seed: int = 0, broken: bool = False
) -> list[str]:
    """Strike a life at a point, let another process go on, and say what is wrong in the end."""
    await asyncio.to_thread(folder.mkdir)
    async with service(seed, broken=broken) as sandbox:
        told = {"folder": str(folder), "broken": broken} | known_of(sandbox)
        async with asyncio.TaskGroup() as group:
            listening: list[asyncio.Task[None]] = []

            def born(**more: str) -> Child:
                child = nursery.begin(**told, **more)
                listening.append(group.create_task(_listen(child, sandbox)))
                return child

            first = born(point=point, blow=blow)
            problems = await (_killed(first, born, folder) if blow == "kill" else _stopped(first, born))
            for task in listening:
                task.cancel()
        return [f"{point}, {blow}: {problem}" for problem in problems or await judge(sandbox, folder)]


async def _listen(child: Child, sandbox: Sandbox) -> None:
    while True:
        sandbox.ipn_url = await child.said.get()


async def _killed(first: Child, born: Callable[[], Child], folder: Path) -> list[str]:
    code = await first.code
    half_a_minute_passes(folder)
    codes = [code, await born().code]
    return [] if codes == [-signal.SIGKILL, 0] else [f"the processes ended with {codes}"]


async def _stopped(first: Child, born: Callable[[], Child]) -> list[str]:
    stopped = asyncio.ensure_future(first.stopped.wait())
    first.code.add_done_callback(lambda _: stopped.cancel())
    await asyncio.wait([stopped])
    if stopped.cancelled():
        return [f"it was never stopped, and ended with {first.code.result()}"]
    rival = born()
    await asyncio.sleep(1.5 * LEASE)  # the lease has run out, and where the file is free it is taken over
    await first.send(signal.SIGCONT)
    codes = [await first.code, await rival.code]
    return [] if codes == [0, 0] else [f"the processes ended with {codes}"]


def _complaint(entry: Entry, execution: Execution | None) -> str | None:
    """What cannot be right of an order."""
    if execution is not None and entry.state in ("unknown", "parked", "accepted"):
        return f"is {entry.state}, and was carried out and listed"
    if entry.batch_id == SHOP and entry.state == "planned":
        return "was put, and never sent"
    if entry.request_id == mistaken().request_id and entry.state != "cancelled":
        return f"was put by mistake, and is {entry.state}"
    return contradiction(entry.state, execution)


async def judge(sandbox: Sandbox, folder: Path) -> list[str]:
    """What the ledger says against the journal, once everything has come to rest."""
    answered = {delivery.request_id for delivery in sandbox.deliveries if delivery.status == 200}
    sandbox.ipn_url = None
    who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
    async with (
        SqliteJournal(folder / "journal.db", state_folder=folder / "state") as journal,
        PaymentsSession(sandbox.base_url, who) as payments,
    ):
        await run_batch(payments, journal, BATCH, settings=RunSettings(lease=LEASE))
        async with Outbox(payments, journal, SHOP, worker=WorkerSettings(lease=LEASE)) as outbox:
            for order in singles():  # what was put and is planned is sent by whoever opens it
                await outbox.pay(order, timeout=30.0)
        await sandbox.settle(30)
        await reconcile(payments, journal, settings=ReconcileSettings(grace=0.0, interval=0.0))
        executions = {execution.request_id: execution for execution in sandbox.ledger}
        found = [f"{request_id} was carried out twice" for request_id in sandbox.duplicates()]
        counts = dict.fromkeys(State, 0)
        put = 0
        async for entry in journal.entries():
            if entry.batch_id == BATCH:
                counts[entry.state] += 1
            elif entry.batch_id == SHOP:
                put += 1
            else:
                continue
            why = _complaint(entry, executions.pop(entry.request_id, None))
            found += [] if why is None else [f"{entry.request_id} {why}"]
        if put != SINGLES + 1:
            found.append(f"{SINGLES + 1} orders were put, {put} are there")
        gone = await journal.archived_of(list(executions))
        if list(gone) != [leaving().request_id]:
            found.append(f"these have left for an archive: {list(gone)}")
        found += [f"{request_id} is in no journal" for request_id in executions if request_id not in gone]
        if counts != (await journal.progress(BATCH)).counts or sum(counts.values()) != COUNT:
            found.append(f"the counts are wrong: {counts}")
        for request_id in answered.difference(gone):  # what was known of those stands in the archive
            if "delivery" not in {happening.what for happening in await journal.history(request_id)}:
                found.append(f"a notification about {request_id} was answered and is not stored")
        await journal.check()
    return found

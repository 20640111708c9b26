"""One process's work on a journal from loading to the last resolution, killed at a named point and begun again.

Run as a program it forks a child for each point, which kills itself there, and another that finishes the work; then it
prints, for each point, what is wrong. What a child "sends" is a line in a file, written after its permit and before its
outcome: the world outside, which no rollback takes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from journal import postgres
from journal.factories import BATCH, IDENTITY, approve, delivery, event, missed, order, orders, transaction_id
from journal.points import STRUCK
from nested import for_journal

from payments_async._wire.orders import PayoutOrder
from payments_async.journal import (
    Journal,
    JournalRefused,
    ListingDeadline,
    OrdersArchived,
    PostgresJournal,
    Signal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
)
from payments_async.journal import _states as states
from payments_async.journal._records import Placed
from payments_async.journal._statements import _permits
from payments_async.journal.contract import (
    Arrival,
    Backlog,
    Chunk,
    ClaimedOrder,
    Doubt,
    Evidence,
    Outcome,
    Permit,
    Transition,
)

DATABASE = "LIFETIMES_DSN"  # of a database in place of files
COUNT = 8
OTHER = "adopted"
STANDING = "standing"  # an outbox
OLD = "old"
SHOP = "shop"  # another outbox, whose orders are put
AGE = 100 * 86_400.0  # seconds
SENT_TWICE = 5  # the order that a person writes off, and that had not arrived
OUTCOMES = {1: Signal.REJECTED, 3: Signal.UNKNOWN, 4: Signal.UNKNOWN, 5: Signal.UNKNOWN}
SETTLED = {"accepted", "rejected", "unknown", "successful", "failed", "parked"}


async def live(path: Path, world: Path, *, later: float = 0, crash_at: Callable[[str], None] | None = None) -> None:
    """Everything that is ever done with a journal, in a sequence that can be begun again at any point."""
    owner = f"worker {later}"
    clock = clock_of(later)
    async with opened(path, clock=clock, crash_at=crash_at) as journal:
        await approve(journal)
        await journal.open_run(BATCH, IDENTITY)
        if not (await journal.run(BATCH)).ready:
            with contextlib.suppress(_Interrupted):
                await journal.load(BATCH, _interrupted(), owner=owner)
            await journal.receive(delivery(b"early"), event(0, 0), owner=owner, lease=0)
        await journal.load(BATCH, orders(COUNT), owner=owner)
        await journal.expire_chunks(BATCH)  # which commits, whatever is to be done
        await serve(journal, owner)
        await pace(journal, owner)
        await adopt(journal, path.with_name("lost.db"), owner)
        await send(journal, world, owner)
        await hear(journal, owner)
        await tell(journal, owner)
        await shop(journal, world, owner)
        await resolve(journal, world, owner)
        await end(journal, owner)
    later += AGE  # so that what has ended is old; all else stays as it is
    async with opened(path, clock=clock_of(later), crash_at=crash_at) as journal:
        await retire(journal, path.with_name("archive"))


def opened(path: Path, **options: Any) -> Journal:
    """The journal of that path: a file, or a namespace of its own in the database that the environment names."""
    dsn, state = os.environ.get(DATABASE), path.with_name("state")
    if dsn is None:
        return SqliteJournal(path, state_folder=state, **for_journal(options))
    return PostgresJournal(dsn, schema=f"life_{path.stem}", state_folder=state, **for_journal(options))


def emptied() -> None:
    """Make the namespaces of the last journals empty."""
    if (dsn := os.environ.get(DATABASE)) is not None:
        for name in ("journal", "lost"):
            postgres.empty(dsn, f"life_{name}")


def clock_of(later: float) -> Callable[[], float]:
    """The clock, so many seconds ahead."""
    return lambda: time.time() + later


async def end(journal: Journal, owner: str) -> None:
    """A batch that ends, unless it has left."""
    with contextlib.suppress(OrdersArchived):
        await journal.open_run(OLD, IDENTITY)
        await journal.load(OLD, orders(2, batch=OLD), owner=owner)
    while (chunk := await journal.claim_chunk(OLD, owner)) is not None:
        for held in chunk.orders:
            permit = await journal.permit(chunk, held)
            assert isinstance(permit, Permit), permit
            await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
        await journal.release_chunk(chunk)
    for about in orders(2, batch=OLD):
        failed = Evidence(
            signal=Signal.LOOKED_UP_FAILED, source="list", request_id=about.request_id, amount=about.amount
        )
        await journal.apply_evidence(failed)


async def retire(journal: Journal, file: Path) -> None:
    """What has ended leaves for a file, which is never undone either."""
    number = await journal.begin_archive(str(file), who="Ann", why="it is old")
    async for page in journal.old_orders(older_than=AGE / 2):
        leaving = [old for old in page if old.request_id.startswith(OLD)]
        with file.open("ab") as lines:
            lines.writelines(old.line + b"\n" for old in leaving)
        await journal.prune_orders(number, leaving)
    await journal.end_archive(number)


async def adopt(journal: Journal, lost: Path, owner: str) -> None:
    """Go on with the orders of another journal, which may have sent them; and not very far."""
    async with opened(lost) as other:
        if not (await other.open_run(OTHER, IDENTITY)).ready:
            second = TakeoverAuthorisation(who="Ann", why="a journal of its own")
            await other.load(OTHER, orders(2, batch=OTHER), owner=owner, adoption=second)
    await journal.open_run(OTHER, IDENTITY)
    adoption = TakeoverAuthorisation(who="Ann", why="the other one is lost")
    await journal.load(OTHER, orders(2, batch=OTHER), owner=owner, adoption=adoption)


class _Interrupted(Exception):
    """The file of orders breaks off."""


def _interrupted() -> Iterator[PayoutOrder]:
    yield from [order(number) for number in range(2)]
    yield from [order(number, "7") for number in range(2000, 3000)]
    raise _Interrupted


async def send(journal: Journal, world: Path, owner: str) -> None:
    """Claim what can be claimed, and send it."""
    while (chunk := await journal.claim_chunk(BATCH, owner)) is not None:
        chunk = await journal.renew_chunk(chunk)
        cancelled = asyncio.ensure_future(journal.permit(chunk, chunk.orders[-1]))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        after: Outcome | None = None
        for place, held in enumerate(chunk.orders):
            after = await attempt(journal, chunk, held, world, after, beside=place % 2 == 0)
        if after is not None:
            await journal.record(after)
        await journal.release_chunk(chunk)


async def attempt(
    journal: Journal, chunk: Chunk, held: ClaimedOrder, world: Path, after: Outcome | None, *, beside: bool
) -> Outcome | None:
    """One order: first not sent, then sent."""
    if after is not None and not beside:
        await journal.record(after)
        after = None
    permit = await journal.permit(chunk, held, after=after)
    assert isinstance(permit, Permit), permit
    if permit.attempt == 1:
        await journal.record(Outcome(permit=permit, signal=Signal.NOT_SENT))
        permit = await journal.permit(chunk, held)
        assert isinstance(permit, Permit), permit
    with world.open("a") as file:
        file.write(f"{permit.request_id}\n")
    number = int(permit.request_id[-6:])
    signal = Signal.ACCEPTED if permit.sent_before else OUTCOMES.get(number, Signal.ACCEPTED)
    return Outcome(
        permit=permit, signal=signal, transaction_id=transaction_id(number) if signal is Signal.ACCEPTED else None
    )


async def hear(journal: Journal, owner: str) -> None:
    """Notifications, from delivery to the last handler."""
    sent = [entry async for entry in journal.entries(BATCH, "accepted")]
    for entry in sent:
        number = int(entry.request_id[-6:])
        arrival = Arrival(
            delivery=delivery(entry.request_id.encode()), event=event(0, number), lease=90, doubt=Doubt.UNCONFIRMED
        )
        (receipt,) = await journal.receive_all((arrival,), owner=owner)
        assert not isinstance(receipt, Exception)
        await journal.confirm(receipt.event_id)
    await journal.release(owner)
    for round_ in range(3):
        for stored in await journal.claim(owner, lease=90, limit=10):
            await journal.note_done(stored.event_id, "handler")
            if round_ == 0:
                await journal.retry_later(stored.event_id, delay=0, error="no")
            else:
                await journal.finish(stored.event_id, "dead" if round_ == 1 else "handled")
        await journal.revive()


async def tell(journal: Journal, owner: str) -> None:
    """What becomes of an order of an outbox, from the change to the last handler."""
    about, states = order(1, batch=STANDING), (State.ACCEPTED, State.SUCCESSFUL)
    await journal.hear(STANDING, states)
    await journal.open_run(STANDING, IDENTITY, outbox=STANDING)
    await journal.load(STANDING, [about], owner=owner)
    for said in (Signal.ACCEPTED, Signal.LOOKED_UP_SUCCESSFUL):
        told = Evidence(
            signal=said, source="record", request_id=about.request_id, amount=about.amount, currency=about.currency
        )
        await journal.apply_evidence(told)
    for round_ in range(3):
        for change in await journal.claim_changes(STANDING, states, owner, lease=90, limit=10):
            await journal.note_change_done(change.id, "handler")
            if round_ == 0:
                await journal.retry_change(change.id, delay=0, error="no")
            else:
                await journal.finish_changes([change.id], "dead" if round_ == 1 else "handled")
        await journal.revive_changes()
    await journal.release_changes(owner)
    await journal.forget_changes(STANDING, State.REVERSED, who="Ann", why="nobody hears of it")
    await journal.prune_changes(older_than=1e9)


async def shop(journal: Journal, world: Path, owner: str) -> None:
    """What applications and persons ask of an outbox: orders are put, one of which a list has shown, and one sent."""
    await journal.open_outbox(SHOP, IDENTITY)
    shown = order(2, batch=SHOP)
    seen = Evidence(
        source="list",
        request_id=shown.request_id,
        transaction_id=transaction_id(200),
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        amount=shown.amount,
    )
    await journal.note_observed([seen])
    await journal.pause(SHOP, who="Ann", why="lunch")
    for about in orders(3, batch=SHOP):
        await journal.put(SHOP, about)
    await journal.cancel(order(1, batch=SHOP).request_id, who="Ann", why="ordered twice")
    await journal.resume(SHOP, who="Ann", why="lunch is over")
    await journal.begin_day(SHOP, "1970-01-12", Decimal(0))
    await journal.expire_chunks()  # of a life that was broken off
    at_once = await journal.put(SHOP, order(3, batch=SHOP), owner=owner, permits=True)
    if at_once.permit is not None:
        with world.open("a") as file:
            file.write(f"{at_once.entry.request_id}\n")
        sent = Outcome(permit=at_once.permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(203))
        await journal.record(sent)
    if at_once.chunk is not None:
        await journal.release_chunk(at_once.chunk)
    if isinstance(journal, PostgresJournal):
        await withdraw(journal, world, owner)


async def withdraw(journal: PostgresJournal, world: Path, owner: str) -> None:
    """An application puts orders within a transaction: of two, one is sent at once; one was edited, and is dropped."""
    torn = order(5, batch=SHOP)
    async with await psycopg.AsyncConnection.connect(os.environ[DATABASE]) as connection:
        for about in (order(4, batch=SHOP), torn):
            with contextlib.suppress(JournalRefused):  # it could not be taken in an earlier life
                await journal.lay(SHOP, about, connection)
        await connection.execute(
            f"UPDATE {journal._namespace}.tray SET amount = '7' WHERE request_id = %s".encode(),  # noqa: S608
            (torn.request_id,),
        )
    for one in await journal.laid(SHOP):
        placed = (await journal.take(SHOP, [one.id], owner=owner, permits=[one.id]))[one.id]
        if isinstance(placed, Placed) and placed.permit is not None:
            with world.open("a") as file:
                file.write(f"{one.request_id}\n")
            await journal.record(
                Outcome(permit=placed.permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(204))
            )
        if isinstance(placed, Placed) and placed.chunk is not None:
            await journal.release_chunk(placed.chunk)
    await journal.discard_staged(SHOP, torn.request_id, who="Ann", why="it was edited")


async def taken(journal: Journal, owner: str) -> None:
    """Take a duty, as soon as it is seen that whoever had it is dead."""
    async with asyncio.timeout(60):
        while not await journal.take_duty("duty", owner, lease=3600):
            await journal.committed(await journal.committed(0, timeout=0), timeout=0.05)


async def serve(journal: Journal, owner: str) -> None:
    """Take a duty, which one that was killed has left, keep it, and give it back."""
    for _ in range(2):
        await taken(journal, owner)
    await journal.leave_duty("duty", owner)


async def pace(journal: Journal, owner: str) -> None:
    """Take a turn of the rate of all, and tell all of a pause that the service asked for."""
    await journal.request_rate(owner, 100.0, lease=30)
    await journal.reserve_turns(1)
    await journal.cool_down(0.1, why="slow down")
    await journal.withdraw_rate(owner)


async def resolve(journal: Journal, world: Path, owner: str) -> None:
    """What list scans and persons do."""
    third = order(3)
    found = Evidence(
        signal=Signal.LOOKED_UP_FAILED, source="list", request_id=third.request_id, amount=third.amount,
        transaction_id=transaction_id(3),
    )  # fmt: skip
    await journal.apply_evidence(found)
    request_id = order(SENT_TWICE).request_id
    await journal.park(request_id, detail="two list scans")
    entry = await journal.entry(request_id)
    assert entry is not None
    if entry.state == "parked" and not entry.sent_before:
        await journal.send_again(request_id, who="Ann", why="never arrived")
    await send(journal, world, owner)
    await journal.acknowledge(order(0).request_id, who="Ann", why="known")
    word = ListingDeadline(within=900, until=4e9, orders=1, amount=1, total=1)
    await journal.give_listing_deadline(word, who="Ann", why="their letter")
    await journal.withdraw_listing_deadline(None, who="Ann", why="it is not so")
    await missed(journal)
    await journal.prune_inbox(older_than=1e9)
    await journal.check_writable()
    await journal.lift_quarantine(BATCH, who="Ann", why="looked up")


async def wrong_in_shop(journal: Journal, sent: Counter[str]) -> list[str]:
    """What is not as it should be with the orders that were put."""
    found = []
    put = {entry.request_id: entry.state.value async for entry in journal.entries(SHOP)}
    expected = {about.request_id: "planned" for about in orders(3, batch=SHOP)}
    at_once = {order(n, batch=SHOP).request_id for n in ((3, 4) if DATABASE in os.environ else (3,))}
    for one, ended in [(one, put.pop(one)) for one in at_once]:
        if ended not in ("accepted", "unknown") or (one in sent) < (ended == "accepted"):
            found += [f"{one} is {ended}"]
    expected |= {order(1, batch=SHOP).request_id: "cancelled", order(2, batch=SHOP).request_id: "successful"}
    if put != expected or await journal.paused(SHOP):
        found.append(f"{put} were put, paused: {await journal.paused(SHOP)}")
    return found


async def wrong(path: Path, sent: Counter[str]) -> list[str]:
    """What is not as it should be after all work is done."""
    found = [f"{request_id} sent {count} times" for request_id, count in sent.items() if count > _allowed(request_id)]
    async with opened(path) as journal:
        await journal.check()
        if (await journal.chunks(OTHER)).quarantined != 1:
            found.append("what was adopted may be sent")
        entries = [entry async for entry in journal.entries(BATCH)]
        found += [f"{len(entries)} orders"] if len(entries) != COUNT else []
        counts = Counter[str](entry.state for entry in entries)
        progress = await journal.progress(BATCH)
        found += [] if counts == {k: v for k, v in progress.counts.items() if v} else ["the tallies are wrong"]
        for entry in entries:
            was_sent = entry.request_id in sent or entry.request_id == order(0).request_id  # somebody else sent that
            if entry.state not in SETTLED:
                found.append(f"{entry.request_id} is {entry.state}")
            if entry.state in ("accepted", "rejected", "successful") and not was_sent:
                found.append(f"{entry.request_id} is {entry.state} and was never sent")
            await journal.history(entry.request_id)
        ended = [about.request_id for about in orders(2, batch=OLD)]
        lines = [json.loads(line)["request_id"] for line in path.with_name("archive").read_bytes().splitlines()]
        if set(lines) != set(ended) or set(await journal.archived_of(ended)) != set(ended):
            found.append(f"{lines} are in the archive")
        if (await journal.progress(OLD)).counts[State.FAILED] != len(ended):
            found.append("what has left is not counted")
        found += await wrong_in_shop(journal, sent)
        if (await journal.pace()).named:
            found.append("somebody who is gone has a say in the pace")
        if (await journal.backlog()).pending:
            found.append("events are unhandled")
        told = [change.state.value for change in await journal.changes_after(STANDING, 0)]
        if told != ["accepted", "successful"] or (await journal.change_backlog()) != Backlog(
            pending=0, dead=0, oldest=None
        ):
            found.append(f"changes {told} were written, {await journal.change_backlog()} is left of them")
    return found


def _allowed(request_id: str) -> int:
    return 2 if request_id == order(SENT_TWICE).request_id else 1


def killer(point: str, times: int) -> Callable[[str], None]:
    """Kills this process when the point is passed for so many times."""
    passed = 0

    def crash_at(name: str) -> None:
        nonlocal passed
        passed += name == point
        if passed == times:
            os.kill(os.getpid(), signal.SIGKILL)

    return crash_at


def child(run: Callable[[], None]) -> int:
    """Run something in a process of its own; its exit status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def try_point(point: str, times: int) -> list[str] | None:
    """Kill at a point and go on; what is wrong then, or ``None`` when it is not passed so often."""
    with tempfile.TemporaryDirectory() as place:
        path, world = Path(place) / "journal.db", Path(place) / "world"
        crash_at = killer(point, times)
        emptied()
        killed = child(lambda: asyncio.run(live(path, world, crash_at=crash_at)))
        if killed == 0:
            return None
        if not os.WIFSIGNALED(killed):
            return ["it failed by itself"]
        if child(lambda: asyncio.run(live(path, world, later=120))):
            return ["it could not be continued"]
        sent = Counter(world.read_text().split()) if world.exists() else Counter[str]()
        return asyncio.run(wrong(path, sent))


def break_rule_2() -> None:
    """Let an expired lease return an order to planned, as a queue would. The control: this has to show."""

    def next_state(state: State, signal: Signal, *, sent_before: bool = False) -> Transition:
        return Transition(State.PLANNED) if signal is Signal.LEASE_EXPIRED else states.next_state(state, signal)

    vars(_permits)["next_state"] = next_state


def main() -> None:
    """Try points, or every one, at the first time it is passed and at later ones: ``1 2 3``; or as a ``control``."""
    words = sys.argv[1:]
    if "control" in words:
        break_rule_2()
    times = [int(word) for word in words if word.isdecimal()] or [1]
    points = [point for point in STRUCK if point in words] or STRUCK
    found = {point: {count: try_point(point, count) for count in times} for point in points}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()

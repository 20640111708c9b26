"""Who else is in a world: a service that lies, senders of forged notifications, a second journal, another machine."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import attrs
from bulk.worlds import payout
from simulation.machines import ANN, FILES

from payments_async import PaymentsError
from payments_async.bulk import run_batch
from payments_async.journal import JournalError, SqliteJournal
from payments_async.outbox import Outbox
from payments_async.outbox._scans import ListScanner
from payments_async.sandbox import _app
from payments_async.sandbox._faults import Fault, Strike
from payments_async.sandbox._records import Reply
from payments_async.testing._simulation.processes import CURRENT, Process

if TYPE_CHECKING:
    from simulation.worlds import World

STRANGERS = ("lies", "forgeries", "second_journal", "elsewhere")
ABROAD = "203.0.113.9"
_ELSEWHERE = "7d7e0000-5a4d-4b0c-8000-0000000000ff"
_NOTICED = 65.0  # seconds of sleep that an outbox surely notices
_STALL = 70.0  # seconds for which a request may stand still
_PAUSE = 20.0  # seconds between two forgeries, at most


def drawn(seed: int) -> tuple[str, ...]:
    """Which of them exist in the world of a seed."""
    chance = random.Random(f"strangers {seed}")
    return tuple(one for one in STRANGERS if chance.random() < 0.25)


# --- the service

Lie = Callable[[str, Mapping[str, Any]], tuple[int, Any]]


def _no(**members: Any) -> dict[str, Any]:
    return {"code": 4000, "status": "failed", "message": "The transaction was refused", "data": None, **members}


# What it says of an order that it has carried out; given the order's id and the acceptance.
OF_CARRIED_OUT: tuple[Lie, ...] = (
    lambda _, __: (409, _no()),
    lambda _, __: (500, _no()),
    lambda _, said: (400, _no(data={"transactionId": said["data"]["transactionId"]})),
    lambda _, __: (400, json.dumps(_no())),
    lambda _, __: (400, _no(success=True)),
    lambda _, __: (400, _no(message="The order was already received")),
    lambda _, __: (400, _no(message="The order is in progress")),
    lambda _, __: (400, _no(data={"requestId": "another"})),
    lambda _, __: (400, b'{"code":4000,"status":"fai'),
    lambda _, said: (400, f"error transactionId={said['data']['transactionId']}".encode()),
    lambda _, said: (429, _no(data={"transactionId": said["data"]["transactionId"]})),
    lambda _, said: (200, said | {"code": 4000}),
)
# What it says of an order that it has not; given the order's id and what would be its acceptance.
OF_NOT_CARRIED_OUT: tuple[Lie, ...] = (
    lambda _, said: (200, said | {"data": said["data"] | {"requestId": "another"}}),
    lambda _, said: (200, said | {"data": said["data"] | {"requestId": "another", "more": 1}}),
    lambda _, said: (200, said | {"success": False}),
    lambda _, said: (200, said | {"code": 4000}),
)


def _acceptance(request_id: str) -> dict[str, Any]:
    data = {
        "requestId": request_id, "batchId": "", "transactionId": _ELSEWHERE, "status": "PROCESSING",
        "message": "Transaction is being processed", "createdOn": "1/5/2026 8:00:00 AM",
    }  # fmt: skip
    return {"code": 0, "message": "Your transaction is being processed", "status": "success", "data": data}


def begin_to_lie(seed: int) -> None:
    """Let answers with an error, of orders that were carried out or not, be lies from now on; in this process."""
    distorted, turned_away = _app._distorted, _app._turned_away

    def lie(request: Any, table: tuple[Lie, ...], acceptance: dict[str, Any] | None) -> Any:
        request_id = _app._exchange(request, _app._payload(request._read_bytes), echo=None).request_id or ""
        told = random.Random(f"lie {seed} {request_id}").choice(table)
        status, body = told(request_id, acceptance or _acceptance(request_id))
        return _app._respond(Reply(status=status, body=body if isinstance(body, bytes) else json.dumps(body).encode()))

    async def distorts(strike: Strike, reply: Reply, *rest: Any) -> Any:
        if strike.fault is Fault.ERROR_AFTER and reply.status == 200:
            return lie(rest[-1], OF_CARRIED_OUT, json.loads(reply.body))
        return await distorted(strike, reply, *rest)

    def turns_away(strike: Strike, *rest: Any) -> Any:
        if strike.fault is Fault.ERROR_BEFORE:
            return lie(rest[-1], OF_NOT_CARRIED_OUT, None)
        return turned_away(strike, *rest)

    _app._distorted, _app._turned_away = distorts, turns_away


# --- notifications


@attrs.define(eq=False)
class Forger:
    """Sends notifications that are not true: from its own address, and from the service's where that is not enough.

    It says nothing that the service's record would bear out: a failure of what is still under way is for no receiver
    to tell from a true one.
    """

    world: World

    def begin(self) -> None:
        """In a process for each address."""
        for address in (ABROAD, "127.0.0.1") if self.world.plan.confirms else (ABROAD,):
            process = Process(self.world.loop, f"forger-{address}")
            process.address = address
            process.start(self._forge(random.Random(f"forger {self.world.plan.seed} {address}")))

    async def _forge(self, chance: random.Random) -> None:
        timeout = aiohttp.ClientTimeout(total=5.0)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            while not self.world.is_calm:
                await asyncio.sleep(chance.random() * _PAUSE)
                url, body = self.world.sandbox.ipn_url, self._forged(chance)
                if url is not None and body is not None:
                    self.world.say("service", "(a forger)", body.get("RequestId"), body.get("StatusCode"))
                    forged = json.dumps(body).encode()
                    self.world.judge.forged.add(forged)
                    with suppress(aiohttp.ClientError, OSError, TimeoutError):
                        async with http.post(url, data=forged, headers={"Content-Type": "application/json"}):
                            pass

    def _forged(self, chance: random.Random) -> dict[str, Any] | None:
        """What a true notification said, changed in one thing."""
        sandbox = self.world.sandbox
        if not sandbox.deliveries:
            return None
        told = chance.choice(sandbox.deliveries)
        body: dict[str, Any] = json.loads(told.body)
        ended = next(str(one.status) for one in sandbox.ledger if one.request_id == told.request_id)
        other = payout(chance.randrange(self.world.plan.orders)).request_id
        change: dict[str, Any] = chance.choice([
            {"StatusCode": 2 if ended.startswith("SUCC") else 0} if ended != "PROCESSING" else {"Amount": 1},
            {"Amount": body["Amount"] + 1, "StatusCode": chance.choice([0, 2])},
            {"CurrencyCode": "KES", "StatusCode": chance.choice([0, 2])},
            {"RequestId": other, "StatusCode": 2} if other != told.request_id else {"Amount": 2},
            {"TransactionId": _ELSEWHERE, "RequestId": other, "StatusCode": chance.choice([0, 2])},
        ])  # fmt: skip
        return body | change


# --- a second journal


@attrs.define(eq=False)
class Mistaken:
    """Works with another journal by mistake: with a mistyped name, and a person who says that the first one is lost."""

    world: World

    def begin(self) -> None:
        """In a process of its own."""
        Process(self.world.loop, "mistaken").start(self._pay())

    async def _pay(self) -> None:
        world, chance = self.world, random.Random(f"mistaken {self.world.plan.seed}")
        wanted = world.plan.orders + world.plan.batch * world.plan.batches
        rows = world.judge.rows
        while not world.is_calm and (len(rows) < wanted or not all(row.tries for row in rows.values())):
            await asyncio.sleep(1.0)  # an order that the first journal has not begun may be begun here
            rows = world.judge.rows
        if world.is_calm:
            return
        word = ANN if chance.random() < 0.5 else None
        place = world.folder / "mistyped.db"
        world.say("person", "begins another journal", "and says why" if word else "")
        with suppress(JournalError):  # a second journal of an account is refused, unless a person says why
            async with (
                SqliteJournal(place, state_folder=world.machine.state, second_journal=word) as journal,
                world._session() as payments,
                Outbox(payments, journal, "shop", concurrency=2) as outbox,
            ):
                for row in rows.values():
                    if row.batch_id == "shop":
                        with suppress(JournalError):
                            await outbox.put(payout(int(row.request_id.rpartition("-")[2]), batch_id="shop"))
                if word is None:
                    await outbox.put(payout(5000, batch_id="shop"))
                    world.faults.append(
                        "an order was put into a second journal, and no person has said why there is one"
                    )
                if world.plan.batch:
                    name = "salaries-0"
                    orders = [payout(1000 + one, batch_id=name) for one in range(world.plan.batch)]
                    await run_batch(payments, journal, name, orders)
                await asyncio.sleep(60.0)


# --- another machine


@attrs.define(eq=False)
class Elsewhere:
    """Another machine, which pays some of the same orders from a journal that is not known here.

    An application puts a single order of these once a list has shown it to an outbox, and a batch once nothing more is
    paid of it there. While this machine sleeps, a snapshot of it goes on there, and pays what was planned.

    Attributes:
        theirs: Orders that it pays before they are put here.
        snapshot: Those that its snapshot has paid.
        shown: Those that a list has shown to an outbox.
        done_at: It pays nothing any more from then on.
        asleep_at, woken_at: When this machine has fallen asleep, and woken from a sleep that is noticed.
    """

    world: World
    theirs: set[str] = attrs.field(factory=set)
    snapshot: set[str] = attrs.field(factory=set)
    shown: set[str] = attrs.field(factory=set)
    done_at: float = 0.0
    asleep_at: float = float("inf")
    woken_at: float = float("-inf")

    @property
    def _exists(self) -> bool:
        """Whether there is one: where the journal forgets nothing, and a list that lacks some looks complete to none.

        Where pages shift and rows are not counted it does.
        """
        has, kinds = self.world.has, {blow.kind for blow in self.world.plan.blows}
        is_blind = has("late") or (has("unstable") and (has("no_total") or has("lying_total")))
        return has("elsewhere") and kinds.isdisjoint(FILES) and not is_blind

    async def begin(self) -> None:
        """Pay a part before anything begins here, the rest meanwhile."""
        world, chance = self.world, random.Random(f"elsewhere {self.world.plan.seed}")
        if not self._exists:
            return
        self.done_at = float("inf")
        numbers = [*range(world.plan.orders), *range(3000, 3000 + world.plan.gifts)]
        for which in range(world.plan.batches):
            numbers += range(1000 * (which + 1), 1000 * (which + 1) + world.plan.batch)
        theirs = [number for number in numbers if chance.random() < 0.5]
        chance.shuffle(theirs)
        self.theirs = {payout(number).request_id for number in theirs}
        take = ListScanner._take

        async def takes(scanner: ListScanner, window: Any, rows: Any) -> None:
            await take(scanner, window, rows)
            if str(CURRENT.get()).startswith("<app"):  # an outbox reads it
                self.shown.update(row.request_id.lower() for row in rows if row.request_id)

        ListScanner._take = takes  # type: ignore[method-assign]
        begun = world.loop.create_future()
        Process(world.loop, "elsewhere").start(self._pay(theirs, chance, begun))
        await begun

    async def _pay(self, numbers: list[int], chance: random.Random, begun: asyncio.Future[None]) -> None:
        early = chance.randrange(len(numbers) + 1)

        def begin_here() -> None:
            if not begun.done():
                begun.set_result(None)

        try:
            async with self.world._session() as payments:
                for place, number in enumerate(numbers):
                    if place >= early:
                        begin_here()
                        await asyncio.sleep(chance.random() * self.world.plan.trouble / (4 * len(numbers)))
                    order = self._order(number)
                    self.world.sandbox.script(Fault.NOTIFY_LOST, request_id=order.request_id)
                    with suppress(PaymentsError):
                        await payments.payouts.send(order)
        finally:
            self.done_at = self.world.loop.now + (_STALL if self.world.has("stall") else 0.0)
            begin_here()

    def _order(self, number: int) -> Any:
        kinds = {0: "shop", 3: "gifts"}
        return payout(number, batch_id=kinds.get(number // 1000, f"salaries-{number // 1000 - 1}"))

    @property
    def is_done(self) -> bool:
        """Whether it pays nothing any more, and nothing of it is on its way."""
        return self.world.loop.now >= self.done_at

    async def wait_to_put(self, request_id: str) -> bool:
        """Wait until a single order may be put; tells whether it is put at all.

        One that no list has shown until all is calm is known to have been paid.
        """
        machine = self.world.machine
        while request_id in self.theirs and request_id not in self.shown:
            if (self.is_done and not self.world.sandbox.executions(request_id)) or machine.knows_all:
                break
            await asyncio.sleep(5.0)
        if request_id in self.theirs and request_id not in self.shown and self.world.sandbox.executions(request_id):
            machine.known.add(request_id)
            return False
        return True

    async def wait_to_begin(self) -> None:
        """Wait until nothing more is paid there of a batch."""
        while not self.is_done:  # noqa: ASYNC110 - it ends in another process
            await asyncio.sleep(5.0)

    def goes_on(self) -> None:
        """This machine falls asleep: what is planned here now is paid elsewhere while it sleeps."""
        world, blows = self.world, {blow.kind for blow in self.world.plan.blows}
        if not self._exists or self.snapshot or not blows.isdisjoint({"clock", "own_clock"}):
            return
        rows = [row for row in world.judge.planned() if row.request_id.lower() not in self.theirs]
        self.snapshot = {row.request_id.lower() for row in rows}
        self.asleep_at = world.loop.now

        async def pay() -> None:
            async with world._session() as payments:
                for row in rows:
                    with suppress(PaymentsError):
                        await payments.payouts.send(
                            payout(int(row.request_id[-6:]), batch_id=row.batch_id, request_id=row.request_id)
                        )

        Process(world.loop, "snapshot").start(pay())

    def wakes(self) -> None:
        """This machine wakes: where it slept for long enough, what is listed by now is to be found in the list."""
        if self.world.loop.now - self.asleep_at > _NOTICED and self.woken_at < 0.0:
            self.woken_at = self.world.loop.now
        self.asleep_at = float("inf")

"""Who lies in a world: a service whose words and deeds differ, senders of forged notifications, a second journal."""

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
from simulation.machines import ANN

from payments_async.bulk import run_batch
from payments_async.journal import JournalError, SqliteJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import _app
from payments_async.sandbox._faults import Fault, Strike
from payments_async.sandbox._records import Reply
from payments_async.testing._simulation.processes import Process

if TYPE_CHECKING:
    from simulation.worlds import World

STRANGERS = ("lies", "forgeries", "second_journal")
ABROAD = "203.0.113.9"
_ELSEWHERE = "7d7e0000-5a4d-4b0c-8000-0000000000ff"
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

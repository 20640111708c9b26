"""Applications that pay, right and wrong: what ``assert_pays_once`` is to tell apart."""

import asyncio
import sqlite3
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import aiohttp
from aiohttp import web

from payments_async import Beneficiary, MobileMoneyWallet, PaymentsError, PayoutOrder
from payments_async.ipn import Receiver, serving
from payments_async.journal import Entry, State
from payments_async.outbox import Outbox
from payments_async.testing import Simulation

DEBTS = [(f"+25677200000{number}", 1000 + number) for number in range(4)]
HEARD = (State.SUCCESSFUL, State.FAILED, State.REJECTED, State.REVERSED, State.PARKED)
GIVEN_BACK = (State.FAILED, State.REJECTED, State.REVERSED)
TABLES = """
CREATE TABLE IF NOT EXISTS debt (phone TEXT PRIMARY KEY, amount INTEGER, state TEXT, change_id INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS account (balance INTEGER);
INSERT INTO account SELECT 100000 WHERE NOT EXISTS (SELECT * FROM account);
"""


def order(phone: str, amount: int, request_id: str) -> PayoutOrder:
    """A payout to a wallet."""
    return PayoutOrder(
        request_id=request_id, amount=amount, product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Grace Akello"), destination=MobileMoneyWallet(phone),
    )  # fmt: skip


def opened(simulation: Simulation) -> sqlite3.Connection:
    """The shop's own database."""
    db = sqlite3.connect(simulation.folder / "shop.sqlite")
    db.executescript(TABLES)
    return db


def debit(db: sqlite3.Connection, phone: str, amount: int) -> bool:
    """Write a debt down and take its amount from the balance, in one commit and once."""
    with db:
        made = db.execute("INSERT OR IGNORE INTO debt VALUES (?, ?, 'requested', 0)", (phone, amount)).rowcount
        if made:
            db.execute("UPDATE account SET balance = balance - ?", (amount,))
    return bool(made)


def note(db: sqlite3.Connection, entry: Entry) -> None:
    """Write down where a debt stands, and give back what was not paid: once for each change."""
    with db:
        later = "UPDATE debt SET state = ?, change_id = ? WHERE phone = ? AND change_id < ?"
        phone = entry.order.destination.phone_number
        is_new = db.execute(later, (entry.state, entry.change_id, phone, entry.change_id)).rowcount
        if is_new and entry.state in GIVEN_BACK:
            db.execute("UPDATE account SET balance = balance + ?", (int(entry.amount),))


def check(simulation: Simulation) -> None:
    """The balance is what was not paid; a row says that it was paid where it was, and nowhere else."""
    paid = {one.beneficiary.reference: int(one.amount) for one in simulation.sandbox.ledger if one.status != "FAILED"}
    with closing(opened(simulation)) as db:
        rows = {phone: (amount, state) for phone, amount, state, _ in db.execute("SELECT * FROM debt")}
        (balance,) = db.execute("SELECT balance FROM account").fetchone()
    held = sum(amount for amount, state in rows.values() if state not in GIVEN_BACK)
    assert balance == 100_000 - held, (balance, rows)
    for phone, (_, state) in rows.items():
        assert (phone in paid) == (state == State.SUCCESSFUL) or state not in (State.SUCCESSFUL, *GIVEN_BACK), rows


@asynccontextmanager
async def working(simulation: Simulation, told: object) -> AsyncIterator[Outbox]:
    """Journal, session, receiver and outbox."""
    async with simulation.journal() as journal, simulation.session() as payments:
        outbox = Outbox(payments, journal)
        outbox.on(*HEARD, name="told")(told)
        async with serving(Receiver(journal, ["127.0.0.1"]), port=simulation.port), outbox:
            yield outbox


async def right(simulation: Simulation) -> None:
    """One id for each debt; at the start everything unfinished is put again."""
    with closing(opened(simulation)) as db:

        async def told(entry: Entry) -> None:
            note(db, entry)

        async with working(simulation, told) as outbox:
            for phone, amount in DEBTS:
                debit(db, phone, amount)
            for phone, amount in db.execute("SELECT phone, amount FROM debt WHERE state = 'requested'").fetchall():
                await outbox.put(order(phone, amount, f"debt-{phone}"))
            await asyncio.Event().wait()


async def new_id_at_each_try(simulation: Simulation) -> None:
    """Wrong: what was put before a kill is put again under another id."""
    with closing(opened(simulation)) as db:

        async def told(entry: Entry) -> None:
            note(db, entry)

        async with working(simulation, told) as outbox:
            for phone, amount in DEBTS:
                debit(db, phone, amount)
            for phone, amount in db.execute("SELECT phone, amount FROM debt WHERE state = 'requested'").fetchall():
                await outbox.put(order(phone, amount, str(uuid.uuid4())))
            await asyncio.Event().wait()


async def sends_until_answered(simulation: Simulation) -> None:
    """Wrong: without an outbox, and after an error again."""
    with closing(opened(simulation)) as db:
        for phone, amount in DEBTS:
            debit(db, phone, amount)
        for phone, amount in db.execute("SELECT phone, amount FROM debt WHERE state = 'requested'").fetchall():
            while True:
                with suppress(PaymentsError):
                    async with simulation.session() as payments:
                        await payments.payouts.send(order(phone, amount, f"debt-{phone}"))
                    break
                await asyncio.sleep(1.0)
            with db:
                db.execute("UPDATE debt SET state = 'successful' WHERE phone = ?", (phone,))
        await asyncio.Event().wait()


async def marks_it_paid_itself(simulation: Simulation) -> None:
    """Wrong: a debt counts as paid once it was put."""
    with closing(opened(simulation)) as db:

        async def told(entry: Entry) -> None:
            pass

        async with working(simulation, told) as outbox:
            for phone, amount in DEBTS:
                debit(db, phone, amount)
                await outbox.put(order(phone, amount, f"debt-{phone}"))
                with db:
                    db.execute("UPDATE debt SET state = 'successful' WHERE phone = ?", (phone,))
            await asyncio.Event().wait()


async def gives_back_twice(simulation: Simulation) -> None:
    """Wrong: the handler does not compare ids of changes, and may be told twice."""
    with closing(opened(simulation)) as db:

        async def told(entry: Entry) -> None:
            with db:
                phone = entry.order.destination.phone_number
                db.execute("UPDATE debt SET state = ? WHERE phone = ?", (entry.state, phone))
                if entry.state in GIVEN_BACK:
                    db.execute("UPDATE account SET balance = balance + ?", (int(entry.amount),))

        async with working(simulation, told) as outbox:
            for phone, amount in DEBTS:
                debit(db, phone, amount)
            for phone, amount in db.execute("SELECT phone, amount FROM debt WHERE state = 'requested'").fetchall():
                await outbox.put(order(phone, amount, f"debt-{phone}"))
            await asyncio.Event().wait()


async def puts_only_what_is_new(simulation: Simulation) -> None:
    """Wrong: what was written down before a kill, and not put, is never put."""
    with closing(opened(simulation)) as db:

        async def told(entry: Entry) -> None:
            note(db, entry)

        async with working(simulation, told) as outbox:
            for phone, amount in DEBTS:
                if debit(db, phone, amount):
                    await outbox.put(order(phone, amount, f"debt-{phone}"))
            await asyncio.Event().wait()


async def handler_fails(simulation: Simulation) -> None:
    """Wrong: the handler raises each time."""

    async def told(entry: Entry) -> None:
        raise ValueError("not me")

    async with working(simulation, told) as outbox:
        for phone, amount in DEBTS:
            await outbox.put(order(phone, amount, f"debt-{phone}"))
        await asyncio.Event().wait()


async def with_a_thread(simulation: Simulation) -> None:
    """Wrong here: a thread of its own."""
    threading.Thread(target=print).start()


async def web_shop(simulation: Simulation) -> None:
    """A web application of aiohttp, with the receiver mounted: customers post debts, and ask again."""
    with closing(opened(simulation)) as db:

        async def told(entry: Entry) -> None:
            note(db, entry)

        async with simulation.journal() as journal, simulation.session() as payments:
            outbox = Outbox(payments, journal)
            outbox.on(*HEARD, name="told")(told)

            async def post(request: web.Request) -> web.Response:
                phone, amount = (await request.text()).split()
                debit(db, phone, int(amount))
                await outbox.put(order(phone, int(amount), f"debt-{phone}"))
                return web.Response(status=202)

            app = web.Application()
            app.add_subapp("/ipn", Receiver(journal, ["127.0.0.1"]).app())
            app.router.add_post("/debts", post)
            runner = web.AppRunner(app)
            await runner.setup()
            async with outbox:
                for phone, amount in db.execute("SELECT phone, amount FROM debt WHERE state = 'requested'").fetchall():
                    await outbox.put(order(phone, amount, f"debt-{phone}"))
                await web.TCPSite(runner, "127.0.0.1", simulation.port).start()
                try:
                    await asyncio.Event().wait()
                finally:
                    await runner.cleanup()


async def customers(simulation: Simulation) -> None:
    """Each asks until the answer is 202."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0)) as http:
        for phone, amount in DEBTS:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):
                    url = f"http://127.0.0.1:{simulation.port}/debts"
                    async with http.post(url, data=f"{phone} {amount}") as response:
                        if response.status == 202:
                            break
                await asyncio.sleep(0.5)

"""The application is killed at every point: each withdrawal is paid once, and the balance follows.

    python -m pytest examples/withdrawals

`with_aiohttp` runs as it is; only its files, its port and its service are those of the simulation.
"""

import asyncio
import sqlite3
from contextlib import closing, suppress

import aiohttp
from ledger import GIVEN_BACK
from with_aiohttp import application

from payments_async.ipn import serve
from payments_async.testing import Simulation, assert_pays_once

WISHES = {f"w-{number}": (f"+25677200000{number}", 1000 + number) for number in range(5)}
BALANCE = 100_000  # of grace at first


async def server(simulation: Simulation) -> None:
    """What is killed and started anew."""
    files = {"WITHDRAWALS_DATABASE": "withdrawals.sqlite", "PAYMENTS_JOURNAL": "payments.sqlite"}
    await serve(application({**simulation.environment, **files}), port=simulation.port)


async def customers(simulation: Simulation) -> None:
    """Ask for each withdrawal until it was taken."""
    url = f"http://127.0.0.1:{simulation.port}/withdrawals"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http:
        for request_id, (phone_number, amount) in WISHES.items():
            wish = {"id": request_id, "customer": "grace", "phone_number": phone_number, "amount": amount}
            status = 0
            while status != 202:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with http.post(url, json=wish) as answer:
                        status = answer.status
                await asyncio.sleep(0.5)


def check(simulation: Simulation) -> None:
    """A customer who was paid, or may have been, has less in the balance; one who was not has it back."""
    with closing(sqlite3.connect(simulation.folder / "withdrawals.sqlite")) as db:
        (balance,) = db.execute("SELECT balance FROM customer WHERE name = 'grace'").fetchone()
        states = dict(db.execute("SELECT id, state FROM withdrawal"))
    gone = sum(amount for request_id, (_, amount) in WISHES.items() if states[request_id] not in GIVEN_BACK)
    assert balance == BALANCE - gone, f"{balance} is left: {states}"
    for one in simulation.sandbox.ledger:
        assert (one.status == "FAILED") == (states[one.request_id] in GIVEN_BACK), f"{one.request_id}: {states}"


def test_each_withdrawal_is_paid_once() -> None:
    """Whatever dies meanwhile."""
    assert_pays_once(server, owes=WISHES.values(), customers=customers, check=check, seeds=12)

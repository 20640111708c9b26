"""Withdraws and credits until it is killed.

python bank_process.py DSN NAMESPACE BASE_URL KEY PASSWORD USER FIRST WORKERS
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bulk.worlds import payout
from outbox.banks import Bank, ByAsyncpg

from payments_async import Credentials, PaymentsSession
from payments_async.journal import Entry, PostgresJournal, State
from payments_async.outbox import Outbox


async def main(dsn: str, schema: str, base_url: str, key: str, password: str, user: str, *numbers: str) -> None:
    """Withdraw for one customer after the other, some at once."""
    first, workers = map(int, numbers)
    shop: Bank = ByAsyncpg(dsn, schema)
    credentials = Credentials(app_key=key, app_password=password, user_id=user)
    async with (
        PostgresJournal(dsn, schema=shop.journal) as journal,
        PaymentsSession(base_url, credentials) as payments,
    ):
        outbox = Outbox(payments, journal, concurrency=workers)

        @outbox.on(State.ACCEPTED, within=shop.begin, name="credit")
        async def credit(entry: Entry, connection: Any) -> None:
            await shop.credit(connection, entry.change_id)

        async with outbox:
            sys.stdout.write("here\n")
            sys.stdout.flush()
            orders = iter(range(first, first + 10_000))
            await asyncio.gather(*(withdraw(shop, outbox, orders) for _ in range(4)))


async def withdraw(shop: Bank, outbox: Outbox, numbers: Any) -> None:
    """One withdrawal after the other."""
    for number in numbers:
        async with shop.begin() as connection:
            await outbox.put(payout(number), connection=connection)
            await shop.debit(connection, payout(number).request_id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Settles an outbox until it is killed: python settling_process.py JOURNAL BASE_URL KEY PASSWORD USER."""

import asyncio
import sys

from payments_async import Credentials, PaymentsSession
from payments_async.journal import SqliteJournal
from payments_async.outbox._settling import Settler


async def main(path: str, base_url: str, *who: str) -> None:
    """Settle, and say so as soon as the duty is here."""
    credentials = Credentials(app_key=who[0], app_password=who[1], user_id=who[2])
    async with SqliteJournal(path) as journal, PaymentsSession(base_url, credentials) as payments:
        settler = Settler(payments, journal, "shop", owner="to be killed", lease=3600.0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(settler.run())
            while not (await settler.progress()).is_here:  # noqa: ASYNC110 - nobody else can tell
                await asyncio.sleep(0.01)
            sys.stdout.write("here\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

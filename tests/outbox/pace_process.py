"""Pays through an outbox, as it is told.

    python pace_process.py BASE_URL KEY PASSWORD USER RATE FIRST COUNT DSN NAMESPACE

It says "here" when it is ready, begins with the first line that it reads, and ends with the second, or when it is
killed.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bulk.worlds import payout

from payments_async import Credentials, Limits, PaymentsSession
from payments_async.journal import PostgresJournal
from payments_async.outbox import Outbox, WorkerSettings


async def main(base_url: str, key: str, password: str, user: str, *about: str) -> None:
    """Pay so many orders, all at once."""
    rate, first, count = float(about[0]), int(about[1]), int(about[2])
    dsn, schema = about[3:]
    credentials = Credentials(app_key=key, app_password=password, user_id=user)
    async with (
        PostgresJournal(dsn, schema=schema) as journal,
        PaymentsSession(base_url, credentials, limits=Limits(concurrency=200)) as payments,
        Outbox(payments, journal, worker=WorkerSettings(settles=False), rate=rate or None) as outbox,
    ):
        await say("here")
        await asyncio.gather(*(outbox.pay(payout(number), timeout=60) for number in range(first, first + count)))
        await say("done")


async def say(word: str) -> None:
    """Say how far it is, and wait to be told to go on."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A receiver behind nginx on the same machine, with a durable inbox. Start it, then nginx with the file beside it."""

import asyncio
import logging
from pathlib import Path

from payments_async.ipn import Receiver, TransactionConflict, TransactionSucceeded, serve
from payments_async.journal import SqliteJournal

JOURNAL = Path("notifications.sqlite")


async def main() -> None:
    """Serve until interrupted; what was answered 200 is in the journal, whatever happens."""
    async with SqliteJournal(JOURNAL) as journal:
        receiver = Receiver(journal, trusted_proxies=["127.0.0.1"])

        @receiver.on(TransactionSucceeded)
        async def settled(event: TransactionSucceeded) -> None:
            # event.event_id is the same if this runs again: write it down with what you do
            print(f"{event.request_id}: {event.amount} {event.currency_code} has moved")

        @receiver.on(TransactionConflict)
        async def look_at_it(event: TransactionConflict) -> None:
            print(f"{event.request_id}: {event.conflict}; a person should look at it")

        await serve(receiver, "127.0.0.1", 8080, path="/ipn")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("drained")

"""A receiver behind nginx on the same machine, with a durable inbox. Start it, then nginx with the file beside it.

python app.py [PORT [SENDER ...]]: nginx.conf expects port 8080; the senders are the documented ones. To try it out with
this machine as the sender, start it with `8080 127.0.0.1`.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from payments_async.ipn import (
    DOCUMENTED_SENDERS,
    Receiver,
    ReceiverSettings,
    TransactionConflict,
    TransactionSucceeded,
    serving,
)
from payments_async.journal import SqliteJournal

JOURNAL = Path("notifications.sqlite")


async def main(port: int = 8080, senders: Sequence[str] = DOCUMENTED_SENDERS) -> None:
    """Serve until stopped; what was answered 200 is in the journal, whatever happens."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with SqliteJournal(JOURNAL) as journal:
        settings = ReceiverSettings(owner=f"receiver on {port}")  # what a killed process held is handled at once
        receiver = Receiver(journal, senders, trusted_proxies=["127.0.0.1"], settings=settings)

        @receiver.on(TransactionSucceeded)
        async def settled(event: TransactionSucceeded) -> None:
            # event.fact_id is the same if this runs again: write it down with what you do
            print(f"{event.request_id}: {event.amount} {event.currency_code} has moved", flush=True)

        @receiver.on(TransactionConflict)
        async def look_at_it(event: TransactionConflict) -> None:
            print(f"{event.request_id}: {event.conflict}; a person should look at it", flush=True)

        async with serving(receiver, "127.0.0.1", port, path="/ipn"):
            print("listening", flush=True)
            await stopped.wait()
    print("drained", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 8080, sys.argv[2:] or DOCUMENTED_SENDERS))

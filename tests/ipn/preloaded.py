"""Two workers of one preloaded application: python preloaded.py JOURNAL. Prints what each of them did.

The journal and the receiver are made before the fork, as ``gunicorn --preload`` does, and opened after it.
"""

import asyncio
import os
import sys

from ipn.notifications import notification

from payments_async.ipn import HandlerPolicy, Receiver, ReceiverSettings, TransactionEvent
from payments_async.journal import SqliteJournal
from payments_async.testing import Notification, deliver

OWNER = sys.argv[2] if len(sys.argv) > 2 else None
journal = SqliteJournal(sys.argv[1])
receiver = Receiver(
    journal, senders=["127.0.0.1"], settings=ReceiverSettings(owner=OWNER), policy=HandlerPolicy(poll=0.01)
)
begun, ended = os.pipe(), os.pipe()


@receiver.on(TransactionEvent)
async def settle(event: TransactionEvent) -> None:
    """Work until the other worker has stopped."""
    say("handled")
    os.write(begun[1], b".")
    await asyncio.to_thread(os.read, ended[0], 1)


def say(words: str) -> None:
    """Print it in one piece."""
    os.write(1, f"{words}\n".encode())


async def first() -> None:
    """Take a notification, and handle it while the other one comes and goes."""
    async with journal, receiver:
        await deliver(receiver, Notification(body=notification(), query=""))
        await asyncio.to_thread(os.read, ended[0], 1)


async def second() -> None:
    """Come, and stop; then look for what may be claimed."""
    async with journal:
        async with receiver:
            pass
        say(f"claimed {len(await journal.claim('probe', lease=0, limit=10))}")


if __name__ == "__main__":
    if os.fork():
        os.read(begun[0], 1)
        asyncio.run(second())
        os.write(ended[1], b"..")
        os.wait()
    else:
        asyncio.run(first())

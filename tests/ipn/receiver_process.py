"""A receiver in a process of its own, to be killed: python receiver_process.py PORT JOURNAL HANDLED."""

import asyncio
import sys
from pathlib import Path
from typing import TextIO

from payments_async.ipn import HandlerPolicy, Receiver, TransactionEvent, serve
from payments_async.journal import SqliteJournal


async def main(port: int, path: Path, seen: set[str], handled: TextIO) -> None:
    """Serve until killed; the handler writes each event once: its id and its transaction."""
    async with SqliteJournal(path) as journal:
        # short leases, so that what a killed process held is handled soon
        receiver = Receiver(journal, senders=["127.0.0.1"], policy=HandlerPolicy(timeout=0.3, poll=0.05))

        @receiver.on(TransactionEvent)
        async def settle(event: TransactionEvent) -> None:
            if str(event.event_id) not in seen:
                seen.add(str(event.event_id))
                handled.write(f"{event.event_id} {event.transaction_id}\n")
                handled.flush()

        await serve(receiver, "127.0.0.1", port)


if __name__ == "__main__":
    written = Path(sys.argv[3])
    written.touch()
    with written.open("a", encoding="ascii") as handled:
        seen = {line.split()[0] for line in written.read_text(encoding="ascii").splitlines()}
        asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), seen, handled))

"""A process with a durable handler, to be killed: python told.py JOURNAL TOLD HANGS."""

import asyncio
import sys
from pathlib import Path
from typing import TextIO

from outbox.shops import SHOP

from payments_async.journal import Entry, SqliteJournal, State
from payments_async.outbox import HandlerPolicy
from payments_async.outbox._changes import ChangeHandlers

POLICY = HandlerPolicy(concurrency=4, timeout=30.0, poll=0.05)


async def main(path: Path, written: TextIO, hangs: int) -> None:
    """Write down what is told until killed; the one of that number is told of and never finished with."""
    async with SqliteJournal(path) as journal:
        dispatcher = ChangeHandlers(journal, SHOP, policy=POLICY)

        @dispatcher.on(State.ACCEPTED, name="told")
        async def told(entry: Entry) -> None:
            written.write(f"{entry.change_id} {entry.request_id}\n")
            written.flush()
            if entry.request_id.endswith(f"{hangs:06d}"):
                await asyncio.Event().wait()

        await dispatcher.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a", encoding="ascii") as file:
        asyncio.run(main(Path(sys.argv[1]), file, int(sys.argv[3])))

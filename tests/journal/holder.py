"""A process that takes leases on a journal and then waits to be killed: python holder.py JOURNAL [SCHEMA]."""

import asyncio
import sys

from journal.factories import delivery, event, permitted

from payments_async.journal import PostgresJournal, SqliteJournal, State


async def main(place: str, *schema: str) -> None:
    """Lease an event, changes of an outbox and the chunk of a batch that is loaded, permit an order, say so, hang."""
    async with PostgresJournal(place, schema=schema[0]) if schema else SqliteJournal(place) as journal:
        await journal.receive(delivery(), event(1, 99), owner="held", lease=3600)
        await journal.claim_changes("shop", [State.ACCEPTED], "held", lease=3600, limit=10)
        chunk = await journal.claim_chunk("payroll", "held", lease=3600)
        assert chunk is not None
        assert await journal.take_duty("duty", "held", lease=3600)
        await permitted(journal, chunk)
        sys.stdout.write("held\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

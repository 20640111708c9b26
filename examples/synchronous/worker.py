"""Sends what the synchronous application puts, hears how it ends, and tells a synchronous function.

It is a process of its own: run as many as you like. SIGTERM ends it; what is under way is finished first.
"""

import asyncio
import signal

from views import settings

from payments_async import PaymentsSession
from payments_async.ipn import DOCUMENTED_SENDERS, Receiver, serve
from payments_async.journal import Entry, State, journal_at
from payments_async.outbox import Outbox


def note(entry: Entry) -> None:
    """Yours: write it down in one commit with `entry.change_id`. It may block: it runs in a thread."""
    print(f"{entry.request_id}: {entry.state}\n", end="", flush=True)  # in one piece: other threads print too


async def main() -> None:
    """Work until SIGTERM or Ctrl-C."""
    told = settings()
    journal = journal_at(told["PAYMENTS_JOURNAL"])
    payments = PaymentsSession.from_env(told)
    is_sandbox = payments.base_url.startswith("http://")  # the service itself has https alone
    receiver = Receiver(journal, ["127.0.0.1"] if is_sandbox else DOCUMENTED_SENDERS)
    outbox = Outbox(payments, journal)

    @outbox.on(State.SUCCESSFUL, State.FAILED, State.REJECTED, State.PARKED)
    async def told_of(entry: Entry) -> None:
        # a function that blocks the event loop would stop the notifications, and everybody's turn; a thread does not
        await asyncio.to_thread(note, entry)

    async with journal, payments, outbox:
        await serve(receiver, port=int(told.get("IPN_PORT", "8080")), stop_on=[signal.SIGTERM])


if __name__ == "__main__":
    asyncio.run(main())

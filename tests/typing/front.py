"""The front: one object for all parts, and no name that is not there."""

from typing import assert_type

import payments_async
from payments_async import Entry, Payments, PaymentsSession, PayoutOrder, Receiver, SqliteJournal, State, journal


def mistyped() -> list[object]:
    """Names that are there, and names that are not."""
    return [
        payments_async.PostgresJournal,
        payments_async.Payment,  # E: the package has no such name
        journal.PostgresJournal,
        journal.SqliteJornal,  # E: the journal has no such name
    ]


async def paid(session: PaymentsSession, file: SqliteJournal, order: PayoutOrder) -> Entry:
    """A payment with the front object."""
    payments = Payments(session, file, receiver=Receiver(file))
    Payments(file, session)  # E: the arguments are swapped
    Payments.from_env(journal="payments.sqlite", timeout=5.0)
    Payments.from_env(timeot=5.0)  # E: a setting that a session does not have

    @payments.on(State.SUCCESSFUL)
    async def told(entry: Entry) -> None: ...

    async with payments as opened:
        assert_type(opened, Payments)
        await opened.pay(order, timeout="5")  # E: a text is not a number of seconds
        return await opened.put(order)

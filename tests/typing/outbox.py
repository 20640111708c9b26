"""An outbox: a handler is told of an entry, and stays what it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_type

from payments_async import PaymentsSession
from payments_async.journal import Entry, Journal, State
from payments_async.outbox import HandlerPolicy, Outbox


class Transaction:
    """What a library of the application opens."""


def registered(payments: PaymentsSession, journal: Journal) -> Outbox:
    """An outbox with its handlers."""
    outbox = Outbox(payments, journal, policy=HandlerPolicy(timeout=5.0))

    @outbox.on(State.SUCCESSFUL)
    @outbox.on(State.FAILED, State.REVERSED, when=lambda entry: entry.amount > 9, name="ended")
    async def ended(entry: Entry) -> int | None:
        return entry.change_id

    @outbox.on(State.SUCCESSFUL)  # E: it is not async
    def blocking(entry: Entry) -> None:
        """Refused."""

    @outbox.on(State.SUCCESSFUL)  # E: an order's id is no entry
    async def named(request_id: str) -> None:
        """Refused."""

    @outbox.on("successful")  # E: a state is not text
    async def spelt(entry: Entry) -> None:
        """Refused."""

    @contextmanager
    def begin() -> Iterator[Transaction]:
        yield Transaction()

    @outbox.on(State.FAILED, within=begin)
    def credited(entry: Entry, transaction: Transaction) -> None:
        """In a thread."""

    @outbox.on(State.FAILED, within=begin)  # E: it yields no text
    def credited_by_text(entry: Entry, transaction: str) -> None:
        """Refused."""

    async def again(entry: Entry) -> None:
        assert_type(await ended(entry), int | None)

    return outbox

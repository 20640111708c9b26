"""A receiver: a handler takes what it is registered for, and the plumbing is out of sight."""

from typing import assert_type

from payments_async import PaymentsSession
from payments_async.ipn import (
    Answer,
    HandlerPolicy,
    Receiver,
    TransactionEvent,
    TransactionFailed,
    TransactionSucceeded,
    TransactionUnrecognised,
)

receiver = Receiver(senders=["10.0.0.0/8"], policy=HandlerPolicy(timeout=5.0))


@receiver.on(TransactionSucceeded)
async def paid(event: TransactionSucceeded) -> None:
    """The type that it is registered for."""


@receiver.on(TransactionSucceeded)
@receiver.on(TransactionFailed)
async def ended(event: TransactionEvent) -> str:
    """One of every event may hear some of them, and stays what it is."""
    return event.transaction_id


@receiver.on(TransactionUnrecognised, when=lambda event: event.status_code > 9, name="odd")
async def odd(event: TransactionUnrecognised) -> None:
    """Only some of a kind."""


@receiver.on(TransactionSucceeded)  # E: an int is not an event
async def number(event: int) -> None:
    """Refused."""


@receiver.on(TransactionEvent)  # E: it would hear failures too
async def narrow(event: TransactionSucceeded) -> None:
    """Refused."""


@receiver.on(TransactionSucceeded)  # E: it is not async
def blocking(event: TransactionSucceeded) -> None:
    """Refused."""


@receiver.on(TransactionSucceeded)  # E: nothing gives the second argument
async def greedy(event: TransactionSucceeded, more: int) -> None:
    """Refused."""


def is_failure(event: TransactionFailed) -> bool:
    """A question about failures."""
    return event.status_code == 2


class Books:
    """Handlers may be methods, and objects that are called."""

    async def note(self, event: TransactionEvent) -> None:
        """Hears everything."""

    async def __call__(self, event: TransactionSucceeded) -> None:
        """Hears successes."""


async def registered(session: PaymentsSession, books: Books) -> None:
    """By call, and what a decorated handler is."""
    receiver.on(TransactionFailed, when=is_failure)(books.note)
    receiver.on(TransactionSucceeded)(books)
    receiver.on(TransactionFailed)(books)  # E: it hears successes
    receiver.on(TransactionSucceeded, when=is_failure)  # E: no success is a failure
    receiver.on(int)  # E: an int is not an event
    assert_type(await ended(event=TransactionEvent(transaction_id="t", status_code=0)), str)
    assert_type(await receiver.wait_for("r-1", timeout=1.0), TransactionEvent)
    assert_type(await receiver.replay(), int)
    assert_type(await receiver.take(b"{}", "", {}, "127.0.0.1"), Answer)
    assert_type(receiver.take_sync(b"{}", "", [("X-Trace", "1")], None), Answer)
    await receiver.take("{}", "", {}, "127.0.0.1")  # E: a body is bytes
    Receiver(confirm=session)
    Receiver(confirm=books)  # E: nowhere to read a record
    Receiver(policy=5)  # E: a policy is not a number


def hidden() -> list[object]:
    """What only the faces of a receiver need."""
    return [
        receiver.screen,  # E: plumbing
        receiver.begin,  # E: plumbing
        receiver.split,  # E: plumbing
        receiver.knows_token,  # E: plumbing
        receiver.verifies,  # E: plumbing
        receiver.path_token,  # E: plumbing
    ]

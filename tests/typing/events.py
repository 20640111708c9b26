"""Events: a handler takes the kind of event that it is registered for, or one that every such event is."""

from typing import assert_type

from payments_async.ipn import (
    Receiver,
    TransactionEvent,
    TransactionFailed,
    TransactionSucceeded,
)

receiver = Receiver()


@receiver.on(TransactionSucceeded)
async def paid(event: TransactionSucceeded) -> None:
    """The very kind."""


@receiver.on(TransactionSucceeded)
@receiver.on(TransactionFailed)
async def ended(event: TransactionEvent) -> None:
    """Who takes every event takes these too, and may be registered for several."""


@receiver.on(TransactionEvent, when=lambda event: event.status_code > 2)
async def odd(event: TransactionEvent) -> None:
    """What ``when`` is asked about is the event."""


@receiver.on(TransactionSucceeded)  # E: an event is no number
async def counted(number: int) -> None:
    """A mistake."""


@receiver.on(TransactionSucceeded)  # E: it hears of successes alone
async def failed(event: TransactionFailed) -> None:
    """A mistake."""


@receiver.on(TransactionEvent)  # E: it would hear of failures too
async def careless(event: TransactionSucceeded) -> None:
    """A mistake."""


@receiver.on(TransactionSucceeded)  # E: it is awaited
def blocking(event: TransactionSucceeded) -> None:
    """A mistake."""


@receiver.on(int)  # E: a number is no kind of event
async def numbered(event: TransactionEvent) -> None:
    """A mistake."""


receiver.on(TransactionSucceeded, when=lambda event: event.conflict == "")  # E: only a conflict has one


async def registered(event: TransactionSucceeded) -> None:
    """A registered handler is what it was."""
    assert_type(await paid(event), None)
    await ended(1)  # E: a number is no event
    assert_type(await receiver.wait_for("r-1", timeout=60), TransactionEvent)
    await receiver.wait_for("r-1", transaction_id=1)  # E: ids are texts


def hidden() -> None:
    """What only the server of a receiver needs is no offer to its users."""
    assert receiver.screen  # E: private
    assert receiver.begin  # E: private
    assert receiver.take  # E: private
    assert receiver.knows_token  # E: private
    assert receiver.verifies  # E: private

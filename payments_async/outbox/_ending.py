"""How one try to send an order ended, in the words of the journal. Sends nothing and writes nothing down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from payments_async._errors import AuthenticationFailed, NotSent, PaymentsError, Rejected
from payments_async._models import Acceptance
from payments_async.journal._records import Outcome, Permit
from payments_async.journal._states import News

__all__ = ["accepted", "broken_off", "finished", "refused"]

T = TypeVar("T")
_LONGEST = 500  # characters of the service's words that are kept


def accepted(permit: Permit, acceptance: Acceptance) -> Outcome:
    """The service took the order."""
    return Outcome(permit=permit, news=News.ACCEPTED, transaction_id=acceptance.transaction_id)


def refused(permit: Permit, error: PaymentsError) -> Outcome:
    """The try raised one of the errors that a payout may raise."""
    match error:
        case NotSent() | AuthenticationFailed():  # credentials are refused before anybody reads the order
            news = News.NOT_SENT
        case Rejected():
            news = News.REJECTED
        case _:
            news = News.UNKNOWN
    hint = error.transaction_id if news is News.UNKNOWN else None
    return Outcome(
        permit=permit, news=news, transaction_id=hint, code=error.code, message=error.message[:_LONGEST]
    )  # fmt: skip


def broken_off(permit: Permit, error: BaseException, *, left: bool) -> Outcome:
    """The try was cancelled, or failed in a way nobody foresaw.

    Args:
        left: Whether a byte of it may have left.
    """
    news = News.UNKNOWN if left else News.NOT_SENT
    return Outcome(permit=permit, news=news, message=f"broken off ({type(error).__name__})")


async def finished(awaitable: Awaitable[T]) -> T:
    """Wait for something to the end, also when cancelled meanwhile; the cancellation comes after it."""
    task = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001, S110 - raised below, as the result
            pass
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # looked at: the cancellation tells enough
        raise cancelled
    return task.result()

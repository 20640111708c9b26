"""What a session knows of an order that it has sent by itself, before the journal has it."""

from __future__ import annotations

from functools import partial

from payments_async._session.session import PaymentsSession, executor_of
from payments_async._values.errors import InvalidOrder, OutcomeUnknown, PaymentsError
from payments_async._wire.bodies import private_texts, write_order
from payments_async._wire.orders import Order
from payments_async.journal import Journal
from payments_async.journal._records import Evidence
from payments_async.journal._states import Signal


def may_have_sent(payments: PaymentsSession, request_id: str, *, is_ours: bool = False) -> bool:
    """Whether a session has sent an order by itself, or sends it now; mostly it knows nothing of it.

    Args:
        is_ours: It is under way because the journal has it.
    """
    books = executor_of(payments).books
    return (books.is_open(request_id) or books.knows(request_id)) and not (is_ours and books.is_under_way(request_id))


async def sent_by_session(
    payments: PaymentsSession, journal: Journal, order: Order, *, is_ours: bool = False
) -> Evidence | None:
    """How an order ended that a session has sent by itself, as by ``payouts.send``; one under way is waited for.

    ``None`` where it surely was not carried out, or was never sent.

    Args:
        is_ours: It is under way because the journal has it.

    Raises:
        InvalidOrder: The session has sent another order under this request id, and the journal has none of it.
    """
    executor, request_id = executor_of(payments), order.request_id
    books = executor.books
    if not may_have_sent(payments, request_id, is_ours=is_ours):
        return None
    write = executor.sends_written()
    call = write(request_id, order.amount, write_order(order), sent_before=False, private=partial(private_texts, order))
    try:
        acceptance = await books.earlier(call)
    except OutcomeUnknown as error:
        signal, transaction_id = Signal.UNKNOWN, error.transaction_id
    except InvalidOrder:  # nothing but this session knows of the other order, unless it is in the journal
        if await is_held(journal, request_id):
            return None
        raise
    except PaymentsError:  # it was not carried out
        return None
    else:
        if acceptance is None:
            return None
        signal, transaction_id = Signal.ACCEPTED, acceptance.transaction_id
    at = books.sent_at(request_id)
    at = None if at is None else at + (payments.clock_difference or 0.0)
    return Evidence(signal=signal, source="session", request_id=request_id, transaction_id=transaction_id, at=at)


async def is_held(journal: Journal, request_id: str) -> bool:
    """Whether the journal has an order under this request id, or had."""
    return bool(await journal.orders_of([request_id]))

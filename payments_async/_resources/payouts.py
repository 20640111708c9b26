"""Payouts: money out (sections 2 to 6)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing

from payments_async._errors import InvalidOrder, PaymentsError
from payments_async._executor import Executor
from payments_async._models import Acceptance
from payments_async._orders import PayoutOrder
from payments_async._retry import RetryPolicy
from payments_async._wire import endpoints

__all__ = ["Payouts"]


class Payouts:
    """Money out: mobile money, bank transfer, airtime, internet, utilities."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def send(
        self, order: PayoutOrder, *, sent_before: bool = False, retry: RetryPolicy | None = None
    ) -> Acceptance:
        """Send one payout. Accepted is not paid: the final status comes as a notification.

        An order that this session has sent is not sent twice: who repeats it gets its first acceptance, or waits for
        the exchange that is under way and gets what that comes to. (When that one is cancelled, the outcome is
        unknown to all who wait, unless nothing had left: then one of them sends it.) What was rejected or not sent
        may be sent again. The last ``Limits.remembered`` accepted orders are remembered.

        Args:
            order: Its destination's class selects the endpoint.
            sent_before: The order may have been sent earlier, by whomever: a refusal proves nothing then and is
                raised as ``OutcomeUnknown``. Without it, an order whose outcome this session does not know is not
                sent again. ``NotSent`` speaks of this try alone then. What this session knows to be accepted is
                not sent either way.
            retry: In place of the session's; ``RetryPolicy(attempts=1)`` makes exactly one try.

        Raises:
            NotSent: Surely not carried out; it is safe to send it again.
            OutcomeUnknown: It may have been carried out; look it up, never resend it.
            Rejected: The service said no (``AuthenticationFailed``: to our credentials or address).
            InvalidOrder: This session has sent another order under this request id. Also a ``ValueError``.
        """
        if not isinstance(order, PayoutOrder):
            raise TypeError("order: expected PayoutOrder")
        call = endpoints.send_payout(order, self._executor.dialect, sent_before=sent_before)
        return await self._executor.execute(call, retry=retry)

    async def send_many(
        self, orders: Iterable[PayoutOrder] | AsyncIterable[PayoutOrder], *, concurrency: int = 50
    ) -> AsyncGenerator[tuple[PayoutOrder, Acceptance | PaymentsError], None]:
        """Send many payouts and yield each order with its outcome, in the order they are done.

        One bad order never stops the others: what is no valid order comes back with ``InvalidOrder``. Nothing is
        written down: for a batch that must survive a crash use ``payments_async.bulk.run_batch``. Memory stays
        bounded however many orders there are. Leaving the loop early sends no further order and waits for those under
        way; ``undelivered`` of the session holds every outcome that was not yielded, ``unsettled`` their request ids
        and those of orders whose outcome is not known.

        Args:
            orders: Taken only as they are sent.
            concurrency: Payouts under way at once; the session's ``Limits`` count too.

        Raises:
            RuntimeError: The session is not open, or closed meanwhile.
        """
        async with aclosing(self._executor.map(self.send, orders, concurrency=concurrency)) as results:
            async for order, result in results:
                yield order, _outcome(result)


def _outcome(result: Acceptance | Exception) -> Acceptance | PaymentsError:
    match result:
        case Acceptance() | PaymentsError():
            return result
        case ValueError() | TypeError():
            error = InvalidOrder(f"not a valid order: {result}")
            error.__cause__ = result
            return error
        case _:  # a session that is not open: the next order would fare no better
            raise result

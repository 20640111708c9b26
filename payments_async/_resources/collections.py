"""Collections: money in, on request (section 7)."""

from __future__ import annotations

from payments_async._executor import Executor
from payments_async._models import Acceptance
from payments_async._orders import CollectionOrder
from payments_async._retry import RetryPolicy
from payments_async._wire import endpoints

__all__ = ["Collections"]


class Collections:
    """Money in, on request, from a mobile money wallet."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def request(
        self, order: CollectionOrder, *, sent_before: bool = False, retry: RetryPolicy | None = None
    ) -> Acceptance:
        """Request one collection. Accepted is not collected: the payer may have to approve.

        It is requested only once in a session, as ``payouts.send`` tells.

        Args:
            order: Whom to collect from, and how much.
            sent_before: As in ``payouts.send``.
            retry: As in ``payouts.send``.

        Raises:
            NotSent, OutcomeUnknown, Rejected, InvalidOrder: As ``payouts.send``.
        """
        if not isinstance(order, CollectionOrder):
            raise TypeError("order: expected CollectionOrder")
        call = endpoints.request_collection(order, self._executor.dialect, sent_before=sent_before)
        return await self._executor.execute(call, retry=retry)

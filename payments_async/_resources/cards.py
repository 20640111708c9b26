"""Cards (sections 13 and 14)."""

from __future__ import annotations

from payments_async._executor import Executor
from payments_async._models import Card
from payments_async._wire import endpoints

__all__ = ["Cards"]


class Cards:
    """Cards: read one, enable it, set its PIN anew."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def get(self, card_id: str, masked_number: str | None = None) -> Card:
        """One card. ``Dialect.cards_path`` selects the first or the v2 path.

        Args:
            card_id: Id of the card.
            masked_number: First and last four digits as the service masks them; the samples send it too.

        Raises:
            Rejected, ServiceFault: The read was refused, or failed for now.
        """
        return await self._executor.execute(endpoints.get_card(card_id, masked_number, self._executor.dialect))

    async def enable(self, masked_number: str) -> Card:
        """Enable a card to transact. The body is a guess (``Dialect.card_enable_member``).

        Raises:
            NotSent, OutcomeUnknown, Rejected: It is never repeated, as if it moved money.
        """
        return await self._executor.execute(endpoints.enable_card(masked_number, self._executor.dialect))

    async def reset_pin(self, masked_number: str, pin: str) -> Card:
        """Set a card's PIN anew. The body is a guess (``Dialect.card_pin_member``).

        Args:
            masked_number: Which card.
            pin: 4 to 12 digits; never shown anywhere.

        Raises:
            NotSent, OutcomeUnknown, Rejected: It is never repeated, as if it moved money.
        """
        return await self._executor.execute(endpoints.reset_card_pin(masked_number, pin, self._executor.dialect))

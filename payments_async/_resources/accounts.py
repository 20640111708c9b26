"""The client account (section 12)."""

from __future__ import annotations

from payments_async._executor import Executor
from payments_async._models import Account
from payments_async._wire import endpoints

__all__ = ["Accounts"]


class Accounts:
    """The client account."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def get(self) -> Account:
        """The account with its balance, exact, in units of its currency.

        Raises:
            Rejected, ServiceFault: The read was refused, or failed for now.
        """
        return await self._executor.execute(endpoints.get_account(self._executor.dialect))

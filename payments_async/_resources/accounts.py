"""The client account (section 12)."""

from __future__ import annotations

from payments_async._models import Account
from payments_async._resources.executor import Executor
from payments_async._wire import endpoints

__all__ = ["Accounts"]


class Accounts:
    """The client account."""

    def __init__(self, session: Executor) -> None:
        self._session = session

    async def get(self) -> Account:
        """The account with its balance, exact, in units of its currency.

        Raises:
            Rejected, ServiceFault: The read was refused, or failed for now.
        """
        return await self._session.execute(endpoints.get_account(self._session.dialect))

"""Whose money a session moves, and that a journal is about the same. Asks the service nothing."""

from __future__ import annotations

from payments_async._session import PaymentsSession
from payments_async.journal._contract import Journal
from payments_async.journal._faults import WrongAccount
from payments_async.journal._records import RunIdentity

__all__ = ["account_of", "check_account"]


def account_of(payments: PaymentsSession) -> RunIdentity:
    """The account a session logs in to."""
    who = payments.credentials
    return RunIdentity.of(payments.base_url, app_key=who.app_key, user_id=who.user_id)


async def check_account(payments: PaymentsSession, journal: Journal) -> None:
    """Refuse to ask one account about the orders of another: its list shows none of them, or others of the same ids.

    Raises:
        WrongAccount: The journal is about another one.
    """
    ours = account_of(payments)
    for run in await journal.runs():
        if run.identity != ours:
            raise WrongAccount(
                f"the journal belongs to user {run.identity.user_id} at {run.identity.base_address}, and the session "
                f"is one of user {ours.user_id} at {ours.base_address}"
            )

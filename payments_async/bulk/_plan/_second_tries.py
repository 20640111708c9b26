"""Orders that are tried again under another id: what the service itself shows of the ones before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from payments_async._session.lists import Reader
from payments_async._session.session import PaymentsSession, executor_of
from payments_async._session.statuses import read_statuses
from payments_async._values.errors import PaymentsError
from payments_async._wire.models import TransactionStatus
from payments_async.bulk._problems import OrderIssue
from payments_async.journal._records import ArchivedOrder, Entry
from payments_async.journal._states import CONFIRMED, UNPAID

_NO_MONEY = (TransactionStatus.FAILED, TransactionStatus.REVERSED)
_ENDED_UNPAID = CONFIRMED.intersection(UNPAID)  # the service took it; a refusal was its own answer
_DAY = timedelta(days=1)
_LONG = 7 * 86_400.0  # seconds between sending and an end, at most in most cases

Before = Entry | ArchivedOrder


def issue_of(before: Before, shown: TransactionStatus | None) -> OrderIssue | None:
    """What the service's lists have against trying an order again that ended unpaid.

    Args:
        before: The order, as the journal has it.
        shown: The status that the lists show of it, where they are believed.
    """
    again = f"it tries {before.request_id} again, which is"
    if shown is not None and shown not in _NO_MONEY:
        remedy = f"{again} {before.state} here and {shown} in the service's lists; leave the order out, and ask"
        return OrderIssue("request_id", "", remedy)
    if before.state in _ENDED_UNPAID and shown is None:
        remedy = f"{again} {before.state} as was told; the service's lists do not show that: ask it first"
        return OrderIssue("request_id", "", remedy, blocks=False, concerns=True)
    return None


def _sent_at(before: Before) -> float:
    """When it was sent, in Unix seconds; of what is in an archive alone it is known when it ended."""
    sent = before.permitted_at if isinstance(before, Entry) else None
    return before.updated_at - _LONG if sent is None else sent


async def shown_statuses(payments: PaymentsSession, orders: Iterable[Before | None]) -> Mapping[str, TransactionStatus]:
    """What the service's lists show, believed or not at all, of orders that ended unpaid: by request id.

    A notification that nobody confirmed may have told of that end, and it may have been forged.
    """
    ended = [one for one in orders if one is not None and one.state in _ENDED_UNPAID and one.transaction_id]
    if not ended:
        return {}
    executor = executor_of(payments)
    zone = executor.dialect.timezone
    first = datetime.fromtimestamp(min(map(_sent_at, ended)), UTC) - _DAY
    last = datetime.fromtimestamp(max(one.updated_at for one in ended), UTC) + _DAY
    reader = Reader(payments.transactions.page, clock=executor.clock, sleep=executor.sleep)
    wanted = {one.transaction_id.lower(): one.request_id for one in ended if one.transaction_id}
    try:
        statuses = await read_statuses(reader, first.astimezone(zone).date(), last.astimezone(zone).date(), wanted)
    except PaymentsError:
        return {}  # then nothing is shown, and somebody has to look
    found: dict[str, TransactionStatus] = {}
    for table in (statuses.found, statuses.under_way):
        found |= {wanted[id_]: status for id_, status in table.find(wanted).items()}
    return found

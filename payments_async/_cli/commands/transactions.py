"""`payments-async transactions`: what the service made of our orders."""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated

import typer

from payments_async import PaymentsSession, Transaction, TransactionStatus
from payments_async._cli.dates import day
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.screen import Screen, counted, money
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.working import working

_DAYS = 7
_NOT_SHOWN = (
    "the lists do not show request id {}, which proves nothing: never send it again on these grounds; "
    "look again later, or widen --since and --until"
)
_SEVERAL = (
    "{} transactions carry request id {}: it may have been carried out more than once; ask the service about each"
)


async def transactions(
    screen: Screen,
    settings: ConnectionSettings,
    transaction_id: Annotated[str | None, typer.Argument(help="Shows this one.")] = None,
    since: Annotated[datetime | None, day(help=f"First day, UTC; {_DAYS} days ago by default.")] = None,
    until: Annotated[datetime | None, day(help="Last day, UTC; today by default.")] = None,
    status: Annotated[str | None, typer.Option(help="Only those of this status.")] = None,
    request_id: Annotated[str | None, typer.Option(help="Show every transaction of this order.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most rows to show; 0 for all.")] = 100,
) -> Exit:
    """List transactions, or find those of one order. A list usually carries no status: filter by one.

    With --request-id, status 4 means that the lists show none, which proves nothing, or more than one.
    """
    first = since.date() if since else (datetime.now(UTC) - timedelta(days=_DAYS)).date()
    last = until.date() if until else None
    if last is not None and last < first:
        raise BadInput("--until: lies before --since")
    wanted = _status(status)
    async with settings.session() as payments:
        if transaction_id is not None:
            async with working(screen, "asking the service", payments):
                one = await payments.transactions.get(transaction_id)
            _show(screen, one)
            screen.document(screen.people(one))
            return Exit.FINE
        if request_id is not None:
            return await _find(screen, payments, request_id, first, last)
        found: list[Transaction] = []
        async with working(screen, lambda: f"reading the list: {counted(len(found), 'row')}", payments):
            async for one in payments.transactions.iterate(since=first, until=last, status=wanted):
                if limit and len(found) == limit:
                    screen.note(f"stopped after {limit} rows; --limit 0 shows all")
                    break
                found.append(one)
    rows = [
        [
            _moment(one.created_on),
            one.request_id or "",
            one.transaction_id,
            one.transaction_type or "",
            money(one.amount, one.currency),
            one.status or wanted or "",
            screen.person(one.beneficiary.name) if one.beneficiary else "",
        ]
        for one in found
    ]
    columns = ["Created", "Request id", "Transaction", "Type", "Amount", "Status", "Beneficiary"]
    screen.table(columns, rows, right=["Amount"])
    screen.document(screen.people(found))
    return Exit.FINE


async def _find(screen: Screen, payments: PaymentsSession, request_id: str, since: date, until: date | None) -> Exit:
    """Show every transaction of one order; none, or more than one, settles nothing."""
    async with working(screen, f"looking for {request_id}", payments):
        found = await payments.transactions.find_all(request_id, since=since, until=until)
    for one in found:
        _show(screen, one)
    screen.document(screen.people(found))
    if not found:
        screen.trouble(_NOT_SHOWN.format(request_id))
    if len(found) > 1:
        screen.trouble(_SEVERAL.format(len(found), request_id))
    return Exit.FINE if len(found) == 1 else Exit.UNKNOWN


def _show(screen: Screen, found: Transaction) -> None:
    person = found.beneficiary
    screen.fields(
        [
            ("transaction", found.transaction_id),
            ("request id", found.request_id),
            ("batch", found.batch_id),
            ("status", found.status or "not shown; filter the list by --status"),
            ("amount", money(found.amount, found.currency)),
            ("type", found.transaction_type),
            ("created", _moment(found.created_on)),
            ("beneficiary", screen.person(person.name) if person else None),
            ("phone", screen.person(person.phone) if person else None),
            ("reference", screen.person(person.customer_reference) if person else None),
            ("message", found.status_message),
        ]
    )
    screen.say()


def _status(text: str | None) -> TransactionStatus | None:
    if text is None:
        return None
    status = TransactionStatus(text)
    if status not in list(TransactionStatus):
        names = ", ".join(TransactionStatus)
        # the service answers a filter it does not know with every transaction
        raise BadInput(f"--status: must be one of {names}")
    return status


def _moment(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S") if moment else ""

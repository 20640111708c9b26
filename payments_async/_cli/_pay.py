"""`payments-async pay` and `collect`: one order, shown, confirmed, sent once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import Annotated

import typer

from payments_async import (
    Acceptance,
    AirtimeLine,
    BankAccount,
    Beneficiary,
    CollectionOrder,
    InternetLine,
    MobileMoneyWallet,
    OutcomeUnknown,
    PaymentsSession,
    PayoutOrder,
    TransactionStatus,
    UtilityAccount,
)
from payments_async._cli._command import command
from payments_async._cli._exits import BadInput, Exit
from payments_async._cli._program import command_line
from payments_async._cli._question import confirmed
from payments_async._cli._screen import Screen, money
from payments_async._cli._settings import Settings

__all__ = ["add_orders"]

_REQUEST_ID = (
    "--request-id: name the order yourself, unique for ever, such as your voucher number; "
    "a generated one would turn a second run into a second payment"
)
_AMOUNT = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
Destination = MobileMoneyWallet | AirtimeLine | InternetLine | BankAccount | UtilityAccount
_OPTIONS = {
    "request_id": "--request-id",
    "amount": "--amount",
    "product_item_id": "--item",
    "provider_item_id": "--item",
    "product_id": "--product",
    "batch_id": "--batch-id",
    "account_number": "--from-account",
    "currency": "--currency",
    "message": "--message",
    "metadata": "--metadata",
    "beneficiary.name": "--name",
    "beneficiary.phone_number": "--phone",
    "beneficiary.email_address": "--email",
    "destination.account_number": "--bank-account",
    "destination.bank_code": "--bank-code",
    "destination.customer_reference": "--utility",
    "destination.area": "--area",
}

option = partial(typer.Option, show_default=False)
RequestId = Annotated[str | None, option(help="Identifier of this order, unique for ever.")]
Amount = Annotated[str, typer.Option(help="As in 150000 or 1500.50, in units of the account's currency.")]
Item = Annotated[str, typer.Option(help="Item of the operator or provider; see products.")]
Name = Annotated[str, typer.Option(help="Name of the beneficiary.")]
Message = Annotated[str | None, option(help="Free text that goes with the order.")]
Metadata = Annotated[str | None, option(help="Further data that goes with it.")]
Currency = Annotated[
    str | None, typer.Option(help="What you mean, as in UGX; compared with the account's.", show_default=False)
]
Yes = Annotated[bool, typer.Option("--yes", help="Send without asking.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for the final status; 0 does not wait.")]


def add_orders(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "pay")(pay)
    command(app, "collect")(collect)


async def pay(
    screen: Screen,
    settings: Settings,
    amount: Amount,
    item: Item,
    name: Name,
    request_id: RequestId = None,
    wallet: Annotated[str | None, option(help="Pay to this mobile money wallet.")] = None,
    airtime: Annotated[str | None, option(help="Top up this telephone line.")] = None,
    internet: Annotated[str | None, option(help="Send a data bundle to this line.")] = None,
    bank_account: Annotated[str | None, option(help="Pay to this bank account; needs --bank-code.")] = None,
    bank_code: Annotated[str | None, option(help="Code of the receiving bank.")] = None,
    utility: Annotated[str | None, option(help="Pay this customer's utility account.")] = None,
    area: Annotated[str | None, option(help="Area of the account; required for water.")] = None,
    product: Annotated[str | None, option(help="Product of the item: airtime, internet, utilities.")] = None,
    phone: Annotated[str | None, option(help="Where the beneficiary is reached.")] = None,
    email: Annotated[str | None, option(help="The beneficiary's e-mail address.")] = None,
    batch_id: Annotated[str | None, option(help="Groups orders.")] = None,
    from_account: Annotated[str | None, option(help="Account to pay from.")] = None,
    message: Message = None,
    metadata: Metadata = None,
    currency: Currency = None,
    wait: Wait = 0.0,
    yes: Yes = False,
) -> Exit:
    """Send one payout. Shows it and asks before sending; --yes does not ask.

    Status 4 means that it may have been carried out: look it up, never send it again.
    """
    with _naming(option := _one_of(ways := _ways(wallet, airtime, internet, bank_account, utility))):
        order = PayoutOrder(
            request_id=_own(request_id),
            amount=_exact(amount),
            destination=_destination(option, ways[option] or "", bank_code, area),
            product_item_id=item,
            product_id=product,
            beneficiary=Beneficiary(name=name, phone_number=phone, email_address=email),
            batch_id=batch_id,
            account_number=from_account,
            message=message,
            metadata=metadata,
            currency=currency,
        )
    to = f"{option.removeprefix('--').replace('-', ' ')} {screen.person(ways[option])}"
    return await _carry_out(screen, settings, order, to, wait=wait, yes=yes)


async def collect(
    screen: Screen,
    settings: Settings,
    amount: Amount,
    item: Item,
    name: Name,
    payer: Annotated[str, typer.Option(help="The mobile money wallet to collect from.")],
    request_id: RequestId = None,
    phone: Annotated[str | None, option(help="Where the payer is reached.")] = None,
    email: Annotated[str | None, option(help="The payer's e-mail address.")] = None,
    batch_id: Annotated[str | None, option(help="Groups orders.")] = None,
    to_account: Annotated[str | None, option(help="Account to collect to.")] = None,
    message: Message = None,
    metadata: Metadata = None,
    currency: Currency = None,
    wait: Wait = 0.0,
    yes: Yes = False,
) -> Exit:
    """Request one collection from a mobile money wallet. Shows it and asks before sending; --yes does not ask."""
    with _naming("--payer"):
        order = CollectionOrder(
            request_id=_own(request_id),
            amount=_exact(amount),
            payer=MobileMoneyWallet(payer),
            provider_item_id=item,
            beneficiary=Beneficiary(name=name, phone_number=phone, email_address=email),
            batch_id=batch_id,
            account_number=to_account,
            message=message,
            metadata=metadata,
            currency=currency,
        )
    return await _carry_out(screen, settings, order, f"wallet {screen.person(payer)}", wait=wait, yes=yes)


async def _carry_out(
    screen: Screen, settings: Settings, order: PayoutOrder | CollectionOrder, where: str, *, wait: float, yes: bool
) -> Exit:
    async with settings.session() as payments:
        account = await payments.accounts.get() if order.currency else None
        if account is not None and account.currency not in (None, order.currency):
            raise BadInput(f"--currency: the account is kept in {account.currency}, not {order.currency}")
        _summarise(screen, order, where, payments.base_url)
        if not yes and not confirmed(screen, "Send it?", otherwise="nothing was sent"):
            screen.trouble("not sent")
            return Exit.STOPPED
        try:
            acceptance = await _send(payments, order)
        except OutcomeUnknown as error:
            screen.payments_error(error, Exit.UNKNOWN)
            return _look_it_up(screen, order.request_id)
        except asyncio.CancelledError:
            if order.request_id not in payments.unsettled:
                raise
            screen.trouble("stopped after the order may have left: its outcome is unknown")
            return _look_it_up(screen, order.request_id)
        return await _report(screen, payments, acceptance, wait)


async def _send(payments: PaymentsSession, order: PayoutOrder | CollectionOrder) -> Acceptance:
    if isinstance(order, PayoutOrder):
        return await payments.payouts.send(order)
    return await payments.collections.request(order)


async def _report(screen: Screen, payments: PaymentsSession, acceptance: Acceptance, wait: float) -> Exit:
    status = None
    if wait:
        try:
            status = (await payments.transactions.settled(acceptance, timeout=wait)).status
        except TimeoutError:
            screen.note(f"no final status within {wait:g} s; it may end at any time")
    screen.say()
    screen.fields(
        [
            ("accepted", acceptance.transaction_id),
            ("request id", acceptance.request_id),
            ("status", status or acceptance.status),
            ("message", None if status else acceptance.message),
        ]
    )
    if status is None:
        screen.say("[dim]Accepted is not paid: the final status comes as a notification, or with --wait.[/]")
    screen.document({"acceptance": acceptance, "final_status": status})
    return Exit.FINE if status in (None, TransactionStatus.SUCCESSFUL) else Exit.FAILED


def _summarise(screen: Screen, order: PayoutOrder | CollectionOrder, where: str, base_url: str) -> None:
    payout = isinstance(order, PayoutOrder)
    screen.fields(
        [
            ("pay" if payout else "collect", money(order.amount, order.currency)),
            ("to" if payout else "from", where),
            ("beneficiary" if payout else "payer", screen.person(order.beneficiary.name)),
            ("item", order.product_item_id if isinstance(order, PayoutOrder) else order.provider_item_id),
            ("request id", order.request_id),
            ("service", base_url),
        ]
    )


def _look_it_up(screen: Screen, request_id: str) -> Exit:
    screen.trouble(f"look it up with: {command_line('transactions', request_id=request_id)}")
    return Exit.UNKNOWN


def _own(request_id: str | None) -> str:
    if not request_id:
        raise BadInput(_REQUEST_ID)
    return request_id


def _exact(amount: str) -> Decimal:
    if not _AMOUNT.fullmatch(amount):
        raise BadInput("--amount: write digits and at most one point, as in 150000 or 1500.50")
    return Decimal(amount)


def _ways(
    wallet: str | None, airtime: str | None, internet: str | None, bank_account: str | None, utility: str | None
) -> dict[str, str | None]:
    return {
        "--wallet": wallet,
        "--airtime": airtime,
        "--internet": internet,
        "--bank-account": bank_account,
        "--utility": utility,
    }


def _one_of(ways: dict[str, str | None]) -> str:
    chosen = [option for option, value in ways.items() if value is not None]
    if len(chosen) != 1:
        raise BadInput(f"say where the money goes, with exactly one of {', '.join(ways)}")
    return chosen[0]


def _destination(option: str, value: str, bank_code: str | None, area: str | None) -> Destination:
    match option:
        case "--wallet":
            return MobileMoneyWallet(value)
        case "--airtime":
            return AirtimeLine(value)
        case "--internet":
            return InternetLine(value)
        case "--bank-account":
            return BankAccount(value, bank_code or "")
        case _:
            return UtilityAccount(value, area)


@contextmanager
def _naming(destination: str) -> Iterator[None]:
    """Turn a complaint about a field into one about the option that filled it."""
    try:
        yield
    except ValueError as error:
        field, colon, rest = str(error).partition(":")
        option = destination if field == "destination.phone_number" else _OPTIONS.get(field)
        rest = rest.replace("pass UtilityAccount(..., area='Kampala')", "as in --area Kampala")
        raise BadInput(f"{option}:{rest}" if colon and option else str(error)) from error

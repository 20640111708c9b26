"""`payments-async pay` and `collect`: one order, shown, confirmed, sent once. Makes the order of its options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import Annotated

import typer

from payments_async import (
    AirtimeLine,
    BankAccount,
    Beneficiary,
    CollectionOrder,
    InternetLine,
    MobileMoneyWallet,
    PayoutOrder,
    UtilityAccount,
)
from payments_async._cli._bulk_journal import WithoutLooking
from payments_async._cli._command import command
from payments_async._cli._exits import BadInput, Exit
from payments_async._cli._own_journal import NewJournal, OtherJournal
from payments_async._cli._screen import Screen
from payments_async._cli._settings import Settings
from payments_async._cli._single_order import Errand
from payments_async.bulk import read_money

__all__ = ["add_orders"]

_REQUEST_ID = (
    "--request-id: name the order yourself, unique for ever, such as your voucher number; "
    "a generated one would turn a second run into a second payment"
)
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
Amount = Annotated[str, typer.Option(help="As in 150000 or 1,500.50, in units of the account's currency.")]
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
    journal: OtherJournal = None,
    new_journal: NewJournal = False,
    without_looking: WithoutLooking = False,
    wait: Wait = 0.0,
    yes: Yes = False,
) -> Exit:
    """Send one payout. Shows it and asks before sending; --yes does not ask.

    It is written down in a journal before and after. The same command again never sends it twice: it goes on where
    the first one died, or tells what became of it. Status 4 means that it may have been carried out.

    Example: payments-async pay --request-id voucher-17 --amount 150000 --wallet 0772000017 --name "G. Akello" --item I
    """
    value, stated = _money(amount, currency)
    with _naming(option := _one_of(ways := _ways(wallet, airtime, internet, bank_account, utility))):
        order = PayoutOrder(
            request_id=_own(request_id),
            amount=value,
            destination=_destination(option, ways[option] or "", bank_code, area),
            product_item_id=item,
            product_id=product,
            beneficiary=Beneficiary(name=name, phone_number=phone, email_address=email),
            batch_id=batch_id,
            account_number=from_account,
            message=message,
            metadata=metadata,
            currency=stated,
        )
    to = f"{option.removeprefix('--').replace('-', ' ')} {screen.person(ways[option])}"
    errand = Errand(
        screen=screen, order=order, where=to, journal=journal, new_journal=new_journal,
        without_looking=without_looking, wait=wait, yes=yes,
    )  # fmt: skip
    return await errand.carry_out(settings)


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
    journal: OtherJournal = None,
    new_journal: NewJournal = False,
    without_looking: WithoutLooking = False,
    wait: Wait = 0.0,
    yes: Yes = False,
) -> Exit:
    """Request one collection from a mobile money wallet. Shows it and asks before sending; --yes does not ask.

    It is written down in a journal before and after. The same command again never requests it twice: it goes on where
    the first one died, or tells what became of it. Status 4 means that it may have been carried out.
    """
    value, stated = _money(amount, currency)
    with _naming("--payer"):
        order = CollectionOrder(
            request_id=_own(request_id),
            amount=value,
            payer=MobileMoneyWallet(payer),
            provider_item_id=item,
            beneficiary=Beneficiary(name=name, phone_number=phone, email_address=email),
            batch_id=batch_id,
            account_number=to_account,
            message=message,
            metadata=metadata,
            currency=stated,
        )
    errand = Errand(
        screen=screen, order=order, where=f"wallet {screen.person(payer)}", journal=journal, new_journal=new_journal,
        without_looking=without_looking, wait=wait, yes=yes,
    )  # fmt: skip
    return await errand.carry_out(settings)


def _own(request_id: str | None) -> str:
    if not request_id:
        raise BadInput(_REQUEST_ID)
    return request_id


def _money(amount: str, currency: str | None) -> tuple[Decimal, str | None]:
    """The amount, read as in a batch file, and its currency."""
    try:
        value, beside = read_money(amount.strip())
    except ValueError as error:
        raise BadInput(f"--amount: {error}") from error
    if beside and currency and beside != currency.upper():
        raise BadInput(f"--amount: in {beside}, but --currency says {currency}; correct one of them")
    return value, currency or beside


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

"""`payments-async pay` and `collect`: one payout, or one collection."""

from collections.abc import Callable
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
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.screen import Screen, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.single_order import (
    OrderBasics,
    OrderNotes,
    RequestId,
    Sending,
    SingleOrder,
    naming,
    own_id,
    read_amount,
)

Destination = MobileMoneyWallet | AirtimeLine | InternetLine | BankAccount | UtilityAccount


async def pay(
    screen: Screen,
    settings: ConnectionSettings,
    basics: OrderBasics,
    item: Annotated[
        str | None,
        typer.Option(help="Item, see products; else guessed by the number, for you to check."),
    ] = None,
    request_id: RequestId = None,
    wallet: Annotated[str | None, typer.Option(help="Pay to this mobile money wallet.")] = None,
    airtime: Annotated[str | None, typer.Option(help="Top up this telephone line.")] = None,
    internet: Annotated[str | None, typer.Option(help="Send a data bundle to this line.")] = None,
    bank_account: Annotated[str | None, typer.Option(help="Pay to this bank account; needs --bank-code.")] = None,
    bank_code: Annotated[str | None, typer.Option(help="Code of the receiving bank.")] = None,
    utility: Annotated[str | None, typer.Option(help="Pay this customer's utility account.")] = None,
    area: Annotated[str | None, typer.Option(help="Area of the account; required for water.")] = None,
    product: Annotated[str | None, typer.Option(help="Product of the item: airtime, internet, utilities.")] = None,
    phone: Annotated[str | None, typer.Option(help="Where the beneficiary is reached.")] = None,
    email: Annotated[str | None, typer.Option(help="The beneficiary's e-mail address.")] = None,
    batch_id: Annotated[str | None, typer.Option(help="Groups orders.")] = None,
    from_account: Annotated[str | None, typer.Option(help="Account to pay from.")] = None,
    notes: OrderNotes = OrderNotes(),
    sending: Sending = Sending(),
) -> Exit:
    """Send one payout. Shows it and asks before sending; --yes does not ask.

    It is written down in a journal before and after. The same command again never sends it twice: it goes on where
    the first one died, or tells what became of it. Status 4 means that it may have been carried out.

    Example: payments-async pay --request-id voucher-17 --amount 150000 --wallet 0772000017 --name "G. Akello" --item I
    """
    value, stated = read_amount(basics.amount, notes.currency)
    ways: dict[str, tuple[str | None, Callable[[str], Destination]]] = {
        "--wallet": (wallet, MobileMoneyWallet),
        "--airtime": (airtime, AirtimeLine),
        "--internet": (internet, InternetLine),
        "--bank-account": (bank_account, lambda number: BankAccount(number, bank_code or "")),
        "--utility": (utility, lambda reference: UtilityAccount(reference, area)),
    }
    chosen = [(named, where, make) for named, (where, make) in ways.items() if where is not None]
    if len(chosen) != 1:
        raise BadInput(f"say where the money goes, with exactly one of {', '.join(ways)}")
    (named, where, make) = chosen[0]
    with naming(named):
        destination = make(where)
        order = PayoutOrder(
            request_id=own_id(request_id),
            amount=value,
            destination=destination,
            product_item_id=item or _guessed(screen, destination, yes=sending.yes),
            product_id=product,
            beneficiary=Beneficiary(name=basics.name, phone_number=phone, email_address=email),
            batch_id=batch_id,
            account_number=from_account,
            message=notes.message,
            metadata=notes.metadata,
            currency=stated,
        )
    place = named.removeprefix("--").replace("-", " ")
    return await SingleOrder(screen=screen, order=order, where=place, sending=sending).carry_out(settings)


def _guessed(screen: Screen, destination: Destination, *, yes: bool) -> str:
    """The item of the operator that a number was given to, which a person then sees and agrees to.

    Raises:
        BadInput: None follows from it, or nobody would look.
    """
    from payments_async.bulk import guess_item

    if isinstance(destination, BankAccount | UtilityAccount):
        raise BadInput("--item: the item of the bank or provider; see `payments-async products`")
    operator, item = guess_item(destination.kind, destination.phone_number)
    if item is None:
        raise BadInput("--item: no item follows from the number; see `payments-async products`")
    if yes:
        raise BadInput(f"--item: the number was given to {operator}, and people keep numbers: name it ({item})")
    screen.say(f"[bold yellow]Guessed item[/] {quoted(item)}: the number was given to {operator}; people keep numbers.")
    return item


async def collect(
    screen: Screen,
    settings: ConnectionSettings,
    basics: OrderBasics,
    item: Annotated[str, typer.Option(help="Item of the provider; see products.")],
    payer: Annotated[str, typer.Option(help="The mobile money wallet to collect from.")],
    request_id: RequestId = None,
    phone: Annotated[str | None, typer.Option(help="Where the payer is reached.")] = None,
    email: Annotated[str | None, typer.Option(help="The payer's e-mail address.")] = None,
    batch_id: Annotated[str | None, typer.Option(help="Groups orders.")] = None,
    to_account: Annotated[str | None, typer.Option(help="Account to collect to.")] = None,
    notes: OrderNotes = OrderNotes(),
    sending: Sending = Sending(),
) -> Exit:
    """Request one collection from a mobile money wallet. Shows it and asks before sending; --yes does not ask.

    It is written down in a journal before and after. The same command again never requests it twice: it goes on where
    the first one died, or tells what became of it. Status 4 means that it may have been carried out.
    """
    value, stated = read_amount(basics.amount, notes.currency)
    with naming("--payer"):
        order = CollectionOrder(
            request_id=own_id(request_id),
            amount=value,
            payer=MobileMoneyWallet(payer),
            provider_item_id=item,
            beneficiary=Beneficiary(name=basics.name, phone_number=phone, email_address=email),
            batch_id=batch_id,
            account_number=to_account,
            message=notes.message,
            metadata=notes.metadata,
            currency=stated,
        )
    return await SingleOrder(screen=screen, order=order, where="wallet", sending=sending).carry_out(settings)

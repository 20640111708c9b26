"""`payments-async collect`: one collection, shown, confirmed, requested once."""

from typing import Annotated

import typer

from payments_async import Beneficiary, CollectionOrder, MobileMoneyWallet
from payments_async._cli.exit_codes import Exit
from payments_async._cli.screen import Screen
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

"""`payments-async validate`: whether the service would take an order."""

from typing import Annotated

import typer

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.screen import Screen
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.working import working


async def validate(
    screen: Screen,
    settings: ConnectionSettings,
    product_item_id: Annotated[str, typer.Argument(help="Item of the operator or provider.")],
    customer_reference: Annotated[str, typer.Argument(help="Account or telephone number of the customer.")],
    amount: Annotated[str, typer.Argument(help="As in 1500.50.")],
) -> Exit:
    """Ask the service whether it would take an order. Sends no order; status 3 is a no."""
    async with settings.session() as payments, working(screen, "asking the service", payments):
        try:
            answer = await payments.products.validate(product_item_id, customer_reference, amount)
        except ValueError as error:
            raise BadInput(str(error)) from error
    # the words of a yes may name the customer, those of a no are the reason
    words = screen.person(answer.message) if answer.ok else answer.message
    usual = "the service would take it" if answer.ok else "the service would not take it"
    screen.fields([("valid" if answer.ok else "not valid", words or usual)])
    screen.document({**screen.people(answer), "message": words or None})
    return Exit.FINE if answer.ok else Exit.FAILED

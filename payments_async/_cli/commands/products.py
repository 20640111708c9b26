"""`payments-async products`, `validate` and `account`: what can be paid, to whom, and from what."""

from typing import Annotated

import typer

from payments_async import PaymentsSession
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.screen import Screen, money
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.working import working


async def products(
    screen: Screen,
    settings: ConnectionSettings,
    product_id: Annotated[str | None, typer.Argument(help="Shows this one with its items.")] = None,
) -> Exit:
    """List the products, or show one with its items."""
    async with settings.session() as payments:
        if product_id is not None:
            return await _product(screen, payments, product_id)
        async with working(screen, "reading the list of products", payments):
            found = [product async for product in payments.products.iterate()]
    rows = [
        [one.product_id, one.name or "", one.category_id or "", one.currency_code or "", _yes(one.is_active)]
        for one in found
    ]
    screen.table(["Product", "Name", "Category", "Currency", "Active"], rows)
    screen.document(found)
    return Exit.FINE


async def _product(screen: Screen, payments: PaymentsSession, product_id: str) -> Exit:
    async with working(screen, "reading the product", payments):
        found = await payments.products.get(product_id)
        items = [item async for item in payments.products.items(product_id)]
    screen.fields(
        [
            ("product", found.product_id),
            ("name", found.name),
            ("category", found.category_id),
            ("currency", found.currency_code),
            ("active", _yes(found.is_active)),
        ]
    )
    rows = [
        [
            item.product_item_id,
            item.name or "",
            money(item.amount) if item.is_amount_fixed else "any",
            item.validity_period or "",
            _yes(item.is_active),
        ]
        for item in items
    ]
    screen.table(["Item", "Name", "Amount", "Validity", "Active"], rows, right=["Amount"])
    screen.document({"product": found, "items": items})
    return Exit.FINE


def _yes(flag: bool | None) -> str:
    return "" if flag is None else "yes" if flag else "no"


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


async def account(screen: Screen, settings: ConnectionSettings) -> Exit:
    """Show the account and its balance."""
    async with settings.session() as payments, working(screen, "asking the service", payments):
        found = await payments.accounts.get()
    screen.fields(
        [
            ("balance", money(found.balance, found.currency)),
            ("account", screen.person(found.account_number)),
            ("name", screen.person(found.name)),
            ("description", screen.person(found.description)),
        ]
    )
    screen.document(screen.people(found))
    return Exit.FINE

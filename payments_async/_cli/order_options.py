"""The options that one order is made of, and complaints about an order as those of an option."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import Annotated

import attrs
import typer

from payments_async._cli.exit_codes import BadInput
from payments_async.bulk import read_money

__all__ = ["OrderBasics", "OrderNotes", "RequestId", "naming", "option", "own_id", "read_amount"]

_REQUEST_ID = (
    "--request-id: name the order yourself, unique for ever, such as your voucher number; "
    "a generated one would turn a second run into a second payment"
)
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


@attrs.frozen(kw_only=True)
class OrderBasics:
    """What every order needs."""

    amount: Annotated[str, typer.Option(help="As in 150000 or 1,500.50, in units of the account's currency.")]
    item: Annotated[str, typer.Option(help="Item of the operator or provider; see products.")]
    name: Annotated[str, typer.Option(help="Name of the beneficiary.")]


@attrs.frozen(kw_only=True)
class OrderNotes:
    """What may go with an order."""

    message: Annotated[str | None, option(help="Free text that goes with the order.")] = None
    metadata: Annotated[str | None, option(help="Further data that goes with it.")] = None
    currency: Annotated[str | None, option(help="What you mean, as in UGX; compared with the account's.")] = None


def own_id(request_id: str | None) -> str:
    """The request id, which a person has to choose.

    Raises:
        BadInput: There is none.
    """
    if not request_id:
        raise BadInput(_REQUEST_ID)
    return request_id


def read_amount(amount: str, currency: str | None) -> tuple[Decimal, str | None]:
    """The amount, read as in a batch file, and its currency."""
    try:
        value, beside = read_money(amount.strip())
    except ValueError as error:
        raise BadInput(f"--amount: {error}") from error
    if beside and currency and beside != currency.upper():
        raise BadInput(f"--amount: in {beside}, but --currency says {currency}; correct one of them")
    return value, currency or beside


@contextmanager
def naming(destination: str) -> Iterator[None]:
    """Turn a complaint about a field into one about the option that filled it."""
    try:
        yield
    except ValueError as error:
        field, colon, rest = str(error).partition(":")
        option = destination if field == "destination.phone_number" else _OPTIONS.get(field)
        rest = rest.replace("pass UtilityAccount(..., area='Kampala')", "as in --area Kampala")
        raise BadInput(f"{option}:{rest}" if colon and option else str(error)) from error

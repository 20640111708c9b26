"""The table of the kinds of orders agrees with the classes it speaks of."""

from typing import get_args

import attrs
import pytest
from wire.orders import collection, payout

from payments_async import BankAccount, MobileMoneyWallet, UtilityAccount
from payments_async._wire.kinds import KINDS, PAYOUT_KINDS, Kind, destination_of, item_of, reference_of
from payments_async._wire.orders import CollectionOrder, Destination


def test_every_destination_has_one_row() -> None:
    """A class that was added to the destinations and not to the table is noticed here, and not by a payment."""
    assert [kind.kind for kind in get_args(Destination)] == list(PAYOUT_KINDS)
    assert list(get_args(Destination)) == [row.destination for row in PAYOUT_KINDS.values()]
    assert [*PAYOUT_KINDS, CollectionOrder.kind] == list(KINDS)


@pytest.mark.parametrize("row", KINDS.values(), ids=KINDS)
def test_a_row_names_the_fields_of_its_class(row: Kind) -> None:
    """Every field has a member, in the order of the fields, and what else the row names is among them."""
    fields = [field.name for field in attrs.fields(row.destination)]
    assert fields == list(row.members)
    assert row.reference in fields
    assert row.unique_within in (None, "product_item_id", *fields)
    assert ("area" in fields) == (row.area_needed_for is not None)


def test_only_what_has_a_default_may_be_left_out() -> None:
    """The columns that a row of a batch file may lack are the fields that an order may lack."""
    optional = {name: row.optional for name, row in KINDS.items() if row.optional}
    assert {"utility": frozenset({"area"})} == optional


def test_an_order_tells_whom_it_pays_and_through_what() -> None:
    """The same three questions to a payout of any kind and to a collection."""
    bank = payout(destination=BankAccount("0012345", "STAN"))
    assert ("bank_transfer", "0012345") == (bank.kind, reference_of(bank))
    utility = payout(destination=UtilityAccount("04123", "Kampala"))
    assert ("utility", "04123") == (utility.kind, reference_of(utility))
    money_in = collection(payer=MobileMoneyWallet("+256772000017"), provider_item_id="MTN")
    assert ("collection", "+256772000017", "MTN") == (money_in.kind, reference_of(money_in), item_of(money_in))
    assert money_in.payer == destination_of(money_in)

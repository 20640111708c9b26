"""The part of an application that is tested: it refunds a customer, and says in its own words what came of it."""

from payments_async import Beneficiary, MobileMoneyWallet, PayoutOrder
from payments_async.journal import State
from payments_async.outbox import Outbox

WORDS = {
    State.SUCCESSFUL: "refunded",
    State.FAILED: "not refunded: ask for another number",
    State.REJECTED: "not refunded: ask for another number",
}


async def refund(outbox: Outbox, purchase: str, phone_number: str, amount: int, *, patience: float = 60.0) -> str:
    """Refund a purchase once, however often it is asked for."""
    order = PayoutOrder(
        request_id=f"refund-{purchase}",
        amount=amount,
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Customer"),
        destination=MobileMoneyWallet(phone_number),
    )
    await outbox.put(order)
    try:
        entry = await outbox.settled(order.request_id, timeout=patience)
    except TimeoutError:
        return "on its way"  # not known yet, and no failure: nothing is sent again
    return WORDS.get(entry.state, "on its way")

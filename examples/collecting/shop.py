"""Collect what customers owe: one approves, one refuses, one answer is lost. Runs on the sandbox as it is.

Accepted is not collected: the payer may still have to approve on the telephone. So the shop ships when a handler hears
of a success, and not when `put` returns; asked twice for the same invoice, nobody pays twice.
"""

import asyncio
import tempfile
from decimal import Decimal
from pathlib import Path

from payments_async import Beneficiary, CollectionOrder, Credentials, MobileMoneyWallet, PaymentsSession
from payments_async.ipn import Receiver, serving
from payments_async.journal import Entry, SqliteJournal, State
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Sandbox

INVOICES = {
    "invoice-1": ("Grace Akello", 40_000),
    "invoice-2": ("John Okello", 15_000),
    "invoice-3": ("Ruth Apio", 500),
}


def order_for(invoice: str) -> CollectionOrder:
    """One invoice is one collection, for ever: its number is the request id."""
    customer, owed = INVOICES[invoice]
    return CollectionOrder(
        request_id=invoice,
        amount=Decimal(owed),
        payer=MobileMoneyWallet(f"+2567720000{invoice[-1]}7"),
        provider_item_id="MTNMOBILEMONEYUG_MTNMOBILEMONEYUG",
        beneficiary=Beneficiary(name=customer),  # who pays
        message=f"Your {invoice}",
    )


async def main(folder: Path) -> None:
    """Ask three customers, one of them twice, and say what became of each."""
    async with Sandbox() as service, SqliteJournal(folder / "shop.sqlite") as journal:
        service.script(Fault.FAILS, request_id="invoice-2")  # the payer says no
        service.script(Fault.LOST_AFTER, request_id="invoice-3")  # asked, and the answer lost
        credentials = Credentials(app_key=service.app_key, app_password=service.app_password, user_id=service.user_id)
        payments = PaymentsSession(service.base_url, credentials)
        receiver = Receiver(journal, senders=["127.0.0.1"])
        outbox = Outbox(payments, journal)

        @outbox.on(State.SUCCESSFUL, State.FAILED, State.REJECTED)
        async def settled(entry: Entry) -> None:
            # it may be told again: write entry.change_id down in the commit that ships
            done = "paid: ship it" if entry.state is State.SUCCESSFUL else f"not paid ({entry.state}): remind"
            print(f"{entry.request_id} {entry.amount} {done}")

        async with payments, serving(receiver, port=0) as (host, port), outbox:
            service.ipn_url = f"http://{host}:{port}/ipn"
            for invoice in (*INVOICES, "invoice-1"):
                await outbox.put(order_for(invoice))
            for invoice in INVOICES:
                await outbox.settled(invoice, timeout=60)
        assert [service.executions(invoice) for invoice in INVOICES] == [1, 1, 1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))

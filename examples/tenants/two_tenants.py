"""Two tenants in one application: each has credentials, a journal and an address for notifications of its own.

A journal belongs to one account of the service, and refuses another. The service does not say for which application a
notification is, so each tenant's address ends in a token that nobody can guess: what comes to one address goes into
that tenant's journal alone. Runs on two sandboxes as it is.
"""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
from aiohttp import web

from payments_async import Beneficiary, Credentials, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async.ipn import Receiver
from payments_async.journal import SqliteJournal, WrongAccount
from payments_async.outbox import Outbox
from payments_async.sandbox import Sandbox, SandboxAccount


@attrs.frozen(kw_only=True)
class Tenant:
    """What one tenant needs, made before anything is open."""

    name: str
    token: str = attrs.field(repr=False)
    payments: PaymentsSession
    journal: SqliteJournal
    receiver: Receiver
    outbox: Outbox


def tenant_of(name: str, folder: Path, base_url: str, credentials: Credentials) -> Tenant:
    """A tenant; where it has been before, its journal goes on. Keep its token: the portal holds the address."""
    token = secrets.token_urlsafe(24)
    payments = PaymentsSession(base_url, credentials)
    journal = SqliteJournal(folder / f"{name}.sqlite")
    receiver = Receiver(journal, senders=["127.0.0.1"], path_token=token)
    outbox = Outbox(payments, journal)
    return Tenant(name=name, token=token, payments=payments, journal=journal, receiver=receiver, outbox=outbox)


@asynccontextmanager
async def working(tenant: Tenant) -> AsyncIterator[Tenant]:
    """Open all that is a tenant's: one that cannot be opened keeps no other one from it."""
    async with tenant.journal, tenant.payments, tenant.receiver, tenant.outbox:
        yield tenant


def order_for(tenant: Tenant) -> PayoutOrder:
    """The same request id in both: ids are unique for an account, and tenants know nothing of one another's."""
    return PayoutOrder(
        request_id="salary-2026-11-1",
        amount=1_000,
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name=f"Employee of {tenant.name}"),
        destination=MobileMoneyWallet("+256772000017"),
    )


async def main(folder: Path) -> None:
    """Pay one order of each, and show that nothing of one reaches the other."""
    async with AsyncExitStack() as stack:
        services = {
            name: await stack.enter_async_context(Sandbox(account=SandboxAccount(number=number)))
            for name, number in (("north", 6), ("south", 7))
        }
        tenants = []
        for name, service in services.items():
            known = Credentials(app_key=service.app_key, app_password=service.app_password, user_id=service.user_id)
            tenants.append(tenant_of(name, folder, service.base_url, known))
        application = web.Application()
        for tenant in tenants:
            application.add_subapp(f"/ipn/{tenant.name}", tenant.receiver.app())
        runner = web.AppRunner(application, access_log=None)  # its lines would hold the tokens
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        for tenant in tenants:
            await stack.enter_async_context(working(tenant))
        await site.start()
        host, port = runner.addresses[0][:2]
        for tenant in tenants:
            services[tenant.name].ipn_url = f"http://{host}:{port}/ipn/{tenant.name}/{tenant.token}"
            await tenant.outbox.put(order_for(tenant))
        for tenant in tenants:
            entry = await tenant.outbox.settled("salary-2026-11-1", timeout=60)
            print(f"{tenant.name}: {entry.state}, paid {services[tenant.name].executions(entry.request_id)} time")
        north, south = tenants
        try:
            async with Outbox(south.payments, north.journal):
                print("mixed up")
        except WrongAccount as error:
            print(f"refused: {type(error).__name__}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))

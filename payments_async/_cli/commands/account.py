"""`payments-async account`: what the account holds."""

from payments_async._cli.exit_codes import Exit
from payments_async._cli.screen import Screen, money
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.working import working


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

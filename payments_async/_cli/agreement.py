"""What a person says yes to before a batch is paid: sum, currency, count, service, and who gets how much."""

import asyncio
import heapq

from payments_async import (
    AirtimeLine,
    BankAccount,
    InternetLine,
    MobileMoneyWallet,
    Order,
    PaymentsSession,
    PayoutOrder,
    UtilityAccount,
)
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.screen import Screen, counted, money, quoted
from payments_async._cli.working import working
from payments_async.bulk import BatchChanged, Plan

_LARGEST = 10  # payouts that are shown of many
_CONCERNS = 5  # of many


async def agree(screen: Screen, payments: PaymentsSession, made: Plan, question: str, *, otherwise: str) -> None:
    """Show what would be paid, and ask. With ``--show-personal`` every payout is shown, else the largest.

    At a terminal names and numbers stand in full, unless ``--mask`` is given.

    Raises:
        Declined: It is a no.
        BadInput: There is no terminal to ask at, or the file was changed meanwhile.
    """
    if screen.can_ask:
        await show_orders(screen, payments, made)
    screen.confirm(question, yes=False, otherwise=otherwise)


async def show_orders(screen: Screen, payments: PaymentsSession, made: Plan) -> None:
    """Write what would be paid to whom: all of it, or the largest.

    Raises:
        BadInput: The file was changed meanwhile.
    """
    shows_all = screen.show_personal or made.count <= _LARGEST
    try:
        async with working(screen, "collecting what is to be sent"):
            shown = await asyncio.to_thread(_orders, made, shows_all=shows_all)
            names = await asyncio.to_thread(made.named, {one.request_id for one in shown})
    except BatchChanged as error:
        raise BadInput("the file was changed while it was read; nothing was sent. Begin again") from error
    screen.say("\n[bold]To be sent[/]")
    screen.fields(
        [
            ("sum", money(made.open_total, made.currency)),
            ("currency", made.currency or "that of the account, which the service does not name"),
            ("payouts", f"{made.open_count:,}"),
            ("fees", "not in the sum: the service tells them afterwards"),
            ("service", payments.base_url),
            ("digest", made.digest),
        ]
    )
    for concern in made.concerns[:_CONCERNS]:
        screen.say(f"[bold yellow]acknowledged:[/] {quoted(str(concern))}")
    screen.say(f"\n{'All' if shows_all else f'The {len(shown)} largest'} of {counted(made.count, 'payout')}:")
    amount = f"Amount {made.currency}" if made.currency else "Amount"
    rows = [
        [
            names.get(one.request_id, one.request_id),
            paid_to(screen, one, is_asked=True),
            screen.person(one.beneficiary.name, is_asked=True),
            screen.person(one.message, is_asked=True),
            money(one.amount),
        ]
        for one in shown
    ]
    screen.table(["Order", "Paid to", "Beneficiary", "Message to them", amount], rows, right=[amount])
    if not shows_all:
        screen.say("--show-personal shows all of them")


def _orders(made: Plan, *, shows_all: bool) -> list[PayoutOrder]:
    """What is shown of a plan; its file may be long, and is read once more."""
    return list(made.orders) if shows_all else heapq.nlargest(_LARGEST, made.orders, key=lambda one: one.amount)


def paid_to(screen: Screen, order: Order, *, is_asked: bool) -> str:
    """Where the money of an order goes, or of a collection where it comes from: the number, with the bank or area.

    Args:
        is_asked: It belongs to a question.
    """
    match order.destination if isinstance(order, PayoutOrder) else order.payer:
        case MobileMoneyWallet() | AirtimeLine() | InternetLine() as line:
            return screen.person(line.phone_number, is_asked=is_asked)
        case BankAccount() as account:
            return f"{screen.person(account.account_number, is_asked=is_asked)}, bank {account.bank_code}"
        case UtilityAccount() as account:
            area = f", {account.area}" if account.area else ""
            return f"{screen.person(account.customer_reference, is_asked=is_asked)}{area}"

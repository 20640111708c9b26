"""What persons say yes to, who they are, and what they cancel: sum, currency, count, service, and who gets how much."""

import asyncio
import heapq
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

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
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.screen import Screen, clean, counted, money, quoted
from payments_async._cli.working import working
from payments_async.journal import Entry, Journal, JournalRefused, Signature, State

if TYPE_CHECKING:  # a help imports no more than it shows
    from payments_async.bulk import Plan

_LARGEST = 10  # payouts that are shown of many
_CONCERNS = 5  # of many
_MUCH_MORE = Decimal("1.5")  # times the greatest batch before

_AT_ONCE = 500  # in a commit or two


async def agree(
    screen: Screen,
    payments: PaymentsSession,
    made: "Plan",
    question: str,
    *,
    otherwise: str,
    before: Sequence[Decimal] = (),
) -> None:
    """Show what would be paid, and ask. With ``--show-personal`` every payout is shown, else the largest.

    At a terminal names and numbers stand in full, unless ``--mask`` is given. A batch that is much more than any before
    it takes its sum typed, in place of a yes.

    Args:
        before: What the batches of the journal came to.

    Raises:
        Declined: It is a no.
        BadInput: There is no terminal to ask at, or the file was changed meanwhile.
    """
    if screen.can_ask:
        await show_orders(screen, payments, made)
    greatest = max(before, default=None)
    if greatest is None or made.open_total <= greatest * _MUCH_MORE:
        screen.confirm(question, yes=False, otherwise=otherwise)
        return
    screen.say(f"\n[bold yellow]No batch before it was more than[/] {money(greatest, made.currency)}.")
    typed = screen.typed(f"{question} Type the sum", otherwise=otherwise)
    try:
        is_sum = Decimal(typed.replace(",", "").replace(" ", "")) == made.open_total
    except InvalidOperation:
        is_sum = False
    if not is_sum:
        raise Declined(f"that is not the sum; {otherwise}")


async def show_orders(screen: Screen, payments: PaymentsSession, made: "Plan") -> None:
    """Write what would be paid to whom: all of it, or the largest.

    Raises:
        BadInput: The file was changed meanwhile.
    """
    from payments_async.bulk import BatchChanged

    shows_all = screen.show_personal or made.count <= _LARGEST
    try:
        async with working(screen, "collecting what is to be sent"):
            shown = await asyncio.to_thread(_some, made, shows_all=shows_all)
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
    show_payouts(screen, shown, made.count, made.currency, names)


async def show_file_orders(screen: Screen, orders: Iterable[PayoutOrder], count: int, currency: str | None) -> None:
    """Write what a file pays to whom, without a plan: all of it, or the largest."""
    shows_all = screen.show_personal or count <= _LARGEST
    show_payouts(screen, await asyncio.to_thread(_some, orders, shows_all=shows_all), count, currency, {})


def show_payouts(
    screen: Screen, shown: Sequence[PayoutOrder], count: int, currency: str | None, names: Mapping[str, str]
) -> None:
    """Write the payouts that a person has to check, of so many in all."""
    shows_all = len(shown) == count
    screen.say(f"\n{'All' if shows_all else f'The {len(shown)} largest'} of {counted(count, 'payout')}:")
    amount = f"Amount {currency}" if currency else "Amount"
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
    screen.table(["Order", "Paid to", "Beneficiary", "Message", amount], rows, right=[amount])
    if not shows_all:
        screen.say("--show-personal shows all of them")


def _some(orders: Iterable[PayoutOrder], *, shows_all: bool) -> list[PayoutOrder]:
    """What is shown of a file; it may be long, and is read once more."""
    return list(orders) if shows_all else heapq.nlargest(_LARGEST, orders, key=lambda one: one.amount)


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


def signature(who: str) -> Signature:
    """The signature of a person at this machine, under the login of this process.

    Raises:
        BadInput: It has no name.
    """
    try:
        return Signature(who=who.strip(), login=login(), machine=platform.node())
    except ValueError as error:
        raise BadInput("--who: your name; it is kept") from error


def login() -> str:
    """Whose process this is, as the system has it: anybody can write another name into the environment."""
    if sys.platform == "win32":
        return os.getlogin()
    from pwd import getpwuid  # type: ignore[attr-defined,unreachable,unused-ignore]  # to who checks for Windows

    user = os.getuid()
    try:
        return getpwuid(user).pw_name
    except KeyError:  # a container whose user has no name
        return str(user)


async def cancel_all(screen: Screen, journal: Journal, request_ids: Sequence[str], *, who: str, why: str) -> Exit:
    """Cancel what was not sent yet, and tell what could not be cancelled."""
    done: list[Entry] = []
    refused: list[tuple[str, str]] = []
    for first in range(0, len(request_ids), _AT_ONCE):
        some = request_ids[first : first + _AT_ONCE]
        cancelling = [journal.cancel(one, who=who, why=why) for one in some]
        for request_id, found in zip(some, await asyncio.gather(*cancelling, return_exceptions=True), strict=True):
            if isinstance(found, Entry):
                done.append(found)
            elif isinstance(found, JournalRefused):
                refused.append((request_id, found.message))
            else:
                raise found
    never = [entry for entry in done if entry.state is State.CANCELLED]
    parked = [entry for entry in done if entry.state is not State.CANCELLED]
    if never:
        screen.say(f"never sent, as {quoted(who)} states: {counted(len(never), 'order')}: {quoted(why)}")
    if parked:
        words = "not sent again; the first time it may have been paid"
        screen.listing(f"[bold yellow]{words}[/]", [clean(entry.request_id) for entry in parked], len(parked))
    if refused:
        screen.listing("[bold red]not cancelled[/]", [clean(words) for _, words in refused], len(refused))
    document = {
        "cancelled": [entry.request_id for entry in never],
        "parked": [entry.request_id for entry in parked],
        "refused": [{"request_id": request_id, "why": words} for request_id, words in refused],
        "who": who,
        "why": why,
    }
    status = Exit.UNKNOWN if parked else Exit.FAILED if refused else Exit.FINE
    return screen.ended(status, document)

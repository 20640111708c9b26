"""`payments-async ipn`: hear notifications, look after the dead letters, and send one to try a receiver out."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import attrs
import typer
from rich.markup import escape
from yarl import URL

from payments_async._cli._bulk_journal import JournalFile, opened
from payments_async._cli._command import command
from payments_async._cli._exits import BadInput, Exit
from payments_async._cli._http import exchange
from payments_async._cli._notice import Spelling, notification
from payments_async._cli._screen import Screen, clean, counted, money, plain
from payments_async._cli._signals import until_stopped
from payments_async.ipn import DOCUMENTED_SENDERS, THIS_MACHINE, Receiver, Refusal, TransactionEvent, serving
from payments_async.journal.contract import StoredEvent

__all__ = ["add_ipn"]

_QUIET = 5.0  # seconds between two words about whom is refused
_SHOWN = 10

PathToken = Annotated[
    str | None,
    typer.Option(envvar="PAYMENTS_IPN_TOKEN", show_default=False, help="An unguessable last segment of that path."),
]
SenderNames = Annotated[
    list[str] | None,
    typer.Option(show_default=False, help="Address or network to hear; repeat it. The documented ones by default."),
]
ProxyNames = Annotated[
    list[str] | None, typer.Option(show_default=False, help="Address or network of a proxy of yours; repeat it.")
]
VisitorNames = Annotated[
    list[str] | None,
    typer.Option(
        show_default=False, help="Address or network that may ask for the health; repeat it. By default this machine."
    ),
]
OwnerName = Annotated[
    str | None,
    typer.Option(
        show_default=False,
        help="Name of this receiver in the journal, and of no other that runs. By default machine and address.",
    ),
]


def add_ipn(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Notifications: hear them, send one to try a receiver out.", no_args_is_help=True)
    command(group, "serve")(serve)
    command(group, "send")(send)
    command(group, "list")(list_dead)
    command(group, "replay")(replay)
    command(group, "prune")(prune)
    app.add_typer(group, name="ipn")


async def serve(
    screen: Screen,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    path: Annotated[str, typer.Option(help="Where notifications go.")] = "/ipn",
    path_token: PathToken = None,
    sender: SenderNames = None,
    trusted_proxy: ProxyNames = None,
    visitor: VisitorNames = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Refuse nobody; what unknown senders say is only shown.")
    ] = False,
    journal: JournalFile = None,
    owner: OwnerName = None,
) -> Exit:
    """Hear notifications and show each on a line, until stopped. With --json each line is a document.

    With --journal each is stored before it is answered, and settles its order there; without one it is only shown.
    Started again, it shows at once what the process before it had stored and not shown. With --shadow, what somebody
    says who would have been refused is shown as "reported" and settles nothing.
    From a sandbox on this machine: add --sender 127.0.0.1.

    Example: payments-async ipn serve --journal payroll.sqlite --trusted-proxy 10.0.0.5
    """
    if path_token:
        screen.secrets.add(path_token)
    async with AsyncExitStack() as stack:
        inbox = None if journal is None else await stack.enter_async_context(opened(journal, new=True))
        if inbox is not None and inbox.is_new:
            screen.note(f"new journal {journal}: it knows no order, so what is heard settles none")
        heard = _Heard(screen)
        try:
            receiver = Receiver(
                inbox, sender or DOCUMENTED_SENDERS, trusted_proxy or (), path_token=path_token, shadow=shadow,
                reported=heard.report, owner=owner or _name(host, port),
            )  # fmt: skip
        except ValueError as error:
            raise BadInput(str(error)) from error
        receiver.on(TransactionEvent, name="payments-async ipn serve")(heard)
        visitors = THIS_MACHINE if visitor is None else tuple(visitor)
        return await _listen(screen, receiver, heard, visitors, host, port, path, "/..." if path_token else "")


def _name(host: str, port: int) -> str | None:
    """A name that a process started again has too, and nobody else meanwhile: only one can listen at an address.

    It needs a port that was chosen, and an address: what a host's name stands for may change. An address belongs to a
    network, and a container has one of its own, another after each start: there, ``--owner`` names what stays.
    """
    if port == 0:
        return None
    if host != "localhost":
        try:
            ip_address(host)
        except ValueError:
            return None
    network = ""
    with suppress(OSError):  # only Linux has networks beside each other
        network = str(Path("/proc/self/ns/net").readlink())
    return f"payments-async ipn serve {socket.gethostname()} {network} {host}:{port}"


async def _listen(
    screen: Screen, receiver: Receiver, heard: _Heard, visitors: Sequence[str], host: str, port: int, path: str,
    token: str,
) -> Exit:  # fmt: skip
    refused = _Refused(screen, receiver)
    try:
        async with serving(receiver, host, port, path=path, visitors=visitors) as (at, on):
            screen.note(f"listening at http://{at}:{on}/{path.strip('/')}{token}; Ctrl-C stops")
            telling = asyncio.ensure_future(refused.tell_now_and_then())
            try:
                await until_stopped()
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)
    except OSError as error:
        raise BadInput(f"--port: {host}:{port} cannot be listened on ({error.strerror}); name another one") from error
    except ValueError as error:
        raise BadInput(str(error)) from error
    refused.tell_all()
    screen.note(f"{counted(heard.count, 'notification')} heard")
    if heard.reported:
        screen.note(f"{heard.reported:,} reported of unknown senders: nothing believes them")
    return Exit.FINE


class _Refused:
    """Says whom the receiver refuses, and how often."""

    def __init__(self, screen: Screen, receiver: Receiver) -> None:
        self._screen = screen
        self._receiver = receiver
        self._told: dict[tuple[str, str], int] = {}

    async def tell_now_and_then(self, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Say what is new, every few seconds."""
        while True:
            await sleep(_QUIET)
            news = [
                refusal for refusal in self._receiver.refusals()
                if self._told.get((refusal.address, refusal.why)) != refusal.times
            ]  # fmt: skip
            self._tell(news)

    def tell_all(self) -> None:
        """Say it of everybody, at the end."""
        refusals = self._receiver.refusals()
        if refusals:
            self._screen.note(f"{sum(refusal.times for refusal in refusals):,} refused")
        self._tell(refusals)

    def _tell(self, refusals: Sequence[Refusal]) -> None:
        for address, why, times in refusals[:_SHOWN]:
            self._told[address, why] = times
            self._screen.note(
                f"refused {counted(times, 'time')}: {clean(address)}: {clean(why.removeprefix('refused: '))}"
            )
        if len(refusals) > _SHOWN:
            self._screen.note(f"and {len(refusals) - _SHOWN:,} others")


class _Heard:
    """Shows what is heard."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.count = 0
        self.reported = 0

    async def __call__(self, event: TransactionEvent) -> None:
        self.count += 1
        self._show(event, type(event).__name__.removeprefix("Transaction").lower())

    def report(self, event: TransactionEvent, sender: str) -> None:
        """Show what somebody says who would have been refused."""
        self.reported += 1
        self._show(event, "reported", sender=sender)

    def _show(self, event: TransactionEvent, kind: str, **more: str) -> None:
        if self._screen.as_json:
            members = {field.name: plain(getattr(event, field.name)) for field in attrs.fields(type(event))}
            self._screen.line(json.dumps({"kind": kind, **more, **members}))
            return
        words = clean(f"{event.request_id or '(no request id)'}  {event.transaction_id}")
        amount = money(event.amount, event.currency_code)
        at = datetime.now(UTC).strftime("%H:%M:%S")
        self._screen.line(f"{at}  {kind:<12} {amount:>20}  {words}")


async def list_dead(screen: Screen, journal: JournalFile = None) -> Exit:
    """Tell what an inbox has waiting, and list what is wrong in it.

    Dead letters: events whose handlers failed too often. Unconfirmed: the service's own record has not borne them out
    yet. Reported: from somebody who is not known to be a sender. Disputed: the record, or a person, says otherwise.
    Only dead letters are run again by `ipn replay`; the others move no order and are heard by no handler.

    Example: payments-async ipn list --journal payroll.sqlite
    """
    async with opened(journal) as inbox:
        backlog = await inbox.backlog()
        dead = [stored async for stored in inbox.dead_letters()]
        dubious = [stored async for stored in inbox.dubious() if stored.state != "dead"]
    screen.say(f"events that wait to be handled: {backlog.pending:,}; dead letters: {backlog.dead:,}")
    screen.say(f"{backlog.unconfirmed:,} are not confirmed, {backlog.reported:,} only reported of unknown senders")
    for stored in (*dead, *dubious):
        event = stored.event
        words = f"{event.request_id or '(no request id)'}  {event.transaction_id}  code {event.status_code}"
        why = f"after {stored.tries} tries: {stored.error}" if stored.tries else stored.error or f"from {stored.peer}"
        screen.line(escape(clean(f"{stored.event_id:>8}  {_standing(stored):<11}  {words}  {why}")))
    screen.document({"pending": backlog.pending, "dead": list(map(_told, dead)), "dubious": list(map(_told, dubious))})
    return Exit.FAILED if dead else Exit.FINE


def _standing(stored: StoredEvent) -> str:
    if stored.doubt is None or stored.state in ("dead", "disputed"):
        return stored.state
    return stored.doubt


def _told(stored: StoredEvent) -> dict[str, object]:
    return {
        "event_id": stored.event_id, "standing": _standing(stored), "tries": stored.tries, "error": stored.error,
        "request_id": stored.event.request_id, "transaction_id": stored.event.transaction_id, "peer": stored.peer,
    }  # fmt: skip


async def prune(
    screen: Screen,
    older_than: Annotated[str, typer.Option(help="As in 90d or 48h: counted from when it came the last time.")],
    journal: JournalFile = None,
) -> Exit:
    """Forget old notifications that nothing needs any more, so that the journal does not grow for ever.

    Kept whatever their age: what waits or is a dead letter, and what is about an order without a final outcome or with
    a contradiction. One that is forgotten and sent again is new. The file does not shrink; its room is used again.

    Example: payments-async ipn prune --older-than 90d --journal payroll.sqlite
    """
    found = re.fullmatch(r"([0-9]{1,6})([dh])", older_than.strip())
    seconds = int(found[1]) * (86_400 if found[2] == "d" else 3600) if found else 0
    if not seconds:
        raise BadInput("--older-than: write it as in 90d or 48h")
    async with opened(journal) as inbox:
        pruned = await inbox.prune_inbox(older_than=float(seconds))
    screen.say(f"{counted(pruned.events, 'notification')} forgotten")
    screen.document({"events": pruned.events, "deliveries": pruned.deliveries})
    return Exit.FINE


async def replay(
    screen: Screen,
    event_id: Annotated[
        int | None, typer.Argument(show_default=False, help="As `ipn list` shows it; else all.")
    ] = None,
    journal: JournalFile = None,
) -> Exit:
    """Make a dead letter, or all of them, wait again: the receiver on this journal handles them.

    Example: payments-async ipn replay 17 --journal payroll.sqlite
    """
    async with opened(journal) as inbox:
        count = await inbox.revive(event_id)
    if event_id is not None and not count:
        raise BadInput(f"EVENT_ID: there is no dead letter {event_id}; `payments-async ipn list` shows them")
    screen.say(f"waiting again, for the receiver on this journal: {counted(count, 'event')}")
    screen.document({"waiting_again": count})
    return Exit.FINE


async def send(
    screen: Screen,
    url: Annotated[str, typer.Argument(help="The IPN URL of a receiver of yours.")],
    request_id: Annotated[str, typer.Option(help="Of the order.")] = "demo-000001",
    transaction_id: Annotated[str | None, typer.Option(help="Random by default.", show_default=False)] = None,
    amount: Annotated[str, typer.Option(help="As in 1500.50.")] = "1500.50",
    currency: Annotated[str, typer.Option(help="Of the amount.")] = "UGX",
    status_code: Annotated[int, typer.Option(help="0 success, 1 processing, 2 error.")] = 0,
    spelling: Annotated[Spelling, typer.Option(help="How the members are spelled.")] = Spelling.PASCAL,
    times: Annotated[int, typer.Option(min=1, max=1000, help="Send it so often: a repetition must do no harm.")] = 1,
) -> Exit:
    """Send a made-up notification to a receiver, to try it out. It says nothing to the service."""
    address = URL(url)
    if address.scheme not in ("http", "https") or not address.host:
        raise BadInput("URL: must begin with http:// or https:// and name a host, as in http://127.0.0.1:8080/ipn")
    try:
        exact = Decimal(amount)
    except ArithmeticError as error:
        raise BadInput("--amount: not a number; write it as in 1500.50") from error
    named = transaction_id or str(uuid.uuid4())
    query, body = notification(spelling, named, request_id, exact, currency, status_code, datetime.now(UTC))
    try:
        answers = [await exchange("POST", address.with_query(query), body=body) for _ in range(times)]
    except (OSError, ValueError) as error:
        screen.trouble(
            f"{address.host}:{address.port} did not take it ({type(error).__name__})", "is a receiver there?"
        )
        return Exit.FAILED
    told = [{"status": answer.status, "body": answer.body.decode("utf-8", "replace")} for answer in answers]
    for one in told:
        screen.say(escape(clean(f"{one['status']}  {one['body']}")))
    if any(300 <= answer.status < 400 for answer in answers):
        screen.trouble(
            "a redirect is no answer to a notification: the service counts only a 200",
            "let the receiver answer at this very path; a mount in Starlette or FastAPI needs a route beside it",
        )
    screen.document({"transaction_id": named, "answers": told})
    return Exit.FINE if all(answer.status == 200 for answer in answers) else Exit.FAILED

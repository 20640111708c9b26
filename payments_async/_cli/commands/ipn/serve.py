"""`payments-async ipn serve`: hears notifications and shows each on a line."""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import JournalFile, opened
from payments_async._cli.screen import Screen, clean, counted, money
from payments_async._cli.signals import until_stopped
from payments_async._cli.working import beside
from payments_async.ipn import (
    DOCUMENTED_SENDERS,
    THIS_MACHINE,
    Receiver,
    ReceiverSettings,
    Refusal,
    ServerLimits,
    TransactionEvent,
    serving,
)
from payments_async.journal import Journal

_LOOK = 1.0  # seconds between two looks at whom the receiver refused
_QUIET = 10.0  # seconds between two words about how often, where nobody new was refused
_SHOWN = 10
# What a refusal says, and what to do where it was a mistake; {} is the address.
_REMEDIES: Mapping[str, str] = {
    "names no address before it": "let that proxy send X-Forwarded-For with the address of its client",
    "itself a trusted proxy": "let the proxies send X-Forwarded-For with the address of whom they serve",
    "not among the known senders": "if the service sends from there, add --sender {}; a proxy of yours: "
    "--trusted-proxy {}",
    "neither a known sender nor a trusted proxy": "if the service sends from there, add --sender {}; a proxy of yours: "
    "--trusted-proxy {}",
    "no sender is configured": "if the service sends from there, add --sender {}",
    "headers disagree": "let your proxies set X-Forwarded-For or Forwarded, and remove what others have set",
    "path token is wrong": "the address that the portal has for notifications must end with --path-token",
    "another path": "the address that the portal has for notifications must have the path of --path",
    "connections already": "a flood, or one proxy for all of them: then add --trusted-proxy {}",
}


async def ipn_serve(
    screen: Screen,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    path: Annotated[str, typer.Option(help="Where notifications go.")] = "/ipn",
    path_token: Annotated[
        str | None, typer.Option(envvar="PAYMENTS_IPN_TOKEN", help="An unguessable last segment of that path.")
    ] = None,
    sender: Annotated[
        list[str] | None, typer.Option(help="Address or network to hear; repeat it. The documented ones by default.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(help="Address or network of a proxy of yours; repeat it.")
    ] = None,
    visitor: Annotated[
        list[str] | None,
        typer.Option(help="Address or network that may ask for the health; repeat it. By default this machine."),
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Refuse no sender; what unknown senders say is only shown.")
    ] = False,
    journal: JournalFile = None,
    owner: Annotated[
        str | None,
        typer.Option(
            help="Name of this receiver in the journal, and of no other that runs. By default machine and address."
        ),
    ] = None,
) -> Exit:
    """Hear notifications and show each on a line, until stopped. With --json each line is a document.

    With --journal each is stored before it is answered, and settles its order there; without one it is only shown.
    Give it a journal whose notifications no application handles: showing one counts as handling it.
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
        heard = _Heard(screen, inbox)
        try:
            receiver = Receiver(
                inbox,
                sender or DOCUMENTED_SENDERS,
                trusted_proxy or (),
                path_token=path_token,
                settings=ReceiverSettings(shadow=shadow, reported=heard.report, owner=owner or _name(host, port)),
            )
        except ValueError as error:
            raise BadInput(str(error)) from error
        receiver.on(TransactionEvent, name="payments-async ipn serve")(heard)
        visitors = THIS_MACHINE if visitor is None else tuple(visitor)
        refused = _Refused(screen, receiver, heard)
        token = "/..." if path_token else ""
        try:
            async with serving(receiver, host, port, path=path, limits=ServerLimits(visitors=visitors)) as (at, on):
                screen.note(f"listening at http://{at}:{on}/{path.strip('/')}{token}; Ctrl-C stops")
                async with beside(refused.tell_now_and_then()):
                    await until_stopped()
        except OSError as error:
            raise BadInput(
                f"--port: {host}:{port} cannot be listened on ({error.strerror}); name another one"
            ) from error
        except ValueError as error:
            raise BadInput(str(error)) from error
        if refusals := receiver.refusals():
            screen.note(f"{sum(refusal.times for refusal in refusals):,} refused")
            refused.tell(refusals)
        screen.note(f"{counted(heard.count, 'notification')} heard{heard.ours_in_words()}")
        if heard.reported:
            screen.note(f"{heard.reported:,} reported of unknown senders: nothing believes them")
        return Exit.FINE


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


class _Refused:
    """Says whom the receiver refuses, why, how often, and what to do where that is a mistake."""

    def __init__(self, screen: Screen, receiver: Receiver, heard: "_Heard") -> None:
        self._screen = screen
        self._receiver = receiver
        self._heard = heard
        self._told: dict[tuple[str, str], int] = {}

    async def tell_now_and_then(
        self,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Say at once who is new, and now and then how often the others were refused."""
        said_at = clock()
        while True:
            await sleep(_LOOK)
            refusals = self._receiver.refusals()
            new = [one for one in refusals if self._told.get((one.address, one.why)) != one.times]
            if clock() - said_at < _QUIET:
                new = [one for one in new if (one.address, one.why) not in self._told]
            if not new:
                continue
            said_at = clock()
            self.tell(new)
            times = sum(one.times for one in refusals)
            heard = f"{counted(self._heard.count, 'notification')} heard{self._heard.ours_in_words()}"
            self._screen.note(f"so far: {heard}, {times:,} refused")

    def tell(self, refusals: Sequence[Refusal]) -> None:
        """Say it of the first of these."""
        for address, why, times in refusals[:_SHOWN]:
            is_new = (address, why) not in self._told
            self._told[address, why] = times
            words = clean(why.removeprefix("refused: "))
            self._screen.note(f"refused {counted(times, 'time')}: {clean(address)}: {words}")
            remedy = next((remedy for said, remedy in _REMEDIES.items() if said in why), None)
            if is_new and remedy is not None:
                self._screen.note(f"  {remedy.format(*[clean(address)] * 2)}")
        for address, why, times in refusals[_SHOWN:]:
            self._told[address, why] = times
        if len(refusals) > _SHOWN:
            self._screen.note(f"and {len(refusals) - _SHOWN:,} others")


class _Heard:
    """Shows what is heard."""

    def __init__(self, screen: Screen, journal: Journal | None) -> None:
        self._screen = screen
        self._journal = journal
        self.count = 0
        self.ours = 0
        self.reported = 0

    def ours_in_words(self) -> str:
        """How many of them are about orders of the journal, where there is one."""
        return "" if self._journal is None else f" ({self.ours:,} about orders of this journal)"

    async def __call__(self, event: TransactionEvent) -> None:
        self.count += 1
        if self._journal is not None and event.request_id:
            self.ours += await self._journal.entry(event.request_id) is not None
        self._show(event, type(event).__name__.removeprefix("Transaction").lower())

    def report(self, event: TransactionEvent, sender: str) -> None:
        """Show what somebody says who would have been refused."""
        self.reported += 1
        self._show(event, "reported", sender=sender)

    def _show(self, event: TransactionEvent, kind: str, **more: str) -> None:
        if self._screen.as_json:
            self._screen.line(json.dumps({"kind": kind, **more, **self._screen.people(event)}))
            return
        words = clean(f"{event.request_id or '(no request id)'}  {event.transaction_id}")
        amount = money(event.amount, event.currency_code)
        at = datetime.now(UTC).strftime("%H:%M:%S")
        self._screen.line(f"{at}  {kind:<12} {amount:>20}  {words}")

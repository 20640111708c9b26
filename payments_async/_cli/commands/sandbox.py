"""`payments-async sandbox`: the simulated service in the foreground, for trying things out and for other languages."""

import os
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.faults import SECONDS, FaultLevel, rates, spelling
from payments_async._cli.screen import Screen, money
from payments_async._cli.signals import on_signals
from payments_async.sandbox import Redelivery, Sandbox, SandboxAccount, SandboxServer

_LONGEST_WAIT = 2.0  # seconds between two tries at a notification: whoever comes back hears of everything soon


async def sandbox(
    screen: Screen,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 7027,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    prefix: Annotated[str, typer.Option(help="A path before every path.")] = "",
    faults: Annotated[FaultLevel, typer.Option(help="How much goes wrong.")] = FaultLevel.NONE,
    seed: Annotated[int, typer.Option(help="Decides which orders the faults strike.")] = 1,
    ipn_url: Annotated[str | None, typer.Option(help="Where notifications go.")] = None,
    ipn_attempts: Annotated[int, typer.Option(min=1, help="Tries at one notification.")] = 5,
    balance: Annotated[str, typer.Option(help="What the account holds at first.")] = "1000000000",
    currency: Annotated[str, typer.Option(help="Of the account.")] = "UGX",
    processing_delay: Annotated[float, typer.Option(min=0, help="Seconds from acceptance to the end.")] = 1.0,
    fast: Annotated[bool, typer.Option("--fast", help="For load tests: orders end at once.")] = False,
    idle: Annotated[float | None, typer.Option(min=1, help="End after so many seconds without a request.")] = None,
) -> Exit:
    """Run the simulated service until stopped, with its control interface at /_sandbox/. Its money is made up."""
    try:
        service = Sandbox(
            server=SandboxServer(port=port, host=host, prefix=prefix),
            seed=seed,
            quirks=spelling(faults, seed),
            ipn_url=ipn_url,
            redelivery=Redelivery(attempts=ipn_attempts, wait_max=_LONGEST_WAIT),
            account=SandboxAccount(balance=Decimal(balance), currency=currency),
            processing_delay=processing_delay,
            fast=fast,
        )
    except InvalidOperation as error:
        raise BadInput("--balance: not a number; write it as in 1000000") from error
    try:
        async with service:
            if faults is not FaultLevel.NONE:
                service.chaos(rates(faults), seconds=SECONDS)
            _introduce(screen, service)
            with on_signals(service.end):
                await service.ended(idle=idle)
            screen.say(f"\n{len(service.ledger):,} orders carried out, {len(service.duplicates()):,} more than once.")
    except OSError as error:
        raise BadInput(f"--port: {host}:{port} cannot be served on ({error.strerror}); name another one") from error
    return Exit.FINE


def _introduce(screen: Screen, service: Sandbox) -> None:
    settings = dict(service.variables)  # the password is of a service that does not exist
    screen.say(
        f"[bold]The simulated service[/] is at {service.base_url}, with {money(service.balance)} in its account."
    )
    screen.say(f"Its page, to look and to steer: {service.base_url}/_sandbox/; for programs it is at /_sandbox/state.")
    screen.say("Ctrl-C stops it. For the other commands:\n")
    for name, value in settings.items():
        screen.say(f"  export {name}={value}")
    control = f"{service.base_url}/_sandbox/"
    screen.document({"settings": settings, "control": control, "ipn_url": service.ipn_url, "pid": os.getpid()})

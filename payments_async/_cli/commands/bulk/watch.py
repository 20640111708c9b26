"""`payments-async bulk watch`: a page on this machine that shows a journal, and lets a person decide."""

import os
from typing import Annotated

import typer

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import JournalFile, opened
from payments_async._cli.screen import Screen
from payments_async._cli.signals import until_stopped
from payments_async._cli.watch_server import WatchServer
from payments_async._pages.rendering import style


async def bulk_watch(
    screen: Screen,
    journal: JournalFile = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of this machine; 0 takes a free one.")] = 0,
    decide: Annotated[
        bool,
        typer.Option(
            "--decide", help="With buttons: send again, acknowledge, replay, lift a quarantine, take a retry file."
        ),
    ] = False,
) -> Exit:
    """Show a journal on a page of this machine: batches, a plot, what needs a person. It changes nothing.

    With --decide it has buttons, each of which asks who and why. Only this machine reaches the page, and only by the
    address that is shown, so do not pass that on. Names are masked, unless --show-personal is given. Ctrl-C ends it.

    Example: payments-async bulk watch --journal payroll.sqlite --decide
    """
    try:
        style()
    except ModuleNotFoundError as error:
        raise BadInput(str(error)) from error
    async with opened(journal) as held:
        server = WatchServer(held, screen, place=str(journal), decides=decide, log=screen.line)
        try:
            address = await server.start(port)
        except OSError as error:
            raise BadInput(f"--port: 127.0.0.1:{port} cannot be served on ({error.strerror}); name another") from error
        try:
            screen.say(f"The page, for this machine and all who have this address, until Ctrl-C:\n\n  {address}\n")
            screen.document({"address": address, "decides": decide, "pid": os.getpid()})
            await until_stopped()
        finally:
            await server.aclose()
    return Exit.FINE

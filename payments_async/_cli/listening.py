"""`--listen`: hear notifications while a batch is sent and settled, into its own journal."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import attrs
import typer

from payments_async._cli.exit_codes import BadInput
from payments_async._cli.screen import Screen, counted
from payments_async.ipn import DOCUMENTED_SENDERS, Receiver, serving
from payments_async.journal import Journal


@attrs.frozen(kw_only=True)
class Listening:
    """Where notifications are heard, and from whom."""

    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Hear notifications there, at /ipn, until each order is settled."),
    ] = None
    path_token: Annotated[
        str | None, typer.Option(envvar="PAYMENTS_IPN_TOKEN", help="An unguessable last segment of that path.")
    ] = None
    sender: Annotated[
        list[str] | None, typer.Option(help="Address or network to hear; repeat it. The documented ones by default.")
    ] = None
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(help="Address or network of a proxy of yours; repeat it.")
    ] = None

    def address(self) -> tuple[str, int] | None:
        """Host and port; ``None`` where nothing is heard.

        Raises:
            BadInput: It is written otherwise, or something else is said without it.
        """
        if self.listen is None:
            if self.sender or self.trusted_proxy:
                raise BadInput("--sender and --trusted-proxy: they go with --listen")
            return None
        host, _, port = self.listen.rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise BadInput("--listen: host and port, as in 127.0.0.1:8080")
        return host.strip("[]") or "127.0.0.1", int(port)

    @asynccontextmanager
    async def hearing(self, screen: Screen, journal: Journal) -> AsyncIterator[None]:
        """Hear what comes, for as long as the block runs, if that was asked for; refusals are told at the end.

        Raises:
            BadInput: It cannot be heard there.
        """
        address = self.address()
        if address is None:
            yield
            return
        async with AsyncExitStack() as stack:
            try:
                receiver = Receiver(
                    journal,
                    self.sender or DOCUMENTED_SENDERS,
                    trusted_proxies=self.trusted_proxy or (),
                    path_token=self.path_token,
                )
                at = await stack.enter_async_context(serving(receiver, *address))
            except OSError as error:
                raise BadInput(
                    f"--listen: {self.listen} cannot be listened on ({error.strerror}); where `ipn serve` listens "
                    "there already, leave it out and say --settle"
                ) from error
            except ValueError as error:
                raise BadInput(str(error)) from error
            screen.note(f"hearing notifications at http://{at[0]}:{at[1]}/ipn{'/...' if self.path_token else ''}")
            yield
            for refusal in receiver.refusals()[:3]:
                screen.note(f"refused {counted(refusal.times, 'time')}: {refusal.address}: {refusal.why}")

"""How much at a time, and when sending stops by itself: options of whatever sends many."""

from decimal import Decimal
from typing import Annotated

import attrs
import typer

from payments_async import Limits
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.journal import WithoutLooking
from payments_async._cli.screen import clean, counted
from payments_async._cli.shortage import places_for_connections
from payments_async.bulk import Fuse, read_money

_Concurrency = Annotated[int, typer.Option(min=1, max=1000, help="Payouts under way at once.")]
_Rate = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        help="Send no more orders than this in a second, of all processes on this journal, which keeps it; inf: any.",
    ),
]
_MinBalance = Annotated[str | None, typer.Option(help="Leave this on the account.")]


@attrs.frozen(kw_only=True)
class RunLimits:
    """How much at a time, when a run is to stop by itself, and whether it looks first."""

    concurrency: _Concurrency = 50
    rate: _Rate = None
    max_unknown: Annotated[int | None, typer.Option(min=0, help="Stop when more orders are unknown.")] = None
    max_error_rate: Annotated[
        float | None, typer.Option(min=0, max=1, help="Stop when this share of the last 100 went wrong, as in 0.05.")
    ] = None
    stop_at_total: Annotated[
        str | None, typer.Option(help="Stop before the batch comes to more; the rest stays planned.")
    ] = None
    min_balance: _MinBalance = None
    without_looking: WithoutLooking = False

    def said(self) -> dict[str, object]:
        """Those that are not as they are by default."""
        return {name: value for name, value in attrs.asdict(self).items() if value != getattr(RunLimits(), name)}

    def fuse(self) -> Fuse:
        """When to stop.

        Raises:
            BadInput: An amount is none.
        """
        return Fuse(
            max_unknown=self.max_unknown,
            max_error_rate=self.max_error_rate,
            max_total=read_limit("--stop-at-total", self.stop_at_total),
            min_balance=read_limit("--min-balance", self.min_balance),
        )


@attrs.frozen(kw_only=True)
class OutboxLimits:
    """How much at a time, and when an outbox pauses by itself."""

    concurrency: _Concurrency = 50
    rate: _Rate = None
    max_unknown: Annotated[int | None, typer.Option(min=0, help="Pause when more orders are unknown.")] = None
    max_error_rate: Annotated[
        float | None, typer.Option(min=0, max=1, help="Pause when this share of the last 100 went wrong, as in 0.05.")
    ] = None
    max_per_day: Annotated[str | None, typer.Option(help="Send no more than this in one day.")] = None
    min_balance: _MinBalance = None

    def fuse(self) -> Fuse:
        """When to pause.

        Raises:
            BadInput: An amount is none.
        """
        return Fuse(
            max_unknown=self.max_unknown,
            max_error_rate=self.max_error_rate,
            max_per_day=read_limit("--max-per-day", self.max_per_day),
            min_balance=read_limit("--min-balance", self.min_balance),
        )


def session_limits(limits: RunLimits | OutboxLimits) -> Limits:
    """Those of the session: no permit waits for a place.

    Raises:
        BadInput: This process may not have so many connections.
    """
    if limits.concurrency > (places := places_for_connections()):
        raise BadInput(
            f"--concurrency {limits.concurrency}: this program may have {counted(places, 'connection')}; raise its "
            f"limit of open files (ulimit -n), or name at most {places}"
        )
    return Limits(concurrency=min(places, max(100, limits.concurrency)))


def read_limit(option: str, text: str | None) -> Decimal | None:
    """An amount that you gave as a limit, read as in a batch file; 0 is one.

    Raises:
        BadInput: It is none, or can be read in two ways.
    """
    if text is None or not text.strip().strip("0"):
        return None if text is None else Decimal(0)
    try:
        amount, beside = read_money(text.strip())
    except ValueError as error:
        raise BadInput(f"{option}: {clean(text)}: {error}") from error
    if beside is not None:
        raise BadInput(f"{option}: {clean(text)}: a limit is in the account's currency; write the number alone")
    return amount

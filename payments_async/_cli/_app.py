"""The commands of `payments-async`, gathered. Each is at home in a module of its own."""

from __future__ import annotations

import typer

from payments_async._cli._bulk import add_bulk
from payments_async._cli._demo import add_demo
from payments_async._cli._doctor import add_doctor
from payments_async._cli._exits import EXIT_CODES
from payments_async._cli._explain import add_explain
from payments_async._cli._ipn import add_ipn
from payments_async._cli._look import add_looks
from payments_async._cli._pay import add_orders
from payments_async._cli._sandbox import add_sandbox

__all__ = ["app"]

app = typer.Typer(
    help="Payouts and collections that are never made twice, never lost, and always accounted for.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with locals would show secrets and people
    pretty_exceptions_show_locals=False,
)
for add in (add_demo, add_doctor, add_looks, add_orders, add_bulk, add_explain, add_ipn, add_sandbox):
    add(app)


@app.callback()
def payments_async() -> None:
    """Payouts and collections that are never made twice, never lost, and always accounted for."""

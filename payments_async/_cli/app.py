"""The program `payments-async`: all of its commands, by name. A new one is a file in `commands` and a line here."""

from collections.abc import Mapping

import typer

from payments_async._cli.command import Command, add_command
from payments_async._cli.commands.account import account
from payments_async._cli.commands.bulk.decisions import bulk_acknowledge, bulk_lift_quarantine, bulk_write_off
from payments_async._cli.commands.bulk.plan import bulk_plan
from payments_async._cli.commands.bulk.reconcile import bulk_reconcile
from payments_async._cli.commands.bulk.report import bulk_report
from payments_async._cli.commands.bulk.run import bulk_run
from payments_async._cli.commands.bulk.status import bulk_status
from payments_async._cli.commands.collect import collect
from payments_async._cli.commands.demo import demo
from payments_async._cli.commands.doctor import doctor
from payments_async._cli.commands.explain import explain
from payments_async._cli.commands.ipn.inbox import ipn_list, ipn_prune, ipn_replay
from payments_async._cli.commands.ipn.send import ipn_send
from payments_async._cli.commands.ipn.serve import ipn_serve
from payments_async._cli.commands.journal import journal_prune
from payments_async._cli.commands.outbox.decisions import outbox_pause, outbox_replay, outbox_resume
from payments_async._cli.commands.outbox.put import outbox_put
from payments_async._cli.commands.outbox.run import outbox_run
from payments_async._cli.commands.outbox.status import outbox_status
from payments_async._cli.commands.pay import pay
from payments_async._cli.commands.products import products
from payments_async._cli.commands.sandbox import sandbox
from payments_async._cli.commands.transactions import transactions
from payments_async._cli.commands.validate import validate
from payments_async._cli.exit_codes import BULK_EXIT_CODES, EXIT_CODES, OUTBOX_EXIT_CODES

_COMMANDS: Mapping[str, Command] = {
    "demo": demo,
    "doctor": doctor,
    "account": account,
    "products": products,
    "validate": validate,
    "transactions": transactions,
    "pay": pay,
    "collect": collect,
    "bulk plan": bulk_plan,
    "bulk run": bulk_run,
    "bulk status": bulk_status,
    "bulk report": bulk_report,
    "bulk reconcile": bulk_reconcile,
    "bulk write-off": bulk_write_off,
    "bulk acknowledge": bulk_acknowledge,
    "bulk lift-quarantine": bulk_lift_quarantine,
    "outbox run": outbox_run,
    "outbox put": outbox_put,
    "outbox status": outbox_status,
    "outbox pause": outbox_pause,
    "outbox resume": outbox_resume,
    "outbox replay": outbox_replay,
    "explain": explain,
    "journal prune": journal_prune,
    "ipn serve": ipn_serve,
    "ipn send": ipn_send,
    "ipn list": ipn_list,
    "ipn replay": ipn_replay,
    "ipn prune": ipn_prune,
    "sandbox": sandbox,
}

app = typer.Typer(
    help="Payouts and collections that are never made twice, never lost, and always accounted for.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with locals would show secrets and people
    pretty_exceptions_show_locals=False,
)
_GROUPS: Mapping[str, typer.Typer] = {
    "bulk": typer.Typer(
        help="Batches of payouts from a file: planned, approved, run, reconciled, reported. Never paid twice, never "
        "lost.",
        epilog=BULK_EXIT_CODES,
        no_args_is_help=True,
    ),
    "outbox": typer.Typer(
        help="Single orders of applications, and batches beside them: each sent once, by whoever works the outbox.",
        epilog=OUTBOX_EXIT_CODES,
        no_args_is_help=True,
    ),
    "journal": typer.Typer(help="What is on disk: old orders moved into an archive.", no_args_is_help=True),
    "ipn": typer.Typer(help="Notifications: hear them, send one to try a receiver out.", no_args_is_help=True),
}
for _name, _group in _GROUPS.items():
    app.add_typer(_group, name=_name)
for _name, _function in _COMMANDS.items():
    _where, _, _what = _name.rpartition(" ")
    add_command(_GROUPS.get(_where, app), _what, _function)


@app.callback()
def payments_async() -> None:
    """Payouts and collections that are never made twice, never lost, and always accounted for."""

"""The program `payments-async`: all of its commands, by name. A new one is a file in `commands` and a line here.

A command is imported when it is named: whoever asks what there is, or for one of them, does not wait for all.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer

from payments_async import __version__
from payments_async._cli.exit_codes import BULK_EXIT_CODES, EXIT_CODES, OUTBOX_EXIT_CODES
from payments_async._cli.help import HELP_OPTIONS, PlainCommand, PlainGroup

# The file in `commands` that each is in.
COMMANDS: Mapping[str, str] = {
    "demo": "demo",
    "doctor": "doctor",
    "account": "products",
    "products": "products",
    "validate": "products",
    "transactions": "transactions",
    "pay": "pay",
    "collect": "pay",
    "bulk plan": "bulk.plan",
    "bulk approve": "bulk.approvals",
    "bulk approvals": "bulk.approvals",
    "bulk sign": "bulk.signing",
    "bulk approver": "bulk.signing",
    "bulk run": "bulk.run",
    "bulk status": "bulk.status",
    "bulk watch": "bulk.watch",
    "bulk report": "bulk.report",
    "bulk retry-file": "bulk.papers",
    "bulk receipt": "bulk.papers",
    "bulk export": "bulk.papers",
    "bulk reconcile": "bulk.reconcile",
    "bulk send-again": "bulk.decisions",
    "bulk listing-deadline": "bulk.decisions",
    "bulk cancel": "bulk.decisions",
    "bulk acknowledge": "bulk.decisions",
    "bulk lift-quarantine": "bulk.decisions",
    "outbox run": "outbox.run",
    "outbox put": "outbox.put",
    "outbox status": "outbox.status",
    "outbox pause": "outbox.decisions",
    "outbox resume": "outbox.decisions",
    "outbox cancel": "outbox.decisions",
    "outbox drop": "outbox.decisions",
    "outbox replay": "outbox.decisions",
    "outbox forget": "outbox.decisions",
    "fleet worker": "fleet",
    "fleet submit": "fleet",
    "fleet status": "fleet",
    "fleet schedule": "fleet",
    "explain": "explain",
    "journal prune": "journal",
    "journal migrate": "journal",
    "journal check": "journal",
    "journal copy": "journal",
    "ipn serve": "ipn.serve",
    "ipn send": "ipn.send",
    "ipn list": "ipn.inbox",
    "ipn replay": "ipn.inbox",
    "ipn prune": "ipn.inbox",
    "profile show": "profile",
    "profile set-secret": "profile",
    "sandbox": "sandbox",
}


def load_command(name: str) -> PlainCommand:
    """The command of this name, with its options and its whole help."""
    from payments_async._cli.command import made_command

    functions = import_module(f"payments_async._cli.commands.{COMMANDS[name]}")
    return made_command(name.rpartition(" ")[2], getattr(functions, _function(name)))


def about(name: str) -> str:
    """The first paragraph of its help, read in its file: a list of commands does not wait for what they import."""
    docstring = _source(COMMANDS[name]).partition(f"async def {_function(name)}(")[2].split('"""', 2)[1]
    return cleandoc(docstring.partition("\n\n")[0])


@cache
def _source(module: str) -> str:
    return (Path(__file__).parent / "commands" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")


def _function(name: str) -> str:
    return name.replace(" ", "_").replace("-", "_")


class _Named(PlainCommand):
    """A command that is imported when it is named."""

    def __init__(self, name: str) -> None:
        super().__init__(name.rpartition(" ")[2], help=about(name))
        self._whole_name = name

    def make_context(self, *given: Any, **more: Any) -> Any:
        return load_command(self._whole_name).make_context(*given, **more)


class _Commands(PlainGroup):
    """The commands of a group, or of none."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        own = [_Named(name) for name in COMMANDS if name.rpartition(" ")[0] == (self.name or "")]
        self.commands = {**{str(one.name): one for one in own}, **self.commands}


app = typer.Typer(
    cls=_Commands,
    context_settings=dict(HELP_OPTIONS),
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with locals would show secrets and people
    pretty_exceptions_show_locals=False,
)
_GROUPS: Mapping[str, typer.Typer] = {
    "bulk": typer.Typer(
        cls=_Commands,
        help="Batches of payouts from a file: planned, approved, run, reconciled, reported. Never paid twice, never "
        "lost.",
        epilog=BULK_EXIT_CODES,
        no_args_is_help=True,
    ),
    "outbox": typer.Typer(
        cls=_Commands,
        help="Single orders of applications, and batches beside them: a worker sends each once.",
        epilog=OUTBOX_EXIT_CODES,
        no_args_is_help=True,
    ),
    "fleet": typer.Typer(
        cls=_Commands,
        help="Many machines on one PostgreSQL journal: workers, batches for them, and what is done by the clock.",
        epilog=OUTBOX_EXIT_CODES,
        no_args_is_help=True,
    ),
    "journal": typer.Typer(
        cls=_Commands,
        help="What is on disk: checked, brought up to date, moved; old orders moved into an archive.",
        no_args_is_help=True,
    ),
    "profile": typer.Typer(
        cls=_Commands, help="Settings under a name, and their secrets in the keyring.", no_args_is_help=True
    ),
    "ipn": typer.Typer(
        cls=_Commands, help="Notifications: hear them, send one to try a receiver out.", no_args_is_help=True
    ),
}
for _name, _group in _GROUPS.items():
    app.add_typer(_group, name=_name)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        print(f"payments-async {__version__}")
        raise typer.Exit


@app.callback()
def payments_async(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Payouts and collections that are never made twice, never lost, and always accounted for."""

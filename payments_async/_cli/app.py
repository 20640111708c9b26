"""The program `payments-async`: all of its commands, by name. A new one is a file in `commands` and a line here.

A command is imported when it is named: whoever asks what there is, or for one of them, does not wait for all.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

from payments_async import __version__
from payments_async._cli.exit_codes import BULK_EXIT_CODES, EXIT_CODES, OUTBOX_EXIT_CODES
from payments_async._cli.help import HELP_OPTIONS, PlainCommand, PlainGroup

# The file in `commands` that each is in, and the first paragraph of its help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": (
        "demo",
        "Pay a batch on a simulated service that loses answers, and prove that nothing was paid twice or lost.",
    ),
    "doctor": (
        "doctor",
        "Check settings, address, TLS, clock, login and account, and say what to do about what is wrong.",
    ),
    "account": ("account", "Show the account and its balance."),
    "products": ("products", "List the products, or show one with its items."),
    "validate": ("validate", "Ask the service whether it would take an order. Sends no order; status 3 is a no."),
    "transactions": (
        "transactions",
        "List transactions, or find those of one order. A list usually carries no status: filter by one.",
    ),
    "pay": ("pay", "Send one payout. Shows it and asks before sending; --yes does not ask."),
    "collect": (
        "collect",
        "Request one collection from a mobile money wallet. Shows it and asks before sending; --yes does not ask.",
    ),
    "bulk plan": (
        "bulk.plan",
        "Show what a file would do: sums, problems, duplicates, balance, and a digest to approve. Sends nothing.",
    ),
    "bulk approve": (
        "bulk.approvals",
        "Approve exactly the payments that a digest stands for, as somebody other than who proposed them.",
    ),
    "bulk approvals": (
        "bulk.approvals",
        "Show what was proposed and who approved it; or have every batch of this journal approved from now on.",
    ),
    "bulk run": (
        "bulk.run",
        "Send a file, or go on with it. Every order is written down before and after; none is ever sent twice.",
    ),
    "bulk status": (
        "bulk.status",
        "Show how a batch stands, and the orders that need a person; without --batch-id, all batches of the journal.",
    ),
    "bulk watch": (
        "bulk.watch",
        "Show a journal on a page of this machine: batches, a plot, what needs a person. It changes nothing.",
    ),
    "bulk report": (
        "bulk.report",
        "Write what became of every order: a CSV table, and one HTML page to print and to file.",
    ),
    "bulk retry-file": (
        "bulk.papers",
        "Write a batch file of those that surely were not paid: rejected, or failed. Sends nothing.",
    ),
    "bulk receipt": (
        "bulk.papers",
        "Write the proof that one order was paid: one page, to print, to sign and to file.",
    ),
    "bulk export": ("bulk.papers", "Write what was paid as lines of debit and credit, for accounting."),
    "bulk reconcile": (
        "bulk.reconcile",
        "Settle what is open by what the service shows. Sends nothing; what it cannot find is parked for a person.",
    ),
    "bulk write-off": (
        "bulk.decisions",
        "State that a parked order, or several, never reached the service. The next run sends them again.",
    ),
    "bulk listing-deadline": (
        "bulk.decisions",
        "State that the service lists in time what it carried out. What is not listed then is sent again by itself.",
    ),
    "bulk acknowledge": (
        "bulk.decisions",
        "State that you have seen the contradiction about an order, or several. It counts no more; the story keeps it.",
    ),
    "bulk lift-quarantine": (
        "bulk.decisions",
        "State that the orders of a batch were looked up after its journal was copied or restored. It may go on then.",
    ),
    "outbox run": (
        "outbox.run",
        "Work an outbox: send each of its orders once, and settle it, until Ctrl-C or SIGTERM.",
    ),
    "outbox put": (
        "outbox.put",
        "Put a file into an outbox: whoever works it sends each order once. The same again adds nothing.",
    ),
    "outbox status": (
        "outbox.status",
        "Show how an outbox stands: its orders, who paused it and why, since when what waits, and what needs a person.",
    ),
    "outbox pause": (
        "outbox.decisions",
        "Let nothing more be sent from an outbox, by any process, until somebody resumes it. Orders are taken as ever.",
    ),
    "outbox resume": (
        "outbox.decisions",
        "Let an outbox send again, as a named person: also after a rule such as --max-per-day has paused it.",
    ),
    "outbox drop": (
        "outbox.decisions",
        "Forget an order of an application's own transaction that could not be taken: it is never sent.",
    ),
    "outbox replay": (
        "outbox.decisions",
        "Have handlers that failed too often hear of a change again, or of all of them: the application handles them.",
    ),
    "outbox forget": (
        "outbox.decisions",
        "Let changes go that wait for handlers of a state, where no application has such a handler any more.",
    ),
    "fleet worker": (
        "fleet.worker",
        "Work an outbox on one of many machines: PGQueuer hands out the chunks of batches, in the journal's database.",
    ),
    "fleet submit": (
        "fleet.submit",
        "Put a file into an outbox, and wake the workers of the fleet. The same again adds nothing.",
    ),
    "fleet status": (
        "fleet.status",
        "Show the jobs of the fleet, what is due when, and how the outbox stands.",
    ),
    "fleet schedule": (
        "fleet.schedule",
        "Reconcile, report and prune by the clock, once for all machines, until Ctrl-C or SIGTERM.",
    ),
    "explain": (
        "explain",
        "Tell the whole story of one order: planned, sent, answered, notified, looked up, and which rule decided.",
    ),
    "journal prune": (
        "journal",
        "Move orders that ended long ago into an archive, so that the journal stays small. None of them is sent again.",
    ),
    "journal migrate": (
        "journal",
        "Bring a journal up to date with this version, or make its tables. Others of the version before go on with it.",
    ),
    "journal check": (
        "journal",
        "Prove that a journal is whole and agrees with itself, and look at what it relies on. Changes nothing.",
    ),
    "journal copy": (
        "journal",
        "Move a journal to another place, such as from a file into PostgreSQL, with all that it knows.",
    ),
    "journal unseal": (
        "journal",
        "Let a journal that was moved go on in its old place, since the new one is lost for ever. It is no way back.",
    ),
    "ipn serve": (
        "ipn.serve",
        "Hear notifications and show each on a line, until stopped. With --json each line is a document.",
    ),
    "ipn send": (
        "ipn.send",
        "Send a made-up notification to a receiver, to try it out. It says nothing to the service.",
    ),
    "ipn list": ("ipn.inbox", "Tell what an inbox has waiting, and list what is wrong in it."),
    "ipn replay": (
        "ipn.inbox",
        "Make a dead letter, or all of them, wait again: the receiver on this journal handles them.",
    ),
    "ipn prune": (
        "ipn.inbox",
        "Forget old notifications that nothing needs any more, so that the journal does not grow for ever.",
    ),
    "profile show": (
        "profile",
        "Show the profiles, their settings and which of their secrets the keyring holds; or how to begin with one.",
    ),
    "profile set-secret": (
        "profile",
        "Keep a secret of a profile in the keyring of this machine. It is typed unseen, or read from a pipe.",
    ),
    "sandbox": (
        "sandbox",
        "Run the simulated service until stopped, with its control interface at /_sandbox/. Its money is made up.",
    ),
}

app = typer.Typer(
    cls=PlainGroup,
    context_settings=dict(HELP_OPTIONS),
    help="Payouts and collections that are never made twice, never lost, and always accounted for.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with locals would show secrets and people
    pretty_exceptions_show_locals=False,
)
_GROUPS: Mapping[str, typer.Typer] = {
    "bulk": typer.Typer(
        cls=PlainGroup,
        help="Batches of payouts from a file: planned, approved, run, reconciled, reported. Never paid twice, never "
        "lost.",
        epilog=BULK_EXIT_CODES,
        no_args_is_help=True,
    ),
    "outbox": typer.Typer(
        cls=PlainGroup,
        help="Single orders of applications, and batches beside them: each sent once, by whoever works the outbox.",
        epilog=OUTBOX_EXIT_CODES,
        no_args_is_help=True,
    ),
    "fleet": typer.Typer(
        cls=PlainGroup,
        help="Many machines on one PostgreSQL journal: workers, batches for them, and what is done by the clock.",
        epilog=OUTBOX_EXIT_CODES,
        no_args_is_help=True,
    ),
    "journal": typer.Typer(
        cls=PlainGroup,
        help="What is on disk: checked, brought up to date, moved; old orders moved into an archive.",
        no_args_is_help=True,
    ),
    "profile": typer.Typer(
        cls=PlainGroup, help="Settings under a name, and their secrets in the keyring.", no_args_is_help=True
    ),
    "ipn": typer.Typer(
        cls=PlainGroup, help="Notifications: hear them, send one to try a receiver out.", no_args_is_help=True
    ),
}


def load_command(name: str) -> PlainCommand:
    """The command of this name, with its options and its whole help."""
    from payments_async._cli.command import made_command

    file, _ = COMMANDS[name]
    functions = import_module(f"payments_async._cli.commands.{file}")
    return made_command(name.rpartition(" ")[2], getattr(functions, name.replace(" ", "_").replace("-", "_")))


def _add_command(name: str, about: str) -> None:
    """Add a command of which nothing but this is known before it is named."""

    class Named(PlainCommand):
        def make_context(self, *given: Any, **more: Any) -> Any:
            return load_command(name).make_context(*given, **more)

    group, _, own_name = name.rpartition(" ")
    _GROUPS.get(group, app).command(own_name, help=about, cls=Named)(lambda: None)


for _name, _group in _GROUPS.items():
    app.add_typer(_group, name=_name)
for _name, (_, _about) in COMMANDS.items():
    _add_command(_name, _about)


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

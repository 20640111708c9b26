"""How the help of a command shows its options: a flag as a flag, and what goes with the others in plain words."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from typer.core import TyperCommand, TyperGroup

HELP_OPTIONS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}
_WORDS: Mapping[type, str] = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "FILE", datetime: "DATE"}


# What few need: shown by --help-all. An option that a command cannot do without is shown in any case.
_RARE_NAMES = """
    adopt app_key authorization base_url ca_file compare compare_change concurrency currency debug delimiter encoding
    forget log max_each max_error_rate max_total max_unknown min_balance needs_approval notify password_file profile
    proxy rate second_journal show_personal stop_at_total user_id validate without_looking
"""
_RARE = frozenset(_RARE_NAMES.split())
_OF_FILES = frozenset(["kind", "item", "guess_items", "mapped", "sheet", "derive_request_ids"])
_OF_PEOPLE = frozenset(["phone", "email", "batch_id", "from_account", "to_account", "message", "metadata"])
# ... and of one command, so that a help shows twelve options at most.
_RARE_IN: Mapping[str, frozenset[str]] = {
    "plan": frozenset(["item", "skip_bad", "everything", "new_journal", "problems", "request"]),
    "run": _OF_FILES | {"path_token", "sender", "trusted_proxy", "needs_approval"},
    "approve": _OF_FILES | {"skip_bad", "acknowledge"},
    "put": _OF_FILES | {"name"},
    "submit": _OF_FILES | {"name"},
    "pay": _OF_PEOPLE | {"internet", "utility", "area", "product", "new_journal", "airtime"},
    "collect": _OF_PEOPLE | {"new_journal"},
    "sandbox": frozenset(["idle", "ipn_attempts"]),
}
# The groups in which a help shows them; what is in none comes first.
_PANELS: Mapping[str, str] = {
    name: panel
    for panel, names in {
        "What is paid": "kind item guess_items mapped sheet currency encoding delimiter derive_request_ids "
        "forget compare compare_change validate",
        "Safety": "approved skip_bad acknowledge yes maker new_journal second_journal adopt needs_approval max_each "
        "max_total max_unknown max_error_rate stop_at_total min_balance without_looking rate concurrency",
        "Output": "as_json show_personal debug log csv html xlsx overwrite notify approval_sheet problems everything",
    }.items()
    for name in names.split()
}
_ALL = "payments_async.help_all"


class PlainCommand(TyperCommand):
    """A command whose flags are shown as flags, and whose values are named in plain words."""

    def get_params(self, ctx: Any) -> Any:
        """Its options and arguments, and those that ask for help."""
        parameters = _with_plain_flags(super().get_params(ctx))
        rare = [one for one in parameters if _is_rare(one, parameters, self.name or "")]
        for one in parameters:
            if one.param_type_name == "option" and one.name in _PANELS and one.rich_help_panel is None:
                one.rich_help_panel = _PANELS[one.name]
        for one in rare:
            one.hidden = not (ctx.meta.get(_ALL) or ctx.resilient_parsing)
        for one in parameters if rare else ():
            if "--help" in one.opts and not ctx.meta.get(_ALL):
                one.help = f"Show this message; --help-all shows {len(rare)} options more."
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Take what was typed; ``--help-all`` is ``--help`` that leaves nothing out."""
        ctx.meta[_ALL] = "--help-all" in args
        return super().parse_args(ctx, ["--help" if one == "--help-all" else one for one in args])

    def name_values(self, kinds: Mapping[str, Any]) -> None:
        """Say what goes with each option and argument, by its type; where there is a choice, typer names it."""
        parameters: Any = self.params
        for one in parameters:
            word = next((_WORDS[kind] for kind in _within(kinds[one.name]) if kind in _WORDS), None)
            is_argument = one.param_type_name == "argument"
            if is_argument and word is not None:
                one.display_type_rich = _nothing  # newer versions of typer write "<str>" beside it
            if one.metavar is None and word is not None:
                one.metavar = one.name.upper() if is_argument else word


class PlainGroup(TyperGroup):
    """A group of commands whose flags are shown as flags."""

    def get_params(self, ctx: Any) -> Any:
        """Its options, and the one that asks for help."""
        parameters = super().get_params(ctx)
        for one in parameters:
            if getattr(one, "is_flag", False) and one.default is None:
                one.default = False  # typer reads None by means of pydantic, whose import is a fifth of a help
        return _with_plain_flags(parameters)


def _is_rare(one: Any, parameters: Any, command: str) -> bool:
    is_rare = one.name in _RARE or one.name in _RARE_IN.get(command, ())
    goes_with_rare = one.name in ("who", "why") and any(other.name == "adopt" for other in parameters)
    return not one.required and one.param_type_name == "option" and (is_rare or goes_with_rare)


def _with_plain_flags(parameters: Any) -> Any:
    for one in parameters:
        if getattr(one, "is_flag", False) and one.metavar is None:
            one.metavar = ""  # newer versions of typer write "<bool>"
    return parameters


def _nothing(ctx: object) -> None:
    """What stands beside the name of an argument."""


def _within(kind: Any) -> Iterator[Any]:
    """A type, and those that it is made of."""
    yield kind
    for one in get_args(kind):
        yield from _within(one)

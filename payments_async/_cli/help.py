"""How the help of a command shows its options: a flag as a flag, and what goes with the others in plain words."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from typer.core import TyperCommand, TyperGroup

HELP_OPTIONS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}
_WORDS: Mapping[type, str] = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "FILE", datetime: "DATE"}


class PlainCommand(TyperCommand):
    """A command whose flags are shown as flags, and whose values are named in plain words."""

    def get_params(self, ctx: Any) -> Any:
        """Its options and arguments, and the one that asks for help."""
        return _with_plain_flags(super().get_params(ctx))

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
        return _with_plain_flags(super().get_params(ctx))


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

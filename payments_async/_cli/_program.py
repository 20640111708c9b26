"""How this program was called, so that the commands it prints can be typed as they stand. Runs none of them."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from payments_async._cli._bulk_file import command_line

__all__ = ["typed"]

_NAME = "payments-async"


def typed(command: str, *arguments: str, **options: object) -> str:
    """A command of this program, without the options that say nothing, as it can be typed here."""
    return command_line(command, *arguments, **options).replace(_NAME, _called(), 1)


def _called() -> str:
    """The program's name, or its path where the name alone would not be found."""
    script = Path(sys.argv[0])
    if script.parts[-2:] == ("payments_async", "__main__.py"):
        return f"{_shortest(sys.executable, Path(sys.executable).name)} -m payments_async"
    return _shortest(sys.argv[0], _NAME) if script.stem == _NAME else _NAME


def _shortest(path: str, name: str) -> str:
    found = shutil.which(name)
    return name if found is not None and Path(found).absolute() == Path(path).absolute() else shlex.quote(path)

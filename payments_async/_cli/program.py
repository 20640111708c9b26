"""How this program was called, so that the commands it prints can be typed as they stand."""

import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

_NAME = "payments-async"


def command_line(command: str, *arguments: str, **options: object) -> str:
    """A command of this program, without the options that say nothing, as it can be typed here."""
    return f"{_called()} {shlex.join([*command.split(), *arguments, *flags(options)])}"


def flags(options: Mapping[str, object]) -> list[str]:
    """Options as they are typed, without those that say nothing."""
    flags = []
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        for one in values:
            if one is not None and one is not False:
                flags.append(f"--{name.replace('_', '-')}")
                flags += [] if one is True else [str(one)]
    return flags


def _called() -> str:
    """The program's name, or its path where the name alone would not be found."""
    script = Path(sys.argv[0])
    if script.parts[-2:] == ("payments_async", "__main__.py"):
        return f"{_shortest(sys.executable, Path(sys.executable).name)} -m payments_async"
    return _shortest(sys.argv[0], _NAME) if script.stem == _NAME else _NAME


def _shortest(path: str, name: str) -> str:
    found = shutil.which(name)
    return name if found is not None and Path(found).absolute() == Path(path).absolute() else shlex.quote(path)

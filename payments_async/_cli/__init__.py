"""The command line `payments-async`. Uses public names only; environment, printing and exit codes live here alone."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

_NEEDED = ("typer", "rich", "phonenumbers")


def main() -> None:
    """Run the command line with the arguments of this process."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        print(
            f"payments-async: the command line needs {', '.join(missing)}; "
            "install the extra 'cli': pip install 'payments-async[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2)
    from payments_async._cli._app import app

    app(prog_name="payments-async")

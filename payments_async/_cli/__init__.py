"""The command line `payments-async`, and the only room that reads the environment, prints and exits."""

import gc
import os
import signal
import sys
from typing import NoReturn

__all__ = ["COLLECT_AFTER", "main"]

# New objects after which Python looks for garbage in reference cycles. Its own 700 are made and gone with every commit
# of a batch: looking that often would take a tenth of the processor time.
COLLECT_AFTER = 20_000

_NEEDED = ("typer", "rich", "phonenumbers")
_ERRORS = 2  # the number of the last standard file
_STOPPED = 5  # as `exit_codes` has it, which is not imported yet


def main() -> None:
    """Run the command line with the arguments of this process."""
    signal.signal(signal.SIGINT, _stopped)  # no traceback, whatever is being imported: nothing was begun
    _fill_standard_files()
    from payments_async._cli.shortage import raise_limit_of_files, remedy_of_shortage, words_of_shortage
    from payments_async._cli.standard_output import outlive_full_disks, status_of

    outlive_full_disks()
    if (words := raise_limit_of_files()) is not None:
        _end(words)
    _check_arguments()
    from importlib.util import find_spec

    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        print(
            f"payments-async: the command line needs {', '.join(missing)}; "
            "install the extra 'cli': pip install 'payments-async[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2)
    try:
        from payments_async._cli.app import app

        gc.freeze()  # what was imported stays: it need not be looked at again
        gc.set_threshold(COLLECT_AFTER)
        app(prog_name="payments-async")
    except SystemExit as end:
        raise SystemExit(status_of(end.code)) from None
    except Exception as error:  # before a command runs, which tells of its own errors: while it is imported
        if (remedy := remedy_of_shortage(error)) is None:
            raise
        _end(f"stopped: {words_of_shortage(error)}\n  {remedy}")


def _end(words: str) -> NoReturn:
    print(f"payments-async: {words}", file=sys.stderr)
    raise SystemExit(_STOPPED)


def _fill_standard_files() -> None:
    """Open what was closed of input, output and errors, as by ``>&-``: the next file would take its number.

    That may be the mark of a journal or a connection to the service, and whoever writes an error would write it there.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _ERRORS:
        pass
    os.close(number)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _check_arguments() -> None:
    """Refuse what is not text: no journal can keep it, and nothing that says it can be printed."""
    for number, argument in enumerate(sys.argv[1:], 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            print(
                f"payments-async: argument {number} is not UTF-8; write it in UTF-8 (rename the file, if it is one)",
                file=sys.stderr,
            )
            raise SystemExit(2) from None


def _stopped(*_: object) -> None:
    """End at once: before a command begins there is nothing to finish, and nothing that could be said of it."""
    os.write(2, b"payments-async: stopped\n")
    os._exit(_STOPPED)

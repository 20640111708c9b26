"""Standard output that may fail, as on a full disk: the rest of it goes to standard error, and the status tells."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, cast

from payments_async._cli.exit_codes import Exit

_OUT, _ERRORS = 1, 2  # numbers of the standard files


class _Output(io.FileIO):
    """The bytes of standard output; what cannot be written there is written to standard error.

    Attributes:
        error: Why it could not be written; ``None`` as long as it can.
        tells_always: Whether a reader that has gone, as `head` does, is such an error too. Otherwise it ends the
            command, of which nothing that was done is lost.
    """

    def __init__(self) -> None:
        super().__init__(_OUT, "w", closefd=False)
        self.error: OSError | None = None
        self.tells_always = False

    def write(self, data: Any, /) -> int:
        """Write to standard output, or once that has failed to standard error; to nowhere where both have."""
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            if isinstance(error, BrokenPipeError) and not self.tells_always:
                raise
            if self.error is not None:
                os.dup2(os.open(os.devnull, os.O_WRONLY), _OUT)
                return memoryview(data).nbytes
            self.error = error
            os.dup2(_ERRORS, _OUT)
            words = f"payments-async: standard output cannot be written ({error.strerror}); the rest of it follows here"
            self.write(f"{words}\n".encode())
            return self.write(data)


class _Errors(io.FileIO):
    """The bytes of standard error; what cannot be written there is lost, and the command goes on."""

    def __init__(self) -> None:
        super().__init__(_ERRORS, "w", closefd=False)

    def write(self, data: Any, /) -> int:
        """Write it, if that can be done."""
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError:
            return memoryview(data).nbytes


_output: _Output | None = None


def outlive_full_disks() -> None:
    """Let this process go on where standard output or standard error cannot be written."""
    global _output  # noqa: PLW0603 - a process has one standard output
    if os.name == "nt":  # a console there takes no bytes
        return
    _output = _Output()
    sys.stdout = _text(cast(io.TextIOWrapper, sys.stdout), _output)
    sys.stderr = _text(cast(io.TextIOWrapper, sys.stderr), _Errors())


def _text(before: io.TextIOWrapper, raw: io.RawIOBase) -> io.TextIOWrapper:
    """Text over these bytes, unbuffered where it was, as by ``python -u``."""
    return io.TextIOWrapper(
        cast(io.BufferedWriter, raw) if before.write_through else io.BufferedWriter(raw),
        before.encoding,
        "backslashreplace" if before.errors == "strict" else before.errors,  # what it cannot spell ends no command
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def tell_always() -> None:
    """From now on money may move: tell the end of it on standard error, if the reader of standard output has gone."""
    if _output is not None:
        _output.tells_always = True


def status_of(status: object) -> object:
    """The exit status of a command that ends with this one, once all of its output is written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _OUT)  # or Python complains again at its end
    return Exit.UNTOLD if _output is not None and _output.error is not None and not status else status

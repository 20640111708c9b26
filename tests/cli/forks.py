"""Commands on terminals, forked from one process that has imported all of them: that costs more than most commands do.

As a program it forks a child for each request, and tells how each has ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

_LOOK = 0.01  # seconds between two looks at the children
# What commands import when they need it.
_LATE = ("aiohttp.web", "phonenumbers", "platformdirs", "pydantic.json_schema", "pydantic.types", "rich.live")


class Forks:
    """A process that has imported all commands, for as long as this one lives."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        command = [sys.executable, __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), env=os.environ | {"PYTHONWARNINGS": "error"}, start_new_session=True
        )
        theirs.close()

    def begin(self, arguments: Sequence[str], environment: Mapping[str, str], terminal: int) -> int:
        """Run a command on a terminal, which is its controlling one.

        Returns:
            A file from which its exit status can be read once it has ended.
        """
        with tempfile.TemporaryFile() as request:
            request.write(json.dumps([Path.cwd().as_posix(), list(arguments), dict(environment)]).encode())
            request.flush()
            ended, tells = os.pipe()
            socket.send_fds(self._ours, [b"+"], [request.fileno(), terminal, tells])
            os.close(tells)
        return ended


@cache
def forks() -> Forks:
    """The one of this process."""
    return Forks()


def _requested(requests: socket.socket) -> tuple[str, list[str], dict[str, str]]:
    """Fork for each request; returns in the children alone, on their terminals."""
    children: dict[int, int] = {}
    while True:
        _tell_ended(children)
        if not select.select([requests], [], [], _LOOK if children else None)[0]:
            continue
        asked, files, _, _ = socket.recv_fds(requests, 1, 3)
        if not asked:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            sys.exit()
        request, terminal, tells = files
        pid = os.fork()
        if not pid:
            for file in (*children.values(), tells, requests.fileno()):
                os.close(file)
            os.login_tty(terminal)
            with os.fdopen(request, "rb") as file:
                file.seek(0)
                folder, arguments, environment = json.load(file)
            return folder, arguments, environment
        children[pid] = tells
        os.close(request)
        os.close(terminal)


def _tell_ended(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        tells = children.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(tells, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(tells)


def main() -> None:
    """Import all, then fork; a child goes on as the command."""
    from payments_async import _cli
    from payments_async._cli.app import COMMANDS, load_command

    for name in COMMANDS:
        load_command(name)
    for name in _LATE:
        importlib.import_module(name)
    gc.freeze()  # what was imported is shared by all children, and no collection of theirs touches it
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        folder, arguments, environment = _requested(requests)
        requests.detach()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [f"{Path(_cli.__file__).parent.parent}/__main__.py", *arguments]
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1, errors="backslashreplace", closefd=False)
    _cli.main()


if __name__ == "__main__":
    del sys.path[0]  # of this script: the package's tests are not the program's
    main()

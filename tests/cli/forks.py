"""Commands in processes of their own, forked from one that has imported all of them: that costs more than most do.

As a program it forks a child for each request, and tells how each has ended.
"""

from __future__ import annotations

import asyncio
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
from typing import Self

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

    def begin(self, arguments: Sequence[str], environment: Mapping[str, str], *files: int) -> int:
        """Run a command.

        Args:
            files: A terminal, which is its controlling one; or its standard input, output and error.

        Returns:
            A file that tells its process id at once, and its exit status once it has ended, on a line each.
        """
        with tempfile.TemporaryFile() as request:
            request.write(json.dumps([Path.cwd().as_posix(), list(arguments), dict(environment)]).encode())
            request.flush()
            told, tells = os.pipe()
            socket.send_fds(self._ours, [b"+"], [request.fileno(), tells, *files])
            os.close(tells)
        return told


@cache
def forks() -> Forks:
    """The one of this process."""
    return Forks()


class Started:
    """A command that runs, with the face of asyncio's subprocesses.

    Attributes:
        pid: Its number.
        returncode: Its exit status, once somebody has waited for it.
        stdout, stderr: What it says.
    """

    pid: int
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    def __init__(self) -> None:
        self.returncode: int | None = None
        self._ended = asyncio.Lock()
        self._pipes: list[asyncio.ReadTransport] = []

    @classmethod
    async def by(cls, arguments: Sequence[str], environment: Mapping[str, str], *, both: bool = False) -> Self:
        """Start one; with ``both`` its errors come with what it says."""
        self, nothing, (out, says), (err, errs) = cls(), os.open(os.devnull, os.O_RDONLY), os.pipe(), os.pipe()
        told = forks().begin(arguments, environment, nothing, says, says if both else errs)
        for file in (nothing, says, errs):
            os.close(file)
        self._told, self.stdout, self.stderr = [await self._reader(file) for file in (told, out, err)]
        self.pid = int(await self._told.readline())
        return self

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it is known to have ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its end; its exit status."""
        async with self._ended:
            if self.returncode is None:
                self.returncode = int(await self._told.readline())
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """Wait for its end; all that it said."""
        said = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        for pipe in self._pipes:
            pipe.close()
        await asyncio.sleep(0)  # in which they are closed
        return said[0], said[1]

    async def _reader(self, file: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        protocol, pipe = asyncio.StreamReaderProtocol(reader), os.fdopen(file, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        self._pipes.append(transport)
        return reader


def _requested(requests: socket.socket) -> tuple[str, list[str], dict[str, str]]:
    """Fork for each request; returns in the children alone, with their standard files."""
    children: dict[int, int] = {}
    while True:
        _tell_ended(children)
        if not select.select([requests], [], [], _LOOK if children else None)[0]:
            continue
        asked, given, _, _ = socket.recv_fds(requests, 1, 5)
        if not asked:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            sys.exit()
        request, tells, *files = given
        pid = os.fork()
        if not pid:
            for file in (*children.values(), tells, requests.fileno()):
                os.close(file)
            if len(files) == 1:
                os.login_tty(files[0])
            else:
                for place, file in enumerate(files):
                    os.dup2(file, place)
                    os.close(file)
            with os.fdopen(request, "rb") as asked_for:
                asked_for.seek(0)
                folder, arguments, environment = json.load(asked_for)
            return folder, arguments, environment
        children[pid] = tells
        os.write(tells, f"{pid}\n".encode())
        for file in (request, *files):
            os.close(file)


def _tell_ended(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        tells = children.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(tells, f"{os.waitstatus_to_exitcode(status)}\n".encode())
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
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)  # by lines on a terminal alone
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1, errors="backslashreplace", closefd=False)
    _cli.main()


if __name__ == "__main__":
    del sys.path[0]  # of this script: the package's tests are not the program's
    main()

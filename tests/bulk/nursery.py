"""Many short processes of one program, forked from one that has imported everything: an import costs more than a life.

Where the program can ``rehearse``, the one they are forked from does so: what is built at its first use, each would
build for itself otherwise, and that is half of a short life.

As a program it forks a child for each line of its standard input, and says what becomes of each. Judges nothing.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

_LOOK = 0.005  # seconds between two looks at the children


@attrs.define(eq=False)
class Child:
    """One process.

    Attributes:
        stopped: Set once it was seen to stand still.
        said: What it said of itself with ``say``.
        code: Its exit status; below zero the signal that killed it.
    """

    pid: asyncio.Future[int] = attrs.field(factory=lambda: asyncio.get_running_loop().create_future())
    stopped: asyncio.Event = attrs.field(factory=asyncio.Event)
    said: asyncio.Queue[str] = attrs.field(factory=asyncio.Queue)
    code: asyncio.Future[int] = attrs.field(factory=lambda: asyncio.get_running_loop().create_future())

    async def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it is dead."""
        if not self.code.done():
            os.kill(await asyncio.shield(self.pid), number)  # whoever is cancelled here cancels it for nobody else

    async def ended(self) -> int:
        """Wait for its end; its exit status."""
        return await asyncio.shield(self.code)


class Nursery:
    """Starts children that run ``begin`` of a module with what they are told. Use it with ``async with``."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._children: list[Child] = []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, self._module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self._listening = asyncio.ensure_future(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # it ends all that are left
        await self._process.wait()
        await self._listening

    def begin(self, **told: Any) -> Child:
        """Start a child."""
        assert self._process.stdin is not None
        if self._listening.done():
            raise RuntimeError("the nursery failed, and says above why")
        child = Child()
        self._children.append(child)
        self._process.stdin.write(json.dumps({"number": len(self._children) - 1} | told).encode() + b"\n")
        return child

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            number, what, value = line.decode().split(" ", 2)
            child = self._children[int(number)]
            match what:
                case "is":
                    child.pid.set_result(int(value))
                case "stopped":
                    child.stopped.set()
                case "said":
                    child.said.put_nowait(value.strip())
                case "ended":
                    child.code.set_result(int(value))
                case other:
                    raise RuntimeError(f"a child is {other}")
        if await self._process.wait():
            self._fail()

    def _fail(self) -> None:
        """Let nobody wait for children that are heard of no more."""
        for child in self._children:
            for awaited in (child.pid, child.code):
                if not awaited.done():
                    awaited.set_exception(RuntimeError("the nursery failed, and says above why"))


def say(number: int, words: str) -> None:
    """Tell whoever started this child something."""
    _write(number, "said", words)


def _write(number: int, what: str, value: object) -> None:
    os.write(1, f"{number} {what} {value}\n".encode())  # one write: lines of several processes do not mix


def _fork(module: Any, told: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        module.begin(**told)
        code = 0
    except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
        traceback.print_exc()
    finally:
        os._exit(code)


def _watch(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return
        if os.WIFSTOPPED(status):
            _write(children[pid], "stopped", pid)
        else:
            _write(children.pop(pid), "ended", os.waitstatus_to_exitcode(status))


def main() -> None:
    """Fork and tell, until nobody has a wish any more."""
    module = importlib.import_module(sys.argv[1])
    if hasattr(module, "rehearse"):
        module.rehearse()
    gc.freeze()  # what was imported is shared by all children, and no collection of theirs touches it
    children: dict[int, int] = {}
    waiting = b""
    while True:
        _watch(children)
        if not select.select([0], [], [], _LOOK)[0]:
            continue
        piece = os.read(0, 65536)
        if not piece:
            break
        *lines, waiting = (waiting + piece).split(b"\n")
        for line in lines:
            told = json.loads(line)
            pid = _fork(module, told)
            children[pid] = told["number"]
            _write(told["number"], "is", pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    while children:
        _watch(children)


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent.parent)]
    main()

"""Ctrl-C at any moment of a command, from its first import to its end, is a word and no traceback."""

import asyncio
import sys

import pytest
from cli.commands import NO_SERVICE, surroundings

from payments_async.sandbox import Sandbox

# What Python does that somebody who audits it hears of: imports, files, sockets, compiled code. The same in each run,
# so a moment among these is no matter of time. Told to itself once so many have passed; 0 for never.
INTERRUPTED = """
import os, signal, sys
at, arguments = int(sys.argv[1]), sys.argv[2:]
passed = 0
def heard(*_):
    global passed
    passed += 1
    if passed == at:
        os.kill(os.getpid(), signal.SIGINT)
from payments_async._cli import main
sys.argv[1:] = arguments
sys.addaudithook(heard)
try:
    main()
finally:
    if not at:
        print(passed)
"""


async def ended(sandbox: Sandbox, at: int, arguments: tuple[str, ...], **settings: str) -> tuple[int, str, str]:
    """The status of a command that is interrupted at a moment, and its words."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        INTERRUPTED,
        str(at),
        *arguments,
        env=surroundings(sandbox, settings),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "settings", "status", "least"),
    [
        pytest.param(("account",), {}, 0, 10, id="a-look"),
        pytest.param(("account",), {"PAYMENTS_BASE_URL": NO_SERVICE}, 3, 6, id="no-service"),
    ],
)
async def test_ctrl_c_at_many_moments(
    sandbox: Sandbox, arguments: tuple[str, ...], settings: dict[str, str], status: int, least: int
) -> None:
    """It says that it was stopped, with status 5, or had come to its end; it never shows where it was in the code."""
    undisturbed, out, _ = await ended(sandbox, 0, arguments, **settings)
    assert status == undisturbed
    moments = int(out.split()[-1])
    assert moments > least
    for at in range(1, moments, moments // least):
        found, _, err = await ended(sandbox, at, arguments, **settings)
        assert "Traceback" not in err, f"at moment {at} of {moments}: {err}"
        assert found in (5, status), f"at moment {at} of {moments}: {err}"
        assert ("stopped" in err) == (found == 5), f"at moment {at} of {moments}: {err}"

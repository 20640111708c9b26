"""The commands of the tutorial, in a shell, as its reader types them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from test_readme import DOCS, blocks

from payments_async.sandbox import Sandbox

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="the tutorial shows a shell's words"),
]


async def test_a_file_is_paid_by_the_commands_of_the_tutorial(tmp_path: Path) -> None:
    """Plan, run and status end well, and both rows are paid once."""
    tutorial = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    start, commands = [block.code for block in blocks(tutorial) if block.language == "text"]
    assert "payments-async sandbox\n" == start
    commands = commands.replace("--new-journal", "--new-journal --yes")  # at a terminal it asks
    async with Sandbox() as service:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shell = await asyncio.create_subprocess_exec(
            "sh",
            "-e",
            "-c",
            commands,
            cwd=tmp_path,
            env={**os.environ, **service.variables, "PATH": path},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await shell.communicate()
        assert (0, True) == (shell.returncode, b"november" in said), said.decode()
        assert [1, 1] == [service.executions(request_id) for request_id in ("nov-1", "nov-2")]

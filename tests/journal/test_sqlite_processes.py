"""Several processes on one file, and processes that are killed at every point between two steps."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from journal.factories import BATCH, loaded

from payments_async.journal import SqliteJournal

TESTS = Path(__file__).parent.parent
PLACES = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}

WORKER = """
import asyncio, sys
from pathlib import Path
from journal.factories import BATCH, transaction_id
from payments_async.journal import *
from payments_async.journal.contract import *

async def work(journal, chunk, held, world):
    last = None
    for order in held:
        permit = await journal.permit(chunk, order, after=last)
        if not isinstance(permit, Permit):
            return
        world.write(permit.request_id + "\\n")
        world.flush()
        last = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(permit.id))
    if last:
        await journal.record(last)

async def main():
    path, world, owner, lease = sys.argv[1:]
    async with SqliteJournal(path) as journal:
        with open(world, "a") as world:
            while (chunk := await journal.claim_chunk(BATCH, owner, lease=float(lease))) is not None:
                held = iter(chunk.orders)
                await asyncio.gather(*(work(journal, chunk, held, world) for _ in range(20)))
                await journal.release_chunk(chunk)

asyncio.run(main())
"""


def worker(path: Path, world: Path, name: str, lease: float = 30) -> subprocess.Popen[bytes]:
    """A process that sends what it can claim."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), str(world), name, str(lease)], env=os.environ | PLACES
    )


async def load(path: Path, count: int) -> None:
    """A batch on a new file."""
    async with SqliteJournal(path) as journal:
        await loaded(journal, count)


def lifetimes(*words: str) -> dict[str, dict[str, list[str] | None]]:
    """What is wrong after a process was killed at each point."""
    done = subprocess.run(
        [sys.executable, "-m", "journal.lifetimes", *words],
        env=os.environ | PLACES, capture_output=True, timeout=1800, check=True,
    )  # fmt: skip
    found: dict[str, dict[str, list[str] | None]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_without_rule_2_orders_are_sent_twice() -> None:
    """The control of the lives that are struck at each point: killed between a permit and its outcome, they notice."""
    found = lifetimes("control", "1", "permit.after_recorded")
    assert any("sent 2 times" in wrong for times in found.values() for wrong in times["1"] or [])


@pytest.mark.slow
def test_killed_and_stopped_workers_send_nothing_twice(tmp_path: Path) -> None:
    """What they left under way is unknown, at most as many as they had slots; the rest is sent by others."""
    path, world = tmp_path / "journal.db", tmp_path / "world"
    asyncio.run(load(path, 2000))
    first = [worker(path, world, "killed", 0.5), worker(path, world, "stopped", 0.5)]
    _until(lambda: world.exists() and len(world.read_text().split()) > 600)
    first[0].kill()
    first[1].send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    last = worker(path, world, "last", 30)
    with contextlib.suppress(subprocess.TimeoutExpired):
        last.wait(2)  # one that was stopped inside a commit holds the file: the others wait, and do not fail
    first[1].send_signal(signal.SIGCONT)
    assert [-signal.SIGKILL, 0, 0] == [process.wait(300) for process in (*first, last)]
    assert 0 == worker(path, world, "end").wait(300)
    sent = Counter(world.read_text().split())
    assert 1 == max(sent.values())
    counts = asyncio.run(_counts(path))
    assert 2000 == sum(counts.values())
    assert set(counts) <= {"accepted", "unknown"}
    assert counts.get("unknown", 0) <= 40
    assert 2000 - counts.get("unknown", 0) <= len(sent)


def _until(condition: object) -> None:
    deadline = time.monotonic() + 120
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def _counts(path: Path) -> dict[str, int]:
    async with SqliteJournal(path) as journal:
        await journal.check()
        return {state: count for state, count in (await journal.progress(BATCH)).counts.items() if count}

"""A receiver process with a SQLite inbox, killed under load: what was answered 200 is there, and is handled once."""

import asyncio
import itertools
import json
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from ipn.notifications import notification
from ipn.ports import free_port

if not hasattr(pytest.importorskip("payments_async.journal"), "SqliteJournal"):
    pytest.skip("there is no SQLite journal yet", allow_module_level=True)

PROGRAM = Path(__file__).parent / "receiver_process.py"
KILLS = 3


async def started(port: int, journal: Path, handled: Path) -> asyncio.subprocess.Process:
    """A receiver process that listens."""
    process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(port), str(journal), str(handled))
    async with asyncio.timeout(120):
        while True:
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                return process
            except OSError:
                assert process.returncode is None
                await asyncio.sleep(0.02)


async def send(port: int, numbers: "itertools.count[int]", answered: list[str]) -> None:
    """Send one notification after the other until the process is gone."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            name = f"t-{next(numbers)}"
            body = notification(name)
            writer.write(b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            answered.append(name)
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0]))
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


@pytest.mark.slow
async def test_no_answered_notification_is_lost_or_handled_twice(tmp_path: Path) -> None:
    """Killed three times under load; after the last start everything answered is handled, each event once."""
    port, journal, handled = free_port(), tmp_path / "journal.sqlite", tmp_path / "handled"
    numbers, answered = itertools.count(), list[str]()
    for _ in range(KILLS):
        process = await started(port, journal, handled)
        async with asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(send(port, numbers, answered))
            enough = len(answered) + 100
            while len(answered) < enough:  # noqa: ASYNC110 - the senders write into a list
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        await process.wait()
    process = await started(port, journal, handled)
    async with asyncio.timeout(120):
        while (await health(port))["pending"]:  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    lines = [line.split() for line in handled.read_text(encoding="ascii").splitlines()]
    sent = {f"t-{number}" for number in range(next(numbers))}
    assert len(answered) > KILLS
    assert set() == set(answered) - {transaction for _, transaction in lines}  # nothing that was answered is missing
    assert set() == {transaction for _, transaction in lines} - sent  # one that was stored may have gone unanswered
    assert {1} == set(Counter(transaction for _, transaction in lines).values())
    assert len(lines) == len({event_id for event_id, _ in lines})


async def health(port: int) -> dict[str, int]:
    """What the receiver says of its backlog."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /ipn/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    facts: dict[str, int] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return facts

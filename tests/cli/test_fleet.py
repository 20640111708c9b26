"""The commands of a fleet, as they are typed: workers, a file for them, how they stand, and what is due."""

import asyncio
import json
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from bulk.files import row, write_csv
from cli.commands import Ran, Run, started
from cli.forks import Started
from journal import postgres

from payments_async.journal import PostgresJournal
from payments_async.sandbox import Fault, Sandbox

ORDERS = 12
BATCH = ("--batch-id", "november")


@pytest.fixture
def dsn() -> str:
    """Of an empty database."""
    return postgres.new_database()


@pytest.fixture
def payroll(tmp_path: Path) -> str:
    """A file of payouts."""
    rows = [
        row(request_id=f"RUN-{number}", amount=f"{number}000", phone_number=f"+2567720000{number:02}")
        for number in range(1, ORDERS + 1)
    ]
    return str(write_csv(tmp_path / "payroll.csv", *rows))


class Working:
    """A command of the fleet at work, in a process of its own."""

    def __init__(self, process: Started, begins: str) -> None:
        self.process = process
        self.begins = begins

    async def ended(self, number: signal.Signals = signal.SIGTERM) -> Ran:
        """What it left behind, once it was asked to end."""
        self.process.send_signal(number)
        out, err = await asyncio.wait_for(self.process.communicate(), 120)
        assert self.process.returncode is not None
        return Ran(self.process.returncode, out.decode(), err.decode())


Begin = Callable[..., Awaitable[Working]]


@pytest.fixture
async def begin(sandbox: Sandbox, dsn: str) -> AsyncIterator[Begin]:
    """Begin a command, and wait until it works."""
    begun: list[Started] = []

    async def begin(*arguments: str) -> Working:
        process = await started(sandbox, "fleet", *arguments, "--journal", dsn)
        begun.append(process)
        assert process.stderr is not None
        async with asyncio.timeout(120):
            while b"Ctrl-C stops" not in (line := await process.stderr.readline()):
                assert line, "it ended without working"
        return Working(process, line.decode())

    yield begin
    for process in begun:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something to happen in another process."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_file_is_sent_by_two_workers(run: Run, begin: Begin, sandbox: Sandbox, dsn: str, payroll: str) -> None:
    """Each order once; SIGTERM ends them with 0, and status says that nothing is left to do."""
    heard = Path(payroll).with_name("heard")
    told_to = shlex.join(
        [sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())", str(heard)]
    )
    one = await begin("worker", "--new-journal", "--health", "0", "--notify", told_to)
    two = await begin("worker")
    ran = await run("fleet", "submit", payroll, *BATCH, "--journal", dsn, "--yes")
    assert (0, True) == (ran.status, f"{ORDERS} payouts put into the outbox outbox" in ran.said), ran.said
    assert "fleet worker" in ran.said
    await until(lambda: len(sandbox.ledger) == ORDERS)
    again = await run("fleet", "submit", payroll, *BATCH, "--journal", dsn, "--yes")
    assert (0, True) == (again.status, "all of it was put before" in again.said)
    found = re.search(r"(http://127\.0\.0\.1:\d+)/health", one.begins)
    assert found is not None
    async with aiohttp.ClientSession() as session, session.get(f"{found[1]}/metrics") as reply:
        told = await reply.text()
    assert (200, True) == (reply.status, f'payments_orders{{outbox="outbox",state="accepted"}} {ORDERS}' in told), told
    assert 'payments_changes{outbox="outbox",state="dead"} 0' in told
    assert 'payments_chunks_in_quarantine{outbox="outbox"} 0' in told
    assert [0, 0] == [(await worker.ended()).status for worker in (one, two)]
    end = json.loads(await asyncio.to_thread(heard.read_text))
    assert ("ended", "fleet worker", ORDERS) == (end["event"], end["command"], end["progress"]["orders"])
    assert (ORDERS, []) == (len(sandbox.ledger), sandbox.duplicates())
    shown = await run("fleet", "status", "--journal", dsn)
    assert (0, True) == (shown.status, f"{ORDERS} accepted" in shown.said or "accepted 12" in shown.said), shown.said
    assert "pgq --pg-dsn DSN --schema payments dashboard" in shown.said
    document = json.loads((await run("fleet", "status", "--journal", dsn, "--json")).out)
    assert (0, "refill outbox" in document["due"]) == (document["workers"], True)


@pytest.mark.slow
async def test_sigterm_gives_back_and_a_second_one_breaks_off(
    run: Run, begin: Begin, sandbox: Sandbox, dsn: str, payroll: str
) -> None:
    """The first finishes what is under way; of what the second breaks off is said that it may have arrived."""
    async with PostgresJournal(dsn):
        pass
    await run("fleet", "submit", payroll, *BATCH, "--journal", dsn, "--yes")
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=0.3)
    first = await begin("worker", "--concurrency", "2")
    await until(lambda: len(sandbox.ledger) >= 2)
    stopped = await first.ended()
    planned = re.search(r"holds (\d+) planned", stopped.said)
    assert (0, True) == (stopped.status, planned is not None and 0 < int(planned[1]) < ORDERS), stopped.said
    assert "unknown" not in stopped.said
    sandbox._service.faults.clear()
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=600)
    second = await begin("worker", "--concurrency", "2")
    await until(lambda: _is_under_way(dsn))
    second.process.send_signal(signal.SIGTERM)
    assert second.process.stderr is not None
    async with asyncio.timeout(60):
        while b"stopping" not in (line := await second.process.stderr.readline()):
            assert line
    broken = await second.ended()
    assert (5, True) == (broken.status, "broken off: what was under way may have arrived" in broken.said), broken.said


def _is_under_way(dsn: str) -> bool:
    import psycopg

    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT count(*) FROM payments.outbox WHERE state = 'sending'").fetchone()
    return found is not None and found[0] == 2


@pytest.mark.slow
async def test_what_is_due_is_done_by_the_clock(
    run: Run, begin: Begin, sandbox: Sandbox, dsn: str, payroll: str, tmp_path: Path
) -> None:
    """A report of each batch lies there."""
    async with PostgresJournal(dsn):
        pass
    await run("fleet", "submit", payroll, *BATCH, "--journal", dsn, "--yes")
    clock = await begin("schedule", "--report", "* * * * * *", "--reports", str(tmp_path))
    await until((tmp_path / "november-report.html").exists)
    ended = await clock.ended()
    assert (0, True) == (ended.status, "report: 1 report written" in ended.said), ended.said
    assert f"RUN-{ORDERS}" in (tmp_path / "november-report.csv").read_text(encoding="utf-8-sig")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("worker",), "--journal: name the DSN of the journal's database", id="no-journal"),
        pytest.param(("worker", "--journal", "j.sqlite", "--new-journal"), "a fleet shares a journal in", id="file"),
        pytest.param(("worker", "--journal", "j.sqlite"), "a fleet shares a journal in PostgreSQL", id="new-file"),
        pytest.param(("status", "--journal", "j.sqlite"), "a fleet shares a journal in PostgreSQL", id="status"),
        pytest.param(("schedule", "--journal", "j.sqlite"), "name at least one of --reconcile", id="nothing-due"),
        pytest.param(("schedule", "--report", "* * * * *"), "--reports: name the folder", id="no-folder"),
        pytest.param(
            ("schedule", "--prune", "0 3 * * *", "--archives", "."), "--who and --why: say who wants", id="nobody"
        ),
    ],
)
async def test_what_is_wrong_is_named(run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """The option, and the remedy."""
    ran = await run("fleet", *arguments)
    assert (2, True) == (ran.status, words in ran.said), ran.said


async def test_a_moment_that_cron_does_not_know_is_named(run: Run, dsn: str) -> None:
    """Before anything is waited for."""
    async with PostgresJournal(dsn):
        pass
    ran = await run("fleet", "schedule", "--journal", dsn, "--reconcile", "at noon")
    assert (2, True) == (ran.status, "--reconcile: at noon is nothing that cron knows; as in */30" in ran.said), (
        ran.said
    )


async def test_without_pgqueuer_it_says_what_to_install(run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that this program has an error."""
    monkeypatch.setitem(sys.modules, "payments_async.fleet", None)
    ran = await run("fleet", "status", "--journal", dsn)
    assert 2 == ran.status, ran.said

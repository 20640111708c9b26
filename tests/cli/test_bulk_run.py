"""`bulk run`: nothing leaves unless clean, approved and confirmed; stopped or killed, the same command goes on."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from bulk.files import row, write_csv
from cli.commands import Run, started, surroundings
from cli.forks import Started

from payments_async import PayoutOrder
from payments_async._cli.live_view import LiveView
from payments_async._cli.screen import Screen
from payments_async.bulk import RunProgress
from payments_async.journal import RunIdentity, SqliteJournal, State
from payments_async.journal.contract import Chunk
from payments_async.sandbox import Fault, Sandbox

SENT = ("--journal", "j.sqlite", "--batch-id", "november")
ORDERS = 60


@pytest.fixture
def payroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A clean file in a folder of our own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    rows = [
        row(request_id=f"RUN-{n}", amount=f"{n}000", phone_number=f"+2567720000{n:02}") for n in range(1, ORDERS + 1)
    ]
    return write_csv(tmp_path / "payroll.csv", *rows).name


def is_there(name: str) -> bool:
    """Whether there is such a file."""
    return Path(name).exists()


def change(name: str, old: str, new: str) -> None:
    """Edit a file."""
    path = Path(name)
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something to happen in another process."""
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.01)


async def test_a_run_sends_each_order_once_and_says_how_they_stand(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """With its rate and its sum; the second time there is nothing left to send."""
    digest = json.loads((await run("bulk", "plan", payroll, *SENT, "--json")).out)["digest"]
    ran = await run("bulk", "run", payroll, *SENT, "--plan", digest, "--yes", "--new-journal")
    assert (0, ORDERS) == (ran.status, len(sandbox.ledger))
    assert f"{ORDERS} of {ORDERS} done: accepted {ORDERS}, rejected 0, unknown 0, 1,830,000 UGX" in ran.said
    assert "payments-async bulk reconcile --journal j.sqlite --batch-id november" in ran.said
    again = json.loads((await run("bulk", "run", payroll, *SENT, "--plan", digest, "--json")).out)
    assert (0, 0, ORDERS) == (again["exit_status"], again["sent"], len(sandbox.ledger))
    assert [] == sandbox.duplicates()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "status", "executions"),
    [pytest.param("y\n", 0, ORDERS, id="yes"), pytest.param("n\n", 5, 0, id="no")],
)
async def test_a_terminal_is_asked(
    run_on_terminal: Run, sandbox: Sandbox, payroll: str, typed: str, status: int, executions: int
) -> None:
    """After the summary, with number and sum in the question; only a clear yes sends."""
    ran = await run_on_terminal("bulk", "run", payroll, *SENT, typed=f"y\n{typed}")
    assert (status, executions) == (ran.status, len(sandbox.ledger))
    assert f"Send {ORDERS} payouts, 1,830,000 UGX? [y/N]" in ran.out
    shown = re.sub(r"\x1b\[[0-9;]*m", "", ran.out.partition("To be sent")[2])
    assert re.search(r"sum +1,830,000 UGX", shown)
    assert f"The 10 largest of {ORDERS} payouts" in shown
    assert 10 == len(re.findall(r"\+256\d{9} +[A-Z]\w+ \w+", shown)), "the largest, in full"


@pytest.mark.slow
async def test_who_is_asked_may_have_it_masked(run_on_terminal: Run, payroll: str) -> None:
    """With --mask no name and no number is on the screen."""
    ran = await run_on_terminal("bulk", "run", payroll, *SENT, "--mask", typed="y\nn\n")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
    assert 10 == len(re.findall(r"\*\*\*\d{3} +\*\*\*", shown))
    assert not re.search(r"256\d{9}|Brightwater", shown)


@pytest.mark.slow
async def test_who_is_asked_may_see_everybody(run_on_terminal: Run, sandbox: Sandbox, payroll: str) -> None:
    """With --show-personal each payout stands there in full; a no sends none of them."""
    ran = await run_on_terminal("bulk", "run", payroll, *SENT, "--show-personal", typed="y\nn\n")
    shown = ran.out.partition("To be sent")[2]
    assert (5, 0) == (ran.status, len(sandbox.ledger))
    assert f"All of {ORDERS} payouts" in shown
    assert ORDERS == len(re.findall(r"\+?256\d{9}", shown))


async def test_a_journal_that_is_not_there_is_not_made_by_itself(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """A mistyped name would know of no earlier payment: `--yes` answers another question."""
    ran = await run("bulk", "run", payroll, *SENT, "--yes")
    assert (2, 0, False) == (ran.status, len(sandbox.ledger), is_there("j.sqlite"))
    assert "--new-journal: needed where there is no terminal to ask at; nothing was sent" in ran.said
    made = await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")
    assert (0, ORDERS) == (made.status, len(sandbox.ledger))
    assert "new journal j.sqlite: it knows no earlier payment" in made.said
    again = await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")
    assert (0, False) == (again.status, "new journal" in again.said)


@pytest.mark.slow
async def test_a_terminal_is_asked_whether_a_journal_may_be_made(
    run_on_terminal: Run, sandbox: Sandbox, payroll: str
) -> None:
    """Also with `--yes`; a no makes none."""
    ran = await run_on_terminal("bulk", "run", payroll, *SENT, "--yes", typed="n\n")
    assert (5, 0, False) == (ran.status, len(sandbox.ledger), is_there("j.sqlite"))
    said = ran.said
    assert "There is no journal j.sqlite yet, and a new one knows no earlier payment. Make it? [y/N]" in said
    assert "nothing was sent" in said


async def test_a_second_journal_for_one_batch_sends_nothing(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """A typo in the path, and `--new-journal` from the history of the shell: where the orders are is said."""
    assert 0 == (await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")).status
    typo = ("--journal", "i.sqlite", "--batch-id", "november", "--new-journal", "--yes")
    ran = await run("bulk", "run", payroll, *typo)
    assert (2, ORDERS) == (ran.status, len(sandbox.ledger))
    assert f"request id RUN-1 and {ORDERS - 1} more of these orders may have been sent already" in ran.said
    assert f"batch november ({ORDERS} orders, loaded " in ran.said
    assert "j.sqlite" in ran.said
    assert "--adopt --who NAME --why REASON" in ran.said
    for half in (("--adopt",), ("--adopt", "--who", "A. Clerk"), ("--who", "A. Clerk")):
        assert 2 == (await run("bulk", "run", payroll, *typo, *half)).status
    adopted = await run("bulk", "run", payroll, *typo, "--adopt", "--who", "A. Clerk", "--why", "the disk is broken")
    assert (5, ORDERS) == (adopted.status, len(sandbox.ledger)), adopted.said
    assert "in quarantine" in adopted.said
    assert [] == sandbox.duplicates()


async def test_a_journal_that_is_lost_is_not_begun_anew(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Whoever deleted it is told what was in it; looking at the batch shows no empty journal either."""
    assert 0 == (await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")).status
    await asyncio.to_thread(Path("j.sqlite").unlink)
    ran = await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")
    assert (2, ORDERS, False) == (ran.status, len(sandbox.ledger), is_there("j.sqlite"))
    assert f"a journal with batch november ({ORDERS} orders, loaded " in ran.said
    assert "--journal j.sqlite: a journal with batch" in ran.said
    assert "put the file back" in ran.said
    await asyncio.to_thread(Path("j.sqlite").touch)
    for command in ("status", "reconcile", "report"):
        assert 2 == (await run("bulk", command, *SENT)).status


async def test_a_machine_that_cannot_remember_says_so(run: Run, sandbox: Sandbox, payroll: str, tmp_path: Path) -> None:
    """The run goes on without: in a container the user's state folder may be read-only."""
    (tmp_path / "file").touch()
    ran = await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal", XDG_STATE_HOME=str(tmp_path / "file"))
    assert (0, ORDERS) == (ran.status, len(sandbox.ledger))
    assert "this machine keeps no memory of the journal outside of its own folder" in ran.said


@pytest.mark.slow
async def test_bad_rows_stop_everything_unless_they_are_left_out(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """One bad row: nothing is sent; with --skip-bad the others are, and the same command changes nothing more."""
    change(payroll, ",60000,", ",-60000,")
    ran = await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")
    assert (2, 0, False) == (ran.status, len(sandbox.ledger), is_there("j.sqlite"))
    assert "1 problem, first: row 61, amount" in ran.said
    assert "leave bad rows out with --skip-bad" in ran.said
    for _ in range(2):
        assert 0 == (await run("bulk", "run", payroll, *SENT, "--skip-bad", "--yes", "--new-journal")).status
    assert (ORDERS - 1, []) == (len(sandbox.ledger), sandbox.duplicates())


async def test_a_changed_file_is_not_what_was_approved(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Maker and checker: one changed amount, and the approved digest sends nothing."""
    digest = json.loads((await run("bulk", "plan", payroll, *SENT, "--json")).out)["digest"]
    change(payroll, ",7000,", ",7000000,")
    ran = await run("bulk", "run", payroll, *SENT, "--plan", digest, "--yes", "--new-journal")
    assert (2, 0) == (ran.status, len(sandbox.ledger))
    assert "not the payments that were approved" in ran.said


@pytest.mark.parametrize(
    ("fault", "status"), [pytest.param(Fault.REFUSED, 3, id="rejected"), pytest.param(Fault.HTML, 4, id="unknown")]
)
async def test_the_status_tells_the_worst(run: Run, sandbox: Sandbox, payroll: str, fault: Fault, status: int) -> None:
    """3 for a no of the service, 4 for an order nobody knows about; JSON is one document."""
    sandbox.script(fault, on="payout")
    document = json.loads((await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal", "--json")).out)
    assert status == document["exit_status"]
    assert ORDERS - 1 == document["progress"]["outcomes"]["accepted"]["orders"]


async def test_the_fuse_stops_a_run_and_the_same_command_goes_on(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Status 5 with the reason and the command; the service well again, that command ends the batch."""
    sandbox.script(Fault.HTML, on="payout", times=3)
    options = ("--yes", "--new-journal", "--concurrency", "1")
    ran = await run("bulk", "run", payroll, *SENT, *options, "--max-unknown", "1")
    assert 5 == ran.status
    assert "stopped: 2 orders are unknown, 1 may be" in ran.said
    line = "go on with: payments-async bulk run --journal j.sqlite --batch-id november --concurrency 1 --max-unknown 1"
    assert line in ran.said
    assert "reconcile first: payments-async bulk reconcile --journal j.sqlite --batch-id november; then go" in ran.said
    await sandbox.settle()
    again = await run("bulk", "run", "--journal", "j.sqlite", "--yes")  # the only one that is not through
    assert (True, []) == (again.status in (0, 4), sandbox.duplicates())
    assert ORDERS - 1 <= len(sandbox.ledger)


async def test_refused_credentials_stop_a_run(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """They fail no order."""
    ran = await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal", PAYMENTS_APP_PASSWORD="wrong-password")
    assert (5, 0) == (ran.status, len(sandbox.ledger))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_drains_and_the_same_command_goes_on(
    run: Run, sandbox: Sandbox, payroll: str, number: signal.Signals
) -> None:
    """What is under way is finished: no order is unknown, and the command that goes on is told."""
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=0.15)
    process = await started(sandbox, "bulk", "run", payroll, *SENT, "--yes", "--new-journal", "--concurrency", "4")
    await until(lambda: len(sandbox.ledger) >= 8)
    process.send_signal(number)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert 5 == process.returncode
    assert b"stopping: what is under way is finished first" in err
    _, _, told = err.partition(b"go on with: ")
    assert b" -m payments_async bulk run --journal j.sqlite --batch-id november " in told  # as it was called
    assert b"unknown" not in out.split(b"Outcome")[-1]
    assert len(sandbox.ledger) < ORDERS
    await sandbox_clear(sandbox)
    assert 0 == (await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")).status
    assert (ORDERS, []) == (len(sandbox.ledger), sandbox.duplicates())


@pytest.mark.slow
@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "nohup"])
async def test_a_terminal_that_is_closed_drains(run: Run, sandbox: Sandbox, payroll: str, is_heard: bool) -> None:
    """Also where the system and the shell both say so: nothing is broken off, and the same command goes on.

    Under ``nohup``, which has programs ignore it, nothing ends.
    """
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=0.15)
    command = (sys.executable, "-m", "payments_async", "bulk", "run", payroll, *SENT, "--yes", "--new-journal")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL if is_heard else signal.SIG_IGN)  # what a program begins with
    process = await asyncio.create_subprocess_exec(
        *command, "--concurrency", "4", env=surroundings(sandbox, {}), stdout=asyncio.subprocess.PIPE
    )
    signal.signal(signal.SIGHUP, before)
    await until(lambda: len(sandbox.ledger) >= 8)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    assert ((5, True) if is_heard else (0, False)) == (process.returncode, len(sandbox.ledger) < ORDERS)
    assert b"unknown" not in out.split(b"Outcome")[-1]
    await sandbox_clear(sandbox)
    assert 0 == (await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")).status
    assert (ORDERS, []) == (len(sandbox.ledger), sandbox.duplicates())


@pytest.mark.slow
async def test_a_second_signal_breaks_off_what_is_under_way(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """What may have left is unknown then, never sent again, and found by its evidence."""
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=600)
    process = await started(sandbox, "bulk", "run", payroll, *SENT, "--yes", "--new-journal", "--concurrency", "4")
    await until(lambda: len([one for one in sandbox.requests if "/payouts/" in one.path]) >= 4)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    async with asyncio.timeout(120):
        while b"stopping" not in await process.stderr.readline():
            pass
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert 5 == process.returncode
    assert b"stopped: it was broken off" in err
    assert "needs a person 4 " in " ".join(out.decode().split())


@pytest.fixture
async def held(run: Run, payroll: str) -> Chunk:
    """The batch is written down, nothing of it is sent, and another process holds all of it for a long while."""
    assert 5 == (await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal", "--stop-at-total", "0")).status
    async with SqliteJournal("j.sqlite") as journal:
        chunk = await journal.claim_chunk("november", "elsewhere:4711:dead", lease=900.0)
    assert chunk is not None
    return chunk


async def let_go(chunk: Chunk) -> None:
    """What the other process does before it ends."""
    async with SqliteJournal("j.sqlite") as journal:
        await journal.release_chunk(chunk)


async def all_it_says(process: Started, words: str, meanwhile: Callable[[], Awaitable[object]]) -> str:
    """What a command says; something happens as soon as it has said these words."""
    assert process.stdout is not None
    said = ""
    async with asyncio.timeout(120):
        while words not in " ".join(said.split()):
            line = await process.stdout.readline()
            assert line, f"it ended without these words: {said}"
            said += line.decode()
        await meanwhile()
        out, err = await process.communicate()
    return " ".join((said + (out + err).decode()).split())


@pytest.mark.slow
async def test_a_run_says_for_whom_it_waits(run: Run, sandbox: Sandbox, payroll: str, held: Chunk) -> None:
    """In a pipe: who holds the rest, and for how long."""
    process = await started(sandbox, "bulk", "run", payroll, *SENT, "--yes", "--new-journal")
    said = await all_it_says(process, "waiting for the lease of process 4711 on elsewhere, ", lambda: let_go(held))
    assert (0, ORDERS) == (process.returncode, len(sandbox.ledger))
    left = re.search(r"elsewhere, (\d+) s left: it works on the rest of the batch; if it died", said)
    assert left is not None
    assert 0 <= int(left[1]) <= 900
    assert said.index("waiting for") < said.index(f"{ORDERS} of {ORDERS} done")
    quiet = await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")
    assert "waiting" not in quiet.said


def test_a_wait_is_told_once_and_then_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """However often it is looked at; and again when it is waited anew."""
    waits = RunProgress(counts=dict.fromkeys(State, 0), sums=dict.fromkeys(State, Decimal(0)), waits_for="another")
    with LiveView(Screen(), ORDERS, "UGX") as view:
        for left in (25.0, 24.0, 20.1, 19.9, 19.0, 9.0, 0.0):
            view(attrs.evolve(waits, lease_left=left))
        view(attrs.evolve(waits, waits_for=None))
        view(attrs.evolve(waits, lease_left=9.5))
    told = re.findall(r"waiting for the lease of another, (\d+) s left", capsys.readouterr().out)
    assert ["25", "20", "9", "10"] == told


def seconds_told(shown: str) -> list[int]:
    """The seconds that a terminal showed, one after the other."""
    return [int(left) for left in re.findall(r"the lease of process 4711 on elsewhere, (\d+) s left", shown)]


@pytest.mark.slow
async def test_a_terminal_counts_the_seconds_down(
    run_on_terminal: Run, sandbox: Sandbox, payroll: str, held: Chunk
) -> None:
    """The line is drawn anew while it waits, and gone once it sends."""
    ran = await run_on_terminal(
        "bulk",
        "run",
        payroll,
        *SENT,
        "--yes",
        "--new-journal",
        when=lambda shown: len(set(seconds_told(shown))) > 1,
        meanwhile=lambda: asyncio.run(let_go(held)),
    )
    assert (0, ORDERS) == (ran.status, len(sandbox.ledger))
    told = seconds_told(ran.out)
    assert len(set(told)) > 1
    assert sorted(told, reverse=True) == told
    assert "waiting" not in ran.out.split(f"{ORDERS}/{ORDERS}")[-1]


@pytest.mark.slow
async def test_a_load_that_was_killed_is_waited_for_and_said(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Whoever wrote the orders down holds them too, until it gives no sign any more."""
    async with SqliteJournal("j.sqlite") as journal:
        who = RunIdentity.of(sandbox.base_url, app_key=sandbox.app_key, user_id=sandbox.user_id)
        await journal.open_run("november", who)

        def broken() -> Iterator[PayoutOrder]:
            yield from ()
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await journal.load("november", broken(), owner="elsewhere:4711:dead")

    async def half_a_minute_passes() -> None:
        with contextlib.closing(sqlite3.connect("j.sqlite")) as file, file:
            file.execute("UPDATE lease SET until = 0")

    process = await started(sandbox, "bulk", "run", payroll, *SENT, "--yes", "--new-journal")
    said = await all_it_says(process, "waiting for the lease of process 4711 on elsewhere, ", half_a_minute_passes)
    assert (0, ORDERS) == (process.returncode, len(sandbox.ledger))
    assert said.index("waiting for the lease of") < said.index(f"{ORDERS} of {ORDERS} done")


@pytest.mark.slow
async def test_a_killed_run_is_continued_by_the_same_command(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """A kill -9 in the middle: nothing is lost, nothing is paid twice."""
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=0.1)
    process = await started(sandbox, "bulk", "run", payroll, *SENT, "--yes", "--new-journal", "--concurrency", "4")
    await until(lambda: len(sandbox.ledger) >= 8)
    os.kill(process.pid, signal.SIGKILL)
    await process.communicate()
    await sandbox_clear(sandbox)
    again = await run("bulk", "run", payroll, *SENT, "--yes", "--new-journal")  # the system tells of the first's death
    assert "waiting for the lease of " not in again.said
    assert (True, []) == (again.status in (0, 4), sandbox.duplicates())
    await sandbox.settle()  # else an order may change its status between two lists, and has none by the rule
    found = await run("bulk", "reconcile", *SENT, "--interval", "0")
    standing = json.loads((await run("bulk", "status", *SENT, "--json")).out)["progress"]["outcomes"]
    paid, unknown = standing["successful"]["orders"], standing["unknown"]["orders"]
    assert (len(sandbox.ledger), ORDERS) == (paid, paid + unknown)
    assert (4 if unknown else 0) == found.status


async def sandbox_clear(sandbox: Sandbox) -> None:
    """Let the service be quick again, and done with what it has."""
    sandbox._service.faults.clear()
    await sandbox.settle()

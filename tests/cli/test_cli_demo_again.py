"""The demo, killed, stopped or bereft of its service, and run again: it goes on, or says why it cannot."""

import asyncio
import json
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cli.commands import Run, started
from cli.demos import Left, batch, killed
from ipn.ports import free_port

from payments_async._cli.demo.run import BATCH, DemoFolder, DemoState, held
from payments_async._cli.demo.service import DemoService
from payments_async._cli.faults import FaultLevel
from payments_async.bulk import RunSettings, read_batch, run_batch
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Fault, Sandbox

ORDERS = 40
MANY = 400  # where a signal has to come in the midst, and may come late
SLOWLY = ("--concurrency", "4")
TOKEN = "nobody-can-guess-this"


@pytest.fixture
async def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Left]:
    """The directory of a demo, in a folder of our own with a batch file. No service outlives the test."""
    monkeypatch.chdir(tmp_path)
    batch(tmp_path, ORDERS)
    left = Left(tmp_path / "payments-async-demo")
    yield left
    await asyncio.to_thread(left.end)


async def finished(left: Left, *arguments: str) -> tuple[dict[str, Any], list[str]]:
    """Run the demo to its end. Its document, and what the ledger held when it was last seen."""
    process = await started(None, "demo", "--json", *arguments)
    outcome, ledger = asyncio.create_task(process.communicate()), list[str]()
    while not outcome.done():
        ledger = await asyncio.to_thread(left.ledger) or ledger
        await asyncio.wait({outcome}, timeout=0.05)
    out, err = await outcome
    assert (0, b"") == (process.returncode, err)
    return json.loads(out), ledger


@pytest.mark.slow
async def test_killed_in_the_midst_of_sending_it_goes_on(left: Left) -> None:
    """After a kill -9 the same command ends in agreement, and the ledger has no order twice."""
    batch(Path(), MANY)
    command = ("--file", "batch.csv", "--faults", "some", *SLOWLY)
    status, _ = await killed(*command, when=lambda: left.is_served and len(left.ledger()) >= 20)
    before = Counter(left.ledger())
    told, ledger = await finished(left, *command)
    verdict = told["ledger"]
    assert (-signal.SIGKILL, {1}) == (status, set(Counter(ledger).values()))
    assert (True, True) == (before <= Counter(ledger), told["went_on"])
    assert (True, 0, 0) == (verdict["agrees"], verdict["paid_twice"], verdict["lost"])
    assert (MANY, len(ledger)) == (told["orders"], verdict["carried_out"])


@pytest.mark.slow
async def test_ctrl_c_drains_and_the_same_command_goes_on(left: Left) -> None:
    """What is under way is finished, so no order is unknown, and the command that goes on is told."""
    batch(Path(), MANY)
    command = ("--file", "batch.csv", "--faults", "none", "--concurrency", "1")
    status, said = await killed(*command, when=lambda: len(left.ledger()) >= 5, number=signal.SIGINT)
    assert (5, True) == (status, len(left.ledger()) < MANY)
    for words in (
        "stopping: what is under way is finished first",
        "stopped: it was asked to stop",
        "payments_async demo --file batch.csv --faults none --concurrency 1",
    ):
        assert words in said
    told, ledger = await finished(left, *command)
    assert (True, MANY, {1}) == (told["went_on"], len(ledger), set(Counter(ledger).values()))
    assert MANY == told["outcomes"]["successful"]["orders"]


@pytest.fixture
async def half(left: Left, sandbox: Sandbox) -> DemoFolder:
    """What a demo left that was killed after a few orders, one of them without an answer. Its service is here."""
    left.folder.mkdir()
    place, orders, port = DemoFolder(left.folder), await read_batch("batch.csv"), free_port()
    service = DemoService(
        base_url=sandbox.base_url,
        app_key=sandbox.app_key,
        app_password=sandbox.app_password,
        user_id=sandbox.user_id,
        ipn_url=f"http://127.0.0.1:{port}/ipn/{TOKEN}",
        pid=0,
    )
    sandbox.ipn_url = service.ipn_url
    sandbox.balance = 2 * sum((order.amount for order in orders.orders), Decimal(0))
    sandbox.script(Fault.LOST_AFTER, request_id="D-00002")
    sandbox.script(Fault.SLOW, request_id="D-00005", seconds=0.05)
    stop = asyncio.Event()
    async with SqliteJournal(place.journal) as journal, service.session(1) as payments:
        running = asyncio.create_task(
            run_batch(payments, journal, BATCH, orders.orders, settings=RunSettings(concurrency=1), stop=stop)
        )
        while len(sandbox.ledger) < 5:  # noqa: ASYNC110 - a ledger has no event to wait for
            await asyncio.sleep(0.001)
        stop.set()
        await running
    place.note(
        DemoState(
            file="batch.csv",
            digest=orders.digest,
            seed=7,
            faults=FaultLevel.MANY,
            began="2026-11-20 23:59:59",
            token=TOKEN,
            port=port,
            service=service,
        )
    )
    return place


SAME = ("demo", "--file", "batch.csv", "--seed", "7", "--faults", "many")


@pytest.mark.slow(covered=True)
async def test_what_is_unknown_is_looked_up_and_not_sent_again(run: Run, sandbox: Sandbox, half: DemoFolder) -> None:
    """It says with which run it goes on, and how that stood. Notifications come to the address they came to before."""
    ran = await run(*SAME)
    assert 0 == ran.status
    assert "Going on with the unfinished run of 2026-11-20 23:59:59: 35 planned, 4 accepted, 1 unknown" in ran.said
    assert "0 paid twice, 0 lost. 40 were carried out, each once; 0 not at all" in ran.said
    assert (ORDERS, []) == (len(sandbox.ledger), sandbox.duplicates())
    assert all(execution.answered for execution in sandbox.ledger)


@pytest.mark.slow
async def test_a_token_that_is_revoked_again_and_again_does_not_end_it(
    run: Run, sandbox: Sandbox, half: DemoFolder
) -> None:
    """It looks like refused credentials for a while."""
    sandbox.script(Fault.TOKEN_REVOKED, times=3, on="payout", request_id="D-00020")
    ran = await run(*SAME, "--concurrency", "1")
    assert (0, ORDERS, []) == (ran.status, len(sandbox.ledger), sandbox.duplicates())


@pytest.mark.slow
async def test_a_service_that_goes_in_the_middle_ends_it(run: Run, sandbox: Sandbox, half: DemoFolder) -> None:
    """There is nothing left to judge by, so it is to be begun anew."""
    running = asyncio.create_task(run(*SAME, "--concurrency", "1"))
    while len(sandbox.ledger) < 10:  # noqa: ASYNC110 - a ledger has no event to wait for
        await asyncio.sleep(0.001)
    sandbox.ipn_url = None  # from here on it is somebody else
    sandbox.script(Fault.TOKEN_REVOKED, times=None, on="payout")
    ran = await running
    assert (5, True) == (ran.status, "stopped: the simulated service is gone, and what it did with it" in ran.said)
    assert "begin anew with: payments-async demo --file batch.csv --seed 7 --faults many --concurrency 1" in ran.said


@pytest.mark.parametrize(
    ("other", "option"),
    [
        pytest.param(("--seed", "8"), "--seed", id="seed"),
        pytest.param(("--faults", "some"), "--faults", id="faults"),
        pytest.param(("--file", "other.csv"), "--file", id="file"),
    ],
)
async def test_another_demo_than_the_unfinished_one_is_refused(
    run: Run, sandbox: Sandbox, half: DemoFolder, other: tuple[str, str], option: str
) -> None:
    """It names what differs, the command that finishes the old one, and how to begin anew. Nothing is sent."""
    sent = len(sandbox.ledger)
    batch(half.path.parent, 3, name="other.csv")
    ran = await run(*SAME, *other)
    assert (2, sent) == (ran.status, len(sandbox.ledger))
    assert f"payments-async: {option}: not as in the run of 2026-11-20 23:59:59 that is unfinished" in ran.said
    assert "payments-async demo --file batch.csv --seed 7 --faults many or begin anew with --fresh" in ran.said


@pytest.mark.slow(covered=True)
async def test_without_its_service_a_run_cannot_be_finished(run: Run, sandbox: Sandbox, half: DemoFolder) -> None:
    """After a reboot the world of the demo is gone: it says so, keeps the old journal, and begins anew."""
    sandbox.ipn_url = None  # somebody else has the port of the service by now
    ran = await run(*SAME, "--faults", "none")
    assert 0 == ran.status
    aside = half.path / "unfinished-20261120235959"
    assert "The simulated service of the unfinished run is gone" in ran.said
    assert "Beginning anew; its journal is kept in payments-async-demo/unfinished-20261120235959" in ran.said
    assert "40 were carried out, each once; 0 not at all" in ran.said
    assert len(sandbox.ledger) < ORDERS
    kept = json.loads((await run("bulk", "status", "--journal", str(aside / "demo.sqlite"), "--json")).out)
    assert (35, 1) == tuple(kept["progress"]["outcomes"][state]["orders"] for state in ("planned", "unknown"))


@pytest.mark.slow
async def test_fresh_begins_anew_and_ends_the_old_service(run: Run, sandbox: Sandbox, half: DemoFolder) -> None:
    """On demand, with other settings; the unfinished one is put aside."""
    ended = asyncio.create_task(sandbox.ended())
    ran = await run("demo", "--file", "batch.csv", "--faults", "none", "--fresh")
    assert (0, True) == (ran.status, "An unfinished run was there. Beginning anew" in ran.said)
    await asyncio.wait_for(ended, 60)
    assert (half.path / "unfinished-20261120235959" / "demo.sqlite").exists()


async def test_a_taken_port_is_told(run: Run, half: DemoFolder) -> None:
    """Notifications would go to somebody else."""
    trial = half.last()
    assert trial is not None
    with socket.create_server(("127.0.0.1", trial.port)):
        ran = await run(*SAME)
    assert (2, True) == (ran.status, f"port {trial.port}, where the notifications of the unfinished run" in ran.said)


async def test_two_demos_at_a_time_need_two_directories(run: Run, left: Left) -> None:
    """The second one is told; it may not go on with what the first one is doing."""
    with held(left.folder):
        ran = await run("demo")
    assert (2, True) == (ran.status, "another demo is under way in payments-async-demo; wait for it" in ran.said)


@pytest.mark.slow
async def test_a_run_of_which_nothing_was_sent_is_begun_anew(run: Run, half: DemoFolder) -> None:
    """It was killed before its orders were written down: there is nothing to go on with and nothing to keep."""
    half.journal.unlink()
    ran = await run("demo", "--file", "batch.csv", "--faults", "none")
    assert (0, False) == (ran.status, "unfinished" in ran.said)
    assert [] == list(half.path.glob("unfinished*"))

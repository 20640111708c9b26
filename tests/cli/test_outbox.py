"""`payments-async outbox`: an outbox worked, filled, shown, paused and resumed, by words and exit codes."""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import aiohttp
import attrs
import pytest
from bulk.files import row, write_csv
from cli.commands import CTRL_C, Ran, Run, started
from cli.forks import Started

from payments_async import Beneficiary, Credentials, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async._cli.commands.outbox.run import Hindrance
from payments_async.ipn import TransactionSucceeded
from payments_async.journal import RunIdentity, Signal, SqliteJournal, State
from payments_async.journal.contract import Evidence, Outcome, Permit, RawNotification
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing, payments_journal, payments_sandbox

__all__ = ["payments_journal", "payments_sandbox"]  # fixtures

IN = ("--journal", "j.sqlite")
BATCH = ("--batch-id", "november")
ORDERS = 20
SIGNED = ("--who", "A. Clerk", "--why", "the account is checked")


@pytest.fixture
def payroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A clean file in a folder of our own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    rows = [
        row(request_id=f"PUT-{n}", amount=f"{n}000", phone_number=f"+2567720000{n:02}") for n in range(1, 1 + ORDERS)
    ]
    return write_csv(tmp_path / "payroll.csv", *rows).name


def order(number: int) -> PayoutOrder:
    """A single order, as an application puts it."""
    return PayoutOrder(
        request_id=f"W-{number}",
        amount=Decimal(500 + number),
        destination=MobileMoneyWallet("+256772000117"),
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Grace Akello", phone_number="+256772000117"),
        currency="UGX",
    )


async def put(sandbox: Sandbox, count: int, name: str = "outbox") -> None:
    """What an application does that shares the journal, and sends nothing itself."""
    identity = RunIdentity.of(sandbox.base_url, app_key=sandbox.app_key, user_id=sandbox.user_id)
    async with SqliteJournal("j.sqlite") as journal:
        await journal.open_outbox(name, identity)
        for number in range(count):
            await journal.put(name, order(number))


async def working(sandbox: Sandbox, *arguments: str) -> Started:
    """The command at work, in a process of its own."""
    process = await started(sandbox, "outbox", "run", *IN, *arguments)
    assert process.stderr is not None
    async with asyncio.timeout(120):
        while b"working the outbox" not in (line := await process.stderr.readline()):
            assert line, "it ended without working"
    return process


async def ended(process: Started, number: signal.Signals = signal.SIGTERM) -> Ran:
    """What the command left behind, once it was asked to end."""
    with suppress(ProcessLookupError):
        process.send_signal(number)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something to happen in another process."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.01)


def begun(sandbox: Sandbox) -> int:
    """Payouts that have reached the service."""
    return sum("/payouts/" in one.path for one in sandbox.requests)


@pytest.mark.slow
async def test_orders_of_an_application_and_a_file_are_sent_by_whoever_works_the_outbox(
    run: Run, sandbox: Sandbox, payroll: str
) -> None:
    """Each once; SIGTERM ends it with 0 and what it holds; then there is nothing that a person must do."""
    await put(sandbox, 5)
    ran = await run("outbox", "put", payroll, *IN, *BATCH, "--yes")
    assert 0 == ran.status, ran.said
    assert f"{ORDERS} payouts put into the outbox outbox, as batch november" in ran.said
    assert "payments-async outbox run --journal j.sqlite --name outbox" in ran.said
    process = await working(sandbox)
    await until(lambda: len(sandbox.ledger) == 5 + ORDERS)
    stopped = await ended(process)
    assert (0, []) == (stopped.status, sandbox.duplicates())
    assert "stopping: what is under way is finished first" in stopped.err
    assert "stopped; outbox holds 25 " in stopped.said
    status = json.loads((await run("outbox", "status", *IN, "--json")).out)
    assert (0, 25, ["november"]) == (status["exit_status"], status["progress"]["orders"], status["batches"])
    assert ({}, []) == (status["oldest"], status["problems"])


async def test_a_file_is_put_once(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """The same again adds nothing and asks nothing, whatever became of it."""
    first = await run("outbox", "put", payroll, *IN, *BATCH, "--yes", "--new-journal", "--json")
    again = await run("outbox", "put", payroll, *IN, *BATCH, "--json")
    assert (0, 0) == (first.status, again.status)
    assert [(ORDERS, ORDERS), (ORDERS, 0)] == [
        (told["orders"], told["added"]) for told in (json.loads(first.out), json.loads(again.out))
    ]
    assert 0 == begun(sandbox)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "status", "orders"),
    [pytest.param("y\ny\n", 0, ORDERS, id="yes"), pytest.param("y\nn\n", 5, 0, id="no")],
)
async def test_a_terminal_is_asked_before_a_file_is_put(
    run: Run, run_on_terminal: Run, sandbox: Sandbox, payroll: str, typed: str, status: int, orders: int
) -> None:
    """With number and sum; a no puts nothing."""
    ran = await run_on_terminal("outbox", "put", payroll, *IN, *BATCH, typed=typed)
    assert status == ran.status
    assert f"Put {ORDERS} payouts, 210,000 UGX, into the outbox outbox?" in " ".join(ran.out.split())
    if orders:
        told = json.loads((await run("outbox", "status", *IN, "--json")).out)
        assert orders == told["progress"]["outcomes"]["planned"]["orders"]


@pytest.mark.slow(covered=True)
async def test_a_file_with_a_bad_row_is_not_put(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Nor one that was not approved, or without a terminal to ask at."""
    await put(sandbox, 1)
    path = Path(payroll)
    good = await asyncio.to_thread(path.read_text, encoding="utf-8")
    unasked = await run("outbox", "put", payroll, *IN, *BATCH)
    assert (2, True) == (unasked.status, "--yes: needed where there is no terminal" in unasked.said)
    other = await run("outbox", "put", payroll, *IN, *BATCH, "--yes", "--plan", "0" * 64)
    assert (2, True) == (other.status, "not the payments that were approved" in other.said)
    await asyncio.to_thread(path.write_text, good.replace(",7000,", ",-7000,"), encoding="utf-8")
    bad = await run("outbox", "put", payroll, *IN, *BATCH, "--yes")
    assert (2, True) == (bad.status, "1 problem, first: row 8, amount" in bad.said)
    assert 1 == json.loads((await run("outbox", "status", *IN, "--json")).out)["progress"]["orders"]


async def test_a_batch_of_somebody_else_is_not_put(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """`bulk run` sends it; the outbox would never, and whoever put it would wait."""
    sent = await run("bulk", "run", payroll, *IN, *BATCH, "--yes", "--new-journal", "--stop-at-total", "0")
    assert 5 == sent.status
    ran = await run("outbox", "put", payroll, *IN, *BATCH, "--yes")
    assert 2 == ran.status
    assert "--batch-id: the journal holds november already, and `bulk run` sends it" in ran.said


@pytest.mark.parametrize("command", ["run", "put"])
async def test_a_mistyped_name_begins_no_outbox(run: Run, sandbox: Sandbox, payroll: str, command: str) -> None:
    """What is put into an outbox that nobody works would wait for ever; which there are is said."""
    await put(sandbox, 1)
    file = (payroll, *BATCH, "--yes") if command == "put" else ()
    ran = await run("outbox", command, *file, *IN, "--name", "outbux")
    assert 2 == ran.status
    assert "--name: there is no outbox outbux; the journal holds outbox" in ran.said
    empty = await run("outbox", command, *file, *IN, "--name", " ")
    assert (2, True) == (empty.status, "--name: must not be empty" in empty.said)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param((), "--journal: name the journal's file, or set PAYMENTS_JOURNAL", id="no-journal"),
        pytest.param(IN, "--new-journal: needed where there is no terminal to ask at", id="no-file"),
        pytest.param((*IN, "--max-per-day", "lots"), "--max-per-day: lots: no amount", id="amount"),
        pytest.param((*IN, "--max-per-day", "1500,50"), "the comma may mean thousands or cents", id="comma"),
        pytest.param(
            (*IN, "--min-balance", "USD 500"), "--min-balance: USD 500: a limit is in the account's", id="currency"
        ),
        pytest.param((*IN, "--min-balance", "-1"), "--min-balance: -1: negative", id="balance"),
    ],
)
async def test_what_is_wrong_with_a_run_is_named(
    run: Run, payroll: str, arguments: tuple[str, ...], words: str
) -> None:
    """The option, and the remedy; nothing is begun."""
    ran = await run("outbox", "run", *arguments)
    assert (2, True) == (ran.status, words in ran.said), ran.said
    assert not await asyncio.to_thread(Path("j.sqlite").exists)


async def test_a_port_that_is_taken_is_named(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Before anything is sent."""
    await put(sandbox, 1)
    port = sandbox.base_url.rpartition(":")[2].partition("/")[0]
    ran = await run("outbox", "run", *IN, "--health", port)
    assert (2, 0) == (ran.status, begun(sandbox))
    assert f"--health: port {port} cannot be listened on" in ran.said


@pytest.mark.slow
async def test_sigterm_while_sending_finishes_what_is_under_way(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Nothing is unknown, what was not begun is planned, and whoever works next sends it at once."""
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=0.3)
    await put(sandbox, ORDERS)
    process = await working(sandbox, "--concurrency", "2")
    await until(lambda: begun(sandbox) >= 4)
    stopped = await ended(process)
    assert 0 == stopped.status
    counts = json.loads((await run("outbox", "status", *IN, "--json")).out)["progress"]["outcomes"]
    assert (0, 0) == (counts["sending"]["orders"], counts["unknown"]["orders"])
    assert f"{counts['planned']['orders']} planned" in stopped.said
    assert 0 < counts["planned"]["orders"] < ORDERS
    sandbox._service.faults.clear()
    again = await working(sandbox)
    await until(lambda: len(sandbox.ledger) == ORDERS)
    assert (0, []) == ((await ended(again)).status, sandbox.duplicates())


@pytest.mark.slow
async def test_a_second_signal_breaks_off_what_is_under_way(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Status 5; what may have left is unknown, and told so."""
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=600)
    await put(sandbox, 4)
    process = await working(sandbox)
    await until(lambda: begun(sandbox) == 4)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    async with asyncio.timeout(120):
        while b"stopping" not in await process.stderr.readline():
            pass
    stopped = await ended(process, signal.SIGINT)
    assert 5 == stopped.status
    assert "broken off: what was under way may have arrived, and is looked up; outbox holds 4 unknown" in stopped.said
    status = await run("outbox", "status", *IN)
    assert (4, True) == (status.status, "unknown since" in status.said)


@pytest.mark.slow
async def test_two_at_once_share_the_work(sandbox: Sandbox, payroll: str) -> None:
    """Each order once."""
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=0.05)
    await put(sandbox, 2 * ORDERS)
    both = [await working(sandbox, "--concurrency", "2") for _ in range(2)]
    await put(sandbox, 3 * ORDERS)  # the first ones again: they change nothing
    await until(lambda: len(sandbox.ledger) == 3 * ORDERS)
    stopped = await asyncio.gather(*map(ended, both))
    assert ([0, 0], []) == ([one.status for one in stopped], sandbox.duplicates())


@pytest.mark.slow
async def test_one_that_was_killed_is_taken_over(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Nothing is lost and nothing paid twice."""
    sandbox.script(Fault.SLOW, times=None, on="payout", seconds=0.1)
    await put(sandbox, ORDERS)
    killed = await working(sandbox, "--concurrency", "2")
    await until(lambda: len(sandbox.ledger) >= 4)
    os.kill(killed.pid, signal.SIGKILL)
    await killed.communicate()
    again = await working(sandbox)
    await until(lambda: len(sandbox.ledger) >= ORDERS - 2)
    stopped = await ended(again)
    counts = json.loads((await run("outbox", "status", *IN, "--json")).out)["progress"]["outcomes"]
    assert (0, 0, []) == (stopped.status, counts["planned"]["orders"], sandbox.duplicates())


@pytest.mark.slow(covered=True)
async def test_the_health_of_an_outbox_is_answered_on_this_machine(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Ready is 200 while it sends, 503 with who paused it and why; it lives all the while. A pipe hears it at once."""
    await put(sandbox, 1)
    process = await started(sandbox, "outbox", "run", *IN, "--health", "0")
    assert process.stderr is not None
    async with asyncio.timeout(120):
        while (
            found := re.search(rb"health at (http://127\.0\.0\.1:\d+/health)", await process.stderr.readline())
        ) is None:
            pass
    await until(lambda: len(sandbox.ledger) == 1)

    async def answered(status: int, path: str = "/ready") -> dict[str, object]:
        assert found is not None
        async with aiohttp.ClientSession() as session, asyncio.timeout(120):
            while True:
                async with session.get(found[1].decode().replace("/health", path)) as reply:
                    if reply.status == status:
                        told: dict[str, object] = await reply.json()
                        return told

    well = await answered(200)
    assert (True, []) == (well["well"], well["problems"])
    assert 0 == (await run("outbox", "pause", *IN, *SIGNED)).status
    paused = await answered(503)
    (problem,) = paused["problems"]  # type: ignore[misc]
    assert [problem] == (await answered(200, "/health"))["problems"]
    assert ("paused", ["A. Clerk"], True) == (problem["code"], problem["subjects"], problem["needs_person"])
    assert problem["what"].endswith(": the account is checked")
    measured = found[1].decode().replace("/health", "/metrics")
    async with aiohttp.ClientSession() as session, session.get(measured) as reply:
        levels = (await reply.text()).splitlines()
    for level in ('payments_paused{outbox="outbox"} 1', 'payments_changes{outbox="outbox",state="dead"} 0'):
        assert level in levels
    assert process.stdout is not None
    async with asyncio.timeout(120):
        while b"UTC: the account is checked" not in await process.stdout.readline():
            pass
    assert 0 == (await run("outbox", "resume", *IN, *SIGNED)).status
    await answered(200)
    assert 0 == (await ended(process)).status


@pytest.mark.slow
async def test_a_paused_outbox_takes_orders_and_sends_none(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Until a person resumes it; the first reason stands, and `status` tells it with 5."""
    await put(sandbox, 1)
    paused = await run("outbox", "pause", *IN, *SIGNED)
    assert (0, True) == (paused.status, "outbox is paused, as A. Clerk states: the account is checked" in paused.said)
    again = await run("outbox", "pause", *IN, "--who", "B. Boss", "--why", "lunch")
    assert (0, True) == (again.status, "was paused already, by A. Clerk" in again.said)
    status = await run("outbox", "status", *IN)
    assert (5, True) == (status.status, "by A. Clerk since" in status.said)
    assert "payments-async outbox resume --journal j.sqlite --name outbox --who NAME --why REASON" in status.said
    filled = await run("outbox", "put", payroll, *IN, *BATCH, "--yes")
    assert (0, True) == (filled.status, "The outbox is paused by A. Clerk" in filled.said)
    process = await working(sandbox, "--json")
    resumed = json.loads((await run("outbox", "resume", *IN, *SIGNED, "--json")).out)
    assert (True, 0) == (resumed["was_paused"], begun(sandbox))
    await until(lambda: len(sandbox.ledger) == 1 + ORDERS)
    lines = [json.loads(line) for line in (await ended(process)).out.splitlines()]
    assert (True, 0) == (any("trouble" in line for line in lines), lines[-1]["exit_status"])
    assert "was not paused; nothing was changed" in (await run("outbox", "resume", *IN, *SIGNED)).said


async def test_orders_that_are_not_to_be_sent_after_all(
    run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are cancelled by name; what is not there is told, with 3, and `explain` knows why."""
    monkeypatch.chdir(tmp_path)
    await put(sandbox, 3)
    signed = ("--who", "A. Clerk", "--why", "ordered twice")
    done = await run("outbox", "cancel", "W-0", "W-1", *IN, *signed)
    assert (0, True) == (done.status, "never sent, as A. Clerk states: 2 orders: ordered twice" in done.said)
    told = json.loads((await run("outbox", "cancel", "W-0", "W-9", *IN, *signed, "--json")).out)
    assert (["W-0"], ["W-9"], 3) == (
        told["cancelled"],
        [one["request_id"] for one in told["refused"]],
        told["exit_status"],
    )
    story = (await run("explain", "W-0", *IN)).said
    assert "cancelled" in story
    assert "A. Clerk" in story
    assert "ordered twice" in story
    assert "on the way 1 502 1 planned not paid 2 1,001 2 cancelled" in (await run("outbox", "status", *IN)).said


async def test_the_sum_of_orders_that_are_decided_on_is_exact(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a person says yes, to the last of more digits than decimal numbers have by default."""
    monkeypatch.chdir(tmp_path)
    orders = [attrs.evolve(order(number), amount=Decimal(f"{10**27}.26")) for number in range(4)]
    async with SqliteJournal(tmp_path / "j.sqlite") as journal:
        await journal.open_run("november", RunIdentity(base_address="https://x", key_fingerprint="0", user_id="u"))
        await journal.load("november", orders, owner="test")
    asked = await run("bulk", "cancel", *(one.request_id for one in orders), *IN, *SIGNED)
    assert "4,000,000,000,000,000,000,000,000,001.04" in asked.said


async def test_a_batch_that_is_not_to_be_sent_after_all(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """All that was not sent is cancelled, once a person has said yes; then there is nothing to cancel."""
    await put(sandbox, 0)
    await run("outbox", "pause", *IN, *SIGNED)
    await run("outbox", "put", payroll, *IN, *BATCH, "--yes")
    done = await run("bulk", "cancel", *IN, *BATCH, *SIGNED, "--yes")
    assert (0, True) == (done.status, f"{ORDERS} orders" in done.said)
    again = await run("bulk", "cancel", *IN, *BATCH, *SIGNED, "--yes")
    assert (2, True) == (again.status, "no order of batch november is planned" in again.said)
    assert 0 == (await run("bulk", "status", *IN, *BATCH)).status
    retry = await run("bulk", "retry-file", "again.csv", *IN, *BATCH)
    assert (True, 0) == ("no order" in retry.said or retry.status != 0, begun(sandbox))


@pytest.mark.slow
async def test_a_rule_pauses_it_and_a_person_lets_it_go_on(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """The limit of a day: what would exceed it waits."""
    await put(sandbox, 3)
    process = await working(sandbox, "--max-per-day", "1100", "--concurrency", "1")
    await until(lambda: len(sandbox.ledger) == 2)

    async def paused() -> dict[str, object]:
        async with asyncio.timeout(120):
            while True:
                told: dict[str, object] = json.loads((await run("outbox", "status", *IN, "--json")).out)
                if told["problems"]:
                    return told

    told = await paused()
    assert (5, "fuse") == (told["exit_status"], told["problems"][0]["subjects"][0])  # type: ignore[index]
    assert 0 == (await run("outbox", "resume", *IN, *SIGNED)).status
    await until(lambda: len(sandbox.ledger) == 3)
    assert (0, []) == ((await ended(process)).status, sandbox.duplicates())


@pytest.mark.slow
async def test_refused_credentials_are_said_and_touch_no_order(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """It goes on trying until it is stopped; then others may send them."""
    await put(sandbox, 2)
    process = await started(sandbox, "outbox", "run", *IN, PAYMENTS_APP_PASSWORD="wrong-password")
    assert process.stdout is not None
    async with asyncio.timeout(120):
        while b"the credentials were refused" not in (line := await process.stdout.readline()):
            assert line, "it ended without saying so"
    stopped = await ended(process)
    assert (0, 0, True) == (stopped.status, begun(sandbox), "outbox holds 2 planned" in stopped.said)


@pytest.mark.parametrize("command", [("pause",), ("resume",), ("forget", "rejected")])
async def test_whoever_decides_is_named(run: Run, sandbox: Sandbox, payroll: str, command: tuple[str, ...]) -> None:
    """With a reason; and of an outbox that there is."""
    await put(sandbox, 1)
    for half in (("--who", "A. Clerk"), ("--why", "lunch")):
        assert 2 == (await run("outbox", *command, *IN, *half)).status
    blank = await run("outbox", *command, *IN, "--who", " ", "--why", "lunch")
    assert (2, True) == (blank.status, "--who and --why: say who states it" in blank.said)
    other = await run("outbox", *command, *IN, *SIGNED, "--name", "outbux")
    assert (2, True) == (other.status, "--name: there is no outbox outbux; the journal holds outbox" in other.said)


async def test_status_tells_since_when_handlers_fail(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Before they give up: what failed, in which line, how many changes wait for it. It needs nobody yet."""
    await put(sandbox, 1)
    async with SqliteJournal("j.sqlite") as journal:
        await journal.hear("outbox", [State.REJECTED])
        chunk = await journal.claim_chunk("outbox", "worker")
        assert chunk is not None
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        await journal.record(Outcome(permit=permit, signal=Signal.REJECTED))
        (change,) = await journal.claim_changes("outbox", [State.REJECTED], "app", lease=30, limit=10)
        await journal.retry_change(change.id, delay=600, error="shop.paid: KeyError in shop.py:31: '***'")
        await journal.release_chunk(chunk)
    ran = await run("outbox", "status", *IN)
    assert (0, True) == (ran.status, "handlers fail since" in ran.said)
    assert "KeyError in shop.py:31" in ran.said
    told = json.loads((await run("outbox", "status", *IN, "--json")).out)
    assert (1, "shop.paid: KeyError in shop.py:31") == (told["handlers"]["failing"], told["handlers"]["failure"])


async def test_status_tells_what_needs_a_person(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """A parked order, a contradiction, and a handler that failed too often, each with the command for it."""
    await put(sandbox, 3)
    async with SqliteJournal("j.sqlite") as journal:
        await journal.hear("outbox", [State.REJECTED])
        chunk = await journal.claim_chunk("outbox", "worker")
        assert chunk is not None
        for place, signal in enumerate((Signal.UNKNOWN, Signal.REJECTED, Signal.ACCEPTED)):
            permit = await journal.permit(chunk, chunk.orders[place])
            assert isinstance(permit, Permit)
            await journal.record(Outcome(permit=permit, signal=signal))
        await journal.park("W-0", detail="two clean list scans")
        strange = Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="record", request_id="W-2", amount=Decimal(7))
        await journal.apply_evidence(strange)
        (change,) = await journal.claim_changes("outbox", [State.REJECTED], "app", lease=30, limit=10)
        await journal.finish_changes([change.id], "dead", error="KeyError")
        await journal.release_chunk(chunk)
    ran = await run("outbox", "status", *IN)
    assert 4 == ran.status
    for words in ("parked since", "Need a person", "W-0", "W-2", "Handlers failed too often", "KeyError"):
        assert words in ran.said
    for command in ("bulk send-again", "bulk acknowledge", "outbox replay"):
        assert f"payments-async {command} --journal j.sqlite" in ran.said
    told = json.loads((await run("outbox", "status", *IN, "--json")).out)
    assert ([change.id], 1) == ([one["id"] for one in told["dead"]], told["handlers"]["dead"])
    missing = await run("outbox", "replay", str(change.id + 1), *IN)
    assert (2, True) == (missing.status, f"CHANGE_ID: no dead letter {change.id + 1}" in missing.said)
    again = await run("outbox", "replay", str(change.id), *IN)
    assert (0, True) == (again.status, "1 change" in again.said)
    told = json.loads((await run("outbox", "status", *IN, "--json")).out)
    assert [1, 0, 0] == [told["handlers"][name] for name in ("waiting", "failing", "dead")]
    early = await run("outbox", "forget", "rejected", *IN, *SIGNED)
    assert (2, True) == (early.status, "asked for it a moment ago; end it first" in early.said)


async def test_changes_that_no_application_handles_any_more(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Status shows them with the command that lets them go, once nobody has asked for them for a while."""
    await put(sandbox, 1)
    async with SqliteJournal("j.sqlite", testing=Testing(now=lambda: time.time() - 1000.0)) as journal:
        await journal.hear("outbox", [State.REJECTED])
        chunk = await journal.claim_chunk("outbox", "worker")
        assert chunk is not None
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        await journal.record(Outcome(permit=permit, signal=Signal.REJECTED))
        await journal.release_chunk(chunk)
    ran = await run("outbox", "status", *IN)
    assert (0, True) == (ran.status, "1 change to rejected without a process that handles them" in ran.said)
    assert "payments-async outbox forget rejected --journal j.sqlite" in ran.said
    told = json.loads((await run("outbox", "status", *IN, "--json")).out)
    assert [("orphaned_changes", 1, ["rejected"])] == [
        (one["code"], one["count"], one["subjects"]) for one in told["problems"]
    ]
    done = await run("outbox", "forget", "rejected", *IN, *SIGNED)
    assert (0, True) == (done.status, "let go, as A. Clerk states: 1 change to rejected" in done.said)
    told = json.loads((await run("outbox", "status", *IN, "--json")).out)
    assert ([], 0) == (told["problems"], told["handlers"]["waiting"])


async def test_status_of_what_is_not_there_names_the_remedy(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """No file, no outbox in it, more than one, none of that name."""
    gone = await run("outbox", "status", *IN)
    assert (2, True) == (gone.status, "--journal: there is no file j.sqlite" in gone.said)
    async with SqliteJournal("j.sqlite"):
        pass
    none = await run("outbox", "status", *IN)
    assert (2, True) == (none.status, "--name: there is no outbox yet; an outbox begins with" in none.said)
    await put(sandbox, 1)
    await put(sandbox, 1, "tips")
    several = await run("outbox", "status", *IN)
    assert (2, True) == (several.status, "--name: name one; the journal holds outbox, tips" in several.said)
    assert 0 == (await run("outbox", "status", *IN, "--name", "tips")).status


@pytest.mark.slow
async def test_status_on_a_terminal(run_on_terminal: Run, sandbox: Sandbox, payroll: str) -> None:
    """The same figures, in a table that fits."""
    await put(sandbox, 3)
    ran = await run_on_terminal("outbox", "status", *IN)
    assert 0 == ran.status
    assert "outbox: 3 orders" in re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
    assert "waits since" in ran.out
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 110 for line in ran.out.splitlines())


@pytest.mark.slow
async def test_a_terminal_shows_the_work_on_one_line_that_stays(
    run_on_terminal: Run, sandbox: Sandbox, payroll: str
) -> None:
    """Until Ctrl-C."""
    await put(sandbox, 3)
    ran = await run_on_terminal(
        "outbox",
        "run",
        *IN,
        typed=CTRL_C,
        when=lambda shown: "planned" not in shown.split("outbox")[-1] and "/s" in shown and len(sandbox.ledger) == 3,
    )
    assert (0, 3) == (ran.status, len(sandbox.ledger))
    assert "stopped; outbox holds 3 " in " ".join(ran.out.split())


@pytest.mark.slow
@pytest.mark.usefixtures("payroll")
async def test_the_rate_of_all_processes(run: Run, sandbox: Sandbox) -> None:
    """It is shown, with those that ask for another one; the journal keeps it, until somebody asks for another."""
    await put(sandbox, 1)
    for ended_by in (await working(sandbox, "--rate", "80"), await working(sandbox)):
        status = await run("outbox", "status", *IN)
        assert "80 orders a second, of all processes on the journal" in " ".join(status.said.split())
        await ended(ended_by)
    async with SqliteJournal("j.sqlite") as journal:
        await journal.request_rate("a", 20.0, lease=3600.0)
        await journal.request_rate("b", float("inf"), lease=3600.0)
        status = await run("outbox", "status", *IN)
        assert "20 orders a second, of all processes on the journal (others of them ask for no limit: the lowest" in (
            " ".join(status.said.split())
        )
        shown = json.loads((await run("outbox", "status", *IN, "--json")).out)
    assert (20.0, [20.0, None], None) == (shown["rate"], shown["rates_asked_for"], shown["cools_down"])
    await ended(await working(sandbox, "--rate", "inf"))
    shown = json.loads((await run("outbox", "status", *IN, "--json")).out)
    assert (None, []) == (shown["rate"], shown["rates_asked_for"])


async def test_a_rate_for_a_file(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Is the same one: 20 payouts at 100 a second take a fifth of a second, and the journal keeps it."""
    begun_at = time.monotonic()
    ran = await run("bulk", "run", payroll, *IN, *BATCH, "--yes", "--new-journal", "--rate", "100")
    assert (0, ORDERS) == (ran.status, len(sandbox.ledger))
    assert (ORDERS - 1) / 100 <= time.monotonic() - begun_at
    async with SqliteJournal("j.sqlite") as journal:
        assert 100.0 == (await journal.pace()).rate


@pytest.mark.usefixtures("payroll")
async def test_a_pause_that_the_service_asks_for(run: Run, sandbox: Sandbox) -> None:
    """Status tells until when, and in whose words."""
    await put(sandbox, 1)
    async with SqliteJournal("j.sqlite") as journal:
        await journal.cool_down(600.0, why="Too many requests")
    status = await run("outbox", "status", *IN)
    assert "Too many requests" in status.said
    shown = json.loads((await run("outbox", "status", *IN, "--json")).out)
    assert "Too many requests" == shown["cools_down"]["why"]
    assert 500 < shown["cools_down"]["seconds"] <= 600
    assert time.time() < shown["cools_down"]["until"]


@pytest.mark.usefixtures("payroll")
@pytest.mark.parametrize("rate", ["0", "-1", "fast"])
async def test_what_is_no_rate(run: Run, sandbox: Sandbox, rate: str) -> None:
    """Is refused before anything is done."""
    ran = await run("outbox", "run", *IN, "--rate", rate)
    assert 2 == ran.status
    assert "--rate" in ran.said


@pytest.mark.slow(covered=True)
async def test_a_batch_whose_loading_broke_off(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Nothing of it is sent by itself: whoever is on call hears which file is to be put again, wherever they ask."""
    identity = RunIdentity.of(sandbox.base_url, app_key=sandbox.app_key, user_id=sandbox.user_id)

    def broken() -> Iterator[PayoutOrder]:
        yield from map(order, range(1001))  # more than is written at once
        raise InterruptedError

    async with SqliteJournal("j.sqlite", testing=Testing(now=lambda: time.time() - 3600)) as journal:
        await journal.open_outbox("outbox", identity)
        await journal.open_run("november", identity, outbox="outbox")
        with pytest.raises(InterruptedError):
            await journal.load("november", broken(), owner="somebody who died")
    status = await run("outbox", "status", *IN)
    assert (4, True) == (status.status, "not loaded whole november" in status.said), status.said
    assert "Loading batch november has broken off, and nothing of it is sent. Put its file again" in status.said
    explained = await run("explain", "W-1", *IN)
    assert "Nothing of batch november is sent before all of it is here" in explained.said, explained.said
    assert "or was refused because its plan does not know another batch" in explained.said
    process = await working(sandbox)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while b"put the file again, as it was" not in (line := await process.stdout.readline()):
            assert line, "it ended without a word on the batch"
    await ended(process)
    assert 0 == (await run("outbox", "put", payroll, *IN, *BATCH, "--yes")).status
    assert 0 == (await run("outbox", "status", *IN)).status


async def test_notifications_of_orders_that_are_not_here(
    run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else pays from the account, or somebody lies: it is shown, and which command lists them."""
    monkeypatch.chdir(tmp_path)
    await put(sandbox, 1)
    async with SqliteJournal("j.sqlite") as journal:
        event = TransactionSucceeded(transaction_id="t", request_id="S", status_code=0, amount=5, currency_code="UGX")
        heard = RawNotification(body=b"x", query="", peer="192.0.2.7", received_at=time.time())
        await journal.receive(heard, event, owner="test", lease=1.0)
    status = await run("outbox", "status", *IN)
    assert "heard of 1 notification of orders that are not here" in status.said
    assert "payments-async ipn list --journal j.sqlite --unknown" in status.said


async def test_what_hinders_an_outbox_for_long(payments_sandbox: Sandbox, payments_journal: SqliteJournal) -> None:
    """After a minute somebody is told, and not at once: for a moment it often is hindered."""
    wrong = Credentials(app_key=payments_sandbox.app_key, app_password="wrong", user_id=payments_sandbox.user_id)
    now = 0.0
    hindrance = Hindrance(clock=lambda: now)
    async with (
        asyncio.timeout(60),
        PaymentsSession(payments_sandbox.base_url, wrong) as payments,
        Outbox(payments, payments_journal) as outbox,
    ):
        assert (health := await outbox.health()).problem("hindered")
        assert {"hindered": 0} == hindrance.needs(health)
        now = 59.0
        assert {"hindered": 0} == hindrance.needs(health)
        now = 61.0
        assert {"hindered": 1} == hindrance.needs(health)
        assert {"hindered": 0} == hindrance.needs(attrs.evolve(health, problems=()))
        now = 120.0
        assert {"hindered": 0} == hindrance.needs(health)

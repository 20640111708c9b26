"""`pay` and `collect` a second time: nothing is ever sent twice, and what became of the first is told."""

import asyncio
import json
import os
import shutil
import signal
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from bulk.files import row, write_csv
from cli.commands import Run, send, started

from payments_async import (
    Beneficiary,
    CollectionOrder,
    Credentials,
    MobileMoneyWallet,
    PaymentsSession,
    PayoutOrder,
)
from payments_async._cli.exit_codes import Exit
from payments_async._cli.journal import own_journal
from payments_async._cli.screen import Screen
from payments_async._cli.single_order import Sending, SingleOrder, _OrderRun
from payments_async.journal import RunIdentity, SqliteJournal, State
from payments_async.journal.contract import Permit
from payments_async.sandbox import Fault, ManualClock, Sandbox
from payments_async.testing import Testing

ITEM = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"
WHAT = ("--amount", "150000", "--item", ITEM, "--name", "Grace Akello", "--wallet", "+256772000017")
COLLECTED = (
    *("--amount", "500", "--item", "MTNMOBILEMONEYUG_MTNMOBILEMONEYUG"),
    *("--name", "Grace Akello", "--payer", "0772000017"),
)
PAY = ("pay", "--request-id", "voucher-17", *WHAT, "--yes")
ORDER = PayoutOrder(
    request_id="voucher-17",
    amount=Decimal(150000),
    destination=MobileMoneyWallet("+256772000017"),
    product_item_id=ITEM,
    beneficiary=Beneficiary(name="Grace Akello"),
)


def identity(sandbox: Sandbox) -> RunIdentity:
    """Whose money it is."""
    return RunIdentity.of(sandbox.base_url, app_key=sandbox.app_key, user_id=sandbox.user_id)


def journals(folder: Path) -> list[Path]:
    """Those in a folder."""
    return sorted(folder.glob("*.sqlite"))


def only(folder: Path) -> Path:
    """The one journal in a folder."""
    (found,) = journals(folder)
    return found


def mode(path: Path) -> int:
    """Who may read it."""
    return path.stat().st_mode & 0o777


def is_there(path: str) -> bool:
    """Whether there is such a file."""
    return Path(path).exists()


async def stopped_with_a_permit(journal: Path, sandbox: Sandbox, order: PayoutOrder | CollectionOrder) -> None:
    """What a command leaves that was killed after its permit was written down."""
    name = f"{'pay' if isinstance(order, PayoutOrder) else 'collect'}-{order.request_id}"
    async with SqliteJournal(
        journal, testing=Testing(now=lambda: time.time() - 60)
    ) as held:  # so its lease is over by now
        await held.open_run(name, identity(sandbox))
        await held.load(name, [order], owner="elsewhere:4711:dead")
        chunk = await held.claim_chunk(name, "elsewhere:4711:dead", lease=30)
        assert chunk is not None
        assert isinstance(await held.permit(chunk, chunk.orders[0]), Permit)


async def asked_to_pay(sandbox: Sandbox) -> None:
    """Wait until the service has an order."""
    async with asyncio.timeout(60):
        while not [one for one in sandbox.requests if "/payouts/" in one.path]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_key_that_was_replaced_leaves_the_account_its_journal(sandbox: Sandbox) -> None:
    """What was paid with the old key is known to whoever asks with the new one."""
    with_another = RunIdentity.of(sandbox.base_url, app_key="another key", user_id=sandbox.user_id)
    assert own_journal(identity(sandbox)) == own_journal(with_another)


async def test_a_user_without_a_home_names_a_journal(
    run: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the current folder there would be another one in the next shell, and that would know nothing of this."""
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: Path("~/.local/share/payments-async"))
    refused = await run(*PAY)
    assert (2, 0) == (refused.status, len(sandbox.ledger))
    assert "--journal: this user has no home folder for the account's own; name a file that lasts" in refused.said


async def test_the_same_payout_again_is_told_and_not_sent(run: Run, sandbox: Sandbox, data_folder: Path) -> None:
    """Four times the same command: one payment, and each time its transaction and when it was sent."""
    first = await run(*PAY)
    assert "new journal" in first.said
    assert "it knows no earlier payment" in first.said
    transaction = json.loads((await run(*PAY, "--json")).out)["transaction_id"]
    for _ in range(2):
        again = await run(*PAY)
        assert (0, 1) == (again.status, sandbox.executions("voucher-17"))
        assert "Nothing was sent: that was done before." in again.said
        assert transaction in again.said
        assert "new journal" not in again.said
    assert (0o700, 0o600) == (mode(data_folder), mode(only(data_folder)))


async def test_a_collection_again_is_told_and_not_requested(run: Run, sandbox: Sandbox) -> None:
    """Money in goes the same way."""
    collect = (
        "collect",
        "--amount",
        "500",
        "--item",
        "MTNMOBILEMONEYUG_MTNMOBILEMONEYUG",
        "--name",
        "Grace Akello",
        "--payer",
        "0772000017",
        "--request-id",
        "bill-1",
        "--yes",
    )
    assert [0, 0] == [(await run(*collect)).status for _ in range(2)]
    assert 1 == sandbox.executions("bill-1")


@pytest.mark.slow
async def test_two_commands_at_once_send_one_payout(sandbox: Sandbox) -> None:
    """Both tell of it."""
    processes = [await started(sandbox, *PAY) for _ in range(2)]
    said = await asyncio.gather(*(process.communicate() for process in processes))
    assert [0, 0] == [process.returncode for process in processes], said
    assert 1 == sandbox.executions("voucher-17")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(("--amount", "200000"), "amount was 150,000, is 200,000 now", id="amount"),
        pytest.param(("--wallet", "+256772000018"), "destination phone number was ***017, is ***018 now", id="person"),
        pytest.param(("--message", "rent"), "message was missing, is *** now", id="message"),
    ],
)
async def test_another_order_under_the_same_id_is_refused(
    run: Run, sandbox: Sandbox, options: tuple[str, str], words: str
) -> None:
    """Both are named, the person masked, and nothing is sent."""
    await run(*PAY)
    ran = await run(*PAY, *options)
    assert (2, 1) == (ran.status, len(sandbox.ledger))
    assert "--request-id: voucher-17 is the id of another order, accepted since" in ran.said
    assert words in ran.said


async def test_a_payout_and_a_collection_cannot_share_an_id(run: Run, sandbox: Sandbox) -> None:
    """They are two orders."""
    await run(*PAY)
    ran = await run(
        "collect",
        "--amount",
        "150000",
        "--item",
        ITEM,
        "--name",
        "Grace Akello",
        "--payer",
        "+256772000017",
        "--request-id",
        "voucher-17",
        "--yes",
    )
    assert (2, 1) == (ran.status, len(sandbox.ledger))
    assert "kind was a payout, is a collection now" in ran.said


async def test_a_refused_payout_is_not_sent_again(run: Run, sandbox: Sandbox) -> None:
    """The second call tells the service's words of the first, with the same exit status."""
    sandbox.script(Fault.REFUSED, on="payout")
    for _ in range(2):
        ran = await run(*PAY)
        assert (3, 0) == (ran.status, len(sandbox.ledger))
        assert "The transaction was refused The service refused it: it was not paid." in ran.said
        assert "under a new request id" in ran.said


@pytest.mark.parametrize("moved", [True, False])
async def test_a_command_killed_after_its_permit_is_looked_up(
    run: Run, sandbox: Sandbox, data_folder: Path, moved: bool
) -> None:
    """The same command sends nothing: it finds what moved, and what it cannot find stays unknown."""
    assert 0 == (await run("pay", "--request-id", "voucher-1", *WHAT, "--yes")).status  # makes the journal
    await stopped_with_a_permit(only(data_folder), sandbox, ORDER)
    if moved:  # by the command that was killed
        await send(sandbox, ORDER)
    ran = await run(*PAY)
    assert (int(moved), 0 if moved else 4) == (sandbox.executions("voucher-17"), ran.status)
    assert "looking it up; it is not sent again" in ran.said
    assert moved == ("the outcome is unknown" not in ran.said)


async def test_an_unknown_payout_is_looked_for_while_it_is_waited(run: Run, sandbox: Sandbox) -> None:
    """--wait finds it by the lists, and writes its end down."""
    sandbox.script(Fault.LOST_AFTER, on="payout")
    ran = await run(*PAY, "--wait", "30", "--json")
    assert (0, "successful") == (ran.status, json.loads(ran.out)["state"])


async def test_waiting_settles_the_journal(run: Run, sandbox: Sandbox, data_folder: Path) -> None:
    """What was waited for is known to every other command, with what says so."""
    await run(*PAY, "--wait", "20")
    journal = ("--journal", str(only(data_folder)))
    story = await run("explain", "voucher-17", *journal)
    assert "It was paid." in story.said
    assert "paid 1 150,000" in (await run("bulk", "status", *journal)).said
    assert 0 == (await run(*PAY)).status  # and it asks the service nothing


async def test_a_payout_of_a_batch_is_told_and_the_batch_left_alone(
    run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pay` never sends what else is in a journal."""
    monkeypatch.chdir(tmp_path)
    async with SqliteJournal("j.sqlite") as held:
        await held.open_run("november", identity(sandbox))
        others = [
            PayoutOrder(
                request_id=f"RUN-{n}",
                amount=Decimal(1000),
                destination=MobileMoneyWallet("+256772000018"),
                product_item_id=ITEM,
                beneficiary=Beneficiary(name="Peter Okello"),
            )
            for n in range(3)
        ]
        await held.load("november", [ORDER, *others], owner="test")
    ran = await run(*PAY, "--journal", "j.sqlite")
    assert (2, 0) == (ran.status, len(sandbox.ledger))
    assert "voucher-17 belongs to batch november, planned" in ran.said


async def test_a_mistyped_journal_is_not_made(run: Run, sandbox: Sandbox, tmp_path: Path) -> None:
    """A new journal knows no earlier payment: it is made by name only when that is said."""
    name = str(tmp_path / "mistyped.sqlite")
    ran = await run(*PAY, "--journal", name)
    assert (2, 0, False) == (ran.status, len(sandbox.ledger), is_there(name))
    assert "--new-journal" in ran.said
    made = await run(*PAY, "--journal", name, "--new-journal")
    assert (0, 1) == (made.status, len(sandbox.ledger))
    assert f"new journal {name}: it knows no earlier payment" in made.said


@pytest.mark.slow
async def test_a_terminal_is_asked_before_a_named_journal_is_made(
    run_on_terminal: Run, sandbox: Sandbox, tmp_path: Path
) -> None:
    """--yes answers another question."""
    ran = await run_on_terminal(*PAY, "--journal", str(tmp_path / "mistyped.sqlite"), typed="n\n")
    assert (5, 0, False) == (ran.status, len(sandbox.ledger), is_there(str(tmp_path / "mistyped.sqlite")))
    assert "a new one knows no earlier payment. Make it? [y/N]" in ran.out


async def test_a_new_journal_looks_for_what_was_sent_before(run: Run, sandbox: Sandbox) -> None:
    """What the service's list shows is not sent, and a person has to look."""
    await send(sandbox, ORDER)
    ran = await run(*PAY)
    assert (4, 1) == (ran.status, sandbox.executions("voucher-17"))
    assert "looked first: 1 transaction of" in ran.said
    assert "Nothing was sent: that was done before." in ran.said
    assert "evidence contradicts" in ran.said


async def test_a_machine_that_went_back_to_a_snapshot_pays_nothing_again(
    run: Run, sandbox: Sandbox, data_folder: Path, tmp_path: Path
) -> None:
    """Journal and state folder come back as they were, so nothing on the machine remembers: the list does."""
    await run("pay", "--request-id", "voucher-16", *WHAT, "--yes")
    state_folder = Path(os.environ["XDG_STATE_HOME"])
    folders = {data_folder: tmp_path / "data-before", state_folder: tmp_path / "state-before"}
    for folder, snapshot in folders.items():
        shutil.copytree(folder, snapshot)
    inodes = inodes_in(data_folder)
    assert (0, 1) == ((await run(*PAY)).status, sandbox.executions("voucher-17"))
    for folder, snapshot in folders.items():
        go_back(folder, snapshot)
    assert inodes == inodes_in(data_folder)
    ran = await run(*PAY)
    assert (4, 1) == (ran.status, sandbox.executions("voucher-17"))
    assert "looked first: 2 transactions of" in ran.said


def inodes_in(folder: Path) -> dict[Path, int]:
    """The inode of each journal."""
    return {journal: journal.stat().st_ino for journal in folder.rglob("*.sqlite")}


def go_back(folder: Path, snapshot: Path) -> None:
    """Every file holds again what it held, as the same file."""
    for path in list(folder.rglob("*")):
        before = snapshot / path.relative_to(folder)
        if path.is_file() and before.exists():
            path.write_bytes(before.read_bytes())
        elif path.is_file():
            path.unlink()


async def test_a_new_journal_that_cannot_look_sends_nothing(run: Run, sandbox: Sandbox) -> None:
    """Unless somebody says that it need not look."""
    sandbox.script(Fault.REFUSED, on="transactions", times=None)
    ran = await run(*PAY)
    assert (3, 0) == (ran.status, len(sandbox.ledger))
    assert "not sent: " in ran.said
    assert (0, 1) == ((await run(*PAY, "--without-looking")).status, sandbox.executions("voucher-17"))


async def test_a_journal_that_is_gone_is_not_made_anew(run: Run, sandbox: Sandbox, data_folder: Path) -> None:
    """The machine remembers it: nothing is paid again because a file was deleted."""
    await run(*PAY)
    shutil.rmtree(data_folder)
    ran = await run(*PAY)
    assert (2, 1) == (ran.status, sandbox.executions("voucher-17"))


async def test_an_order_of_the_accounts_own_journal_is_refused_from_another(
    run: Run, sandbox: Sandbox, tmp_path: Path
) -> None:
    """Two journals for one order would pay it twice."""
    await run(*PAY)
    ran = await run(*PAY, "--journal", str(tmp_path / "other.sqlite"), "--new-journal")
    assert (2, 1) == (ran.status, sandbox.executions("voucher-17"))
    assert "voucher-17" in ran.said


async def test_each_account_has_a_journal_of_its_own(run: Run, sandbox: Sandbox, data_folder: Path) -> None:
    """What was paid at one service is not taken for paid at another."""
    await run(*PAY)
    async with Sandbox() as other:
        settings = {
            "PAYMENTS_BASE_URL": other.base_url,
            "PAYMENTS_APP_KEY": other.app_key,
            "PAYMENTS_APP_PASSWORD": other.app_password,
            "PAYMENTS_USER_ID": other.user_id,
        }
        assert 0 == (await run(*PAY, **settings)).status
        assert (1, 1) == (sandbox.executions("voucher-17"), other.executions("voucher-17"))
    assert 2 == len(journals(data_folder))


async def test_the_journal_of_another_account_is_refused(run: Run, sandbox: Sandbox, tmp_path: Path) -> None:
    """Its order of the same name says nothing of ours."""
    name = tmp_path / "theirs.sqlite"
    async with Sandbox() as other:
        await stopped_with_a_permit(name, other, ORDER)
    ran = await run(*PAY, "--journal", str(name))
    assert (2, 0) == (ran.status, len(sandbox.ledger))
    assert "--journal: it belongs to user" in ran.said


@pytest.mark.slow
async def test_ctrl_c_in_the_middle_says_what_is_known(run: Run, sandbox: Sandbox) -> None:
    """Once finishes what is under way; and the same command tells of it."""
    sandbox.script(Fault.SLOW, on="payout", seconds=1.5)
    process = await started(sandbox, *PAY)
    await asked_to_pay(sandbox)
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (0, 1) == (process.returncode, sandbox.executions("voucher-17"))
    assert b"stopping: what is under way is finished first" in err
    assert b"accepted" in out


@pytest.mark.slow
async def test_ctrl_c_twice_says_that_it_is_unknown(run: Run, sandbox: Sandbox) -> None:
    """It is broken off and never sent again: the same command looks it up."""
    sandbox.script(Fault.SLOW, on="payout", seconds=600)
    process = await started(sandbox, *PAY)
    await asked_to_pay(sandbox)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"stopping" not in await process.stderr.readline():
            pass
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert 4 == process.returncode
    assert b"never send it again under another id. The same command looks it up" in err
    sandbox._service.faults.clear()
    assert (0, 1) == ((await run(*PAY)).status, sandbox.executions("voucher-17"))


@pytest.mark.slow
async def test_a_killed_command_is_continued_by_the_same_one(run: Run, sandbox: Sandbox) -> None:
    """A kill -9 between the permit and the answer: the order is looked up at once, and nothing is paid twice."""
    sandbox.script(Fault.SLOW, on="payout", seconds=5)
    process = await started(sandbox, *PAY)
    await asked_to_pay(sandbox)
    os.kill(process.pid, signal.SIGKILL)
    await process.communicate()
    sandbox._service.faults.clear()
    await sandbox.settle()
    ran = await run(*PAY)
    assert (0, 1) == (ran.status, sandbox.executions("voucher-17"))
    assert "looking it up; it is not sent again" in ran.said
    assert "its lease ends" not in ran.said  # the system tells that its holder is dead


@pytest.mark.parametrize("amount", ["500.005", "1.500", "1,5", "1500,50"])
async def test_an_amount_is_read_as_in_a_file(run: Run, sandbox: Sandbox, tmp_path: Path, amount: str) -> None:
    """What a batch file refuses as ambiguous or too fine, `pay` refuses in the same words."""
    ran = await run(*PAY, "--amount", amount)
    name = write_csv(tmp_path / "one.csv", row(amount=amount))
    filed = await run("bulk", "plan", str(name), "--batch-id", "one")
    assert (2, 2, 0) == (ran.status, filed.status, len(sandbox.ledger))
    words = ran.said.partition("--amount: ")[2].partition(";")[0]
    assert words
    assert words in filed.said


async def test_who_waits_asks_ever_more_seldom(tmp_path: Path) -> None:
    """One look reads several lists: an order that takes its time must not cost the service thousands of requests."""
    pauses: list[float] = []
    async with Sandbox(clock=ManualClock(datetime.now(UTC)), processing_delay=3600.0) as sandbox:
        credentials = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 7:
                await sandbox.advance(3600.0)

        asked = SingleOrder(screen=Screen(), order=ORDER, where="wallet", sending=Sending(wait=60.0))
        async with (
            PaymentsSession(sandbox.base_url, credentials) as payments,
            SqliteJournal(tmp_path / "j.sqlite") as journal,
        ):
            run = _OrderRun(asked=asked, payments=payments, journal=journal, path=tmp_path, sleep=sleep)
            assert Exit.FINE is await run.run(None)
            ended = await journal.entry(ORDER.request_id)
    assert ended is not None
    assert State.SUCCESSFUL is ended.state
    assert [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] == pauses


@pytest.mark.parametrize("what", [WHAT, COLLECTED], ids=["pay", "collect"])
async def test_an_id_that_differs_in_letters_alone_names_the_same_order(
    run: Run, sandbox: Sandbox, what: tuple[str, ...]
) -> None:
    """The second command sends nothing, and says which order it would repeat."""
    command = "pay" if what is WHAT else "collect"
    for request_id, status in (("Voucher-17", 0), ("voucher-17", 2), ("Voucher-17", 0)):
        ran = await run(command, "--request-id", request_id, *what, "--yes", "--new-journal")
        assert status == ran.status, ran.said
    ran = await run(command, "--request-id", "voucher-17", *what, "--yes")
    assert "voucher-17 is the id of another order" in ran.said
    assert ["Voucher-17"] == [one.request_id for one in sandbox.ledger]

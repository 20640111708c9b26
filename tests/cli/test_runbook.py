"""The page for whoever is on call: each command of it is run where its symptom holds, and says what the page says."""

import re
import shlex
import time
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from bulk.files import row, write_csv
from bulk.worlds import session
from cli.commands import NO_SERVICE, Run

from payments_async import Beneficiary, MobileMoneyWallet, PayoutOrder
from payments_async.bulk import read_batch, run_batch
from payments_async.ipn import TransactionSucceeded
from payments_async.journal import RunIdentity, Signal, SqliteJournal, State, copy_journal
from payments_async.journal.contract import Evidence, Outcome, Permit, RawNotification
from payments_async.outbox import Outbox
from payments_async.sandbox import Sandbox
from payments_async.testing import Testing

PAGE = Path(__file__).parents[2] / ".github" / "docs" / "runbook.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PAGE = 4096  # bytes of a page of SQLite
COMMAND = re.compile(r"^payments-async (?P<words>.+?) +# (?P<status>\d)$")


@attrs.frozen
class Section:
    """A symptom: the commands of it, each with its exit status, and what they say, in this sequence."""

    title: str
    commands: tuple[tuple[str, int], ...]
    says: tuple[str, ...]


def sections() -> Iterator[Section]:
    """All symptoms of the page that have commands."""
    for text in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, body = text.partition("\n")
        blocks = BLOCK.findall(body)
        lines = [COMMAND.match(line) for kind, block in blocks if kind == "sh" for line in block.splitlines()]
        commands = []
        for line in lines:
            assert line is not None, f"{title}: a line is no command with an exit status behind it"
            commands.append((line["words"], int(line["status"])))
        says = tuple(line for kind, block in blocks if kind == "text" for line in block.splitlines())
        if commands:
            yield Section(title, tuple(commands), says)


def order(name: str) -> PayoutOrder:
    """A single order, as an application puts it."""
    return PayoutOrder(
        request_id=name,
        amount=Decimal(1500),
        destination=MobileMoneyWallet("+256772000117"),
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Grace Akello"),
        currency="UGX",
    )


def identity(sandbox: Sandbox) -> RunIdentity:
    """Whose journal it is."""
    return RunIdentity.of(sandbox.base_url, app_key=sandbox.app_key, user_id=sandbox.user_id)


async def put(journal: SqliteJournal, sandbox: Sandbox, name: str) -> None:
    """An order that an application has put, and that nobody has sent."""
    await journal.open_outbox("outbox", identity(sandbox))
    await journal.put("outbox", order(name))


async def sent(journal: SqliteJournal, sandbox: Sandbox, name: str, signal: Signal) -> None:
    """One that was sent, by somebody who has the chunk no more."""
    await put(journal, sandbox, name)
    chunk = await journal.claim_chunk("outbox", "worker")
    assert chunk is not None
    permit = await journal.permit(chunk, chunk.orders[0])
    assert isinstance(permit, Permit)
    await journal.record(Outcome(permit=permit, signal=signal))
    await journal.release_chunk(chunk)


def delete(file: Path) -> None:
    """Do away with a journal, and with the mark beside it."""
    for one in (file, file.with_name(f"{file.name}-mark")):
        one.unlink()


def put_back(file: Path) -> None:
    """Restore a file from a backup."""
    backup = file.read_bytes()
    delete(file)
    file.write_bytes(backup)


def damage(file: Path, words: bytes) -> None:
    """Write something else over the page that these words are on."""
    pages = bytearray(file.read_bytes())
    begin = pages.index(words) // _PAGE * _PAGE
    pages[begin : begin + _PAGE] = bytes(range(256)) * (_PAGE // 256)
    file.write_bytes(pages)


async def nothing_special(sandbox: Sandbox) -> None:
    """A journal with an order that waits."""
    async with SqliteJournal("shop.sqlite") as journal:
        await put(journal, sandbox, "W-17")


async def lost(sandbox: Sandbox) -> None:
    """An order without a usable answer."""
    async with SqliteJournal("shop.sqlite") as journal:
        await sent(journal, sandbox, "W-17", Signal.UNKNOWN)


async def lost_beside_another(sandbox: Sandbox) -> None:
    """The service's list shows the order before it: so it shows these days, and an absence says something."""
    async with SqliteJournal("shop.sqlite") as journal, session(sandbox) as payments:
        async with Outbox(payments, journal) as outbox:
            await outbox.pay(order("W-16"), timeout=60)
        await sent(journal, sandbox, "W-17", Signal.UNKNOWN)


async def paused(sandbox: Sandbox) -> None:
    """Somebody has paused it, and does not remember."""
    async with SqliteJournal("shop.sqlite") as journal:
        await put(journal, sandbox, "W-17")
        await journal.pause("outbox", who="A. Clerk", why="the rates are wrong")


async def notified(sandbox: Sandbox) -> None:
    """A notification about an order that is not here."""
    async with SqliteJournal("shop.sqlite") as journal:
        await put(journal, sandbox, "W-17")
        told = TransactionSucceeded(
            transaction_id="t-9", request_id="S-1", status_code=0, amount=5000, currency_code="UGX"
        )
        heard = RawNotification(body=b"{}", query="", peer="192.0.2.7", received_at=time.time())
        await journal.receive(heard, told, owner="receiver", lease=1.0)


async def contradicted(sandbox: Sandbox) -> None:
    """Paid, and then it is said to have failed."""
    async with SqliteJournal("shop.sqlite") as journal:
        await sent(journal, sandbox, "W-18", Signal.ACCEPTED)
        for signal in (Signal.LOOKED_UP_SUCCESSFUL, Signal.NOTIFIED_FAILED):
            told = Evidence(signal=signal, source="list", request_id="W-18", amount=Decimal(1500), currency="UGX")
            await journal.apply_evidence(told)


async def restored(sandbox: Sandbox) -> None:
    """A file that is a backup: without the mark beside it, and with an order whose end it does not know."""
    async with SqliteJournal("shop.sqlite") as journal:
        await sent(journal, sandbox, "W-16", Signal.UNKNOWN)
        await journal.put("outbox", order("W-17"))
    put_back(Path("shop.sqlite"))


async def broken_off(sandbox: Sandbox) -> None:
    """A batch whose loading broke off, an hour ago."""
    rows = [row(request_id=f"PUT-{number}", phone_number=f"+25677200000{number}") for number in range(1, 4)]
    write_csv(Path("payroll.csv"), *rows)

    def broken() -> Iterator[PayoutOrder]:
        yield from (order(f"old-{number}") for number in range(1001))
        raise InterruptedError

    async with SqliteJournal("shop.sqlite", testing=Testing(now=lambda: time.time() - 3600)) as journal:
        await journal.open_outbox("outbox", identity(sandbox))
        await journal.open_run("november", identity(sandbox), outbox="outbox")
        with pytest.raises(InterruptedError):
            await journal.load("november", broken(), owner="somebody who died")


async def untold(sandbox: Sandbox) -> None:
    """A handler of an outbox, and one of a receiver, failed too often."""
    async with SqliteJournal("shop.sqlite") as journal:
        await journal.open_outbox("outbox", identity(sandbox))
        await journal.hear("outbox", [State.ACCEPTED])
        await sent(journal, sandbox, "W-17", Signal.ACCEPTED)
        (change,) = await journal.claim_changes("outbox", [State.ACCEPTED], "app", lease=60, limit=1)
        await journal.finish_changes([change.id], "dead", error="the shop is away")
        told = TransactionSucceeded(transaction_id="t-1", request_id="W-17", status_code=0)
        heard = RawNotification(body=b"{}", query="", peer="192.0.2.7", received_at=time.time())
        receipt = await journal.receive(heard, told, owner="app", lease=5.0)
        await journal.finish(receipt.event_id, "dead", error="the shop is away")


async def damaged(sandbox: Sandbox) -> None:
    """A batch was paid, and then the disk wrote something else into the middle of the orders."""
    rows = [row(request_id=f"PUT-{number}", phone_number=f"+25677200{number:04}") for number in range(1, 301)]
    write_csv(Path("payroll.csv"), *rows)
    async with session(sandbox) as payments, SqliteJournal("shop.sqlite") as journal:
        await run_batch(payments, journal, "november", (await read_batch("payroll.csv")).orders)
    damage(Path("shop.sqlite"), b"+256772000150")


async def lost_for_ever(sandbox: Sandbox) -> None:
    """A journal with a batch went to another place, which is gone."""
    old = SqliteJournal("old.sqlite")
    write_csv(Path("payroll.csv"), row())
    async with session(sandbox) as payments, old as journal:
        await run_batch(payments, journal, "november", (await read_batch("payroll.csv")).orders)
    await copy_journal(old, SqliteJournal("shop.sqlite"))
    delete(Path("shop.sqlite"))


SCENES: dict[str, Callable[[Sandbox], Awaitable[None]]] = {
    "A customer asks about a payment, and wants it paid again": lost,
    "An order stays unknown, or is parked": lost_beside_another,
    "Nothing is sent, and the outbox is paused": paused,
    "Nothing is sent, and the outbox is not paused": nothing_special,
    "The service is away for an hour": nothing_special,
    "A payment that you did not order": notified,
    "Evidence against evidence": contradicted,
    "A backup was put back": restored,
    "A batch is never sent": broken_off,
    "Handlers of an application failed": untold,
    "Notifications are refused": nothing_special,
    "The disk is full": nothing_special,
    "The file is damaged": damaged,
    "A journal is lost for ever": lost_for_ever,
}
SETTINGS = {
    "Nothing is sent, and the outbox is not paused": {"PAYMENTS_APP_PASSWORD": "rotated-since"},
    "The service is away for an hour": {"PAYMENTS_BASE_URL": NO_SERVICE},
}


def test_every_symptom_with_commands_has_a_scene() -> None:
    """A symptom that is added to the page is played here, or the page could say anything."""
    assert sorted(SCENES) == sorted(section.title for section in sections())


@pytest.mark.parametrize("section", [pytest.param(section, id=section.title) for section in sections()])
async def test_the_commands_say_what_the_page_says(
    section: Section, run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the symptom holds, each ends with the status behind it, and the words below are said, in that sequence."""
    monkeypatch.chdir(tmp_path)
    await SCENES[section.title](sandbox)
    before, said = len(sandbox.ledger), ""
    for words, status in section.commands:
        ran = await run(*shlex.split(words), **SETTINGS.get(section.title, {}))
        assert status == ran.status, ran.said
        said += f" {ran.said}"
    at = 0
    for piece in (piece.strip() for line in section.says for piece in line.split("...")):
        assert piece in said[at:], f"{piece!r} is not in {said[at:]!r}"
        at = said.index(piece, at) + len(piece)
    assert before == len(sandbox.ledger), "a command for whoever looks has sent something"

"""How the package is laid out, in numbers: modules and lines, imports of each room, and how far one payment travels.

    python tests/benchmarks/layout.py                  a table for each of the two
    python tests/benchmarks/layout.py --root ../other  the first of another checkout
    python tests/benchmarks/layout.py --name           and which modules each journey passes

A journey's hops are the modules in which some function of ours runs, the simulated service and the command line left
out; crossings count how often it goes on in another module. Every journey is made once to warm up, then counted.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import itertools
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from decimal import Decimal
from pathlib import Path
from types import FrameType

import aiohttp

import payments_async
from payments_async import Beneficiary, Credentials, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async.bulk import ReconcileSettings, plan, read_batch, reconcile, report, run_batch
from payments_async.ipn import Receiver, TransactionSucceeded, serving
from payments_async.journal import SqliteJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import notification

PACKAGE = "payments_async"
ROOMS = ("", "_values", "_wire", "_session", "journal", "outbox", "bulk", "ipn", "fleet", "sandbox", "testing", "_cli")
NOT_OURS = ("sandbox", "_cli", "testing")

Journey = Callable[[int], Awaitable[None]]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(payments_async.__file__).parent.parent)
    parser.add_argument("--name", action="store_true", help="name the modules of each journey")
    arguments = parser.parse_args()
    root = arguments.root / PACKAGE
    print(f"{'room':12}{'modules':>9}{'lines':>8}{'floors':>8}{'arrows':>8}{'circles':>9}{'one importer':>14}")
    for name in ROOMS:
        if (root / name).is_dir():
            print(_row(name or PACKAGE, root / name))
    print()
    print(f"{'journey':38}{'hops':>6}{'crossings':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for title, trail in asyncio.run(_travel(Path(folder))):
            print(f"{title:38}{len(set(trail)):6}{_crossings(trail):11}")
            if arguments.name:
                for module, count in sorted(Counter(trail).items()):
                    print(f"    {count:5} {module}")


def _row(title: str, room: Path) -> str:
    """One room, with all the folders in it: what imports what, and how high it is stacked."""
    files = sorted(room.rglob("*.py"))
    names = {_dotted(path): path for path in files}
    arrows = {name: set(_imported(path, name, names)) for name, path in names.items()}
    importers = Counter(itertools.chain.from_iterable(arrows.values()))
    once = sum(1 for name, path in names.items() if path.name != "__init__.py" and importers[name] <= 1)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    floors, circles = _stack(arrows)
    return f"{title:12}{len(files):9}{lines:8}{floors:8}{sum(map(len, arrows.values())):8}{circles:9}{once:14}"


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    parts = parts[len(parts) - 1 - parts[::-1].index(PACKAGE) :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, name: str, names: dict[str, Path]) -> Iterator[str]:
    """The modules of the same room that this one imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -(node.level - (path.name == "__init__.py")) or None] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found = [inner if (inner := f"{origin}.{alias.name}") in names else origin for alias in node.names]
        yield from (target for target in found if target in names and target != name)


def _stack(arrows: dict[str, set[str]]) -> tuple[int, int]:
    """The longest way down, and how many modules are on a way back to themselves."""
    height: dict[str, int] = {}
    under_way: set[str] = set()
    circles = 0

    def climb(name: str) -> int:
        nonlocal circles
        if name in under_way:
            circles += 1
            return 0
        if name not in height:
            under_way.add(name)
            height[name] = 1 + max((climb(other) for other in arrows[name]), default=0)
            under_way.discard(name)
        return height[name]

    return max(map(climb, arrows), default=0), circles


class Trail:
    """Every function of ours that is called while it is open, by its module, in every thread begun after it."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self._is_open = False
        self._start = str(Path(payments_async.__file__).parent) + "/"

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Hear of every call, and forget most of them."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def open(self) -> Iterator[list[str]]:
        """Keep what is heard, in a list of its own."""
        self.modules = []
        self._is_open = True
        try:
            yield self.modules
        finally:
            self._is_open = False

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_open and event == "call" and (name := frame.f_code.co_filename).startswith(self._start):
            inner = name[len(self._start) :]
            if not inner.startswith(NOT_OURS):
                self.modules.append(inner)


async def _travel(folder: Path) -> list[tuple[str, list[str]]]:
    worlds: dict[str, Callable[[Path], AbstractAsyncContextManager[Journey]]] = {
        "a payout through the session": _payout,
        "a payout through the outbox": _paid,
        "a notification, no inbox": _inline,
        "a notification, with an inbox": _durable,
        "a row of a payroll file, to its report": _row_of_a_file,
        "an order whose answer was lost": _recovery,
    }
    told = []
    trail = Trail()  # one for all: a thread that a journey began may serve the next
    with trail.watching():
        for number, (title, world) in enumerate(worlds.items()):
            place = folder / str(number)
            place.mkdir()
            async with world(place) as journey:
                await journey(1)
                with trail.open() as modules:
                    await journey(2)
            told.append((title, modules))
    return told


def _crossings(modules: list[str]) -> int:
    return sum(one != other for one, other in itertools.pairwise(modules))


@asynccontextmanager
async def _service() -> AsyncIterator[tuple[Sandbox, PaymentsSession]]:
    async with Sandbox() as sandbox:
        who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
        async with PaymentsSession(sandbox.base_url, who) as payments:
            yield sandbox, payments


def _order(number: int) -> PayoutOrder:
    return PayoutOrder(
        request_id=f"order-{number}",
        amount=Decimal(1000 + number),
        currency="UGX",
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name=f"Beneficiary {number}", phone_number=f"+25677200000{number}"),
        destination=MobileMoneyWallet(f"+25677200000{number}"),
    )


@asynccontextmanager
async def _payout(folder: Path) -> AsyncIterator[Journey]:
    async with _service() as (_, payments):

        async def journey(number: int) -> None:
            await payments.payouts.send(_order(number))

        yield journey


@asynccontextmanager
async def _paid(folder: Path) -> AsyncIterator[Journey]:
    async with (
        _service() as (_, payments),
        SqliteJournal(folder / "journal.db", state_folder=folder / "state") as journal,
        Outbox(payments, journal) as outbox,
    ):

        async def journey(number: int) -> None:
            await outbox.pay(_order(number))

        yield journey


@asynccontextmanager
async def _inline(folder: Path) -> AsyncIterator[Journey]:
    async with _heard(Receiver(senders=["127.0.0.1"])) as journey:
        yield journey


@asynccontextmanager
async def _durable(folder: Path) -> AsyncIterator[Journey]:
    async with (
        SqliteJournal(folder / "journal.db", state_folder=folder / "state") as journal,
        _heard(Receiver(inbox=journal, senders=["127.0.0.1"])) as journey,
    ):
        yield journey


@asynccontextmanager
async def _heard(receiver: Receiver) -> AsyncIterator[Journey]:
    """Post a notification, and wait until its handler has run."""
    handled = asyncio.Event()

    @receiver.on(TransactionSucceeded)
    async def settled(event: TransactionSucceeded) -> None:
        handled.set()

    async with serving(receiver, port=0) as (host, port), aiohttp.ClientSession() as http:

        async def journey(number: int) -> None:
            handled.clear()
            made = notification(f"order-{number}", transaction_id=f"transaction-{number}")
            headers = {"Content-Type": "application/json"}
            async with http.post(f"http://{host}:{port}/ipn?{made.query}", data=made.body, headers=headers) as answer:
                assert answer.status == 200, answer.status
            async with asyncio.timeout(60):
                await handled.wait()

        yield journey


@asynccontextmanager
async def _row_of_a_file(folder: Path) -> AsyncIterator[Journey]:
    """A file of one row: read, planned, sent, and told in a report."""
    async with (
        _service() as (_, payments),
        SqliteJournal(folder / "journal.db", state_folder=folder / "state") as journal,
    ):

        async def journey(number: int) -> None:
            path = folder / f"{number}.csv"
            path.write_text(
                "request_id,kind,amount,currency,name,phone_number,product_item_id\n"
                f"row-{number},mobile_money,{500 + number},UGX,Grace Akello,+25677200001{number},"
                "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG\n"
            )
            batch = await read_batch(path)
            assert not batch.problems, batch.problems
            await plan(payments, batch, journal=journal, batch_id=str(number))
            await run_batch(payments, journal, str(number), batch.orders)
            await report(journal, str(number), csv=folder / f"{number}-report.csv")

        yield journey


@asynccontextmanager
async def _recovery(folder: Path) -> AsyncIterator[Journey]:
    """An order was sent and its answer lost: it is looked for, and found."""
    async with (
        _service() as (sandbox, payments),
        SqliteJournal(folder / "journal.db", state_folder=folder / "state") as journal,
    ):
        for number in (1, 2):
            sandbox.script(Fault.LOST_AFTER, request_id=f"order-{number}")
            await run_batch(payments, journal, str(number), [_order(number)])

        async def journey(number: int) -> None:
            found = await reconcile(
                payments, journal, str(number), settings=ReconcileSettings(grace=0.0, interval=0.01)
            )
            assert not found.unknown, found

        yield journey


if __name__ == "__main__":
    main()

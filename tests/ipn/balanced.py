"""Receivers behind a splitter, on one PostgreSQL: every notification comes three times, whoever is killed meanwhile.

    python tests/ipn/balanced.py [--notifications 5000] [--receivers 2] [--kills 12] [--stops 4] [--seed 1]

Each delivery goes to whichever receiver the splitter picks, until it is answered 200. Meanwhile receivers are killed
and started again, and the server of the database is stopped as by a power cut. What was handled stands in a file, a
line for each time. At the end it is said what is missing, what is there twice, and how soon the dead were replaced.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import attrs
import psycopg

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from ipn.notifications import notification
from ipn.ports import free_port
from journal.postgres import OwnServer, place_for

from payments_async.ipn import HandlerPolicy, Receiver, TransactionEvent, serve
from payments_async.journal import PostgresJournal

_HOST = "127.0.0.1"
_TIMES = 3
_SENDERS = 24
_PATIENT, _HASTY = 30.0, 5.0  # seconds for a handler: by them go leases, which outlive a stop of the server


@attrs.frozen(kw_only=True)
class Told:
    """What came of it.

    Attributes:
        missing: Transactions that were answered 200 and are no event.
        repeated: Transactions that are several events.
        unhandled: Events that no handler has finished with.
        renamed: Transactions that handlers heard of under several ids.
        again: How many events were handled more than once.
        pending: Events that are still to be handled.
        handled: Events by how often they were handled.
        takeovers: Seconds from each kill until nothing of the dead receiver was held any more.
    """

    missing: set[str]
    repeated: set[str]
    unhandled: set[str]
    renamed: set[str]
    pending: int
    handled: Counter[int]
    takeovers: Sequence[float]

    @property
    def again(self) -> int:
        return sum(count for times, count in self.handled.items() if times > 1)


class Splitter:
    """Gives each connection to the next receiver that takes it."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._next = 0
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Splitter]:
        """Listen."""
        server = await asyncio.start_server(self._split, _HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()

    async def _split(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            for _ in self._ports:
                self._next += 1
                try:
                    inner = await asyncio.open_connection(_HOST, self._ports[self._next % len(self._ports)])
                except OSError:
                    continue
                await asyncio.gather(_pass_on(reader, inner[1]), _pass_on(inner[0], writer))
                break
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class Fleet:
    """Receivers in processes of their own."""

    def __init__(self, server: OwnServer, handled: Path, count: int, timeout: float) -> None:
        self.ports = [free_port() for _ in range(count)]
        self._server = server
        self._handled = handled
        self._timeout = timeout
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Start all of them."""
        self._processes = [await self._started(port) for port in self.ports]

    async def kill(self, place: int) -> None:
        """Kill one, and start it again."""
        self._processes[place].send_signal(signal.SIGKILL)
        await self._processes[place].wait()
        self._processes[place] = await self._started(self.ports[place])

    async def end(self) -> None:
        """Kill all of them."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()

    async def _started(self, port: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--serve", str(port), self._server.dsn, str(self._handled), str(self._timeout)
        )  # fmt: skip


async def serving(port: int, dsn: str, handled: int, timeout: float) -> None:
    """One receiver, until it is killed; its handler takes some time and then writes a line."""
    policy = HandlerPolicy(timeout=timeout, poll=0.2, wait_initial=0.1, wait_max=1.0)
    while True:
        try:
            async with PostgresJournal(dsn, state_folder=None) as journal:
                receiver = Receiver(journal, senders=[_HOST], policy=policy)

                @receiver.on(TransactionEvent)
                async def settle(event: TransactionEvent) -> None:
                    await asyncio.sleep(random.random() / 50)
                    os.write(handled, f"{event.event_id} {event.transaction_id}\n".encode())  # whole, by O_APPEND

                await serve(receiver, _HOST, port)
        except Exception as error:  # noqa: BLE001 - the server is away: whoever watches over a receiver starts it again
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            await asyncio.sleep(0.2)


def lines_of(handled: Path) -> list[list[str]]:
    """What was handled: the id of the event, and its transaction."""
    return [line.split() for line in handled.read_text(encoding="ascii").splitlines()]


async def send(port: int, numbers: list[int], answered: set[str]) -> None:
    """Send what is left, each until it is answered 200."""
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while numbers:
        number = numbers.pop()
        body = notification(f"t-{number}")
        while True:
            try:
                if connection is None:
                    connection = await asyncio.open_connection(_HOST, port)
                reader, writer = connection
                writer.write(b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0]))
            except (OSError, asyncio.IncompleteReadError):
                if connection is not None:
                    connection[1].close()
                connection = None
                await asyncio.sleep(0.02)
                continue
            if head.startswith(b"HTTP/1.1 200"):
                break
            await asyncio.sleep(0.02)
        answered.add(f"t-{number}")
    if connection is not None:
        connection[1].close()


async def run(
    server: OwnServer, handled: Path, *, count: int, receivers: int = 2, kills: int = 0, stops: int = 0, seed: int = 1
) -> Told:
    """Send everything, disturb it so often meanwhile, and tell what came of it."""
    chance, answered, takeovers = random.Random(seed), set[str](), list[float]()
    numbers = [number for number in range(count) for _ in range(_TIMES)]
    chance.shuffle(numbers)
    total = len(numbers)
    fleet = Fleet(server, handled, receivers, _HASTY if kills or stops else _PATIENT)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(fleet.end)
        await fleet.start()
        splitter = await stack.enter_async_context(Splitter(fleet.ports).listening())
        troubles = ["kill"] * kills + ["stop"] * stops
        chance.shuffle(troubles)
        async with asyncio.TaskGroup() as group:
            for _ in range(_SENDERS):
                group.create_task(send(splitter.port, numbers, answered))
            for place, trouble in enumerate(troubles, 1):
                while numbers and total - len(numbers) < place * total / (len(troubles) + 1):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                if trouble == "stop":
                    await asyncio.to_thread(server.stop, "immediate")
                    await asyncio.to_thread(server.start)
                else:
                    before = await asyncio.to_thread(rows, server, _HOLDERS)
                    begun = time.monotonic()
                    await fleet.kill(chance.randrange(receivers))
                    takeovers.append(await free_of_the_dead(server, before) - begun)
        async with asyncio.timeout(120):
            while await asyncio.to_thread(rows, server, _WAITS):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    events = Counter(name for (name,) in rows(server, "SELECT transaction_id FROM payments.ipn_event"))
    lines = await asyncio.to_thread(lines_of, handled)
    ids: dict[str, set[str]] = defaultdict(set)
    for event_id, name in lines:
        ids[name].add(event_id)
    times = Counter(name for _, name in lines)
    return Told(
        missing=answered - events.keys(),
        repeated={name for name, number in events.items() if number > 1},
        unhandled=events.keys() - ids.keys(),
        renamed={name for name, numbers_ in ids.items() if len(numbers_) > 1},
        pending=len(rows(server, _WAITS)),
        handled=Counter(times.values()),
        takeovers=takeovers,
    )


_WAITS = "SELECT 1 FROM payments.delivery WHERE status = 'pending'"
_HOLDERS = "SELECT name FROM payments.holder"
_HELD_BY_THE_DEAD = """SELECT DISTINCT p.holder FROM payments.delivery p WHERE p.holder <> '' AND NOT EXISTS (
    SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted
    AND lpad(to_hex(CAST(l.classid AS BIGINT)), 8, '0') || lpad(to_hex(CAST(l.objid AS BIGINT)), 8, '0') = p.holder)"""


async def free_of_the_dead(server: OwnServer, before: list[tuple[str]]) -> float:
    """When nothing was held any more by those who are gone of these."""
    async with asyncio.timeout(120):
        while {*await asyncio.to_thread(rows, server, _HELD_BY_THE_DEAD)} & {*before}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return time.monotonic()


def rows(server: OwnServer, sql: str) -> list[tuple[str]]:
    """What a query finds."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        try:
            return connection.execute(sql.encode()).fetchall()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return []  # not made yet


async def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notifications", type=int, default=5000)
    parser.add_argument("--receivers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--stops", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        port, dsn, handled, timeout = arguments.serve
        await serving(int(port), dsn, os.open(handled, os.O_WRONLY | os.O_APPEND | os.O_CREAT), float(timeout))
        return
    server = OwnServer(place_for("balanced"))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        options = {"receivers": arguments.receivers, "kills": arguments.kills, "stops": arguments.stops}
        told = await run(
            server, Path(folder) / "handled", count=arguments.notifications, seed=arguments.seed, **options
        )
    server.remove()
    sys.stdout.write(
        f"{arguments.notifications} notifications, {_TIMES} times each, {arguments.receivers} receivers, "
        f"{arguments.kills} kills, {arguments.stops} stops of the server, {time.monotonic() - begun:.0f} s\n"
        f"answered and missing {len(told.missing)}, several events {len(told.repeated)}, "
        f"unhandled {len(told.unhandled)}, under several ids {len(told.renamed)}, pending {told.pending}\n"
        f"handled more than once {told.again}; by times {dict(sorted(told.handled.items()))}\n"
        f"free of the dead after {', '.join(f'{seconds:.1f}' for seconds in sorted(told.takeovers))} s\n"
    )


if __name__ == "__main__":
    asyncio.run(main())

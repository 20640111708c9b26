"""What others take for the same on this machine: a job that is put into a queue, and a call of another service's SDK.

    python tests/benchmarks/peers.py sql|huey|procrastinate|pgqueuer|stripe|openai [--dsn DSN] [--count 500]

A queue tells its puts a second, one by one and by 100 callers at once. An SDK tells its processor time for a call,
beside a bare POST by aiohttp. One that is not installed says so.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from bench_bulk import served

BODY = {"request_id": "x" * 36, "amount": 150000, "who": "y" * 300}
CALLERS = 100
ROUNDS = 3


async def rates(put: Callable[[], Awaitable[Any]], count: int) -> None:
    """Print the puts in a second."""
    found = []
    for callers in (1, CALLERS):
        todo = iter(range(count * (1 if callers == 1 else 4)))

        async def caller() -> None:
            for _ in todo:  # noqa: B023 - they end before the next
                await put()

        begun = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        found.append(count * (1 if callers == 1 else 4) / (time.perf_counter() - begun))
    print(f"one by one {found[0]:.0f}/s, {CALLERS} at once {found[1]:.0f}/s")


async def sql(_: str, count: int, folder: Path) -> None:
    """An INSERT into a file of SQLite, with its commit."""
    connection = sqlite3.connect(folder / "rows.db", isolation_level=None)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE job (body TEXT)")

    async def put() -> None:
        connection.execute("INSERT INTO job VALUES (?)", (str(BODY),))

    await rates(put, count)


async def huey(_: str, count: int, folder: Path) -> None:
    """A task of Huey on SQLite."""
    import huey as library

    tasks = library.SqliteHuey(filename=str(folder / "huey.db"), fsync=True)

    @tasks.task()  # type: ignore[untyped-decorator,unused-ignore]
    def job(body: object) -> None:
        return

    async def put() -> None:
        job(BODY)

    await rates(put, count)


async def procrastinate(dsn: str, count: int, _: Path) -> None:
    """A job of procrastinate in PostgreSQL."""
    import procrastinate as library

    app = library.App(connector=library.PsycopgConnector(conninfo=dsn))

    @app.task(name="job")
    async def job(body: object) -> None:
        return

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await rates(lambda: job.defer_async(body=BODY), count)


async def pgqueuer(dsn: str, count: int, _: Path) -> None:
    """A job of PGQueuer in PostgreSQL."""
    import asyncpg
    from pgqueuer.db import AsyncpgPoolDriver
    from pgqueuer.queries import Queries

    async with asyncpg.create_pool(dsn, min_size=2, max_size=10) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        await rates(lambda: queries.enqueue("job", repr(BODY).encode()), count)


async def stripe(_: str, count: int, _folder: Path) -> None:
    """A transfer by stripe-python on aiohttp."""
    import stripe as library

    async def calls(base: str, stack: AsyncExitStack) -> Callable[[], Awaitable[Any]]:
        client = library.StripeClient(
            "sk_test_x", base_addresses={"api": base}, http_client=library.AIOHTTPClient(), max_network_retries=0
        )
        return lambda: client.v1.transfers.create_async({"amount": 150000, "currency": "ugx", "destination": "y" * 300})

    await beside_bare(calls, count)


async def openai(_: str, count: int, _folder: Path) -> None:
    """A call by openai-python on its own HTTP client."""
    import openai as library

    async def calls(base: str, stack: AsyncExitStack) -> Callable[[], Awaitable[Any]]:
        client = await stack.enter_async_context(library.AsyncOpenAI(api_key="x", base_url=base, max_retries=0))
        messages: Any = [{"role": "user", "content": "y" * 300}]
        return lambda: client.chat.completions.create(model="x", messages=messages)

    await beside_bare(calls, count)


async def beside_bare(
    calls: Callable[[str, AsyncExitStack], Awaitable[Callable[[], Awaitable[Any]]]], count: int
) -> None:
    """Print the processor's time for a call, in turns with a bare POST, and the least of each."""
    with served("raw", 0.0) as base:
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession())

            async def bare() -> None:
                async with http.post(f"{base}/v1", json=BODY) as answer:
                    await answer.json()

            ways = {"bare": bare, "call": await calls(base, stack)}
            costs: dict[str, list[float]] = {}
            for _ in range(ROUNDS + 1):  # the first warms up
                for name, way in ways.items():
                    begun = time.process_time()
                    for _ in range(count):
                        await way()
                    costs.setdefault(name, []).append((time.process_time() - begun) / count)
    bare_cost, cost = min(costs["bare"][1:]), min(costs["call"][1:])
    print(f"{1e6 * cost:.0f} us, {cost / bare_cost:.1f} of bare aiohttp")


PEERS: dict[str, Callable[[str, int, Path], Awaitable[None]]] = {
    "sql": sql,
    "huey": huey,
    "procrastinate": procrastinate,
    "pgqueuer": pgqueuer,
    "stripe": stripe,
    "openai": openai,
}


def main() -> None:
    """Read the command line and measure one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--dsn", default="")
    parser.add_argument("--count", type=int, default=500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(PEERS[arguments.peer](arguments.dsn, arguments.count, Path(folder)))
        except ImportError as error:
            print(f"skipped: {error}")


if __name__ == "__main__":
    main()

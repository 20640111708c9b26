"""A server that is stopped, killed, put back from a backup, or promoted: nothing is lost, and nothing is sent twice."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from journal.factories import BATCH, IDENTITY, claimed, loaded, missed, order, orders, permitted, transaction_id
from journal.postgres import OwnServer, place_for

from payments_async.journal import (
    JournalBehind,
    JournalLost,
    JournalReadOnly,
    JournalUnavailable,
    NotLookedFor,
    NotMigrated,
    PostgresJournal,
    Signal,
    State,
)
from payments_async.journal._postgres import _pool
from payments_async.journal._statements._entries import Commit
from payments_async.journal.contract import Outcome, Permit

T = TypeVar("T")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    """A server of this module alone."""
    server = OwnServer(place_for("own"))
    yield server
    server.remove()


@pytest.fixture
def dsn(server: OwnServer) -> str:
    """A database without a journal."""
    server.start()
    server.execute("DROP SCHEMA IF EXISTS payments CASCADE")
    return server.dsn


async def send(journal: PostgresJournal, sent: list[str]) -> None:
    """Send all orders of the batch, and go on after every failure."""
    while (chunk := await anyhow(journal.claim_chunk, BATCH, "worker")) is not None:
        for held in chunk.orders:
            try:
                permit = await journal.permit(chunk, held)
            except JournalUnavailable:
                continue  # whether it was granted is not known: so it is not used
            if isinstance(permit, Permit):
                sent.append(permit.request_id)
                accepted = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(held.id))
                await anyhow(journal.record, accepted)
        await anyhow(journal.release_chunk, chunk)


async def anyhow(call: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """What a call gives once the server is there."""
    while True:
        with suppress(JournalUnavailable):
            return await call(*arguments)


async def test_a_server_that_is_killed_while_orders_are_sent(server: OwnServer, dsn: str) -> None:
    """Each is sent once at most, everything that was recorded is there, and what was under way is known."""
    sent: list[str] = []
    async with PostgresJournal(dsn, busy_timeout=60) as journal:
        await journal.open_run(BATCH, IDENTITY)
        await journal.load(BATCH, orders(600), owner="loader")
        sending = asyncio.ensure_future(send(journal, sent))
        for count in (100, 250, 400):
            while len(sent) < count and not sending.done():
                await journal.committed(await journal.committed(0, timeout=0), timeout=0.05)
            await asyncio.to_thread(server.stop, "immediate")
            await asyncio.to_thread(server.start)
        await sending
        assert len(set(sent)) == len(sent)
        entries = {entry.request_id: entry async for entry in journal.entries(BATCH)}
        assert {State.ACCEPTED} == {entries[request_id].state for request_id in sent}
        # a permit whose commit was not answered: it may stand, and nobody has sent by it
        assert {State.UNKNOWN, State.ACCEPTED} >= {entry.state for entry in entries.values()}
        assert 3 >= sum(entry.state is State.UNKNOWN for entry in entries.values())
        await journal.check()


async def test_whoever_waits_comes_back_after_a_restart(server: OwnServer, dsn: str) -> None:
    """By themselves: who writes, who reads, who listens and who shows that they live."""
    async with PostgresJournal(dsn, busy_timeout=60) as one, PostgresJournal(dsn, busy_timeout=60) as other:
        chunk = await claimed(one)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        await permitted(one, chunk)
        assert 1 == (await other.progress(BATCH)).counts["sending"]
        async with asyncio.timeout(60):
            while await holders(dsn) != 2:
                await one.committed(await one.committed(0, timeout=0), timeout=0.05)
        waiting = asyncio.ensure_future(heard(other))
        async with asyncio.timeout(60):
            while not waiting.done():
                await one.check_writable()
                await asyncio.wait([waiting], timeout=0.5)
        assert await other.claim_chunk(BATCH, "other") is None  # nobody was taken for dead


async def heard(journal: PostgresJournal) -> int:
    """Wait until something was committed."""
    return await journal.committed(await journal.committed(0, timeout=60), timeout=60)


async def holders(dsn: str) -> int:
    """How many show that they live."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        found = await connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
        )
        row = await found.fetchone()
    assert row is not None
    return int(row[0])


async def test_a_server_that_is_away_for_too_long(server: OwnServer, dsn: str) -> None:
    """Is told of, and nothing was granted; once it is back everything goes on. To close waits for it once."""
    async with PostgresJournal(dsn, busy_timeout=2.0) as journal:
        chunk = await claimed(journal)
        await asyncio.to_thread(server.stop)
        with pytest.raises(JournalUnavailable, match="cannot be reached"):
            await journal.permit(chunk, chunk.orders[0])
        with pytest.raises(JournalUnavailable):
            await journal.progress(BATCH)
        await asyncio.to_thread(server.start)
        assert (await permitted(journal, chunk)).attempt == 1
        await asyncio.to_thread(server.stop)
        began = time.monotonic()
        for _ in range(5):
            with pytest.raises(JournalUnavailable):
                await journal.release_chunk(chunk)
    assert 2.0 <= time.monotonic() - began < 8.0


async def test_a_session_that_another_tenant_opened_after_a_restart(
    server: OwnServer, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who borrows it looks at its own tables first: a trigger that was switched off meanwhile does not stay unseen."""
    monkeypatch.setattr(_pool, "_KEPT", 1)
    async with (
        PostgresJournal(dsn, schema="one", state_folder=None) as one,
        PostgresJournal(dsn, schema="other", state_folder=None) as other,
    ):
        for journal in (one, other):
            await journal.open_outbox("shop", IDENTITY)
            await journal.put("shop", order(1))
        server.execute("ALTER TABLE other.outbox DISABLE TRIGGER outbox_changed")
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        await one.put("shop", order(2))
        with pytest.raises(NotMigrated, match="its trigger outbox_changed may not fire"):
            await other.put("shop", order(2))
        server.execute("ALTER TABLE other.outbox ENABLE ALWAYS TRIGGER outbox_changed")
        await other.put("shop", order(2))


@pytest.fixture
async def backup(server: OwnServer, dsn: str, tmp_path: Path) -> AsyncIterator[OwnServer]:
    """A copy of the server from before an order was sent, while the server has gone on and is stopped."""
    async with PostgresJournal(dsn) as journal:
        await loaded(journal)
    await asyncio.to_thread(server.stop)
    copy = await asyncio.to_thread(server.copied, place_for("backup"))
    await asyncio.to_thread(server.start)
    async with PostgresJournal(dsn) as journal:
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
    await asyncio.to_thread(server.stop)
    yield copy
    copy.remove()


async def is_quarantined(journal: PostgresJournal) -> bool:
    """Whether nothing is sent before it was looked for."""
    with pytest.raises(NotLookedFor):
        await journal.lift_quarantine(BATCH, who="Ann", why="I think so")
    return bool((await journal.run(BATCH)).quarantined) and await journal.claim_chunk(BATCH, "worker") is None


async def test_a_server_put_back_from_a_backup(backup: OwnServer) -> None:
    """It calls itself as before; that it has forgotten a commit this machine remembers."""
    await asyncio.to_thread(backup.start)
    async with PostgresJournal(backup.dsn) as journal:
        assert await is_quarantined(journal)
        await missed(journal)
        assert 1 == await journal.lift_quarantine(BATCH, who="Ann", why="looked for")
        assert await journal.claim_chunk(BATCH, "worker") is not None


async def test_a_standby_that_lagged_and_was_promoted(backup: OwnServer) -> None:
    """It is on another timeline, which every machine sees, also one that remembers nothing."""
    (backup.place / "data/standby.signal").touch()
    await asyncio.to_thread(backup.start)
    with pytest.raises(JournalReadOnly, match="standby"):
        await PostgresJournal(backup.dsn, state_folder=None).__aenter__()
    await asyncio.to_thread(backup.promote)
    async with PostgresJournal(backup.dsn, state_folder=None) as journal:
        assert await is_quarantined(journal)
    async with PostgresJournal(backup.dsn, state_folder=None) as journal:
        assert await is_quarantined(journal)


async def test_a_promotion_while_a_journal_is_open(server: OwnServer, dsn: str) -> None:
    """Whoever comes back to another timeline grants nothing more: the permits of before are of the old one."""
    async with PostgresJournal(dsn, state_folder=None, busy_timeout=60) as journal:
        chunk = await claimed(journal)
        await asyncio.to_thread(server.stop)
        (server.place / "data/standby.signal").touch()
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.promote)
        assert not isinstance(await journal.permit(chunk, chunk.orders[0]), Permit)
        assert await is_quarantined(journal)
        entry = await journal.entry(order(0).request_id)
        assert entry is not None
        assert State.PLANNED is entry.state


async def test_a_server_put_back_while_a_journal_is_open(server: OwnServer, dsn: str) -> None:
    """On a machine that keeps no memory, whoever has it open knows what was forgotten."""
    place = place_for("earlier")
    async with PostgresJournal(dsn, state_folder=None, busy_timeout=60) as journal:
        chunk = await claimed(journal)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.copied, place)
        await asyncio.to_thread(server.start)
        await permitted(journal, chunk)
        await asyncio.to_thread(server.stop)
        shutil.rmtree(server.place / "data")
        shutil.move(place / "data", server.place / "data")
        shutil.rmtree(place)
        await asyncio.to_thread(server.start)
        assert not isinstance(await journal.permit(chunk, chunk.orders[0]), Permit)
        assert await is_quarantined(journal)


async def test_a_copy_of_the_server_that_goes_on_stops_the_original(server: OwnServer, dsn: str) -> None:
    """Both call themselves the same: what one of them has permitted, the other one permits no more."""
    async with PostgresJournal(dsn) as journal:
        await loaded(journal)
    await asyncio.to_thread(server.stop)
    copy = await asyncio.to_thread(server.copied, place_for("twin"))
    try:
        for one in (server, copy):
            await asyncio.to_thread(one.start)
        async with PostgresJournal(dsn) as journal, PostgresJournal(copy.dsn) as other:
            chunk = await journal.claim_chunk(BATCH, "worker")
            theirs = await other.claim_chunk(BATCH, "worker")
            assert chunk is not None
            assert theirs is not None
            await permitted(other, theirs)
            with pytest.raises(JournalBehind, match="has gone on"):
                await journal.permit(chunk, chunk.orders[0])
            assert not isinstance(await journal.permit(chunk, chunk.orders[0]), Permit)
            assert (await journal.run(BATCH)).quarantined
    finally:
        await asyncio.to_thread(copy.remove)


async def test_a_namespace_that_was_emptied(server: OwnServer, dsn: str) -> None:
    """A journal with orders was there: none is made in its place."""
    async with PostgresJournal(dsn) as journal:
        await claimed(journal)
    server.execute("DROP SCHEMA payments CASCADE")
    with pytest.raises(JournalLost, match="3 orders"):
        await PostgresJournal(dsn).__aenter__()


async def test_a_server_that_may_forget_after_a_power_cut(server: OwnServer, dsn: str) -> None:
    """Is refused, unless somebody says that it is good enough."""
    server.execute("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    try:
        with pytest.raises(JournalUnavailable, match="fsync"):
            await PostgresJournal(dsn).__aenter__()
        async with PostgresJournal(dsn, allow_unsafe=True) as journal:
            assert journal.is_new
    finally:
        server.execute("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")


async def test_a_database_whose_commits_are_usually_not_waited_for(server: OwnServer, dsn: str) -> None:
    """Those by which a journal leaves for another place are."""
    await PostgresJournal(dsn).migrate()
    server.execute("ALTER DATABASE postgres SET synchronous_commit = off")
    try:
        with PostgresJournal(dsn).new_database().retired() as connection:
            assert ("on",) == connection.execute("SHOW synchronous_commit").fetchone()
    finally:
        server.execute("ALTER DATABASE postgres RESET synchronous_commit")


async def test_a_server_that_waits_for_no_commit_any_more(server: OwnServer, dsn: str) -> None:
    """Those of the journal are waited for as before; and where nothing is sure any more, nothing is granted."""
    async with PostgresJournal(dsn) as journal, await psycopg.AsyncConnection.connect(dsn) as other:
        chunk = await claimed(journal)

        async def changed(setting: str, value: str) -> None:
            server.execute(f"ALTER SYSTEM SET {setting} = {value}", "SELECT pg_reload_conf()")
            async with asyncio.timeout(60):
                while (value,) != await (await other.execute(f"SHOW {setting}".encode())).fetchone():
                    await other.rollback()

        try:
            await changed("synchronous_commit", "off")
            await permitted(journal, chunk)
            settings = await journal._writer.submit(
                "check_writable", lambda commit: commit.execute("SHOW synchronous_commit").fetchone()
            )
            assert ("on",) == settings
            await changed("fsync", "off")
            async with asyncio.timeout(60):
                while await _is_writable(journal):  # each session hears of it at a moment of its own
                    pass
            with pytest.raises(JournalUnavailable, match="fsync"):
                await journal.permit(chunk, chunk.orders[1])
            await changed("fsync", "on")
            async with asyncio.timeout(60):
                while not await _is_writable(journal):
                    pass
            await permitted(journal, chunk, 1)
        finally:
            server.execute(
                "ALTER SYSTEM RESET fsync", "ALTER SYSTEM RESET synchronous_commit", "SELECT pg_reload_conf()"
            )


async def test_a_server_that_may_forget_from_the_middle_of_a_commit_on(server: OwnServer, dsn: str) -> None:
    """The first work in it fails, and the transaction is begun anew: nothing of the rest is told as stored."""

    def fails(commit: Commit) -> None:
        server.execute("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        while commit.execute("SHOW fsync").fetchone() == ("on",):
            pass
        raise ValueError

    async with PostgresJournal(dsn) as journal:
        works: list[Callable[[Commit], object]] = [fails, lambda commit: commit.execute("SELECT 1").fetchone()]
        try:
            done = [journal._writer.submit("check_writable", work) for work in works]
            ended = await asyncio.wait_for(asyncio.gather(*done, return_exceptions=True), 60)
        finally:
            server.execute("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
        assert [JournalUnavailable] * 2 == list(map(type, ended))


async def _is_writable(journal: PostgresJournal) -> bool:
    try:
        await journal.check_writable()
    except JournalUnavailable:
        return False
    return True


async def test_a_user_with_few_rights(server: OwnServer, dsn: str) -> None:
    """One makes the tables, another one works with them, and may change none; what is taken from it is an error."""
    async with PostgresJournal(dsn):
        pass
    server.execute(
        "DROP ROLE IF EXISTS payer", "CREATE ROLE payer LOGIN", "GRANT USAGE ON SCHEMA payments TO payer",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA payments TO payer",
    )  # fmt: skip
    try:
        async with PostgresJournal(dsn.replace("//postgres@", "//payer@")) as journal:
            chunk = await claimed(journal)
            await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
            assert 1 == (await journal.progress(BATCH)).counts["accepted"]
            await journal.check()
            await journal.open_run("another", IDENTITY)
            server.execute("ALTER TABLE payments.outbox ENABLE ROW LEVEL SECURITY")  # which hides all rows
            with pytest.raises(JournalReadOnly, match=r"all rows of outbox.*outbox DISABLE ROW LEVEL SECURITY"):
                await journal.entry(chunk.orders[0].request_id)
            server.execute("ALTER TABLE payments.outbox DISABLE ROW LEVEL SECURITY")
            server.execute("REVOKE INSERT, UPDATE ON payments.outbox FROM payer")  # while it is open
            with pytest.raises(JournalReadOnly, match=r"may not INSERT, UPDATE outbox. As the owner"):
                await journal.permit(chunk, chunk.orders[1])
            with pytest.raises(JournalReadOnly, match=r"may not INSERT, UPDATE outbox. As the owner"):
                await journal.load("another", orders(3, batch="another"), owner="loader")
        with pytest.raises(JournalReadOnly, match="may not INSERT, UPDATE outbox"):
            await PostgresJournal(dsn.replace("//postgres@", "//payer@")).__aenter__()
    finally:
        server.execute("DROP OWNED BY payer", "DROP ROLE payer")


async def test_a_copy_that_another_journal_goes_on_to_write_to(server: OwnServer, dsn: str) -> None:
    """It hands out nothing while it is a subscriber: what the other says of itself would end its quarantine."""
    async with PostgresJournal(dsn) as journal:
        await loaded(journal)
    server.execute("ALTER SYSTEM SET wal_level = logical")
    server.stop()
    server.start()
    server.execute("CREATE DATABASE subscriber TEMPLATE postgres", "CREATE PUBLICATION theirs FOR TABLE payments.run")
    server.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
    subscriber = dsn.replace("@/postgres?", "@/subscriber?")
    try:
        with psycopg.connect(subscriber, autocommit=True) as connection:
            about = f"host={server.place / 'data'} user=postgres dbname=postgres"
            connection.execute(
                f"""CREATE SUBSCRIPTION theirs CONNECTION '{about}' PUBLICATION theirs
                WITH (create_slot = false, copy_data = false)""".encode()
            )
            try:
                with pytest.raises(JournalUnavailable, match=r"the subscription to .*run of another program"):
                    await PostgresJournal(subscriber).__aenter__()
            finally:
                connection.execute("DROP SUBSCRIPTION theirs")
        async with PostgresJournal(subscriber) as journal:
            assert 1 == (await journal.run(BATCH)).quarantined
    finally:
        server.execute(
            "DROP DATABASE subscriber WITH (FORCE)", "DROP PUBLICATION theirs", "ALTER SYSTEM RESET wal_level"
        )

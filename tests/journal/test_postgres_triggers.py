"""The triggers and functions of a journal in a database: they fire always, and for the tables that they belong to."""

from collections.abc import Iterator

import psycopg
import pytest
from journal import postgres
from journal.factories import delivery, event, in_outbox, order, permitted
from journal.postgres import OwnServer
from outbox.desks import until

from payments_async.journal import NotMigrated, PostgresJournal, Signal, State
from payments_async.journal.contract import Outcome


@pytest.fixture
def schema() -> Iterator[str]:
    """An empty namespace."""
    yield postgres.new_schema()
    postgres.give_back()


def do(dsn: str, *statements: str) -> None:
    """Do something to the tables by other means."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


async def test_a_namespace_that_was_renamed() -> None:
    """Goes on under its new name with all that belongs to it; one that is made under the old name hears of nothing."""
    dsn = postgres.new_database()
    async with PostgresJournal(dsn) as journal:
        await journal.hear("shop", [State.ACCEPTED])
        chunk = await in_outbox(journal, 2)
        await journal.release_chunk(chunk)
    do(dsn, "ALTER SCHEMA payments RENAME TO before")
    async with PostgresJournal(dsn, state_folder=None) as new, PostgresJournal(dsn, schema="before") as journal:
        await new.hear("shop", [State.ACCEPTED])
        mine = await in_outbox(new, 2)
        taken = await journal.claim_chunk(chunk.batch_id, "worker")
        assert taken is not None
        await journal.record(Outcome(permit=await permitted(journal, taken), signal=Signal.ACCEPTED))
        assert (0, 1) == (await new.last_change(), len(await journal.changes_after("shop", 0)))
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            entry = await journal.lay("shop", order(77), connection)
        assert entry == await journal.entry(order(77).request_id)
        assert None is await new.entry(order(77).request_id)
        await new.receive(delivery(), event(), owner="a", lease=0)
        await journal.receive(delivery(), event(), owner="a", lease=0)
        # by somebody's hand, who has named no namespace
        do(dsn, "UPDATE before.outbox SET state = 'successful', updated_at = updated_at + 1 WHERE state = 'accepted'")
        assert (0, 2) == (await new.last_change(), len(await journal.changes_after("shop", 0)))
        await new.record(Outcome(permit=await permitted(new, mine), signal=Signal.ACCEPTED))
        assert 1 == len(await new.changes_after("shop", 0))


OFF = {
    "ALTER TABLE payments.outbox DISABLE TRIGGER ALL": "outbox_changed",
    "ALTER TABLE payments.outbox ENABLE TRIGGER outbox_changed": "outbox_changed",
    "DROP TRIGGER outbox_changed ON payments.outbox": "outbox_changed",
}


@pytest.mark.parametrize("statement", OFF)
async def test_a_trigger_that_may_not_fire(statement: str) -> None:
    """The journal is not opened, ``check`` names it, and ``migrate`` mends it and what it did not write."""
    dsn = postgres.new_database()
    journal = PostgresJournal(dsn)
    async with journal:
        await journal.hear("shop", [State.ACCEPTED])
        chunk = await in_outbox(journal, 2)
        permits = [await permitted(journal, chunk, place) for place in range(2)]
        await journal.record(Outcome(permit=permits[0], signal=Signal.ACCEPTED))
        do(dsn, statement, "SET session_replication_role = replica")
        await journal.record(Outcome(permit=permits[1], signal=Signal.ACCEPTED))
        told = len(await journal.changes_after("shop", 0))
    with pytest.raises(NotMigrated, match=f"trigger {OFF[statement]} may not fire.*journal migrate --journal"):
        await journal.__aenter__()
    found = await journal.examine()
    assert not found.is_sound
    assert [f"{OFF[statement]} may not fire"] == [one.found for one in found.circumstances if one.is_wrong]
    assert 2 - told == sum(flaw.count for flaw in found.flaws)
    words = [f"let the trigger {OFF[statement]} fire"]
    words += ["write down what became of 1 orders, for handlers"] if told < 2 else []
    assert words == list((await journal.migration()).steps) == list((await journal.migrate()).steps)
    assert (await journal.examine()).is_sound
    async with journal:
        claimed = await journal.claim_changes("shop", [State.ACCEPTED], "handler", lease=60, limit=10)
        assert [State.ACCEPTED] * 2 == [change.state for change in claimed]
        assert sorted({change.id for change in claimed}) == [change.id for change in claimed]
    assert () == (await journal.migration()).steps


async def test_changes_are_written_where_a_session_replays_another(schema: str) -> None:
    """As a restore does, and a server or user whose default that is."""
    options = "&options=-c%20session_replication_role%3Dreplica"
    async with PostgresJournal(f"{postgres.dsn()}{options}", schema=schema) as journal:
        chunk = await in_outbox(journal, 1)
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
        assert 1 == len(await journal.changes_after("shop", 0))
        assert (await journal.examine()).is_sound


@pytest.mark.slow
async def test_a_copy_that_follows_by_logical_replication() -> None:
    """Is sent the changes themselves, and writes none beside them, so that it goes on following."""
    server = OwnServer(postgres.place_for("logical"))
    try:
        server.execute("ALTER SYSTEM SET wal_level = logical")
        server.stop()
        server.start()
        server.execute("CREATE DATABASE copy")
        copy = server.dsn.replace("/postgres?", "/copy?")
        await PostgresJournal(server.dsn).migrate()
        await PostgresJournal(copy).migrate()
        server.execute(
            "CREATE PUBLICATION all_of_it FOR TABLE payments.run, payments.outbox, payments.change",
            "SELECT pg_create_logical_replication_slot('following', 'pgoutput')",
        )
        do(
            copy,
            f"""CREATE SUBSCRIPTION following CONNECTION 'host={server.place}/data user=postgres dbname=postgres'
            PUBLICATION all_of_it WITH (create_slot = false, copy_data = false)""",
        )
        async with PostgresJournal(server.dsn, state_folder=None) as journal:
            chunk = await in_outbox(journal, 1)
            await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
            written = await journal.last_change()
        with psycopg.connect(copy, autocommit=True) as connection:

            async def follows() -> list[tuple[object, ...]]:
                return connection.execute("SELECT id, state FROM payments.change").fetchall()

            await until(follows, [(written, "accepted")])
        do(copy, "DROP SUBSCRIPTION following")
    finally:
        server.remove()

"""Triggers and rules of another program: while they may drop or change rows, nothing is written beside them.

It would be called stored and not be there, or be another amount than was put.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from journal import postgres
from journal.factories import BATCH, IDENTITY, delivery, event, in_outbox, loaded, order

from payments_async.journal import Journal, JournalUnavailable, PostgresJournal, SqliteJournal
from payments_async.testing import Testing

Does = Callable[[Journal], Awaitable[object]]
SHOP = "shop"
KINDS = {
    "drops": "RETURN NULL",
    "alters": 'NEW := jsonb_populate_record(NEW, \'{"amount": "7", "query": "x"}\'); RETURN NEW',
}


@pytest.fixture
def schema() -> Iterator[str]:
    """An empty namespace, which the next test gets without what this one has put there."""
    yield (schema := postgres.new_schema())
    do(schema, "DROP FUNCTION IF EXISTS theirs, hears CASCADE", _WITHOUT_RULES)
    postgres.give_back()


_WITHOUT_RULES = """DO $$ DECLARE one record; BEGIN
    FOR one IN SELECT rulename, tablename FROM pg_rules WHERE schemaname = current_schema()
    LOOP EXECUTE format('DROP RULE %I ON %I', one.rulename, one.tablename); END LOOP; END$$"""


def do(schema: str, *statements: str) -> None:
    """Do something to the tables by other means."""
    with psycopg.connect(postgres.dsn(), options=f"-c search_path={schema}", autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def trigger(table: str, kind: str, when: str = "BEFORE INSERT OR UPDATE") -> str:
    """What makes a trigger of another program."""
    return f"""CREATE OR REPLACE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {KINDS[kind]}; END$$;
        CREATE TRIGGER theirs {when} ON {table} FOR EACH ROW EXECUTE FUNCTION theirs()"""


async def puts(journal: Journal) -> None:
    """An order."""
    await journal.open_outbox(SHOP, IDENTITY)
    await journal.put(SHOP, order(7))


async def loads(journal: Journal) -> None:
    """The orders of a batch."""
    await loaded(journal, 3)


async def lays(journal: Journal) -> None:
    """An order, within a transaction of the application's own."""
    async with await psycopg.AsyncConnection.connect(postgres.dsn()) as connection:
        await journal.lay(SHOP, order(8), connection)


async def lays_many(journal: Journal) -> None:
    """Two of them, by one statement."""
    async with await psycopg.AsyncConnection.connect(postgres.dsn()) as connection:
        await journal.lay_all(SHOP, [order(8), order(9)], connection)


async def receives(journal: Journal) -> None:
    """A notification."""
    await journal.receive(delivery(b"1"), event(), owner="r", lease=0)


async def receives_again(journal: Journal) -> None:
    """The same in other words."""
    await journal.receive(delivery(b"2"), event(), owner="r", lease=0)


MEETS: dict[str, tuple[str, Does]] = {
    "a put": ("outbox", puts),
    "a batch": ("outbox", loads),
    "an order laid in a transaction": ("tray", lays),
    "many laid in one": ("tray", lays_many),
    "a notification": ("ipn_event", receives),
    "one more delivery of it": ("ipn_delivery", receives_again),
}


async def begun(journal: Journal) -> None:
    """With an outbox, and a notification that was received."""
    await journal.release_chunk(await in_outbox(journal, 1))
    await journal.receive(delivery(b"0"), event(1), owner="r", lease=0)
    await journal.open_run(BATCH, IDENTITY)


@pytest.mark.parametrize("kind", ["drops", "alters", "rule"])
@pytest.mark.parametrize("meets", MEETS)
async def test_a_trigger_or_a_rule_that_was_made_meanwhile(schema: str, meets: str, kind: str) -> None:
    """Nothing is called stored while it is there, the error names it, and all goes on as soon as it is gone."""
    table, does = MEETS[meets]
    async with PostgresJournal(postgres.dsn(), schema=schema) as journal:
        await begun(journal)
        if does is receives_again:
            await receives(journal)
        rule = f"CREATE RULE theirs AS ON INSERT TO {table} DO INSTEAD NOTHING"
        do(schema, rule if kind == "rule" else trigger(table, kind))
        what = "rule" if kind == "rule" else "trigger"
        for _ in range(2):
            with pytest.raises(JournalUnavailable, match=f"the {what} theirs on .*{table} of another program"):
                await does(journal)
        assert 1 == (await journal.progress()).total
        do(schema, f"DROP {what} theirs ON {table}")
        await does(journal)


async def test_a_rule_that_an_application_met_in_the_session_that_it_goes_on_with(schema: str) -> None:
    """Its orders lie in the tray once the rule is gone: nothing was prepared that would go on writing nothing."""
    async with (
        PostgresJournal(postgres.dsn(), schema=schema) as journal,
        await psycopg.AsyncConnection.connect(postgres.dsn()) as connection,
    ):
        await begun(journal)
        for number in range(10, 20):
            do(schema, "CREATE RULE theirs AS ON INSERT TO tray DO INSTEAD NOTHING")
            with pytest.raises(JournalUnavailable, match=r"the rule theirs on .*tray of another program"):
                await journal.lay(SHOP, order(number), connection)
            await connection.rollback()
            do(schema, "DROP RULE theirs ON tray")
            await journal.lay(SHOP, order(number), connection)
            await connection.commit()
        assert (10, 0) == await journal.count_laid(SHOP)


async def test_it_is_made_between_two_statements_of_a_commit(schema: str) -> None:
    """The commit is undone, though the trigger was not there when it began."""
    made: list[str] = []

    def makes(point: str) -> None:
        if point == "discard_staged.begun" and not made:
            made.append(point)
            do(schema, trigger("resolution", "alters"))

    async with PostgresJournal(postgres.dsn(), schema=schema, testing=Testing(crash_at=makes)) as journal:
        await begun(journal)
        await lays(journal)
        do(schema, "UPDATE tray SET problem = 'it cannot be read'")
        gone = {"who": "Ann", "why": "it was put twice"}
        with pytest.raises(JournalUnavailable, match="changed the tables meanwhile, and nothing was written"):
            await journal.discard_staged(SHOP, order(8).request_id, **gone)
        do(schema, "DROP TRIGGER theirs ON resolution")
        assert (1, 1) == await journal.count_laid(SHOP)
        await journal.discard_staged(SHOP, order(8).request_id, **gone)
        assert (0, 0) == await journal.count_laid(SHOP)


async def test_a_journal_that_has_one_is_not_opened(schema: str) -> None:
    """Nor brought up to date; ``journal check`` reads it, and says what is wrong and what to do."""
    journal = PostgresJournal(postgres.dsn(), schema=schema)
    async with journal:
        await begun(journal)
    do(schema, trigger("outbox", "drops"), "CREATE RULE also AS ON DELETE TO meta DO INSTEAD NOTHING")
    for refused in (journal.__aenter__(), journal.migrate()):
        with pytest.raises(JournalUnavailable, match=r"the rule also on .*meta, trigger theirs on .*outbox of another"):
            await refused
    wrong = [one for one in (await journal.examine()).circumstances if one.is_wrong]
    assert ["rule also on meta, trigger theirs on outbox"] == [one.found.replace(f"{schema}.", "") for one in wrong]
    assert "drop it" in wrong[0].remedy
    do(schema, "ALTER TABLE outbox DISABLE TRIGGER theirs", "DROP RULE also ON meta")
    async with journal:
        await puts(journal)
    assert (await journal.examine()).is_sound


async def test_triggers_that_fire_after_a_row_or_for_a_statement(schema: str) -> None:
    """Are welcome: they hear of what was written, and change nothing of it."""
    do(schema, "CREATE SCHEMA IF NOT EXISTS heard; CREATE TABLE IF NOT EXISTS heard.of (what text)")
    writes = "INSERT INTO heard.of VALUES (TG_TABLE_NAME); RETURN NULL"
    journal = PostgresJournal(postgres.dsn(), schema=schema)
    async with journal:
        await begun(journal)
        do(
            schema,
            f"CREATE FUNCTION hears() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {writes}; END$$",
            "CREATE TRIGGER each AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION hears()",
            "CREATE TRIGGER once BEFORE INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION hears()",
        )
        await puts(journal)
    assert (await journal.examine()).is_sound
    with psycopg.connect(postgres.dsn()) as connection:
        assert [("outbox",)] * 2 == connection.execute("SELECT what FROM heard.of").fetchall()
        connection.execute("DROP SCHEMA heard CASCADE")


IN_A_FILE = """CREATE TRIGGER theirs BEFORE INSERT ON {} WHEN 1 BEGIN SELECT RAISE(IGNORE); END"""


@pytest.mark.parametrize("meets", [name for name, (table, _) in MEETS.items() if table != "tray"])
async def test_a_trigger_in_a_file(tmp_path: Path, meets: str) -> None:
    """Nothing is written and nothing is opened while it is there; ``check`` names it; then all goes on."""
    path, (table, does) = tmp_path / "j.db", MEETS[meets]
    journal = SqliteJournal(path)
    async with journal:
        await begun(journal)
        if does is receives_again:
            await receives(journal)
        with closing(sqlite3.connect(path)) as file:
            file.execute(IN_A_FILE.format(table))
        for _ in range(2):
            with pytest.raises(JournalUnavailable, match=f"the trigger theirs on {table} of another program"):
                await does(journal)
        assert 1 == (await journal.progress()).total
    with pytest.raises(JournalUnavailable, match=f"the trigger theirs on {table} of another program"):
        await journal.__aenter__()
    found = [one.found for one in (await journal.examine()).circumstances if one.is_wrong]
    assert [f"trigger theirs on {table}"] == found
    with closing(sqlite3.connect(path)) as file:
        file.execute("DROP TRIGGER theirs")
    async with journal:
        await does(journal)
    assert (await journal.examine()).is_sound

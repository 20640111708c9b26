"""A real pgbouncer between a test and its database, where there is one: ``apt-get install pgbouncer`` gives it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from ipn.ports import free_port
from journal import postgres
from psycopg.conninfo import conninfo_to_dict

_HOST = "127.0.0.1"
PGBOUNCER = shutil.which("pgbouncer") or ("/usr/sbin/pgbouncer" if Path("/usr/sbin/pgbouncer").exists() else None)
needs_pgbouncer = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")


def words() -> str:
    """Which one the tests ran on, for the summary."""
    if PGBOUNCER is None:
        return "pgbouncer is not installed: NOTHING was tried behind a pooler"
    told = subprocess.run([PGBOUNCER, "--version"], capture_output=True, text=True, check=True)
    return f"pooler: {told.stdout.splitlines()[0]}"


class Pooler:
    """A pgbouncer in front of the database of this process.

    Args:
        place: A folder of its own.
        options: Of ``pgbouncer.ini``.
    """

    def __init__(self, place: Path, **options: object) -> None:
        place.mkdir(mode=0o755, exist_ok=True)
        self.port = free_port()
        self._file = place / "pgbouncer.ini"
        self._log = place / "log"
        self._known = conninfo_to_dict(postgres.dsn())
        self._write(options)
        command = [str(PGBOUNCER), str(self._file)]
        if os.getuid() == 0:  # which it refuses; and the server's socket is its own user's
            command[1:1] = ["-u", self._user()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._wait()

    @property
    def dsn(self) -> str:
        """Of the database, through the pooler."""
        return f"postgresql://anybody@{_HOST}:{self.port}/{self._known['dbname']}"

    def set(self, **options: object) -> None:
        """Give it other options, while it runs, which it takes in a moment; those who are connected stay so."""
        self._write(options)
        self._process.send_signal(signal.SIGHUP)

    def end(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def _write(self, options: dict[str, object]) -> None:
        server = " ".join(f"{key}='{value}'" for key, value in self._known.items() if key in _OF_SERVER)
        usual = {
            "listen_addr": _HOST,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "session",
            "query_wait_timeout": 20,
        }
        lines = [f"{key} = {value}" for key, value in (usual | options).items()]
        text = "\n".join(["[databases]", f"* = {server}", "[pgbouncer]", *lines, ""])
        self._file.write_text(text, encoding="utf-8")
        if os.getuid() == 0:
            shutil.chown(self._file, self._user())
            self._file.chmod(0o600)

    def _user(self) -> str:
        """The user whom the server runs as, or one who may do nothing."""
        socket = Path(str(self._known.get("host", "")))
        return socket.owner() if socket.is_dir() else "nobody"

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.dsn).close()
            except psycopg.Error:
                assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
                assert time.monotonic() < until
                time.sleep(0.02)
            else:
                return


_OF_SERVER = frozenset({"host", "hostaddr", "port", "user", "password"})


@contextmanager
def pooler(**options: object) -> Iterator[Pooler]:
    """A pooler for a block."""
    place = postgres.place_for("pooler")
    one = Pooler(place, **options)
    try:
        yield one
    finally:
        one.end()
        shutil.rmtree(place)

"""A PostgreSQL server that is some milliseconds away: a proxy that keeps what goes by for half of that, each way.

Threads sleep more exactly than an event loop, which waits for whole milliseconds.
"""

from __future__ import annotations

import argparse
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from journal.lines import address_of
from psycopg import conninfo


@contextmanager
def far(dsn: str, seconds: float) -> Iterator[str]:
    """The DSN of the same database, from where an answer takes so much longer; the proxy is a process of its own."""
    if not seconds:
        yield dsn
        return
    command = [sys.executable, __file__, dsn, str(seconds / 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as line:
        try:
            assert line.stdout is not None
            port = int(line.stdout.readline())
            yield conninfo.make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        finally:
            line.kill()


def _connected(address: tuple[str, int] | str) -> socket.socket:
    """A connection to the server."""
    kind = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    server = socket.socket(kind)
    server.connect(address)
    return server


def _pump(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """Pass on what comes, each piece so much later than it came, until it ends."""
    pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_pass_on, args=(pieces, target), daemon=True).start()
    data = b"-"
    while data:
        try:
            data = source.recv(1 << 20)
        except OSError:
            data = b""
        pieces.put((time.monotonic() + seconds, data))


def _pass_on(pieces: queue.SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
    """Send each piece at its moment; several may be on their way, as on a real line."""
    with suppress(OSError):
        while True:
            moment, data = pieces.get()
            time.sleep(max(0.0, moment - time.monotonic()))
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)


def main() -> None:
    """Listen on a free port, print it, and stay."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    parser.add_argument("seconds", type=float)
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            client, _ = listening.accept()
            server = _connected(address_of(arguments.dsn))
            for end in (client, server):
                with suppress(OSError):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(*ends, arguments.seconds), daemon=True).start()


if __name__ == "__main__":
    main()

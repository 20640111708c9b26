"""The table of speed: each measure now, beside its aim and what others take. It ends after thirteen minutes.

    python tests/benchmarks/table.py [--only import peer ...] [--dsn DSN]

Each line is printed by one of the scripts beside this one, run with little to do. Ratios mean something, and so do
processor times beside each other; a rate depends on what else the machine does, so its load stands in the last line.
Without ``--dsn`` the database is that of the tests, whose files may lie in memory.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_sustained import vacuumed

HERE = Path(__file__).parent
LONGEST = 780.0  # seconds for the whole table; nox takes a minute or two before
_PEER = "skipped.*|one by one.*|.* of bare aiohttp"
# a script with its arguments; for each measure its name, where it stands in what is printed, and its aim
MEASURES: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "bench_outbox.py --alone --rounds 3",
        (
            ("put alone on SQLite", r"^put one by one: (.*)", "2,009/s"),
            ("pay alone on SQLite", r"^pay one by one: (.*)", "CPU 1,000 us"),
        ),
    ),
    ("peers.py sql", (("... peer: an INSERT and its commit, SQLite", _PEER, ""),)),
    ("peers.py huey", (("... peer: huey on SQLite", _PEER, ""),)),
    ("peers.py procrastinate --dsn {dsn}", (("... peer: procrastinate", _PEER, ""),)),
    ("peers.py pgqueuer --dsn {dsn}", (("... peer: PGQueuer", _PEER, ""),)),
    *(
        (
            f"bench_outbox.py --journal {{dsn}} --seconds 4 --away {away} --machines 1 2 4 --callers {callers}",
            tuple(
                (
                    f"pays by {machines} x {callers}, PostgreSQL {1000 * away:g} ms away",
                    rf"^{machines} machines.*: +(.*/s)",
                    aim,
                )
                for machines, aim in zip((1, 2, 4), aims, strict=True)
            ),
        )
        for away, callers, aims in (
            (0.0005, 5, ("400/s", "", "")),
            (0.005, 5, ("200/s", "1.8 of one", "3 of one")),
            (0.0005, 100, ("3,000/s", "", "")),
        )
    ),
    (
        "bench_transaction.py --dsn {dsn} --orders 2000 --turns 3",
        (("put_all of 50 in a transaction, server", r"^  put_all +(.*)", "20 µs"),),
    ),
    (
        "bench_files.py --rows 10000 --rounds 3",
        (
            ("csv and an order (the floor)", r"^csv and order +(.*)", ""),
            ("read_batch, CSV", r"^read_batch CSV +(.*)", "16 us a row"),
            ("read_batch, XLSX", r"^read_batch XLSX +(.*)", "30 us a row"),
            ("read_batch, XLSX of an office", r"^\.\.\. of an office +(.*)", "30 us a row"),
            ("plan", r"^plan +(.*)", "25 us a row"),
        ),
    ),
    ("peers.py stripe", (("... peer: stripe-python, CPU", _PEER, ""),)),
    ("peers.py openai", (("... peer: openai-python, CPU", _PEER, ""),)),
    (
        "bench_bulk.py --rounds 1 --count 2000 --delay 0.02 --journal {dsn}",
        (
            ("journaled batch / send_many, 20 ms, SQLite", r"^  journaled .* (\S+) of send_many", "0.95"),
            ("journaled batch / send_many, 20 ms, PostgreSQL", r"^  database .* (\S+) of send_many", "0.90"),
        ),
    ),
    (
        "bench_sustained.py --dsn {dsn} --rate 100 --seconds 40",
        (("sustained, 4 processes, 0.5 ms away", r"^(.*paid a second.*)", "flat, 0, 0"),),
    ),
    # in instructions: these take the longest
    (
        "bench_import.py --only '... .outbox' '... .bulk' 'pay --help'",
        (
            ("import outbox / aiohttp", r"^\.\.\. \.outbox .* (\S+)$", "1.15"),
            ("import bulk / aiohttp", r"^\.\.\. \.bulk .* (\S+)$", "1.20"),
            ("pay --help / import aiohttp", r"^pay --help .* (\S+)$", "1.2"),
        ),
    ),
    (
        "bench_session.py --instructions",
        (("payout of a session / bare aiohttp", r"^session .* (\d\.\d+)$", "0.88"),),
    ),
    (
        "bench_receiver.py --instructions --count 2000 --only 'bare, JSON answer' 'SQLite inbox, a handler'",
        (("notification, inbox, handler / bare handler", r"^SQLite inbox, a handler +\d+ +\S+ +(\S+)", "1.10"),),
    ),
    (
        "bench_bulk.py --instructions --count 300",
        (("journaled batch / send_many, instructions", r"^journaled .* (\S+) of send_many", "1.15"),),
    ),
)


def measured(command: str, dsn: str, patience: float) -> str:
    """What a script prints, or the last line of what went wrong."""
    script, *arguments = re.findall(r"'[^']*'|\S+", command)
    line = [sys.executable, str(HERE / script), *(one.strip("'").format(dsn=dsn) for one in arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(line, start_new_session=True, **pipes) as process:
        try:
            told, errors = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and all that it has started
            return f"failed: no end after {patience:.0f} s"
    return f"failed: {(errors.strip().splitlines() or ['no word'])[-1]}" if process.returncode else str(told)


def lines(only: list[str], dsn: str, patience: float) -> Iterator[tuple[str, str, str]]:
    """Each measure, what it is now, and its aim."""
    until = time.monotonic() + LONGEST
    for command, wanted in MEASURES:
        asked = [one for one in wanted if not only or any(word in one[0] for word in only)]
        if not asked:
            continue
        left = until - time.monotonic()
        told = measured(command, dsn, min(patience, left)) if left > 1.0 else f"left out: {LONGEST:.0f} s are over"
        for name, pattern, aim in asked:
            found = re.search(pattern, told, re.MULTILINE)
            yield name, found[found.re.groups].strip() if found else told.strip().splitlines()[0], aim


def main() -> None:
    """Read the command line, and print the table line by line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="words of the measures that are wanted")
    parser.add_argument("--dsn", help="of a PostgreSQL database")
    parser.add_argument("--patience", type=float, default=240.0, help="seconds for each script")
    options = parser.parse_args()
    begun = time.monotonic()
    print(f"{'measure':50} {'now':40} aim")
    for name, now, aim in lines(options.only, options.dsn or vacuumed(), options.patience):
        print(f"{name:50} {now:40} {aim}", flush=True)
    loads = "  ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{time.monotonic() - begun:.0f} s on {os.cpu_count()} cores; load of 1, 5 and 15 minutes: {loads}")


if __name__ == "__main__":
    main()

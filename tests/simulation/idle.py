"""Tell how many statements a second an idle application makes: an outbox and a receiver on one journal file."""

from __future__ import annotations

import sqlite3

from simulation.__main__ import run
from simulation.plans import Plan

from payments_async.testing._simulation import machine

_FROM, _TO = 100.0, 190.0  # seconds in which statements are counted


def main() -> None:
    """Run an application with nothing to do, and count."""
    counted = 0
    connect = sqlite3.connect

    def count(_: str) -> None:
        nonlocal counted
        counted += _FROM <= machine.time.monotonic() - 1000.0 < _TO

    def connected(*arguments: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)  # type: ignore[call-overload]
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = connected  # type: ignore[assignment]
    result = run(Plan(seed=1, orders=3, trouble=_TO + 10.0, hurries=True))
    assert not result["faults"], result["faults"]
    print(counted / (_TO - _FROM))


if __name__ == "__main__":
    main()

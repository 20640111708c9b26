"""What goes wrong with a PostgreSQL server, drawn from a seed beside all else, and how a world strikes it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from journal.postgres import place_for, started
from nested import for_journal
from psycopg import conninfo
from simulation.machines import DISK, FILES, Machine
from simulation.plans import Blow, Plan
from simulation.postgres import Server, Trouble

from payments_async.journal import PostgresJournal
from payments_async.journal._engine._journal import Journal
from payments_async.journal._postgres import _attendant

if TYPE_CHECKING:
    from simulation.worlds import World

STATEMENTS = (
    "pg_vanish",
    "pg_lost",
    "pg_stall",
    "pg_silent",
    "pg_slow",
    "pg_notice",
    "pg_skew",
    "pg_machines",
    "pg_memory",
)
BLOWS = ("pg_restart", "pg_lag", "pg_disk", "pg_dump")
# Tables that are put back from a dump; by default all.
DUMPED = {"orders": ("outbox",), "work": ("outbox", "chunk", "claim", "progress", "attempt")}
FAULTS = (*STATEMENTS, *BLOWS)
OF_A_FILE = (*DISK, *FILES)


def with_database(plan: Plan) -> Plan:
    """The same plan on PostgreSQL, with faults of its own in place of those of the file."""
    chance = random.Random(f"database {plan.seed}")
    faults = tuple(fault for fault in FAULTS if chance.random() < 0.33)
    kinds = [kind for kind in BLOWS if kind in faults]
    blows = [
        Blow(round(chance.random() * plan.trouble, 3), chance.choice(kinds), 0, round(10 ** chance.uniform(0, 2), 3))
        for _ in range(chance.randint(1, 3) if kinds else 0)
    ]
    blows += [blow for blow in plan.blows if blow.kind not in OF_A_FILE]
    faults += tuple(fault for fault in plan.faults if fault not in OF_A_FILE)
    return attrs.evolve(plan, is_postgres=True, faults=faults, blows=tuple(sorted(blows, key=lambda blow: blow.at)))


@cache
def place() -> tuple[str, Path]:
    """A server for this run: its DSN, and a folder that it reads."""
    folder = place_for("simulation")
    known = conninfo.conninfo_to_dict(str(started(folder, cleanup_mode="delete").get_uri()))
    os.environ["PGHOST"] = str(known.pop("host"))  # another one in each run: errors, and so traces, would name it
    dsn = conninfo.make_conninfo("", **known)
    Server.prepare(dsn, folder)
    return dsn, folder


def server_of(plan: Plan) -> Server:
    """A database of one simulation's own."""
    dsn, folder = place()
    return Server(dsn, folder, f"seed_{plan.seed}")


class Database(Machine):
    """The machine of a world whose journal is in a database, and what happens to that."""

    def __init__(self, world: World, server: Server) -> None:
        super().__init__(world)
        self._server = server
        self._promotions: dict[Blow, Callable[[], None]] = {}
        self.exists = self.exists or any(world.has(fault) for fault in BLOWS)
        server.say = world.say

    def journal(self, number: int | None, **options: Any) -> Journal:
        """The journal of an application."""
        folder = self.state if not self._world.has("pg_machines") else self.state / f"of-{number or 0}"
        return PostgresJournal(
            self._server.dsn, state_folder=None if self._world.has("pg_memory") else folder, **for_journal(options)
        )

    def begin(self) -> None:
        """Let happen to statements what the plan says."""
        has = self._world.has
        self._server.skew = self._chance.uniform(-60.0, 60.0) if has("pg_skew") else 0.0
        self._server.trouble = Trouble(
            latency=0.5 if has("pg_slow") else 0.002,
            pause=1.0 if has("pg_slow") else 0.1,
            vanish=0.002 if has("pg_vanish") else 0.0,
            lost=0.002 if has("pg_lost") else 0.0,
            stall=0.002 if has("pg_stall") else 0.0,
            silent=0.0005 if has("pg_silent") else 0.0,
            notice=30.0 if has("pg_notice") else 0.02,
        )

    def end(self) -> None:
        """All is well from now on, once what was to be put back is."""
        while self._promotions:
            self._promotions.popitem()[1]()
        self._server.away_until = 0.0
        self._server.trouble = Trouble(pause=0.0)
        _attendant._LOOK = 20.0  # most of the time of a simulation would be that
        super().end()

    def strike(self, blow: Blow) -> None:
        """Something happens to the server, or to the machine."""
        if not blow.kind.startswith("pg_"):
            super().strike(blow)
        elif blow.kind == "pg_restart":
            self._server.restart(blow.seconds)
        else:
            put_back = self._behind(blow)

            def promoted() -> None:
                put_back()
                self._promotions.clear()  # others were standbys of what is gone
                self.has_forgotten = True
                if blow.kind == "pg_disk" and self._world.has("pg_memory"):
                    self._server.after(min(blow.seconds, 100.0) + 5.0, partial(self._forget, self._world.loop.now))
                self._begin_again(blow, is_open=True)

            self._promotions[blow] = promoted
            self._server.after(blow.seconds, partial(self._promote, blow))

    def _forget(self, at: float) -> None:
        """Who had it open is killed now, and nothing else knew how much was committed then."""
        self.forgot_all_at = at

    def _behind(self, blow: Blow) -> Callable[[], None]:
        """Keep what there is now; tells what puts it back."""
        if blow.kind == "pg_dump":
            what = self._chance.choice(["all", *DUMPED])
            return partial(self._server.dump(), DUMPED.get(what, ()))
        return partial(self._server.fall_behind(blow.seconds), tells=blow.kind == "pg_lag")

    def _promote(self, blow: Blow) -> None:
        if blow in self._promotions:
            self._promotions[blow]()

"""The worlds that are explored: small ones, each to its end."""

from __future__ import annotations

from explorer import (
    absences,
    arrivals,
    deliveries,
    departures,
    desks,
    files,
    leases,
    notifications,
    persons,
    puts,
    readings,
    replies,
    servers,
    sessions,
    signatures,
    workers,
)
from explorer.worlds import Plan

TINY = Plan(name="refused and failed", rejects=True, fails=True, losses=1, notifies=True, lists=True)
# Half a minute on a processor of its own.
DEFAULT = (
    TINY,
    Plan(name="told wrongly that it failed", losses=1, lists=True, forged=("failed",)),
    Plan(name="two tasks of one process", workers=2, mates=True, renews=True, rejects=True),
    Plan(name="told by a stranger", puts=True, losses=1, lists=True, forged=("doubted", "doubted again")),
    Plan(name="refused by two workers", workers=2, rejects=True, unread=1),
    Plan(name="a person, and a refusal", losses=1, lists=True, write_offs=1, rejects=True),
    Plan(name="put directly", workers=2, direct=True, kills=1, losses=1, notifies=True),
    Plan(name="cancelled, and sent again", losses=1, late=2, lists=True, write_offs=1, cancels=1),
    Plan(name="a person", losses=1, late=1, lists=True, notifies=True, write_offs=1, forged=("failed",)),
    Plan(name="a copy", late=1, lists=True, puts=True, restores=1, lifts=1),
)
LONG = Plan(name="lists of two workers", workers=2, losses=1, late=1, lists=True)  # as long as all before
LARGE = (
    LONG,
    Plan(name="a copy of a batch", late=1, lists=True, restores=1, lifts=1),
    Plan(name="two workers", workers=2, kills=1, losses=1, unread=1),
    Plan(name="cancelled", workers=2, kills=1, losses=1, unread=1, cancels=1),
    Plan(name="a failover", workers=2, rejects=True, restores=1, named_lifts=1, survives=True),
    Plan(name="two orders", workers=1, orders=2, losses=1, notifies=True, forged=("crossed",)),
    Plan(name="two workers and two orders", workers=2, orders=2, losses=1, notifies=True),
    Plan(name="a copy, and notifications", restores=1, lifts=1, puts=True, lists=True, notifies=True),
    Plan(name="late proofs", workers=2, losses=1, lists=True, write_offs=1),
    Plan(name="killed twice", workers=2, kills=2, losses=1, unread=1, lists=True),
    Plan(name="lists, step by step", workers=2, losses=1, late=1, lists=True, fine=True),
    Plan(name="a copy, and two lives", workers=2, late=1, kills=1, lists=True, puts=True, restores=1, lifts=1),
    Plan(
        name="everything that is forged", losses=1, late=1, lists=True, notifies=True, write_offs=2, fails=True,
        forged=("failed", "successful"),
    ),
)  # fmt: skip
BY_NAME = {plan.name: plan for plan in (*DEFAULT, *LARGE)}
# Those of persons and files, of leases, of single orders and of orders in doubt; to be made one by one.
DESKS = tuple(
    make for module in (desks, leases, puts, persons, signatures, notifications, deliveries) for make in module.desks()
)
# Histories and tables rather than states: of answers, lists, notifications that come, a session, real files.
WIRES = (
    *(replies.search, readings.search, arrivals.search),
    *(sessions.search, absences.search, departures.search, files.search, workers.search),
    servers.search,
)

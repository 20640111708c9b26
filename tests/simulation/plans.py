"""What happens in one simulation: drawn from a seed, and small enough to be made smaller."""

from __future__ import annotations

import random
from typing import Any

import attrs
from simulation.machines import drawn

from payments_async.sandbox import Fault

# What may be wrong with the service, with the chance that it strikes an order.
SERVICE: dict[str, Fault] = {
    fault.value: fault
    for fault in Fault
    if fault not in {Fault.HUGE, Fault.SLOW, Fault.REFUSED_200, Fault.NOTIFY_EARLY}
}
NETWORK = ("cut", "swallow", "refuse", "slow")
LISTS = ("late", "unstable", "ignores_status_filter", "no_total", "newest_first")
BLOWS = ("kill", "stop", "cancel", "close", "hang_up")
PERSONS = ("sends_again",)
FAULTS = (
    *SERVICE,
    *NETWORK,
    *LISTS,
    "crash_points",
    *BLOWS,
    *PERSONS,
)


@attrs.frozen
class Blow:
    """Something that is done to a process.

    Attributes:
        at: Seconds since the beginning.
        kind: One of ``BLOWS`` or of ``MACHINE``.
        who: Number of the process; wraps around.
        seconds: For how long, where it has a length.
        how: What exactly, where there are several ways.
    """

    at: float
    kind: str
    who: int
    seconds: float = 0.0
    how: str = ""


@attrs.frozen(kw_only=True)
class Plan:
    """A simulation before it runs.

    Attributes:
        orders: Put by every application, in sequences of their own.
        batch: Orders that a batch pays beside them.
        applications: Processes with an outbox and a receiver each.
        faults: Those that exist at all.
        trouble: Seconds until all faults end.
        confirms: Whether receivers re-read a transaction before they believe a notification.
        pays: Whether applications wait for each order, with a caller that may hang up.
        is_postgres: Whether the journal is in PostgreSQL.
    """

    seed: int
    orders: int
    batch: int
    applications: int
    faults: tuple[str, ...]
    blows: tuple[Blow, ...]
    trouble: float
    confirms: bool
    pays: bool
    is_postgres: bool = False

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        """The plan of a seed: each fault exists with a chance of a third, so that all mixtures come."""
        chance = random.Random(f"plan {seed}")
        faults = tuple(fault for fault in FAULTS if chance.random() < 0.33)
        trouble = chance.choice([10.0, 60.0, 300.0])
        kinds = [kind for kind in BLOWS if kind in faults]
        blows = [
            Blow(
                round(chance.random() * trouble, 3), chance.choice(kinds), chance.randrange(4),
                round(10 ** chance.uniform(-2, 3.5), 3),
            )
            for _ in range(chance.randrange(8) if kinds else 0)
        ]  # fmt: skip
        of_machine, more = drawn(seed, trouble)
        blows += [Blow(one.at, one.kind, one.who, one.seconds, one.how) for one in more]
        return cls(
            seed=seed,
            orders=chance.randint(1, 12),
            batch=chance.choice([0, 0, 3, 8]),
            applications=chance.choice([1, 2, 2, 3]),
            faults=(*faults, *of_machine),
            blows=tuple(sorted(blows, key=lambda blow: blow.at)),
            trouble=trouble,
            confirms=chance.random() < 0.5,
            pays=chance.random() < 0.5,
        )

    def smaller(self) -> list[Plan]:
        """Plans with one thing less, the largest part first."""
        found = []
        for members in ("blows", "faults"):
            held: tuple[Any, ...] = getattr(self, members)
            size = len(held)
            while size:
                parts = [held[:start] + held[start + size :] for start in range(0, len(held), size)]
                found += [attrs.evolve(self, **{members: part}) for part in parts]
                size //= 2
        for name, least in (("batch", 0), ("orders", 1), ("applications", 1)):
            value = getattr(self, name)
            found += [attrs.evolve(self, **{name: few}) for few in {least, value // 2} if least <= few < value]
        return found

    def __str__(self) -> str:
        blows = ", ".join(f"{one.kind} {one.who} {one.how} at {one.at:g}" for one in self.blows) or "none"
        return (
            f"seed {self.seed}: {self.orders} orders, {self.applications} applications, batch of {self.batch}, "
            f"{self.trouble:g} s of {' '.join(self.faults) or 'nothing'}; blows: {blows}"
        )

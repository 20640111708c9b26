"""What happens in one simulation: drawn from a seed, and small enough to be made smaller."""

from __future__ import annotations

import random
from typing import Any

import attrs
from simulation import strangers
from simulation.machines import drawn

from payments_async.sandbox import Fault

# What may be wrong with the service, with the chance that it strikes an order.
SERVICE: dict[str, Fault] = {fault.value: fault for fault in Fault if fault is not Fault.HUGE}
NETWORK = ("cut", "swallow", "stall", "twice", "refuse", "slow_line")
LISTS = (
    "late", "unstable", "ignores_status_filter", "no_total", "lying_total", "newest_first", "small_pages",
    "lying_next_page",
)  # fmt: skip
BLOWS = ("kill", "stop", "cancel", "close", "shut", "mute", "deaf")
HABITS = ("hang_up", "closes_anyhow", "handlers_fail", "twins", "crash_points", "dies_after_200")
PERSONS = ("sends_again", "pauses")
APPROVERS = ("approves", "withdraws")  # batches and decisions need the approval of another person
CANCELLERS = ("cancels",)
FAULTS = (*SERVICE, *NETWORK, *LISTS, *BLOWS, *HABITS, *PERSONS)


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
        batch: Orders of each batch that is paid beside them.
        batches: How many there are, each run by a process.
        gifts: Orders of a batch that the first application puts into its outbox.
        applications: Processes with an outbox and a receiver each.
        handlers: Of each application, for every change.
        faults: Those that exist at all.
        trouble: Seconds until all faults end.
        confirms: Whether receivers re-read a transaction before they believe a notification.
        pays: Whether applications wait for each order, with a caller that may hang up.
        hurries: Whether all is looked at as often as in a real process.
        grace: Seconds after which an order may be parked.
        is_postgres: Whether the journal is in PostgreSQL.
    """

    seed: int
    orders: int = 3
    batch: int = 0
    batches: int = 1
    gifts: int = 0
    applications: int = 1
    handlers: int = 1
    faults: tuple[str, ...] = ()
    blows: tuple[Blow, ...] = ()
    trouble: float = 60.0
    confirms: bool = False
    pays: bool = False
    hurries: bool = False
    grace: float = 120.0
    is_postgres: bool = False

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        """The plan of a seed: each fault exists with a chance of a quarter, so that all mixtures come."""
        chance = random.Random(f"plan {seed}")
        faults = tuple(fault for fault in FAULTS if chance.random() < 0.25)
        trouble = chance.choice([10.0, 60.0, 60.0, 300.0])
        kinds = [kind for kind in BLOWS if kind in faults]
        blows = [
            Blow(
                round(chance.random() * trouble, 3), chance.choice(kinds), chance.randrange(6),
                round(10 ** chance.uniform(-2, 3.5), 3),
            )
            for _ in range(chance.randrange(8) if kinds else 0)
        ]  # fmt: skip
        of_machine, more = drawn(seed, trouble)
        persons = random.Random(f"persons {seed}")
        approvers = APPROVERS[: persons.choice([0, 0, 0, 1, 2])] + CANCELLERS[: persons.choice([0, 0, 1])]
        blows += [Blow(one.at, one.kind, one.who, one.seconds, one.how) for one in more]
        return cls(
            seed=seed,
            orders=chance.randint(1, 10),
            batch=chance.choice([0, 0, 3, 6]),
            batches=chance.choice([1, 1, 2]),
            gifts=chance.choice([0, 0, 4]),
            applications=chance.choice([1, 1, 2, 2, 3]),
            handlers=chance.choice([1, 1, 3]),
            faults=(*faults, *of_machine, *approvers, *strangers.drawn(seed)),
            blows=tuple(sorted(blows, key=lambda blow: blow.at)),
            trouble=trouble,
            confirms=chance.random() < 0.5,
            pays=chance.random() < 0.5,
            hurries=chance.random() < 0.1,
            grace=chance.choice([30.0, 120.0, 120.0, 900.0]),
        )

    @property
    def processes(self) -> int:
        """Applications, and who runs a batch."""
        return self.applications + (self.batches if self.batch else 0)

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
        for name, least in (
            ("batch", 0), ("batches", 1), ("gifts", 0), ("orders", 1), ("applications", 1), ("handlers", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            found += [attrs.evolve(self, **{name: few}) for few in sorted({least, value // 2}) if least <= few < value]
        found += [
            attrs.evolve(self, **{name: False}) for name in ("confirms", "pays", "hurries") if getattr(self, name)
        ]
        return found

    @property
    def text(self) -> str:
        """How to make it again: what differs from the least plan."""
        members = attrs.asdict(self, recurse=False, filter=lambda one, value: value != one.default)
        return f"Plan({', '.join(f'{name}={value!r}' for name, value in members.items())})"

    def __str__(self) -> str:
        blows = ", ".join(f"{one.kind} {one.who} {one.how} at {one.at:g}" for one in self.blows) or "none"
        return (
            f"seed {self.seed}: {self.orders} orders, {self.applications} applications, {self.batches} batches of "
            f"{self.batch}, {self.gifts} gifts, {self.trouble:g} s of {' '.join(self.faults) or 'nothing'}; "
            f"blows: {blows}"
        )

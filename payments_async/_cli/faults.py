"""How much goes wrong in the simulated service: which faults strike, how often, in which spelling."""

import enum
from collections.abc import Mapping
from random import Random
from typing import Literal

import attrs

from payments_async.sandbox import Fault, Quirks

SECONDS = 0.4  # what late answers are late by, and reversals and late notifications too

_SOME: Mapping[Fault, float] = {
    Fault.LOST_BEFORE: 0.02,
    Fault.LOST_AFTER: 0.03,
    Fault.ERROR_BEFORE: 0.01,
    Fault.ERROR_AFTER: 0.015,
    Fault.TRUNCATED: 0.01,
    Fault.HTML: 0.01,
    Fault.GARBAGE: 0.01,
    Fault.REDIRECT: 0.005,
    Fault.WRONG_ECHO: 0.005,
    Fault.REFUSED: 0.02,
    Fault.REFUSED_200: 0.01,
    Fault.RATE_LIMITED: 0.01,
    Fault.TOKEN_REVOKED: 0.005,
    Fault.SLOW: 0.1,
    Fault.FAILS: 0.03,
    Fault.REVERSED: 0.01,
    Fault.NOTIFY_EARLY: 0.05,
    Fault.NOTIFY_LATE: 0.05,
    Fault.NOTIFY_REPEATED: 0.05,
    Fault.NOTIFY_REORDERED: 0.03,
    Fault.NOTIFY_LOST: 0.04,
}


class FaultLevel(enum.StrEnum):
    """How much goes wrong."""

    NONE = "none"
    SOME = "some"
    MANY = "many"


_TIMES = {FaultLevel.NONE: 0.0, FaultLevel.SOME: 1.0, FaultLevel.MANY: 3.0}


def rates(faults: FaultLevel) -> dict[Fault, float]:
    """The probability of each fault."""
    return {fault: min(1.0, rate * _TIMES[faults]) for fault, rate in _SOME.items()}


def spelling(faults: FaultLevel, seed: int) -> Quirks:
    """How the sandbox spells what it says: plainly without faults, otherwise as the seed decides."""
    if faults is FaultLevel.NONE:
        return Quirks()
    chance = Random(seed)  # noqa: S311 - it picks a spelling and keeps no secret
    names: tuple[Literal["pascal", "camel", "snake"], ...] = ("pascal", "camel", "snake")
    plainly = Quirks(ipn_spelling=chance.choice(names), acceptance_http=chance.choice((200, 201)))
    return plainly if faults is FaultLevel.SOME else attrs.evolve(plainly, next_page_lies=True, unstable_pages=True)

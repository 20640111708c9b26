"""Trouble, scripted or by chance: which fault strikes which call."""

import enum
import hashlib
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import attrs

Operation = Literal[
    "payout",
    "collection",
    "login",
    "transactions",
    "transaction",
    "products",
    "product",
    "items",
    "validation",
    "account",
    "card",
]
Target = Operation | Literal["money"]
OPERATIONS: tuple[str, ...] = get_args(Operation)


class Fault(enum.StrEnum):
    """One way in which a call or an order goes wrong.

    Three families, and of each at most one strikes an order: faults of the answer, of the ending (`FAILS`, `REVERSED`)
    and of the notification (`NOTIFY_...`).
    """

    LOST_BEFORE = "lost_before"  # the connection is dropped; not carried out
    LOST_AFTER = "lost_after"  # carried out, then the connection is dropped without an answer
    ERROR_BEFORE = "error_before"  # 503, not carried out; options status=, html=
    ERROR_AFTER = "error_after"  # carried out, then 500; options status=, html=
    RATE_LIMITED = "rate_limited"  # 429 with Retry-After, unread; option seconds=
    SLOW = "slow"  # carried out, answered late; option seconds=
    TRUNCATED = "truncated"  # carried out, the body ends before its Content-Length
    HTML = "html"  # carried out, 200 with a page
    GARBAGE = "garbage"  # carried out, 200 with unreadable JSON
    HUGE = "huge"  # carried out, 200 with a readable reply of option size= bytes
    REDIRECT = "redirect"  # 307 to the same path, not carried out
    TOKEN_REVOKED = "token_revoked"  # 401: no token issued so far is good any more; unread
    REFUSED = "refused"  # 400 with an envelope, not carried out; options code=, message=
    REFUSED_200 = "refused_200"  # 200, code not 0, data null, not carried out; options code=, message=
    WRONG_ECHO = "wrong_echo"  # carried out, the acceptance echoes another requestId
    NOTIFY_EARLY = "notify_early"  # notified, and that answered, before the POST is answered
    NOTIFY_LATE = "notify_late"  # notified that much after the end; option seconds=
    NOTIFY_REPEATED = "notify_repeated"  # notified again although answered 200; option copies=
    NOTIFY_REORDERED = "notify_reordered"  # the final notification first, then a stale "processing"
    NOTIFY_LOST = "notify_lost"  # never notified
    FAILS = "fails"  # accepted, ends FAILED
    REVERSED = "reversed"  # accepted, ends SUCCESSFULL, later REVERSED; option seconds=


ENDINGS = frozenset({Fault.FAILS, Fault.REVERSED})
NOTICES = frozenset(fault for fault in Fault if fault.name.startswith("NOTIFY_"))
ANSWERS = frozenset(Fault) - ENDINGS - NOTICES
ORDERS_ONLY = ENDINGS | NOTICES | {Fault.WRONG_ECHO}
NOT_CARRIED_OUT = frozenset(
    {
        Fault.LOST_BEFORE,
        Fault.ERROR_BEFORE,
        Fault.RATE_LIMITED,
        Fault.REDIRECT,
        Fault.TOKEN_REVOKED,
        Fault.REFUSED,
        Fault.REFUSED_200,
    }
)
MONEY = frozenset({"payout", "collection"})

# What a fault may be told, and what it does untold. Durations are seconds.
OPTIONS: Mapping[Fault, Mapping[str, Any]] = {
    Fault.ERROR_BEFORE: {"status": 503, "html": False},
    Fault.ERROR_AFTER: {"status": 500, "html": False},
    Fault.RATE_LIMITED: {"seconds": 1.0},
    Fault.SLOW: {"seconds": 1.0},
    Fault.HUGE: {"size": 30_000_000},
    Fault.REFUSED: {"code": 4000, "message": "The transaction was refused"},
    Fault.REFUSED_200: {"code": 4000, "message": "The transaction was refused"},
    Fault.NOTIFY_LATE: {"seconds": 30.0},
    Fault.NOTIFY_REPEATED: {"copies": 3},
    Fault.REVERSED: {"seconds": 1.0},
}


@attrs.frozen
class Strike:
    """A fault that strikes now, with all of its options."""

    fault: Fault
    options: Mapping[str, Any]


@attrs.define
class _Script:
    strike: Strike
    on: str | None
    request_id: str | None
    left: int | None

    def matches(self, family: Collection[Fault], operation: str, request_id: str | None) -> bool:
        return (
            self.strike.fault in family
            and self.request_id in (None, request_id)
            and (self.on in (None, operation) or (self.on == "money" and operation in MONEY))
            and (operation in MONEY or self.strike.fault not in ORDERS_ONLY)
        )


def _strike(fault: Fault, options: Mapping[str, Any]) -> Strike:
    defaults = OPTIONS.get(fault, {})
    if unknown := sorted(set(options) - set(defaults)):
        raise ValueError(f"{fault.name} has no option {unknown[0]!r}; it knows {sorted(defaults)}")
    return Strike(fault, MappingProxyType({**defaults, **options}))


class FaultPlan:
    """The faults still to come.

    Scripts strike in the order they were written, before chance does. Chance touches orders only and is decided by a
    hash of seed, fault and request id: the same orders meet the same trouble whatever their order of arrival.
    """

    def __init__(self, seed: int) -> None:
        self._default_seed = seed
        self.clear()

    def clear(self) -> None:
        """Forget every script, every chance and who was struck."""
        self._scripts: list[_Script] = []
        self._chances: dict[Fault, tuple[float, Strike]] = {}
        self._seed = self._default_seed
        self._struck: set[str] = set()

    @property
    def pending(self) -> int:
        """How many scripts have not struck as often as they were told to."""
        return len(self._scripts)

    @property
    def scripts(self) -> list[tuple[Fault, int | None, str | None]]:
        """Every script that may still strike: its fault, how often (None is for ever) and which order alone."""
        return [(one.strike.fault, one.left, one.request_id) for one in self._scripts]

    @property
    def chances(self) -> Mapping[Fault, float]:
        """The probability of each fault that has one."""
        return {fault: rate for fault, (rate, _) in self._chances.items()}

    def script(
        self, fault: Fault, *, times: int | None, on: str | None, request_id: str | None, options: Mapping[str, Any]
    ) -> None:
        """Let a fault strike the next matching calls; see `Sandbox.script`."""
        if on is not None and on != "money" and on not in OPERATIONS:
            raise ValueError(f"no operation is called {on!r}; there are money, {', '.join(OPERATIONS)}")
        if fault in ORDERS_ONLY and on not in (None, "money", *MONEY):
            raise ValueError(f"{fault.name} can only strike an order, not {on!r}")
        if times is not None and times < 1:
            raise ValueError("times counts from 1; None is for ever")
        self._scripts.append(_Script(_strike(fault, options), on, request_id, times))

    def chaos(self, rates: Mapping[Fault, float], *, seed: int | None, options: Mapping[str, Any]) -> None:
        """Give each fault its chance to strike an order; see `Sandbox.chaos`."""
        known = {name for fault in rates for name in OPTIONS.get(fault, {})}
        if unknown := sorted(set(options) - known):
            raise ValueError(f"none of these faults has an option {unknown[0]!r}")
        chances: dict[Fault, tuple[float, Strike]] = {}
        for fault, rate in rates.items():
            if not 0.0 <= rate <= 1.0:
                raise ValueError(f"the rate of {fault.name} is no probability: {rate}")
            own = {name: value for name, value in options.items() if name in OPTIONS.get(fault, {})}
            chances[fault] = (rate, _strike(fault, own))
        self._chances = chances
        self._seed = self._default_seed if seed is None else seed
        self._struck = set()

    def answer(self, operation: str, request_id: str | None) -> Strike | None:
        """Return the fault that strikes this call's answer, used up by asking."""
        if strike := self._scripted(ANSWERS, operation, request_id):
            return strike
        if request_id is None or operation not in MONEY or request_id in self._struck:
            return None
        if strike := self._by_chance(ANSWERS, request_id):
            self._struck.add(request_id)  # only once: an order turned away unread gets through the next time
        return strike

    def ending(self, operation: str, request_id: str) -> Strike | None:
        """Return the fault that strikes how this order ends, used up by asking."""
        return self._scripted(ENDINGS, operation, request_id) or self._by_chance(ENDINGS, request_id)

    def notice(self, operation: str, request_id: str) -> Strike | None:
        """Return the fault that strikes this order's notification, used up by asking."""
        return self._scripted(NOTICES, operation, request_id) or self._by_chance(NOTICES, request_id)

    def _scripted(self, family: Collection[Fault], operation: str, request_id: str | None) -> Strike | None:
        for script in self._scripts:
            if script.matches(family, operation, request_id):
                if script.left is not None:
                    script.left -= 1
                    if not script.left:
                        self._scripts.remove(script)
                return script.strike
        return None

    def _by_chance(self, family: Collection[Fault], request_id: str) -> Strike | None:
        for fault, (rate, strike) in self._chances.items():
            if fault in family and _fraction(f"{self._seed}:{fault}:{request_id}") < rate:
                return strike
        return None


def _fraction(text: str) -> float:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=7).digest(), "big") / (
        1 << 56
    )

"""Settings that few callers need: of a worker, of a run, of what a batch was approved as, and of a search."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol, get_args, runtime_checkable

from payments_async._values.checks import check_flag, check_instance, check_number, check_whole
from payments_async._values.frozen import field, frozen
from payments_async._values.testing import Testing
from payments_async.journal._records import GRACE, INTERVAL, LISTS, TakeoverAuthorisation

LookFirst = Literal["always", "in_doubt", "never"]
_WEEK = 7 * 86_400.0


@frozen(kw_only=True)
class WorkerSettings:
    """The work that one process does for an outbox.

    Attributes:
        sends: Whether it sends orders. Single orders and batches; another process has to send otherwise.
        settles: Whether it may look up open orders. One process at a time does.
        claims_batches: Whether it takes chunks of batches by itself. ``payments_async.fleet`` hands them out otherwise.
        lease: Seconds after which another process may take over from one that hangs. A dead one is known at once.
        look_back: Seconds before a new or restored journal's last memory. The list is read from there first.
        grace: Seconds that the service may take to list an order. Before they are over, no order is parked, and a
            copied or restored journal sends nothing.

    >>> outbox = Outbox(SESSION, JOURNAL, worker=WorkerSettings(settles=False))
    """

    sends: bool = True
    settles: bool = True
    claims_batches: bool = True
    lease: float = 30.0
    look_back: float = _WEEK
    grace: float = GRACE

    def __attrs_post_init__(self) -> None:
        for name in ("sends", "settles", "claims_batches"):
            check_flag(name, getattr(self, name))
        for name in ("lease", "look_back", "grace"):
            check_number(name, getattr(self, name))


@frozen(kw_only=True)
class RunSettings:
    """How fast and how patiently a batch is run.

    Attributes:
        concurrency: Orders under way at once, in this process. Keep the session's ``Limits`` at least as high.
        rate: Orders a second of all processes of the journal together: the lowest requested counts. It stays until a
            process asks for infinity.
        patience: Seconds without a usable answer of the service, after which the run stops.
        lease: Seconds after which another process may take over a chunk from one that hangs.
        look_first: Whether to read the service's list before sending. ``"always"``: if there is anything to send.
            ``"in_doubt"``: only within ``look_back`` of the day on which the journal was made or restored, or if no
            list was read to its end since. ``"never"``: not at all.
        look_back: Seconds before the batch was made. The list is read from there.
        testing: Another clock, for tests.

    >>> RunSettings(concurrency=100, rate=20.0).look_first
    'always'
    """

    concurrency: int = 50
    rate: float | None = None
    patience: float = 300.0
    lease: float = 30.0
    look_first: LookFirst = "always"
    look_back: float = _WEEK
    testing: Testing = field(factory=Testing)

    def __attrs_post_init__(self) -> None:
        if self.look_first not in get_args(LookFirst):
            raise ValueError(f"look_first: must be one of {', '.join(get_args(LookFirst))}, not {self.look_first!r}")
        check_whole("concurrency", self.concurrency, 1)
        if self.rate is not None:
            check_number("rate", self.rate, above_zero=True, unit="orders a second")
        for name in ("patience", "lease", "look_back"):
            check_number(name, getattr(self, name))
        check_instance("testing", self.testing, Testing, "Testing(now=...)")


@frozen(kw_only=True)
class BatchTerms:
    """What a batch was approved as.

    Attributes:
        source_digest: Digest of orders that were not planned, kept with the batch. A plan brings its own.
        policy: A text of yours, kept with the batch.
        approvals: How many persons other than its maker must have approved the plan of this digest. If the journal
            asks for more (``require_approvals``), that number counts.
        adoption: A named person's word that orders of another batch go on in this one. Nothing of it is sent before
            the service's list was searched for it.

    >>> BatchTerms(source_digest="7f3a", approvals=1).approvals
    1
    """

    source_digest: str | None = None
    policy: str | None = None
    approvals: int = 0
    adoption: TakeoverAuthorisation | None = None

    def __attrs_post_init__(self) -> None:
        check_whole("approvals", self.approvals, 0)
        for name in ("source_digest", "policy"):
            check_instance(name, getattr(self, name), (str, type(None)), "text or None")
        check_instance("adoption", self.adoption, (TakeoverAuthorisation, type(None)), "TakeoverAuthorisation(...)")


@runtime_checkable
class Planned(Protocol):
    """Orders whose payees were compared with those of other batches: a plan of ``payments_async.bulk``."""

    @property
    def digest(self) -> str:
        """Of all that the orders say."""
        ...

    @property
    def compared(self) -> Collection[str]:
        """Names of the batches that they were compared with."""
        ...


def plan_of(orders: object, source_digest: str | None) -> tuple[str | None, Collection[str] | None]:
    """The digest of these orders and what they were compared with, which ``None`` says of orders without a plan.

    Raises:
        ValueError: The plan has another digest.
    """
    if not isinstance(orders, Planned):
        return source_digest, None
    if source_digest not in (None, orders.digest):
        raise ValueError("source_digest: leave it out, a plan brings its own")
    return orders.digest, orders.compared


@frozen(kw_only=True)
class ReconcileSettings:
    """How thoroughly open orders are looked for.

    Attributes:
        grace: Seconds after its last permit in which an order may still arrive, and is not parked. A copied or
            restored journal waits as long.
        list_scans: Complete lists, 2 or more, that have to miss an unknown order before it is parked.
        interval: Seconds between two of them.
        patience: Seconds for which a page of the list is asked for again.
        stuck_after: Seconds after which an accepted order without an end is reported.

    >>> ReconcileSettings(interval=5.0).grace
    900.0
    """

    grace: float = GRACE
    list_scans: int = LISTS
    interval: float = INTERVAL
    patience: float = 300.0
    stuck_after: float = 86_400.0


IDLE = WorkerSettings(sends=False, settles=False)

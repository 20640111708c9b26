"""What a journal tells of orders that moved."""

from __future__ import annotations

from payments_async._values.frozen import field, frozen
from payments_async.journal._records import Entry
from payments_async.journal._states import State

UNHEARD = 300.0  # seconds after which nobody hears of a state any more who has not asked


@frozen(kw_only=True)
class OrderEvent:
    """One fact: an order of an outbox came to stand elsewhere. Written in the commit that moved it.

    Attributes:
        id: Stable, rising, and never given to another fact: not by a journal that was restored either, nor by the one
            after it, unless the database's clock went back.
        outbox: Name of the outbox that the order's run belongs to.
        state: Where the order came to stand; it may stand elsewhere by now.
        at: Unix seconds by the database's clock.
        entry: What a handler is told, where the change is claimed: the order with the state, the time and the id of
            this change, and all else as it stands now. Otherwise ``None``.
        tries: Rounds of handling so far.
        done: Names of the handlers that have finished, where it is claimed; they are not run again.
        error: Words of the last failure, without personal data.
    """

    id: int
    request_id: str
    outbox: str
    state: State
    at: float
    entry: Entry | None = field(default=None, repr=False)
    tries: int = 0
    done: frozenset[str] = frozenset()
    error: str | None = None


@frozen(kw_only=True)
class Subscription:
    """A state whose changes wait for handlers of an outbox.

    Attributes:
        at: Unix seconds at which a process with such a handler last asked for one, to a minute.
        pending: Changes that wait.
    """

    state: State
    at: float
    pending: int

    def is_orphaned(self, now: float) -> bool:
        """Whether changes wait, and no process has asked for any of them of late."""
        return self.pending > 0 and self.at <= now - UNHEARD

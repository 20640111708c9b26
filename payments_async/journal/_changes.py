"""What a journal tells of orders that moved: the contract of a change feed, and the record it deals in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

from payments_async._values.frozen import field, frozen
from payments_async.journal._inbox import Backlog
from payments_async.journal._records import Entry
from payments_async.journal._states import State

UNHEARD = 300.0  # seconds after which nobody hears of a state any more who has not asked


@frozen(kw_only=True)
class Change:
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
class Hearing:
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


class ChangeFeed(Protocol):
    """Keeps every change of the orders of outboxes, for those who wait for one and for durable handlers.

    Whatever moves an order writes its change in the same commit; nothing passes by. No change is written when an order
    becomes ``planned`` or ``sending``, nor when it is contradicted and stays where it stands. Batches that belong to no
    outbox have no changes.

    A change waits for a handler if its state was heard of by its outbox when it was written. Several processes may
    share one feed: ``claim_changes`` leases a change to one of them for a while.
    """

    async def hear(self, outbox: str, states: Collection[State]) -> None:
        """From now on, changes to these states wait for handlers, for good: also while none of them runs.

        Raises:
            ValueError: Of ``planned`` and ``sending`` nobody hears.
        """

    async def hearings(self, outbox: str) -> Sequence[Hearing]:
        """The states that an outbox hears of, and when each was last asked for."""

    async def forget_changes(self, outbox: str, state: State, *, who: str, why: str) -> int:
        """No handler hears of a state any more, says a named person: what waits is let go. Tells how much that was.

        Dead letters stay. A handler that is registered again hears of what comes after that.

        Raises:
            ValueError: A process asked for it a moment ago.
        """

    async def last_change(self) -> int:
        """The newest id, or 0."""

    async def changes_after(self, outbox: str | None, after: int, limit: int = 500) -> Sequence[Change]:
        """Changes with a higher id than this, lowest first, whoever handles them; of one outbox or of any."""

    async def states_since(self, outbox: str, after: int) -> tuple[int, frozenset[State]]:
        """The newest id of an outbox's changes, and to which states orders came after this one; or this one, and none.

        For whoever waits for no order in particular: it takes as long for thousands of changes as for a few.
        """

    async def claim_changes(
        self, outbox: str, states: Collection[State], owner: str, *, lease: float, limit: int
    ) -> Sequence[Change]:
        """Lease due, unleased changes to these states that wait for a handler, so many at most.

        Fresh ones come first, oldest first, and then those that failed before, so that these hold up nothing. What a
        dead process held is fresh. One whose order cannot be read is a dead letter from then on.
        """

    async def release_changes(self, owner: str) -> None:
        """Give back at once every lease that ``owner`` took through this journal, and none of a namesake elsewhere."""

    async def note_change_done(self, change_id: int, handler: str) -> None:
        """One handler has finished with the change."""

    @property
    def shares_transactions(self) -> bool:
        """Whether an application's transaction may hold orders and marks of this journal: in a database, not a file."""

    async def mark_told(self, connection: object, change_id: int, handler: str) -> bool:
        """Within the application's own transaction, remember that a handler is told of a change; whether it was not.

        Whoever asks while another transaction has marked it waits for that one's end.

        Args:
            connection: As ``Journal.lay`` is given it.
        """

    async def was_told(self, change_id: int, handler: str) -> bool:
        """Whether a transaction that remembers it was committed."""

    async def finish_changes(
        self, change_ids: Sequence[int], status: str = "handled", *, error: str | None = None
    ) -> None:
        """These are ``handled`` or ``dead``, in one commit. What was finished before stays as it is."""

    async def retry_change(self, change_id: int, *, delay: float, error: str) -> None:
        """Count a try, give the lease back and make the change due again after ``delay`` seconds."""

    async def revive_changes(self, change_id: int | None = None) -> int:
        """Make one dead change, or all of them, wait for a handler again; tells how many."""

    def dead_changes(self) -> AsyncIterator[Change]:
        """Changes that are dead letters, oldest first."""

    async def change_backlog(self, outbox: str | None = None) -> Backlog:
        """How many changes wait for a handler or are dead letters, and when the oldest that waits was written."""

    async def prune_changes(self, *, older_than: float) -> int:
        """Forget changes of more than so many seconds ago that wait for nobody; tells how many.

        Dead letters stay, and so does the newest change: no lower id is given after it.
        """

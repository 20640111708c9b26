"""How an outbox does: one table of facts, which any process reads in the journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from payments_async._values.frozen import frozen
from payments_async.journal import Journal
from payments_async.journal._changes import Subscription
from payments_async.journal._faults import RunUnknown
from payments_async.journal._inbox import Backlog
from payments_async.journal._records import Awaited, HeldUp, ListingWord, Pause, Progress, SharedRate
from payments_async.journal._states import State
from payments_async.outbox._settling import SettlingProgress


@frozen(kw_only=True)
class OutboxHealth:
    """How an outbox does.

    Attributes:
        name: Of the outbox.
        progress: Its orders by state, of every process, and how many have a contradiction that was not acknowledged.
        paused: Who paused it and why, or ``None``.
        held_up: Chunks in quarantine, batches that were not loaded to their end, and why processes hear of each other
            late.
        handlers: Changes that wait for a handler, and dead letters; ``replay`` has these handled anew.
        orphaned: States whose changes wait for handlers that no process seems to have any more.
        in_tray: Orders of the application's own transactions that nobody has taken yet.
        untaken: ... that could not be taken; ``Outbox.untaken`` tells why.
        strangers: Orders in the service's list that the journal does not hold, seen while it was looked for others:
            another journal, or another program, pays from this account. None of them is sent from here.
        unmatched: Notifications of orders that the journal does not hold.
        restored_at: Unix seconds at which the journal was last found to be copied or restored, or ``None``.
        awaits: What has to be seen since before anything that is put is sent, or ``None``.
        pace: How fast all may send who share the journal, and until when the service asked for a pause.
        deadlines: Persons' words that the service lists in time, by which orders are sent again.
        is_open: Whether this process works on it.
        hinders: What keeps this process from sending, in words, or ``None``.
        settling: How far the looking up of what is open is; ``None`` where this process never opened it.
    """

    name: str
    progress: Progress
    paused: Pause | None
    held_up: HeldUp
    handlers: Backlog
    orphaned: tuple[Subscription, ...]
    in_tray: int
    untaken: int
    unknown_transactions: int
    unmatched: int
    restored_at: float | None
    awaits: Awaited | None
    pace: SharedRate
    deadlines: Sequence[ListingWord]
    is_open: bool = False
    hinders: str | None = None
    settling: SettlingProgress | None = None

    @classmethod
    async def of(cls, journal: Journal, name: str, *, now: Callable[[], float] = time.time) -> Self:
        """How an outbox does by its journal, whichever process works it.

        Args:
            now: Unix seconds.

        Raises:
            JournalUnavailable: The journal cannot be read.
        """
        try:
            run = await journal.run(name)
        except RunUnknown:
            run = None  # nobody has opened it yet
        handlers = await journal.change_backlog(name)
        subscriptions = await journal.subscriptions(name) if handlers.pending else ()
        laid, untaken = await journal.count_laid(name)
        return cls(
            name=name,
            progress=await journal.progress(outbox=name),
            paused=await journal.paused(name),
            held_up=await journal.held_up(name),
            handlers=handlers,
            orphaned=tuple(one for one in subscriptions if one.is_orphaned(now())),
            in_tray=laid - untaken,
            untaken=untaken,
            unknown_transactions=await journal.unknown_transactions(name),
            unmatched=await journal.unmatched_events(),
            restored_at=None if run is None else run.quarantined_at,
            awaits=None if run is None else run.awaits,
            pace=await journal.pace(),
            deadlines=await journal.listing_words(),
        )

    @property
    def is_well(self) -> bool:
        """Whether orders are sent: what whoever is on call wants to know.

        It is nothing for a load balancer: a process that sends nothing takes orders and notifications all the same.
        """
        return self.is_open and self.paused is None and self.hinders is None

    @property
    def needs(self) -> Mapping[str, int]:
        """What goes on by itself no more and needs a person, by reason, and how much of it there is."""
        return {
            "paused": int(self.paused is not None),
            "parked": self.progress.counts[State.PARKED],
            "conflicts": self.progress.conflicts,
            "chunks_in_quarantine": self.held_up.quarantined,
            "batches_not_loaded": len(self.held_up.unloaded),
            "failed_handlers": self.handlers.dead,
            "orders_untaken": self.untaken,
        }

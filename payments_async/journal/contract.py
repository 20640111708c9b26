"""The contract of a journal, for whoever writes one or tests one: what it promises, and the records it is told by.

The rules any journal is measured by (tests/journal/test_contract_outbox.py and test_contract_inbox.py):

* What a method returned is on disk. What raised did not happen, unless the disk itself failed on the way: then it may
  have, and the safe reading of both is that nothing was granted and nothing is sent.
* ``permit`` grants only what is committed, to the holder of a lease that is good by the database's clock, for an order
  that is planned. An order becomes ``sending`` in no other way.
* An expired lease never makes an order planned. Who claims the chunk next raises its token and makes what was
  ``sending`` unknown, in one transaction.
* Outcomes and evidence are taken from anybody, whatever token they hold. ``next_state`` decides, nothing else does.
* Evidence counts only if request id, magnitude and currency agree with the order. What contradicts is kept as a
  conflict, and never overwrites. An order that was never sent is parked by what contradicts that, and not settled by
  a notification: whether it was forged or somebody else paid, a person decides.
* Cancelling a caller never loses what it reported, and never leaves behind a permit that somebody could still use.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Protocol

from payments_async._values.public import name_publicly
from payments_async._wire.orders import Order
from payments_async.journal._approvals import Approval, ApprovalRule, Proposal, Signature, why_not_approved
from payments_async.journal._changes import Change, ChangeFeed, Hearing
from payments_async.journal._inbox import (
    Arrival,
    Backlog,
    Doubt,
    Heard,
    Inbox,
    Pruned,
    RawNotification,
    Receipt,
    StoredEvent,
)
from payments_async.journal._records import (
    GRACE,
    INTERVAL,
    Adoption,
    Archive,
    ArchivedOrder,
    Awaited,
    Chunk,
    Chunks,
    ClaimedOrder,
    Entry,
    Evidence,
    Finding,
    Happening,
    HeldUp,
    Laid,
    ListingDeadline,
    ListingWord,
    Loaded,
    NotPermitted,
    OldOrder,
    OpenOrder,
    Outcome,
    Pause,
    Permit,
    Placed,
    Progress,
    Run,
    RunIdentity,
    SharedPace,
    Sighting,
    Standing,
    Sweep,
    Turns,
    Waiting,
)
from payments_async.journal._states import EVIDENCE, RULES, SAID, State, Verdict, next_state

__all__ = [
    "Arrival",
    "Awaited",
    "Backlog",
    "CRASH_POINTS",
    "Change",
    "ChangeFeed",
    "Chunk",
    "Chunks",
    "ClaimedOrder",
    "Doubt",
    "EVIDENCE",
    "Evidence",
    "Finding",
    "Heard",
    "Hearing",
    "HeldUp",
    "Inbox",
    "Laid",
    "ListingWord",
    "Loaded",
    "NotPermitted",
    "OldOrder",
    "OpenOrder",
    "Outcome",
    "Pause",
    "Permit",
    "Placed",
    "RULES",
    "RawNotification",
    "Receipt",
    "SAID",
    "SharedPace",
    "Sighting",
    "StoredEvent",
    "Turns",
    "Verdict",
    "Waiting",
    "next_state",
    "why_not_approved",
]

_OPERATIONS = (
    "open_outbox", "put", "take", "drop_laid", "note_sightings", "pause", "resume", "begin_day",
    "open_run", "load", "adopt", "load_block", "load_drop", "load_complete",
    "propose", "approve", "withdraw_approval", "require_approvals",
    "claim_chunk", "renew_chunk", "release_chunk", "expire_chunks", "permit", "withdraw", "record",
    "apply_evidence", "park", "write_off", "acknowledge", "lift_quarantine", "begin_sweep", "end_sweep",
    "give_listing_deadline", "withdraw_listing_deadline",
    "receive", "confirm", "claim", "release", "note_done", "finish", "retry_later", "revive", "prune", "check_writable",
    "hear", "claim_changes", "release_changes", "note_change_done", "finish_changes", "retry_change", "revive_changes",
    "prune_changes", "forget_changes", "take_duty", "leave_duty", "begin_archive", "prune_orders", "end_archive",
    "retire", "name_rate", "leave_pace", "reserve_turns", "cool_down",
)  # fmt: skip
_WITHIN = (
    "claim_chunk.token_raised",
    "load_complete.events_applied",
    "permit.after_recorded",
    "put.permitted",
    "receive.stored",
)

# An operation has begun, and nothing of it is written; all of it is written, and nothing committed. The same of the
# commit: everything in it is written; it is on disk, and nobody has been told.
CRASH_POINTS: tuple[str, ...] = (
    *(f"{name}.{step}" for name in _OPERATIONS for step in ("begun", "written")),
    *_WITHIN,
    "commit.begun",
    "commit.done",
)


class Journal(Inbox, ChangeFeed, Protocol):
    """The durable outbox and inbox. Several processes may share one.

    Every method raises ``JournalUnavailable`` when the database cannot be written or read.
    """

    async def open_run(
        self,
        batch_id: str,
        identity: RunIdentity,
        *,
        source_digest: str | None = None,
        policy: str | None = None,
        outbox: str | None = None,
        approvals: int = 0,
    ) -> Run:
        """Begin a batch, or find it again.

        Args:
            outbox: Name of the outbox that sends it once it is loaded; without one, whoever runs the batch does.
            approvals: How many persons other than its maker must have approved it; see ``require_approvals``.

        Raises:
            WrongAccount: The journal holds batches of another identity.
            NotApproved: Fewer have approved it than that, or than the journal asks for, or another journal of the
                account that this machine knows, or this one before it was restored.
        """

    async def forgotten(self) -> Sequence[str]:
        """Batches that this machine saw complete in the journal, and that it lacks, in words: a backup was put back.

        They were or may have been sent; so whom they paid cannot be found here.
        """

    async def propose(self, proposal: Proposal) -> None:
        """Write down what a plan came to, and whose it is, so that somebody else may approve it."""

    async def proposals(self, digest: str | None = None) -> Sequence[Proposal]:
        """Who proposed a plan, oldest first; without a digest, the latest hundred of all proposals."""

    async def approve(self, digest: str, *, by: Signature, note: str) -> Approval:
        """Approve what was proposed; once more by the same person changes nothing.

        Raises:
            NotApproved: Nobody has proposed it, or the person is its maker.
        """

    async def withdraw_approval(self, digest: str, *, by: Signature) -> Approval:
        """Take back one's own approval: nothing more of the batch is begun by a run that starts later.

        Raises:
            NotApproved: They have not approved it.
        """

    async def approvals(self, digest: str) -> Sequence[Approval]:
        """All approvals of a plan, also those that were taken back, oldest first."""

    async def require_approvals(self, rule: ApprovalRule) -> None:
        """Ask for approvals of every batch, and of each decision of a person that sends orders, from now on.

        Single orders of an outbox need none when they are put.

        Raises:
            ValueError: The rule says not who sets it, or not why.
        """

    async def approval_rule(self) -> ApprovalRule:
        """How many persons have to approve each batch.

        A later and stricter rule that this machine remembers holds: of this journal before it was restored, or of
        another journal of its account.
        """

    async def run(self, batch_id: str) -> Run:
        """A batch as it stands.

        Raises:
            RunUnknown: There is no such batch.
        """

    async def load(
        self,
        batch_id: str,
        orders: Iterable[Order] | AsyncIterable[Order],
        *,
        owner: str,
        adoption: Adoption | None = None,
        sent: Callable[[Order], Awaitable[Evidence | None]] | None = None,
    ) -> Loaded:
        """Write down all orders of a batch, in constant memory. The same orders again, in any sequence, change nothing.

        A load that was interrupted is begun again and completed; until then nothing of the batch can be claimed. Once
        complete, a batch holds these orders for good.

        Args:
            orders: Walked through once. What is an ``AsyncIterable``, as the orders of a file are, stops nobody else
                meanwhile; anything else is read on the event loop, to which it may belong.
            owner: Who loads, so that two do not at once.
            adoption: A named person's word that orders which another batch holds, and may have sent, go on in this
                one. Then all of it is in quarantine: nothing of it is sent before it was looked for.
            sent: Tells how an order ended that the caller's session has sent by itself: it is not sent from here then.

        Raises:
            OrdersArchived: Some of these orders ended long ago, and have left for an archive. Nothing was sent.
            HeldElsewhere: Another journal of this machine, or this one before it was restored, holds some of these
                orders and may have sent them. Nothing of the batch can be claimed.
            OrdersDiffer: A request id with another body, one of another batch, or, once complete, an order more or
                less. It names them. Nothing was sent, nothing was added to a complete batch.
            SecondJournal: This machine has another journal of the account, and no person has said why there are two.
            LoadBusy: Another process is loading.
            RunUnknown: ``open_run`` comes first.
        """

    async def open_outbox(self, name: str, identity: RunIdentity) -> Run:
        """Begin an outbox, or find it again: a batch of this name that never ends, whose orders are put one by one.

        Raises:
            WrongAccount: The journal holds batches of another identity.
            OrdersDiffer: A batch has this name.
            SecondJournal: This machine has another journal of the account, and no person has said why there are two.
        """

    def put(
        self,
        name: str,
        order: Order,
        *,
        not_before: float = 0.0,
        priority: int = 0,
        owner: str | None = None,
        chunk: Chunk | None = None,
        lease: float = 30.0,
        permits: bool = False,
        adoption: Adoption | None = None,
        sent: Evidence | None = None,
        body: bytes | None = None,
    ) -> Awaitable[Placed]:
        """Write one order down, to be sent by whoever works its outbox. The same order again changes nothing.

        It is begun when this is called, and done also when nobody waits for it.

        An order that a notification, or a list read since the journal may have forgotten some, has told of before is
        not sent. One that has left for an archive is there as it ended, and is not sent either.

        Args:
            not_before: Unix seconds before which it is not sent.
            priority: Higher ones go first, among orders that wait in the same hands.
            owner: Who works the outbox, and will send it; then it is put into their chunk. Without one, anybody may
                claim it; so may everybody that which is due in more than a minute.
            chunk: The one they hold, if any. Where it is full, or lost, another one is leased for them.
            permits: They send it at once: it is permitted in the same commit, by the rules of ``permit``, if it is new
                and due. When this raises, nothing may be sent.
            adoption: A named person's word that it is sent from here, though another journal holds it, or this one
                held it before it was restored.
            sent: How it ended, accepted or unknown, where the caller's session has sent it by itself. A new order is
                written down so, and is not sent from here.
            body: What ``write_order`` made of the order, where the caller has done that.

        Raises:
            OrdersDiffer: The journal holds another order under this request id.
            HeldElsewhere: Another journal of this machine may have sent it, or this one before it was restored.
            RunUnknown: ``open_outbox`` comes first.
        """

    async def lay(
        self,
        name: str,
        order: Order,
        connection: object,
        *,
        not_before: float = 0.0,
        priority: int = 0,
        body: bytes | None = None,
    ) -> Entry:
        """Put one order within a transaction of the application's own: into the tray, whence ``take`` takes it.

        With one statement and no lock. It is there if, and only if, that transaction is committed. The same order
        again changes nothing.

        Args:
            connection: An open connection of asyncpg, psycopg or SQLAlchemy on which a transaction has begun.
            body: As for ``put``.

        Raises:
            OrdersDiffer: The journal, its tray or one of its archives holds another order under this request id.
            JournalRefused: It lies in the tray, and could not be taken.
            RunUnknown: ``open_outbox`` comes first.
            NotAJournal: The connection leads to a database without this journal.
            TypeError, ValueError: It is no such connection, or in no transaction.
        """

    async def laid(self, name: str, *, after: int = 0, limit: int = 200, stuck: bool = False) -> Sequence[Laid]:
        """Orders in the tray of an outbox with higher ids than this, lowest first.

        Args:
            stuck: Those that could not be taken, and not those that wait.
        """

    async def laid_since(self, seen: int, *, timeout: float) -> int:
        """Wait until anybody has laid something in the tray since, as ``committed`` does for all else."""

    async def count_laid(self, name: str) -> tuple[int, int]:
        """How many orders lie in the tray of an outbox, and how many of these could not be taken."""

    async def take(
        self,
        name: str,
        numbers: Sequence[int],
        *,
        owner: str | None = None,
        chunk: Chunk | None = None,
        lease: float = 30.0,
        permits: Collection[int] = (),
    ) -> Mapping[int, Placed | Exception]:
        """Take orders out of the tray, and put them, all in one commit: by their ids there.

        What cannot be put stays, with its problem in words, and holds up none of the others; what is one of a batch
        that is being loaded just stays. Those that somebody else has taken are left out.

        Whoever has taken any looks into the tray again and again for the next two seconds: for so long nobody may hear
        of more by ``laid_since``.

        Args:
            owner, chunk, lease: As for ``put``.
            permits: Those of them that are sent at once, as ``permits`` of ``put``.
        """

    async def drop_laid(self, name: str, request_id: str, *, who: str, why: str) -> None:
        """A named person has seen that an order could not be taken, and it is not to be sent.

        Raises:
            OrderUnknown: There is no such order in the tray that could not be taken.
        """

    async def waiting(self, name: str, *, owner: str | None = None) -> Sequence[Waiting]:
        """The runs of an outbox in which something is not done, oldest first.

        Args:
            owner: Whose chunks are looked at for orders that may be sent again since they were leased.
        """

    async def held_up(self, name: str) -> HeldUp:
        """What of an outbox waits for a person: chunks in quarantine, batches that are not here whole."""

    async def strangers(self, name: str) -> int:
        """How many orders lists have shown, since an outbox was last looked for, that the journal does not hold.

        Another journal, or another program, pays from the same account.
        """

    async def note_sightings(self, sightings: Sequence[Sighting]) -> None:
        """Remember what a list has shown and the journal does not hold; ``put`` finds it there."""

    async def pause(self, name: str, *, who: str, why: str) -> None:
        """Let nothing be sent from an outbox until somebody resumes it; orders are put all the same."""

    async def resume(self, name: str, *, who: str, why: str) -> bool:
        """A named person lets an outbox send again; tells whether it was paused."""

    async def paused(self, name: str) -> Pause | None:
        """Who paused an outbox, and why; ``None`` where it sends."""

    async def begin_day(self, name: str, day: str, spent: Decimal) -> Decimal:
        """What an outbox had spent in all when a day began: as whoever saw that day first has put it down.

        Of a day before the last one that began it is what it was for that: a clock that is set back begins none.
        """

    async def claim_chunk(self, batch_id: str, owner: str, *, lease: float = 30.0) -> Chunk | None:
        """Lease the first free chunk with planned orders for so many seconds; ``None`` when there is none.

        What the last holder left ``sending`` is unknown from then on.

        Raises:
            RunUnknown: The batch is not loaded.
            HeldElsewhere: Another journal of this machine has adopted orders of it.
        """

    async def renew_chunk(self, chunk: Chunk, *, lease: float = 30.0) -> Chunk:
        """Prolong a lease, which may have run out as long as nobody took it over. Raises ``LeaseLost`` otherwise."""

    async def release_chunk(self, chunk: Chunk) -> None:
        """Give a chunk back at once. To be called when nothing of it is under way any more."""

    async def expire_chunks(self, batch_id: str | None = None, *, owner: str | None = None) -> int:
        """Take over every chunk whose lease ran out, for nobody: tells how many orders are unknown now.

        Args:
            owner: Those of this owner instead, of any batch, whose leases are good: it has nothing in hand. The answer
                to a claim may have been lost, and then it does not know what to release.
        """

    async def chunks(self, batch_id: str) -> Chunks:
        """How the chunks of a batch stand."""

    async def permit(
        self, chunk: Chunk, claimed: ClaimedOrder, *, after: Outcome | None = None
    ) -> Permit | NotPermitted:
        """Ask to send one order once; in the same commit, record the outcome of the one before.

        When this raises, nothing may be sent, and the outcome has to be recorded again. When it is cancelled the
        outcome is recorded, and a permit that was granted is given back: it never reached the caller, so nothing left.
        """

    def follow_departures(self, owner: str) -> Callable[[Permit], None]:
        """What to call for each permit before its first byte leaves, from now on, by all who send as this owner.

        So a process that died is known not to have sent what it was permitted and never called this for. A lease that
        the owner has taken before is not followed.
        """

    def heed(self, service_clock: Callable[[], float | None]) -> None:
        """Know the service's clock, in Unix seconds, ``None`` where it has told nothing: it dates its list by that.

        Where our own is more than half a day ahead of it, permits are dated by the service's: else an order would be
        looked for in days in which it was not sent, once our clock is right. Where it is a minute to half a day behind,
        as well: else what is to be waited for after a permit would be over too early.
        """

    async def record(self, outcome: Outcome) -> Finding:
        """Write down how an attempt ended. Taken at any time, also when the lease was lost; also when cancelled."""

    async def apply_evidence(self, evidence: Evidence) -> Finding | None:
        """Write down what was found out about an order; ``None`` when the journal holds no such order."""

    async def park(
        self, request_id: str, *, detail: str, sent_at: float | None = None, since: float | None = None
    ) -> Finding:
        """Two clean sweeps of a closed window did not find an unknown order: a person has to decide.

        Where a person has given a listing deadline that holds for it, it is planned again by that word instead. Else
        the reason why not is kept with ``detail``.

        Args:
            sent_at: Unix seconds of the permit that the sweeps were about. If the order has had another permit since,
                they say nothing of it, and it stays as it is.
            since: Unix seconds by the service's clock at which the first of these sweeps began, 0 where that is not
                known; ``None`` parks it whatever was given.
        """

    async def give_listing_deadline(self, deadline: ListingDeadline, *, who: str | Signature, why: str) -> None:
        """A named person answers for it that the service lists in time what it has carried out.

        An unknown order that two clean sweeps after that time do not show never arrived, by that word: it is planned
        again, once, as that person's decision. That is so where nothing else speaks of it, and within the limits. For
        its currency the word takes the place of the one before.

        Raises:
            NotApproved: The journal asks for approvals, and too few others have approved this very word.
        """

    async def withdraw_listing_deadline(self, currency: str | None, *, who: str | Signature, why: str) -> bool:
        """A named person takes back the word for a currency: orders are parked again. Tells whether there was one."""

    async def listing_words(self) -> Sequence[ListingWord]:
        """The listing deadline that was given last for each currency, also where it holds no more."""

    async def write_off(self, request_id: str, *, who: str | Signature, why: str, seen: float | None = None) -> Entry:
        """A named person states that a parked order never arrived: it is planned again.

        What contradicted that until then (a notification about an order that was never sent from here, a transaction
        of another amount) they call false with it: it is disputed, and neither it nor a repeat of it moves the order
        again. What is new later counts.

        Args:
            seen: ``Entry.updated_at`` of the order as that person saw it: if anything was learned since, it is refused.

        Raises:
            NotApproved: The journal asks for approvals, and too few others have approved this very decision.
            NotParked: It is not parked, or has changed since it was seen.
            OrderUnknown: There is no such order.
        """

    async def write_off_all(
        self, request_ids: Sequence[str], *, who: str | Signature, why: str, seen: Mapping[str, float] | None = None
    ) -> Sequence[Entry]:
        """Write off several orders in one decision, as ``write_off`` does one: all of them or none.

        Args:
            seen: ``Entry.updated_at`` of the orders as that person saw them, by request id.
        """

    async def acknowledge(self, request_id: str, *, who: str, why: str, seen: float | None = None) -> Entry:
        """A named person has seen the conflict of an order: it is kept in the history and counted no more.

        The same evidence again is no new conflict; any other is.

        Args:
            seen: ``Entry.updated_at`` of the order as that person saw it: a conflict that came since then stands.
        """

    async def lift_quarantine(
        self,
        batch_id: str,
        *,
        who: str | Signature,
        why: str,
        seen: float | None = None,
        request_ids: Collection[str] | None = None,
    ) -> int:
        """A named person states that the orders of quarantined chunks were looked up: tells how many chunks.

        It asks for what parking an order asks for: two clean sweeps, after the grace time (``Run.awaits``). For an
        outbox, what is put from now on is sent too.

        Args:
            seen: ``Run.quarantined_at`` of the batch as that person saw it: if the journal was found to be a copy
                again since then, it is refused.
            request_ids: Orders that the service surely never had: with every planned order of the batch named,
                nothing is awaited. That is recorded.

        Raises:
            NotLookedFor: Something is still awaited, or planned orders were not named.
        """

    async def begin_sweep(self, batch_id: str | None, *, since: date, until: date) -> Sweep:
        """Note that the service's list of these days is read from now on, and compared with the journal row by row.

        It counts once it has ended, for the batch it was made for, until the journal is found to be a copy again.

        Args:
            batch_id: ``None`` where it is made for none in particular.
            since, until: First and last day; ``since`` lies a day before the first moment that matters, for the
                service names no time zone.

        Raises:
            RunUnknown: There is no such batch.
        """

    async def end_sweep(self, sweep: Sweep, *, grace: float = GRACE, interval: float = INTERVAL) -> None:
        """Note how it ended: ``rows``, ``requests``, ``counted``, ``clean`` and ``problem`` of this sweep.

        Args:
            grace: Seconds since the journal was found to be copied or restored, before which none counts as clean.
            interval: Seconds between two that do.
        """

    async def sweeps(self, batch_id: str | None = None) -> Sequence[Sweep]:
        """The latest sweeps that were made for a batch, or for any, at most 1,000; oldest first."""

    async def is_known_here(self, batch_id: str) -> bool:
        """Whether a list was read for this batch since a machine opened the journal that had not seen it before.

        Until then it may be an older copy, however often it was opened since.
        """

    async def is_looked_for(self, batch_id: str | None = None) -> bool:
        """Whether a list was read to its end since this journal was made and since it was last found to be a copy.

        Args:
            batch_id: Only a list of all days since this batch was made, read for it, counts; and nothing must be
                awaited any more where the journal was found to be a copy (``Run.awaits``).
        """

    async def sent_since(self, batch_id: str | None, states: Sequence[State], *, after: float = 0.0) -> float | None:
        """Unix seconds of the first permit of all orders in these states, earlier attempts included, or ``None``.

        Args:
            after: Orders whose last permit is older are left out.
        """

    async def take_duty(self, name: str, owner: str, *, lease: float) -> bool:
        """Ask for what one of all who share this journal does for the others; tells whether it is the owner's now.

        It is for so many seconds, and is asked for again before they are over. Who dies loses it at once, where that
        can be known. It keeps two from doing the same work, and nothing depends on that: one who was stopped and wakes
        up may be at it beside the next.

        Args:
            owner: A name that nobody else has.
        """

    async def leave_duty(self, name: str, owner: str) -> None:
        """Give a duty back at once. Harmless for one that is not the owner's."""

    async def pace(self) -> SharedPace:
        """How fast all may send who share this journal; a look, and no commit."""

    async def name_rate(self, owner: str, rate: float, *, lease: float) -> SharedPace:
        """Say at which rate all who share this journal may send together; tells what counts now.

        The lowest counts that anybody at work names, and whoever names none keeps to it. It is kept when nobody is at
        work any more, until another one is named.

        Args:
            owner: A name that nobody else has.
            rate: Orders a second; infinity for no limit.
            lease: Seconds for which the owner counts as at work; it is named again before they are over.
        """

    async def leave_pace(self, owner: str) -> None:
        """Say that somebody who has named a rate is not at work any more. Harmless for one that has not."""

    async def reserve_turns(self, count: int) -> Turns:
        """Ask for the next turns of the rate of all, before permits are asked for: so many or fewer, or none yet.

        Each is for one order and for its moment alone; one that is not used is gone.
        """

    async def cool_down(self, seconds: float, *, why: str) -> None:
        """Let nobody who shares this journal begin anything for so many seconds, 900 at most: the service asks for it.

        Args:
            why: In its words.
        """

    def open_orders(self, outbox: str, state: State) -> AsyncIterator[Iterable[OpenOrder]]:
        """The unknown, parked or accepted orders of all that an outbox sends, some thousands at a time.

        Of the failed ones those that a notification alone says have failed.
        """

    async def entry(self, request_id: str) -> Entry | None:
        """One order. Ids that differ in letters alone are one: ``Entry.request_id`` tells how it is written."""

    async def entries_of(self, request_ids: Sequence[str]) -> Mapping[str, Entry]:
        """Those of these orders that the journal holds and that can be read, by the request ids asked for."""

    def entries(self, batch_id: str | None = None, state: State | str | None = None) -> AsyncIterator[Entry]:
        """Orders in the sequence they were loaded in; constant memory; changes made meanwhile may or may not show."""

    def standings(self, batch_id: str) -> AsyncIterator[Iterable[Standing]]:
        """Every order of a batch with what brought it to where it stands, some hundreds at a time; constant memory.

        Each of these portions can be walked through once, in any thread. An order and its decision are of one moment.
        The sequence is that of ``entries``.

        Raises:
            RunUnknown: There is no such batch.
        """

    def paid_since(self, since: float, *, but: str | None = None) -> AsyncIterator[Iterable[Entry]]:
        """Orders that may be paid yet, and those that were accepted or paid since then, in portions as ``standings``.

        Args:
            since: Unix seconds; compared with the last change of an order.
            but: A batch that is left out.
        """

    def conflicts(self, batch_id: str | None = None) -> AsyncIterator[Entry]:
        """Orders with a contradiction that nobody has acknowledged, as far as they can be read."""

    async def progress(self, batch_id: str | None = None, *, outbox: str | None = None) -> Progress:
        """Counts and sums of a batch, or of all; cheap at any size.

        Args:
            outbox: Of what one outbox sends alone: single orders and batches.
        """

    async def oldest(self, outbox: str) -> Mapping[State, float]:
        """Unix seconds since which orders of an outbox that are due wait to be sent, and others are unknown or parked.

        States in which there is none are left out.
        """

    async def runs(self) -> Sequence[Run]:
        """All batches, oldest first."""

    async def history(self, request_id: str) -> Sequence[Happening]:
        """All that is known of one order, in time.

        Raises:
            OrderUnknown: There is no such order.
        """

    async def traces(self, request_id: str) -> Sequence[Happening]:
        """What is known of an order that the journal does not hold, in time: such an order may have been paid.

        That a list showed it, that it was notified of, that it lies in the tray (``laid``), that another journal of
        this machine has it, or this one had it before it was restored (``registered``, by nobody). For one that it
        holds there is ``history``.
        """

    async def decisions(self, batch_id: str) -> Sequence[Happening]:
        """What named persons decided about a batch as a whole, in time; those about an order are in its history.

        Raises:
            RunUnknown: There is no such batch.
        """

    async def prune_inbox(self, *, older_than: float) -> Pruned:
        """Forget notifications that came, the last time, more than so many seconds ago.

        Kept whatever their age are those that wait or are dead letters, those about an order without a final outcome
        or with a contradiction nobody has acknowledged, and the newest one. One that is forgotten and sent again is
        new, and an order that is loaded after it was forgotten is not known to have been told of. What it settled
        stays settled, and the order's history still tells by what. The file's room is used again; it does not shrink.
        """

    def old_orders(self, *, older_than: float) -> AsyncIterator[Sequence[OldOrder]]:
        """Orders that may leave for an archive, some hundreds at a time; constant memory. Nothing is changed.

        Those that ended and were not changed for so many seconds, that nothing contradicts, of which no handler has
        still to hear and no notification waits. Single orders of an outbox one by one; of a batch all, or none yet.
        """

    async def begin_archive(self, path: str, *, who: str, why: str) -> int:
        """Note a file that orders will leave for, as a named person wants; tells its number."""

    async def prune_orders(self, archive: int, orders: Sequence[OldOrder]) -> int:
        """Let orders leave that were written to an archive, and are on disk there; tells how many did.

        Those of which more was learned since they were read stay. What stays of the others is what tells that they
        were: their ids, a digest of what they said and how they ended. They are counted by ``progress`` as before, none
        of them is ever taken again, and what is told of one later is known to be about it.
        """

    async def end_archive(self, archive: int) -> None:
        """Note that nothing more leaves for a file."""

    async def archives(self) -> Sequence[Archive]:
        """All files that orders have left for, oldest first."""

    async def archived_of(self, request_ids: Sequence[str]) -> Mapping[str, ArchivedOrder]:
        """Those of these orders that have left for an archive, by the request ids asked for."""

    async def unmatched_events(self) -> int:
        """Notifications about orders this journal never sent."""

    def unmatched(self) -> AsyncIterator[StoredEvent]:
        """These, oldest first: who ordered them?"""


name_publicly(globals())

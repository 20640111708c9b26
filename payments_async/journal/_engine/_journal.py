"""Journal: a journal in a database, whichever that is. It holds the threads; the statements lie beside it."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, TypeVarTuple

import attrs

from payments_async._values.checks import check_number
from payments_async._values.errors import InvalidOrder
from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import write_order
from payments_async._wire.events import TransactionEvent
from payments_async._wire.orders import Order
from payments_async.journal._approvals import (
    Approval,
    ApprovalRule,
    Proposal,
    Signature,
    rule_in_force,
)
from payments_async.journal._changes import OrderEvent, Subscription
from payments_async.journal._engine._database import JournalDatabase, examined
from payments_async.journal._engine._tally import Wanted
from payments_async.journal._engine._threads import Sequencer
from payments_async.journal._engine._writer import Writer
from payments_async.journal._examination import VerificationReport
from payments_async.journal._faults import (
    JournalClosed,
    JournalCorrupt,
    JournalError,
    JournalRefused,
    JournalUnavailable,
    OrderUnknown,
    RunUnknown,
)
from payments_async.journal._inbox import Arrival, Backlog, Heard, Pruned, RawNotification, Receipt, StoredEvent
from payments_async.journal._machine._departures import Departures, remains
from payments_async.journal._machine._memory import (
    Loading,
    PutRegistrar,
    Registry,
    check_adopted,
    held_elsewhere,
)
from payments_async.journal._records import (
    GRACE,
    INTERVAL,
    Archive,
    ArchivedOrder,
    Chunk,
    Chunks,
    ClaimedOrder,
    Entry,
    Evidence,
    Happening,
    HeldUp,
    ListingDeadline,
    ListingWord,
    ListScan,
    Loaded,
    NotPermitted,
    OldOrder,
    OpenOrder,
    Outcome,
    OutcomeWithHistory,
    Particulars,
    Pause,
    Permit,
    Placed,
    Progress,
    RateSlots,
    Remains,
    Run,
    RunIdentity,
    SharedRate,
    Staged,
    TakeoverAuthorisation,
    TransitionResult,
    Waiting,
    check_named,
)
from payments_async.journal._signed_approvals import Approver, read_answer
from payments_async.journal._statements import (
    _approvals,
    _approvers,
    _archiving,
    _changes,
    _deliveries,
    _entries,
    _events,
    _evidence,
    _history,
    _leases,
    _listing_deadlines,
    _loading,
    _moving,
    _notifications,
    _particulars,
    _permits,
    _puts,
)
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._deliveries import INBOX, OUTBOX
from payments_async.journal._statements._entries import Commit
from payments_async.journal._statements._leases import DUTY, RATE
from payments_async.journal._statements._permits import end_leases_of_crashed_sessions, record_unsent
from payments_async.journal._states import State
from payments_async.journal._versions import Migration

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_INHERITED: list[object] = []  # what the process before a fork has opened is closed by that process alone
_NO_DATABASE = "connection: the journal is not a part of its database; use a PostgresJournal"
_NOT_GRANTED = "whether it was permitted was not known, and it was not sent"
_GIVE_BACK_AGAIN = 0.1  # seconds until it is tried again to give back what nobody has heard of
_MOST_FINALS = 100  # events of one order that are looked through


class Journal:
    """The durable outbox and inbox, in a database: ``SqliteJournal`` or ``PostgresJournal``. Processes may share one.

    Every method raises ``JournalUnavailable`` when the database cannot be written or read.

    A database of its own gives a journal its ``JournalDatabase``, and its own way to hear what others have committed;
    all else is the same for each, which is to submit and to read.

    Args:
        database: Gives the database, before it is opened: once, and again in a process that was forked off.
        second_journal: Who says why an account has this journal too, where this machine has another one of it.
        crash_at: Called with the name of every point between two steps (``CRASH_POINTS``), for tests that kill there.

    Attributes:
        new_database: The database, not open.
        second_journal: Who says why the account has this journal too.
    """

    _put_all = staticmethod(_puts.put_all)
    _cancel = staticmethod(_evidence.cancel)

    def __init__(
        self,
        database: Callable[[], JournalDatabase],
        *,
        second_journal: TakeoverAuthorisation | None = None,
        crash_at: Callable[[str], None] | None = None,
    ) -> None:
        self.new_database = database
        self.second_journal = second_journal
        self._crash_at = crash_at
        self._prepare()

    def _prepare(self) -> None:
        """Everything that belongs to one process."""
        self._database = self.new_database()
        self._writer = Writer(self._database, crash_at=self._crash_at)
        self._departures = Departures()
        self._writer.leased = self._departures.lease
        self._uids: dict[str, str] = {}
        self._unseen_at: float | None = None
        self._registrars: dict[str, PutRegistrar] = {}
        self._reader: Connection | None = None
        self._reading: Sequencer | None = None
        self._has_leased = False  # anything that it gives back when it closes
        self._before_close: list[Callable[[], Awaitable[None]]] = []

    @property
    def place(self) -> str:
        """Where it is, in words and without a password."""
        return self._database.named

    async def exists(self) -> bool:
        """Whether there is a journal; nothing is made.

        Raises:
            JournalError: That cannot be found out.
        """
        return await asyncio.to_thread(self.new_database().exists)

    async def migration(self) -> Migration:
        """What bringing the journal up to date would do. It is not opened, and nothing is changed.

        Raises:
            JournalTooNew: A newer version of this package has changed it beyond what this one may use.
            JournalError: With what to do about it.
        """
        return await asyncio.to_thread(self.new_database().migration)

    async def migrate(self) -> Migration:
        """Bring the journal up to date, in one transaction; tells what was done. It is not opened.

        Processes of the version before may have it open and go on; none of them writes meanwhile. A file is brought up
        to date whenever it is opened, a database by this alone, which also makes the tables where there are none: by
        the role that they belong to.

        Raises:
            JournalTooNew, JournalError: As ``migration``.
        """
        return await asyncio.to_thread(self.new_database().migrate)

    async def examine(self, *, progress: Callable[[int, int], object] | None = None) -> VerificationReport:
        """Read all of the journal as it is at this moment, and what it relies on; open or not. Nothing is changed.

        Workers do not wait for it. Takes seconds for a hundred thousand orders.

        Args:
            progress: Called with how many orders were read, and how many there are, now and then, in another thread.

        Raises:
            JournalError: It cannot be read.
        """
        return await asyncio.to_thread(examined, self.new_database(), progress)

    async def check(self) -> None:
        """Raise ``JournalCorrupt`` where the journal is damaged, or does not agree with itself; see ``examine``."""
        found = await self.examine()
        damages = [one.found for one in found.circumstances if one.is_wrong and one.name == "file"]
        damages += [f"{flaw.about}: {', '.join(flaw.examples)}" for flaw in found.flaws]
        if damages:
            raise JournalCorrupt(f"{self.place}: the journal is damaged ({'; '.join(damages)})")

    @property
    def is_new(self) -> bool:
        """Whether opening it has made it: it knows no earlier payment."""
        return self._database.is_new

    async def is_known_here(self, batch_id: str) -> bool:
        """Whether a list was read for this batch since a machine opened the journal that had not seen it before.

        Until then it may be an older copy, however often it was opened since.
        """
        if self._unseen_at is None:
            return True
        return await self._read(_history.is_read_since, batch_id, self._unseen_at)

    @property
    def is_writing(self) -> bool:
        """Whether a commit is under way or waits, for a test that lets no time pass meanwhile."""
        return self._writer.is_busy

    def now(self) -> float:
        """Unix seconds by the clock of the journal's moments: in PostgreSQL the server's, as it was when last asked."""
        return self._database.now()

    @property
    def journal_id(self) -> str:
        """Its identity while it is open, which a copy has as well."""
        return self._database.journal_id

    @property
    def remembered_in(self) -> Path | None:
        """The state folder while it is open; ``None`` where nothing outside of the journal's own folder knows of it."""
        memory = self._database.memory
        return None if memory is None else memory.folder

    async def __aenter__(self) -> Self:
        if self._writer.is_forked:
            self._leave_to_the_parent()
        if self._writer.is_open:  # the end of an inner block would close it under those of the outer one
            raise RuntimeError("this journal is open already: open it once, for as long as all who are given it")
        try:
            await self._writer.open()
        except BaseException:
            self._database.close()  # it was opened in the end, where only the wait for that was cancelled
            raise
        self._unseen_at = self._database.unseen_at  # asked once: without a state folder each connection is unseen
        self._database.start_heartbeat()
        self._reading = Sequencer()  # by the writer's thread, where no further one can be started
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let those finish who work with it, then what is queued, and close it."""
        if self._writer.is_forked:
            self._leave_to_the_parent()
            return
        self._writer.check_loop()
        try:
            async with AsyncExitStack() as finishing:  # the last one first; one that fails stops none of the others
                for finish in self._before_close:
                    finishing.push_async_callback(finish)
                self._before_close = []
            if self._has_leased and self._database.holder:
                self._has_leased = False
                with suppress(JournalError):  # their time runs out
                    await self._submit("release", _release_all, self._database.holder, at_once=True, gives_back=True)
        finally:
            await self._close()

    async def _close(self) -> None:
        """End the thread that writes and the one that reads, whatever fails."""
        reading, self._reading = self._reading, None
        self._registrars, self._uids = {}, {}  # of the registry that is closed now
        try:
            await self._writer.aclose()
        finally:  # also when a second ctrl-c cancels the wait for the last commit
            self._departures.close()
            self._database.close()
            if reading is not None:
                reading.put(self._close_reader)  # after what is still read, which may open the connection only then
                await reading.end()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        self._database.wait_for_end()

    def before_close(self, finish: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Have something finished before the inbox closes; what is returned takes that back."""
        self._before_close.append(finish)

        def take_back() -> None:
            if finish in self._before_close:
                self._before_close.remove(finish)

        return take_back

    # The outbox: batches

    async def open_run(
        self,
        batch_id: str,
        identity: RunIdentity,
        *,
        source_digest: str | None = None,
        policy: str | None = None,
        outbox: str | None = None,
        approvals: int = 0,
        compared: Collection[str] | None = None,
    ) -> Run:
        """Begin a batch, or find it again.

        Args:
            outbox: Name of the outbox that sends it once it is loaded; without one, what runs the batch does.
            approvals: How many persons other than its maker must have approved it; see ``require_approvals``.
            compared: The complete batches of the journal when this one was planned; see ``Plan.compared``.

        Raises:
            NotCompared: Another batch is complete by now, and this one is not.
            WrongAccount: The journal holds batches of another identity.
            NotApproved: Fewer have approved it than that, or than the journal asks for, or another journal of the
                account that this machine knows, or this one before it was restored.
        """
        begin = (batch_id, identity, source_digest, policy, secrets.token_hex(8), outbox, approvals)
        await self._submit("open_run", _loading.begin_run, *begin, await self._remembered_rules(identity), compared)
        return await self.run(batch_id)

    async def run(self, batch_id: str) -> Run:
        """A batch as it stands.

        Raises:
            RunUnknown: There is no such batch.
        """
        return await self._read(_entries.run, batch_id)

    async def runs(self) -> Sequence[Run]:
        """All batches, oldest first."""
        return await self._read(_entries.runs)

    async def propose(self, proposal: Proposal) -> None:
        """Write down what a plan came to, and whose it is, so that another person may approve it."""
        await self._submit("propose", _approvals.propose, proposal)

    async def proposals(self, digest: str | None = None, *, file_digest: str | None = None) -> Sequence[Proposal]:
        """Who proposed a plan, oldest first, also what was taken back; by default, the latest hundred of all.

        Args:
            file_digest: Those that were made from this file, in place of those of one plan.
        """
        return await self._read(_approvals.proposals, digest, file_digest)

    async def account_currency(self, batch_id: str) -> str | None:
        """What orders of a batch or outbox that name no currency are in: that of the account.

        The proposal of the batch keeps it. Where there is none, the service's records of these orders show it.

        Returns:
            The currency. ``None`` as long as neither tells it, or where records name several.

        Raises:
            RunUnknown: The journal holds no batch of that name.
        """
        return await self._read(_history.account_currency, batch_id)

    async def withdraw_proposal(self, digest: str, *, by: Signature) -> Proposal:
        """Take back one's own proposal. If it was the only one, its approvals go too.

        Raises:
            NotApproved: They have not proposed it.
        """
        return await self._submit("withdraw_proposal", _approvals.withdraw_proposal, digest, by)

    async def approve(self, digest: str, *, by: Signature, note: str) -> Approval:
        """Approve what was proposed; once more by the same person changes nothing.

        Raises:
            NotApproved: It was not proposed, or the person is its maker.
        """
        return await self._submit("approve", _approvals.approve, digest, by, note, await self._remembered_rules())

    async def approve_signed(self, answer: str | bytes) -> Approval:
        """Approve by an answer that another person signed on their own machine (``ApproverKey.sign``), once.

        What was signed must be what is proposed now: orders, file, options, maker and moment.

        Raises:
            ValueError: It is another file, or was changed since it was signed.
            NotApproved: The key is not registered, or belongs to the maker or was registered by them; or the proposal
                is another one now.
            ModuleNotFoundError: The extra `signing` is not installed.
        """
        signed = await asyncio.to_thread(read_answer, answer)
        return await self._submit("approve_signed", _approvers.approve, signed, await self._remembered_rules())

    async def register_approver(self, name: str, public_key: str, *, by: Signature, why: str) -> Approver:
        """Count what a person signs with a key of theirs from now on, in place of an earlier key.

        Where the journal asks for approvals, others approve this decision.

        Raises:
            NotApproved: Too few others have approved this very decision.
            ValueError: The key is something else, or a name or the reason is missing.
        """
        decided = (name.strip(), public_key, _signed(by, why), why, await self._remembered_rules())
        return await self._submit("register_approver", _approvers.register, *decided)

    async def withdraw_approver(self, name: str, *, by: Signature, why: str) -> bool:
        """Count nothing more that a person signs; earlier approvals stand. Tells whether they were registered."""
        return await self._submit("withdraw_approver", _approvers.withdraw, name, _signed(by, why), why)

    async def approvers(self) -> Sequence[Approver]:
        """The persons whose signed approvals count."""
        return await self._read(_approvers.approvers)

    async def withdraw_approval(self, digest: str, *, by: Signature) -> Approval:
        """Take back one's own approval: nothing more of the batch is begun by a run that starts later.

        Raises:
            NotApproved: They have not approved it.
        """
        return await self._submit("withdraw_approval", _approvals.withdraw, digest, by)

    async def approvals(self, digest: str) -> Sequence[Approval]:
        """All approvals of a plan, also those that were taken back, oldest first."""
        return await self._read(_approvals.approvals, digest)

    async def require_approvals(self, rule: ApprovalRule) -> None:
        """Ask for approvals of every batch, and of each decision of a person that sends orders, from now on.

        Single orders of an outbox need none when they are put.

        Raises:
            ValueError: The rule says not who sets it, or not why.
        """
        await self._submit("require_approvals", _approvals.require, rule)
        if (memory := self._database.memory) is not None:
            now_rule = await self._read(_approvals.rule)
            await asyncio.to_thread(memory.registry.note_rule, self._database.journal_id, now_rule)

    async def approval_rule(self) -> ApprovalRule:
        """How many persons have to approve each batch.

        A later and stricter rule that this machine remembers holds: of this journal before it was restored, or of
        another journal of its account.
        """
        return rule_in_force(await self._read(_approvals.rule), await self._remembered_rules())

    async def _remembered_rules(self, identity: RunIdentity | None = None) -> Sequence[ApprovalRule]:
        """Which rules this machine knows this journal, and the others of its account, to have."""
        if (memory := self._database.memory) is None:
            return ()
        if identity is None:
            identity = next((run.identity for run in await self.runs()), None)
        return await asyncio.to_thread(memory.registry.rules_of, self._database.journal_id, identity)

    async def forgotten(self) -> Sequence[str]:
        """Batches that this machine saw complete in the journal, and that it lacks, in words: a backup was put back.

        They were or may have been sent; so the payees cannot be found here.
        """
        if (memory := self._database.memory) is None:
            return ()
        remembered = await asyncio.to_thread(memory.registry.batches_of, self._database.journal_id)
        held = {run.batch_id: run for run in await self.runs()}
        once: defaultdict[str, int] = defaultdict(int)
        for one in remembered:  # what another batch has adopted since is not among its orders
            once[one.batch_id] += one.orders
        latest = {one.batch_id: one for one in remembered if one.orders}
        return [str(one) for name, one in latest.items() if _has_forgotten(held.get(name), once[name])]

    async def load(
        self,
        batch_id: str,
        orders: Iterable[Order] | AsyncIterable[Order],
        *,
        owner: str,
        adoption: TakeoverAuthorisation | None = None,
        sent: Callable[[Order], Awaitable[Evidence | None]] | None = None,
        compared: Collection[str] | None = None,
    ) -> Loaded:
        """Write down all orders of a batch, in constant memory. The same orders again, in any sequence, change nothing.

        A load that was interrupted is begun again and completed; until then nothing of the batch can be claimed. Once
        complete, a batch holds these orders for good.

        Args:
            orders: Walked through once. An ``AsyncIterable``, as the orders of a file are, blocks no other task
                meanwhile; anything else is read on the event loop, to which it may belong.
            owner: Who loads, so that two do not at once.
            adoption: A named person's word that orders which another batch holds, and may have sent, go on in this
                one. Then all of it is in quarantine: nothing of it is sent before it was looked for.
            sent: Tells how an order ended that the caller's session has sent by itself: it is not sent from here then.
            compared: As of ``open_run``; what was complete by then need not be all that is when this is loaded.

        Raises:
            NotCompared: As of ``open_run``. Nothing of the batch can be claimed.
            OrdersArchived: Some of these orders ended long ago, and have left for an archive. Nothing was sent.
            HeldElsewhere: Another journal of this machine, or this one before it was restored, holds some of these
                orders and may have sent them. Nothing of the batch can be claimed.
            OrdersDiffer: A request id with another body, one of another batch, or, once complete, an order more or
                less. It names them. Nothing was sent, nothing was added to a complete batch.
            SecondJournal: This machine has another journal of the account, and no person has said why there are two.
            LoadBusy: Another process is loading.
            RunUnknown: ``open_run`` comes first.
        """
        begun: list[_loading.Load] = []  # known also where this is cancelled before it is told

        def begin(commit: Commit) -> _loading.Load:
            begun[:] = (_loading.begin(commit, batch_id, owner),)
            return begun[0]

        def give_up(commit: Commit) -> None:
            for load in begun:
                _loading.give_up(commit, load)

        try:
            return await self._load(batch_id, await self._submit("load", begin), orders, adoption, sent, compared)
        except (JournalRefused, InvalidOrder, asyncio.CancelledError):
            with suppress(JournalError):  # else who loads it next waits until the lease of this load is over
                await self._submit("load", give_up)
            raise

    async def _load(
        self,
        batch_id: str,
        load: _loading.Load,
        orders: Iterable[Order] | AsyncIterable[Order],
        adoption: TakeoverAuthorisation | None,
        sent: Callable[[Order], Awaitable[Evidence | None]] | None,
        compared: Collection[str] | None,
    ) -> Loaded:
        """Write the orders down, block by block, each registered on this machine before."""
        memory = self._database.memory
        loading = None if memory is None else await self._begin_registering(memory.registry, batch_id, load)
        async for block in _loading.blocks(orders):
            if memory is not None and loading is not None and not loading.is_complete:
                request_ids = list(dict.fromkeys(order.request_id for order in block))
                await self._register(memory.registry, loading, load, request_ids, adoption)
            told = {} if sent is None else {order.request_id: await sent(order) for order in block}
            known = {request_id: ended for request_id, ended in told.items() if ended is not None}
            await self._submit("load_block", _loading.add, load, block, known)
        last: int | None = load.first - 1 if load.resumed else None
        while last is not None:
            last = await self._submit("load_drop", _loading.drop_unseen, load, last)
        if adoption is not None and not load.ready:
            await self._submit("adopt", _loading.adopt_unknown, load, adoption)
        if memory is not None and loading is not None and not loading.is_complete:
            await self._make_ready(memory.registry, loading, batch_id, adoption)
        remembered = await self._remembered_rules((await self.run(batch_id)).identity)
        return await self._submit("load_complete", _loading.complete, batch_id, load, remembered, compared)

    # The outbox: single orders

    async def open_outbox(self, name: str, identity: RunIdentity) -> Run:
        """Begin an outbox, or find it again: a batch of this name that never ends, whose orders are put one by one.

        Raises:
            WrongAccount: The journal holds batches of another identity.
            OrdersDiffer: A batch has this name.
            SecondJournal: This machine has another journal of the account, and no person has said why there are two.
        """
        async with self._left_behind() as (dead, left):
            begin = _after_crashes(_puts.open_outbox, dead, left)
            await self._submit("open_outbox", begin, name, identity, secrets.token_hex(8))
        run = await self.run(name)
        if (memory := self._database.memory) is not None and name not in self._registrars:
            registrar = PutRegistrar(
                memory.registry,
                journal_id=self._database.journal_id,
                uid=await self._uid(name),
                name=name,
                identity=identity,
                clock=self._database.now,
            )
            begun = await asyncio.to_thread(registrar.begun, run.quarantined_at)
            if not begun.is_ready:
                await self._make_ready(memory.registry, begun, name, None)
            await asyncio.to_thread(registrar.loading, run.quarantined_at)
            self._registrars[name] = registrar
        return run

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
        adoption: TakeoverAuthorisation | None = None,
        sent: Evidence | None = None,
        body: bytes | None = None,
        traceparent: str | None = None,
    ) -> asyncio.Future[Placed]:
        """Write one order down, to be sent by the process that works its outbox. The same order again changes nothing.

        It is begun when this is called, and done also when its caller waits no more.

        An order that a notification, or a list read since the journal may have forgotten some, has told of before is
        not sent. One that has left for an archive is there as it ended, and is not sent either.

        Args:
            not_before: Unix seconds before which it is not sent.
            priority: Higher ones go first, among orders that wait in the same hands.
            owner: Who works the outbox, and will send it; then it is put into their chunk. Without one, any process
                may claim it; what is due in more than a minute, any process may claim as well.
            chunk: The one they hold, if any. Where it is full, or lost, another one is leased for them.
            permits: They send it at once: it is permitted in the same commit, by the rules of ``permit``, if it is new
                and due. When this raises, nothing may be sent.
            adoption: A named person's word that it is this journal's, though another one holds it, or this one held it
                before it was restored. It may have been sent: it is unknown, and parked once the lists have missed it.
            sent: How it ended, accepted or unknown, where the caller's session has sent it by itself. An order of which
                the journal has made no attempt is written down so, and is not sent from here.
            body: What ``write_order`` made of the order, where the caller has done that.
            traceparent: The trace context (W3C) of who puts it; kept with a new order.

        Raises:
            OrdersDiffer: The journal holds another order under this request id.
            HeldElsewhere: Another journal of this machine may have sent it, or this one before it was restored.
            RunUnknown: ``open_outbox`` comes first.
        """
        if self._database.memory is not None and name not in self._registrars:
            raise RunUnknown(f"the outbox {name} was not opened")
        request = _puts.PutRequest(
            outbox=name,
            order=order,
            body=write_order(order) if body is None else body,
            not_before=not_before,
            priority=priority,
            owner=owner,
            holder=self._database.holder,
            chunk=chunk,
            lease=lease,
            permits=permits,
            register=self._registrars.get(name),
            adoption=adoption,
            sent=sent,
            traceparent=traceparent,
            together=self._put_all,
        )
        placed = self._writer.submit("put", request, together=self._put_all, only_moves=True)
        if permits:
            placed.add_done_callback(partial(self._withdraw_unheard, request))
        return placed

    def _withdraw_unheard(self, request: _puts.PutRequest, placed: asyncio.Future[Any]) -> None:
        """Give back what a put was granted in a commit whose answer was lost."""
        if not placed.cancelled() and isinstance(placed.exception(), JournalUnavailable):
            self._give_back(request, _NOT_GRANTED)

    def _give_back(self, request: _permits.PermitRequest | _puts.PutRequest, why: str) -> None:
        """Give back what was granted to somebody who does not know of it, as soon as the journal can be written."""

        def again(done: asyncio.Future[None]) -> None:
            if not done.cancelled() and isinstance(done.exception(), JournalUnavailable):
                asyncio.get_running_loop().call_later(_GIVE_BACK_AGAIN, self._give_back, request, why)

        with suppress(JournalClosed):
            self._submit("withdraw", _withdraw, request, why).add_done_callback(again)

    # The outbox: single orders, within transactions of the application's own

    @property
    def shares_transactions(self) -> bool:
        """Whether an application's transaction may hold orders and marks of this journal: in a database, not a file."""
        return False

    async def lay(
        self,
        name: str,
        order: Order,
        connection: object,
        *,
        not_before: float = 0.0,
        priority: int = 0,
        body: bytes | None = None,
        traceparent: str | None = None,
    ) -> Entry:
        """Put one order within a transaction of the application's own: into the tray, whence ``take`` takes it.

        With one statement and no lock. It is there if, and only if, that transaction is committed. The same order
        again changes nothing.

        Args:
            connection: An open connection of asyncpg, psycopg or SQLAlchemy on which a transaction has begun.
            body, traceparent: As for ``put``.

        Raises:
            OrdersDiffer: The journal, its tray or one of its archives holds another order under this request id.
            JournalRefused: It lies in the tray, and could not be taken.
            RunUnknown: ``open_outbox`` comes first.
            NotAJournal: The connection leads to a database without this journal.
            TypeError, ValueError: It is not such a connection, or in no transaction.
        """
        raise ValueError(_NO_DATABASE)

    async def lay_all(
        self,
        name: str,
        orders: Sequence[Order],
        connection: object,
        *,
        not_before: float = 0.0,
        priority: int = 0,
        bodies: Sequence[bytes] | None = None,
        traceparent: str | None = None,
    ) -> Sequence[Entry]:
        """Put many orders as ``lay`` puts one, a thousand of them with one statement.

        Args:
            bodies: Of the orders, as for ``put``.
            traceparent: As for ``put``.

        Raises:
            Exception: As of ``lay``. Some of them are in the transaction then: have it undone.
        """
        raise ValueError(_NO_DATABASE)

    async def laid(self, name: str, *, after: int = 0, limit: int = 200, stuck: bool = False) -> Sequence[Staged]:
        """Orders in the tray of an outbox with higher ids than this, lowest first.

        Args:
            stuck: Those that could not be taken, and not those that wait.
        """
        return ()

    async def laid_since(self, seen: int, *, timeout: float) -> int:
        """Wait until something was laid in the tray since, as ``committed`` does for all else."""
        await asyncio.sleep(timeout)  # nothing is ever laid beside a file
        return seen

    async def count_laid(self, name: str) -> tuple[int, int]:
        """How many orders lie in the tray of an outbox, and how many of these could not be taken."""
        return 0, 0

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
        that is being loaded just stays. Those that another process has taken are left out.

        A process that has taken any looks into the tray again and again for the next two seconds: for so long
        ``laid_since`` may tell of no more.

        Args:
            owner, chunk, lease: As for ``put``.
            permits: Those of them that are sent at once, as ``permits`` of ``put``.
        """
        return {}

    async def discard_staged(self, name: str, request_id: str, *, who: str, why: str) -> None:
        """A named person has seen that an order could not be taken, and it is not to be sent.

        Raises:
            OrderUnknown: There is no such order in the tray that could not be taken.
        """
        raise OrderUnknown(f"no order {request_id} of the outbox {name} could not be taken")

    async def waiting(self, name: str, *, owner: str | None = None) -> Sequence[Waiting]:
        """The runs of an outbox in which something is not done, oldest first.

        Args:
            owner: Whose chunks are looked at for orders that may be sent again since they were leased.
        """
        return await self._read(_puts.waiting, name, self._database.now(), owner)

    async def note_observed(self, sightings: Sequence[Evidence]) -> None:
        """Remember what a list has shown and the journal does not hold; ``put`` finds it there.

        Args:
            sightings: Those that name no request id, or no transaction, are left out.
        """
        if sightings:
            await self._submit("note_observed", _puts.note_observed, sightings, at_once=True)

    async def held_up(self, name: str) -> HeldUp:
        """What of an outbox waits for a person: chunks in quarantine, batches that are not here whole."""
        return await self._read(_puts.held_up, name, self._database.now())

    async def unknown_transactions(self, name: str) -> int:
        """How many orders lists have shown, since an outbox was last looked for, that the journal does not hold.

        Another journal, or another program, pays from the same account.
        """
        return await self._read(_puts.unknown_transactions, name)

    async def pause(self, name: str, *, who: str, why: str) -> None:
        """Let nothing be sent from an outbox until a person resumes it; orders are put all the same."""
        await self._submit("pause", _puts.pause, name, who, why)

    async def resume(self, name: str, *, who: str, why: str) -> bool:
        """A named person lets an outbox send again; tells whether it was paused."""
        return await self._submit("resume", _puts.resume, name, who, why)

    async def paused(self, name: str) -> Pause | None:
        """Who paused an outbox, and why; ``None`` where it sends."""
        return await self._read(_puts.paused, name)

    async def begin_day(self, name: str, day: str, spent: Decimal) -> Decimal:
        """What an outbox had spent in all when a day began: as the process that saw that day first has put it down.

        Of a day before the last one that began it is what it was for that: a clock that is set back begins none.
        """
        return await self._submit("begin_day", _puts.begin_day, name, day, spent)

    # The outbox: chunks, permits, outcomes

    async def claim_chunk(self, batch_id: str, owner: str, *, lease: float = 30.0) -> Chunk | None:
        """Lease the first free chunk with planned orders for so many seconds; ``None`` when there is none.

        What the last holder left ``sending`` is unknown from then on.

        Raises:
            RunUnknown: The batch is not loaded.
            HeldElsewhere: Another journal of this machine has adopted orders of it.
        """
        await self._check_adopted(batch_id)
        async with self._left_behind() as (dead, left):
            claim, asked = (
                _after_crashes(_permits.claim_chunk, dead, left),
                (batch_id, owner, self._database.holder, lease),
            )
            return await self._submit("claim_chunk", claim, *asked, droppable=True, at_once=True)

    async def renew_chunk(self, chunk: Chunk, *, lease: float = 30.0) -> Chunk:
        """Prolong a lease, which may have run out as long as no other took it over. Raises ``LeaseLost`` otherwise."""
        await self._check_adopted(chunk.batch_id)
        until = await self._submit("renew_chunk", _permits.renew_chunk, chunk, lease, droppable=True, at_once=True)
        return attrs.evolve(chunk, lease_until=until)

    async def release_chunk(self, chunk: Chunk) -> None:
        """Give a chunk back at once. To be called when nothing of it is under way any more."""
        await self._submit("release_chunk", _permits.release_chunk, chunk, at_once=True, gives_back=True)

    async def expire_chunks(self, batch_id: str | None = None, *, owner: str | None = None) -> int:
        """Give up every chunk whose lease ran out: tells how many orders are unknown now.

        Args:
            owner: Those of this owner instead, of any batch, whose leases are good: it has nothing in hand. The answer
                to a claim may have been lost, and then it does not know what to release.
        """
        if owner is not None:
            return await self._submit("expire_chunks", _permits.give_back_all, owner, gives_back=True)
        async with self._left_behind() as (dead, left):
            is_due = dead or left or batch_id is not None
            if not is_due and not await self._read(_permits.is_expired, self._database.now()):
                return 0  # a commit would be told to everybody
            return await self._submit("expire_chunks", _after_crashes(_permits.expire_chunks, dead, left), batch_id)

    async def chunks(self, batch_id: str) -> Chunks:
        """How the chunks of a batch stand."""
        return await self._read(_permits.chunks, batch_id, self._database.now())

    @asynccontextmanager
    async def _left_behind(self) -> AsyncIterator[tuple[Sequence[str], Sequence[Remains]]]:
        """Who died without an end, and which leases they left here; told no more once the block has ended well."""
        memory = self._database.memory
        folder = None if memory is None else memory.folder
        with remains(folder, self._database.journal_id) as left:
            async with self._database.dead() as dead:
                yield dead, left

    def follow_departures(self, owner: str) -> Callable[[Permit], None]:
        """What to call for each permit before its first byte leaves, from now on, by all who send as this owner.

        So a process that died is known not to have sent what it was permitted and never called this for. A lease that
        the owner has taken before is not followed.
        """
        memory = self._database.memory
        self._departures.begin(None if memory is None else memory.folder, self._database.journal_id, owner)
        return self._departures.mark

    def use_service_clock(self, service_clock: Callable[[], float | None]) -> None:
        """Know the service's clock, in Unix seconds, ``None`` where it has told nothing: it dates its list by that.

        Where our own is more than half a day ahead of it, permits are dated by the service's: else an order would be
        looked for in days in which it was not sent, once our clock is right. Where it is a minute to half a day behind,
        as well: else what is to be waited for after a permit would be over too early.
        """
        self._writer.service_clock = service_clock

    async def permit(
        self, chunk: Chunk, claimed: ClaimedOrder, *, after: Outcome | None = None
    ) -> Permit | NotPermitted:
        """Ask to send one order once; in the same commit, record the outcome of the one before.

        When this raises, nothing may be sent, and the outcome has to be recorded again. When it is cancelled the
        outcome is recorded, and a permit that was granted is given back: it never reached the caller, so nothing left.
        """
        request = _permits.PermitRequest(chunk, claimed, after)
        asked = self._writer.submit(
            "permit", request, together=_permits.grant_all, droppable=after is None, only_moves=True
        )
        try:
            return await asked
        except (asyncio.CancelledError, JournalUnavailable) as error:
            # The caller gets no permit, so nothing leaves; the commit may have granted one all the same, also one
            # whose answer was lost. Where this is not written down any more, the order is unknown when its lease runs
            # out.
            why = "cancelled before it was sent" if isinstance(error, asyncio.CancelledError) else _NOT_GRANTED
            self._give_back(request, why)
            raise

    async def record(self, outcome: Outcome) -> TransitionResult:
        """Write down how an attempt ended. Taken at any time, also when the lease was lost; also when cancelled."""
        attempt = _permits.EndedAttempt(outcome)
        return await self._writer.submit("record", attempt, together=_permits.record_all, only_moves=True)

    # The outbox: evidence and persons

    async def apply_evidence(self, evidence: Evidence) -> TransitionResult | None:
        """Write down what was found out about an order; ``None`` when the journal holds no such order."""
        work = partial(_notifications.apply_evidence, evidence=evidence)
        return await self._writer.submit("apply_evidence", work, together=_evidence.apply_all)

    async def park(
        self, request_id: str, *, detail: str, sent_at: float | None = None, since: float | None = None
    ) -> TransitionResult:
        """Two clean list scans of a closed window did not find an unknown order: a person has to decide.

        Where a person has given a listing deadline that holds for it, it is planned again by that word instead. Else
        the reason why not is kept with ``detail``.

        Args:
            sent_at: Unix seconds of the permit that the list scans were about. If the order has had another permit
                since, they say nothing of it, and it stays as it is.
            since: Unix seconds by the service's clock at which the first of these list scans began, 0 where that is not
                known; ``None`` parks it whatever was given.
        """
        remembered = () if since is None else await self._remembered_rules()
        return await self._submit("park", _listing_deadlines.park, request_id, detail, sent_at, since, remembered)

    async def give_listing_deadline(self, deadline: ListingDeadline, *, who: str | Signature, why: str) -> None:
        """A named person answers for it that the service lists in time what it has carried out.

        An unknown order that two clean list scans after that time do not show never arrived, by that word: it is
        planned again, once, as that person's decision. That is so where nothing else speaks of it, and within the
        limits. For its currency the word takes the place of the one before.

        Raises:
            NotApproved: The journal asks for approvals, and too few others have approved this very word.
        """
        decided = (deadline, _signed(who, why), why, await self._remembered_rules())
        await self._submit("give_listing_deadline", _listing_deadlines.give, *decided)

    async def withdraw_listing_deadline(self, currency: str | None, *, who: str | Signature, why: str) -> bool:
        """A named person takes back the word for a currency: orders are parked again. Tells whether there was one."""
        taken_back = (currency, _signed(who, why), why)
        return await self._submit("withdraw_listing_deadline", _listing_deadlines.withdraw, *taken_back)

    async def listing_words(self) -> Sequence[ListingWord]:
        """The listing deadline that was given last for each currency, also where it holds no more."""
        return await self._read(_listing_deadlines.words, self._database.now())

    async def send_again(self, request_id: str, *, who: str | Signature, why: str, seen: float | None = None) -> Entry:
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
        moments = {} if seen is None else {request_id: seen}
        (entry,) = await self.send_again_all((request_id,), who=who, why=why, seen=moments)
        return entry

    async def send_again_all(
        self, request_ids: Sequence[str], *, who: str | Signature, why: str, seen: Mapping[str, float] | None = None
    ) -> Sequence[Entry]:
        """Have several orders sent again by one decision, as ``send_again`` does one: all of them or none.

        Args:
            seen: ``Entry.updated_at`` of the orders as that person saw them, by request id.
        """
        decided = (tuple(request_ids), _signed(who, why), why, seen or {}, await self._remembered_rules())
        await self._submit("send_again", _evidence.send_again, *decided)
        return [await self._entry(request_id) for request_id in request_ids]

    async def cancel(self, request_id: str, *, who: str, why: str) -> Entry:
        """An order that is planned is not to be sent: it ends as cancelled, for good.

        One that a person had sent again is parked instead: it may have been paid the first time.

        Args:
            who, why: Who wants that: a person, or a part of the application.

        Raises:
            NotCancelled: It may have left, or has ended.
            NotLookedFor: The journal was copied or restored, and the order may have been sent before.
            OrderUnknown: There is no such order.
        """
        await self._submit("cancel", self._cancel, request_id, who, why)
        return await self._entry(request_id)

    async def acknowledge(self, request_id: str, *, who: str, why: str, seen: float | None = None) -> Entry:
        """A named person has seen the conflict of an order: it is kept in the history and counted no more.

        The same evidence again is not a new conflict; any other is.

        Args:
            seen: ``Entry.updated_at`` of the order as that person saw it: a conflict that came since then stands.
        """
        await self._submit("acknowledge", _evidence.acknowledge, request_id, who, why, seen)
        return await self._entry(request_id)

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

        It asks for what parking an order asks for: two clean list scans, after the grace time (``Run.awaits``). For an
        outbox, what is put from now on is sent too.

        Args:
            seen: ``Run.quarantined_at`` of the batch as that person saw it: if the journal was found to be a copy
                again since then, it is refused.
            request_ids: Orders that the service surely never had: with every planned order of the batch named,
                nothing is awaited. That is recorded.

        Raises:
            NotLookedFor: Something is still awaited, or planned orders were not named.
        """
        decided = (batch_id, _signed(who, why), why, seen, request_ids, await self._remembered_rules())
        return await self._submit("lift_quarantine", _evidence.lift_quarantine, *decided)

    # The outbox: list scans

    async def begin_list_scan(self, batch_id: str | None, *, since: date, until: date) -> ListScan:
        """Note that the service's list of these days is read from now on, and compared with the journal row by row.

        It counts once it has ended, for the batch it was made for, until the journal is found to be a copy again.

        Args:
            batch_id: ``None`` where it is made for none in particular.
            since, until: First and last day; ``since`` lies a day before the first moment that matters, for the
                service names no time zone.

        Raises:
            RunUnknown: There is no such batch.
        """
        return await self._submit("begin_list_scan", _history.begin_list_scan, batch_id, since, until)

    async def end_list_scan(self, scan: ListScan, *, grace: float = GRACE, interval: float = INTERVAL) -> None:
        """Note how it ended: ``rows``, ``requests``, ``counted``, ``clean`` and ``problem`` of this list scan.

        Args:
            grace: Seconds since the journal was found to be copied or restored, before which none counts as clean.
            interval: Seconds between two that do.
        """
        await self._submit("end_list_scan", _history.end_list_scan, scan, grace, interval)

    async def list_scans(self, batch_id: str | None = None) -> Sequence[ListScan]:
        """The latest list scans that were made for a batch, or for any, at most 1,000; oldest first."""
        return await self._read(_history.list_scans, batch_id)

    async def is_looked_for(self, batch_id: str | None = None) -> bool:
        """Whether a list was read to its end since this journal was made and since it was last found to be a copy.

        Args:
            batch_id: Only a list of all days since this batch was made, read for it, counts; and nothing must be
                awaited any more where the journal was found to be a copy (``Run.awaits``).
        """
        return await self._read(_history.is_looked_for, batch_id)

    async def sent_since(self, batch_id: str | None, states: Sequence[State], *, after: float = 0.0) -> float | None:
        """Unix seconds of the first permit of all orders in these states, earlier attempts included, or ``None``.

        Args:
            after: Orders whose last permit is older are left out.
        """
        return await self._read(_history.sent_since, batch_id, states, after)

    # The outbox: duties

    async def take_duty(self, name: str, owner: str, *, lease: float) -> bool:
        """Ask for what one of all who share this journal does for the others; tells whether it is the owner's now.

        It is for so many seconds, and is asked for again before they are over. Who dies loses it at once, where that
        can be known. It keeps two from doing the same work, and nothing depends on that: one who was stopped and wakes
        up may be at it beside the next.

        Args:
            owner: A name of its own.
        """
        holder = self._database.holder or None
        async with self._database.dead() as dead:
            now = self._database.now()
            if not dead and await self._read(_leases.is_with_another, DUTY, name, owner, holder, now):
                return False
            self._has_leased = True
            asked = partial(_leases.take, kind=DUTY, key=name, owner=owner, holder=holder, lease=lease)
            took = await self._submit("take_duty", _after_crashes(asked, dead), droppable=True, at_once=True)
            return took is not None

    async def leave_duty(self, name: str, owner: str) -> None:
        """Give a duty back at once. Harmless for one that is not the owner's."""
        await self._submit(
            "leave_duty", _leases.leave, DUTY, name, owner, self._database.holder or None, at_once=True, gives_back=True
        )

    # The outbox: the pace of all

    async def pace(self) -> SharedRate:
        """How fast all may send who share this journal; a look, and no commit."""
        return await self._read(_leases.pace, self._database.now())

    async def request_rate(self, owner: str, rate: float, *, lease: float) -> SharedRate:
        """Say at which rate all who share this journal may send together; tells what counts now.

        The lowest counts that any process at work names; one that names none keeps to it. It stays, also without a
        worker, until another one is requested.

        Args:
            owner: A name of its own.
            rate: Orders a second; infinity for no limit.
            lease: Seconds for which the owner counts as at work; it is named again before they are over.
        """
        check_number("rate", rate, above_zero=True, unit="orders a second, or infinity for no limit")
        self._has_leased = True
        holder = self._database.holder or None
        async with self._database.dead() as dead:
            request = _after_crashes(_leases.request_rate, dead)
            return await self._submit("request_rate", request, owner, holder, rate, lease, droppable=True, at_once=True)

    async def withdraw_rate(self, owner: str) -> None:
        """Say that a process that has named a rate is not at work any more. Harmless for one that has not."""
        await self._submit(
            "withdraw_rate", _leases.leave, RATE, owner, owner, self._database.holder or None, at_once=True
        )

    async def reserve_turns(self, count: int) -> RateSlots:
        """Ask for the next turns of the rate of all, before permits are asked for: so many or fewer, or none yet.

        Each is for one order and for its moment alone; one that is not used is gone.
        """
        return await self._submit("reserve_turns", _leases.reserve_turns, count, droppable=True, at_once=True)

    async def cool_down(self, seconds: float, *, why: str) -> None:
        """Let no process begin anything for so many seconds, 900 at most: the service asks for it.

        Args:
            why: In its words.
        """
        check_number("seconds", seconds)
        await self._submit("cool_down", _leases.cool_down, seconds, why, at_once=True)

    def open_orders(self, outbox: str, state: State) -> AsyncIterator[Iterable[OpenOrder]]:
        """The unknown, parked or accepted orders of all that an outbox sends, some thousands at a time.

        Of the failed ones those that a notification alone says have failed.
        """
        return self._pages(_entries.open_after(outbox, state))

    # The outbox: looking

    async def entry(self, request_id: str) -> Entry | None:
        """One order. Ids that differ in letters alone are one: ``Entry.request_id`` tells how it is written."""
        return await self._read(_entries.entry, request_id)

    async def entries_of(self, request_ids: Sequence[str]) -> Mapping[str, Entry]:
        """Those of these orders that the journal holds and that can be read, by the request ids asked for."""
        return {one: order for one, order in (await self.orders_of(request_ids)).items() if isinstance(order, Entry)}

    async def orders_of(self, request_ids: Sequence[str]) -> Mapping[str, Entry | ArchivedOrder]:
        """The same, and those that have left for an archive: all that the journal knows and never sends again."""
        return await self._read(_archiving.orders_of, request_ids)

    def entries(self, batch_id: str | None = None, state: State | str | None = None) -> AsyncIterator[Entry]:
        """Orders in the sequence they were loaded in; constant memory; changes made meanwhile may or may not show."""
        return self._stream(_entries.entries_after(batch_id, state))

    def find(self, text: str, batch_id: str | None = None) -> AsyncIterator[Entry]:
        """Orders that pay a person of this name or number, or whose row in the batch file has this cell.

        A name is found by its words, without regard to case and accents; a number by its last digits, at least six;
        a cell by all of it. Archived orders are not among them. Constant memory; all orders are looked through.
        """
        return self._stream(_particulars.found_by(text, batch_id))

    async def note_particulars(self, told: Sequence[tuple[str, Particulars]]) -> None:
        """Keep what a batch file says beside orders, by their request ids; those of other orders are left out."""
        await self._submit("note_particulars", _particulars.note, told)

    async def particulars(self, request_id: str) -> Particulars | None:
        """What a batch file says beside an order, if that was kept."""
        return await self._read(_particulars.of, request_id)

    def standings(self, batch_id: str) -> AsyncIterator[Iterable[OutcomeWithHistory]]:
        """Every order of a batch with what brought it to where it stands, some hundreds at a time; constant memory.

        Each of these portions can be walked through once, in any thread. An order and its decision are of one moment.
        The sequence is that of ``entries``.

        Raises:
            RunUnknown: There is no such batch.
        """
        return self._pages(_history.standings_after(batch_id))

    def paid_since(self, since: float, *, but: str | None = None) -> AsyncIterator[Iterable[Entry]]:
        """Orders that may be paid yet, and those that were accepted or paid since then, in portions as ``standings``.

        Args:
            since: Unix seconds; compared with the last change of an order.
            but: A batch that is left out.
        """
        return self._pages(_entries.paid_after(since, but))

    def conflicts(self, batch_id: str | None = None) -> AsyncIterator[Entry]:
        """Orders with a contradiction that was not acknowledged, as far as they can be read."""
        return self._stream(_entries.entries_after(batch_id, None, conflicts=True))

    async def progress(self, batch_id: str | None = None, *, outbox: str | None = None) -> Progress:
        """Counts and sums of a batch, or of all; cheap at any size.

        Args:
            outbox: Of what one outbox sends alone: single orders and batches.
        """
        return await self._read(_entries.progress, batch_id, outbox)

    async def oldest(self, outbox: str) -> Mapping[State, float]:
        """Unix seconds since which orders of an outbox that are due wait to be sent, and others are unknown or parked.

        States in which there is none are left out.
        """
        return await self._read(_entries.oldest, outbox, self._database.now())

    async def unheard_since(self, batch_id: str | None = None) -> float | None:
        """Unix seconds of the oldest acceptance, where no notification has come since; ``None`` where one has."""
        return await self._read(_events.unheard_since, batch_id)

    async def history(self, request_id: str) -> Sequence[Happening]:
        """All that is known of one order, in time.

        Raises:
            OrderUnknown: There is no such order.
        """
        return await self._read(_history.history, request_id)

    async def traces(self, request_id: str) -> Sequence[Happening]:
        """What is known of an order that the journal does not hold, in time: such an order may have been paid.

        A list showed it, it was notified of, or it lies in staging (``laid``). Another journal of this machine has
        it, or this one had it before it was restored (``registered``). For one that it
        holds there is ``history``.
        """
        found = list(await self._read(_history.traces, request_id))
        if (memory := self._database.memory) is not None:
            for one in await asyncio.to_thread(memory.registry.holders_of, request_id):
                is_ours = one.journal == self._database.journal_id
                where = None if is_ours else one.path or "that was lost"
                found.append(Happening(at=one.ready_at or one.begun_at, what="registered", by=where, detail=str(one)))
        for run in await self.runs():
            if run.is_outbox:
                found += [one async for one in self._laid_as(run.batch_id, request_id)]
        return sorted(found, key=lambda one: one.at)

    async def _laid_as(self, outbox: str, request_id: str) -> AsyncIterator[Happening]:
        """That an order lies in the tray of an outbox."""
        after = 0
        while page := await self.laid(outbox, after=after):
            for one in page:
                if plain_id(one.request_id) == plain_id(request_id):
                    yield Happening(at=one.at, what="laid", by=outbox, detail=one.problem)
            after = page[-1].id

    async def decisions(self, batch_id: str) -> Sequence[Happening]:
        """What named persons decided about a batch as a whole, in time; those about an order are in its history.

        Raises:
            RunUnknown: There is no such batch.
        """
        return await self._read(_history.decisions, batch_id)

    async def old_orders(self, *, older_than: float) -> AsyncIterator[Sequence[OldOrder]]:
        """Orders that may leave for an archive, some hundreds at a time; constant memory. Nothing is changed.

        Those that ended and were not changed for so many seconds, that nothing contradicts, of which no handler has
        still to hear and no notification waits. Single orders of an outbox one by one; of a batch all, or none yet.
        """
        if not older_than > 0:
            raise ValueError("older_than: must be above 0")
        async for page in self._pages(_archiving.old_after(self._database.now() - older_than)):
            if some := tuple(page):
                yield some

    async def begin_archive(self, path: str, *, who: str, why: str) -> int:
        """Note a file that orders will leave for, as a named person wants; tells its number."""
        return await self._submit("begin_archive", _archiving.begin_archive, path, who, why)

    async def prune_orders(self, archive: int, orders: Sequence[OldOrder]) -> int:
        """Let orders leave that were written to an archive, and are on disk there; tells how many did.

        Those of which more was learned since they were read stay. What stays of the others is what tells that they
        were: their ids, a digest of what they said and how they ended. They are counted by ``progress`` as before, none
        of them is ever taken again, and what is told of one later is known to be about it.
        """
        return await self._submit("prune_orders", _archiving.prune_orders, archive, orders)

    async def end_archive(self, archive: int) -> None:
        """Note that nothing more leaves for a file."""
        await self._submit("end_archive", _archiving.end_archive, archive)

    async def archives(self) -> Sequence[Archive]:
        """All files that orders have left for, oldest first."""
        return await self._read(_archiving.archives)

    async def archived_of(self, request_ids: Sequence[str]) -> Mapping[str, ArchivedOrder]:
        """Those of these orders that have left for an archive, by the request ids asked for."""
        known = await self.orders_of(request_ids)
        return {one: order for one, order in known.items() if isinstance(order, ArchivedOrder)}

    async def unmatched_events(self) -> int:
        """Notifications about orders this journal never sent."""
        return await self._read(_notifications.unmatched)

    # The outbox: changes. Whatever moves an order writes its change in the same commit; nothing passes by. None is
    # written when an order becomes planned or sending, nor when it is contradicted and stays where it stands. Batches
    # that belong to no outbox have none. A change waits for a handler if its state was heard of by its outbox when it
    # was written; several processes may share them: ``claim_changes`` leases a change to one of them for a while.

    async def hear(self, outbox: str, states: Collection[State]) -> None:
        """From now on, changes to these states wait for handlers, for good: also while none of them runs.

        Raises:
            ValueError: Of ``planned`` and ``sending`` no handler hears.
        """
        await self._submit("hear", _changes.hear, outbox, states)

    async def subscriptions(self, outbox: str) -> Sequence[Subscription]:
        """The states that an outbox hears of, and when each was last asked for."""
        return await self._read(_changes.subscriptions, outbox)

    async def forget_changes(self, outbox: str, state: State, *, who: str, why: str) -> int:
        """No handler hears of a state any more, says a named person: what waits is let go. Tells how much that was.

        Dead letters stay. A handler that is registered again hears of what comes after that.

        Raises:
            ValueError: A process asked for it a moment ago.
        """
        return await self._submit("forget_changes", _changes.forget, outbox, state, who, why)

    async def last_change(self, states: Collection[State] = ()) -> int:
        """The newest id of all changes, or of those to these states; 0 where there are none."""
        return await self._read(_changes.last, states)

    async def changes_after(self, outbox: str | None, after: int, limit: int = 500) -> Sequence[OrderEvent]:
        """Changes with a higher id than this, lowest first, whatever handles them; of one outbox or of any."""
        return await self._read(_changes.after, outbox, after, limit)

    async def states_since(self, outbox: str, after: int) -> tuple[int, frozenset[State]]:
        """The newest id of an outbox's changes, and to which states orders came after this one; or this one, and none.

        For a caller that waits for no order in particular: it takes as long for thousands of changes as for a few.
        """
        return await self._read(_changes.states_since, outbox, after)

    async def claim_changes(
        self, outbox: str, states: Collection[State], owner: str, *, lease: float, limit: int
    ) -> Sequence[OrderEvent]:
        """Lease due, unleased changes to these states that wait for a handler, so many at most.

        Fresh ones come first, oldest first, and then those that failed before, so that these hold up nothing. What a
        dead process held is fresh. One whose order cannot be read is a dead letter from then on.
        """
        due = partial(_changes.is_due, outbox=outbox, states=states)
        return await self._claim(
            "claim_changes", due, partial(_changes.claim, outbox=outbox, states=states), owner, lease, limit
        )

    async def release_changes(self, owner: str) -> None:
        """Give back at once every lease that ``owner`` took through this journal, and none of a namesake elsewhere."""
        holder = self._database.holder
        await self._submit(
            "release_changes", _deliveries.give_back, holder, OUTBOX, owner, at_once=True, gives_back=True
        )

    async def note_change_done(self, change_id: int, handler: str) -> None:
        """One handler has finished with the change."""
        await self._submit("note_change_done", _deliveries.note_done, OUTBOX, change_id, handler, at_once=True)

    async def mark_told(self, connection: object, change_id: int, handler: str) -> bool:
        """Within the application's own transaction, remember that a handler is told of a change; whether it was not.

        One that asks while another transaction has marked it waits for that one's end.

        Args:
            connection: As ``Journal.lay`` is given it.
        """
        raise ValueError(_NO_DATABASE)

    async def was_told(self, change_id: int, handler: str) -> bool:
        """Whether a transaction that remembers it was committed."""
        raise ValueError(_NO_DATABASE)

    async def finish_changes(
        self, change_ids: Sequence[int], status: str = "handled", *, error: str | None = None
    ) -> None:
        """These are ``handled`` or ``dead``, in one commit. What was finished before stays as it is."""
        await self._submit(
            "finish_changes", _changes.finish, tuple(change_ids), status, self._database.holder, error, at_once=True
        )

    async def retry_change(self, change_id: int, *, delay: float, error: str) -> None:
        """Count a try, give the lease back and make the change due again after ``delay`` seconds."""
        again = (OUTBOX, change_id, self._database.holder, delay, error)
        await self._submit("retry_change", _deliveries.retry, *again, at_once=True)

    async def revive_changes(self, change_id: int | None = None) -> int:
        """Make one dead change, or all of them, wait for a handler again; tells how many."""
        return await self._submit("revive_changes", _deliveries.revive, OUTBOX, change_id)

    def dead_changes(self) -> AsyncIterator[OrderEvent]:
        """Changes that are dead letters, oldest first."""
        return self._stream(_changes.dead_after)

    async def change_backlog(self, outbox: str | None = None) -> Backlog:
        """How many changes wait for a handler or are dead letters, and when the oldest that waits was written."""
        return await self._read(_changes.backlog, outbox)

    async def prune_changes(self, *, older_than: float) -> int:
        """Forget changes of more than so many seconds ago that wait for no handler; tells how many.

        Dead letters stay, and so does the newest change: no lower id is given after it.
        """
        return sum(await self._prune("prune_changes", _changes.prune, older_than))

    # The inbox

    async def receive(self, delivery: RawNotification, event: TransactionEvent, *, owner: str, lease: float) -> Receipt:
        """Store a delivery and its event, and lease a new event to ``owner`` for ``lease`` seconds.

        It is applied as evidence to its order if there is one. After it returns the notification may be answered with
        200. One that names the request id which the same notification left out before is matched with orders again.
        """
        (receipt,) = await self.receive_all((Arrival(delivery=delivery, event=event, lease=lease),), owner=owner)
        if isinstance(receipt, Exception):
            raise receipt
        return receipt

    async def receive_all(
        self, arrivals: Sequence[Arrival], *, owner: str, handled: Sequence[int] = ()
    ) -> Sequence[Receipt | Exception]:
        """Do what ``receive`` does for many, and ``finish`` as ``handled``, in one commit.

        Stores all that can be stored, also if the caller has stopped waiting. An arrival that cannot be stored does not
        stop the others: its place is taken by the reason.

        Args:
            arrivals: May repeat or contradict each other; the first stands.
            handled: Ids of events that are ``handled``.

        Raises:
            Exception: When nothing was stored.
        """
        self._has_leased = True
        storing = _notifications.NotificationsStored(arrivals, owner, self._database.holder, handled)
        return await self._writer.submit("receive", storing, together=_notifications.receive_all)

    async def confirm(self, event_id: int) -> str | None:
        """The service's record bears an event out: it is evidence from now on. Tells what it contradicts, if anything.

        Again, it changes nothing.
        """
        return await self._submit("confirm", _notifications.confirm, event_id)

    async def claim(self, owner: str, *, lease: float, limit: int) -> Sequence[StoredEvent]:
        """Lease due, unleased events that are ``pending``, oldest first.

        One that cannot be read is a dead letter from then on, and does not hold up the others.
        """
        return await self._claim("claim", _events.is_due, _events.claim, owner, lease, limit)

    async def _claim(
        self,
        name: str,
        is_due: Callable[..., bool],
        claim: Callable[..., Sequence[T]],
        owner: str,
        lease: float,
        limit: int,
    ) -> Sequence[T]:
        """Lease what is due of one queue."""
        async with self._database.dead() as dead:
            may_read = not dead and self._reading is not None  # a journal that is being opened takes what is submitted
            if may_read and not await self._read(partial(is_due, now=self._database.now())):
                return ()  # a commit would be told to everybody
            self._has_leased = True
            asked = partial(claim, owner=owner, holder=self._database.holder, lease=lease, limit=limit)
            return await self._submit(name, _after_crashes(asked, dead), droppable=True, at_once=True)

    async def release(self, owner: str) -> None:
        """Give back at once every lease that ``owner`` took through this inbox, and none of a namesake elsewhere."""
        await self._submit(
            "release", _deliveries.give_back, self._database.holder, INBOX, owner, at_once=True, gives_back=True
        )

    async def note_done(self, event_id: int, handler: str) -> None:
        """One handler has finished with the event."""
        await self._submit("note_done", _deliveries.note_done, INBOX, event_id, handler, at_once=True)

    async def finish(self, event_id: int, state: str, *, error: str | None = None) -> None:
        """The event is ``handled``, ``dead`` or ``disputed``."""
        await self._submit("finish", _events.finish, event_id, state, self._database.holder, error, at_once=True)

    async def retry_later(self, event_id: int, *, delay: float, error: str) -> None:
        """Count a try, give the lease back and make the event due again after ``delay`` seconds."""
        await self._submit(
            "retry_later", _deliveries.retry, INBOX, event_id, self._database.holder, delay, error, at_once=True
        )

    async def revive(self, event_id: int | None = None) -> int:
        """Make one dead event, or all of them, pending again; tells how many."""
        return await self._submit("revive", _deliveries.revive, INBOX, event_id)

    def dead_letters(self) -> AsyncIterator[StoredEvent]:
        """Dead events, oldest first."""
        return self._stream(_events.dead_after(self._database))

    def unmatched(self) -> AsyncIterator[StoredEvent]:
        """These, oldest first: who ordered them?"""
        return self._stream(_events.unmatched_after(self._database))

    def dubious(self) -> AsyncIterator[StoredEvent]:
        """Events that are not evidence, oldest first: not confirmed yet, only reported, or disputed."""
        return self._stream(_events.dubious_after(self._database))

    async def final_events_of(self, request_ids: Sequence[str]) -> Mapping[str, TransactionEvent]:
        """The first final event of each order that has one: received, evidence, and not disputed."""
        return await self._read(_notifications.first_finals, request_ids)

    async def final_events(self, request_id: str, transaction_id: str | None = None) -> Sequence[TransactionEvent]:
        """All final events of an order, oldest first.

        Args:
            transaction_id: Only those of this transaction, also where they name no request id.
        """
        return await self._read(_notifications.final_events, request_id, transaction_id, _MOST_FINALS)

    async def finals_since(
        self, heard: Heard | None, is_wanted: Callable[[str | None, str], bool]
    ) -> tuple[Heard, Sequence[TransactionEvent]]:
        """The final events that are wanted and became evidence since, from all receivers; and how far that was.

        It takes one query where nothing did, however many wait for something. A number that is lower than before says
        that the journal was put back to what it was earlier.

        Args:
            heard: What the last call told; ``None`` for no events, and how far it is now.
            is_wanted: Says of a request id, if there is one, and a transaction id whether a caller waits for either.
                Called in another thread.
        """
        return await self._read(_notifications.finals_since, heard, is_wanted)

    @property
    def hears_every_commit(self) -> bool:
        """Whether ``committed`` tells another number after each commit: of a file, and not where NOTIFY may fail."""
        return False

    async def committed(self, seen: int, *, timeout: float, wanted: Wanted | None = None) -> int:
        """Wait until something was written by anybody since, for so many seconds at most; tells what to pass next time.

        Args:
            seen: What the last call told, or 0.
            wanted: Tells the states that the caller hears of. By it no ``put``, ``permit`` or ``record`` of this
                journal wakes the caller that moves orders into other states alone; those of other processes do, in a
                database five times a second at most.
        """
        return await self._database.commits.beyond(seen, timeout, wanted)

    async def prune_inbox(self, *, older_than: float) -> Pruned:
        """Forget notifications that came, the last time, more than so many seconds ago.

        Kept whatever their age are those that wait or are dead letters, those about an order without a final outcome
        or with a contradiction that was not acknowledged, and the newest one. One that is forgotten and sent again is
        new, and an order that is loaded after it was forgotten is not known to have been told of. What it settled
        stays settled, and the order's history still tells by what. The file's room is used again; it does not shrink.
        """
        some = await self._prune("prune", _events.prune, older_than)
        return Pruned(events=sum(one.events for one in some), deliveries=sum(one.deliveries for one in some))

    async def check_writable(self) -> None:
        """Write something that means nothing. It raises what a delivery that cannot be stored would."""
        await self._submit("check_writable", _events.check_writable)

    async def backlog(self) -> Backlog:
        """How much is waiting."""
        return await self._read(_events.backlog)

    async def retire(self, move: str, to: str) -> None:
        """Seal the journal, once what the dead had in hand was taken from them: nothing is written to it any more.

        Raises:
            StillWorked: A process has work in hand.
        """
        await self._database.wait_for_liveness()
        await self.expire_chunks()
        await self._submit("retire", _moving.retire, move, to)

    def _leave_to_the_parent(self) -> None:
        """Begin anew in a process that was forked off: closing what it inherited would break the locks of the other."""
        _INHERITED.append((self._database, self._writer, self._reader, self._reading, self._departures))
        self._prepare()

    async def _begin_registering(self, registry: Registry, batch_id: str, load: _loading.Load) -> Loading:
        """Tell the registry that a batch is being loaded here."""
        begin = partial(
            registry.begin,
            self._database.journal_id,
            await self._uid(batch_id),
            batch_id,
            (await self.run(batch_id)).identity,
            orders=load.total if load.ready else None,
            now=self._database.now(),
        )
        return await asyncio.to_thread(begin)

    async def _make_ready(
        self, registry: Registry, loading: Loading, batch_id: str, adoption: TakeoverAuthorisation | None
    ) -> None:
        """Tell the registry that any order of a batch may be sent soon.

        Raises:
            SecondJournal: The account has another journal here, and no person has said why there are two.
        """
        word = adoption or self.second_journal
        other = await asyncio.to_thread(registry.other_journal, loading)
        if word is not None and other is not None:
            where = f"{other} of {other.path or 'a journal that was lost'}"
            await self._submit("adopt", _loading.note_second_journal, batch_id, word, where)
        ready = partial(registry.ready, loading, self._database.now(), may_be_second=word is not None)
        await asyncio.to_thread(ready)

    async def _register(
        self,
        registry: Registry,
        loading: Loading,
        load: _loading.Load,
        request_ids: Sequence[str],
        adoption: TakeoverAuthorisation | None,
    ) -> None:
        """Tell the registry of a block of orders, before it is written down here.

        Raises:
            HeldElsewhere: Some of it may have been sent already, and nobody has said that it is ours now.
        """
        held = await asyncio.to_thread(registry.register, loading, request_ids)
        ours = [request_id for request_id, holder in held.items() if holder.journal == loading.journal]
        known = await self.orders_of(ours)  # it says itself what is wrong with these
        held = {request_id: holder for request_id, holder in held.items() if request_id not in known}
        if not held:
            return
        error = held_elsewhere(held, loading.journal)
        if adoption is None:
            raise error
        await self._submit("adopt", _loading.adopt, load, adoption, error)  # first of all the journal keeps them back
        await asyncio.to_thread(registry.register, loading, request_ids, adopt=True)

    async def _check_adopted(self, batch_id: str) -> None:
        """Raise ``HeldElsewhere`` where another journal has adopted orders of a batch."""
        memory = self._database.memory
        if memory is None:
            return
        uid = await self._uid(batch_id)
        await asyncio.to_thread(check_adopted, memory.registry, self._database.journal_id, uid, batch_id)

    async def _uid(self, batch_id: str) -> str:
        """What the registry knows a batch by."""
        if batch_id not in self._uids:
            self._uids[batch_id] = await self._read(_entries.uid, batch_id)
        return self._uids[batch_id]

    async def _prune(
        self, name: str, prune: Callable[[Commit, int, float], tuple[T, int | None]], older_than: float
    ) -> Sequence[T]:
        """Forget, block by block, what is older than so many seconds; tells what each block came to."""
        if not older_than > 0:
            raise ValueError("older_than: must be above 0")
        before, blocks = self._database.now() - older_than, list[T]()
        last: int | None = 0
        while last is not None:
            some, last = await self._submit(name, prune, last, before)
            blocks.append(some)
        return blocks

    async def _entry(self, request_id: str) -> Entry:
        entry = await self.entry(request_id)
        assert entry is not None
        return entry

    async def _stream(self, pages: _entries.PageReader[T]) -> AsyncIterator[T]:
        async for page in self._pages(pages):
            for one in page:
                yield one

    async def _pages(self, pages: _entries.PageReader[T]) -> AsyncIterator[Iterable[T]]:
        """Page after page, until there is nothing more."""
        after = -1
        while True:
            page, last = await self._read(partial(pages, after=after))
            if last == after:
                return
            after = last
            yield page

    def _submit(
        self,
        name: str,
        work: Callable[[Commit, *Ts], T],
        *arguments: *Ts,
        droppable: bool = False,
        at_once: bool = False,
        gives_back: bool = False,
    ) -> asyncio.Future[T]:
        """Queue an operation; unless it is droppable it is done also when nobody waits for it any more.

        Args:
            at_once, gives_back: As for ``Writer.submit``.
        """
        return self._writer.submit(
            name, lambda commit: work(commit, *arguments), droppable=droppable, at_once=at_once, gives_back=gives_back
        )

    async def _read(self, read: Callable[[Connection, *Ts], T], *arguments: *Ts) -> T:
        """Read in the thread that reads."""
        if self._reading is None or self._writer.is_forked:
            raise JournalClosed("the journal is not open in this process")
        reading: Any = self._reading  # an executor, as far as a loop asks for one
        return await asyncio.get_running_loop().run_in_executor(reading, self._read_now, read, *arguments)

    def _read_now(self, read: Callable[[Connection, *Ts], T], *arguments: *Ts) -> T:
        """Read; once more where the connection was lost, for whoever reads has changed nothing."""
        try:
            return self._read_once(read, *arguments)
        except self._database.Error as error:
            if self._reader is None or not self._database.is_lost(self._reader):
                raise self._database.translated(error) from error
            lost, self._reader = self._reader, None
            with suppress(self._database.Error):
                lost.close()
        try:
            return self._read_once(read, *arguments)
        except self._database.Error as error:
            raise self._database.translated(error) from error

    def _read_once(self, read: Callable[[Connection, *Ts], T], *arguments: *Ts) -> T:
        if self._reader is None:
            self._reader = self._database.open_reader()
        try:
            return read(self._reader, *arguments)
        finally:
            if self._database.give_back(self._reader):
                self._reader = None


def _withdraw(commit: Commit, request: _permits.PermitRequest | _puts.PutRequest, why: str) -> None:
    """Give back what was granted to somebody who does not know of it."""
    if request.permit is not None:  # asked here: whoever was cancelled is gone before the commit that was under way
        _permits.withdraw(commit, request.permit, why)


def _signed(who: str | Signature, why: str) -> Signature:
    """Who decides, with the login where that is known. Raises ``ValueError`` without a name or a reason."""
    check_named(who if isinstance(who, str) else who.who, why)
    return Signature(who=who) if isinstance(who, str) else who


def _after_crashes(
    work: Callable[[Commit, *Ts], T], dead: Sequence[str], left: Sequence[Remains] = ()
) -> Callable[[Commit, *Ts], T]:
    """Work that begins with what processes that died have held: others may have it, and what surely left is known.

    Args:
        dead: Who died without an end.
        left: What they left in writing of their leases.
    """

    def done(commit: Commit, *arguments: *Ts) -> T:
        record_unsent(commit, left)
        end_leases_of_crashed_sessions(commit, dead)
        return work(commit, *arguments)

    return done


def _release_all(commit: Commit, holder: str) -> None:
    """Give back whatever was leased through one opening of the journal, but chunks."""
    _deliveries.give_back(commit, holder)
    _leases.leave_all(commit, holder)


def _has_forgotten(run: Run | None, orders: int) -> bool:
    """Whether so many orders of a batch were in the journal once, and are no more.

    Of the single orders of an outbox nothing is said: one is registered just before it is written down.
    """
    if run is None:
        return True
    return not run.is_outbox and run.total < orders

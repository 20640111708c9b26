"""The records a journal deals in, and an order's body and transaction id as they are stored: exact, compact, proved."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import NamedTuple, Self, get_args

import attrs

from payments_async._values.amounts import order_amount
from payments_async._values.checks import check_currency, check_number, check_whole
from payments_async._values.frozen import amend, field, frozen
from payments_async._wire.bodies import read_order
from payments_async._wire.orders import Order
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._states import Figure, Signal, State, next_state

# The service's have 36 characters, and notifications are refused with more than these: an index of PostgreSQL takes no
# row of more than 2,704 bytes, and what an answer says must not keep its outcome from being written down.
_LONGEST_TRANSACTION_ID = 256
_KEPT_OF_IT = 64
_LONGEST_CORRELATION_ID = 200  # characters that are kept
LATE = 86_400.0  # seconds after which an order that was carried out all the same would be listed


def _without_slash(address: str) -> str:
    return address.rstrip("/")


@attrs.frozen(kw_only=True)
class RunIdentity:
    """Whose money a journal is about. A journal of another account, or of the sandbox, is refused.

    The address and the user make the account. Its application key may be replaced by another one, and it is the same
    account still: what was sent with the old key must not be forgotten with it.

    Attributes:
        base_address: Of the service, as the session was given it.
        key_fingerprint: Of the application key that began it, which is not stored itself.
        user_id: Of the credentials.
    """

    base_address: str = attrs.field(converter=_without_slash)
    key_fingerprint: str = attrs.field(eq=False)
    user_id: str

    @classmethod
    def of(cls, base_address: str, *, app_key: str, user_id: str) -> Self:
        """The identity of a session: its address and its login."""
        fingerprint = hashlib.sha256(b"payments-async:" + app_key.encode()).hexdigest()[:16]
        return cls(base_address=base_address, key_fingerprint=fingerprint, user_id=user_id)


@frozen(kw_only=True)
class TakeoverAuthorisation:
    """A named person's word: orders that another batch holds go on in this one, or a second journal is meant.

    Attributes:
        who: Their name.
        why: Where the other journal is gone, or why it is not to be used.

    >>> word = TakeoverAuthorisation(who="A. Admin", why="its disk burnt")
    >>> journal = SqliteJournal("second.sqlite", second_journal=word)
    """

    who: str
    why: str

    def __attrs_post_init__(self) -> None:
        check_named(self.who, self.why)


class Holder(NamedTuple):
    """A batch that some journal holds.

    Attributes:
        journal: Its id.
        path: Where that journal was last, as far as is known.
        begun_at: Unix seconds; nothing of the batch was sent before.
    """

    id: int
    journal: str
    batch_id: str
    orders: int
    begun_at: float
    ready_at: float | None
    path: str | None

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.ready_at or self.begun_at).astimezone()
        things = "order" if self.orders == 1 else "orders"
        return f"batch {self.batch_id} ({self.orders:,} {things}, loaded {at:%Y-%m-%d %H:%M})"


@frozen(kw_only=True)
class Run:
    """One batch as the journal knows it.

    Attributes:
        ready: Whether all of its orders are in. Nothing is sent before.
        total: Orders in it so far.
        amount: Sum of their amounts.
        source_digest, policy: What it was made from, and how it was meant to be run, as it was given at first.
        quarantined: Chunks that wait for a person because the file was restored or copied since.
        quarantined_at: Unix seconds at which the file was last found to be restored or copied, or ``None``.
        awaits: What has to be seen since before anything of it is sent; ``None`` where nothing has to be.
        look_since: Unix seconds of the earliest moment at which its orders may have been sent.
        is_outbox: It holds the single orders of the outbox of this name, and never ends.
        outbox: Name of the outbox that sends it, or ``None``.
        archived: Orders of it that have left the journal for an archive; ``total`` and ``amount`` count them as well.
    """

    batch_id: str
    identity: RunIdentity
    ready: bool
    total: int
    amount: Decimal
    source_digest: str | None = None
    policy: str | None = None
    quarantined: int = 0
    quarantined_at: float | None = None
    awaits: Awaited | None = None
    look_since: float = 0.0
    is_outbox: bool = False
    outbox: str | None = None
    archived: int = 0


GRACE = 900.0  # seconds in which what was sent may still come to be listed
INTERVAL = 60.0  # seconds between two lists that both count
LISTS = 2  # that have to miss an order before its absence says anything


@frozen(kw_only=True)
class Awaited:
    """What has to be seen before anything is sent from a journal that may have forgotten: as before an order is parked.

    Attributes:
        at: Unix seconds at which it was found to be copied or restored, or its orders were adopted.
        lists: Clean lists that were read since, of the two that are asked for.
        read_at: Unix seconds at which the last complete list since then ended, or ``None``.
    """

    at: float
    lists: int = 0
    read_at: float | None = None

    def due(self, grace: float = GRACE, interval: float = INTERVAL) -> float:
        """Unix seconds from which on a further list counts.

        Args:
            grace, interval: Seconds, as in ``reconcile``.
        """
        return max(self.at + grace, 0.0 if self.read_at is None else self.read_at + interval)

    def is_early(self, now: float, grace: float = GRACE, interval: float = INTERVAL) -> bool:
        """Whether a further list would not count yet.

        Where the clock was ahead when the journal was doubted, or read, the next list is read at once: it is counted
        from that on.
        """
        is_dated = max(self.at, self.read_at or 0.0) <= now + CLOCKS_DIFFER
        return is_dated and now < self.due(grace, interval)

    def words(self, grace: float = GRACE, interval: float = INTERVAL) -> str:
        """What is awaited, and until when."""
        due = datetime.fromtimestamp(self.due(grace, interval)).astimezone()
        return (
            f"{LISTS} complete lists of the service that show orders of ours have to be read from {due:%Y-%m-%d %H:%M} "
            f"on; until now {self.lists} were"
        )


CLOCKS_DIFFER = 60.0  # seconds by which clocks that are right may differ


@frozen(kw_only=True)
class ListingDeadline:
    """A person's word that the service lists in time what it has carried out; an order not listed then is sent again.

    Where the word is wrong, such an order is paid twice.

    Attributes:
        within: Seconds from an order's last permit within which it is listed. Fewer than 900 count as 900.
        until: Unix seconds at which the word ends.
        orders: How many orders may be sent again by it, each once.
        amount, total: The most that one of them may be, and all of them together.
        currency: The word is for orders that name this one; ``None`` for those that name none.
    """

    within: float
    until: float
    orders: int
    amount: Decimal = field(converter=order_amount)
    total: Decimal = field(converter=order_amount)
    currency: str | None = None

    def __attrs_post_init__(self) -> None:
        check_number("within", self.within, above_zero=True)
        check_number("until", self.until, above_zero=True, unit="Unix seconds")
        check_whole("orders", self.orders, 1)
        if self.currency is not None:
            check_currency(self.currency)
        if max(self.within, self.until) == float("inf"):
            raise ValueError("within, until: must be finite; a word without an end is not taken")

    @property
    def waits(self) -> float:
        """Seconds from an order's last permit before which no list counts that does not show it."""
        return max(GRACE, self.within) + CLOCKS_DIFFER

    def __str__(self) -> str:
        most = " ".join(filter(None, (f"{self.orders} orders, each of {self.amount:,f} at most,", self.currency)))
        return (
            f"listed within {self.within:g} s, until {datetime.fromtimestamp(self.until, UTC):%Y-%m-%d %H:%M} UTC, for "
            f"{most} {self.total:,f} in all"
        )


@frozen(kw_only=True)
class ListingWord:
    """A listing deadline as a person has given it.

    Attributes:
        number: The journal's own for the decision.
        who, why, at: Who gave it, their reason, and when (Unix seconds).
        sent, spent: Orders that were sent again by it, and the sum of their amounts.
        over: Why nothing is sent again by it any more, in words; ``None`` while it holds.
    """

    number: int
    deadline: ListingDeadline
    who: str
    why: str
    at: float
    sent: int = 0
    spent: Decimal = Decimal(0)
    over: str | None = None


@frozen(kw_only=True)
class ListScan:
    """One reading of the service's whole list, every row of which was compared with the journal.

    Attributes:
        id: The journal's own number for it.
        batch_id: Which batch it was made for, or ``None``.
        since, until: The days that were asked for, in the service's time zone.
        begun, ended: Unix seconds by the database's clock; ``ended`` is ``None`` where it was never finished.
        rows, requests: What it showed, and what that took.
        counted: The service said how many rows there are, and showed as many.
        clean: It shows an order of ours as well, so that what it does not show says something. On record, it began
            late enough too, where the journal was found to be copied or restored.
        problem: Why the list was not read to its end, or ``None``.
    """

    id: int
    batch_id: str | None
    since: date
    until: date
    begun: float
    ended: float | None = None
    rows: int = 0
    requests: int = 0
    counted: bool = False
    clean: bool = False
    problem: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it showed every row that the service counted, now that it has ended."""
        return self.problem is None and self.counted

    @property
    def is_complete(self) -> bool:
        """Whether it showed every row that the service counted."""
        return self.ended is not None and self.is_whole


@frozen(kw_only=True)
class Loaded:
    """What loading came to.

    Attributes:
        total, added: Orders the batch holds, and how many of these are new.
        repeated: Orders that came twice in what was loaded, word for word, and count once.
    """

    total: int
    added: int
    repeated: int


# slots=False halves the time that creating one takes; of these a few are created for every order
@frozen(kw_only=True)
class ClaimedOrder:
    """One planned order of a chunk, proved to be what was loaded.

    Attributes:
        id: The journal's own number for it.
        body: The rest of it, as it is kept on disk.
        attempt: Permits it had when its chunk was claimed.
        sent_before: A person had it sent again, and the first one may have arrived: pass it on to ``send``.
        not_before: Unix seconds before which it is not sent.
        priority: Higher ones go first, among orders that wait in the same hands.
        traceparent: As of ``Entry``.
    """

    id: int
    request_id: str
    amount: Decimal
    body: bytes = field(repr=False)
    attempt: int = 0
    sent_before: bool = False
    not_before: float = 0.0
    priority: int = 0
    traceparent: str | None = None

    @property
    def order(self) -> Order:
        """The order, made anew each time."""
        return order_of(self.request_id, self.amount, self.body)


@frozen(kw_only=True)
class Chunk:
    """A lease on up to 500 orders that lie side by side.

    Attributes:
        token: Raised with every claim; a permit is granted to the highest alone.
        lease_until: Unix seconds by the database's clock.
        orders: Those that were planned when it was claimed.
        taken_over: Orders of the last holder that are unknown now.
    """

    batch_id: str
    run: int
    number: int
    owner: str
    token: int
    lease_until: float
    orders: tuple[ClaimedOrder, ...] = field(default=(), repr=False)
    taken_over: int = 0


@frozen(kw_only=True)
class Chunks:
    """How the chunks of a batch stand.

    Attributes:
        open: Not done, and free to be claimed.
        leased: Not done, and leased.
        done: Nothing planned or sending is left in them.
        quarantined: Wait for a person.
        next_expiry: Seconds until the first lease ends, or ``None``.
        next_owner: Whose lease that is.
    """

    open: int = 0
    leased: int = 0
    done: int = 0
    quarantined: int = 0
    next_expiry: float | None = None
    next_owner: str | None = None


@frozen(kw_only=True)
class Permit:
    """The committed right to send one order once. Without it nothing is sent.

    Attributes:
        id: The journal's own number for the order.
        attempt: 1 for the first.
        sent_before: As in ``ClaimedOrder``.
        at: Unix seconds when it was granted.
        after_ended_at: ``TransitionResult.ended_at`` of the outcome that was recorded with it, if there was one.
    """

    id: int
    request_id: str
    amount: Decimal
    token: int
    attempt: int
    sent_before: bool = False
    at: float = 0.0
    after_ended_at: float | None = None


@frozen(kw_only=True)
class NotPermitted:
    """Why there is no permit. Nothing may be sent.

    Attributes:
        id: The journal's own number for the order.
        state: Where the order stands.
        lease_lost: The chunk is no longer ours: stop with all of it.
    """

    id: int
    state: State
    lease_lost: bool


class Remains(NamedTuple):
    """What a process that died left in writing of one lease: which orders it had let out.

    Attributes:
        owner: Digest of the name that the lease was taken under.
        marks: The last attempt that was let out, by the number of the order modulo their count; 0 for none.
    """

    run: int
    number: int
    token: int
    owner: bytes
    marks: bytes

    def is_unsent(self, order_id: int, attempt: int) -> bool:
        """Whether no byte of this attempt, nor of a later one, can have left under the lease."""
        return self.marks[order_id % len(self.marks)] < attempt < MOST_ATTEMPTS


def digest_of_owner(owner: str) -> bytes:
    """What an owner of leases is named by, in so many bytes."""
    return hashlib.sha256(owner.encode()).digest()[:16]


@frozen(kw_only=True)
class Outcome:
    """How one attempt ended, as the one who made it saw it.

    Attributes:
        permit: The permit it was made under.
        signal: ``ACCEPTED``, ``REJECTED``, ``UNKNOWN``, or ``NOT_SENT`` when it is proved that nothing was carried out.
        transaction_id: What the answer named. Of one that is too long to be one a stand-in is kept, by which it is
            known again, and the whole of it in the message.
        code, message: The service's words, masked. Leave the message of an acceptance out: it says nothing. A code of
            more than 63 bits is put into the message.
        correlation_id: The service's own reference for the exchange, where its answer named one.
        holds_back: It was not sent, and never can be as it is: an order of an outbox is not sent from then on, and
            shown as a contradiction, until it is put again.
    """

    permit: Permit
    signal: Signal
    transaction_id: str | None = None
    code: int | None = None
    message: str | None = field(default=None, repr=False)
    holds_back: bool = False
    correlation_id: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.holds_back and self.signal is not Signal.NOT_SENT:
            raise ValueError(f"holds_back: nothing of it was sent, which is not {self.signal}")
        if self.signal not in _OUTCOMES:
            raise ValueError(f"signal: an attempt does not end as {self.signal}")
        if self.code is not None and self.code.bit_length() > _CODE_BITS:
            amend(self, "message", f"code {_digits(self.code)}: {self.message or ''}")
            amend(self, "code", None)
        if self.message is not None and not self.message.isascii():
            amend(self, "message", _writable(self.message))
        if self.transaction_id is not None and not self.transaction_id.isascii():
            amend(self, "transaction_id", _writable(self.transaction_id))
        if self.correlation_id is not None:
            amend(self, "correlation_id", _writable(self.correlation_id[:_LONGEST_CORRELATION_ID]) or None)
        if self.transaction_id is not None and len(self.transaction_id) > _LONGEST_TRANSACTION_ID:
            amend(self, "message", f"{self.message or ''} {_in_full(self.transaction_id)}".strip())
            amend(self, "transaction_id", _stand_in(self.transaction_id))


def check_named(who: str, why: str) -> None:
    """A decision has a person and a reason. Raises ``ValueError`` otherwise."""
    if not who.strip() or not why.strip():
        raise ValueError("who and why: a person's name and a reason, not an empty text")


def _writable(text: str | None) -> str | None:
    """A text that any file can hold: JSON can spell half a character."""
    return None if text is None else text.encode(errors="backslashreplace").decode()


def _digits(code: int) -> str:
    """A number in words that fit a line; Python itself refuses to write out a very long one."""
    return str(code) if code.bit_length() <= _MOST_DIGITS else f"of {code.bit_length()} bits"


MOST_ATTEMPTS = 255  # of one order, that a byte tells apart
_CODE_BITS = 63  # what a number of the file holds, beside its sign
_ONE, _TWO = b"\1", b"\2\2"  # after a transaction id that is not a UUID, so that it is not as long as one that is
_MOST_DIGITS = 256  # bits of a code that is written out
_OUTCOMES = (Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT)  # the usual one first


@frozen(kw_only=True)
class Evidence:
    """What anybody found out about an order, whatever they hold.

    Attributes:
        signal: What was found.
        source: Where, in a few words: ``"list FAILED"``, ``"record"``, ``"operator"``.
        request_id: As the source names it; ``None`` when it names none.
        transaction_id: As the source names it. Of one that is too long to be one a stand-in is kept, by which it is
            known again, and the whole of it in the detail.
        amount: With whatever sign; magnitudes are compared.
        currency: As the source names it.
        at: Unix seconds when it was seen; now by default.
        detail: More words, without personal data.
    """

    signal: Signal
    source: str
    request_id: str | None = field(default=None, converter=_writable)
    transaction_id: str | None = field(default=None, converter=_writable)
    amount: Decimal | None = None
    currency: str | None = field(default=None, converter=_writable)
    at: float | None = None
    detail: str | None = field(default=None, converter=_writable)

    def __attrs_post_init__(self) -> None:
        if self.request_id is None and self.transaction_id is None:
            raise ValueError("evidence: name the request id or the transaction id")
        if self.transaction_id is not None and len(self.transaction_id) > _LONGEST_TRANSACTION_ID:
            amend(self, "detail", f"{self.detail or ''} {_in_full(self.transaction_id)}".strip())
            amend(self, "transaction_id", _stand_in(self.transaction_id))


@frozen(kw_only=True)
class TransitionResult:
    """What became of an outcome or of evidence.

    Attributes:
        before, state: The states around it; equal when nothing changed.
        conflict: Words when it contradicts what is known, for a person; it is kept.
        ended_at: Unix seconds when an attempt ended, where all that is known of its order is what was put, the permit
            and this end: then the entry, which ``ended`` makes, need not be read. ``None`` otherwise.
    """

    request_id: str
    before: State
    state: State
    conflict: str | None = None
    ended_at: float | None = None


@frozen(kw_only=True)
class Entry:
    """One order in the journal.

    Attributes:
        batch_id: Of the run, which need not be the one in the order.
        attempt: Permits so far.
        transaction_id: What the service calls it; a hint while the order is unknown.
        code, message: The service's words, masked.
        correlation_id: The service's own reference for the exchange of the last attempt, where its answer named one.
        conflict: The first contradiction that was not acknowledged, in words.
        sent_before: A person had it sent again.
        permitted_at: Unix seconds of the last permit, or ``None``.
        updated_at: Unix seconds of the last change.
        unconfirmed: Notifications about it that are not evidence before the service's own record bears them out.
        failed_by_notification: A notification alone says that it failed. Its end is looked for in the service's list,
            until that shows it or was read a day after it was sent.
        change_id: Of the change that a handler of an outbox is told of: the same for one fact, however often told. Then
            ``state`` and ``updated_at`` are those of the change; otherwise it is ``None``.
        traceparent: The trace context (W3C) of who put it, where that was traced.
    """

    request_id: str
    batch_id: str
    state: State
    order: Order
    amount: Decimal
    attempt: int = 0
    transaction_id: str | None = None
    code: int | None = None
    message: str | None = field(default=None, repr=False)
    conflict: str | None = None
    sent_before: bool = False
    permitted_at: float | None = None
    updated_at: float = 0.0
    unconfirmed: int = 0
    failed_by_notification: bool = False
    change_id: int | None = None
    correlation_id: str | None = None
    traceparent: str | None = None


def ended(entry: Entry, outcome: Outcome, at: float) -> Entry:
    """The entry of an order after its first attempt, as the journal would tell it.

    Args:
        entry: As it was put.
        at: ``TransitionResult.ended_at``.
    """
    return Entry(
        request_id=entry.request_id,
        batch_id=entry.batch_id,
        state=next_state(State.SENDING, outcome.signal).state,
        order=entry.order,
        amount=entry.amount,
        attempt=outcome.permit.attempt,
        transaction_id=unpack_transaction_id(pack_transaction_id(outcome.transaction_id)),
        code=outcome.code,
        message=outcome.message,
        permitted_at=outcome.permit.at,
        updated_at=at,
        correlation_id=outcome.correlation_id,
        traceparent=entry.traceparent,
    )


class Row(NamedTuple):
    """One order as it is stored.

    Attributes:
        token: Of the chunk under whose lease its last permit was granted.
        amount: Written in full.
        body: The rest of the order.
        body_sha256: Proves that the amount and the body are what was loaded.
        transaction_id: As ``pack_transaction_id`` gives it.
        permitted_at: Of the last permit, if ``attempt`` says that there was one.
        archive: The number of the archive that has its story. Then ``body`` is the kind and the currency alone.
            ``None`` for an order that is here.
    """

    id: int
    request_id: str
    state: State
    token: int
    attempt: int
    sent_before: bool
    amount: str
    body: bytes
    body_sha256: bytes
    transaction_id: bytes | None
    code: int | None
    message: str | None
    conflict: str | None
    permitted_at: float
    updated_at: float
    archive: int | None = None
    correlation_id: str | None = None
    traceparent: str | None = None


@attrs.frozen(kw_only=True)  # RunProgress has further fields
class Progress:
    """How a batch stands.

    Attributes:
        counts: Orders by state, those that have left for an archive as well; every state is there.
        sums: Their amounts, exact.
        conflicts: Orders with a contradiction that was not acknowledged, in any state.
        unconfirmed: Orders that were notified of, by what is not evidence before the service's record bears it out.
    """

    counts: Mapping[State, int]
    sums: Mapping[State, Decimal]
    conflicts: int = 0
    unconfirmed: int = 0

    @property
    def total(self) -> int:
        """All orders."""
        return sum(self.counts.values())

    @property
    def figures(self) -> Mapping[Figure, tuple[int, Decimal]]:
        """Orders and sums that are paid, on the way, not paid, and that need a person; together they are all orders."""
        figures: dict[Figure, tuple[int, Decimal]] = dict.fromkeys(get_args(Figure), (0, Decimal(0)))
        for state in State:
            count, amount = figures[state.meaning.figure]
            amount = Context(prec=100).add(amount, self.sums[state])  # the usual 28 digits could round a great sum
            figures[state.meaning.figure] = count + self.counts[state], amount
        return figures


@frozen(kw_only=True)
class Happening:
    """One thing in the life of an order, as `explain` shows it.

    Attributes:
        at: Unix seconds.
        what: ``planned``, ``permit``, ``answer``, ``delivery``, ``notification``, ``evidence``, ``takeover``,
            ``resolution``; of an order that the journal does not hold also ``laid`` and ``registered``.
        by: Who brought it: a worker, a sender's address, a source, a person.
        signal: What it said.
        state: Where the order stood after it, where that is known.
        rule: The rule that decided.
        detail: More, in words.
        conflict: Words, when it contradicted what was known.
        correlation_id: The service's own reference for the exchange that brought an answer.
    """

    at: float
    what: str
    by: str | None = None
    signal: Signal | None = None
    state: State | None = None
    rule: str | None = None
    detail: str | None = None
    conflict: str | None = None
    correlation_id: str | None = None

    @property
    def is_acknowledgement(self) -> bool:
        """Whether a person let a contradiction of an order rest; what they know to be true, their words alone tell."""
        return self.what == "resolution" and self.signal is None


@frozen(kw_only=True)
class OutcomeWithHistory:
    """One order, and what brought it to where it stands.

    Attributes:
        decision: Of its history the first happening after which it never stood elsewhere; ``None`` for one that was
            never anything but planned.
        persons: What named persons decided about it, oldest first: who, when, why, and on what.
    """

    entry: Entry
    decision: Happening | None = None
    persons: tuple[Happening, ...] = ()


@frozen(kw_only=True)
class Placed:
    """What became of an order that was put.

    Attributes:
        entry: How it stands.
        is_new: The journal did not hold it before.
        chunk: The chunk it is in, where the caller holds that; it may be a new one, with orders left by others in it.
        claimed: The order, to be sent under that chunk's lease; ``None`` if this process does not send it.
        permit: The right to send it once, where that was asked for and it may go.
    """

    entry: Entry
    is_new: bool
    chunk: Chunk | None = None
    claimed: ClaimedOrder | None = None
    permit: Permit | None = None


WATCHED = 2.0  # seconds for which whoever has taken an order out of the tray looks into it again and again


@frozen(kw_only=True)
class Staged:
    """An order in the tray: put within a transaction of the application's own, and not taken yet.

    Attributes:
        id: Rising, by the time when it was put, not by the time of that commit.
        not_before: Unix seconds.
        at: Unix seconds when it was put.
        problem: Why it could not be taken, in words; ``None`` while it waits.
    """

    id: int
    request_id: str
    amount: Decimal
    not_before: float
    at: float
    problem: str | None = None


@frozen(kw_only=True)
class HeldUp:
    """What of an outbox goes on by itself no more, or late.

    Attributes:
        quarantined: Chunks, of all of its batches, that wait for a person since the journal was copied or restored.
        unloaded: Batches that are incomplete, and that no process loads: nothing of them is sent.
        slowed: Why processes hear of each other late, and what to do, or ``None``.
    """

    quarantined: int = 0
    unloaded: tuple[str, ...] = ()
    slowed: str | None = None


@frozen(kw_only=True)
class Waiting:
    """A run of an outbox with orders that wait.

    Attributes:
        run: The journal's own number for it.
        priority: The highest of its chunks.
        free, leased: Chunks that may be claimed now, and chunks that are held.
        is_looked_for: Whether the service's list was read for it since it was made; an outbox itself, when it opens.
        due_at: Unix seconds from which on a further one may be, or ``None``.
        asked_back: Chunks of the owner who asks that hold orders which are not in the owner's hands.
    """

    batch_id: str
    run: int
    priority: int
    free: int
    leased: int
    is_looked_for: bool = True
    due_at: float | None = None
    asked_back: int = 0


@frozen(kw_only=True)
class Pause:
    """Why an outbox sends nothing.

    Attributes:
        at: Unix seconds.
        who: A person, or ``fuse``.
    """

    at: float
    who: str
    why: str


@frozen(kw_only=True)
class SharedRate:
    """How fast all may send who share a journal.

    Attributes:
        rate: Orders a second, of all together; ``None`` without a limit.
        named: The different rates that those at work ask for, lowest first; infinity is one. Several are at odds, and
            the lowest counts. None is named if no worker asks for one: the last one that was counts.
        cools_for: Seconds that are left of a pause that the service asked for.
        cools_until: Unix seconds by the database's clock at its end, or ``None``.
        why: In whose words.
    """

    rate: float | None = None
    named: tuple[float, ...] = ()
    cools_for: float = 0.0
    cools_until: float | None = None
    why: str | None = None


@frozen(kw_only=True)
class RateSlots:
    """Orders that may be begun, at the rate of all who share a journal.

    Attributes:
        count: How many, one each ``interval`` seconds.
        starts_in: Seconds until the first.
        again_in: Where there are none, seconds until it is worth asking again.
        pace: What else is known.
    """

    count: int
    starts_in: float = 0.0
    interval: float = 0.0
    again_in: float = 0.0
    pace: SharedRate


class OpenOrder(NamedTuple):
    """An order without a final outcome; a hundred thousand of them are in memory at a time.

    Attributes:
        since: Unix seconds at which it last changed.
        sent_at: Unix seconds of its first permit, that of an earlier attempt included.
    """

    request_id: str
    state: State
    since: float
    sent_at: float


@frozen(kw_only=True)
class Archive:
    """A file that old orders have left for.

    Attributes:
        path: Where it was written.
        who, why: As it was asked for.
        begun, ended: Unix seconds; ``ended`` is ``None`` where it broke off: then what it holds is whole all the same.
        orders: How many have left for it.
    """

    id: int
    path: str
    who: str
    why: str
    begun: float
    ended: float | None = None
    orders: int = 0


@frozen(kw_only=True)
class ArchivedOrder:
    """What the journal still knows of an order that has left for an archive.

    Attributes:
        state: How it ended; a reversal that was told later counts.
        updated_at: Unix seconds of that.
        archive: Where all else about it is.
        late: What was told of it since that changes or contradicts how it ended, oldest first.
    """

    request_id: str
    batch_id: str
    state: State
    amount: Decimal
    currency: str | None
    transaction_id: str | None
    updated_at: float
    archive: Archive
    late: tuple[Happening, ...] = ()


@attrs.frozen(kw_only=True, slots=False)
class OldOrder:
    """An order that may leave.

    Attributes:
        id: The journal's own number for it.
        line: All that is known of it, as JSON on one line; it names people.
    """

    id: int
    request_id: str
    line: bytes = attrs.field(repr=False)


@frozen(kw_only=True)
class Particulars:
    """What a batch file says of an order beside it.

    Attributes:
        file_row: Its row.
        cells: What stands there and is not read, by the headings: a staff number, a department.
    """

    file_row: int
    cells: Mapping[str, str] = field(factory=dict, repr=False)


def body_digest(request_id: str, amount: str, body: bytes) -> bytes:
    """SHA-256 of everything an order says: equal for the same order, and proof that nobody edited the file."""
    return hashlib.sha256(b"\0".join((request_id.encode(), amount.encode(), body))).digest()


def proved(request_id: str, amount: str, body: bytes, body_sha256: bytes) -> bytes:
    """The body of an order.

    Raises:
        JournalCorrupt: The row is not what was loaded.
    """
    if body_digest(request_id, amount, body) != body_sha256:
        raise JournalCorrupt(f"order {request_id} is not what was loaded")
    return body


def order_of(request_id: str, amount: Decimal, body: bytes) -> Order:
    """The order in a row that was proved.

    Raises:
        JournalCorrupt: It cannot be read.
    """
    try:
        return read_order(request_id, amount, body)
    except ValueError as error:
        raise JournalCorrupt(f"order {request_id} cannot be read") from error


def _stand_in(transaction_id: str) -> str:
    """What an over-long transaction id is known by: the same for the same one, and for no other."""
    return f"{transaction_id[:_KEPT_OF_IT]}... ({hashlib.sha256(transaction_id.encode()).hexdigest()[:32]})"


def _in_full(transaction_id: str) -> str:
    return f"(the transaction id in full, of {len(transaction_id):,} characters: {transaction_id})"


def pack_transaction_id(text: str | None) -> bytes | None:
    """A transaction id as it is stored: 16 bytes for a UUID, whatever its case; for any other text, never so many."""
    if text is None:
        return None
    if len(text) == 36 and text[8:24:5] == "----":
        try:
            packed = bytes.fromhex(text.replace("-", ""))
        except ValueError:
            return _packed_words(text)
        if len(packed) == 16:  # blanks and further dashes are passed over
            return packed
    return _packed_words(text)


def _packed_words(text: str) -> bytes:
    words = text.encode()
    return words + (_TWO if len(words) == 15 else _ONE)


def unpack_transaction_id(stored: bytes | None) -> str | None:
    """The text of a stored transaction id; ``None`` for 16 zero bytes, which keep its place."""
    if stored is None:
        return None
    if len(stored) != 16:
        return stored[: -len(_TWO) if stored.endswith(_TWO) else -len(_ONE)].decode()
    if not any(stored):
        return None
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

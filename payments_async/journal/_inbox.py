"""What a journal keeps of notifications: the contract of an inbox, and the records it deals in."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from payments_async._values.frozen import frozen
from payments_async._wire.events import TransactionEvent


class Doubt(enum.StrEnum):
    """Why a notification that is kept is no evidence. It settles no order and is nobody's final event.

    ``UNCONFIRMED`` waits until the service's own record bears it out; ``REPORTED`` came from somebody who is not known
    to be a sender, and is only shown.
    """

    UNCONFIRMED = "unconfirmed"
    REPORTED = "reported"


# One of each is made for every notification. A tuple takes half the time, and half the work of the garbage collector.
class RawNotification(NamedTuple):
    """One notification exactly as it came.

    Attributes:
        body: Raw body.
        query: Raw query string, without the question mark.
        peer: Address of the sender that was accepted.
        received_at: Unix seconds.
    """

    body: bytes
    query: str
    peer: str
    received_at: float

    def __repr__(self) -> str:
        return f"RawNotification(peer={self.peer!r}, received_at={self.received_at!r})"  # the rest names people

    @property
    def digest(self) -> bytes:
        """SHA-256 of body and query: two equal deliveries are one row."""
        return hashlib.sha256(self.body + b"\0" + self.query.encode()).digest()


class Arrival(NamedTuple):
    """A delivery, what it says, and who is to handle it.

    Attributes:
        lease: Seconds for which a new event is leased to whoever stores it; 0 leaves it to anybody.
        unheard: Whether nobody would handle it: unless it contradicts an earlier event it is ``handled`` at once.
        usual: Whether the delivery is of a documented shape, and the event is what it says with timestamps in UTC.
            Then the event need not be stored beside it: it is read again.
        doubt: Why it is no evidence, if it is none.
    """

    delivery: RawNotification
    event: TransactionEvent
    lease: float
    unheard: bool = False
    usual: bool = False
    doubt: Doubt | None = None


class Receipt(NamedTuple):
    """What became of a delivery that was stored.

    Attributes:
        event_id: Stable id of the event, the same for every repetition.
        is_new: False when the same transaction, status code and amount was stored before, and is believed no less.
        conflict: Words when it contradicts a final event stored before (an error after a success, another amount),
            else ``None``. The earlier event stands.
    """

    event_id: int
    is_new: bool
    conflict: str | None = None


class Heard(NamedTuple):
    """How far a receiver has heard what became evidence, by whichever receiver.

    Attributes:
        event: Id of the newest event.
        belief: The same of those that became evidence later than they were stored.
    """

    event: int
    belief: int


@frozen(kw_only=True)
class StoredEvent:
    """An event with what handling it has come to.

    Attributes:
        state: ``pending``, ``handled``, ``dead`` (its tries ran out) or ``disputed`` (the service's record disagrees).
        tries: Rounds of handling so far.
        done: Names of the handlers that have finished; they are not run again.
        error: Words of the last failure, without personal data.
        conflict: As in ``Receipt``.
        doubt: Why it is no evidence, if it is none.
    """

    event_id: int
    event: TransactionEvent
    peer: str
    received_at: float
    state: str
    tries: int = 0
    done: frozenset[str] = frozenset()
    error: str | None = None
    conflict: str | None = None
    doubt: Doubt | None = None


@frozen(kw_only=True)
class Backlog:
    """How much is waiting: unhandled and dead events, and when the oldest unhandled one came (Unix seconds).

    Attributes:
        unconfirmed: Events that are no evidence until the service's record bears them out.
        reported: Events from somebody who is not known to be a sender.
    """

    pending: int
    dead: int
    oldest: float | None
    unconfirmed: int = 0
    reported: int = 0


@frozen(kw_only=True)
class Pruned:
    """What was forgotten.

    Attributes:
        events: Notifications.
        deliveries: Other words in which they came.
    """

    events: int = 0
    deliveries: int = 0


class Inbox(Protocol):
    """Keeps notifications. Every method returns once its effect is on disk.

    Several receivers, in several processes, may share one inbox: ``claim`` leases an event to one of them for a while.
    """

    async def receive(self, delivery: RawNotification, event: TransactionEvent, *, owner: str, lease: float) -> Receipt:
        """Store a delivery and its event, and lease a new event to ``owner`` for ``lease`` seconds.

        It is applied as evidence to its order if there is one. After it returns the notification may be answered with
        200. One that names the request id which the same notification left out before is matched with orders again.
        """

    async def receive_all(
        self, arrivals: Sequence[Arrival], *, owner: str, handled: Sequence[int] = ()
    ) -> Sequence[Receipt | Exception]:
        """Do what ``receive`` does for many, and ``finish`` as ``handled``, in one commit.

        Stores whatever can be stored even if nobody waits for it any more. An arrival that cannot be stored does not
        stop the others: its place is taken by the reason.

        Args:
            arrivals: May repeat or contradict each other; the first stands.
            handled: Ids of events that are ``handled``.

        Raises:
            Exception: When nothing was stored.
        """

    async def confirm(self, event_id: int) -> str | None:
        """The service's record bears an event out: it is evidence from now on. Tells what it contradicts, if anything.

        Again, it changes nothing.
        """

    async def claim(self, owner: str, *, lease: float, limit: int) -> Sequence[StoredEvent]:
        """Lease due, unleased events that are ``pending``, oldest first.

        One that cannot be read is a dead letter from then on, and does not hold up the others.
        """

    async def release(self, owner: str) -> None:
        """Give back at once every lease that ``owner`` took through this inbox, and none of a namesake elsewhere."""

    async def note_done(self, event_id: int, handler: str) -> None:
        """One handler has finished with the event."""

    async def finish(self, event_id: int, state: str, *, error: str | None = None) -> None:
        """The event is ``handled``, ``dead`` or ``disputed``."""

    async def retry_later(self, event_id: int, *, delay: float, error: str) -> None:
        """Count a try, give the lease back and make the event due again after ``delay`` seconds."""

    async def revive(self, event_id: int | None = None) -> int:
        """Make one dead event, or all of them, pending again; tells how many."""

    def dead_letters(self) -> AsyncIterator[StoredEvent]:
        """Dead events, oldest first."""

    def dubious(self) -> AsyncIterator[StoredEvent]:
        """Events that are no evidence, oldest first: not confirmed yet, only reported, or disputed."""

    async def final_event(self, request_id: str) -> TransactionEvent | None:
        """The first final event of an order that was received and is evidence that nothing disputes, or ``None``."""

    async def final_events_of(self, request_ids: Sequence[str]) -> Mapping[str, TransactionEvent]:
        """The same of many orders, of those that have one."""

    async def final_events(self, request_id: str, transaction_id: str | None = None) -> Sequence[TransactionEvent]:
        """All of them, oldest first.

        Args:
            transaction_id: Only those of this transaction, also where they name no request id.
        """

    async def finals_since(
        self, heard: Heard | None, is_wanted: Callable[[str | None, str], bool]
    ) -> tuple[Heard, Sequence[TransactionEvent]]:
        """The final events that are wanted and became evidence since, whoever stored them; and how far that was.

        It takes one query where nothing did, however many wait for something. A number that is lower than before says
        that the journal was put back to what it was earlier.

        Args:
            heard: What the last call told; ``None`` for no events, and how far it is now.
            is_wanted: Says of a request id, if there is one, and a transaction id whether somebody waits for either.
                Called in another thread.
        """

    async def committed(self, seen: int, *, timeout: float) -> int:
        """Wait until something was written by anybody since, for so many seconds at most; tells what to pass next time.

        Args:
            seen: What the last call told, or 0.
        """

    def before_close(self, finish: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Have something finished before the inbox closes; what is returned takes that back."""

    async def check_writable(self) -> None:
        """Write something that means nothing. It raises what a delivery that cannot be stored would."""

    async def backlog(self) -> Backlog:
        """How much is waiting."""

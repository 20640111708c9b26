"""What a journal keeps of notifications: the records that its inbox deals in."""

from __future__ import annotations

import enum
import hashlib
from datetime import UTC, datetime
from typing import NamedTuple

from payments_async._values.frozen import frozen
from payments_async._wire.events import TransactionEvent

NOT_CONFIRMED = "not confirmed: "  # how it is written down why an event waits that no handler has heard of


class Doubt(enum.StrEnum):
    """Why a notification that is kept is not evidence. It settles no order and ends no wait.

    ``UNCONFIRMED`` waits until the service's own record bears it out; ``REPORTED`` came from an unknown sender, and is
    only shown.
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
        lease: Seconds for which a new event is leased to the receiver that stores it; 0 leaves it to anybody.
        unheard: Whether it would stay unhandled: unless it contradicts an earlier event it is ``handled`` at once.
        usual: Whether the delivery is of a documented shape, and the event is what it says with timestamps in UTC.
            Then the event need not be stored beside it: it is read again.
        doubt: Why it is not evidence, if it is none.
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
        doubt: Why it is not evidence, if it is none.
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
        failing: How many a handler has failed with that is run again.
        failing_since: When the first of these came (Unix seconds).
        failure: Which handler failed with it last, with which type of exception, and where. Not in which words: these
            may name persons, and stay in the log.
        unconfirmed: Events that are not evidence until the service's record bears them out.
        reported: Events of unknown senders.
    """

    pending: int
    dead: int
    oldest: float | None
    unconfirmed: int = 0
    reported: int = 0
    failing: int = 0
    failing_since: float | None = None
    failure: str | None = None

    @property
    def trouble(self) -> str | None:
        """That handlers fail, since when and where, in words; ``None`` where none does."""
        if not self.failing or self.failing_since is None:
            return None
        since = datetime.fromtimestamp(self.failing_since, UTC)
        return f"handlers fail since {since:%Y-%m-%d %H:%M} UTC ({self.failing:,} wait for it): {self.failure}"


@frozen(kw_only=True)
class Pruned:
    """What was forgotten.

    Attributes:
        events: Notifications.
        deliveries: Other words in which they came.
    """

    events: int = 0
    deliveries: int = 0

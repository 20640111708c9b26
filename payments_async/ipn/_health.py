"""How a receiver does."""

from __future__ import annotations

from typing import Any

from payments_async._values.frozen import frozen
from payments_async._values.health import HealthProblem


@frozen(kw_only=True)
class ReceiverHealth:
    """How a receiver does. Without a journal nothing waits, and all is zero.

    Attributes:
        problems: What keeps it from its work, or waits for a person.
        pending: Events that wait for handlers.
        failing: Of these, events whose handler has failed and is tried again.
        dead: Events whose handlers failed too often.
        unconfirmed: Events that the service's record has not confirmed yet.
        reported: Events of senders that are not known (``shadow``).
        oldest_seconds: Age of the oldest event that waits.

    >>> ReceiverHealth(pending=3).is_well
    True
    """

    problems: tuple[HealthProblem, ...] = ()
    pending: int = 0
    failing: int = 0
    dead: int = 0
    unconfirmed: int = 0
    reported: int = 0
    oldest_seconds: float | None = None

    @property
    def is_well(self) -> bool:
        """Whether notifications can be stored. Its health path answers 503 otherwise."""
        return not any(one.stops for one in self.problems)

    def document(self) -> dict[str, Any]:
        """It for machines, as the health path answers it."""
        status = next((one.what for one in self.problems if one.stops), "ok")
        facts = {"status": status, "pending": self.pending, "failing": self.failing, "dead": self.dead}
        facts |= {"unconfirmed": self.unconfirmed, "reported": self.reported, "oldest_seconds": self.oldest_seconds}
        return facts | {"problems": [one.document() for one in self.problems]}

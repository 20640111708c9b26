"""How patiently handlers are run: limits and waits. Runs nothing."""

from __future__ import annotations

from typing import Any

import attrs

__all__ = ["Handling"]


def _above_zero(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name}: must be above zero")


@attrs.frozen(kw_only=True)
class Handling:
    """How handlers are run.

    With an inbox, a handler that fails is run again, alone, after a wait with full jitter:
    ``random() * min(wait_max, wait_initial * 2 ** tries)``. By default that is up to 1, 2, 4 ... 512 and then up to 900
    seconds, half of it on average: an event becomes a dead letter some six hours after its first failure (at most
    twelve and a half), so that an outage of your database costs none. Without an inbox, the service is asked to send
    again.

    Attributes:
        concurrency: Handlers running at once.
        timeout: Seconds for one handler and one event.
        attempts: Rounds before an event becomes a dead letter. Where the service cannot be asked to confirm an event,
            no round counts: the event waits.
        wait_initial: Longest wait before the second round, in seconds.
        wait_max: Longest wait before any round, in seconds.
        poll: Seconds between two looks for events that are due: retries, and what another receiver left behind.
        drain: Seconds that a shutdown waits for handlers under way.
    """

    concurrency: int = attrs.field(default=100, validator=_above_zero)
    timeout: float = attrs.field(default=30.0, validator=_above_zero)
    attempts: int = attrs.field(default=60, validator=_above_zero)
    wait_initial: float = attrs.field(default=1.0, validator=_above_zero)
    wait_max: float = attrs.field(default=900.0, validator=_above_zero)
    poll: float = attrs.field(default=1.0, validator=_above_zero)
    drain: float = 10.0

    @property
    def lease(self) -> float:
        """Seconds that an event belongs to one receiver: time to queue, and to run every handler once."""
        return 3 * self.timeout

    def wait(self, tries: int, chance: float) -> float:
        """Seconds before the next round, after so many; ``chance`` is in [0, 1)."""
        longest = min(self.wait_max, self.wait_initial * 2.0 ** min(tries, 60))
        return chance * longest

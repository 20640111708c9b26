"""The contradictions of the specification that were met, each told once: in the log, and to whoever watches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from payments_async._values.observing import Observer
from payments_async._wire.call import Call, Reply
from payments_async._wire.quirks import quirks_of_answer, quirks_of_notification

_log = logging.getLogger("payments_async")

_MOST_UNUSUAL = 100  # answers of one kind, read with thought, that are all looked at; then ever fewer of them


class MetQuirks:
    """What one session, or one receiver, has met.

    To look costs a second reading. So each answer that was read with thought is looked at, up to a hundred of a kind,
    and of all others the first, the second, the fourth, the eighth and so on.

    Attributes:
        met: The value that each shows itself by, under its id.
        observer: Who hears of each, if anybody does.
        taken: Orders whose acceptance was read at once; whoever reads those counts them.
    """

    def __init__(self, observer: Observer | None = None) -> None:
        self.met: dict[str, str] = {}
        self.observer = observer
        self.taken = 0
        self._seen: dict[str, int] = {}  # no Counter: to count one is an assignment by way of Python's own methods
        self._unusual: dict[str, int] = {}

    def wants(self, kind: str, *, is_unusual: bool) -> bool:
        """Whether to look at an answer of this kind, which was read with thought, or at once."""
        self._seen[kind] = seen = self._seen.get(kind, 0) + 1
        if not seen & (seen - 1):
            return True
        if not is_unusual:
            return False
        self._unusual[kind] = unusual = self._unusual.get(kind, 0) + 1
        return unusual <= _MOST_UNUSUAL or not unusual & (unusual - 1)

    def consider(self, call: Call[Any], reply: Reply) -> None:
        """Look at an answer, unless enough of its kind were looked at."""
        if call.answer and self.wants(call.answer, is_unusual=reply.is_unusual):
            self.look_at_answer(call, reply)

    def look_at_answer(self, call: Call[Any], reply: Reply) -> None:
        """Tell what an answer shows."""
        self._tell(lambda: quirks_of_answer(call, reply))

    def look_at_notification(self, body: bytes, query: str) -> None:
        """Tell what a notification shows."""
        self._tell(lambda: quirks_of_notification(body, query))

    def _tell(self, look: Callable[[], Mapping[str, str]]) -> None:
        try:
            shown = look()
        except Exception as error:  # noqa: BLE001 - whatever it trips over, what it was has been read and counts
            _log.error("an answer could not be searched for quirks: %s", type(error).__name__)
            return
        for quirk, value in shown.items():
            if quirk not in self.met:
                self.met[quirk] = value
                facts = {"quirk": quirk, "value": value}
                _log.info("the service shows the quirk %s: %s", quirk, value, extra=facts)
                if self.observer is not None:
                    self.observer.count("quirk", quirk=quirk)

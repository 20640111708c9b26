"""What is wrong with a part, as one shape for programs, people and metrics."""

from __future__ import annotations

from typing import Any

from payments_async._values.frozen import frozen


@frozen(kw_only=True)
class HealthProblem:
    """Something that keeps an outbox or a receiver from its work, or that waits for a person.

    Attributes:
        code: One word for it, for programs and metrics.
        count: How much of it there is.
        what: What is wrong, in words.
        what_to_do: The next step.
        since: Unix seconds at which it began; ``None`` if that is not known.
        stops: Whether nothing is sent, or stored, because of it.
        needs_person: Whether it stays until a person acts.
        subjects: Names that it is about: batches, states, or who paused the outbox.

    >>> problem = HealthProblem(code="parked", count=2, what="2 orders", what_to_do="ask the service")
    >>> problem.document()["count"]
    2
    """

    code: str
    count: int
    what: str
    what_to_do: str
    since: float | None = None
    stops: bool = False
    needs_person: bool = False
    subjects: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """It for machines, as ``--json`` and ``/health`` show it."""
        facts = {"code": self.code, "count": self.count, "since": self.since, "what": self.what}
        return facts | {"what_to_do": self.what_to_do, "needs_person": self.needs_person, "subjects": self.subjects}

"""What an examination of a journal has found, in plain words."""

from __future__ import annotations

from payments_async._values.frozen import frozen


@frozen(kw_only=True)
class Inconsistency:
    """Something in a journal that does not agree with the rest of it.

    Attributes:
        about: What, in words.
        count: How many there are, at least.
        examples: The first of them: request ids, batches, numbers.
        remedy: What to do about it.
    """

    about: str
    count: int
    examples: tuple[str, ...]
    remedy: str


@frozen(kw_only=True)
class IntegrityCheck:
    """Something that a journal relies on: a setting of its server, the place of its file.

    Attributes:
        name: What was looked at.
        found: How it is.
        is_wrong: The journal cannot be relied on like this.
        remedy: What to do about it; empty where it is well. Where it is not wrong it is advice.
    """

    name: str
    found: str
    is_wrong: bool = False
    remedy: str = ""


@frozen(kw_only=True)
class VerificationReport:
    """A journal that was read from its beginning to its end, all of it as it was at one moment.

    Attributes:
        place: Where it is.
        orders, notifications, changes: How many rows of these were read.
        flaws: What does not agree with the rest.
        circumstances: What it relies on.
    """

    place: str
    orders: int
    notifications: int
    changes: int
    flaws: tuple[Inconsistency, ...]
    circumstances: tuple[IntegrityCheck, ...]

    @property
    def is_sound(self) -> bool:
        """Whether it agrees with itself, and what it relies on is as it has to be."""
        return not self.flaws and not any(one.is_wrong for one in self.circumstances)

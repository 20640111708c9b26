"""Of which version the tables of a journal are, which versions of this package may use them, and the steps between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from payments_async._values.frozen import frozen
from payments_async.journal._faults import JournalTooNew, NotMigrated


@frozen(kw_only=True)
class Step:
    """What brings the tables from one version to the next. One that was released is never edited: add another below it.

    A step adds, and leaves what the version before it reads and writes as it was: so both run side by side, while one
    process after the other is replaced. What only older versions used is taken away by a later step, which says so in
    ``oldest``.

    Attributes:
        about: What it is for, in a few words.
        statements: In the words of one database; all steps of a journal are one transaction.
        oldest: The lowest version of this package's tables that may go on beside it.
    """

    about: str
    statements: Sequence[str]
    oldest: int


class Version(NamedTuple):
    """What a journal says of its tables.

    Attributes:
        number: How many steps were made; 0 where there are no tables.
        oldest: The lowest version that may use them.
    """

    number: int
    oldest: int


@frozen(kw_only=True)
class Migration:
    """How a journal is brought up to date, or was.

    Attributes:
        before: The version of its tables; 0 where there were none.
        after: The version they have then: that of this package, or a later one that this package may use.
        oldest: The lowest version that may use them then.
        steps: What is done, in words; nothing where the journal is up to date.
        statements: ... in the words of the database.
    """

    before: int
    after: int
    oldest: int
    steps: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()


def migration(found: Version, steps: Sequence[Step]) -> Migration:
    """What is to be done with tables of a version by a package that knows these steps.

    Raises:
        JournalTooNew: It may not use them.
    """
    check_usable(found, steps)
    left = steps[found.number :]
    return Migration(
        before=found.number,
        after=max(found.number, len(steps)),
        oldest=left[-1].oldest if left else found.oldest,
        steps=tuple(step.about for step in left),
        statements=tuple(statement for step in left for statement in step.statements),
    )


def check_usable(found: Version, steps: Sequence[Step]) -> None:
    """Raise ``JournalTooNew`` where tables have changed beyond what a package that knows these steps may use."""
    if found.oldest > len(steps):
        raise JournalTooNew(
            f"the journal is of version {found.number}, which {found.oldest} and later may use; this package knows "
            f"{len(steps)}"
        )


def check_up_to_date(found: Version, steps: Sequence[Step], named: str) -> None:
    """Raise ``NotMigrated`` where the tables of a journal are of an older version."""
    if 0 < found.number < len(steps):
        raise NotMigrated(f"{named}: it is of version {found.number}, this package's is {len(steps)}")

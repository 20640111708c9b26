"""Every error of the journal. Each says what was found and what to do about it. Raises nothing itself.

::

    JournalError
      JournalUnavailable      the file could not be read or written: nothing was granted, nothing was promised
        JournalLocked         ... another process held it for too long
        JournalReadOnly       ... we may not write it
        JournalFull           ... no room is left
        JournalClosed         ... it was closed, or never opened
      JournalUnusable         the file will not become usable by waiting
        JournalCorrupt        ... it is damaged
        JournalTooNew         ... a newer version of this package wrote it
        NotAJournal           ... it is something else
      JournalRefused          the journal is fine and says no
        WrongAccount          ... it belongs to another account or another service
        OrdersDiffer          ... these are not the orders it holds
        LoadBusy              ... another process is loading this batch
        RunUnknown            ... it holds no such batch, or not all of it
        OrderUnknown          ... it holds no such order
        LeaseLost             ... the chunk is no longer yours
        NotParked             ... only a parked order can be written off
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "JournalClosed",
    "JournalCorrupt",
    "JournalError",
    "JournalFull",
    "JournalLocked",
    "JournalReadOnly",
    "JournalRefused",
    "JournalTooNew",
    "JournalUnavailable",
    "JournalUnusable",
    "LeaseLost",
    "LoadBusy",
    "NotAJournal",
    "NotParked",
    "OrderUnknown",
    "OrdersDiffer",
    "RunUnknown",
    "WrongAccount",
]


class JournalError(Exception):
    """Anything the journal could not do. What it was asked for did not happen.

    Attributes:
        message: What was found.
        remedy: What to do about it.
    """

    remedy: ClassVar[str] = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} -> {self.remedy}" if self.remedy else self.message


class JournalUnavailable(JournalError):
    """The file could not be read or written. A permit asked for counts as not granted."""

    remedy = "stop sending; look at the disk, then continue with the same command"


class JournalLocked(JournalUnavailable):
    """Another process held the file for longer than ``busy_timeout``."""

    remedy = "end the program that holds it (a backup, a shell with an open transaction), then continue"


class JournalReadOnly(JournalUnavailable):
    """We may read the file, or its directory, but not write it."""

    remedy = "give this user write permission on the file and on its directory"


class JournalFull(JournalUnavailable):
    """No room is left on the disk. Nothing of the last commit was kept."""

    remedy = "free some disk space, then continue with the same command"


class JournalClosed(JournalUnavailable):
    """The journal was closed, or never opened."""

    remedy = "use it inside `async with`, from one event loop"


class JournalUnusable(JournalError):
    """The file will not become usable by waiting."""


class JournalCorrupt(JournalUnusable):
    """The file is damaged, or an order in it was changed by other means."""

    remedy = "send nothing from it; recover the rest with `sqlite3 FILE .recover` into a new file and reconcile that"


class JournalTooNew(JournalUnusable):
    """A newer version of this package wrote the file."""

    remedy = "upgrade payments-async to the version that wrote it"


class NotAJournal(JournalUnusable):
    """The file is something else."""

    remedy = "name another file; a journal is made by itself where there is none"


class JournalRefused(JournalError):
    """The journal is fine and says no."""


class WrongAccount(JournalRefused):
    """The journal belongs to another account or another service, such as the sandbox."""

    remedy = "use one journal for each account and service"


class OrdersDiffer(JournalRefused):
    """These are not the orders the journal holds. Nothing was sent.

    Attributes:
        request_ids: Of the first orders that differ.
    """

    remedy = "correct the file, continue without one, or give other orders other request ids and another batch id"

    def __init__(self, message: str, request_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.request_ids: tuple[str, ...] = tuple(request_ids)

    def __reduce__(self) -> tuple[type[OrdersDiffer], tuple[str, tuple[str, ...]]]:
        return type(self), (self.message, self.request_ids)


class LoadBusy(JournalRefused):
    """Another process is loading this batch at the moment, or died while it did.

    Attributes:
        owner: Who loads it.
        seconds: After so many without a sign of it, another may.
    """

    remedy = "try again in a few seconds: once it is loaded, every process may run it"

    def __init__(self, message: str, owner: str | None = None, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.owner = owner
        self.seconds = seconds

    def __reduce__(self) -> tuple[type[LoadBusy], tuple[str, str | None, float]]:
        return type(self), (self.message, self.owner, self.seconds)


class RunUnknown(JournalRefused):
    """The journal holds no such batch, or its loading was interrupted."""

    remedy = "pass the orders again"


class OrderUnknown(JournalRefused):
    """The journal holds no such order."""

    remedy = "check the request id and the journal"


class LeaseLost(JournalRefused):
    """The lease of the chunk ran out and somebody else took it over."""

    remedy = "send nothing more of this chunk; outcomes of what was sent are still taken"


class NotParked(JournalRefused):
    """Only a parked order can be written off."""

    remedy = "reconcile first: an order is parked when two clean sweeps did not find it"

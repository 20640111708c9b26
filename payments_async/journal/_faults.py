"""Every error of the journal. Each says what was found and what to do about it.

::

    JournalError
      JournalUnavailable      the file could not be read or written: nothing was granted, nothing was promised
        JournalLocked         ... another process held it for too long
        JournalReadOnly       ... we may not write it
        JournalFull           ... no room is left
        JournalClosed         ... it was closed, never opened, or opened by the process this one was forked from
        JournalBehind         ... a copy of it has gone on: it is in quarantine from now on
      JournalUnusable         the file will not become usable by waiting
        JournalCorrupt        ... it is damaged, or lacks a table
        JournalTooNew         ... a newer version of this package wrote it
        NotMigrated           ... an older version wrote it, and nobody has brought it up to date
        JournalMoved          ... it was copied to another place, which is the journal from then on
        NotAJournal           ... it is something else
        JournalLost           ... a journal with orders was there, and this is not it
      JournalRefused          the journal is fine and says no
        WrongAccount          ... it belongs to another account or another service
        OrdersDiffer          ... these are not the orders it holds
          OrdersArchived      ... it held them, and they have left it for an archive
        HeldElsewhere         ... they are orders of another batch, which may have sent them
        LoadBusy              ... another process is loading this batch
        RunUnknown            ... it holds no such batch, or not all of it
        OrderUnknown          ... it holds no such order
        LeaseLost             ... the chunk is no longer yours
        StillWorked           ... somebody works with it, and it is to go to another place
        PlaceTaken            ... there is something already where it is to go
        NotParked             ... only a parked order can be sent again
        NotLookedFor          ... what was sent since it was copied or restored was not looked for yet
        NotApproved           ... too few persons have approved the batch
        NotCompared           ... its plan does not know another batch of the journal
        SecondJournal         ... this machine has another journal of the account, and no person has said why
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import partial

_BY_WORD = 30 * 86_400.0  # seconds since when an order may have been sent of which a person alone knows the holder
_WHILE_TRYING = "; while you try things out on a simulated service, use SqliteJournal.temporary()"


class JournalError(Exception):
    """Anything the journal could not do. What it was asked for did not happen.

    Attributes:
        message: What was found.
        remedy: What to do about it.
    """

    remedy: str = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} -> {self.remedy}" if self.remedy else self.message


class JournalUnavailable(JournalError):
    """The file could not be read or written. A permit asked for counts as not granted."""

    remedy = "stop sending; look at its disk or its server, then continue with the same command"


class JournalLocked(JournalUnavailable):
    """Another process held the file for longer than ``busy_timeout``."""

    remedy = "end the program that holds it (a backup, a shell with an open transaction), then continue"


class JournalReadOnly(JournalUnavailable):
    """We may read the file, or its directory, but not write it."""

    remedy = (
        "let this user write it: the file and its directory, on a file system that is mounted for writing, or the "
        "tables of the database"
    )


class JournalFull(JournalUnavailable):
    """No room is left on the disk. Nothing of the last commit was kept."""

    remedy = "free some disk space, then continue with the same command"


class JournalClosed(JournalUnavailable):
    """The journal was closed, or never opened in this process."""

    remedy = "use it inside `async with`, from one event loop of one process"

    @classmethod
    def by_fork(cls, file: object) -> JournalClosed:
        """SQLite takes over in a forked child what its parent knew of a file's locks, and not the locks."""
        return cls(
            f"{file} was open in the process that this one was forked from, and a fork loses SQLite's locks: fork "
            "before you open a journal, or begin processes by spawn"
        )


class JournalBehind(JournalUnavailable):
    """A copy of the journal has gone on, and this one does not know what it sent: nothing was granted."""

    remedy = "its unfinished chunks are in quarantine now: reconcile, then lift it; and keep one of the two files"


class JournalUnusable(JournalError):
    """The file will not become usable by waiting."""


class JournalCorrupt(JournalUnusable):
    """The file is damaged, lacks a table, or an order in it was changed by other means."""

    remedy = (
        "send nothing from it; `payments-async journal check` names what is damaged. Restore a backup, and reconcile; "
        "without one, begin a new journal that adopts its orders, as the runbook says of a journal that is lost"
    )


class RegistryDamaged(JournalUnusable):
    """What this machine remembers of its journals cannot be read any more; no journal is damaged by that."""

    remedy = (
        "move that file away, with its -wal and -shm: a new one is begun. Until a batch was loaded again it knows "
        "nothing of other journals, so let every run look in the service's list first"
    )


class JournalTooNew(JournalUnusable):
    """A newer version of this package wrote the file."""

    remedy = "upgrade payments-async to the version that wrote it"


class NotMigrated(JournalUnusable):
    """Its tables are of an older version, or a trigger of theirs is off; the role that they belong to mends that."""

    remedy = "`payments-async journal migrate --journal DSN`, as the role that the tables belong to"


class JournalMoved(JournalUnusable):
    """The journal was copied to another place: nothing is sent from here, nor taken, any more."""

    remedy = (
        "name that place wherever this one is named: --journal, PAYMENTS_JOURNAL, your application; only if it is lost "
        "for ever, begin a new one under another name, which adopts its orders"
    )


class NotAJournal(JournalUnusable):
    """The file is something else."""

    remedy = "name another file, or delete this one if it is empty; a journal is made by itself where there is none"


class JournalLost(JournalUnusable):
    """A journal with orders was there, and this is not it. Nothing was made in its place."""

    remedy = (
        "put the file back, with its -wal if there is one; if it was moved, open it once where it is now; "
        "if it is lost, begin a new one under another name, which adopts its orders"
        f"{_WHILE_TRYING}"
    )

    @classmethod
    def of_tables(cls, message: str) -> JournalLost:
        """One that was in a database."""
        lost = cls(message)
        lost.remedy = (
            "put the tables back into their namespace, as from a backup, or give the namespace its name again; "
            "if they are lost, begin a new journal in another namespace, which adopts their orders"
        )
        return lost


class JournalRefused(JournalError):
    """The journal is fine and says no."""


class WrongAccount(JournalRefused):
    """The journal belongs to another account or another service, such as the sandbox."""

    remedy = f"use one journal for each account and service{_WHILE_TRYING}"


class OrdersDiffer(JournalRefused):
    """These are not the orders the journal holds. Nothing was sent.

    Attributes:
        request_ids: Of the first orders that differ.
    """

    remedy = (
        "if it is the same payment, put it as it was put first (correct the file, or continue without one); "
        "only another payment gets another request id, in another batch"
    )

    @classmethod
    def in_letters(cls, request_id: str, other: str) -> OrdersDiffer:
        """A request id is refused that differs in letters alone from one that is known."""
        return cls(
            f"request id {request_id} differs from {other}, which the journal holds, in letters alone (small, capital "
            "or wide): the service may not tell them apart, and it may be the same payment",
            [request_id],
        )

    @staticmethod
    def how(one: str, other: str) -> str:
        """In which way two orders differ, by their amounts, as far as it may be shown."""
        if one == other:
            return "the same amount, and something else differs"
        if Decimal(one) == Decimal(other):
            return f"amounts {one} and {other}: the same number in other digits, and digits count"
        return f"amounts {one} and {other}"

    def __init__(self, message: str, request_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.request_ids: tuple[str, ...] = tuple(request_ids)

    def __reduce__(self) -> tuple[type[OrdersDiffer], tuple[str, tuple[str, ...]]]:
        return type(self), (self.message, self.request_ids)


class OrdersArchived(OrdersDiffer):
    """These orders ended long ago, and have left the journal for an archive. Nothing was sent."""

    remedy = "nothing is to be done: how each of them ended is in the archive; give other orders other request ids"


class HeldElsewhere(JournalRefused):
    """Orders of another batch, in another journal or in this one before it was restored, which may have sent them.

    Attributes:
        request_ids: Of the first of them.
        path: Where that journal was last, if that is known.
        batch_id: Which batch of it.
        since: Unix seconds; none of them was sent before.
    """

    remedy = (
        "go on with that journal; only if it is lost, adopt them by name: "
        "nothing of the batch is sent before all of it was looked for"
    )

    def __init__(
        self, message: str, request_ids: Sequence[str] = (), *, path: str | None = None, batch_id: str | None = None,
        since: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.request_ids: tuple[str, ...] = tuple(request_ids)
        self.path = path
        self.batch_id = batch_id
        self.since = since

    @classmethod
    def by_word(cls, now: float, request_ids: Sequence[str] = ()) -> HeldElsewhere:
        """A person says so, and the machine knows of no other journal: it may have forgotten."""
        words = "a person says that another journal held it, of which this machine knows nothing"
        return cls(words, request_ids, since=now - _BY_WORD)

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), path=self.path, batch_id=self.batch_id, since=self.since), (
            self.message, self.request_ids,
        )  # fmt: skip


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

    remedy = "pass the orders again; an outbox begins when a process opens it"


class OrderUnknown(JournalRefused):
    """The journal holds no such order."""

    remedy = "check the request id and the journal"


class LeaseLost(JournalRefused):
    """The lease of the chunk ran out, and another process took it over."""

    remedy = "send nothing more of this chunk; outcomes of what was sent are still taken"


class StillWorked(JournalRefused):
    """The journal is to go to another place, and a program still uses it. Nothing was done."""

    remedy = "stop all programs that use it (workers, receivers, applications), then copy; dead ones are noticed"


class PlaceTaken(JournalRefused):
    """The journal is to go to a place where there is something already. Nothing was done."""

    remedy = "name a file that is not there, or a namespace without tables"


class NotParked(JournalRefused):
    """Only a parked order can be sent again by a person's word."""

    remedy = "reconcile first: an order is parked when two clean list scans did not find it"


class NotCancelled(JournalRefused):
    """An order may have left already, or has ended."""

    remedy = "what may have left cannot be called back: wait for its end, or ask the service"


class NotLookedFor(JournalRefused):
    """The journal was copied or restored, and what has to be seen before a quarantine is lifted was not seen yet.

    What it calls planned may have been sent, so nothing of the batch goes on before that.
    """

    remedy = "reconcile the batch, until two complete lists have counted; then lift the quarantine"


class NotCompared(JournalRefused):
    """The plan of this batch does not know another one, which may pay the same people. Nothing was sent."""

    remedy = "nothing was sent; plan the batch again with this journal, which compares the two"


class SecondJournal(JournalRefused):
    """This machine has another journal of the same account. Two journals do not know what the other one has paid.

    Attributes:
        path: Where the other journal was last, as far as is known.
    """

    remedy = (
        "go on with that journal; where two are meant, a named person says why (--second-journal WHY, or "
        "second_journal=TakeoverAuthorisation(who=..., why=...))"
        f"{_WHILE_TRYING}"
    )

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[type[SecondJournal], tuple[str, str | None]]:
        return type(self), (self.message, self.path)

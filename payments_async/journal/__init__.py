"""The journal: what was sent, what was heard, and what became of it, durably.

What only whoever writes a journal of their own, or tests one, needs is in ``payments_async.journal.contract``.
"""

from typing import TYPE_CHECKING

from payments_async._values.public import name_publicly
from payments_async.journal._approvals import Approval, ApprovalRule, NotApproved, Proposal, Signature
from payments_async.journal._archive import ArchivedOrders, archive_orders
from payments_async.journal._engine._copying import Copied, copy_journal
from payments_async.journal._engine._journal import Journal
from payments_async.journal._examination import Inconsistency, IntegrityCheck, VerificationReport
from payments_async.journal._faults import (
    HeldElsewhere,
    JournalBehind,
    JournalClosed,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalLost,
    JournalMoved,
    JournalReadOnly,
    JournalRefused,
    JournalTooNew,
    JournalUnavailable,
    JournalUnusable,
    LeaseLost,
    LoadBusy,
    NotAJournal,
    NotCancelled,
    NotCompared,
    NotLookedFor,
    NotMigrated,
    NotParked,
    OrdersArchived,
    OrdersDiffer,
    OrderUnknown,
    PlaceTaken,
    RegistryDamaged,
    RunUnknown,
    SecondJournal,
    StillWorked,
    WrongAccount,
)
from payments_async.journal._inbox import Pruned
from payments_async.journal._machine._memory import StateFolder
from payments_async.journal._places import NoPostgresJournal, journal_at, postgres_journal
from payments_async.journal._records import (
    Archive,
    ArchivedOrder,
    Entry,
    Happening,
    ListingDeadline,
    ListScan,
    OutcomeWithHistory,
    Particulars,
    Progress,
    Run,
    RunIdentity,
    TakeoverAuthorisation,
)
from payments_async.journal._signed_approvals import Approver, ApproverKey, approval_request, read_request
from payments_async.journal._sqlite._journal import SqliteJournal
from payments_async.journal._states import FINAL, UNPAID, UNSETTLED, Signal, State
from payments_async.journal._versions import Migration

if TYPE_CHECKING:
    from payments_async.journal._postgres._journal import PostgresJournal

__all__ = [
    "Approval",
    "ApprovalRule",
    "Approver",
    "ApproverKey",
    "Archive",
    "ArchivedOrder",
    "ArchivedOrders",
    "Copied",
    "Entry",
    "FINAL",
    "Happening",
    "HeldElsewhere",
    "Inconsistency",
    "IntegrityCheck",
    "Journal",
    "JournalBehind",
    "JournalClosed",
    "JournalCorrupt",
    "JournalError",
    "JournalFull",
    "JournalLocked",
    "JournalLost",
    "JournalMoved",
    "JournalReadOnly",
    "JournalRefused",
    "JournalTooNew",
    "JournalUnavailable",
    "JournalUnusable",
    "LeaseLost",
    "ListScan",
    "ListingDeadline",
    "LoadBusy",
    "Migration",
    "NotAJournal",
    "NotApproved",
    "NotCancelled",
    "NotCompared",
    "NotLookedFor",
    "NotMigrated",
    "NotParked",
    "OrderUnknown",
    "OrdersArchived",
    "OrdersDiffer",
    "OutcomeWithHistory",
    "Particulars",
    "PlaceTaken",
    "PostgresJournal",
    "Progress",
    "Proposal",
    "Pruned",
    "RegistryDamaged",
    "Run",
    "RunIdentity",
    "RunUnknown",
    "SecondJournal",
    "Signal",
    "Signature",
    "SqliteJournal",
    "State",
    "StateFolder",
    "StillWorked",
    "TakeoverAuthorisation",
    "UNPAID",
    "UNSETTLED",
    "VerificationReport",
    "WrongAccount",
    "approval_request",
    "archive_orders",
    "copy_journal",
    "journal_at",
    "read_request",
]


if not TYPE_CHECKING:  # or type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import ``PostgresJournal``, which brings psycopg, when it is first used."""
        if name != "PostgresJournal":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            globals()[name] = postgres_journal()
        except ModuleNotFoundError:
            return NoPostgresJournal
        name_publicly(globals())
        return globals()[name]


name_publicly(globals())

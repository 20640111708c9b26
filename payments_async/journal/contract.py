"""The contract of a journal, for whoever writes one or tests one: what it promises, and the records it is told by.

The rules any journal is measured by (tests/journal/test_contract_outbox.py and test_contract_inbox.py):

* What a method returned is on disk. What raised did not happen, unless the disk itself failed on the way: then it may
  have, and the safe reading of both is that nothing was granted and nothing is sent.
* ``permit`` grants only what is committed, to the holder of a lease that is good by the database's clock, for an order
  that is planned. An order becomes ``sending`` in no other way.
* An expired lease never makes an order planned. Who claims the chunk next raises its token and makes what was
  ``sending`` unknown, in one transaction.
* Outcomes and evidence are taken from anybody, whatever token they hold. ``next_state`` decides, nothing else does.
* Evidence counts only if request id, magnitude and currency agree with the order. What contradicts is kept as a
  conflict, and never overwrites. An order that was never sent is parked by what contradicts that, and not settled by
  a notification: whether it was forged or somebody else paid, a person decides. While a chunk is in quarantine, what
  the service's lists show of its orders contradicts nothing: a restored journal expects to be told.
* Cancelling a caller never loses what it reported, and never leaves behind a permit that somebody could still use.
"""

from __future__ import annotations

from payments_async._values.public import name_publicly
from payments_async.journal._approvals import is_one_person, why_not_approved
from payments_async.journal._changes import OrderEvent, Subscription
from payments_async.journal._inbox import (
    Arrival,
    Backlog,
    Doubt,
    Heard,
    RawNotification,
    Receipt,
    StoredEvent,
)
from payments_async.journal._records import (
    Awaited,
    Chunk,
    Chunks,
    ClaimedOrder,
    Evidence,
    HeldUp,
    ListingWord,
    Loaded,
    NotPermitted,
    OldOrder,
    OpenOrder,
    Outcome,
    Pause,
    Permit,
    Placed,
    RateSlots,
    SharedRate,
    Staged,
    TransitionResult,
    Waiting,
)
from payments_async.journal._states import EVIDENCE, RULES, SAID, Transition, next_state

__all__ = [
    "Arrival",
    "Awaited",
    "Backlog",
    "CRASH_POINTS",
    "Chunk",
    "Chunks",
    "ClaimedOrder",
    "Doubt",
    "EVIDENCE",
    "Evidence",
    "Heard",
    "HeldUp",
    "ListingWord",
    "Loaded",
    "NotPermitted",
    "OldOrder",
    "OpenOrder",
    "OrderEvent",
    "Outcome",
    "Pause",
    "Permit",
    "Placed",
    "RULES",
    "RateSlots",
    "RawNotification",
    "Receipt",
    "SAID",
    "SharedRate",
    "Staged",
    "StoredEvent",
    "Subscription",
    "Transition",
    "TransitionResult",
    "Waiting",
    "is_one_person",
    "next_state",
    "why_not_approved",
]

_OPERATIONS = (
    "open_outbox", "put", "take", "discard_staged", "note_observed", "pause", "resume", "begin_day",
    "open_run", "load", "adopt", "load_block", "load_drop", "load_complete",
    "propose", "approve", "approve_signed", "register_approver", "withdraw_approver",
    "withdraw_approval", "withdraw_proposal", "require_approvals", "note_particulars",
    "claim_chunk", "renew_chunk", "release_chunk", "expire_chunks", "permit", "withdraw", "record",
    "apply_evidence", "park", "send_again", "cancel", "acknowledge", "lift_quarantine",
    "begin_list_scan", "end_list_scan", "give_listing_deadline", "withdraw_listing_deadline",
    "receive", "confirm", "claim", "release", "note_done", "finish", "retry_later", "revive", "prune", "check_writable",
    "hear", "claim_changes", "release_changes", "note_change_done", "finish_changes", "retry_change", "revive_changes",
    "prune_changes", "forget_changes", "take_duty", "leave_duty", "begin_archive", "prune_orders", "end_archive",
    "retire", "request_rate", "withdraw_rate", "reserve_turns", "cool_down",
)  # fmt: skip
_WITHIN = (
    "claim_chunk.token_raised",
    "load_complete.events_applied",
    "permit.after_recorded",
    "put.permitted",
    "receive.stored",
)

# An operation has begun, and nothing of it is written; all of it is written, and nothing committed. The same of the
# commit: everything in it is written; it is on disk, and nobody has been told.
CRASH_POINTS: tuple[str, ...] = (
    *(f"{name}.{step}" for name in _OPERATIONS for step in ("begun", "written")),
    *_WITHIN,
    "commit.begun",
    "commit.done",
)

name_publicly(globals())

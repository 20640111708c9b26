"""The names of every point between two steps of the journal, for tests that kill a process there. Kills nobody."""

from __future__ import annotations

__all__ = ["CRASH_POINTS"]

_OPERATIONS = (
    "open_run", "load", "adopt", "load_block", "load_drop", "load_complete",
    "claim_chunk", "renew_chunk", "release_chunk", "expire_chunks", "permit", "withdraw", "record",
    "apply_evidence", "park", "write_off", "acknowledge", "lift_quarantine", "begin_sweep", "end_sweep",
    "receive", "confirm", "claim", "release", "note_done", "finish", "retry_later", "revive", "prune", "touch",
)  # fmt: skip
_WITHIN = ("claim_chunk.token_raised", "load_complete.events_applied", "permit.after_recorded", "receive.stored")

# An operation has begun, and nothing of it is written; all of it is written, and nothing committed. The same of the
# commit: everything in it is written; it is on disk, and nobody has been told.
CRASH_POINTS: tuple[str, ...] = (
    *(f"{name}.{step}" for name in _OPERATIONS for step in ("begun", "written")),
    *_WITHIN,
    "commit.begun",
    "commit.done",
)

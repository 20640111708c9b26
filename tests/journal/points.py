"""The named points at which tests kill and stop a process, and which of them a journal in a file has."""

from payments_async.journal.contract import CRASH_POINTS

OF_A_DATABASE = ("take", "discard_staged")  # operations that there are in no file
AT_THE_END = ("retire",)  # after which a journal does nothing more: struck in test_copying
# A kill where an operation begins leaves what a kill after its writing leaves: neither is committed. So of the two only
# the latter is struck.
STRUCK = tuple(point for point in CRASH_POINTS if not point.endswith(".begun") or point == "commit.begun")
# In a database a commit leaves in one exchange: a kill before it leaves nothing, whatever operation has written. So
# only one of each way is struck there: an order taken from the tray, a block of a batch, a claim, a permit, a put.
# `simulation/test_strikes.py` strikes a life in a file at any of them.
BY_THE_SYSTEM = (
    *("take.written", "load_block.written", "claim_chunk.token_raised", "permit.written", "permit.after_recorded"),
    *("put.permitted", "commit.begun", "commit.done"),
)
IN_A_FILE = tuple(point for point in STRUCK if point.partition(".")[0] not in (*AT_THE_END, *OF_A_DATABASE))

"""The named points at which tests kill and stop a process, and which of them a journal in a file has."""

from payments_async.journal.contract import CRASH_POINTS

OF_A_DATABASE = ("take", "discard_staged")  # operations that there are in no file
AT_THE_END = ("retire",)  # after which a journal does nothing more: struck in test_copying
# A kill where an operation begins leaves what a kill after its writing leaves: neither is committed. So of the two only
# the latter is struck.
STRUCK = tuple(point for point in CRASH_POINTS if not point.endswith(".begun") or point == "commit.begun")
IN_A_DATABASE = tuple(point for point in STRUCK if point.partition(".")[0] not in AT_THE_END)
# In a database a commit leaves in one exchange: a kill before it leaves nothing, whatever operation has written. So
# few operations are struck there. `simulation/test_strikes.py` strikes a life in a file at any of them.
BY_THE_SYSTEM = tuple(
    point
    for point in IN_A_DATABASE
    if not point.endswith(".written")
    or point.partition(".")[0] in (*OF_A_DATABASE, "load_block", "permit", "record", "prune_orders")
)
IN_A_FILE = tuple(point for point in IN_A_DATABASE if point.partition(".")[0] not in OF_A_DATABASE)

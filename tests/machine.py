"""What the machine has for tests: processors, and memory for their files, where an fsync costs nothing."""

import os
import tempfile

PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
HAS_MANY = PROCESSORS >= 4  # else the longest tests would take half an hour
_PLACE = "/dev/shm"
_ENOUGH = 4 << 30  # bytes; all tests at once hold less than a third of that


def keep_files_in_memory() -> None:
    """Let every temporary folder be made there, by this process and those that it starts; ``TMPDIR`` says otherwise."""
    if "TMPDIR" in os.environ or not os.access(_PLACE, os.W_OK):
        return
    room = os.statvfs(_PLACE)
    if not room.f_flag & os.ST_NOEXEC and room.f_bavail * room.f_frsize > _ENOUGH:
        os.environ["TMPDIR"] = _PLACE
        tempfile.tempdir = None  # it is asked for again

"""The files of tests in the memory of the machine, where there is room: an fsync costs nothing there."""

import os
import tempfile

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

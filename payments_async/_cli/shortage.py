"""What the machine lacks: descriptors, memory, room on a disk; told of any error, with what a person can do about it.

Every command may be given again: what it wrote down counts, and what may have left is not sent again.
"""

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

FEWEST = 40  # files at once: a run with one connection takes 28, of which a workbook takes six for a moment
_MOST = 65_536  # of files; some systems allow so many that a table of them takes memory
_PATIENCE = 60.0  # seconds in which what is under way may end, once memory was too little
_AGAIN = "then give the same command again"
_FILES = "this program may open {} files at once"
_RAISE = f"raise that limit (ulimit -n), {_AGAIN}"
_MEMORY = f"the system gives this program too little memory, or no further thread: raise its limits, {_AGAIN}"
_REMEDIES = {
    errno.ENFILE: f"this machine may open no more files: end other programs, {_AGAIN}",
    errno.ENOMEM: _MEMORY,
    errno.ENOSPC: f"the disk is full: free some room, {_AGAIN}",
    errno.EDQUOT: f"the disk quota of this user is used up: free some room, {_AGAIN}",
    errno.EFBIG: f"a file may not grow any further: raise its limit (ulimit -f), {_AGAIN}",
}
# What Python makes of such a number where a library cannot be loaded, or a thread begun.
_WORDS = {
    "Too many open files": errno.EMFILE,
    "failed to map segment": errno.ENOMEM,
    "annot allocate memory": errno.ENOMEM,
    "can't start new thread": errno.ENOMEM,
}


def remedy_of_shortage(error: BaseException) -> str | None:
    """What to do about what the machine lacks, where that is why; ``None`` where it is not."""
    for one in _chain(error):
        number = errno.ENOMEM if isinstance(one, MemoryError) else getattr(one, "errno", None)
        if number is None and isinstance(one, ImportError | RuntimeError):
            number = next((number for words, number in _WORDS.items() if words in str(one)), None)
        if number == errno.EMFILE:
            return f"{_FILES.format(_limit_of_files())}: {_RAISE}"
        if number in _REMEDIES:
            return _REMEDIES[number]
    return None


def end_once_memory_lacks(end: Callable[[Exception], int]) -> None:
    """End this process some time after its event loop has lost a callback for want of memory, unless it ends before.

    What waited for that callback is never woken, and cannot be cancelled. Else the command would wait for ever.

    Args:
        end: Says so, and gives the exit status.
    """
    is_told = False

    def give_up(error: Exception) -> None:
        status = end(error)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(status)

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal is_told
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, Exception) and not is_told and any(isinstance(one, MemoryError) for one in _chain(error)):
            loop.call_later(_PATIENCE, give_up, error)
            is_told = True

    asyncio.get_running_loop().set_exception_handler(note)


def words_of_shortage(error: BaseException) -> str:
    """What failed, with which file, in words."""
    if isinstance(error, OSError) and error.strerror:
        return ": ".join(filter(None, (error.filename and str(error.filename), error.strerror)))
    return str(error) or "no memory is left"


def raise_limit_of_files() -> str | None:
    """Let this process open as many files as it may; why it cannot begin where these are too few.

    Each payout under way has a connection, which is such a file. Many systems let a process have 1,024 or 256 of them
    until it asks for more.
    """
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
        if resource.RLIM_INFINITY != soft < most:
            with suppress(ValueError, OSError):  # some systems take less than what they call the limit
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if (limit := _limit_of_files()) < FEWEST:
        return (
            f"this program may open {limit} files at once, and needs {FEWEST}: raise that limit (ulimit -n), {_AGAIN}"
        )
    return None


def places_for_connections() -> int:
    """How many connections there may be at once, beside the files that a command needs."""
    return max(1, _limit_of_files() - FEWEST)


def _limit_of_files() -> int:
    if sys.platform == "win32":
        return _MOST
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and all that it was raised from or while."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop(0)
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [*getattr(one, "exceptions", ()), *filter(None, (one.__cause__, one.__context__))]

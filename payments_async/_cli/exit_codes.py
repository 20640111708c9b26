"""Exit codes: what a script that called us has to know. It imports nothing of the package: a help waits for it."""

import enum


class Exit(enum.IntEnum):
    """Exit status of every command. 1 is left to errors of the program itself."""

    FINE = 0
    BAD_INPUT = 2
    FAILED = 3
    UNKNOWN = 4
    STOPPED = 5
    UNTOLD = 6


EXIT_CODES = (
    "Exit status: 0 fine; 2 bad input: an option, a setting or a file; 3 rejected, failed or not carried out; "
    "4 the outcome is unknown: look it up, never send it again; 5 stopped, or credentials refused; 6 fine, but "
    "standard output could not be written: the rest of it is on standard error."
)
BULK_EXIT_CODES = (
    "Exit status: 0 nothing rejected, failed, reversed, unknown, parked, in conflict or in quarantine; 2 bad input; "
    "3 some rejected, failed or reversed; 4 some unknown, parked, in conflict or in quarantine; 5 stopped: by the "
    "fuse, by a signal, by refused credentials, by a journal that cannot be written, or by a no. The highest counts."
)
OUTBOX_EXIT_CODES = (
    "Exit status: 0 fine: `run` was stopped and has finished what was under way; 2 bad input; 4 (`status`) some "
    "unknown, parked, in conflict or in quarantine, or failed handlers; 5 (`status`) paused; stopped by a journal "
    "that cannot be written, broken off, or by a no."
)


class Declined(Exception):
    """A person at the terminal said no. The message says what was not done."""

    status = Exit.STOPPED


class BadInput(Exception):
    """Something the caller gave us is wrong. The message names it and the remedy."""

    status = Exit.BAD_INPUT

"""Exit codes: what a script that called us has to know."""

import enum

from payments_async import AuthenticationFailed, NotSent, OutcomeUnknown, PaymentsError, ServiceFault


class Exit(enum.IntEnum):
    """Exit status of every command. 1 is left to errors of the program itself."""

    FINE = 0
    BAD_INPUT = 2
    FAILED = 3
    UNKNOWN = 4
    STOPPED = 5


EXIT_CODES = (
    "Exit status: 0 fine; 2 bad input: an option, a setting or a file; 3 rejected, failed or not carried out; "
    "4 the outcome is unknown: look it up, never send it again; 5 stopped, or credentials refused."
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


class BadInput(Exception):
    """Something the caller gave us is wrong. The message names it and the remedy."""


def remedy_of(error: PaymentsError) -> str:
    """What to do about an error, told in settings a person can change."""
    if isinstance(error, AuthenticationFailed) and error.status == 404:
        return "check the path in PAYMENTS_BASE_URL (--base-url): the service is not there"
    if isinstance(error, AuthenticationFailed):
        return (
            "check PAYMENTS_APP_KEY, PAYMENTS_APP_PASSWORD and PAYMENTS_USER_ID, that this machine's address is "
            "whitelisted in the portal, and try --authorization auto"
        )
    if isinstance(error, NotSent | ServiceFault) and error.status is None:
        return f"{error.next_step}; if it stays, check PAYMENTS_BASE_URL (--base-url) with `payments-async doctor`"
    return error.next_step


def exit_of(error: PaymentsError) -> Exit:
    """The exit status of an error the service or the way to it gave us."""
    match error:
        case AuthenticationFailed(status=404):
            return Exit.BAD_INPUT
        case AuthenticationFailed():
            return Exit.STOPPED
        case OutcomeUnknown():
            return Exit.UNKNOWN
        case _:
            return Exit.FAILED

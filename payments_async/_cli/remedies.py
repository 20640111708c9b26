"""Errors of the package on the command line: what a person can do about one, and the exit status it deserves."""

import os
import socket

from payments_async import AuthenticationFailed, NotSent, OutcomeUnknown, PaymentsError, ServiceFault
from payments_async._cli.exit_codes import Exit
from payments_async._cli.shortage import remedy_of_shortage


def remedy_of(error: PaymentsError) -> str:
    """What to do about an error, told in settings a person can change."""
    if not isinstance(error, OutcomeUnknown) and (remedy := remedy_of_shortage(error)):
        return remedy
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


def reason_of(error: BaseException) -> str:
    """Why the operating system, the network or a file says no, in words and without a name of Python's."""
    match error:
        case TimeoutError():
            return "no answer in time"
        case socket.gaierror():
            return "there is no such host"
        case UnicodeError():
            return "it is not text"
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
        case _:
            return str(error) or "no reason was given"


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

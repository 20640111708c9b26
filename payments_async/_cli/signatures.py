"""Who sits at this machine, for what a person answers for."""

import getpass
import os
import platform

from payments_async._cli.exit_codes import BadInput
from payments_async.journal import Signature


def signature(who: str) -> Signature:
    """The signature of a person at this machine, under the login of this process.

    Raises:
        BadInput: It has no name.
    """
    try:
        return Signature(who=who.strip(), login=_login(), machine=platform.node())
    except ValueError as error:
        raise BadInput("--who: your name; it is kept") from error


def _login() -> str:
    """Whose process this is, as the system says: not as the environment does, which anybody may set."""
    try:
        import pwd
    except ModuleNotFoundError:  # not on Windows
        return getpass.getuser()
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container whose user has no name
        return f"user {number}"

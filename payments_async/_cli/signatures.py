"""Who sits at this machine, for what a person answers for."""

import os
import platform
import sys

from payments_async._cli.exit_codes import BadInput
from payments_async.journal import Signature


def signature(who: str) -> Signature:
    """The signature of a person at this machine, under the login of this process.

    Raises:
        BadInput: It has no name.
    """
    try:
        return Signature(who=who.strip(), login=login(), machine=platform.node())
    except ValueError as error:
        raise BadInput("--who: your name; it is kept") from error


def login() -> str:
    """Whose process this is, as the system has it: anybody can write another name into the environment."""
    if sys.platform == "win32":
        return os.getlogin()
    from pwd import getpwuid  # type: ignore[attr-defined,unreachable,unused-ignore]  # to who checks for Windows

    user = os.getuid()
    try:
        return getpwuid(user).pw_name
    except KeyError:  # a container whose user has no name
        return str(user)

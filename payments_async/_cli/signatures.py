"""Who sits at this machine, for what a person answers for."""

import getpass
import platform

from payments_async._cli.exit_codes import BadInput
from payments_async.journal import Signature


def signature(who: str) -> Signature:
    """The signature of a person at this machine, under the login of this process.

    Raises:
        BadInput: It has no name.
    """
    try:
        login = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        login = ""
    try:
        return Signature(who=who.strip(), login=login, machine=platform.node())
    except ValueError as error:
        raise BadInput("--who: your name; it is kept") from error

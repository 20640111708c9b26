"""How the service says no. Knows nothing of the envelope it is written in."""

import enum
from collections.abc import Mapping


class Code(enum.IntEnum):
    """The `code` of a refusal. The numbers are the sandbox's own.

    # Spec: "The set of error code values and the body shape of error responses: not shown."
    """

    UNAUTHORISED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    WRONG_METHOD = 405
    TOO_MANY = 429
    FAILURE = 500
    UNREADABLE = 1001
    MISSING = 1002
    WRONG_VALUE = 1003
    UNKNOWN_ITEM = 1004
    REPEATED = 1005
    BALANCE = 1006


class Refusal(Exception):
    """The service says no, and why."""

    def __init__(self, status: int, code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}

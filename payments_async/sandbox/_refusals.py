"""How the service says no, and the texts that it asks of a body."""

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


def required_text(body: Mapping[str, object], name: str, path: str | None = None) -> str:
    """Return a string that must be there and not be blank; `path` is its name in the message."""
    text = optional_text(body, name, path)
    if not text.strip():
        raise Refusal(400, Code.MISSING, f"{path or name} is required")
    return text


def optional_text(body: Mapping[str, object], name: str, path: str | None = None) -> str:
    """Return a string, or "" where it is absent or null."""
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refusal(400, Code.WRONG_VALUE, f"{path or name} must be a string")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Refusal(400, Code.WRONG_VALUE, f"{path or name} is not well-formed text")
    return value

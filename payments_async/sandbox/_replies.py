"""What the sandbox answers, and the envelopes it is written in. Knows nothing of aiohttp."""

from collections.abc import Mapping
from typing import Literal

import attrs

from . import _json
from ._notices import Notice
from ._refusals import Refusal

Envelope = Literal["code", "login", "card"]


@attrs.frozen(kw_only=True)
class Reply:
    """One answer, not yet sent.

    Attributes:
        notify_first: A notification that must have been answered before this reply leaves.
    """

    status: int = 200
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = attrs.field(factory=dict)
    notify_first: Notice | None = None


def json_reply(payload: object, *, status: int = 200, notify_first: Notice | None = None) -> Reply:
    """Write a payload as it is."""
    return Reply(status=status, body=_json.write(payload).encode(), notify_first=notify_first)


def page_reply(status: int) -> Reply:
    """Answer as a proxy in front of the service would: with a page for people."""
    page = b"<!DOCTYPE html><html><head><title>Service</title></head><body><h1>Please try again</h1></body></html>"
    return Reply(status=status, body=page, content_type="text/html")


def refused(refusal: Refusal, envelope: Envelope) -> Reply:
    """Write a refusal in the envelope of the endpoint that was called."""
    message = refusal.message
    payload: dict[str, object]
    match envelope:
        case "login":  # Spec: "success (boolean), message (string)"
            payload = {"Token": None, "refreshToken": None, "success": False, "message": message}
        case "card":  # Spec: "Card endpoints use a different envelope: `success` (number, ...) and `data`."
            payload = {"success": 0, "message": message, "data": None}
        case "code":
            payload = {"code": int(refusal.code), "status": "failed", "message": message, "data": None}
    return attrs.evolve(json_reply(payload, status=refusal.status), headers=refusal.headers)

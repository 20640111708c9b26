"""Who is let in: addresses, credentials, tokens."""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta

from ._clock import Clock
from ._quirks import Settings
from ._refusals import Code, Refusal, required_text

APP_KEY = "demo-app-key"
APP_PASSWORD = "demo-app-password"
USER_ID = "demo-user"


class Access:
    """The door of the service.

    # Spec: "The token is valid for 60 minutes"
    # Spec: "A request without authentication fails with HTTP 401 Unauthorized."

    Attributes:
        logins: How often somebody logged in.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._issued = 0
        self._expiry: dict[str, datetime] = {}
        self._refresh_tokens: set[str] = set()
        self.logins = 0

    def reset(self) -> None:
        """Forget every token and every login."""
        self.revoke()
        self.logins = 0

    def revoke(self) -> None:
        """Make every token issued so far invalid."""
        self._expiry.clear()
        self._refresh_tokens.clear()

    def admit(self, peer: str | None) -> None:
        """Let a call from this address in. # Spec: "The application's IP address must be whitelisted".

        Raises:
            Refusal: The address is not whitelisted; login is refused like everything else.
        """
        if self._settings.allowed_peers is not None and peer not in self._settings.allowed_peers:
            raise Refusal(403, Code.FORBIDDEN, "This address is not whitelisted")

    def authorise(self, header: str | None) -> None:
        """Let a call with this Authorization header in.

        Raises:
            Refusal: There is none, its scheme is not accepted, or its token is unknown or too old.
        """
        scheme, _, token = (header or "").partition(" ")
        expiry = self._expiry.get(token)
        if scheme not in self._settings.quirks.accepted_schemes or expiry is None or expiry <= self._clock.now():
            raise Refusal(401, Code.UNAUTHORISED, "Unauthorized", {"WWW-Authenticate": "Token"})

    def login(self, body: Mapping[str, object]) -> dict[str, object]:
        """Exchange credentials for a token.

        Raises:
            Refusal: A member is missing (400), or the credentials are wrong (401).
        """
        given = tuple(required_text(body, name) for name in ("appKey", "appPassword", "userId"))
        # Spec: "Spelled exactly so; true requests a refresh token." Nothing says that it is required.
        wants_refresh = body.get("includeRefereshToken", False)
        if not isinstance(wants_refresh, bool):
            raise Refusal(400, Code.MISSING, "includeRefereshToken must be a boolean")
        if given != (APP_KEY, APP_PASSWORD, USER_ID):
            raise Refusal(401, Code.UNAUTHORISED, "The application key, its password or the user is wrong")
        self.logins += 1
        return self._grant(wants_refresh)

    def refresh(self, body: Mapping[str, object]) -> dict[str, object]:
        """Exchange a refresh token, once, for a token.

        Raises:
            Refusal: The refresh token is missing (400) or unknown (401).
        """
        used = required_text(body, "refreshToken")
        if used not in self._refresh_tokens:
            raise Refusal(401, Code.UNAUTHORISED, "The refresh token is unknown")
        self._refresh_tokens.discard(used)
        return self._grant(wants_refresh=True)

    def _grant(self, wants_refresh: bool) -> dict[str, object]:
        now = self._clock.now()
        self._expiry = {token: expiry for token, expiry in self._expiry.items() if expiry > now}
        token = self._token("token")
        self._expiry[token] = now + timedelta(seconds=self._settings.token_lifetime)
        tokens: dict[str, object] = {"Token" if self._settings.quirks.token_key == "Token" else "token": token}
        if wants_refresh:
            refresh_token = self._token("refresh")
            self._refresh_tokens.add(refresh_token)
            tokens["refreshToken"] = refresh_token
        answer: dict[str, object] = {"data": tokens} if self._settings.quirks.token_key == "data.token" else tokens
        return {**answer, "success": True, "message": "Login was successful"}

    def _token(self, purpose: str) -> str:
        self._issued += 1
        digest = hashlib.blake2b(f"{self._settings.seed}:{purpose}:{self._issued}".encode(), digest_size=12).hexdigest()
        return f"demo-{purpose}-{self._issued}-{digest}"

"""The login as a call: made once when it is asked for, and told without our secrets when it fails."""

from __future__ import annotations

import logging

from payments_async._auth import Credentials
from payments_async._dialect import Dialect
from payments_async._errors import AuthenticationFailed, PaymentsError, Rejected, ServiceFault, UnreadableReply
from payments_async._transport import Outgoing, Transport, TransportFailure, make_headers
from payments_async._wire import endpoints
from payments_async._wire.call import Call
from payments_async._wire.readers import Login
from payments_async._wire.replies import read_reply

__all__ = ["LoginCalls"]

_log = logging.getLogger("payments_async")


class LoginCalls:
    """Logs in with the credentials of one session, or with a refresh token. Keeps neither."""

    def __init__(self, transport: Transport, credentials: Credentials, dialect: Dialect) -> None:
        self._transport = transport
        self._credentials = credentials
        self._dialect = dialect

    async def log_in(self) -> Login:
        """Log in.

        Raises:
            AuthenticationFailed: The service refused.
            ServiceFault: It could not be reached or read.
        """
        own = self._credentials
        _log.debug("logging in")
        call = endpoints.log_in(own.app_key, own.app_password, own.user_id, self._dialect)
        return await self._make(call, (own.app_key, own.app_password, own.user_id))

    async def refresh(self, refresh_token: str) -> Login:
        """Renew by a refresh token. Raises as ``log_in``."""
        call = endpoints.refresh(refresh_token, self._dialect.refresh_path or "", self._dialect)
        return await self._make(call, (refresh_token,))

    async def _make(self, call: Call[Login], secrets: tuple[str, ...]) -> Login:
        try:
            reply = await self._transport.exchange(call, Outgoing(call.body or b""), make_headers(None))
        except TransportFailure as failure:
            raise ServiceFault(f"the login failed: {failure}") from failure
        try:
            return read_reply(call, reply, self._dialect)
        except PaymentsError as error:
            problem = _problem(error, secrets)
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over
            problem = UnreadableReply(f"the login could not be read ({type(error).__name__})", status=reply.status)
        raise problem  # here, so that words with our secrets in them do not hang on as its context


def _problem(error: PaymentsError, secrets: tuple[str, ...]) -> PaymentsError:
    kind: type[PaymentsError] = AuthenticationFailed if isinstance(error, Rejected) else type(error)
    words = error.message
    for secret in secrets:
        words = words.replace(secret, "***")
    if error.status in (404, 405):
        words += "; check the base address and Dialect.api_prefix"
    return kind(
        f"the login {'was refused' if kind is AuthenticationFailed else 'failed'}: {words}",
        status=error.status,
        code=error.code,
        correlation_id=error.correlation_id,
        retry_after=error.retry_after,
    )

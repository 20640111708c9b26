"""The login as a call: made once when it is asked for, and told without our secrets when it fails."""

from __future__ import annotations

import logging

from payments_async._auth import Credentials
from payments_async._dialect import Dialect
from payments_async._errors import AuthenticationFailed, PaymentsError, Rejected, ServiceFault, UnreadableReply
from payments_async._masking import Secret, Secrets
from payments_async._transport import Outgoing, Transport, TransportFailure, make_headers
from payments_async._wire import endpoints
from payments_async._wire.call import Call
from payments_async._wire.replies import Login, read_reply

__all__ = ["LoginCalls"]

_log = logging.getLogger("payments_async")


class LoginCalls:
    """Logs in with the credentials of one session, or with a refresh token. Keeps neither."""

    def __init__(self, transport: Transport, credentials: Credentials, dialect: Dialect, secrets: Secrets) -> None:
        self._transport = transport
        self._credentials = credentials
        self._dialect = dialect
        self._secrets = secrets

    async def log_in(self) -> Login:
        """Log in.

        Raises:
            AuthenticationFailed: The service refused.
            ServiceFault: It could not be reached or read.
        """
        own = self._credentials
        _log.debug("logging in")
        return await self._make(endpoints.log_in(own.app_key, own.app_password, own.user_id, self._dialect))

    async def refresh(self, refresh_token: Secret) -> Login:
        """Renew by a refresh token. Raises as ``log_in``."""
        return await self._make(endpoints.refresh(refresh_token, self._dialect.refresh_path or "", self._dialect))

    async def _make(self, call: Call[Login]) -> Login:
        try:
            reply = await self._transport.exchange(call, Outgoing(call.body or b""), make_headers(None))
        except TransportFailure as failure:
            raise ServiceFault(f"the login failed: {failure}") from failure
        try:
            return read_reply(call, reply, self._dialect, self._secrets)
        except PaymentsError as error:
            problem = _problem(error)
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over
            problem = UnreadableReply(f"the login could not be read ({type(error).__name__})", status=reply.status)
        raise problem  # here, so that words with our secrets in them do not hang on as its context


def _problem(error: PaymentsError) -> PaymentsError:
    kind: type[PaymentsError] = AuthenticationFailed if isinstance(error, Rejected) else type(error)
    words = error.message
    if error.status in (404, 405):
        words += "; check the base address and Dialect.api_prefix"
    return kind(
        f"the login {'was refused' if kind is AuthenticationFailed else 'failed'}: {words}",
        status=error.status,
        code=error.code,
        correlation_id=error.correlation_id,
        retry_after=error.retry_after,
    )

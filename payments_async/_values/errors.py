"""Every error of the package. What the caller does next decides the class.

::

    PaymentsError
      NotSent                 surely not carried out: send it again
      OutcomeUnknown          it may have been carried out: reconcile, never resend
      Rejected                the service said no, in its own words
        AuthenticationFailed  ... to our credentials or our address
      InvalidOrder            the order is wrong, and was not sent; also a ValueError
      ServiceFault            a read failed on the other side: ask again later
        UnreadableReply       ... or came back in an undocumented shape
      LocalFault              a long list has no room on this machine: free some, then do the same again
    IncompleteListing         (a warning) a listing ended with rows missing
    SeveralTransactions       (a warning) one order has several transactions

A call that moves money raises the first three branches and nothing else (besides ``asyncio.CancelledError``, and
``ValueError`` or ``TypeError`` for a wrong order before anything is sent).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from payments_async._values.masking import escape

_FIELDS = ("request_id", "status", "code", "correlation_id", "transaction_id", "retry_after")


class PaymentsError(Exception):
    """Anything that went wrong with one call to the service.

    Attributes:
        message: What happened, in the service's words where it had any. Personal data is masked, and control
            characters are escaped.
        request_id: Of the order concerned, or ``None``.
        status: The HTTP status of the answer, or ``None`` when there was none.
        code: The envelope's error code, or ``None``.
        correlation_id: The service's own reference for the exchange, or ``None``.
        transaction_id: The transaction the answer named, or ``None``.
        retry_after: Seconds the service asked to wait, or ``None``.
        next_step: What the caller can do about it.
    """

    next_step: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        request_id: str | None = None,
        status: int | None = None,
        code: int | None = None,
        correlation_id: str | None = None,
        transaction_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        message = escape(message)
        super().__init__(message)
        self.message = message
        self.request_id = request_id
        self.status = status
        self.code = code
        self.correlation_id = correlation_id
        self.transaction_id = transaction_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        facts = {
            "request": self.request_id,
            "HTTP": self.status,
            "code": self.code,
            "transaction": self.transaction_id,
            "correlation": self.correlation_id,
        }
        shown = ", ".join(f"{name} {escape(str(value))}" for name, value in facts.items() if value is not None)
        text = f"{self.message} [{shown}]" if shown else self.message
        return f"{text} -> {self.next_step}" if self.next_step else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, {name: getattr(self, name) for name in _FIELDS})


def again(error: PaymentsError) -> PaymentsError:
    """The same error once more, for somebody else to raise: a shared one would collect everybody's traceback."""
    make, arguments = error.__reduce__()
    copy: PaymentsError = make(*arguments)
    return copy


def _rebuild(kind: type[PaymentsError], message: str, fields: dict[str, Any]) -> PaymentsError:
    return kind(message, **fields)


class NotSent(PaymentsError):
    """The order was surely not carried out: nothing left, or it was turned away unread (as by HTTP 429)."""

    next_step = "it is safe to send it again"


class OutcomeUnknown(PaymentsError):
    """The order may have been carried out. Only evidence settles it: a notification or the transaction list."""

    next_step = "never send it again: look it up (transactions.find) or wait for its notification"


class Rejected(PaymentsError):
    """The service refused the call, in its own words."""

    next_step = "correct what the service names"


class AuthenticationFailed(Rejected):
    """The service refused our credentials or our address."""

    next_step = "check app_key, app_password and user_id, and that this machine's address is whitelisted in the portal"


class InvalidOrder(PaymentsError, ValueError):
    """The order cannot be sent as it is, and was not: its request id names another order, or it is not an order."""

    next_step = "correct the order: a request id names one payment, for ever"


class ServiceFault(PaymentsError):
    """A read failed on the other side or on the way, after the retries the policy allows."""

    next_step = "ask again later"


class UnreadableReply(ServiceFault):
    """A read was answered in an undocumented shape."""

    next_step = "ask again later; if it stays, compare the answer with the Dialect"


class LocalFault(PaymentsError):
    """What a long list shows has no room on this machine: a temporary file cannot be written or read.

    Nothing is concluded from such a list.
    """

    next_step = "free some room where temporary files are kept (TMPDIR), then do the same again"


class SeveralTransactions(UserWarning):
    """The service shows more than one transaction of one order: it may have been paid more than once.

    Attributes:
        request_id: Of the order.
        transaction_ids: All that the list showed.
    """

    def __init__(self, request_id: str, transaction_ids: Sequence[str]) -> None:
        super().__init__(
            f"{len(transaction_ids)} transactions carry the request id {request_id}: {', '.join(transaction_ids)}"
        )
        self.request_id = request_id
        self.transaction_ids: tuple[str, ...] = tuple(transaction_ids)


class IncompleteListing(UserWarning):
    """A listing ended with fewer rows than the service counted, so absence from it proves nothing.

    Attributes:
        expected: Rows the service said there are.
        seen: Different rows that were received.
    """

    def __init__(self, expected: int, seen: int) -> None:
        super().__init__(
            f"the service counted {expected} rows but showed {seen}; absence from this listing is not proof"
        )
        self.expected = expected
        self.seen = seen

"""The status codes of notifications: one row for each that is documented.

A new code is a new row. What it is called elsewhere is named here as text, for the event types, the records' statuses
and the journal's news stand above this module.
"""

from __future__ import annotations

from payments_async._values.frozen import frozen


@frozen(kw_only=True)
class StatusCode:
    """What a notification with this code says.

    Attributes:
        event: Name of the event type that it becomes.
        signal: Value of the journal's ``Signal`` that it is.
        status: Name of the ``TransactionStatus`` that the transaction has with it, if it has one.
        is_final: Whether the order has its outcome with it.
    """

    event: str
    signal: str
    status: str | None = None
    is_final: bool = False


# Spec: "StatusCode | integer | 0 success, 1 processing, 2 error, others possible."
STATUS_CODES = {
    0: StatusCode(event="TransactionSucceeded", signal="notified_successful", status="SUCCESSFUL", is_final=True),
    1: StatusCode(event="TransactionProcessing", signal="notified_processing", status="PROCESSING"),
    2: StatusCode(event="TransactionFailed", signal="notified_failed", status="FAILED", is_final=True),
}
UNRECOGNISED = StatusCode(event="TransactionUnrecognised", signal="notified_unrecognised")  # every other code
FINAL_CODES = tuple(code for code, row in STATUS_CODES.items() if row.is_final)

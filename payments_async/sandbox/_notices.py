"""One notification (IPN) in every documented spelling. Sends nothing."""

from collections.abc import Mapping

import attrs

from ._dates import written
from ._ledger import Execution
from ._quirks import Quirks

# Spec: "StatusCode | integer | 0 success, 1 processing, 2 error, others possible."
SUCCESS, PROCESSING, ERROR = 0, 1, 2
MESSAGES = {
    SUCCESS: "Transaction completed successfully",
    PROCESSING: "Transaction is being processed",
    ERROR: "Transaction failed",
}
_FIELDS = (
    "AccountId", "SubscriptionId", "TransactionId", "BatchId", "RequestId", "StatusMessage", "StatusCode",
    "CorrelationId", "CreatedOn", "Amount", "CurrencyCode",
)  # fmt: skip
_SNAKE = {
    "AccountId": "account_number",
    "SubscriptionId": "subscription_id",
    "TransactionId": "transaction_id",
    "BatchId": "batch_id",
    "RequestId": "client_referenceId",
    "StatusMessage": "status_message",
    "StatusCode": "status_code",
    "CorrelationId": "correlation_id",
    "CreatedOn": "created_on",
    "Amount": "amount",
}


@attrs.frozen(kw_only=True)
class Notice:
    """One notification to deliver.

    Attributes:
        status_code: 0 success, 1 processing, 2 error.
        attempt: Which try this is at this notification, from 1.
        number: Which delivery this is for its transaction, from 1.
        then: The notification that follows once this one was answered or given up.
    """

    execution: Execution
    status_code: int
    attempt: int = 1
    number: int = 1
    then: "Notice | None" = None

    def again(self) -> "Notice":
        """Return the same notification for another try."""
        return attrs.evolve(self, attempt=self.attempt + 1, number=self.number + 1)

    def next(self) -> "Notice | None":
        """Return what follows this notification, numbered on."""
        return None if self.then is None else attrs.evolve(self.then, number=self.number + 1)


@attrs.frozen(kw_only=True)
class Sender:
    """Who sends, as every notification names it."""

    account_number: int
    subscription_id: int
    currency: str


def notification_query(notice: Notice, sender: Sender, quirks: Quirks) -> dict[str, str]:
    """Return the query string. # Spec: "transactionId, subscriptionId, accountId, requestId, Amount (double)"."""
    execution = notice.execution
    if not quirks.ipn_query:
        return {"requestId": execution.request_id} if quirks.ipn_request_id == "query" else {}
    return {
        "transactionId": execution.transaction_id,
        "subscriptionId": str(sender.subscription_id),
        "accountId": str(sender.account_number),
        "requestId": execution.request_id,
        "Amount": f"{execution.amount:f}",
    }


def notification_body(notice: Notice, sender: Sender, quirks: Quirks) -> dict[str, object]:
    """Return the JSON body in the spelling the quirks ask for."""
    execution = notice.execution
    values = (
        _id(sender.account_number, quirks),
        _id(sender.subscription_id, quirks),
        execution.transaction_id,
        execution.batch_id,
        execution.request_id,
        MESSAGES.get(notice.status_code, "Transaction was reversed"),
        notice.status_code,
        correlation_id(execution.transaction_id),
        written(execution.created_on, quirks.ipn_date),
        execution.amount,
        sender.currency,
    )
    members: dict[str, object] = dict(zip(_FIELDS, values, strict=True))
    if quirks.ipn_request_id != "body":
        del members["RequestId"]
    return _spelled(members, execution, quirks)


def correlation_id(transaction_id: str) -> str:
    """Return what ties the answers about one transaction together."""
    return f"corr-{transaction_id}"


def _spelled(members: Mapping[str, object], execution: Execution, quirks: Quirks) -> dict[str, object]:
    body: dict[str, object] = {}
    match quirks.ipn_spelling:
        case "pascal":
            body = dict(members)
        case "camel":
            body = {name[0].lower() + name[1:]: value for name, value in members.items()}
        case "snake":
            body = {_SNAKE[name]: value for name, value in members.items() if name in _SNAKE}
    if quirks.ipn_request_id == "reference" or (quirks.ipn_spelling == "camel" and quirks.ipn_request_id == "body"):
        created_on = written(execution.created_on, "iso")
        body["requestReference"] = {"createdOn": created_on, "requestId": execution.request_id}
    return body


def _id(number: int, quirks: Quirks) -> str | int:
    return str(number) if quirks.ipn_ids == "string" else number

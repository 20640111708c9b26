"""Python asyncio SDK for one payments service: never pay twice, never lose one, always know which."""

from payments_async._auth import Credentials
from payments_async._dialect import Dialect
from payments_async._errors import (
    AuthenticationFailed,
    IncompleteListing,
    InvalidOrder,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    Rejected,
    ServiceFault,
    SeveralTransactions,
    UnreadableReply,
)
from payments_async._limits import Limits
from payments_async._models import (
    Acceptance,
    Account,
    Card,
    Page,
    Product,
    ProductItem,
    Settlement,
    Transaction,
    TransactionStatus,
    Validation,
)
from payments_async._orders import (
    AirtimeLine,
    BankAccount,
    Beneficiary,
    CollectionOrder,
    InternetLine,
    MobileMoneyWallet,
    PayoutOrder,
    UtilityAccount,
)
from payments_async._request_ids import request_id_for
from payments_async._retry import RetryPolicy
from payments_async._session import PaymentsSession
from payments_async._version import __version__

__all__ = [
    "Acceptance",
    "Account",
    "AirtimeLine",
    "AuthenticationFailed",
    "BankAccount",
    "Beneficiary",
    "Card",
    "CollectionOrder",
    "Credentials",
    "Dialect",
    "IncompleteListing",
    "InternetLine",
    "InvalidOrder",
    "Limits",
    "MobileMoneyWallet",
    "NotSent",
    "OutcomeUnknown",
    "Page",
    "PaymentsError",
    "PaymentsSession",
    "PayoutOrder",
    "Product",
    "ProductItem",
    "Rejected",
    "RetryPolicy",
    "ServiceFault",
    "Settlement",
    "SeveralTransactions",
    "Transaction",
    "TransactionStatus",
    "UnreadableReply",
    "UtilityAccount",
    "Validation",
    "__version__",
    "request_id_for",
]

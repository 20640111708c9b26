"""Python asyncio SDK for one payments service: never pay twice, never lose one, always know which."""

from payments_async._auth import Credentials
from payments_async._dialect import Dialect
from payments_async._errors import (
    AuthenticationFailed,
    IncompleteListing,
    InvalidOrder,
    LocalFault,
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
    Transaction,
    TransactionBeneficiary,
    TransactionProduct,
    TransactionStatus,
    Validation,
)
from payments_async._orders import (
    AirtimeLine,
    BankAccount,
    Beneficiary,
    CollectionOrder,
    Destination,
    InternetLine,
    MobileMoneyWallet,
    Order,
    PayoutOrder,
    UtilityAccount,
)
from payments_async._public import name_publicly
from payments_async._request_ids import request_id_for
from payments_async._resources.lists import Listing
from payments_async._resources.namespaces import Accounts, Cards, Collections, Payouts, Products
from payments_async._resources.transactions import Settlement, Transactions
from payments_async._retry import RetryPolicy
from payments_async._session import PaymentsSession
from payments_async._version import __version__

__all__ = [
    "Acceptance",
    "Account",
    "Accounts",
    "AirtimeLine",
    "AuthenticationFailed",
    "BankAccount",
    "Beneficiary",
    "Card",
    "Cards",
    "CollectionOrder",
    "Collections",
    "Credentials",
    "Destination",
    "Dialect",
    "IncompleteListing",
    "InternetLine",
    "InvalidOrder",
    "Limits",
    "Listing",
    "LocalFault",
    "MobileMoneyWallet",
    "NotSent",
    "Order",
    "OutcomeUnknown",
    "Page",
    "PaymentsError",
    "PaymentsSession",
    "PayoutOrder",
    "Payouts",
    "Product",
    "ProductItem",
    "Products",
    "Rejected",
    "RetryPolicy",
    "ServiceFault",
    "Settlement",
    "SeveralTransactions",
    "Transaction",
    "TransactionBeneficiary",
    "TransactionProduct",
    "TransactionStatus",
    "Transactions",
    "UnreadableReply",
    "UtilityAccount",
    "Validation",
    "__version__",
    "request_id_for",
]

name_publicly(globals())

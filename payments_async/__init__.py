"""Python asyncio SDK for one payments service: never pay twice, never lose one, always know which.

What stands here is imported when the first of it is asked for: who needs another public place alone, such as
``payments_async.journal``, does not wait for the HTTP client.
"""

from payments_async._version import __version__

TYPE_CHECKING = False  # true for type checkers; as little as possible is imported before Ctrl-C is heard

if TYPE_CHECKING:
    from payments_async._session.auth import Credentials
    from payments_async._session.exchanges import Exchange, Exchanges
    from payments_async._session.limits import Limits
    from payments_async._session.lists import Listing
    from payments_async._session.namespaces import Accounts, Cards, Collections, Payouts, Products
    from payments_async._session.retry import RetryPolicy
    from payments_async._session.session import PaymentsSession
    from payments_async._session.transactions import Settlement, Transactions
    from payments_async._values.errors import (
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
    from payments_async._values.log_lines import FactsFormatter
    from payments_async._values.request_ids import request_id_for
    from payments_async._wire.dialect import Dialect
    from payments_async._wire.models import (
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
    from payments_async._wire.orders import (
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
    "Exchange",
    "Exchanges",
    "FactsFormatter",
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

# Where they are at home: the modules named above, for Python itself.
_HOMES = (
    "_session.auth",
    "_session.exchanges",
    "_session.limits",
    "_session.lists",
    "_session.namespaces",
    "_session.retry",
    "_session.session",
    "_session.transactions",
    "_values.errors",
    "_values.log_lines",
    "_values.request_ids",
    "_wire.dialect",
    "_wire.models",
    "_wire.orders",
)


if not TYPE_CHECKING:  # or a mistyped name were good for type checkers

    def __getattr__(name: str) -> object:
        """A public name, the first time it is asked for; the others come with it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        from payments_async._values.public import name_publicly

        for home in _HOMES:
            known = vars(import_module(f"{__name__}.{home}"))
            globals().update({one: known[one] for one in __all__ if one in known})
        name_publicly(globals())
        return globals()[name]

    def __dir__() -> list[str]:
        """The public names, those too that nobody has asked for yet."""
        return sorted({*globals(), *__all__})

"""Python asyncio SDK for one payments service: never pay twice, never lose one, always know which.

What stands here is imported when the first of it is asked for: who needs another public place alone, such as
``payments_async.journal``, does not wait for the HTTP client.
"""

from payments_async._version import __version__

TYPE_CHECKING = False  # true for type checkers; as little as possible is imported before Ctrl-C is heard

if TYPE_CHECKING:
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
    from payments_async._exchanges import Exchange, Exchanges
    from payments_async._limits import Limits
    from payments_async._log_lines import FactsFormatter
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
    from payments_async._request_ids import request_id_for
    from payments_async._resources.lists import Listing
    from payments_async._resources.namespaces import Accounts, Cards, Collections, Payouts, Products
    from payments_async._resources.transactions import Settlement, Transactions
    from payments_async._retry import RetryPolicy
    from payments_async._session import PaymentsSession

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
    "_auth",
    "_dialect",
    "_errors",
    "_exchanges",
    "_limits",
    "_log_lines",
    "_models",
    "_orders",
    "_request_ids",
    "_resources.lists",
    "_resources.namespaces",
    "_resources.transactions",
    "_retry",
    "_session",
)


if not TYPE_CHECKING:  # or a mistyped name were good for type checkers

    def __getattr__(name: str) -> object:
        """A public name, the first time it is asked for; the others come with it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        from payments_async._public import name_publicly

        for home in _HOMES:
            known = vars(import_module(f"{__name__}.{home}"))
            globals().update({one: known[one] for one in __all__ if one in known})
        name_publicly(globals())
        return globals()[name]

    def __dir__() -> list[str]:
        """The public names, those too that nobody has asked for yet."""
        return sorted({*globals(), *__all__})

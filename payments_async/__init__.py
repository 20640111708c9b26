"""Python asyncio SDK for one payments service: never pay twice, never lose one, always know which.

A name is imported when it is first used, with those of its module. ``__init__.pyi`` lists them for type checkers and
editors.
"""

from payments_async._version import __version__

__all__ = [
    "Acceptance",
    "Account",
    "Accounts",
    "AirtimeLine",
    "Attempt",
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
    "Entry",
    "Exchange",
    "Exchanges",
    "FactsFormatter",
    "HttpConnection",
    "IncompleteListing",
    "InternetLine",
    "InvalidOrder",
    "Limits",
    "Listing",
    "LocalFault",
    "MobileMoneyWallet",
    "NotSent",
    "Order",
    "Outbox",
    "OutcomeUnknown",
    "Page",
    "Payments",
    "PaymentsError",
    "PaymentsSession",
    "PayoutOrder",
    "Payouts",
    "PostgresJournal",
    "Product",
    "ProductItem",
    "Products",
    "Receiver",
    "Rejected",
    "RetryPolicy",
    "ServiceFault",
    "Settlement",
    "SeveralTransactions",
    "SqliteJournal",
    "State",
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

# The modules of a session: their names are imported together.
_HOMES = (
    "_session.auth",
    "_session.exchanges",
    "_session.limits",
    "_session.lists",
    "_session.session",
    "_session.transactions",
    "_values.errors",
    "_values.log_lines",
    "_values.request_ids",
    "_wire.dialect",
    "_wire.models",
    "_wire.orders",
)
# Names of other rooms, which bring more: each is imported alone.
_ROOMS = {
    "Entry": "journal",
    "Outbox": "outbox",
    "Payments": "_payments",
    "PostgresJournal": "journal",
    "Receiver": "ipn",
    "SqliteJournal": "journal",
    "State": "journal",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from payments_async._values.public import name_publicly

    if (room := _ROOMS.get(name)) is not None:
        globals()[name] = getattr(import_module(f"{__name__}.{room}"), name)
    else:
        for home in _HOMES:
            known = vars(import_module(f"{__name__}.{home}"))
            globals().update({one: known[one] for one in __all__ if one in known})
    name_publicly(globals())
    return globals()[name]


def __dir__() -> list[str]:
    """List the public names, those too that were not used yet."""
    return sorted({*globals(), *__all__})

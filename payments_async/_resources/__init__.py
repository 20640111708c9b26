"""The six namespaces of a session: a line and a docstring for each endpoint."""

from payments_async._resources.accounts import Accounts
from payments_async._resources.cards import Cards
from payments_async._resources.collections import Collections
from payments_async._resources.payouts import Payouts
from payments_async._resources.products import Products
from payments_async._resources.transactions import Transactions

__all__ = ["Accounts", "Cards", "Collections", "Payouts", "Products", "Transactions"]

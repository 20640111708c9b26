"""What an application keeps of its customers, in a database of its own: their balances, and what they withdrew.

Yours is another one. Three things are worth copying. A withdrawal is on disk, and paid for, before it is put into the
outbox. Its row holds all that its order is made of, so that the very same order can be put again. What a handler does
is one commit together with the change's id: a handler is told at least once, not once.
"""

import sqlite3
from dataclasses import asdict, dataclass

from payments_async import Beneficiary, MobileMoneyWallet, PayoutOrder
from payments_async.journal import Entry, State

HEARD = (State.SUCCESSFUL, State.FAILED, State.REJECTED, State.REVERSED, State.PARKED)
GIVEN_BACK = (State.FAILED, State.REJECTED, State.REVERSED)  # nothing arrived, or it came back; parked: nobody knows
MOST = 1_000_000  # of one withdrawal
TABLES = """PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS customer (name TEXT PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0));
CREATE TABLE IF NOT EXISTS withdrawal (id TEXT PRIMARY KEY, customer TEXT NOT NULL, phone_number TEXT NOT NULL,
    amount INTEGER NOT NULL, state TEXT NOT NULL, change_id INTEGER NOT NULL);
INSERT OR IGNORE INTO customer VALUES ('grace', 100000);
"""


class Refused(Exception):
    """The withdrawal was not written down."""


@dataclass(frozen=True, kw_only=True)
class Withdrawal:
    """What a customer asks for. The id comes with it: whoever asks again for the same uses the same."""

    id: str
    customer: str
    phone_number: str
    amount: int

    def __post_init__(self) -> None:
        if type(self.amount) is not int or not 0 < self.amount <= MOST:
            raise ValueError(f"amount: a whole number from 1 to {MOST}")
        self.order()  # what the outbox would refuse is refused before anything is written down

    def order(self) -> PayoutOrder:
        """Made of the row alone, so that it is the same each time."""
        return PayoutOrder(
            request_id=self.id,
            amount=self.amount,
            product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
            beneficiary=Beneficiary(name=self.customer),
            destination=MobileMoneyWallet(self.phone_number),
        )


class Ledger:
    """Customers and withdrawals."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, check_same_thread=False)  # one event loop uses it, in whichever thread
        self._db.executescript(TABLES)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def request(self, wish: Withdrawal) -> None:
        """Write a withdrawal down and take its amount from the balance: both or neither, and once."""
        new = "INSERT INTO withdrawal VALUES (:id, :customer, :phone_number, :amount, 'requested', 0)"
        cover = "UPDATE customer SET balance = balance - :amount WHERE name = :customer AND balance >= :amount"
        with self._db:  # one commit
            if self._did(f"{new} ON CONFLICT DO NOTHING", wish):
                if not self._did(cover, wish):
                    raise Refused("there is no such customer, or their balance is too small")
            elif self._found("SELECT * FROM withdrawal WHERE id = ?", wish.id) != [wish]:
                raise Refused("another withdrawal has this id")

    def note(self, entry: Entry) -> None:
        """Write down where a withdrawal came to stand, and give back what was not paid: once for each change."""
        signal = (entry.state, entry.change_id, entry.request_id, entry.change_id)
        later = "UPDATE withdrawal SET state = ?, change_id = ? WHERE id = ? AND change_id < ?"
        with self._db:  # one commit
            if self._db.execute(later, signal).rowcount and entry.state in GIVEN_BACK:
                (wish,) = self._found("SELECT * FROM withdrawal WHERE id = ?", entry.request_id)
                self._did("UPDATE customer SET balance = balance + :amount WHERE name = :customer", wish)

    def unfinished(self) -> list[Withdrawal]:
        """Those of which no end is known."""
        return self._found("SELECT * FROM withdrawal WHERE state IN ('requested', ?)", State.PARKED)

    def state_of(self, request_id: str) -> str | None:
        """Where a withdrawal stands, or ``None`` where nobody asked for it."""
        found = self._db.execute("SELECT state FROM withdrawal WHERE id = ?", (request_id,)).fetchone()
        return None if found is None else str(found[0])

    def _did(self, statement: str, wish: Withdrawal) -> bool:
        return bool(self._db.execute(statement, asdict(wish)).rowcount)

    def _found(self, query: str, value: str) -> list[Withdrawal]:
        rows = self._db.execute(query, (value,)).fetchall()
        return [Withdrawal(id=row[0], customer=row[1], phone_number=row[2], amount=row[3]) for row in rows]

"""What the service says of orders before they are sent: its validation, asked once for each different question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TypeAlias

from payments_async._errors import AuthenticationFailed, PaymentsError
from payments_async._fanout import fan_out
from payments_async._masking import redact
from payments_async._models import Validation
from payments_async._orders import PayoutOrder
from payments_async._session import PaymentsSession
from payments_async.bulk._concerns import Fault
from payments_async.bulk._plan._payees import reference_of

__all__ = ["Opinions"]

_REMEMBERED = 100_000

_Question: TypeAlias = tuple[str, str, Decimal]


class Opinions:
    """The service's opinions of orders, remembered by item, reference and amount.

    Attributes:
        asked: Calls that were made.
    """

    def __init__(self, payments: PaymentsSession, concurrency: int) -> None:
        self._payments = payments
        self._concurrency = concurrency
        self._answers: dict[_Question, Fault | None] = {}
        self.asked = 0

    async def ask(self, orders: Iterable[PayoutOrder]) -> None:
        """Ask about the orders nobody has asked about.

        Raises:
            AuthenticationFailed: Nothing will be answered.
        """
        questions = {_question(order): order for order in orders}
        if len(self._answers) + len(questions) > _REMEMBERED:
            self._answers.clear()
        new = [order for question, order in questions.items() if question not in self._answers]
        self.asked += len(new)
        async for order, answer in fan_out(self._validate, new, self._concurrency):
            if isinstance(answer, Exception) and not _may_pass(answer):
                raise answer
            self._answers[_question(order)] = _fault(order, answer)

    def faults(self, order: PayoutOrder) -> Iterator[Fault]:
        """What the service said against an order."""
        if fault := self._answers[_question(order)]:
            yield fault

    async def _validate(self, order: PayoutOrder) -> Validation:
        return await self._payments.products.validate(*_question(order))


def _question(order: PayoutOrder) -> _Question:
    return order.product_item_id, reference_of(order), order.amount


def _may_pass(error: Exception) -> bool:
    return isinstance(error, PaymentsError) and not isinstance(error, AuthenticationFailed)


def _fault(order: PayoutOrder, answer: Validation | Exception) -> Fault | None:
    match answer:
        case Validation(ok=True):
            return None
        case Validation(message=message):
            person = order.beneficiary
            words = redact(message or "no reason was given", (reference_of(order), person.name, *person.name.split()))
            return Fault("destination", "", f"the service would refuse it: {words}; correct the order or leave it out")
        case _:
            return Fault("destination", "", "the service could not say whether it would take it", blocks=False)

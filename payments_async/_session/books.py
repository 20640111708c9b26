"""What one session knows of its orders: which are unsettled, which were accepted, and whose outcome nobody took."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import attrs

from payments_async._values.errors import InvalidOrder, OutcomeUnknown, PaymentsError, again
from payments_async._values.frozen import frozen
from payments_async._values.request_ids import plain_id
from payments_async._wire.call import Call
from payments_async._wire.codec import decode
from payments_async._wire.models import Acceptance, Transaction

T = TypeVar("T")
Item = TypeVar("Item")
Outcome: TypeAlias = Acceptance | PaymentsError

_LONGEST_WORDS = 500  # characters of an acceptance that are remembered; who sent the order first has seen all


class Books:
    """The books of one session. Nothing here waits for the service or sends anything.

    Args:
        remembered: How many accepted orders are remembered, the latest ones.

    Attributes:
        undelivered: Outcomes that a loop over many orders has not handed over (yet), by request id.
    """

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        # Orders are known by the keys of their ids (``plain_id``), for ids that differ in letters alone are one.
        self._open: dict[str, Call[Any] | _Unknown] = {}  # under way, or of unknown outcome
        self._accepted: OrderedDict[str, _Accepted] = OrderedDict()
        self._owners: dict[str, str] | None = None  # made when they are asked for, and kept up from then on
        self._waiting: dict[str, list[asyncio.Future[Outcome | None]]] = {}
        self.undelivered: dict[str, Outcome] = {}

    @property
    def unsettled(self) -> frozenset[str]:
        """Orders that are under way, of unknown outcome, or whose outcome was not handed over."""
        return frozenset(one.request_id or "" for one in self._open.values()) | self.undelivered.keys()

    async def earlier(self, call: Call[Any]) -> Any:
        """The acceptance of an order that was sent before; who asks while it is under way waits for it.

        Returns:
            ``None`` when the order may be sent.

        Raises:
            InvalidOrder: The request id names another order.
            PaymentsError: What the exchange under way ended with, or ``OutcomeUnknown`` when that was earlier.
        """
        request_id = call.request_id or ""
        key = plain_id(request_id)
        while isinstance(first := self._open.get(key), Call):
            _check_same(call, _print(first), None)
            outcome = await self._hear(key)
            if isinstance(outcome, PaymentsError):
                is_of_that_try_alone = key in self._open and not call.sent_before  # one before it is still unknown
                if isinstance(outcome, OutcomeUnknown) or not is_of_that_try_alone:
                    raise self.tell(request_id, again(outcome))
                continue
            if outcome is not None:
                return self.tell(request_id, outcome)
        if (remembered := self._accepted.get(key)) is not None:
            _check_same(call, remembered.print_, remembered.acceptance)
            return self.tell(request_id, remembered.acceptance)
        if first is None:
            return None
        _check_same(call, first.print_, None)
        if call.sent_before:
            return None
        error = OutcomeUnknown(
            "this session has sent it already and does not know the outcome; it was not sent again",
            request_id=request_id,
        )
        raise self.tell(request_id, error)

    def begin(self, call: Call[Any]) -> bool:
        """It is under way from now on, unless it is known: then this tells so, and ``earlier`` tells more."""
        if call.request_id is None:
            return True  # a card, or an endpoint nobody knows: it is made as often as it is asked for
        key = plain_id(call.request_id)
        if key in self._open or key in self._accepted:
            return False
        self._open[key] = call
        return True

    def begin_again(self, call: Call[Any]) -> bool:
        """It is under way from now on, whatever is known. Tells whether its outcome was unknown before."""
        key = plain_id(call.request_id or "")
        was_open = key in self._open
        self._open[key] = call
        return was_open

    def sent_at(self, request_id: str) -> float | None:
        """Unix seconds at which an order that is not under way was first sent, as far as that is remembered."""
        key = plain_id(request_id)
        known = self._accepted.get(key) or self._open.get(key)
        return None if known is None or isinstance(known, Call) else known.at

    def end(self, call: Call[Any], outcome: Any, *, unsettled: bool, at: float | None = None) -> None:
        """It is no longer under way.

        Args:
            outcome: Acceptance or error; ``None`` when it was broken off before anything left.
            unsettled: Its outcome is unknown.
            at: Unix seconds at which it was first sent.
        """
        request_id = call.request_id
        if request_id is None:
            return
        key = plain_id(request_id)
        if unsettled and key not in self._accepted:
            self._open[key] = _Unknown(request_id, _print(call), _amount(call), at)
        else:
            del self._open[key]
        if call.remembered and outcome.__class__ is Acceptance:
            self._remember(key, _print(call), outcome, at)
        if self._waiting:
            for waiter in self._waiting.pop(key, ()):
                if not waiter.done():
                    waiter.set_result(outcome)
        if outcome is not None:
            self.tell(request_id, outcome)

    def settle(self, request_id: str, found: Acceptance | Transaction | None) -> None:
        """The outcome is known from elsewhere; what was found is remembered as the acceptance of the order.

        What was found with another amount is another order's: it settles nothing.
        """
        key = plain_id(request_id)
        first = self._open.get(key)
        theirs = None if not isinstance(found, Transaction) or found.amount is None else found.amount.copy_abs()
        known = _Unknown(request_id, _print(first), _amount(first), None) if isinstance(first, Call) else first
        if known is not None and theirs is not None and theirs != known.amount:
            return
        if found is not None and key not in self._accepted:
            print_, at = (theirs, None) if known is None else (known.print_, known.at)
            self._remember(key, print_, _acceptance(request_id, found), at)
        if not isinstance(first, Call):  # else its own answer comes, and until then nobody may send it
            self._open.pop(key, None)

    def is_open(self, request_id: str) -> bool:
        """Whether an order is under way, or of unknown outcome."""
        return plain_id(request_id) in self._open

    def is_under_way(self, request_id: str) -> bool:
        """Whether an order is being sent."""
        return isinstance(self._open.get(plain_id(request_id)), Call)

    @property
    def has_unknown(self) -> bool:
        """Whether the outcome of any order is unknown."""
        return any(isinstance(one, _Unknown) for one in self._open.values())

    def unknown_among(self, keys: Set[str]) -> set[str]:
        """Those of these orders, by their keys, whose outcome is unknown."""
        return {key for key in self._open.keys() & keys if isinstance(self._open[key], _Unknown)}

    def knows(self, request_id: str) -> bool:
        """Whether the service has an order, as far as it is remembered."""
        return plain_id(request_id) in self._accepted

    def open_among(self, keys: Iterable[str]) -> list[str]:
        """These orders and all that are under way or of unknown outcome, without those the service is known to have."""
        return sorted(self._open.keys() | (set(keys) - self._accepted.keys()))

    def owners(self) -> Mapping[str, str]:
        """The orders that the service has, by their transactions in small letters, as far as they are remembered."""
        if self._owners is None:
            known = self._accepted.items()
            self._owners = {one.acceptance.transaction_id.lower(): key for key, one in known}
        return self._owners

    def acceptance(self, request_id: str) -> Acceptance | None:
        """What the service said of an order that it has, as far as it is remembered."""
        remembered = self._accepted.get(plain_id(request_id))
        return None if remembered is None else remembered.acceptance

    def tell(self, request_id: str, outcome: Any) -> Any:
        """Note an outcome for the loop that waits for it, if there is one; gives it back."""
        told = _telling.get()
        if told is not None:
            self.undelivered[request_id] = outcome
            told.append((self, request_id, outcome))
        return outcome

    def take_undelivered(self) -> Mapping[str, Outcome]:
        """All undelivered outcomes, which count as handed over from now on."""
        taken, self.undelivered = self.undelivered, {}
        return taken

    async def _hear(self, key: str) -> Outcome | None:
        """Wait for how the exchange under way ends; ``None`` when it was broken off before anything left."""
        waiter: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(waiter)
        return await waiter

    def _remember(self, key: str, print_: int | Decimal | None, acceptance: Acceptance, at: float | None) -> None:
        """Note an acceptance, with its longest words cut off; the oldest one gives way."""
        if acceptance.extra and len(repr(acceptance.extra)) > _LONGEST_WORDS:
            acceptance = attrs.evolve(acceptance, extra={})
        if acceptance.message is not None and len(acceptance.message) > _LONGEST_WORDS:
            acceptance = attrs.evolve(acceptance, message=acceptance.message[:_LONGEST_WORDS])
        self._accepted[key] = _Accepted(print_, acceptance, at)
        owners = self._owners
        if owners is not None:
            owners[acceptance.transaction_id.lower()] = key
        if len(self._accepted) > self._remembered:
            forgotten, theirs = self._accepted.popitem(last=False)
            if owners is not None and owners.get(theirs.acceptance.transaction_id.lower()) == forgotten:
                del owners[theirs.acceptance.transaction_id.lower()]


class _Unknown(NamedTuple):
    """What is kept of an order whose outcome is unknown."""

    request_id: str
    print_: int
    amount: Decimal | None
    at: float | None  # when it was first sent


class _Accepted(NamedTuple):
    """What is kept of an order that the service has."""

    print_: int | Decimal | None  # the amount alone where it was found and is not known to be ours
    acceptance: Acceptance
    at: float | None  # when it was first sent


_Told: TypeAlias = list[tuple[Books, str, Outcome]]
_telling: ContextVar[_Told | None] = ContextVar("payments_async_telling", default=None)


@frozen
class Told(Generic[T]):
    """What a function came to, and the outcomes that became known meanwhile."""

    result: T | Exception
    outcomes: _Told

    def deliver(self) -> T | Exception:
        """The result, as it is handed over: the outcomes are not undelivered any more."""
        for books, request_id, outcome in self.outcomes:
            if books.undelivered.get(request_id) is outcome:  # else a later one has taken its place
                del books.undelivered[request_id]
        return self.result


def telling(function: Callable[[Item], Awaitable[T]]) -> Callable[[Item], Awaitable[Told[T]]]:
    """The function, with the outcomes of the orders that it sends noted as undelivered until ``Told.deliver``."""

    async def tell(item: Item) -> Told[T]:
        """The result of one item, and what became known meanwhile."""
        outcomes: _Told = []
        _telling.set(outcomes)  # of this worker's task, and of those that the function starts
        try:
            result: T | Exception = await function(item)
        except Exception as error:  # noqa: BLE001 - handed over as the result
            result = error
        return Told(result, outcomes)

    return tell


def _print(call: Call[Any]) -> int:
    """A number that is the same for the same request, however it is spelled, and for this process only."""
    return hash((call.path, call.body) if call.known_as is None else call.known_as)


def _amount(call: Call[Any]) -> Decimal | None:
    """The amount of an order."""
    amount = decode(call.body or b"{}").get("amount")
    return None if amount is None else Decimal(amount)


def _check_same(call: Call[Any], first: int | Decimal | None, acceptance: Acceptance | None) -> None:
    """Refuse a second order under one request id."""
    match first:
        case None:
            return
        case Decimal():
            if first == _amount(call):
                return
            words = "the service shows another order, of another amount, under the same request id"
        case _:
            if first == _print(call):
                return
            words = "this session has sent another order under the same request id"
    raise InvalidOrder(
        f"{words}; this one was not sent",
        request_id=call.request_id,
        transaction_id=None if acceptance is None else acceptance.transaction_id,
    )


def _acceptance(request_id: str, found: Acceptance | Transaction) -> Acceptance:
    """What was found, as the acceptance that nobody received."""
    if isinstance(found, Acceptance):
        return found
    return Acceptance(
        request_id=request_id,
        transaction_id=found.transaction_id,
        batch_id=found.batch_id,
        status=found.status,
        created_on=found.created_on,
    )

"""The cards of the account."""

from collections.abc import Mapping

import attrs

from ._spelling import Code, Refusal, required_text

MASKED_NUMBER = "masked-card-number"  # Spec: "JSON body with key `masked-card-number` (string)"


@attrs.frozen(kw_only=True)
class Card:
    """One card.

    Attributes:
        status: "active" is the only documented value; "inactive" is the sandbox's word for a card not yet enabled.
    """

    card_id: int
    masked_number: str
    status: str
    pin: str | None = None


def _demo_cards() -> dict[int, Card]:
    return {
        1: Card(card_id=1, masked_number="4000 **** **** 0001", status="active"),
        2: Card(card_id=2, masked_number="4000 **** **** 0002", status="inactive"),
    }


class Cards:
    """Two demo cards: number 1 is active, number 2 waits to be enabled."""

    def __init__(self) -> None:
        self._cards = _demo_cards()

    def reset(self) -> None:
        """Put both cards back as they were."""
        self._cards = _demo_cards()

    def find(self, card_id: str | None, body: Mapping[str, object]) -> Card:
        """Return the card with this id or, without one, with the masked number of the body."""
        if card_id is None:
            return self._by_number(required_text(body, MASKED_NUMBER))
        for card in self._cards.values():
            if str(card.card_id) == card_id:
                return card
        raise Refusal(404, Code.NOT_FOUND, "No card has this id")

    def patch(self, body: Mapping[str, object]) -> Card:
        """Enable a card or reset its PIN.

        # Spec: "The exact body members for the start and the PIN cases: not shown."
        """
        card = self._by_number(required_text(body, MASKED_NUMBER))
        match {name: value for name, value in body.items() if name in ("start", "pin")}:
            case {"start": True, **others} if not others:
                changed = attrs.evolve(card, status="active")
            case {"pin": str(pin), **others} if not others and pin.isascii() and pin.isdigit() and len(pin) == 4:
                changed = attrs.evolve(card, pin=pin)
            case _:
                raise Refusal(400, Code.WRONG_VALUE, "the body needs either start: true or a pin of four digits")
        self._cards[card.card_id] = changed
        return changed

    def _by_number(self, masked_number: str) -> Card:
        for card in self._cards.values():
            if card.masked_number == masked_number:
                return card
        raise Refusal(404, Code.NOT_FOUND, f"No card has this {MASKED_NUMBER}")


def card_record(card: Card, currency: str) -> dict[str, object]:
    """Return a card as the service shows it."""
    return {
        "card_id": card.card_id,
        "masked_card_number": card.masked_number,
        "name": f"Demo card {card.card_id}",
        "currency": currency,
        "balance": "0.00",  # Spec: "balance | string"
        "status": card.status,
        "card_holder": "Demo Holder",
        "transactions": [],  # Spec: "Structure of its elements: not shown."
        "statement": [],  # Spec: "card statement of credits and debits | Structure: not shown."
    }

"""Our instructions to the service: orders, their destinations and beneficiaries, checked when they are made."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import ClassVar, get_args

from payments_async._values.amounts import order_amount
from payments_async._values.checks import check_currency, check_filled, check_instance, exact_text
from payments_async._values.frozen import field, frozen
from payments_async._values.masking import has_controls, masked

_PHONE = re.compile(r"\+?[0-9(][0-9 ()./-]*", re.ASCII)
_PLAIN_PHONE = re.compile(r"\+?[0-9]{7,15}", re.ASCII)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
LONGEST_ID = 128  # the specification names no maximum; longer ones are surely a mistake
LONGEST_TEXT = 4096
_PLAIN_ID = re.compile(rf"[!-~]{{1,{LONGEST_ID}}}", re.ASCII)
# The usual order and the usual person, looked at as a whole; what has another look is looked at field by field.
_PLAIN_IDS = re.compile("\n".join([_PLAIN_ID.pattern] * 5), re.ASCII)
_PLAIN_PERSON = re.compile(
    rf"[!-~][ -~]{{,200}}\n{_PLAIN_PHONE.pattern}\n[!-?A-~]+@[!-?A-~]+\n{_PLAIN_ID.pattern}", re.ASCII
)


@frozen
class MobileMoneyWallet:
    """A mobile money wallet.

    Attributes:
        phone_number: Number of the wallet, 7 to 15 digits; a plus, blanks and dashes are allowed.

    Raises:
        ValueError: When the number is empty or no telephone number.

    >>> MobileMoneyWallet("+256772000017").phone_number
    '+256772000017'
    """

    kind: ClassVar[str] = "mobile_money"
    phone_number: str = field(repr=masked)

    def __attrs_post_init__(self) -> None:
        _phone("destination.phone_number", self.phone_number)


@frozen
class BankAccount:
    """A bank account.

    Attributes:
        account_number: The receiving account; leading zeros count, so it is text.
        bank_code: Code of the receiving bank, from the products and product items.

    Raises:
        ValueError: When one of them is empty.

    >>> BankAccount("0012345678", "BANK01").bank_code
    'BANK01'
    """

    kind: ClassVar[str] = "bank_transfer"
    account_number: str = field(repr=masked)
    bank_code: str

    def __attrs_post_init__(self) -> None:
        _identifier("destination.account_number", self.account_number)
        _identifier("destination.bank_code", self.bank_code)


@frozen
class AirtimeLine:
    """A telephone line that receives airtime.

    Attributes:
        phone_number: Number to top up, 7 to 15 digits; a plus, blanks and dashes are allowed.

    >>> AirtimeLine("0772000017").phone_number
    '0772000017'
    """

    kind: ClassVar[str] = "airtime"
    phone_number: str = field(repr=masked)

    def __attrs_post_init__(self) -> None:
        _phone("destination.phone_number", self.phone_number)


@frozen
class InternetLine:
    """A telephone line that receives a mobile internet bundle.

    Attributes:
        phone_number: Number to top up, 7 to 15 digits; a plus, blanks and dashes are allowed.

    >>> InternetLine("0772000017").phone_number
    '0772000017'
    """

    kind: ClassVar[str] = "internet"
    phone_number: str = field(repr=masked)

    def __attrs_post_init__(self) -> None:
        _phone("destination.phone_number", self.phone_number)


@frozen
class UtilityAccount:
    """A customer's account with a utility.

    Attributes:
        customer_reference: Number of the electricity or water account.
        area: Area of the account: required for national water, optional for electricity.

    >>> UtilityAccount("14250001234", area="KAMPALA").area
    'KAMPALA'
    """

    kind: ClassVar[str] = "utility"
    customer_reference: str = field(repr=masked)
    area: str | None = None

    def __attrs_post_init__(self) -> None:
        _identifier("destination.customer_reference", self.customer_reference)
        _text("destination.area", self.area)


Destination = MobileMoneyWallet | BankAccount | AirtimeLine | InternetLine | UtilityAccount
"""Where the money of a payout goes: the class selects the endpoint."""

_DESTINATIONS: tuple[type, ...] = get_args(Destination)
_WITHOUT_AREA = frozenset(_DESTINATIONS) - {UtilityAccount}


@frozen(kw_only=True)
class Beneficiary:
    """Who is paid, or who pays a collection. Masked in every ``repr``.

    Attributes:
        name: Name of the person or business.
        phone_number: Where they are reached; not necessarily where the money goes.
        email_address: Their e-mail address.
        id: Identifier of the beneficiary with the service.

    >>> Beneficiary(name="Grace Akello").name
    'Grace Akello'
    """

    name: str = field(repr=masked)
    phone_number: str | None = field(default=None, repr=masked)
    email_address: str | None = field(default=None, repr=masked)
    id: str | None = field(default=None, repr=masked)

    def __attrs_post_init__(self) -> None:
        if _is_plain_person(self):
            return
        _text("beneficiary.name", self.name)
        if not self.name or self.name.isspace():
            raise ValueError("beneficiary.name: must not be empty")
        if self.phone_number is not None:
            _phone("beneficiary.phone_number", self.phone_number)
        if self.email_address is not None:
            _email("beneficiary.email_address", self.email_address)
        if self.id is not None:
            _identifier("beneficiary.id", self.id)


@frozen(kw_only=True)
class PayoutOrder:
    """Our instruction for one payout, before the service has it.

    Attributes:
        request_id: Identifier of this payout, unique for ever. It has no default: a generated one would turn a second
            run into a second payment. ``request_id_for`` derives a stable one from business keys.
        amount: Above zero, exact, in units of the account's currency.
        destination: Where the money goes; its class selects the endpoint.
        product_item_id: Item of the operator or provider.
        beneficiary: Who is paid.
        product_id: Product of the item; the samples show it for airtime, internet and utilities.
        batch_id: Groups the orders of one batch.
        account_number: Account to pay from (described, but in no sample).
        message: Free text.
        metadata: Further data, as text.
        currency: What the caller means, such as ``"UGX"``. Never sent; compared with the account and the records.

    Raises:
        ValueError: When a field is empty or out of bounds; the message names the field and the remedy.
        TypeError: When a field has the wrong type, such as a ``float`` amount.

    >>> order = PayoutOrder(
    ...     request_id="withdrawal-17",
    ...     amount="1500.50",
    ...     product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
    ...     beneficiary=Beneficiary(name="Grace Akello"),
    ...     destination=MobileMoneyWallet("+256772000017"),
    ... )
    >>> order.amount
    Decimal('1500.50')
    """

    request_id: str = field(converter=exact_text)
    amount: Decimal = field(converter=order_amount)
    destination: Destination
    product_item_id: str
    beneficiary: Beneficiary
    product_id: str | None = None
    batch_id: str | None = None
    account_number: str | None = field(default=None, repr=masked)
    message: str | None = field(default=None, repr=masked)
    metadata: str | None = field(default=None, repr=masked)
    currency: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.destination.__class__ in _WITHOUT_AREA and _is_plain(self, self.product_item_id, self.product_id):
            return
        _instance("destination", self.destination, _DESTINATIONS)
        _check_order(self)
        _identifier("product_item_id", self.product_item_id)
        if self.product_id is not None:
            _identifier("product_id", self.product_id)
        area_is_missing = isinstance(self.destination, UtilityAccount) and not (self.destination.area or "").strip()
        if area_is_missing and is_national_water(self.product_id, self.product_item_id):
            # Spec: "beneficiary.data.area is required for national water bill payments"
            raise ValueError("destination.area: required for national water; pass UtilityAccount(..., area='Kampala')")

    @property
    def kind(self) -> str:
        """The kind of its destination, such as ``"mobile_money"``: what batch files and tables call it."""
        return self.destination.kind


@frozen(kw_only=True)
class CollectionOrder:
    """Our instruction to collect money from a mobile money wallet.

    Attributes:
        request_id: Identifier of this collection, unique for ever; see ``PayoutOrder``.
        amount: Above zero, exact, in units of the account's currency.
        payer: The wallet funds are collected from.
        provider_item_id: Item of the wallet's operator.
        beneficiary: Who pays.
        batch_id, account_number, message, metadata, currency: As in ``PayoutOrder``.

    Raises:
        ValueError: When a field is empty or out of bounds; the message names the field and the remedy.
        TypeError: When a field has the wrong type, such as a ``float`` amount.

    >>> order = CollectionOrder(
    ...     request_id="invoice-17",
    ...     amount=1500,
    ...     provider_item_id="MTNMOBILEMONEYUG_MTNMOBILEMONEYUG",
    ...     beneficiary=Beneficiary(name="Grace Akello"),
    ...     payer=MobileMoneyWallet("+256772000017"),
    ... )
    """

    kind: ClassVar[str] = "collection"
    request_id: str = field(converter=exact_text)
    amount: Decimal = field(converter=order_amount)
    payer: MobileMoneyWallet
    provider_item_id: str
    beneficiary: Beneficiary
    batch_id: str | None = None
    account_number: str | None = field(default=None, repr=masked)
    message: str | None = field(default=None, repr=masked)
    metadata: str | None = field(default=None, repr=masked)
    currency: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.payer.__class__ is MobileMoneyWallet and _is_plain(self, self.provider_item_id):
            return
        _instance("payer", self.payer, (MobileMoneyWallet,))
        _check_order(self)
        _identifier("provider_item_id", self.provider_item_id)


Order = PayoutOrder | CollectionOrder
"""Our instruction to the service: money out, or money in on request."""


def is_national_water(*products: str | None) -> bool:
    """Whether these ids, of a product or an item, are those of national water, which needs the area of an account."""
    return any("NWSC" in product.upper() for product in products if product)


def _is_plain(order: PayoutOrder | CollectionOrder, item_id: str, product_id: str | None = None) -> bool:
    """Whether a look at the whole of an order finds only what is surely right, whatever its destination is."""
    batch_id, account, message, metadata = order.batch_id, order.account_number, order.message, order.metadata
    currency = order.currency
    try:
        # in place of what is not given stands something that is right
        ids = "\n".join(
            (
                order.request_id,
                item_id,
                "-" if product_id is None else product_id,
                "-" if batch_id is None else batch_id,
                "-" if account is None else account,
            )
        )
        texts = "".join(("" if message is None else message, "" if metadata is None else metadata))
    except TypeError:
        return False
    return (
        (currency is None or (currency.__class__ is str and len(currency) == 3 and currency.isalpha()))
        and order.beneficiary.__class__ is Beneficiary
        and texts.isascii()
        and len(texts) <= LONGEST_TEXT
        and _PLAIN_IDS.fullmatch(ids) is not None
    )


def _is_plain_person(person: Beneficiary) -> bool:
    """Whether a look at the whole of a person finds only what is surely right."""
    phone, email, its_id = person.phone_number, person.email_address, person.id
    try:
        # in place of what is not given stands something that is right
        whole = "\n".join(
            (
                person.name,
                "0000000" if phone is None else phone,
                "nobody@nowhere" if email is None else email,
                "-" if its_id is None else its_id,
            )
        )
    except TypeError:
        return False
    return _PLAIN_PERSON.fullmatch(whole) is not None


def _check_order(order: PayoutOrder | CollectionOrder) -> None:
    """What payouts and collections have in common."""
    _identifier("request_id", order.request_id)
    _instance("beneficiary", order.beneficiary, (Beneficiary,))
    if order.batch_id is not None:
        _identifier("batch_id", order.batch_id)
    if order.account_number is not None:
        _identifier("account_number", order.account_number)
    if order.message is not None:
        _text("message", order.message)
    if order.metadata is not None:
        _text("metadata", order.metadata)
    if order.currency is not None:
        check_currency(order.currency)


def _instance(name: str, value: object, kinds: tuple[type, ...]) -> None:
    """It is an object of one of these classes."""
    if isinstance(value, kinds):
        return  # the usual case, quickly
    check_instance(name, value, kinds, " or ".join(kind.__name__ for kind in kinds))


def _identifier(name: str, value: object) -> None:
    """It is an id: one line of text without blanks around it, not too long."""
    if type(value) is str and _PLAIN_ID.fullmatch(value):
        return  # the usual case, quickly
    text = check_filled(name, value)
    if text != text.strip() or has_controls(text):
        raise ValueError(f"{name}: must not begin or end with blanks or contain control characters, seen or unseen")
    if len(text) > LONGEST_ID:
        raise ValueError(f"{name}: longer than {LONGEST_ID} characters")


def _text(name: str, value: object) -> None:
    """It is nothing, or text that can be written as UTF-8 and is not too long."""
    if value is None or (type(value) is str and value.isascii() and len(value) <= LONGEST_TEXT):
        return  # the usual case, quickly
    text = check_instance(name, value, str, "text")
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"{name}: longer than {LONGEST_TEXT} characters")
    if not _encodable(text):
        raise ValueError(f"{name}: contains half a character (a lone surrogate); re-encode it as UTF-8")


def _phone(name: str, value: object) -> None:
    """It is a telephone number, however it is punctuated."""
    if type(value) is str and _PLAIN_PHONE.fullmatch(value):
        return  # the usual case, quickly
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected text, not {type(value).__name__}; a number loses its leading zero and plus")
    check_filled(name, value)
    if not _PHONE.fullmatch(value) or not 7 <= sum(map(str.isdecimal, value)) <= 15:
        raise ValueError(f"{name}: not a telephone number; write 7 to 15 digits as in '+256772000017' or '0772000017'")


def _email(name: str, value: object) -> None:
    """It has the shape of an e-mail address."""
    text = check_instance(name, value, str, "text")
    if not _EMAIL.fullmatch(text) or not _encodable(text):
        raise ValueError(f"{name}: not an e-mail address; leave it out (None) if there is none")


def _encodable(value: str) -> bool:
    """Whether it can be written as UTF-8."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)

"""What one cell may hold: identifiers, names, texts, amounts of money and telephone numbers, as people write them."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from types import ModuleType
from typing import Self

from payments_async._values.amounts import MAX_DIGITS as LONGEST_AMOUNT
from payments_async._wire.orders import LONGEST_ID, LONGEST_TEXT
from payments_async.bulk._problems import begins_formula

RUINED = "ruined by a spreadsheet"
AS_TEXT = "format the column as text in the spreadsheet, enter it again and export again"
_LONGEST_NAME = 256
PLAIN_ID = rf"[A-Za-z0-9][A-Za-z0-9_./:-]{{0,{LONGEST_ID - 1}}}"
_PLAIN = re.compile(PLAIN_ID, re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ZERO_FRACTION = re.compile(r"[0-9]+[.,]0+", re.ASCII)
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)*")
# A spreadsheet always writes the sign of the exponent; an id such as 12E5 has none.
_SCIENTIFIC = re.compile(r"[0-9]+(?:[.,][0-9]+)?[eE][+][0-9]+", re.ASCII)


class Unusable(ValueError):
    """A cell that cannot be read; its text is the remedy."""


class _TypedCell(str):
    """The text of a cell that the file holds as something other than text."""

    __slots__ = ()

    def strip(self, chars: str | None = None, /) -> str:
        """Itself: it has no surrounding blanks, and stays what it is."""
        return self


class NumberCell(_TypedCell):
    """The digits of a cell that the file holds as a number, so that leading zeros may be missing."""

    __slots__ = ()


class ExactCell(NumberCell):
    """The digits of a number that a program wrote, as JSON has them: none of them was rounded away."""

    __slots__ = ()


class ShownCell(NumberCell):
    """The digits of a number that the sheet shows in a currency, or as another number.

    Only to be compared with the row's currency, and never its source: where a file is read again, nothing looks at what
    it shows.

    Attributes:
        shown: The currency as it stands there, such as ``$``, ``USh`` or ``UGX``; ``0`` for another number, and
            ``ROUNDED`` for one without all of its decimals.
    """

    __slots__ = ("shown",)
    shown: str

    def __new__(cls, digits: str, shown: str) -> Self:
        self = super().__new__(cls, digits)
        self.shown = shown
        return self


ROUNDED = "~"


class DateCell(_TypedCell):
    """The text of a cell that the file holds as a date or a time."""

    __slots__ = ()


class PercentCell(_TypedCell):
    """A number that the sheet shows as a percentage."""

    __slots__ = ()
    remedy = "a percentage; enter what is meant as a plain number or text"


class UnsavedCell(_TypedCell):
    """A formula whose value was not saved with the workbook."""

    __slots__ = ()
    remedy = (
        "a formula without a saved value, or one that shows an error; correct it, save the workbook in a spreadsheet, "
        "and read it again"
    )


class StruckCell(_TypedCell):
    """A cell that the sheet shows struck through: who did that may have meant that the row is not paid."""

    __slots__ = ()
    remedy = "struck through in the sheet; delete the row, or show the cell without the line if it is to be paid"


SPOILED: frozenset[type] = frozenset({PercentCell, UnsavedCell, StruckCell})


def read_identifier(text: str) -> str:
    """A request id, a product or a bank code: any text of one line that is not a formula and was not rounded."""
    if type(text) is str and _PLAIN.fullmatch(text):
        return text
    if isinstance(text, DateCell):
        raise Unusable(f"{RUINED}, which made a date of it; {AS_TEXT}")
    if isinstance(text, NumberCell) and not text.isdecimal():
        raise Unusable(
            f"a number with a fraction or more digits than a spreadsheet keeps is not an identifier; {AS_TEXT}"
        )
    if _SCIENTIFIC.fullmatch(text):
        raise Unusable(f"{RUINED}, which rounded it; {AS_TEXT}")
    if begins_formula(text):
        raise Unusable("begins like a spreadsheet formula; write it without a sign = + - @ in front")
    if _CONTROL.search(text):
        raise Unusable("contains a line break or an unprintable character; remove it")
    if len(text) > LONGEST_ID:
        raise Unusable(f"longer than {LONGEST_ID} characters; shorten it")
    return str(text)


def read_account(text: str) -> str:
    """The number of an account or a meter, where leading zeros count."""
    if isinstance(text, ExactCell):
        raise Unusable("a number, so leading zeros may be lost; write it as a text, in quotation marks")
    if isinstance(text, NumberCell):
        raise Unusable(f"stored as a number, so leading zeros may be lost; {AS_TEXT}")
    text = text.removeprefix("'")  # how spreadsheets mark a text
    if _ZERO_FRACTION.fullmatch(text):
        raise Unusable(f"{RUINED}, which took it for a number; {AS_TEXT}")
    if not text:
        raise Unusable("empty but for an apostrophe; enter the number")
    return read_identifier(text)


def read_name(text: str) -> str:
    """The name of a person or a business. One that is a formula is an attack or an accident, and refused."""
    if text.isascii() and text.replace(" ", "").isalpha() and len(text) <= _LONGEST_NAME:
        return text
    if begins_formula(text):
        raise Unusable("a spreadsheet formula, not a name: an accident or an attack; ask where it came from")
    if isinstance(text, NumberCell | DateCell) or not any(map(str.isalpha, text)):
        raise Unusable("not a name; enter the name of the person or business")
    if _CONTROL.search(text):
        raise Unusable("contains a line break or an unprintable character; perhaps a quotation mark is missing")
    if len(text) > _LONGEST_NAME:
        raise Unusable(f"longer than {_LONGEST_NAME} characters; perhaps a quotation mark is missing")
    return text


def read_email(text: str) -> str:
    """An e-mail address."""
    if begins_formula(text) or _CONTROL.search(text) or not _EMAIL.fullmatch(text):
        raise Unusable("not an e-mail address; correct it or leave the cell empty")
    return text


def read_text(text: str) -> str:
    """A message or metadata, kept exactly: it is data even where it looks like a formula."""
    if len(text) > LONGEST_TEXT:
        raise Unusable(f"longer than {LONGEST_TEXT} characters; perhaps a quotation mark is missing")
    return str(text)


MAX_DIGITS = 15  # what a spreadsheet keeps exactly; and nobody is paid more
_DOLLARS = "USD AUD BBD BSD BZD CAD FJD HKD JMD LRD NAD NZD SGD TTD TWD XCD ZWD ZWL"
SHILLINGS = "SHS"  # of a country that is not told
_SHILLING_SIGNS = ("/=", "/-")  # 14,500/= is how they are written
# What a sheet shows, and which currencies it may be; a text with one is no amount.
_SHOWN = {
    **dict.fromkeys(("€", "EURO", "EUROS"), "EUR"),
    **dict.fromkeys(("$", "DOLLAR", "DOLLARS"), _DOLLARS),
    **dict.fromkeys(("CFA", "FCFA", "F CFA"), "XAF XOF"),
    **dict.fromkeys(("FRW", "RF"), "RWF"),
    **dict.fromkeys((SHILLINGS, *_SHILLING_SIGNS), "UGX KES TZS SOS"),
    "£": "GBP EGP SSP SDG",
    "¥": "JPY CNY",
    "₦": "NGN",
    "₵": "GHS",
    "₹": "INR",
    "R": "ZAR",
    "K": "ZMW MWK",
}
_SHILLINGS = {"USH": "UGX", "USHS": "UGX", "KSH": "KES", "KSHS": "KES", "TSH": "TZS", "TSHS": "TZS"}
_CODE = re.compile(r"[A-Za-z]{3}", re.ASCII)
_WORD_BEFORE = re.compile(r"([A-Za-z]{3,4})\.? ?(?=[0-9(+-])", re.ASCII)
_CENTS_OR_WORD = re.compile(r"[A-Za-z]{3,4}\.[0-9]{1,2}", re.ASCII)  # Ksh.50 is 50 to some, and USD.50 half of one
_WORD_AFTER = re.compile(r"(?<=[0-9]) ?([A-Za-z]{3,4})", re.ASCII)
_WHOLE_AMOUNT = re.compile(r"[1-9][0-9]*", re.ASCII)
_PLAIN_AMOUNT = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", re.ASCII)
_COMMAS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?", re.ASCII)
_BLANKS = re.compile(r"[1-9][0-9]{0,2}(?: [0-9]{3})+(?:\.[0-9]+)?", re.ASCII)
_POINT_AND_THREE = re.compile(r"[0-9]+\.[0-9]{3}", re.ASCII)

_EXPECTED = "write digits with commas between thousands and one point before cents, as in 1,500,000 or 500.50"
# What an amount looks like that is refused, first match wins, and the remedy.
_REFUSALS = (
    (re.compile(r"=.*", re.S), "a formula, not an amount; export the sheet with values, or enter the amount"),
    (re.compile(r"[0-9.,]+ ?%"), "a percentage, not an amount; enter the amount"),
    (re.compile(r"[+-]?(?:s?nan|inf(?:inity)?)[0-9]*", re.I), "not a number; enter the amount"),
    (re.compile(r"[-\u2212(].*|.*-"), "negative; an amount is above zero, the direction comes from the kind"),
    (re.compile(r"\+.*"), "begins with a sign; write the digits alone"),
    (re.compile(r"0[0-9].*", re.S), "begins with a zero, as a telephone or account number does; enter the amount"),
    (re.compile(r"0,[0-9]+"), f"ambiguous: the comma may mean thousands or cents; {_EXPECTED}"),
    (re.compile(r"[0-9]+(?:[.,][0-9]+)?[eE][+-]?\d+"), "in scientific notation and perhaps rounded; write all digits"),
    (re.compile(r"[0-9]+,[0-9]{1,2}"), f"ambiguous: the comma may mean thousands or cents; {_EXPECTED}"),
    (re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+"), f"ambiguous: point and comma change places; {_EXPECTED}"),
    (re.compile(r"[0-9.]*\.[0-9.]*"), f"more than one point, or a point without digits; {_EXPECTED}"),
)


def read_money(text: str, currency: str | None = None) -> tuple[Decimal, str | None]:
    """An amount above zero, exact, and the currency written beside it, if any.

    Args:
        currency: The one that is named elsewhere. `Shs` and `/=` mean it where it may be called shillings; else they
            are ``SHS``.

    Raises:
        Unusable: For what is ambiguous, negative, zero, no number, or has more than two decimals or 15 digits; 30 where
            it is a number in JSON.

    >>> read_money("1,500,000"), read_money("UGX 500.50"), read_money("14,500/=")
    ((Decimal('1500000'), None), (Decimal('500.50'), 'UGX'), (Decimal('14500'), 'SHS'))

    >>> read_money("UGX 1,500.50")
    (Decimal('1500.50'), 'UGX')

    >>> read_money("14,500/=", "UGX"), read_money("14,500/=", "USD")
    ((Decimal('14500'), 'UGX'), (Decimal('14500'), 'SHS'))
    """
    if _WHOLE_AMOUNT.fullmatch(text) and len(text) <= MAX_DIGITS:
        return Decimal(text), None
    if isinstance(text, DateCell):
        raise Unusable("a spreadsheet made a date of it; format the column as a number and enter the amount again")
    digits, beside = _without_currency(text.replace("\u00a0", " ").replace("\u202f", " "))
    amount = _exact(digits, point_is_sure=isinstance(text, NumberCell), most=_most_digits(text))
    if not amount:
        raise Unusable("zero; an amount is above zero: enter it, or leave the order out")
    if beside == SHILLINGS and currency is not None and may_mean(beside, currency):
        beside = currency
    return amount, beside


@lru_cache(maxsize=256)
def read_currency(text: str) -> str:
    """A currency code of three letters, in capitals."""
    if not _CODE.fullmatch(text):
        raise Unusable("not a currency code; write three letters such as UGX")
    return text.upper()


def _without_currency(text: str) -> tuple[str, str | None]:
    """The digits, and the currency written before or after them."""
    signed = text.endswith(_SHILLING_SIGNS)
    if signed:
        text = text[:-2].strip()
    if _CENTS_OR_WORD.fullmatch(text):
        word, digits = text.split(".")
        raise Unusable(f"the point may end the word, or begin the cents; write {word} {digits} or {word} 0.{digits}")
    before, after = _WORD_BEFORE.match(text), _WORD_AFTER.search(text)
    code = None
    if before:
        text, code = text[before.end() :].strip(), _currency_word(before.group(1))
    elif after and after.end() == len(text):
        text, code = text[: after.start()], _currency_word(after.group(1))
    if signed and code not in (None, SHILLINGS) and not may_mean(SHILLINGS, code):
        raise Unusable(f"in {code}, and in shillings by the sign behind it; correct one of them")
    return text, code or (SHILLINGS if signed else None)


def _currency_word(word: str) -> str:
    """The code of a currency, or of what shillings are called."""
    word = word.upper()
    code = _SHILLINGS.get(word, word)
    if code == "NAN" or len(code) != 3:
        raise Unusable(f"not a number; {_EXPECTED}")
    return code


def check_shown(cell: ShownCell, currency: str | None) -> bool:
    """Compare what a sheet shows of an amount with the row's currency; ``False`` where there is none to compare with.

    Raises:
        Unusable: It shows another currency, or another number.
    """
    if cell.shown == "0":
        raise Unusable(
            "the sheet shows another number than the cell holds, by its format (thousands, a power of ten, a "
            "fraction, added digits, a sign or nothing); format the cell as a plain number and check the amount"
        )
    if cell.shown == ROUNDED:
        raise Unusable(
            "the sheet shows it rounded, and the cents that it hides would be paid too; round the number itself, as by "
            "=ROUND(...), or show two decimals"
        )
    if currency is not None and not may_mean(cell.shown, currency):
        raise Unusable(
            f"shown as {cell.shown} in the sheet, but the row is in {currency}; check which is meant, and show the "
            "amount in that currency or as a plain number"
        )
    return currency is not None


@lru_cache(maxsize=256)
def may_mean(shown: str, currency: str) -> bool:
    """Whether it may stand for a code. Before a dollar are the letters that a code begins with: US$, A$, HK$."""
    shown = shown.upper()
    if shown.endswith("$"):
        return currency in _DOLLARS and currency.startswith(shown[:-1])
    return currency in (_SHOWN.get(shown) or _SHILLINGS.get(shown, shown))


def _most_digits(text: str) -> int:
    """How many digits are surely as somebody wrote them, and not rounded on the way."""
    return LONGEST_AMOUNT if isinstance(text, ExactCell) else MAX_DIGITS


def _exact(digits: str, *, point_is_sure: bool, most: int = MAX_DIGITS) -> Decimal:
    """The amount that these digits are, if they can be read in one way alone."""
    if not point_is_sure and _POINT_AND_THREE.fullmatch(digits):
        raise Unusable(f"ambiguous: the point may mean thousands or cents; {_EXPECTED}")
    if not (_PLAIN_AMOUNT.fullmatch(digits) or _COMMAS.fullmatch(digits) or _BLANKS.fullmatch(digits)):
        remedies = (remedy for form, remedy in _REFUSALS if form.fullmatch(digits))
        raise Unusable(next(remedies, f"no amount; {_EXPECTED}"))
    plain = digits.replace(",", "").replace(" ", "")
    whole, _, cents = plain.partition(".")
    if len(cents.rstrip("0")) > 2:
        raise Unusable("more than two decimals; round it to cents in the file")
    if len(whole) + len(cents) > most:
        raise Unusable(f"more than {most} digits; enter the amount")
    return Decimal(plain)


_WRITTEN_PHONE = re.compile(r"\+?[0-9 ()./\u00a0\u2010-\u2015-]+", re.ASCII)
_SCIENTIFIC_PHONE = re.compile(r"[+]?[0-9]+(?:[.,][0-9]+)?[eE][+-]?[0-9]+", re.ASCII)
_ZERO_FRACTION_PHONE = re.compile(r"[+]?[0-9]{7,15}[.,]0+", re.ASCII)
_WHOLE_PHONE = re.compile(r"[0-9]{9,15}", re.ASCII)
_ROUNDED_PHONE = re.compile(r"[0-9]{4,10}0{5}", re.ASCII)  # 2.56772E+11, opened once more and saved as a number


class PhoneReader:
    """Reads numbers; those without a country code belong to ``region``.

    Args:
        region: A region of the phonenumbers library, such as ``"UG"``.

    Raises:
        ImportError: When phonenumbers is not installed; it comes with the extra ``cli``.
        ValueError: For a region that phonenumbers does not know.
    """

    def __init__(self, region: str) -> None:
        self._library = _phonenumbers()
        if region not in self._library.SUPPORTED_REGIONS:
            raise ValueError(f"region: phonenumbers knows no {region!r}; pass two capital letters such as 'UG'")
        self._region = region
        self._plain, self._code = _plain_mobiles(self._library, region)

    def __call__(self, text: str) -> str:
        """The number in the form ``+256772000017``.

        Raises:
            Unusable: When it was ruined by a spreadsheet, or is not a number that is in use.
        """
        plain = self._plain.fullmatch(text)
        if plain is None or text.__class__ is not str:
            if _SCIENTIFIC_PHONE.fullmatch(text) or _ZERO_FRACTION_PHONE.fullmatch(text) or isinstance(text, DateCell):
                raise Unusable(f"{RUINED}: digits are lost or added; {AS_TEXT}")
            if isinstance(text, NumberCell) and not _WHOLE_PHONE.fullmatch(text):
                raise Unusable(f"{RUINED}, or no telephone number: expected 9 to 15 digits; {AS_TEXT}")
            if type(text) in (NumberCell, ShownCell) and _ROUNDED_PHONE.fullmatch(text):
                raise Unusable(f"{RUINED}, it seems: a number that ends in so many zeros was rounded; {AS_TEXT}")
        return self.parsed(text.removeprefix("'")) if plain is None else f"{self._code}{plain[1]}"

    def parsed(self, text: str) -> str:
        """The same by way of the library alone, which also decides what counts as a number."""
        if not _WRITTEN_PHONE.fullmatch(text):
            raise Unusable("not a telephone number; write digits only, as in +256772000017 or 0772000017")
        if text.startswith("00"):
            text = f"+{text[2:]}"
        try:
            number = self._library.parse(text, self._region)
        except self._library.NumberParseException:
            raise Unusable("not a telephone number; write it as in +256772000017 or 0772000017") from None
        if not self._library.is_valid_number(number):
            raise Unusable("no such telephone number: a digit is wrong, missing or too many; ask for it again")
        return str(self._library.format_number(number, self._library.PhoneNumberFormat.E164))


def _phonenumbers() -> ModuleType:
    try:
        import phonenumbers
    except ImportError as error:
        raise ImportError("telephone numbers need phonenumbers: pip install 'payments-async[cli]'") from error
    return phonenumbers


def _plain_mobiles(library: ModuleType, region: str) -> tuple[re.Pattern[str], str]:
    """A short cut past the parser, made from the library's own numbering plan: it takes 17 microseconds a number.

    Only where it is sure to agree: the calling code belongs to one region, and the national prefix is a fixed digit
    that no mobile number begins with. Both may be left out where a number with the code is too long to be without one.
    """
    plan = library.PhoneMetadata.metadata_for_region(region)
    prefix = plan.national_prefix_for_parsing or ""
    alone = library.COUNTRY_CODE_TO_REGION_CODE[plan.country_code] == (region,)
    if not (alone and len(prefix) == 1 and prefix.isdecimal() and not plan.national_prefix_transform_rule):
        return re.compile(r"(?!)()"), ""
    mobile, code = plan.mobile.national_number_pattern, plan.country_code
    shortest = min(plan.mobile.possible_length or plan.general_desc.possible_length)
    is_told = len(str(code)) + shortest > max(plan.general_desc.possible_length)
    bare = rf"|(?!{plan.international_prefix})(?:{code})?" if is_told else ""
    return re.compile(rf"(?:\+{code}|{prefix}{bare})(?!{prefix})({mobile})", re.ASCII), f"+{code}"

"""Single cells: amounts as people write them, and telephone numbers as people and spreadsheets leave them."""

import re
from collections.abc import Callable
from decimal import Decimal

import phonenumbers
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from payments_async.bulk._file._cells import (
    DateCell,
    NumberCell,
    PhoneReader,
    Unusable,
    read_account,
    read_identifier,
    read_money,
    read_name,
)

UG = PhoneReader("UG")


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("1500000", "1500000", None),
        ("1,500,000", "1500000", None),
        ("1 500 000", "1500000", None),
        ("1\u00a0500\u202f000.25", "1500000.25", None),
        ("14,500", "14500", None),
        ("2,887,500.50", "2887500.50", None),
        ("UGX 500.50", "500.50", "UGX"),
        ("ugx500.5", "500.5", "UGX"),
        ("500 UGX", "500", "UGX"),
        ("USh 14,500", "14500", "UGX"),
        ("14,500/=", "14500", "SHS"),
        ("14,500 /-", "14500", "SHS"),
        ("Shs 14,500/-", "14500", "SHS"),
        ("14,500 KES/=", "14500", "KES"),
        ("USh. 14,500/=", "14500", "UGX"),
        ("Ksh.500", "500", "KES"),
        ("UGX.1,500.50", "1500.50", "UGX"),
        ("0.50", "0.50", None),
        ("1500.000000", "1500", None),
    ],
)
def test_amount_that_can_be_read_in_one_way_is_read(text: str, amount: str, currency: str | None) -> None:
    """Commas and blanks part thousands, one point parts cents, and a currency may stand on either side."""
    assert (Decimal(amount), currency) == read_money(text)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("1.500", "ambiguous"),
        ("USD 14,500/=", "in USD, and in shillings by the sign behind it"),
        ("14,500 EUR/-", "in EUR, and in shillings by the sign behind it"),
        ("1,50", "ambiguous"),
        ("0,500", "ambiguous"),
        ("1.234,56", "ambiguous"),
        ("UGX 1.500", "ambiguous"),
        ("1.5e6", "scientific"),
        ("1E+6", "scientific"),
        ("12.3.4", "more than one point"),
        ("5.", "point without digits"),
        (".5", "point without digits"),
        ("USD.50", "the point may end the word, or begin the cents; write USD 50 or USD 0.50"),
        ("Ksh.5", "the point may end the word, or begin the cents"),
        ("UGX.50/=", "the point may end the word, or begin the cents"),
        ("1e6x", "no amount"),
        ("1,5000", "no amount"),
        ("12,34,567", "no amount"),
        ("1,500 000", "no amount"),
        ("$500", "no amount"),
        ("UGX", "no amount"),
        ("UGX UGX 5", "no amount"),
        ("5\n6", "no amount"),
        ("\u0665\u0660\u0660", "no amount"),
        ("NaN", "not a number"),
        ("-NaN", "not a number"),
        ("Infinity", "not a number"),
        ("-500", "negative"),
        ("\u2212500", "negative"),
        ("UGX -500", "negative"),
        ("(500)", "negative"),
        ("500-", "negative"),
        ("+500", "sign"),
        ("0", "zero;"),
        ("0.00", "zero;"),
        ("0772000017", "begins with a zero"),
        ("33333.3333", "two decimals"),
        ("1234567890123456", "more than 15 digits"),
    ],
)
def test_amount_that_can_be_misread_is_refused(text: str, remedy: str) -> None:
    """Each with the remedy that fits it."""
    with pytest.raises(Unusable, match=remedy):
        read_money(text)


def test_point_of_a_number_cell_is_sure() -> None:
    """A number of JSON or of a workbook cannot mean thousands by its point; a date is no amount."""
    assert Decimal("1.500") == read_money(NumberCell("1.500"))[0]
    with pytest.raises(Unusable, match="date"):
        read_money(DateCell("2026-11-01"))


amounts = st.decimals(min_value="0.01", max_value="9999999999.99", places=2)


@given(amounts, st.sampled_from(["", ",", " "]), st.sampled_from(["{}", "UGX {}", "{} UGX", "UGX{}", "{}/="]))
def test_every_amount_survives_being_written_down(amount: Decimal, separator: str, form: str) -> None:
    """However a person writes it, the same amount is read."""
    text = form.format(f"{amount:,.2f}".replace(",", separator))
    assert (amount, {"{}": None, "{}/=": "SHS"}.get(form, "UGX")) == read_money(text)


@given(st.text(alphabet="0123456789.,eE+-() \u00a0UGXnaif/=", max_size=12) | st.text(max_size=8))
def test_amount_is_read_exactly_or_refused(text: str) -> None:
    """Whatever the text, digits are never made up, lost or moved."""
    try:
        amount, _ = read_money(text)
    except Unusable:
        return
    assert amount > 0
    number = text[4:] if re.match(r"[A-Za-z]{3}\.", text) else text[5:] if re.match(r"[A-Za-z]{4}\.", text) else text
    digits = [sign for sign in number if sign in "0123456789."]
    assert Decimal("".join(digits)) == amount
    if "." not in text and "," in text:
        assert all(len(group.strip("/=UGX \u00a0")) == 3 for group in text.split(",")[1:])


@pytest.mark.parametrize(
    "text",
    [
        "+256772000017",
        "256772000017",
        "0772000017",
        "772000017",
        "00256772000017",
        "+256 772-000017",
        "+256 (0) 772 000 017",
        "(0772) 000.017",
        "'0772000017",
        NumberCell("256772000017"),
        NumberCell("772000017"),
    ],
)
def test_telephone_number_is_read_to_its_international_form(text: str) -> None:
    """A number without a country code belongs to the region."""
    assert "+256772000017" == UG(text)


def test_number_of_another_country_is_read_as_it_says() -> None:
    """A plus and a country code beat the region."""
    assert "+254712345678" == UG("+254 712 345678")
    assert "+254712345678" == PhoneReader("KE")("0712345678")


@pytest.mark.parametrize(
    "text",
    [
        *("2.56772E+11", "2,56772E+11", "2.56772E11", "256772000017.0", "256772000000.00"),
        *map(NumberCell, ("2.56772e+17", "256772300000", "772300000")),
    ],
)
def test_telephone_number_ruined_by_a_spreadsheet_is_refused_with_that_word(text: str) -> None:
    """The digits that are gone cannot be guessed; those that are too many would be another number."""
    with pytest.raises(Unusable, match="ruined by a spreadsheet"):
        UG(text)


@pytest.mark.parametrize(
    "text",
    [
        "12345",
        "077200001",
        "07720000177",
        "+2567720000177",
        "0772FLOWER",
        "0772000017 ext 5",
        "0772000017/0701000017",
        "+256112000017",
        "+",
        "none",
        "\u202a+256772000017\u202c",
        NumberCell("12345"),
        DateCell("2026-11-01"),
    ],
)
def test_what_is_no_telephone_number_is_refused(text: str) -> None:
    """A digit too many or too few, letters, two numbers in a cell, a number nobody can have."""
    with pytest.raises(Unusable):
        UG(text)


def _by_the_library(text: str) -> str | None:
    try:
        number = phonenumbers.parse(text, "UG")
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_valid_number(number):
        return None
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


@given(
    st.from_regex(r"(\+256|0|256||\+2560|2560)7[0-9]{7,9}", fullmatch=True)
    | st.from_regex(r"\+?[0-9]{8,13}", fullmatch=True)
)
@example("+256728000000")
@example("+256734000000")
@example("0790000000")
def test_short_cut_for_plain_numbers_agrees_with_the_library(text: str) -> None:
    """The short cut is made from the library's numbering plan, so it says what the library says of every number."""
    assert (_by_the_library(f"+{text[2:]}" if text.startswith("00") else text)) == _said(UG, text)


def _said(read: Callable[[str], str], text: str) -> str | None:
    """The number that was read; ``None`` where it is refused."""
    try:
        return read(text)
    except Unusable:
        return None


@pytest.mark.parametrize("region", ["KE", "TZ", "RW", "GB", "US", "IT", "AR", "HU", "MX", "CI", "DE", "NG", "BY", "UZ"])
def test_short_cut_agrees_in_regions_with_odd_prefixes(region: str) -> None:
    """Where the plan has exceptions there is no short cut."""
    reader = PhoneReader(region)
    number = phonenumbers.example_number_for_type(region, phonenumbers.PhoneNumberType.MOBILE)
    forms = (phonenumbers.PhoneNumberFormat.E164, phonenumbers.PhoneNumberFormat.NATIONAL)
    whole, within = (phonenumbers.format_number(number, form) for form in forms)
    for text in (whole, within, whole[1:], str(number.national_number)):
        assert _said(reader.parsed, text) == _said(reader, text)


def test_short_cut_is_taken() -> None:
    """Of the usual spellings none reaches the parser: it costs seventeen microseconds a number."""
    reader = PhoneReader("UG")
    reader.parsed = pytest.fail  # type: ignore[method-assign, assignment]
    spelled = ["+256772000017", "0772000017", "256772000017", "772000017"]
    assert {"+256772000017"} == {reader(text) for text in (*spelled, *map(NumberCell, spelled[2:]))}


@pytest.mark.parametrize(
    "text", ["1.11957E+12", "2E+5", "111957192655.0", "111957192655,00", NumberCell("111957192655")]
)
def test_account_number_that_a_spreadsheet_touched_is_refused(text: str) -> None:
    """Rounded digits and lost zeros would pay somebody else."""
    with pytest.raises(Unusable, match="spreadsheet"):
        read_account(text)


def test_account_number_keeps_its_zeros() -> None:
    """It is text, whatever it looks like."""
    assert ["0011195000016", "12E5", "0001"] == [read_account(text) for text in ("'0011195000016", "12E5", "0001")]


@pytest.mark.parametrize(
    "text", ["=1+1", "@id", "-7", "+7", "two\nlines", "x" * 129, "1.1E+15", DateCell("2026-01-01")]
)
def test_identifier_that_is_surely_a_mistake_is_refused(text: str) -> None:
    """Formulas, line breaks, rounded numbers, dates, and texts that are far too long."""
    with pytest.raises(Unusable):
        read_identifier(text)


@pytest.mark.parametrize("name", ["Amber Brightwater", "O'Fern", "Ñandú", "María-José & Sons Ltd.", "7 Hills School"])
def test_names_are_kept_as_they_are(name: str) -> None:
    """People and businesses are called many things."""
    assert name == read_name(name)


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "@x", "+x", "-x", "\uff1dx", "12345", "two\nlines", "x" * 257, "."])
def test_what_is_no_name_is_refused(name: str) -> None:
    """A formula is an attack or an accident, a number is the wrong column, a line break a lost quotation mark."""
    with pytest.raises(Unusable):
        read_name(name)

"""Amounts: exact from where they enter to the wire and back, or refused."""

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payments_async._values.amounts import amount_text, order_amount, read_amount
from payments_async._wire.bodies import json_amount
from payments_async._wire.codec import decode, encode

# Any amount that can be written out in 30 digits, in each way a Decimal can hold it.
AMOUNTS = st.builds(
    lambda digits, exponent: Decimal((0, tuple(map(int, str(digits))), exponent)),
    st.integers(min_value=1, max_value=10**18),
    st.integers(min_value=-10, max_value=10),
)


@given(AMOUNTS)
def test_an_amount_to_the_wire_and_back(amount: Decimal) -> None:
    """Digit for digit, with its scale, and without an exponent."""
    body = encode({"amount": json_amount(order_amount(amount))})
    digits = body.decode().removeprefix('{"amount":').removesuffix("}")
    assert set(digits) <= set("0123456789.")
    back = read_amount(decode(body)["amount"])
    assert amount == back
    assert digits == format(back, "f")
    assert max(0, -int(amount.as_tuple().exponent)) == -int(back.as_tuple().exponent)


@given(AMOUNTS, st.integers(min_value=1, max_value=6))
def test_the_precision_of_the_moment(amount: Decimal, precision: int) -> None:
    """A caller's decimal context rounds nothing of ours."""
    with localcontext() as context:
        context.prec = precision
        text = amount_text(order_amount(amount))
        back = read_amount(text)
    assert amount == Decimal(text) == back


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Decimal("0.1"), "0.1"),
        (Decimal("100000000000000.01"), "100000000000000.01"),
        (Decimal("500.00"), "500.00"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1E-7"), "0.0000001"),
        (Decimal("150000.12345678901234567890"), "150000.12345678901234567890"),
        (150000, "150000"),
        ("1500.50", "1500.50"),
    ],
)
def test_an_amount_as_it_leaves(amount: Decimal | int | str, text: str) -> None:
    """All digits of it, as a person would write them."""
    assert text == amount_text(order_amount(amount))


@pytest.mark.parametrize("text", ["0.1", "100000000000000.01", "-500.00", "0", "7", "-0.01", "1000000.000"])
def test_an_amount_as_it_comes(text: str) -> None:
    """A JSON number and its text are the same amount, scale included."""
    number = decode(f"[{text}]".encode())[0]
    assert (text, text) == (str(read_amount(number)), str(read_amount(text)))


def test_a_received_exponent() -> None:
    """It is the number it stands for."""
    assert Decimal(1000) == read_amount(decode(b"1E+3")) == read_amount("1e3")


@given(AMOUNTS)
def test_a_text_and_a_decimal(amount: Decimal) -> None:
    """Whatever is refused or taken as the one is refused or taken as the other."""
    assert order_amount(amount) == order_amount(amount_text(amount))


def test_a_decimal_of_a_class_that_writes_itself_in_its_own_way() -> None:
    """Its value is sent, digit for digit, and not its words."""

    class Money(Decimal):
        def __str__(self) -> str:
            return f"{int(self):,}"

    assert "1500.50" == amount_text(order_amount(Money("1500.50")))


@pytest.mark.parametrize("digits", [30, 31])
@pytest.mark.parametrize("point", [0, 2, 20])
def test_the_most_digits(digits: int, point: int) -> None:
    """Thirty can be written, thirty-one are a mistake, wherever the point is."""
    whole, fraction = "1" * (digits - point), "1" * point
    text = f"{whole}.{fraction}" if point else whole
    if digits == 30:
        assert Decimal(text) == order_amount(Decimal(text)) == order_amount(text) == read_amount(text)
        return
    for read in (order_amount, read_amount):
        with pytest.raises(ValueError, match="more than 30 digits"):
            read(Decimal(text))


@pytest.mark.parametrize("text", ["NaN", "sNaN", "-NaN", "Infinity", "-Infinity", "1E+999999", "1E-999999", "0E-40"])
def test_what_no_order_can_hold(text: str) -> None:
    """It is refused quickly, not written out."""
    with pytest.raises(ValueError, match=r"^amount: "):
        order_amount(Decimal(text))


@pytest.mark.parametrize("amount", [Decimal(0), Decimal("0.00"), Decimal("-0"), Decimal("-0.01"), 0, -1, "0", "0.000"])
def test_nothing_and_less(amount: Decimal | int | str) -> None:
    """The direction is the kind of order, never a sign."""
    with pytest.raises(ValueError, match=r"^amount: must be above zero"):
        order_amount(amount)


@pytest.mark.parametrize(
    "amount", ["", " ", "+5", "- 5", "-1e3", "1e3", "1,000", "1_000", " 5", "5 ", "5.", ".5", "NaN", "\u0665"]
)
def test_a_text_that_is_no_plain_number(amount: str) -> None:
    """It is refused with an example of a good one."""
    with pytest.raises(ValueError, match=r"^amount: not a plain decimal number; write .* '1500\.50'$"):
        order_amount(amount)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0.1, r"a float is not exact; pass decimal\.Decimal"),
        (float("nan"), r"a float is not exact"),
        (True, r"a bool is not an amount"),
        (None, r"expected decimal\.Decimal, not NoneType"),
        (b"5", r"expected decimal\.Decimal, not bytes"),
        ([5], r"expected decimal\.Decimal, not list"),
    ],
)
def test_the_wrong_type(amount: object, words: str) -> None:
    """The message names the type and the remedy."""
    with pytest.raises(TypeError, match=rf"^amount: {words}"):
        order_amount(amount)


@pytest.mark.parametrize(
    "value",
    [
        Decimal("NaN"),
        Decimal("-Infinity"),
        0.1,
        True,
        None,
        [],
        {},
        "",
        "x",
        "1_000",
        "1 000",
        "1,5",
        "NaN",
        "Infinity",
        "\u0665",
        "1E+999999999999999999999",
    ],
)
def test_a_received_value_that_is_no_amount(value: object) -> None:
    """It is a ValueError, whatever it is."""
    with pytest.raises(ValueError, match=r"^(not|amount)"):
        read_amount(value)

"""Amounts with a comma and no quotation marks: what may be half an amount is never paid as a whole one."""

from pathlib import Path

import pytest
from nested import for_read

from payments_async.bulk import Batch, read_batch

SHORT = "request_id,kind,name,phone,product_item_id,amount,message"
CODES = "request_id,kind,name,phone,product_item_id,amount,staff no,message"
PERSON = "mobile_money,Amber Brightwater,+256772000001,MTN_MTN"


async def read(folder: Path, header: str, *ends: str, **options: str | None) -> Batch:
    """A file of a header and the ends of its rows, which begin alike."""
    path = folder / "batch.csv"
    lines = [f"R-{number},{PERSON},{end}" for number, end in enumerate(ends, start=1)]
    path.write_text("\n".join([header, *lines, ""]))
    return await read_batch(path, **for_read(options))


def told(batch: Batch) -> list[tuple[int, str]]:
    """Row and column of each problem."""
    return [(problem.row, problem.column) for problem in batch.problems]


def paid(batch: Batch) -> list[str]:
    """The amounts that would be paid."""
    return [f"{order.amount:f}" for order in batch.orders]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("1,500", id="last-column-left-out"),
        pytest.param("1,500,", id="last-column-empty"),
        pytest.param("UGX 1,500/=", id="with-currency"),
        pytest.param("1,500.50", id="with-cents"),
        pytest.param("1500,50", id="cents-after-a-comma"),
    ],
)
async def test_half_an_amount_is_a_problem(tmp_path: Path, end: str) -> None:
    """What follows the amount may be the rest of it: the row is told, with what to do, and not paid."""
    batch = await read(tmp_path, SHORT, end, "2000,March")
    assert ([(2, "amount")], ["2000"]) == (told(batch), paid(batch))
    assert "which may be the rest of it; put an amount with a comma in quotation marks" in batch.problems[0].remedy


@pytest.mark.parametrize("end", ["1,500/=", "1,500 USD"])
@pytest.mark.parametrize("currency", [None, "UGX"])
async def test_half_an_amount_in_a_currency_that_is_in_doubt(tmp_path: Path, end: str, currency: str | None) -> None:
    """The rest of it need not be payable to be the rest: 1 is not paid for 1,500 of another currency."""
    batch = await read(tmp_path, SHORT, end, "2000,March", currency=currency)
    assert ([(2, "amount")], ["2000"]) == (told(batch), paid(batch))


async def test_millions_are_torn_twice(tmp_path: Path) -> None:
    """Two commas make three cells."""
    header = SHORT.replace("message", "message,metadata")
    assert [(2, "amount")] == told(await read(tmp_path, header, "1,500,000"))


async def test_a_column_nobody_knows_is_no_excuse(tmp_path: Path) -> None:
    """It may be a column for signatures that was left empty."""
    header = SHORT.replace("message", "signature")
    assert [(2, "amount"), (3, "amount")] == told(await read(tmp_path, header, "1,500", "12,750"))


async def test_more_cells_than_the_header_are_a_problem(tmp_path: Path) -> None:
    """An amount in the last column, or one with all the others behind it, makes a cell too many."""
    assert [(2, "")] == told(await read(tmp_path, SHORT.removesuffix(",message"), "1,500"))
    assert [(2, "")] == told(await read(tmp_path, SHORT, "1,500,March"))


async def test_a_column_of_codes_is_told_from_halves(tmp_path: Path) -> None:
    """Where whole amounts stand beside such numbers too, they are codes, and the rows are as good as ever."""
    batch = await read(tmp_path, CODES, "500,101,March", "2500,102,March", "750,103")
    assert ([], ["500", "2500", "750"]) == (told(batch), paid(batch))


async def test_a_full_row_that_reads_one_way_alone_is_paid(tmp_path: Path) -> None:
    """A bank's code of three digits beside a small amount: moved by a cell, the row would make no order."""
    header = "request_id,kind,name,phone,product_item_id,amount,bank_code,account_number,message"
    path = tmp_path / "bank.csv"
    path.write_text(f"{header}\nR-1,bank_transfer,Amber Brightwater,,BANK_BANK,500,001,0011195000016,March\n")
    batch = await read_batch(path)
    assert ([], ["500"]) == (told(batch), paid(batch))


@pytest.mark.parametrize("end", ["250,Rent 250", "250,", "250", '"1,500",250 books', "1.00,500", "1500,5 of 6"])
async def test_a_small_amount_before_words_is_paid(tmp_path: Path, end: str) -> None:
    """Nothing in it could be the rest of an amount."""
    assert [] == told(await read(tmp_path, SHORT, end))


async def test_other_delimiters_tear_nothing(tmp_path: Path) -> None:
    """Between semicolons a message of three digits is a message; and a comma for cents is refused as ever."""
    path = tmp_path / "batch.csv"
    person = PERSON.replace(",", ";")
    path.write_text(f"{SHORT.replace(',', ';')}\nR-1;{person};1;500\nR-2;{person};1500,50;\nR-3;{person};1.500;\n")
    assert [(3, "amount"), (4, "amount")] == told(await read_batch(path))


async def test_an_order_whose_amount_may_be_torn_is_left_out(tmp_path: Path) -> None:
    """The orders are walked through again, and it is not among them then either."""
    batch = await read(tmp_path, SHORT, "1,500", "2000,March")
    assert (1, 1, 1) == (len(batch.orders), len(list(batch.orders)), len(list(batch.orders)))

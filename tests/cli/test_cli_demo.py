"""The demo: whatever the faults and the seed, table and ledger agree, and it says so in every form."""

import json
from pathlib import Path

import pytest
from cli.commands import Run

HEADER = (
    "request_id,kind,amount,currency,name,phone_number,email_address,product_id,product_item_id,"
    "account_number,bank_code,customer_reference,area,message,metadata"
)
ITEM = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"


def batch(folder: Path, rows: int, *more: str) -> str:
    """A batch file of payouts to nobody."""
    lines = [
        f"D-{n:05},mobile_money,{n * 100}.50,UGX,Demo Person,+25677200{n:04},,,{ITEM},,,,,," for n in range(1, rows + 1)
    ]
    path = folder / "batch.csv"
    path.write_text("\n".join([HEADER, *lines, *more]), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "seed", ["1", pytest.param("2", marks=pytest.mark.slow), pytest.param("77", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("faults", ["none", "some", "many"])
async def test_every_run_ends_in_agreement(run: Run, faults: str, seed: str) -> None:
    """With any faults and any seed the ledger confirms the table: paid once each, nothing lost."""
    ran = await run("demo", "--faults", faults, "--seed", seed, "--json")
    assert (0, "") == (ran.status, ran.err)
    told = json.loads(ran.out)
    assert {"agrees": True, "disagreements": []} == {name: told["ledger"][name] for name in ("agrees", "disagreements")}
    assert 200 == told["orders"] == sum(outcome["orders"] for outcome in told["outcomes"].values())
    assert (faults == "none") == (told["outcomes"]["successful"]["orders"] == 200)


async def test_the_same_seed_meets_the_same_trouble(run: Run, tmp_path: Path) -> None:
    """What became of each order depends on the seed, not on the moment."""
    path = batch(tmp_path, 60)
    first, second = [json.loads((await run("demo", "--file", path, "--seed", "5", "--json")).out) for _ in range(2)]
    assert first["unknown"] == second["unknown"]
    assert {name: one["orders"] for name, one in first["outcomes"].items()} == {
        name: one["orders"] for name, one in second["outcomes"].items()
    }


async def test_a_pipe_gets_plain_lines(run_process: Run, tmp_path: Path) -> None:
    """Without a terminal there is no bar, no colour and no blank at the end of a line."""
    ran = await run_process("demo", "--file", batch(tmp_path, 40), "--faults", "none")
    assert 0 == ran.status
    assert "sent 40 of 40: accepted 40, rejected 0, unknown 0" in ran.out
    assert "The ledger agrees: 40 orders carried out, each once; 0 not at all; nothing lost" in ran.said
    assert not {"\x1b", "━", "\r"} & set(ran.out)
    assert [] == [line for line in ran.out.splitlines() if line != line.rstrip()]


async def test_a_terminal_gets_bars(run_on_terminal: Run, tmp_path: Path) -> None:
    """On a terminal bars move and the table is in colour; NO_COLOR leaves the colours out."""
    path = batch(tmp_path, 40)
    ran = await run_on_terminal("demo", "--file", path, TERM="xterm-256color")
    assert 0 == ran.status
    assert ["━", "\x1b[32m"] == [sign for sign in ("━", "\x1b[32m") if sign in ran.out]
    plain = await run_on_terminal("demo", "--file", path, TERM="xterm-256color", NO_COLOR="1")
    assert "\x1b[32m" not in plain.out


async def test_a_bad_file_names_every_bad_row(run: Run, tmp_path: Path) -> None:
    """All problems are told at once, each with its row and the remedy, and nothing is sent."""
    path = batch(
        tmp_path, 2,
        f"D-1,mobile_money,-5,UGX,Demo Person,+256772009998,,,{ITEM},,,,,,",
        f"D-2,mobile_money,5,UGX,Demo Person,2.56772E+11,,,{ITEM},,,,,,",
        f"D-00001,mobile_money,5,UGX,Demo Person,+256772009999,,,{ITEM},,,,,,",
    )  # fmt: skip
    ran = await run("demo", "--file", path)
    assert (2, "") == (ran.status, ran.out)
    for words in (
        "batch.csv has 3 problems; nothing was sent",
        "row 4, amount",
        "row 5, phone_number",
        "row 6, request_id",
    ):
        assert words in ran.err
    assert "+25677200999" not in ran.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "there is no file", id="missing"),
        pytest.param("", "batch.csv", id="empty"),
        pytest.param(HEADER, "there is no row to pay", id="header-only"),
    ],
)
async def test_a_file_without_orders_is_bad_input(run: Run, tmp_path: Path, content: str | None, words: str) -> None:
    """A file that is not there or holds nothing ends with 2, not with a table of nothing."""
    path = tmp_path / "batch.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    ran = await run("demo", "--file", str(path))
    assert (2, "") == (ran.status, ran.out)
    assert words in ran.said
    assert "Traceback" not in ran.err

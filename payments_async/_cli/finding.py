"""Orders found by the person they pay: a name, a telephone number, a staff number or any other cell of the file."""

from collections.abc import Sequence

from rich.text import Text

from payments_async._cli.batch_state import order_money
from payments_async._cli.screen import Screen, clean
from payments_async.journal import Entry, Journal, Run

_MOST = 200  # orders of which the latest are shown
_SHOWN = 20


async def found_by(journal: Journal, text: str, batch_id: str | None = None) -> Sequence[Entry]:
    """The orders that are meant by a text, the latest first."""
    found: list[Entry] = []
    async for entry in journal.find(text, batch_id):
        found = [*found[-_MOST + 1 :], entry]
    return found[::-1]


async def beside(screen: Screen, journal: Journal, entry: Entry, run: Run) -> str:
    """What the batch file says of an order beside it, as far as that may be shown; empty where nothing was kept."""
    told = await journal.particulars(entry.request_id)
    if told is None:
        return ""
    made = await journal.proposals(run.source_digest) if run.source_digest is not None else ()
    file = f" of {clean(made[-1].file)}" if made else ""
    cells = ", ".join(f"{clean(heading)} {screen.person(cell)}" for heading, cell in told.cells.items())
    return f"row {told.file_row}{file}{': ' if cells else ''}{cells}"


async def show_found(screen: Screen, journal: Journal, found: Sequence[Entry]) -> None:
    """Write orders to choose from."""
    rows: list[list[str | Text]] = [
        [
            entry.request_id,
            entry.batch_id,
            Text(entry.state, entry.state.meaning.colour),
            await order_money(journal, entry),
            screen.person(entry.order.beneficiary.name),
        ]
        for entry in found[:_SHOWN]
    ]
    screen.table(["Request id", "Batch", "Outcome", "Amount", "Beneficiary"], rows, right=["Amount"])
    if len(found) > _SHOWN:
        screen.say(f"and {len(found) - _SHOWN:,} more; --json shows them")


def found_document(found: Sequence[Entry]) -> list[dict[str, object]]:
    """Orders for machines, without the persons they pay."""
    return [
        {"request_id": one.request_id, "batch_id": one.batch_id, "state": one.state, "amount": one.amount}
        for one in found
    ]

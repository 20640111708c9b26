"""The one table of status codes, against everything that reads its rows by name."""

import pytest

from payments_async import TransactionStatus
from payments_async._wire.events import EVENT_TYPES
from payments_async._wire.status_codes import FINAL_CODES, STATUS_CODES, UNRECOGNISED, StatusCode
from payments_async.journal import Signal

ROWS = [*STATUS_CODES.values(), UNRECOGNISED]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.event)
def test_what_a_row_names_is_there(row: StatusCode) -> None:
    """The news is one of the journal's, and the status, where there is one, one of the records'."""
    assert row.signal in set(Signal)
    assert row.status is None or TransactionStatus[row.status].is_final == row.is_final


def test_each_code_becomes_an_event_of_its_own() -> None:
    """No two codes become the same event, and none the event of unknown codes."""
    assert [row.event for row in STATUS_CODES.values()] == [kind.__name__ for kind in EVENT_TYPES.values()]
    assert len({row.event for row in ROWS}) == len(ROWS)


def test_success_and_error_are_final() -> None:
    """Processing is not, nor is a code that nobody documented."""
    assert FINAL_CODES == (0, 2)

"""Which status is believed of filtered lists: only one that a single, whole list shows, of a service that filters."""

from datetime import date
from typing import Any

import attrs
import pytest
from session.wires import Times

from payments_async import Page, Rejected, ServiceFault, Transaction, TransactionStatus
from payments_async._session.lists import Reader
from payments_async._session.statuses import Statuses, read_statuses

DAYS = date(2026, 1, 4), date(2026, 1, 6)
SUCCESSFUL, FAILED = TransactionStatus.SUCCESSFUL, TransactionStatus.FAILED


@attrs.define
class Filters:
    """What a service shows by the word of a filter; without one, everything.

    Attributes:
        under: Transactions by word; a count of rows that is wrong stands behind a slash, ``!`` is a fault.
        unknown: What it shows for any other word; ``None`` refuses it.
        all: What it shows without a word.
        asked: The words it was asked for.
    """

    under: dict[str, str]
    unknown: str | None = ""
    all: str = "abcdef"
    asked: list[str | None] = attrs.field(factory=list)

    async def page(self, *, number: int, size: int, since: Any, until: Any, status: str | None) -> Page[Transaction]:
        """One page; there is no second."""
        self.asked.append(status)
        shown = self.all if status is None else self.under.get(status, self.unknown)
        if shown is None:
            raise Rejected("no such status")
        if shown == "!":
            raise ServiceFault("not now")
        ids, _, total = shown.partition("/")
        rows = [Transaction(transaction_id=id_) for id_ in ids] if number == 1 else []
        return Page(collection=tuple(rows), total_count=int(total or len(ids)))


async def asked(filters: Filters, times: Times, ids: str = "abc", **settings: Any) -> Statuses:
    """The statuses of these."""
    reader = Reader(filters.page, clock=times.clock, sleep=times.sleep)
    return await read_statuses(reader, *DAYS, ids, **settings)


BELIEVED = {
    "one list each": (Filters({"SUCCESSFULL": "ad", "FAILED": "b", "PROCESSING": "c"}), {"a": SUCCESSFUL, "b": FAILED}),
    "refuses the unknown": (
        Filters({"COMPLETED": "a", "FAILURE": "b"}, None),
        {"a": SUCCESSFUL, "b": FAILED},
    ),
    "two words for one list": (Filters({"SUCCESSFULL": "a", "SUCCESS": "a"}), {"a": SUCCESSFUL}),
    "part of the status in another word": (Filters({"FAILED": "a", "FAILURE": "b"}), {"a": FAILED, "b": FAILED}),
    "other letters": (Filters({"FAILED": "A"}, all="ABC"), {"a": FAILED}),
}
# what is asked for -> what is said of it
DOUBTED = {
    "shows everything for any word": (Filters({}, "abcdef"), "of a status that does not exist"),
    "counts rows for any word": (Filters({"FAILED": "a"}, "/6"), "of a status that does not exist"),
    "fails for any word": (Filters({"FAILED": "a"}, "!"), "could not be asked"),
    "one under two": (Filters({"SUCCESSFULL": "ab", "FAILED": "b"}), "listed as FAILED and SUCCESSFULL"),
    "a stranger under two": (Filters({"SUCCESSFULL": "af", "FAILED": "bf"}), "listed as FAILED and SUCCESSFULL"),
    "ended and under way": (Filters({"SUCCESSFULL": "ab", "PENDING": "b"}), "listed as PROCESSING and SUCCESSFULL"),
    "one list cut off": (Filters({"SUCCESSFULL": "a", "REVERSED": "d/9"}), "it showed 1 of 9 rows"),
    "one list that fails": (Filters({"SUCCESSFULL": "a", "FAILURE": "!"}), "FAILURE transactions .* could not be read"),
    "one list cut off of those under way": (Filters({"SUCCESSFULL": "a", "PENDING": "d/9"}), "it showed 1 of 9 rows"),
    "only with a filter": (Filters({"FAILED": "a"}, all="bc"), "are listed only with a filter"),
}


@pytest.mark.parametrize("how", BELIEVED)
async def test_statuses_that_are_believed(times: Times, how: str) -> None:
    """Each order stands in the list of one status, whatever words the service has for it."""
    filters, expected = BELIEVED[how]
    statuses = await asked(filters, times)
    assert (expected, (), True) == (statuses.found, statuses.notes, statuses.are_filters)


@pytest.mark.parametrize("how", DOUBTED)
async def test_statuses_that_are_not_believed(times: Times, how: str) -> None:
    """None at all, for whatever order; and the reason is told."""
    filters, words = DOUBTED[how]
    statuses = await asked(filters, times)
    assert {} == statuses.found
    with pytest.raises(AssertionError, match=words):
        raise AssertionError("; ".join(statuses.notes))


async def test_one_bad_pair_does_not_discredit_the_others(times: Times) -> None:
    """Only the two statuses that share an order are believed for nothing."""
    statuses = await asked(Filters({"SUCCESSFULL": "ad", "FAILED": "bd", "REVERSED": "c"}), times)
    assert {"c": TransactionStatus.REVERSED} == statuses.found


async def test_a_service_that_stops_filtering_meanwhile(times: Times) -> None:
    """A status that does not exist is asked for again before anything is believed."""

    class Turncoat(Filters):
        async def page(self, **how: Any) -> Page[Transaction]:  # type: ignore[override]
            if len(self.asked) >= 12:
                self.unknown = self.all
            return await super().page(**how)

    statuses = await asked(Turncoat({"FAILED": "a"}), times)
    assert ({}, False) == (statuses.found, statuses.are_filters)


async def test_what_is_asked_where_nothing_has_ended(times: Times) -> None:
    """The lists of what is under way say nothing then, and are not read."""
    filters = Filters({"PROCESSING": "abc"})
    assert {} == (await asked(filters, times, is_known=True)).found
    assert {word for status in TransactionStatus if status.is_final for word in status.spellings} == set(filters.asked)

"""What status the filtered lists show for transactions, believed only of a service that demonstrably filters.

A service that does not know a word of a filter may silently show everything, or nothing; then every order would look
failed. So a status that does not exist is asked for first and last: where rows come back, no filter is believed. All
words that were ever met are asked for, each list to its end. What two statuses show discredits both. And what is
believed has to stand in the list without a filter, before and after.
"""

from __future__ import annotations

import secrets
import string
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import aclosing
from datetime import date

from payments_async._session.lists import Reader, Reading
from payments_async._values.frozen import field, frozen
from payments_async._values.spill import SpillTable, ids, paged
from payments_async._wire.models import TransactionStatus

# The latest in the life of a transaction first: one that moves on while the lists are read is in none then, not in two.
_FINAL = (TransactionStatus.REVERSED, TransactionStatus.SUCCESSFUL, TransactionStatus.FAILED)
_OPEN = (TransactionStatus.PROCESSING, TransactionStatus.ENQUEUED)
_LETTERS = 12


def _statuses() -> SpillTable[TransactionStatus]:
    """Statuses by transaction id, in small letters."""
    return SpillTable(lambda status: (status.value,), lambda _, columns: _NAMED[columns[0]], 1)


_NAMED = {status.value: status for status in TransactionStatus}


@frozen(kw_only=True)
class Statuses:
    """What the filtered lists came to.

    Attributes:
        found: Those with an end, by transaction id, in small letters; only of those that were asked about.
        under_way: Those of them that are listed as having none yet, where those lists were read.
        notes: What hinders, in words.
        are_filters: Whether the service was seen to filter; ``None`` when it could not be asked.
    """

    found: SpillTable[TransactionStatus] = field(factory=_statuses)
    under_way: SpillTable[TransactionStatus] = field(factory=_statuses)
    notes: tuple[str, ...] = ()
    are_filters: bool | None = None


class Sightings:
    """What each filter has shown. Decides what of it is believed."""

    def __init__(self) -> None:
        self._under = _statuses()
        self.discredited: set[TransactionStatus] = set()

    def note(self, status: TransactionStatus, transaction_ids: Iterable[str]) -> None:
        """These are listed under that status. One that is listed under another as well discredits both."""
        small = dict.fromkeys(map(_small, transaction_ids), status)
        known = self._under.find(small)
        for other in known.values():
            if other is not status:
                self.discredited |= {other, status}
        self._under.put({id_: status for id_ in small if id_ not in known})

    def has(self, status: TransactionStatus, transaction_ids: Iterable[str]) -> bool:
        """Whether all of these are listed under that status."""
        small = set(map(_small, transaction_ids))
        known = self._under.find(small)
        return len(known) == len(small) and all(other is status for other in known.values())

    def doubts(self, days: str) -> list[str]:
        """Which lists are not believed, in words."""
        names = " and ".join(sorted(self.discredited))
        return [f"transactions from {days} are listed as {names}, so neither list is believed"] if names else []

    def believed(self, transaction_ids: Iterable[str]) -> dict[str, TransactionStatus]:
        """The status of each of these, in small letters, where it has one."""
        known = self._under.find(transaction_ids)
        return {id_: status for id_, status in known.items() if status not in self.discredited}

    def count(self, transaction_ids: Iterable[str]) -> Counter[bool]:
        """How many of these have a status that is believed, by whether it is final."""
        counts: Counter[bool] = Counter()
        for page in paged(transaction_ids):
            counts.update(status.is_final for status in self.believed(page).values())
        return counts


async def is_filtered(reader: Reader, since: date | None, until: date | None) -> bool | None:
    """Whether a status that does not exist shows nothing, or is refused; ``None`` when it cannot be asked.

    To be asked where the list without a filter shows something, or the answer means nothing.
    """
    word = "".join(secrets.choice(string.ascii_uppercase) for _ in range(_LETTERS))
    reading = reader.read(since, until, word)
    async with aclosing(reading.pages()) as pages:
        async for _ in pages:
            return False
    if reading.refused:
        return True
    if reading.expected:
        return False  # it counts rows that it does not show
    return True if reading.problem is None else None


async def read_statuses(
    reader: Reader,
    since: date,
    until: date,
    transaction_ids: Iterable[str],
    *,
    is_known: bool = False,
    under_way: bool = False,
) -> Statuses:
    """The final status of transactions that the list without a filter has just shown.

    Args:
        since, until: The days of that list.
        is_known: The service was seen to filter a moment ago: it is asked again only before anything is believed.
        under_way: Also where none of them has an end, read the lists of those that have none yet.
    """
    wanted, days = ids(), _days(since, until)
    for page in paged(transaction_ids):
        wanted.put(dict.fromkeys(map(_small, page)))
    if not is_known and (are_filters := await is_filtered(reader, since, until)) is not True:
        return Statuses(are_filters=are_filters, notes=(_DISBELIEVED[are_filters].format(days=days),))
    sightings, notes = await _sightings(reader, since, until, wanted, under_way=under_way)
    counts = sightings.count(wanted)
    if notes or not (under_way or counts[True]):  # an id might be in the part of a list that is missing, too
        return Statuses(notes=(*notes, *sightings.doubts(days)), are_filters=True)
    if (are_filters := await is_filtered(reader, since, until)) is not True:
        return Statuses(are_filters=are_filters, notes=(_DISBELIEVED[are_filters].format(days=days),))
    found, still_under_way = await _still(reader.read(since, until), wanted, sightings, counts.total())
    notes, missing = [*sightings.doubts(days)], counts.total() - len(found) - len(still_under_way)
    if missing:
        notes.append(f"{missing} transactions from {days} are listed only with a filter")
    return Statuses(found=found, under_way=still_under_way, notes=tuple(notes), are_filters=True)


async def _sightings(
    reader: Reader, since: date, until: date, wanted: Collection[str], *, under_way: bool
) -> tuple[Sightings, list[str]]:
    """What all filters show, and why some say nothing.

    Those of no end are asked only where others show an end, or where somebody wants to know who is under way.
    """
    sightings, notes = Sightings(), list[str]()
    for group in (_FINAL, _OPEN):
        for status in group:
            for word in status.spellings:
                problem = await _read(reader.read(since, until, word), status, sightings)
                if problem is not None:
                    notes.append(f"the list of {word} transactions from {_days(since, until)}: {problem}")
        if not (under_way or sightings.count(wanted)):
            break
    return sightings, notes


_DISBELIEVED = {
    False: "the list from {days} shows transactions of a status that does not exist, so no status is believed of it",
    None: "whether the list from {days} knows any status could not be asked, so none is believed of it",
}


def _small(transaction_id: str) -> str:
    """It in small letters, and the very text where it is: a second one of each would cost as much as all the rest."""
    small = transaction_id.lower()
    return transaction_id if small == transaction_id else small


def _days(since: date, until: date) -> str:
    return f"{since.isoformat()} to {until.isoformat()}"


async def _read(reading: Reading, status: TransactionStatus, sightings: Sightings) -> str | None:
    """Note what a list shows; why it says nothing, if it was not read to its end."""
    first = True
    async with aclosing(reading.pages()) as pages:
        async for rows in pages:
            shown = [row.transaction_id for row in rows]
            if first and sightings.has(status, shown):
                return None  # another word for the same list
            first = False
            sightings.note(status, shown)
    if reading.refused:
        return None  # not one of its words
    if reading.problem is None and not reading.counted:
        return "the service does not say how many rows there are"
    return reading.problem


async def _still(
    reading: Reading, wanted: SpillTable[None], sightings: Sightings, count: int
) -> tuple[SpillTable[TransactionStatus], SpillTable[TransactionStatus]]:
    """Those that are believed to have ended, and to be under way, and that a list shows as well.

    Args:
        count: How many are believed; the list is read no further than until all of them are seen.
    """
    ended, under_way = _statuses(), _statuses()
    async with aclosing(reading.pages()) as pages:
        async for rows in pages:
            shown = sightings.believed(wanted.find({row.transaction_id.lower() for row in rows}))
            ended.put({id_: status for id_, status in shown.items() if status.is_final})
            under_way.put({id_: status for id_, status in shown.items() if not status.is_final})
            if len(ended) + len(under_way) == count:
                break
    return ended, under_way


async def listed(reading: Reading, transaction_ids: set[str]) -> set[str]:
    """Those of these ids, in small letters, that a list shows. It is read no further than it has to be."""
    found: set[str] = set()
    async with aclosing(reading.pages()) as pages:
        async for rows in pages:
            found |= {row.transaction_id.lower() for row in rows} & transaction_ids
            if found == transaction_ids:
                break
    return found

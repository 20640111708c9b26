"""A time line in three columns: what was done to the processes and what they said, the service, and the journal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

_WIDTHS = (46, 30, 30)  # of the columns, beside nine signs for the time
_COLUMNS = {"service": 1, "<service>": 1, "journal": 2}


def drawn(line: Sequence[tuple[float, str, str]]) -> Iterator[str]:
    """Each happening in its column, at most 120 signs wide."""
    heads = ("applications, batches, a person", "the service", "the journal")
    yield " " * 10 + " ".join(head.ljust(width) for head, width in zip(heads, _WIDTHS, strict=True)).rstrip()
    for at, who, what in line:
        column = _COLUMNS.get(who, 0)
        text = what if column or not who else f"{who.strip('<>')}: {what}"
        before = " " * sum(width + 1 for width in _WIDTHS[:column])
        for number, part in enumerate(textwrap.wrap(_short(text), _WIDTHS[column]) or [""]):
            yield (f"{at:9.2f} " if not number else " " * 10) + before + part


def _short(text: str) -> str:
    """Without what all ids have in common."""
    return text.replace("salaries-2026-11-", "#").replace("SALARIES-2026-11-", "##")[:400]

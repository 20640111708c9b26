"""Days, as options of commands take them."""

from datetime import UTC, datetime
from functools import partial

import typer


def _read_day(text: str) -> datetime:
    """A day as it is written.

    Raises:
        BadParameter: It is written otherwise.
    """
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a day; write it as in 2026-11-22") from error


day = partial(typer.Option, parser=_read_day, metavar="DATE")

"""Orders that are not to be sent after all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from payments_async._cli.exit_codes import Exit
from payments_async._cli.screen import Screen, clean, counted, quoted
from payments_async.journal import Entry, Journal, JournalRefused, State

_AT_ONCE = 500  # in a commit or two


async def cancel_all(screen: Screen, journal: Journal, request_ids: Sequence[str], *, who: str, why: str) -> Exit:
    """Cancel what was not sent yet, and tell what could not be cancelled."""
    done: list[Entry] = []
    refused: list[tuple[str, str]] = []
    for first in range(0, len(request_ids), _AT_ONCE):
        some = request_ids[first : first + _AT_ONCE]
        cancelling = [journal.cancel(one, who=who, why=why) for one in some]
        for request_id, found in zip(some, await asyncio.gather(*cancelling, return_exceptions=True), strict=True):
            if isinstance(found, Entry):
                done.append(found)
            elif isinstance(found, JournalRefused):
                refused.append((request_id, found.message))
            else:
                raise found
    never = [entry for entry in done if entry.state is State.CANCELLED]
    parked = [entry for entry in done if entry.state is not State.CANCELLED]
    if never:
        screen.say(f"never sent, as {quoted(who)} states: {counted(len(never), 'order')}: {quoted(why)}")
    if parked:
        words = "not sent again; the first time it may have been paid"
        screen.listing(f"[bold yellow]{words}[/]", [clean(entry.request_id) for entry in parked], len(parked))
    if refused:
        screen.listing("[bold red]not cancelled[/]", [clean(words) for _, words in refused], len(refused))
    document = {
        "cancelled": [entry.request_id for entry in never],
        "parked": [entry.request_id for entry in parked],
        "refused": [{"request_id": request_id, "why": words} for request_id, words in refused],
        "who": who,
        "why": why,
    }
    status = Exit.UNKNOWN if parked else Exit.FAILED if refused else Exit.FINE
    return screen.ended(status, document)

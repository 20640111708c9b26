"""aioresponses under an aiohttp that is newer than it."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import aioresponses.core
from aiohttp import ClientResponse


class _Unwritten(ClientResponse):
    """An answer to a request that nobody wrote: aiohttp 3.14 wants to know the writer, and aioresponses has none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("stream_writer", SimpleNamespace(output_size=0))
        super().__init__(*args, **kwargs)


def mend() -> None:
    """Have aioresponses make answers that this aiohttp takes; one that already does stays as it is."""
    core = vars(aioresponses.core)
    asks = "stream_writer" in inspect.signature(ClientResponse.__init__).parameters
    is_told = "stream_writer" in inspect.getsource(aioresponses.core)  # by a later aioresponses
    if asks and not is_told and core["ClientResponse"] is ClientResponse:
        core["ClientResponse"] = _Unwritten

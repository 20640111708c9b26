"""What every test needs: aioresponses that works with the installed aiohttp."""

import inspect
from typing import Any
from unittest.mock import Mock

import aiohttp
import aioresponses.core


class AnswerWithoutWriter(aiohttp.ClientResponse):
    """An answer to a request that was never written: aiohttp 3.14 wants the writer, aioresponses has none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("stream_writer", Mock(output_size=0))
        super().__init__(*args, **kwargs)


if "stream_writer" in inspect.signature(aiohttp.ClientResponse.__init__).parameters:
    aioresponses.core.ClientResponse = AnswerWithoutWriter

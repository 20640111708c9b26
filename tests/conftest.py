"""What every test needs: aioresponses that works with the installed aiohttp, and examples that may take their time."""

import inspect
from typing import Any
from unittest.mock import Mock

import aiohttp
import aioresponses.core
from hypothesis import HealthCheck, settings

# a machine that others use too has slow moments
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


class AnswerWithoutWriter(aiohttp.ClientResponse):
    """An answer to a request that was never written: aiohttp 3.14 wants the writer, aioresponses has none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("stream_writer", Mock(output_size=0))
        super().__init__(*args, **kwargs)


if "stream_writer" in inspect.signature(aiohttp.ClientResponse.__init__).parameters:
    aioresponses.core.ClientResponse = AnswerWithoutWriter

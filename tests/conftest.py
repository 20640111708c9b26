"""What every test needs: aioresponses that works here, examples that may take their time, a state folder of its own."""

import inspect
from typing import Any
from unittest.mock import Mock

import aiohttp
import aioresponses.core
import pytest
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


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches what this machine remembers of its user's journals, nor what another test left there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state", numbered=True)))

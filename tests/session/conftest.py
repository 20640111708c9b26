"""A lying server, a sandbox, a clock, and sessions that close themselves."""

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from nested import for_sandbox, for_session
from session.wires import SECRET, Times, Wire, credentials

from payments_async import PaymentsSession, RetryPolicy
from payments_async.sandbox import ManualClock, Quirks, Sandbox

Open = Callable[..., Awaitable[PaymentsSession]]
OpenSandbox = Callable[..., Awaitable[Sandbox]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Closes what a test has opened."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def times() -> Times:
    """A clock that moves by sleeping."""
    return Times()


@pytest.fixture
async def wire(stack: AsyncExitStack) -> Wire:
    """A server that lies as it is told."""
    return await stack.enter_async_context(Wire())


@pytest.fixture
async def opened(stack: AsyncExitStack, times: Times) -> Open:
    """Open a session to a lying server or a sandbox; two attempts, and a clock that moves by sleeping."""

    async def open_(place: Wire | Sandbox | str, **settings: Any) -> PaymentsSession:
        base_url = place if isinstance(place, str) else place.base_url
        who = credentials(place) if isinstance(place, Sandbox) else SECRET
        plain: dict[str, Any] = {
            "retry": RetryPolicy(attempts=2, wait_initial=0.5),
            "timeout": aiohttp.ClientTimeout(total=60.0),
            "clock": times.clock,
            "sleep": times.sleep,
        }
        return await stack.enter_async_context(PaymentsSession(base_url, who, **for_session(plain | settings)))

    return open_


@pytest.fixture
async def payments(opened: Open, wire: Wire) -> PaymentsSession:
    """A session to it."""
    return await opened(wire)


@pytest.fixture
async def opened_sandbox(stack: AsyncExitStack) -> OpenSandbox:
    """Open a sandbox whose clock stands still, with quirks by name."""

    async def open_(quirks: dict[str, Any] | None = None, **settings: Any) -> Sandbox:
        settings = {"clock": ManualClock()} | settings
        return await stack.enter_async_context(Sandbox(quirks=Quirks(**quirks or {}), **for_sandbox(settings)))

    return open_


@pytest.fixture
async def sandbox(opened_sandbox: OpenSandbox) -> Sandbox:
    """A sandbox without quirks."""
    return await opened_sandbox()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificate (``cert.pem``) and key (``key.pem``) of 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("certificates")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*command.split(), *files], cwd=folder, check=True, capture_output=True)
    return folder

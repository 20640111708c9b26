"""A real browser without a window, for the tests of pages: Debian's Chromium, told what to do over its own protocol."""

import asyncio
import base64
import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")  # the first needs no desktop
PROGRAM = next(filter(None, map(shutil.which, _NAMES)), None)
needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason="NO BROWSER: pages are not tried; `apt-get install chromium-headless-shell` and once more"
)
_PATIENCE = 60.0


class PageLeft(Exception):
    """The browser went to another page before it answered."""


class Tab:
    """One page in the browser.

    Attributes:
        complaints: What the browser said on its console: errors of scripts, and what the page's policy refused.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []

    async def tell(self, method: str, **parameters: Any) -> Any:
        """Have the browser do something, and wait for its answer."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(_PATIENCE):
            while True:
                said = await self._socket.receive_json()
                if said.get("id") == number:
                    if "navigated" in said.get("error", {}).get("message", ""):
                        raise PageLeft
                    assert "error" not in said, said["error"]
                    return said["result"]
                self._hear(said)

    def _hear(self, said: Any) -> None:
        match said.get("method"):
            case "Log.entryAdded":
                self.complaints.append(said["params"]["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(said["params"]["exceptionDetails"]))
            case _:
                pass

    async def open(self, address: str) -> None:
        """Go to an address, and wait until the page is there."""
        await self.tell("Page.navigate", url=address)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def value(self, expression: str) -> Any:
        """What an expression of JavaScript comes to on this page; ``None`` while there is none or it was left."""
        try:
            found = await self.tell("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        except PageLeft:
            return None
        return found["result"].get("value")

    async def until(self, expression: str, is_good: Callable[[Any], bool] = bool) -> Any:
        """Wait until an expression comes to what is good."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                if is_good(found := await self.value(expression)):
                    return found
                await self.value("new Promise((done) => setTimeout(done, 50))")

    async def words(self) -> str:
        """All that somebody can read on the page."""
        return " ".join(str(await self.value("document.body.innerText")).split())

    async def screenshot(self, path: Path) -> None:
        """Keep what the page looks like."""
        taken = await self.tell("Page.captureScreenshot", captureBeyondViewport=True)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(taken["data"]))

    async def looks(self, *, width: int, dark: bool = False) -> None:
        """Be so wide, and dark or light."""
        await self.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        await self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def press(self, key: str) -> None:
        """Press a key, and let it go: a character, ``Tab`` or ``Enter``."""
        codes = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}
        code, text = codes.get(key, (0, key))
        about = {"key": key, "windowsVirtualKeyCode": code}
        await self.tell("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        await self.tell("Input.dispatchKeyEvent", type="keyUp", **about)

    async def type(self, text: str) -> None:
        """Type a text where the focus is."""
        await self.tell("Input.insertText", text=text)

    async def pages_of_print(self, path: Path) -> int:
        """Print the page to a PDF, and tell how many sheets that takes."""
        printed = await self.tell("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        body = base64.b64decode(printed["data"])
        await asyncio.to_thread(path.write_bytes, body)
        return len(re.findall(rb"/Type\s*/Page\b", body))


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Tab]:
    """A browser with one page, whose profile is in a folder.

    Args:
        folder: Where the profile is, and what it downloads.
    """
    assert PROGRAM is not None
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder / 'profile'}",
        "about:blank",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        port = await _port(process)
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{port}/json/list") as answer,
        ):
            pages = [one for one in await answer.json() if one["type"] == "page"]
            async with http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                for room in ("Page", "Log", "Runtime"):
                    await tab.tell(f"{room}.enable")
                yield tab
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its helpers too: what they hold open is waited for
        await process.wait()


async def _port(process: asyncio.subprocess.Process) -> int:
    """Where the browser listens, once it says so."""
    assert process.stderr is not None
    async with asyncio.timeout(_PATIENCE):
        while line := await process.stderr.readline():
            if found := re.search(rb"ws://127\.0\.0\.1:(\d+)/", line):
                return int(found[1])
    raise AssertionError("the browser ended before it listened")

"""What tests of the demo share: its batch files, and a look at what an unfinished one left."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cli.commands import started

HEADER = (
    "request_id,kind,amount,currency,name,phone_number,email_address,product_id,product_item_id,"
    "account_number,bank_code,customer_reference,area,message,metadata"
)
ITEM = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"


def batch(folder: Path, rows: int, *more: str, name: str = "batch.csv") -> str:
    """A batch file of payouts to nobody."""
    lines = [
        f"D-{n:05},mobile_money,{n * 100}.50,UGX,Demo Person,+25677200{n:04},,,{ITEM},,,,,," for n in range(1, rows + 1)
    ]
    path = folder / name
    path.write_text("\n".join([HEADER, *lines, *more]), encoding="utf-8")
    return str(path)


async def killed(*arguments: str, when: Callable[[], bool], number: int = signal.SIGKILL) -> tuple[int | None, str]:
    """Start the demo, and send it a signal as soon as something holds. Its status, and all it said."""
    process = await started(None, "demo", *arguments)
    async with asyncio.timeout(120):
        while not when():  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.01)
    process.send_signal(number)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode, " ".join((out + err).decode().split())


class Left:
    """What a demo left in its directory, and the service that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def state(self) -> dict[str, Any]:
        """How far it says it is; empty before it says anything."""
        path = self.folder / "demo.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    @property
    def is_served(self) -> bool:
        """Whether it has started its service."""
        return bool(self.state.get("service"))

    def ledger(self) -> list[str]:
        """The request ids its service has carried out, each as often as it was; none without a service."""
        if not self.is_served:
            return []
        try:
            answer = json.loads(self.ask("ledger"))
        except (urllib.error.URLError, ConnectionError):
            return []
        return [row["request_id"] for row in answer["executions"]]

    def ask(self, path: str, body: bytes | None = None) -> bytes:
        """Ask its service at the control interface."""
        address = f"{self.state['service']['base_url']}/_sandbox/{path}"
        with urllib.request.urlopen(address, body, 10) as answer:  # noqa: S310 - it is http, on this machine
            return bytes(answer.read())

    def end(self) -> None:
        """End its service, if there is one."""
        if self.is_served:
            with suppress(urllib.error.URLError, ConnectionError):
                self.ask("end", b"")

"""The service of a soak, in a process of its own: what it remembers of every order is none of the package's memory."""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from payments_async.sandbox import Fault, Sandbox

FAULTS = {
    Fault.LOST_BEFORE: 0.005, Fault.LOST_AFTER: 0.01, Fault.ERROR_BEFORE: 0.005, Fault.ERROR_AFTER: 0.01,
    Fault.TRUNCATED: 0.01, Fault.HTML: 0.01, Fault.GARBAGE: 0.01, Fault.WRONG_ECHO: 0.005, Fault.REFUSED: 0.02,
    Fault.REFUSED_200: 0.01, Fault.RATE_LIMITED: 0.002, Fault.TOKEN_REVOKED: 0.005, Fault.SLOW: 0.02, Fault.FAILS: 0.03,
    Fault.NOTIFY_EARLY: 0.05, Fault.NOTIFY_LATE: 0.05, Fault.NOTIFY_REPEATED: 0.05, Fault.NOTIFY_REORDERED: 0.03,
    Fault.NOTIFY_LOST: 0.02,
}  # fmt: skip


async def serve(ipn_url: str) -> None:
    """Serve until the other end of standard input is gone; say where."""
    async with Sandbox(processing_delay=0.05, ipn_url=ipn_url) as sandbox:
        sandbox.chaos(FAULTS, seconds=0.1)
        who = {"app_key": sandbox.app_key, "app_password": sandbox.app_password, "user_id": sandbox.user_id}
        print(json.dumps({"base": sandbox.base_url, "who": who}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        counts = Counter(execution.request_id for execution in sandbox.ledger)
        twice = [request_id for request_id, count in counts.items() if count > 1]
        print(json.dumps({"twice": twice, "once": len(counts)}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))

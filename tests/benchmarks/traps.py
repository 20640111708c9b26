"""Traps: batch files that are made to fill the memory or to take for ever, and workbooks spoiled at random.

    python tests/benchmarks/traps.py                 each trap: seconds, mebibytes, and what is said of it
    python tests/benchmarks/traps.py --fuzz 400      spoiled workbooks: how many were read, and how many bad input

The exit code is 1 when anything but bad input is raised, or more than 1,500 MiB are taken.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bulk.traps import TRAPS, spoiled_workbooks

from payments_async.bulk import read_batch

MOST = 1500  # mebibytes
_READ = """
import asyncio, resource, sys
from payments_async.bulk import read_batch
try:
    batch = asyncio.run(read_batch(sys.argv[1]))
    print(f"{len(batch.orders):,} orders, {len(batch.problems):,} problems", end="")
    print(*(f": {problem.remedy}" for problem in batch.problems[:1]))
except ValueError as error:
    print(error)
used = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(max(used) // 1024)
"""


def measure(name: str, path: Path) -> bool:
    """Read a trap in a process of its own; tells whether all went well."""
    began = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    *said, memory = ran.stdout.splitlines() or ["", "0"]
    words = " ".join(said) if not ran.returncode else ran.stderr.strip().splitlines()[-1]
    print(
        f"{name:38} {path.stat().st_size / 2**20:9.2f} MiB {seconds:7.1f} s {memory:>6} MiB  {words[:110]}", flush=True
    )
    return not ran.returncode and int(memory) < MOST


async def fuzz(times: int, seed: int, folder: Path) -> None:
    """Read spoiled workbooks. Anything but bad input ends it."""
    told: Counter[str] = Counter()
    for path in spoiled_workbooks(folder / "spoiled.xlsx", times, seed):
        try:
            batch = await read_batch(path)
        except ValueError as error:
            told[str(error).partition(";")[0]] += 1
        else:
            told["read, with problems" if batch.problems else "read"] += 1
    for words, count in told.most_common():
        print(f"{count:6,}  {words}")


def main() -> int:
    """Run what was asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--fuzz", type=int, default=0, metavar="TIMES")
    options.add_argument("--seed", type=int, default=16)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if chosen.fuzz:
            asyncio.run(fuzz(chosen.fuzz, chosen.seed, folder))
            return 0
        fine = True
        for words, make in TRAPS.items():
            path = make(folder / "trap")
            fine = measure(words, path) and fine
            path.unlink()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

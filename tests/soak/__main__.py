"""A soak for as long as one likes: `python tests/soak --minutes 60`. The exit code is 1 when something grows."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from operator import attrgetter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from soak.soaking import Sample, judge, slope, soak


def main() -> int:
    """Soak; a line for each thousand orders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--orders", type=int, default=12_000, help="at least so many; of fewer caches still grow")
    asked = parser.parse_args()

    def tell(sample: Sample) -> None:
        if sample.orders % 1000 == 0:
            print(sample, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(soak(Path(folder), seconds=60 * asked.minutes, least=asked.orders, told=tell))
    late = found.samples[len(found.samples) // 2 :]
    print(f"{found.verdict['once']:,} carried out; {found.told:,} changes and {found.heard:,} notifications handled")
    print(found.states)
    for name in Sample._fields[1:]:
        print(f"{name}: {slope(late, attrgetter(name)):+.4f} with each order of the second half")
    problems = judge(found)
    if not found.told >= found.verdict["once"] > 0 or not found.heard:
        problems.append("handlers were not told of everything that was carried out")
    print(*problems, sep="\n")
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())

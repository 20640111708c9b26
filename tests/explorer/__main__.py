"""Explore small worlds to their end.

tests/explore                       the worlds that are explored by default
tests/explore "a copy" "a person"   these
tests/explore --large               the large ones as well: minutes

A world is explored until a state is wrong: then the steps that lead there are told; no fewer do.
`nox -s mutation -- --judges explorer` breaks one guard after the other, and tells which of them are noticed.
"""

from __future__ import annotations

import argparse
import logging
import sys

from explorer import desks
from explorer.plans import BY_NAME, DEFAULT, DESKS, LARGE, WIRES
from explorer.searches import search


def main() -> int:
    """Explore what the arguments say; 1 where a state is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BY_NAME))
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--most", type=int, help="states, after which a world is left")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    plans = [BY_NAME[name] for name in chosen.names]
    plans = plans or [*DEFAULT, *(LARGE if chosen.large else ())]
    is_wrong = False
    for said in () if chosen.names else (*(look() for look in WIRES), *(desks.search(make()) for make in DESKS)):
        is_wrong |= bool(said.wrong)
        print(said, flush=True)
    for plan in plans:
        report = search(plan, most=chosen.most)
        is_wrong |= bool(report.wrong)
        print(report, flush=True)
        if report.wrong:
            break
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())

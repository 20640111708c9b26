"""Fuzzing for as long as one likes.

    python tests/fuzz --minutes 60              every parser in turn, with examples that are drawn
    python tests/fuzz --minutes 5 amounts       one of them
    python tests/fuzz --minutes 60 --guided     with examples that reach new lines, by atheris, where it is installed

The exit code is 1 when a parser broke; each way it did is shown once, with the smallest example.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

_TURN = 5.0  # seconds of one target, before it is the next one's turn


def drawn(names: list[str], minutes: float) -> int:
    """Let each target have its turn until time is up; tells how many broke."""
    from fuzz.bouts import bout
    from fuzz.targets import TARGETS

    until, examples, broken = time.monotonic() + 60 * minutes, Counter[str](), dict[str, str]()
    sizes = dict.fromkeys(names or TARGETS, 20)
    while time.monotonic() < until:
        for name in set(sizes) - set(broken):
            begun = time.monotonic()
            try:
                bout(TARGETS[name], sizes[name])
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                broken[name] = "".join(traceback.format_exception(error))
                print(f"{name} broke:\n{broken[name]}", flush=True)
            examples[name] += sizes[name]
            sizes[name] = max(10, int(sizes[name] * min(4.0, _TURN / (time.monotonic() - begun))))
    for name, count in examples.most_common():
        print(f"{count:>12,} {name}{', which broke' if name in broken else ''}")
    return len(broken)


def guided(names: list[str], minutes: float) -> int:
    """Give each target a process with atheris and an equal share of the time; tells how many broke."""
    from fuzz.targets import TARGETS

    chosen, broken = names or list(TARGETS), 0
    with tempfile.TemporaryDirectory() as place:
        for name in chosen:
            corpus = Path(place) / name
            corpus.mkdir()
            print(f"== {name}", flush=True)
            seconds = max(1, int(60 * minutes / len(chosen)))
            arguments = (f"-max_total_time={seconds}", "-verbosity=0", "-print_final_stats=1", str(corpus))
            done = subprocess.run([sys.executable, __file__, "--lead", name, *arguments], cwd=place, check=False)
            broken += done.returncode != 0
    return broken


def lead(name: str, arguments: list[str]) -> None:
    """Let atheris choose the examples of one target. It ends this process."""
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["payments_async"]):
        from fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name].test().hypothesis.fuzz_one_input)  # type: ignore[attr-defined]
    atheris.Fuzz()


def main() -> int:
    """Fuzz; 1 when a parser broke."""
    if sys.argv[1:2] == ["--lead"]:
        lead(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--guided", action="store_true")
    asked = parser.parse_args()
    return min(1, (guided if asked.guided else drawn)(asked.targets, asked.minutes))


if __name__ == "__main__":
    raise SystemExit(main())

"""Who kills what, kept beside the list of mutants so that a later run can be compared with it.

A line for each mutant, a column for each judge: what killed it, ``lives``, or nothing where it was not judged yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

JUDGES = ("contract", "explorer", "simulation")
LIVES = "lives"
KEPT = Path(__file__).parent / "verdicts.tsv"


def read() -> dict[str, dict[str, str]]:
    """What is kept: by mutant, then by judge; without those that have not judged it."""
    found = {}
    for line in KEPT.read_text().splitlines()[1:]:
        name, *said = line.split("\t")
        found[name] = {judge: words for judge, words in zip(JUDGES, said, strict=True) if words}
    return found


def keep(names: Iterable[str], said: Mapping[str, Mapping[str, str]]) -> None:
    """Add to what is kept what judges said of some mutants, in the sequence of all names; others are left out."""
    kept = read()
    lines = ["\t".join(("mutant", *JUDGES))]
    for name in names:
        known = kept.get(name, {}) | said.get(name, {})
        lines.append("\t".join((name, *(known.get(judge, "") for judge in JUDGES))))
    whole = KEPT.with_suffix(".new")
    whole.write_text("\n".join(lines) + "\n")
    whole.replace(KEPT)

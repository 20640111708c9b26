"""Plain words: how long the sentences of README, pages and public docstrings are, and how many say what is not.

The bounds may only fall. `python tests/test_prose.py` prints the figures of each page.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / ".github" / "docs").glob("*.md"))]
WORDS = 20  # of a sentence
NEGATION = re.compile(r"\b(no|not|never|nothing|nobody|none|neither|nor|without|cannot)\b|n't\b", re.IGNORECASE)
BANNED = re.compile(r"\b(whoever|whom|whomever|somebody|nobody|(?<!there )(?:is|are) no)\b(?! longer)", re.IGNORECASE)
SECTIONS = re.compile(r"^ *(Args|Returns|Raises|Attributes|Yields):$", re.MULTILINE)


class Figures(NamedTuple):
    """What is counted.

    Attributes:
        sentences: How many there are.
        long: Of them, in per cent, those of more than 20 words.
        negated: Of them, in per cent, those with a negation.
        banned: Words that are never used.
    """

    sentences: int
    long: float
    negated: float
    banned: int


# Each may only fall: lower it when you have rewritten something.
PAGES_BOUND = Figures(10_000, 2.0, 18.5, 0)
DOCSTRINGS_BOUND = Figures(10_000, 2.6, 27.0, 0)
PLAIN_PAGES = (
    "README",
    "errors",
    "events",
    "glossary",
    "go-live",
    "guarantees",
    "notifications",
    "outbox",
    "session",
    "states",
    "tutorial",
)
PLAIN_BOUND = Figures(10_000, 2.0, 35.0, 0)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a Markdown text or of a docstring, without code, tables and headings."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = (line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "<!--", ">>>")))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )", "\n".join(lines)):
        plain = re.sub(r"\]\([^)]*\)", "]", " ".join(block.split()))
        yield from (one for one in re.split(r"(?<=[.!?:;])\s+", plain) if len(one.split()) > 2)


def figures(texts: Iterable[str]) -> Figures:
    """The figures of texts together."""
    found = [one for text in texts for one in sentences(text)]
    share = 100 / max(1, len(found))
    return Figures(
        sentences=len(found),
        long=round(share * sum(len(one.split()) > WORDS for one in found), 1),
        negated=round(share * sum(bool(NEGATION.search(one)) for one in found), 1),
        banned=sum(len(BANNED.findall(one)) for one in found),
    )


def docstrings() -> Iterator[str]:
    """Those of all public names and of their public methods, each section by itself."""
    from test_public_names import PLACES, own_docstring, public_methods

    seen: set[int] = set()
    for place in PLACES:
        module = importlib.import_module(place)
        for thing in (getattr(module, name) for name in module.__all__):
            if id(thing) in seen or not (inspect.isclass(thing) or inspect.isroutine(thing)):
                continue
            seen.add(id(thing))
            methods = [getattr(thing, name) for name in public_methods(thing)] if inspect.isclass(thing) else []
            for text in (own_docstring(thing), *(inspect.getdoc(method) for method in methods)):
                yield re.sub(r"^ +(\*?\w+(?:, \w+)*): ", r"\n\1: ", SECTIONS.sub("", text or ""), flags=re.MULTILINE)


def beyond(found: Figures, bound: Figures) -> dict[str, float]:
    """The figures that are above their bounds."""
    return {name: value for name, value in found._asdict().items() if value > getattr(bound, name)}


def read(page: Path) -> str:
    """The text of a page."""
    return page.read_text(encoding="utf-8")


def test_pages_get_no_harder_to_read() -> None:
    """Long sentences, negations and banned words of all pages stay below their bounds."""
    assert {} == beyond(figures(map(read, PAGES)), PAGES_BOUND)


def test_pages_for_new_readers_are_plain() -> None:
    """Those that are read first hold no banned word, and hardly a long sentence."""
    found = {page.stem: figures([read(page)]) for page in PAGES if page.stem in PLAIN_PAGES}
    assert len(PLAIN_PAGES) == len(found)
    assert {} == {page: above for page, of_page in found.items() if (above := beyond(of_page, PLAIN_BOUND))}


def test_docstrings_get_no_harder_to_read() -> None:
    """The same holds of what an editor shows."""
    assert {} == beyond(figures(docstrings()), DOCSTRINGS_BOUND)


def test_a_hard_text_is_noticed() -> None:
    """The checks above can fail; code, tables and headings do not count."""
    hard = (
        "Nobody knows it. "
        + "a " * 21
        + "end. It is good now.\n\n| no | no | never |\n\n```\nnot not not not\n```\n# No\n"
    )
    assert Figures(3, 33.3, 33.3, 1) == figures([hard])
    assert {"long": 33.3, "negated": 33.3, "banned": 1} == beyond(figures([hard]), Figures(10, 5.0, 5.0, 0))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    rows = {page.stem: figures([read(page)]) for page in PAGES}
    rows |= {"all pages": figures(map(read, PAGES)), "docstrings": figures(docstrings())}
    for name, row in rows.items():
        sys.stdout.write(f"{name:<14}{row.sentences:>6}{row.long:>7}{row.negated:>7}{row.banned:>5}\n")

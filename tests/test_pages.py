"""The pages of `.github/docs` say of the code what is true: each table is compared with what it describes."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = ROOT / ".github" / "docs"
PAGES = sorted(DOCS.glob("*.md"))
DOCUMENTS = [README, *PAGES, *sorted((ROOT / ".github").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


def links(text: str) -> list[str]:
    """The targets of the links of a Markdown text that lead to a file or a heading of this project."""
    found = [match["target"] for match in LINK.finditer(FENCED.sub("", text))]
    return [target for target in found if "://" not in target]


@cache
def anchors(page: Path) -> frozenset[str]:
    """What links may name of a page: its headings, as they are named in the address."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


def leads_nowhere(page: Path, target: str) -> bool:
    """Whether there is no such file, or no such heading in it."""
    file, _, anchor = target.partition("#")
    there = (page.parent / file).resolve() if file else page
    return not there.exists() or bool(anchor and anchor not in anchors(there))


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in DOCUMENTS])
def test_no_link_leads_nowhere(page: Path) -> None:
    """Files and headings that links name are there."""
    assert [] == [target for target in links(page.read_text(encoding="utf-8")) if leads_nowhere(page, target)]


def test_every_page_is_found_from_the_readme() -> None:
    """A page that nobody is led to is not read."""
    led_to = {(ROOT / target.partition("#")[0]).resolve() for target in links(README.read_text(encoding="utf-8"))}
    assert [] == [page.name for page in PAGES if page not in led_to]


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    """The check above can fail, by a file as well as by a heading; what stands in code is no link."""
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](#one-two) [b](#two) [c](gone.md) [d](https://host/x)\n```\n[e](e.md)\n```\n")
    targets = links(page.read_text(encoding="utf-8"))
    assert ["#one-two", "#two", "gone.md"] == targets
    assert ["#two", "gone.md"] == [target for target in targets if leads_nowhere(page, target)]

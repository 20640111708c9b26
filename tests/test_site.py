"""The documentation site is built without a warning; no link of it is dead, and no public name lacks an entry."""

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from test_public_names import PINNED

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / ".ci" / "site.py"
SITE = runpy.run_path(str(PROGRAM))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="zensical is not installed")
def test_the_site_is_built(tmp_path: Path) -> None:
    """All pages, a page for each public module, and a list for programs; a link and an entry that go are noticed."""
    done = subprocess.run([sys.executable, PROGRAM, tmp_path], cwd=ROOT, capture_output=True, check=False, text=True)
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    site = tmp_path / "site"
    assert [] == SITE["faults"](site)
    assert "reference/payments_async.ipn.html" in (site / "llms.txt").read_text(encoding="utf-8")
    page = site / "reference" / "payments_async.html"
    page.write_text(page.read_text(encoding="utf-8").replace('id="payments_async.Payments"', ""), encoding="utf-8")
    (site / "glossary.html").unlink()
    found = SITE["faults"](site)
    assert "payments_async.Payments has no entry" in found
    assert any(one.startswith("index.html leads to glossary.html") for one in found)


def test_each_public_name_is_looked_for() -> None:
    """The places and names are those that are pinned."""
    assert {place: names.split() for place, names in PINNED.items()} == SITE["public_places"]()


def test_every_page_is_in_the_navigation() -> None:
    """A page that no menu names is found by the search alone."""
    menu = SITE["CONFIGURATION"].read_text(encoding="utf-8")
    pages = [path.name for path in SITE["PAGES"].glob("*.md")] + [f"reference/{place}.md" for place in PINNED]
    assert [] == [page for page in pages if f": {page}\n" not in menu]


def test_a_link_out_of_the_pages_loses_its_target() -> None:
    """The site has the pages alone: a file of the sources is named, and a page keeps its heading."""
    text = "[a](outbox.md#x) [b](../../examples/payouts.py) [c](https://host/d) [e](#f)"
    page = SITE["PAGES"] / "states.md"
    assert "[a](outbox.md#x) b [c](https://host/d) [e](#f)" == SITE["on_site"](text, page)

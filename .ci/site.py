"""Build the documentation site: `python .ci/site.py [FOLDER]`. A warning is an error, and so is a dead link.

The README is its first page. Each public module has a page of its docstrings. `llms.txt` lists the pages for programs.
"""

import ast
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

PACKAGE = "payments_async"
ROOT = Path(__file__).parents[1]
PAGES = ROOT / ".github" / "docs"
CONFIGURATION = ROOT / ".github" / "mkdocs.yml"
BUILD = ROOT / "build"  # git ignores it; the site is build/site
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def public_places() -> dict[str, list[str]]:
    """Each module that no part of its path marks as private, with its public names."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        place = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in place):
            found[".".join(place)] = names_of(path)
    return found


def names_of(path: Path) -> list[str]:
    """What stands in the `__all__` of a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if name != "__version__"]
    return []


def on_site(text: str, page: Path) -> str:
    """The text of a page, whose links lead to pages of the site; what lies elsewhere is named without a link."""

    def led(match: re.Match[str]) -> str:
        words, target = match.groups()
        file, hash_, anchor = target.partition("#")
        if "://" in target or not file:
            return match[0]
        there = (page.parent / file).resolve()
        if there.parent == PAGES.resolve() and there.suffix == ".md":
            return f"[{words}]({there.name}{hash_}{anchor})"
        return words

    return LINK.sub(led, text)


def stage(folder: Path) -> None:
    """Write what the site is made of."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "reference").mkdir(parents=True)
    pages = {"index": ROOT / "README.md", **{page.stem: page for page in sorted(PAGES.glob("*.md"))}}
    listed = ["# payments-async", "", "> Asyncio SDK for one payments service without idempotency.", "", "## Pages", ""]
    for name, page in pages.items():
        text = page.read_text(encoding="utf-8")
        (folder / f"{name}.md").write_text(on_site(text, page), encoding="utf-8")
        listed.append(f"- [{text.partition(chr(10))[0].lstrip('# ')}]({name}.html)")
    for place, names in public_places().items():
        entries = "\n\n".join(f"::: {place}.{name}" for name in names)
        (folder / "reference" / f"{place}.md").write_text(f"# {place}\n\n{entries}\n", encoding="utf-8")
        listed.append(f"- [{place}](reference/{place}.html): {', '.join(names)}")
    (folder / "llms.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")


class _Anchors(HTMLParser):
    """The ids and the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what a tag names or leads to."""
        known = dict(attributes)
        if identity := known.get("id"):
            self.ids.add(identity)
        if tag == "a" and (target := known.get("href")):
            self.links.add(target)


def read(page: Path) -> _Anchors:
    """The ids and links of a built page."""
    parser = _Anchors()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def faults(site: Path) -> list[str]:
    """Links of the site that lead nowhere, and public names without an entry."""
    pages = {page.resolve(): read(page) for page in site.rglob("*.html")}
    found = []
    for page, parsed in pages.items():
        if page.name == "404.html":
            continue
        for target in sorted(parsed.links):
            file, _, anchor = unquote(target).partition("#")
            if "://" in target or target.startswith(("mailto:", "data:")):
                continue
            there = (page.parent / file).resolve() if file else page
            there = there / "index.html" if there.is_dir() else there
            if not there.exists() or (anchor and there in pages and anchor not in pages[there].ids):
                found.append(f"{page.name} leads to {target}, which is not there")
    for place, names in public_places().items():
        there = pages.get((site / "reference" / f"{place}.html").resolve())
        ids = set() if there is None else {identity.rpartition(".")[2] for identity in there.ids}
        found += [f"{place}.{name} has no entry" for name in names if name not in ids]
    return found


def main(folder: Path) -> None:
    """Build the site in a folder, and look at it."""
    stage(folder / "docs")
    site = folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    configuration = folder / CONFIGURATION.name
    configuration.write_text(CONFIGURATION.read_text(encoding="utf-8").replace("[..]", f"[{ROOT}]"), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(configuration)]
    built = subprocess.run(  # noqa: S603 - a command of ours
        command, cwd=folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if built.returncode or "griffe:" in built.stdout:
        sys.exit(built.stdout)
    shutil.copy(folder / "docs" / "llms.txt", site / "llms.txt")
    if found := faults(site):
        sys.exit("\n".join(found))
    print(f"{sum(1 for _ in site.rglob('*.html'))} pages in {site}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else BUILD)

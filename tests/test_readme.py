"""README.md and the pages are run: their code blocks here, the README's command lines by `.ci/run`.

A block is a whole program, as a reader pastes it; the variables of the environment that `from_env` reads are set.
Above a block, `<!-- not run -->` leaves it out and `<!-- continues -->` runs it in the names of the block before it.
"""

import ast
import asyncio
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = ROOT / ".github" / "docs"
PAGES = sorted(DOCS.glob("*.md"))
FENCE = re.compile(
    r"(?:^<!--[ ]*(?P<mark>[a-z ]+?)[ ]*-->[ ]*\n(?:[ ]*\n)?)?"  # a mark, directly above
    r"^(?P<indent>[ ]*)```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
SHELLS = {"bash", "sh", "shell", "console"}
MARKS = {None, "not run", "continues"}
ENVIRONMENT = {
    "PAYMENTS_BASE_URL": "https://service.example",
    "PAYMENTS_APP_KEY": "key",
    "PAYMENTS_APP_PASSWORD": "password",
    "PAYMENTS_USER_ID": "user",
}


class Block(NamedTuple):
    line: int
    language: str
    mark: str | None
    code: str


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text, each with the line that its code starts on."""
    found = []
    for match in FENCE.finditer(text):
        indent = len(match["indent"])
        code = "".join(line[indent:] for line in match["body"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("body")) + 1
        found.append(Block(line, match["language"], match["mark"], code))
    return found


def chains(text: str) -> list[list[Block]]:
    """The Python blocks to run, those that continue one another together."""
    found: list[list[Block]] = []
    for block in blocks(text):
        if block.language != "python" or block.mark == "not run":
            continue
        if block.mark == "continues":
            found[-1].append(block)
        else:
            found.append([block])
    return found


def command_lines(text: str) -> list[str]:
    """The command lines that set something up: those that a reader types first."""
    lines = [line for block in blocks(text) if block.language in SHELLS for line in block.code.splitlines()]
    return [line.strip().removeprefix("$ ") for line in lines if "-m venv" in line]


def run(chain: list[Block], monkeypatch: pytest.MonkeyPatch, page: Path = README) -> ModuleType:
    """Run blocks as one script would run them, `await` at the top level included."""
    script = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", script)
    with asyncio.Runner() as runner:
        for block in chain:
            # empty lines in front, so that a traceback names the page's own line
            source = "\n" * (block.line - 1) + block.code
            code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, vars(script))  # noqa: S307 - our own pages
            if inspect.iscoroutine(result):
                runner.run(result)
    return script


def text_of_readme() -> str:
    """The README, empty as long as there is none."""
    return README.read_text(encoding="utf-8") if README.exists() else ""


def test_there_is_a_readme_with_code_that_is_run() -> None:
    """Without a block, the test below would pass by having nothing to do."""
    assert chains(text_of_readme())
    assert PAGES


def test_every_mark_above_a_block_is_known() -> None:
    """A mark with a slip of the pen would be passed over in silence."""
    texts = [page.read_text(encoding="utf-8") for page in (README, *PAGES)]
    assert MARKS >= {block.mark for text in texts for block in blocks(text)}


@pytest.mark.parametrize(
    ("page", "chain"),
    [
        pytest.param(page, chain, id=f"{page.stem}-line-{chain[0].line}")
        for page in (README, *PAGES)
        if page.exists()
        for chain in chains(page.read_text(encoding="utf-8"))
    ],
)
def test_a_code_block_runs(page: Path, chain: list[Block], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the README and the pages show works as it stands."""
    monkeypatch.chdir(tmp_path)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    run(chain, monkeypatch, page)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in (README, *PAGES)])
def test_a_code_block_can_be_pasted(page: Path) -> None:
    """It is Python as it stands: what awaits does so within `asyncio.run(main())`."""
    for chain in chains(page.read_text(encoding="utf-8")):
        for block in chain:
            compile("\n" * (block.line - 1) + block.code, str(page), "exec")


def test_the_command_lines_are_those_of_ci() -> None:
    """A fresh clone is set up by the very lines that `.ci/run` runs: one for the demo, one for the tests."""
    script = {line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()}
    found = command_lines(text_of_readme())
    assert [] == [line for line in found if line not in script]
    assert {"demo", "pytest"} == {line.split()[-1] for line in found}


def test_ci_runs_the_slow_tests_too() -> None:
    """What a reader is told to type leaves them out, and somebody has to run them."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^export PYTEST_ADDOPTS='-m \"slow or not slow\" .*--cov", script, re.MULTILINE)


EXAMPLE = """
Words.
```bash
$ python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/payments-async demo
```
<!-- not run -->
```python
raise RuntimeError
```

```python
import asyncio
answer = await asyncio.sleep(0, 41)
```
1. In between.
<!-- continues -->

   ```python
   answer += 1
   ```
"""


def test_blocks_are_found_and_joined() -> None:
    """A marked block is left out, a continuing one belongs to the block before it, indentation is taken off."""
    assert [[12, 19]] == [[block.line for block in chain] for chain in chains(EXAMPLE)]
    assert [EXAMPLE.splitlines()[3].removeprefix("$ ")] == command_lines(EXAMPLE)


def test_a_chain_shares_its_names_and_may_await(monkeypatch: pytest.MonkeyPatch) -> None:
    """Top-level await works, and the next block sees what came of it."""
    assert 42 == run(chains(EXAMPLE)[0], monkeypatch).answer


def test_a_failing_block_fails_with_the_line_of_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail, and says where."""
    with pytest.raises(ZeroDivisionError) as caught:
        run([Block(7, "python", None, "x = 1\nx / 0\n")], monkeypatch)
    assert 7 == caught.traceback[-1].lineno  # counted from nought, so it is the README's line 8

"""The reference is made from the docstrings without a warning, and lacks no public name."""

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / ".ci" / "reference.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("pdoc") is None, reason="pdoc is not installed"),
]


def made(*command: str) -> tuple[int, str]:
    """How making it ends, and what it complains of."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, check=False, text=True)
    return done.returncode, done.stderr


def test_each_public_name_has_an_entry(tmp_path: Path) -> None:
    """So has each namespace of a session; a type leads to where it is told of; and an entry that is gone is missed."""
    assert (0, "") == made(str(PROGRAM), str(tmp_path))
    page = tmp_path / "payments_async.html"
    text = page.read_text(encoding="utf-8")
    assert 'href="#Payouts"' in text
    missing = runpy.run_path(str(PROGRAM))["missing"]
    page.write_text(text.replace('id="PaymentsSession.cards"', "").replace('id="NotSent"', ""), encoding="utf-8")
    gone = ["payments_async.NotSent", "payments_async.PaymentsSession.cards"]
    assert gone == missing(["payments_async", "payments_async.outbox"], tmp_path)


def test_an_annotation_that_names_nothing_is_noticed(tmp_path: Path) -> None:
    """A warning ends it."""
    script = f"""
import runpy, sys
from payments_async._values import public as _public
_public.name_publicly = lambda place: None
from payments_async.outbox import Outbox
Outbox.put.__annotations__["order"] = "Nowhere"
sys.argv = ["", {str(tmp_path)!r}]
runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
"""
    status, complaint = made("-c", script)
    assert status == 1
    assert "Import of Nowhere failed" in complaint

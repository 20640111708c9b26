"""The audit of dependencies from data on disk: what is affected is found, and no audit looks like a good one."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

AUDIT = Path(__file__).parent.parent / ".ci" / "audit.py"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder where two packages are installed."""
    folder = tmp_path / "site"
    for name, version in (("Some_Package", "1.5.0"), ("other", "2.0")):
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def record(name: str = "some-package", **more: Any) -> dict[str, Any]:
    """A record that affects 1.0 and up to, not including, 1.6."""
    events = [{"introduced": "1.0"}, {"fixed": "1.6"}]
    affected = {"package": {"ecosystem": "PyPI", "name": name}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    return {"id": "PYSEC-1", "summary": "a hole", "modified": "2026-11-01T00:00:00Z", "affected": [affected]} | more


def audit(site: Path, data: Path) -> tuple[int, str]:
    """How it ends, and what it says."""
    command = [sys.executable, str(AUDIT), str(data), "--path", str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def archive(folder: Path, *values: object) -> Path:
    """An export with these records."""
    with zipfile.ZipFile(folder / "all.zip", "w") as packed:
        for number, value in enumerate(values):
            packed.writestr(f"{number}.json", json.dumps(value))
    return folder / "all.zip"


def within(*events: dict[str, str], versions: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a record says of the versions of ``some-package``."""
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}]
    affected = {"package": {"ecosystem": "PyPI", "name": "Some.Package"}, "ranges": ranges, "versions": versions}
    return {"affected": [affected]}


@pytest.mark.parametrize(
    "more",
    [
        {},
        within({"introduced": "0"}),
        within({"introduced": "0"}, {"last_affected": "1.5.0"}),
        within({"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.4"}),
        within(versions=("1.4", "1.5", "no version")),
    ],
)
def test_a_package_that_is_affected(tmp_path: Path, site: Path, more: dict[str, Any]) -> None:
    """It is named, with the record and the date of the data, and the command fails."""
    code, words = audit(site, archive(tmp_path, record(**more), record("unrelated")))
    assert (1, 1) == (code, words.count("PYSEC-1 a hole"))
    assert "2 packages against 2 records, the newest of 2026-11-01" in words


@pytest.mark.parametrize(
    "more",
    [
        within({"introduced": "1.6"}),
        within({"introduced": "0"}, {"fixed": "1.5.0"}),
        within({"introduced": "0"}, {"last_affected": "1.4.9"}),
        within(versions=("1.4",)),
        {"withdrawn": "2026-11-02T00:00:00Z"},
    ],
)
def test_a_package_that_is_not(tmp_path: Path, site: Path, more: dict[str, Any]) -> None:
    """Nothing is found."""
    code, words = audit(site, archive(tmp_path, record(**more)))
    assert (0, True) == (code, "no finding" in words)


def test_a_folder_of_records(tmp_path: Path, site: Path) -> None:
    """It is as good as an export."""
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "one.json").write_text(json.dumps(record("OTHER", id="PYSEC-2")).replace("1.6", "3"))
    code, words = audit(site, folder)
    assert (1, True) == (code, "OTHER 2.0: PYSEC-2" in words)


@pytest.mark.parametrize("data", ["missing", "empty", "no zip", "no record"])
def test_data_that_cannot_be_used(tmp_path: Path, site: Path, data: str) -> None:
    """Nothing was audited, and it says so."""
    place = tmp_path / "all.zip"
    match data:
        case "empty":
            archive(tmp_path)
        case "no zip":
            place.write_text("not found")
        case "no record":
            archive(tmp_path, ["x"])
    code, words = audit(site, place)
    assert (2, True) == (code, words.startswith("not audited: "))

"""Known holes in the installed packages, from data on disk: where no audit service answers, or none should be asked.

    python .ci/audit.py PyPI.zip                     what is installed here
    python .ci/audit.py PyPI.zip --path FOLDER       what is installed in a folder

The data are those of osv.dev: its export for PyPI (a zip of records), or a folder of such records. How new they are is
printed first, since a hole that was found after them is not in them. Ends with 1 when there is a finding, and with 2
when the data cannot be used: an audit that did not take place never looks like a good one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version


def records(data: Path) -> Iterator[dict[str, Any]]:
    """The records of an export or a folder.

    Raises:
        ValueError: One of them is no record.
        OSError: The data cannot be read.
    """
    if data.is_dir():
        texts: Iterable[bytes] = (path.read_bytes() for path in sorted(data.glob("*.json")))
    else:
        archive = zipfile.ZipFile(data)
        texts = (archive.read(name) for name in archive.namelist() if name.endswith(".json"))
    for text in texts:
        record = json.loads(text)
        if not isinstance(record, dict) or "id" not in record:
            raise ValueError("not a record of osv.dev")
        yield record


def canonical(name: str) -> str:
    """A package's name as it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_hit(affected: Mapping[str, Any], version: Version) -> bool:
    """Whether a version is among those that a record names, one by one or as a range."""
    return any(_same(text, version) for text in affected.get("versions", ())) or any(
        _is_within(span.get("events", ()), version)
        for span in affected.get("ranges", ())
        if span.get("type") == "ECOSYSTEM"
    )


def _same(text: str, version: Version) -> bool:
    try:
        return Version(text) == version
    except InvalidVersion:
        return False


def _is_within(events: Iterable[Mapping[str, str]], version: Version) -> bool:
    hit = False
    for event in events:
        match dict(event):
            case {"introduced": "0"}:
                hit = True
            case {"introduced": text} if version >= Version(text):
                hit = True
            case {"fixed": text} if version >= Version(text):
                hit = False
            case {"last_affected": text} if version > Version(text):
                hit = False
            case _:
                pass  # an event after this version
    return hit


def findings(data: Path, installed: Mapping[str, Version]) -> tuple[list[str], int, str]:
    """A line for each finding, the number of records, and the date of the newest."""
    found, count, newest = [], 0, ""
    for record in records(data):
        count, newest = count + 1, max(newest, str(record.get("modified", "")))
        if record.get("withdrawn"):
            continue
        for affected in record.get("affected", ()):
            package = affected.get("package", {})
            version = installed.get(canonical(str(package.get("name", ""))))
            if package.get("ecosystem") == "PyPI" and version is not None and is_hit(affected, version):
                found.append(f"{package['name']} {version}: {record['id']} {record.get('summary', '')}".rstrip())
    return sorted(set(found)), count, newest


def main() -> int:
    """Read the command line, audit, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--path", type=Path)
    arguments = parser.parse_args()
    where = {} if arguments.path is None else {"path": [str(arguments.path)]}
    installed = {canonical(one.metadata["Name"]): Version(one.version) for one in distributions(**where)}
    try:
        found, count, newest = findings(arguments.data, installed)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"not audited: {error}", file=sys.stderr)
        return 2
    if not count or not installed:
        print("not audited: there are no records, or no packages", file=sys.stderr)
        return 2
    print(f"{len(installed)} packages against {count} records, the newest of {newest[:10] or 'unknown date'}")
    print("\n".join(found) or "no finding")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

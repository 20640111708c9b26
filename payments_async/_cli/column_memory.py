"""How files were read, by their headings, kept beside the journal: next month's file has the same header."""

import hashlib
import json
import os
import tempfile
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path

from payments_async._cli.exit_codes import BadInput
from payments_async._cli.journal import JournalPlace, folder_of_user
from payments_async.journal import SqliteJournal


class ColumnMemory:
    """What was said of files, by their headers: which heading stands for which column, and the options.

    Args:
        journal: Whose files they are; without one nothing is kept, and nothing known.
    """

    def __init__(self, journal: JournalPlace | None) -> None:
        self.path = None if journal is None else _path(journal)
        self._kept = {} if self.path is None else _read(self.path)

    def __call__(self, headings: Sequence[str]) -> Mapping[str, str]:
        """What was said of these headings; nothing where it is another header."""
        mapping = self._known(headings).get("mapping")
        if not isinstance(mapping, dict) or not all(isinstance(heading, str) for heading in mapping.values()):
            return {}
        return mapping

    def options(self, headings: Sequence[str]) -> Mapping[str, object]:
        """The options with which a file with these headings was read, but for those that say nothing."""
        kept = self._known(headings).get("options")
        return kept if isinstance(kept, dict) else {}

    def sheets(self) -> Sequence[str]:
        """The sheets on which files were, the one said last first."""
        kept = (one.get("options") for one in reversed(self._kept.values()))
        found = [options.get("sheet") for options in kept if isinstance(options, dict)]
        return list(dict.fromkeys(sheet for sheet in found if isinstance(sheet, str)))

    def since(self, headings: Sequence[str]) -> str:
        """The day on which that was said."""
        return str(self._known(headings).get("kept_on", "some day"))

    def _known(self, headings: Sequence[str]) -> Mapping[str, object]:
        known = self._kept.get(_key(headings))
        return known if isinstance(known, dict) else {}

    def forget(self, headings: Sequence[str]) -> None:
        """Forget what was said of files with this header, as far as that can be written."""
        if self._kept.pop(_key(headings), None) is not None:
            self._write()

    def keep(self, headings: Sequence[str], mapping: Mapping[str, str], options: Mapping[str, object]) -> bool:
        """Keep what was said of a file with this header; tells whether that could be done."""
        if self.path is None:
            return False
        self._kept[_key(headings)] = {
            "headings": list(headings),
            "mapping": dict(mapping),
            "options": dict(options),
            "kept_on": date.today().isoformat(),  # noqa: DTZ011 - the day of whoever reads it
        }
        return self._write()

    def _write(self) -> bool:
        """Write all of it; tells whether that could be done."""
        try:
            if self.path is not None:
                _write(self.path, json.dumps(self._kept, indent=1, ensure_ascii=False))
        except OSError:
            return False
        return self.path is not None


def _path(journal: JournalPlace) -> Path | None:
    """Beside the file of a journal; in the user's folder where it is in a database."""
    held = journal.unopened()
    if isinstance(held, SqliteJournal):
        return Path(f"{held.place}.columns.json")
    with suppress(BadInput):
        return folder_of_user() / f"{hashlib.sha256(str(held.place).encode()).hexdigest()[:12]}.columns.json"
    return None


def _read(path: Path) -> dict[str, dict[str, object]]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: what was kept of columns cannot be read ({type(error).__name__}); delete it"
        ) from error
    return kept if isinstance(kept, dict) else {}


def _write(path: Path, text: str) -> None:
    """Put a file in place as a whole, or leave the one that is there."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # readable by its owner alone
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _key(headings: Sequence[str]) -> str:
    words = ("".join(unicodedata.normalize("NFKC", heading).casefold().split()) for heading in headings)
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()

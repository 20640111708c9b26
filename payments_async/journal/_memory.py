"""What this machine remembers of its journals, in the user's state folder, outside of theirs. Opens no journal."""

from __future__ import annotations

import enum
import logging
from pathlib import Path
from typing import Self

import platformdirs

from payments_async.journal._anchor import Anchor
from payments_async.journal._faults import JournalReadOnly
from payments_async.journal._registry import Registry

__all__ = ["Memory", "StateFolder"]

_log = logging.getLogger("payments_async")


class StateFolder(enum.Enum):
    """Where a journal is remembered besides its own folder."""

    OF_USER = enum.auto()

    def path(self) -> Path:
        """The user's state folder, as the platform has it; on Linux ``XDG_STATE_HOME`` moves it.

        Raises:
            FileNotFoundError: The user has no home.
        """
        try:
            folder = platformdirs.user_state_path("payments-async", appauthor=False)
        except RuntimeError as error:
            raise FileNotFoundError(str(error)) from error
        if not folder.is_absolute():  # older versions of that library leave the ~ in it
            raise FileNotFoundError(f"there is no home folder for {folder}")
        return folder


class Memory:
    """The state folder: the registry, and an anchor for each journal.

    Attributes:
        folder: Where it is.
        registry: Which journal was where, and which holds which request ids.
    """

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.folder = folder
        self.registry = registry

    @classmethod
    def opened(cls, place: Path | StateFolder, *, busy_timeout: float) -> Self | None:
        """The memory in a folder, made if there is none; ``None`` where nothing can be written.

        Raises:
            JournalUnavailable: Another process holds it for too long, or it is damaged.
        """
        try:
            folder = place.path() if isinstance(place, StateFolder) else place
            (folder / "anchors").mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)  # orders are named in it
            registry = Registry(folder / "registry.sqlite", busy_timeout=busy_timeout)
        except (OSError, JournalReadOnly) as error:
            _say_so(place, error)
            return None
        return cls(folder, registry)

    def anchor(self, journal_id: str) -> Anchor:
        """The anchor of a journal."""
        return Anchor(self.folder / "anchors" / journal_id)

    def lost_at(self, path: Path, *, but: str | None = None) -> str | None:
        """What was at a path, in words, if it was another journal with orders that has not been seen elsewhere."""
        for journal_id in self.registry.journals_at(path):
            known = self.anchor(journal_id).read()
            if journal_id != but and known is not None and known[0]:
                batches = ", ".join(map(str, self.registry.batches_of(journal_id)))
                return f"a journal with {batches}" if batches else "a journal with orders"
        return None

    def give_up(self, error: OSError) -> None:
        """Say that nothing can be remembered after all."""
        _say_so(self.folder, error)
        self.close()

    def close(self) -> None:
        """Close the registry."""
        self.registry.close()


def _say_so(folder: Path | StateFolder, error: Exception) -> None:
    _log.warning(
        "this machine keeps no memory of its journals outside of their own folders",
        extra={"folder": str(folder), "why": str(error)},
    )

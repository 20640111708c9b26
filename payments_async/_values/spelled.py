"""Words of a state that equal their other spellings."""

from __future__ import annotations

import enum


class Spelled(enum.StrEnum):
    """A word that equals itself in any letter case, with one L or two: ``successful`` is ``SUCCESSFULL``."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return NotImplemented
        return str.__eq__(self, other) or _plain(self) == _plain(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def _plain(word: str) -> str:
    return str.upper(word).strip().replace("SUCCESSFULL", "SUCCESSFUL")

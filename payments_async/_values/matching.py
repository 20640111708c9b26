"""Whom a person means who types a name, a telephone number or a staff number: pure."""

from __future__ import annotations

import unicodedata

from payments_async._values.frozen import frozen

_FEWEST = 6  # digits of a number; a staff number may have fewer, and has to be whole


@frozen(kw_only=True)
class Wanted:
    """What somebody looks for.

    Attributes:
        words: Its words, without regard to case and accents.
        whole: All of it, likewise.
        digits: Its digits without leading zeros, where it is a number; else empty.
    """

    words: frozenset[str]
    whole: str
    digits: str

    @classmethod
    def by(cls, text: str) -> Wanted:
        """What is typed so.

        >>> Wanted.by("Zoe Müller").is_name("MULLER, Zoe A."), Wanted.by("0772 100629").is_number("+256772100629")
        (True, True)
        """
        digits = "".join(filter(str.isdecimal, text))
        is_number = len(digits) >= _FEWEST and not any(map(str.isalpha, text))
        words = _words(text)
        return cls(words=frozenset(words), whole="".join(words), digits=digits.lstrip("0") if is_number else "")

    def is_name(self, name: str) -> bool:
        """Whether a name has all of the words."""
        return bool(self.words) and not self.digits and self.words <= frozenset(_words(name))

    def is_number(self, number: str) -> bool:
        """Whether a telephone or account number ends so."""
        return bool(self.digits) and "".join(filter(str.isdecimal, number)).endswith(self.digits)

    def is_cell(self, cell: str) -> bool:
        """Whether a cell says this and nothing else."""
        return bool(self.whole) and self.whole == "".join(_words(cell))


def _words(text: str) -> list[str]:
    """The words of a text, their letters and digits, without case and accents."""
    letters = unicodedata.normalize("NFKD", text).casefold()
    plain = (one if one.isalnum() else "" if unicodedata.combining(one) else " " for one in letters)
    return "".join(plain).split()

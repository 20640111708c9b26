"""What may be shown of a person, of a secret, and of words from outside: enough to go by, too little to misuse."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

# Nine digits and more: telephone and account numbers.
_NUMBERS = re.compile(r"(?<![\w.-])\+?\d(?:[ -]?\d){8,}(?![\w-])")
_EMAILS = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+")
_TOKENS = re.compile(
    r"\beyJ[\w-]+(?:\.[\w-]+){1,4}|(?<=\btoken )[\w.~+/=-]{16,}|(?<=\bbearer )[\w.~+/=-]{16,}", re.IGNORECASE
)
_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_LATEST = 64  # tokens of earlier logins that are still hidden: more than a day of them


class Secret(str):
    """Text that its ``repr`` does not show, nor that of a part of it: a password, a token, a header that carries one.

    Tools that report errors show local variables by their ``repr``, and so do headers and other collections.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __getitem__(self, key: Any) -> Secret:
        return Secret(super().__getitem__(key))


class Secrets:
    """The secrets of one session, to be hidden in words that come back."""

    def __init__(self, *texts: Secret) -> None:
        self._always = texts
        self._tokens: dict[Secret, None] = {}

    def add(self, token: Secret) -> None:
        """Hide this token as well; the latest are hidden."""
        self._tokens[token] = None
        if len(self._tokens) > _LATEST:
            del self._tokens[next(iter(self._tokens))]

    def texts(self) -> tuple[str, ...]:
        """All of them, the longest first: it may hold a shorter one."""
        return tuple(sorted((*self._always, *self._tokens), key=len, reverse=True))


def escape(text: str) -> str:
    r"""The text without control characters, seen or unseen: escaped, they steer no terminal, end no line, turn no text.

    >>> print(escape("gone" + chr(27) + "[2J" + chr(0x202E) + "back"))
    gone\x1b[2J\u202eback
    """
    if not has_controls(text):
        return text  # the usual case, quickly
    return "".join(
        character.encode("unicode_escape").decode("ascii") if has_controls(character) else character
        for character in text
    )


def has_controls(text: str) -> bool:
    """Whether a text has control characters: those of ASCII and beyond, line ends, turns of direction, joiners."""
    return not text.isprintable() and any(unicodedata.category(character) in _CONTROLS for character in text)


def mask(text: str) -> str:
    """The text with all but its last three characters hidden; short texts are hidden whole.

    >>> mask("+256772000017"), mask("Ann")
    ('***017', '***')
    """
    return f"***{text[-3:]}" if len(text) > 6 else "***"


def masked(text: object) -> str:
    """The ``repr`` of a personal field: masked when it is text, as it is when it is ``None``."""
    return repr(mask(text)) if isinstance(text, str) else repr(text)


def redacted(text: object) -> str:
    """The ``repr`` of words from outside: long numbers and e-mail addresses in them are masked."""
    return repr(redact(text)) if isinstance(text, str) else repr(text)


def redact(text: str, private: Iterable[str] = ()) -> str:
    """Words from outside, fit for a log.

    Texts in ``private`` are hidden, long numbers, e-mail addresses and what looks like a token masked, and control
    characters escaped.
    """
    for piece in private:
        if len(piece) > 2:
            text = re.sub(re.escape(piece), "***", text, flags=re.IGNORECASE)
    text = _TOKENS.sub("***", _EMAILS.sub("***", escape(text)))
    return _NUMBERS.sub(lambda found: mask(found.group()), text)

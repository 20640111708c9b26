"""What may be shown of a person: enough to recognise a row one knows, too little to learn a number or a name."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["mask", "masked", "redact", "redacted"]

_NUMBERS = re.compile(
    r"(?<![\w.-])\+?\d(?:[ -]?\d){8,}(?![\w-])"
)  # nine digits and more: telephone and account numbers
_EMAILS = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+")


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
    """Words from outside, fit for a log: texts in ``private`` hidden, long numbers and e-mail addresses masked."""
    for piece in private:
        if len(piece) > 2:
            text = re.sub(re.escape(piece), "***", text, flags=re.IGNORECASE)
    text = _EMAILS.sub("***", text)
    return _NUMBERS.sub(lambda found: mask(found.group()), text)

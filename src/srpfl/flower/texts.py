"""What comes from elsewhere, as it may stand in a log: in one line, short, nothing that a terminal
would act on."""

from __future__ import annotations

LONGEST = 300


def harmless(text: object, longest: int = LONGEST) -> str:
    """A text of unknown origin for logs, events and tables.

    >>> harmless("node\\n\\x1b[2Jtwo")
    'node\\\\n\\\\x1b[2Jtwo'
    """
    shown = "".join(_shown(sign) for sign in str(text)[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[:longest]}..."


def _shown(sign: str) -> str:
    # Not printable: control and escape codes, line ends of every kind, marks that turn the order
    # of writing, halves of characters that no file could hold.
    return sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")

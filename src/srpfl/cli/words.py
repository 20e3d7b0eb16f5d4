"""Texts on a terminal: those of others (names in a run's config, paths), and our own sentences."""

from __future__ import annotations

import re
import textwrap

from rich.markup import escape

from srpfl.errors import printable


def literal(text: object) -> str:
    """A text that rich shows as it is: neither it nor the terminal acts on anything in it.

    >>> literal("a [bold] name\\x1b[2J")
    'a \\\\[bold] name\\\\x1b[2J'
    """
    return escape(printable(str(text)))


TOGETHER = re.compile(r"(?<=\bC) = (?=\d)| (?=[%±]|times\b)|(?<=±) ")  # no line ends here
NO_BREAK = "\xa0"


def fitted(text: str, width: int) -> str:
    """A sentence in lines of that width, none of which ends inside a value.

    >>> print(fitted("srpfl is 1.9 times later at C = 100; break-even near C = 4.1.", 33))
    srpfl is 1.9 times later at
    C = 100; break-even near C = 4.1.
    """
    held = TOGETHER.sub(lambda gap: gap[0].replace(" ", NO_BREAK), text)
    return textwrap.fill(held, width, break_on_hyphens=False).replace(NO_BREAK, " ")

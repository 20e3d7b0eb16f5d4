"""Texts of others on a terminal: names in a run's config, paths, metrics."""

from __future__ import annotations

from rich.markup import escape

from srpfl.errors import printable


def literal(text: object) -> str:
    """A text that rich shows as it is: neither it nor the terminal acts on anything in it.

    >>> literal("a [bold] name\\x1b[2J")
    'a \\\\[bold] name\\\\x1b[2J'
    """
    return escape(printable(str(text)))

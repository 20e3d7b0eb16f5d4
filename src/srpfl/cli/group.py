"""A group of commands: its help fits any terminal, and a mistyped name gets the nearest one."""

from __future__ import annotations

import inspect
import re
from typing import Any

from typer.core import TyperGroup

from srpfl.errors import unknown


class Group(TyperGroup):
    """Versions of typer and click suggest a command once, twice or not at all; this one once."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in self.commands.values():
            command.help = paragraphs(command.help or "")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


def paragraphs(text: str) -> str:
    """A docstring without the line breaks inside its paragraphs, which typer would keep.

    >>> paragraphs("Play a run.\\n\\n    It takes\\n    a while.\\n\\n      srpfl run")
    'Play a run.\\n\\nIt takes a while.\\n\\n  srpfl run'
    """
    return re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(text))

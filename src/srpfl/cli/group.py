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
            restore_help(command)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


def restore_help(command: Any) -> None:
    """Give arguments the help texts that typer up to 0.20 (Flower allows no later one) loses with
    click 8.5, which has a place of its own for them."""
    lost = [p for p in command.params if p.param_type_name == "argument" and not p.help]
    if lost:
        from typer.utils import get_params_from_function

        written = get_params_from_function(command.callback)
        for parameter in lost:
            parameter.help = written[parameter.name].default.help


def paragraphs(text: str) -> str:
    """A docstring without the line breaks inside its paragraphs, which typer would keep.

    >>> paragraphs("Play a run.\\n\\n    It takes\\n    a while.\\n\\n      srpfl run")
    'Play a run.\\n\\nIt takes a while.\\n\\n  srpfl run'
    """
    return re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(text))

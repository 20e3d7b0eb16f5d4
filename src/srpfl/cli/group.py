"""A group of commands that says the nearest one to a mistyped name."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from srpfl.errors import unknown


class Group(TyperGroup):
    """Versions of typer and click suggest a command once, twice or not at all; this one once."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("command", args[0], self.commands)
        return super().resolve_command(ctx, args)

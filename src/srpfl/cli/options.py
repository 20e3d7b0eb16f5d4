"""The options of a run on the command line, made from the fields of ``Config``.

One list of options serves the command line, the TOML file and the run folder.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape

from srpfl.options.config import Config

HINTS = get_type_hints(Config)  # once for all options: asking for each made --help slower


def with_config(function: Callable[..., None]) -> Callable[..., None]:
    """Add every field of Config as an option; the function gets the given ones as ``given``."""
    own = [p for p in inspect.signature(function).parameters.values() if p.name != "given"]
    hints = get_type_hints(function, include_extras=True)
    own = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    names = [field.name for field in dataclasses.fields(Config)]

    def command(**values: Any) -> None:
        given = {name: values.pop(name) for name in names}
        given = {name: value for name, value in given.items() if value not in (None, [])}
        function(**values, given=given)

    parameters = [*own, *(_option(field) for field in dataclasses.fields(Config))]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    return command


def _option(field: dataclasses.Field[Any]) -> inspect.Parameter:
    hint = HINTS[field.name]
    kind: Any = next(kind for kind in (get_args(hint) or (hint,)) if kind is not type(None))
    if get_origin(kind) is dict:  # a table in a file: KEY=VALUE, again and again, on the line
        kind = list[str]
    flag = "--" + field.name.replace("_", "-")
    flags = [flag, flag.replace("--", "--no-")] if kind is bool else [flag]
    usual = "" if field.default is None else f" [dim](default: {_spelled(field.default)})[/dim]"
    option = typer.Option(
        "/".join(flags),
        help=escape(field.metadata["help"]) + usual,
        show_default=False,
        rich_help_panel=field.metadata["panel"],
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _spelled(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)

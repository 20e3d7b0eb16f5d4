"""What a name on the command line stands for: one of ours, or ``module:name``, a user's own.

A user's own is imported here and nowhere else, and only because a name asked for it. Whatever goes
wrong on the way is one sentence that says where.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from srpfl.core.processes import lines_of
from srpfl.errors import ConfigError, SrpflError, unknown
from srpfl.options.hints import as_hinted, fits, hints_of, in_words

OURS = Path(__file__).parents[1]
Parameters = Mapping[str, inspect.Parameter]


@dataclass(frozen=True)
class Named:
    """Something to call, by the name that it was asked for."""

    name: str
    make: Any  # a class or function; or a model that is there already
    own: bool = False  # the user's

    @property
    def parameters(self) -> Parameters:
        try:
            return inspect.signature(self.make).parameters
        except (TypeError, ValueError):  # built in: nothing is known
            return {}

    @property
    def takes_anything(self) -> bool:
        kinds = {parameter.kind for parameter in self.parameters.values()}
        return inspect.Parameter.VAR_KEYWORD in kinds or not _has_signature(self.make)

    def leaves_open(self, name: str) -> bool:
        """Whether what the data set usually has counts: for a user's own, what it has a default of
        its own for is its own affair."""
        if not self.own or self.parameters[name].default is inspect.Parameter.empty:
            return True
        for kind in getattr(self.make, "__mro__", ()):
            if name in inspect.get_annotations(kind):
                return bool(kind.__module__.partition(".")[0] == "srpfl")
        return False


def named(what: str, name: str, ours: Mapping[str, Any]) -> Named:
    """One of ours, or a user's own as module:name."""
    if ":" in name:
        return Named(name, _imported(what, name), own=True)
    if name not in ours:
        raise unknown(what, name, [*ours, "module:name"])
    return Named(name, ours[name])


def prepared(
    what: str,
    choice: Named,
    settings: Mapping[str, Any],
    *,
    usual: Mapping[str, Any] | None = None,
    asked: Mapping[str, Any] | None = None,
) -> Callable[[], Any]:
    """A call of the choice, all that can be checked of it checked.

    It gets its settings, what the user asked for by options (``asked``), and for the rest what is
    usual: all of it only as far as its signature has parameters of those names.
    """
    if not callable(choice.make):
        raise ConfigError(
            f"{choice.name} is no class or function but {_a(type(choice.make).__name__)}, and so "
            f"makes no {what}"
        )
    parameters = choice.parameters
    values = {
        name: value
        for name, value in (usual or {}).items()
        if name in parameters and choice.leaves_open(name) and not (choice.own and value is None)
    }
    values |= {name: value for name, value in (asked or {}).items() if name in parameters}
    values |= checked(what, choice, settings)
    for parameter in parameters.values():
        if _required(parameter) and parameter.name not in values:
            raise ConfigError(
                f"{choice.name} needs '{parameter.name}': give it with --set "
                f"{what}.{parameter.name}=VALUE"
            )

    def call() -> Any:
        try:
            return choice.make(**values)
        except SrpflError:
            raise
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{choice.name} cannot be built: {told(error)}") from error

    return call


def checked(what: str, choice: Named, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, if the choice takes them."""
    hints = hints_of(choice.make)
    known = [p.name for p in choice.parameters.values() if p.kind in (_EITHER, _KEYWORD)]
    values = {}
    for name, value in settings.items():
        if name not in known and not choice.takes_anything:
            if not known:
                raise ConfigError(f"{choice.name} has no settings, and so no '{name}'")
            raise unknown(f"setting of {choice.name}", name, known)
        if name in hints and not fits(value, hints[name]):
            raise ConfigError(
                f"the setting '{what}.{name}' of {choice.name} must be {in_words(hints[name])}, "
                f"not {value!r}"
            )
        values[name] = as_hinted(value, hints.get(name, Any))
    return values


def check_is(what: str, choice: Named, made: Any, kind: type) -> None:
    """Refuse what lacks something that the kind has."""
    lacks = [name for name in dir(kind) if not name.startswith("_") and not hasattr(made, name)]
    if lacks:
        raise ConfigError(
            f"{choice.name} makes {_a(type(made).__name__)}, which is no {what}: it has no "
            f"'{lacks[0]}' (see {kind.__module__})"
        )


def told(error: BaseException) -> str:
    """What went wrong in a user's code, and where."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({_shown(error.filename or '')}, line {error.lineno})"
    text = str(error).strip().splitlines()
    what = type(error).__name__ + (f": {text[0]}" if text else "")
    where = place(error)
    return f"{what} ({where})" if where else what


def place(error: BaseException) -> str | None:
    """The line of a user's code that an error comes from, if any."""
    lines = [line for line in lines_of(error) if _users(line.filename)]
    return f"{_shown(lines[-1].filename)}, line {lines[-1].lineno}" if lines else None


def _imported(what: str, reference: str) -> Any:
    path, _, name = reference.partition(":")
    if not (all(part.isidentifier() for part in path.split(".")) and name.isidentifier()):
        raise ConfigError(
            f"cannot read '{reference}' as the {what}: write module:name, such as "
            f"{'mine:net' if what == 'model' else 'mine:Mine'} for one in mine.py"
        )
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # as python -m does
    try:
        module = importlib.import_module(path)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{path}.".startswith(f"{error.name}."):
            raise ConfigError(_no_module(path, str(error.name), here)) from error
        raise ConfigError(f"{path} cannot be imported: {told(error)}") from error
    if not hasattr(module, name):
        near = get_close_matches(name, [each for each in vars(module) if each[0] != "_"], n=1)
        hint = f": did you mean '{path}:{near[0]}'?" if near else ""
        file = _shown(getattr(module, "__file__", None) or path)
        raise ConfigError(f"{file} has no '{name}' for the {what}{hint}")
    return getattr(module, name)


def _no_module(path: str, missing: str, here: str) -> str:
    near = get_close_matches(path, sorted(file.stem for file in Path(here).glob("*.py")), n=1)
    hint = f": did you mean '{near[0]}'?" if near else ""
    return f"there is no module '{missing}'{hint} (looked in {here} and in what is installed)"


def _has_signature(make: Any) -> bool:
    try:
        inspect.signature(make)
    except (TypeError, ValueError):
        return False
    return True


_EITHER, _KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


def _required(parameter: inspect.Parameter) -> bool:
    plain = parameter.kind in (_EITHER, _KEYWORD)
    return plain and parameter.default is inspect.Parameter.empty


def _users(file: str) -> bool:
    """Whether a file is neither ours nor Python's nor of an installed package."""
    installed = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    others = [OURS, *(Path(sysconfig.get_path(name)) for name in installed)]
    return Path(file).is_file() and not any(Path(file).is_relative_to(other) for other in others)


def _shown(file: str) -> str:
    here = Path.cwd()
    path = Path(file)
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"

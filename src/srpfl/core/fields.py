"""Whether a choice was made of what its class declares: asked at one place, of every field of ours.

What a user's own class says of its fields is for readers: a path may be a text there.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from srpfl.errors import ConfigError, shown

LARGEST = 1 << 63  # whole numbers from here on are no tensor's
WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    type(None): "None",
    Path: "a path",
}


def check_fields(choice: Any) -> None:
    """Refuse a field whose value is of another type than the one that is declared.

    >>> from srpfl.core.rules import SGD
    >>> SGD(lr="fast")
    Traceback (most recent call last):
    srpfl.errors.ConfigError: SGD's lr must be a number, not 'fast'
    """
    kind: Any = type(choice)
    hints = _hints(kind)
    for field in dataclasses.fields(choice):
        if field.name not in hints:
            continue
        value, wanted = getattr(choice, field.name), hints[field.name]
        if value is not field.default and not fits(value, wanted):
            raise ConfigError(
                f"{type(choice).__name__}'s {field.name} must be {_words(wanted)}, not "
                f"{shown(value)}"
            )


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields that are declared in srpfl."""
    ours: dict[str, bool] = {}
    try:
        for each in reversed(kind.__mro__):
            mine = each.__module__.partition(".")[0] == "srpfl"
            ours |= dict.fromkeys(inspect.get_annotations(each), mine)
        return {name: hint for name, hint in get_type_hints(kind).items() if ours[name]}
    except Exception:  # a user's class may name types that are not there when it runs
        return {}


def fits(value: Any, wanted: Any) -> bool:
    """Whether a value is of a type, as far as that can be told without using it.

    >>> [fits(value, int | None) for value in (3, None, 3.0, True, "3")]
    [True, True, False, False, False]
    """
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, tuple({type(each) for each in inner}))
    if origin is tuple:
        several = isinstance(value, (tuple, list))
        each = inner[:1] * len(value) if several and inner[-1] is Ellipsis else inner
        return several and len(value) == len(each) and all(map(fits, value, each))
    if origin in (Sequence, Collection):
        kinds = (Sequence,) if origin is Sequence else (Sequence, Set)  # tensors may have no items
        several = isinstance(value, kinds) and not isinstance(value, (str, bytes))
        return several and all(fits(each, inner[0]) for each in value)
    if origin is Callable:
        return callable(value)
    if wanted in (int, float, bool):
        return _is_number(value, wanted)
    if not isinstance(wanted, type) or wanted in (Any, object):
        return True
    return wanted in type(value).__mro__ or _behaves(value, wanted)


def _is_number(value: Any, wanted: type) -> bool:
    if wanted is bool or isinstance(value, (bool, np.bool_)):
        return wanted is bool and isinstance(value, (bool, np.bool_))
    if isinstance(value, (int, np.integer)):
        return abs(int(value)) < LARGEST
    return wanted is float and isinstance(value, (float, np.floating))


def _behaves(value: Any, wanted: type) -> bool:
    """Whether a value has the methods of a class, which is enough; texts and numbers have not."""
    if isinstance(value, type):  # which was not called
        return False
    methods = [n for n, each in vars(wanted).items() if callable(each) and not n.startswith("_")]
    return bool(methods) and all(callable(getattr(value, name, None)) for name in methods)


def _words(wanted: Any) -> str:
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_words, inner)))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (tuple, Sequence, Collection):
        kind = _words(inner[0]).removeprefix("a ")
        return f"a list of {kind}s" if inner[0] in (int, float, str) else "a list"
    if origin is Callable:
        return "a function"
    return WORDS.get(wanted) or f"an object such as a {getattr(wanted, '__name__', wanted)}"

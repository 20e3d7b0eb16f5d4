"""Whether a setting is of the type that a signature asks for."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    types.NoneType: "null",
}


def hints_of(make: Callable[..., Any]) -> dict[str, Any]:
    """The types of what can be given to a function or class, as far as they can be known."""
    own = not isinstance(make, type) or dataclasses.is_dataclass(make)
    try:
        return get_type_hints(make if own else make.__init__)
    except Exception:  # names that only a type checker sees, and whatever else annotations hold
        return {}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value of a file or of the command line can be given where the hint stands.

    >>> fits(3, float), fits(3.0, int), fits([1, 2], tuple[int, ...]), fits("a", int | None)
    (True, False, True, False)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fits(value, inner[0])
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return value in inner
    if hint is float:
        return type(value) in (int, float)
    if hint in WORDS:
        return type(value) is (str if hint is Path else hint)
    kind = origin if origin is not None else hint
    if not isinstance(kind, type) or kind is object:
        return True  # it says nothing that could be checked
    if isinstance(value, dict):
        return _wide(dict, kind) or _wide(kind, Mapping)
    if isinstance(value, list):
        wide = _wide(list, kind) or _wide(kind, (tuple, set, frozenset))
        return wide and _all_fit(value, kind, inner)
    return _wide(type(value), kind)


def as_hinted(value: Any, hint: Any) -> Any:
    """The value, where a file has no word for its type: tuples are lists there, paths are texts."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if isinstance(value, list) and any((get_origin(kind) or kind) is tuple for kind in kinds):
        return tuple(value)
    return Path(value) if isinstance(value, str) and Path in kinds and str not in kinds else value


def in_words(hint: Any) -> str:
    """What the hint asks for.

    >>> in_words(int | None), in_words(Literal["a", "b"]), in_words(tuple[int, ...])
    ('a whole number or null', "'a' or 'b'", 'a list')
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return in_words(inner[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(in_words, inner)))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if hint in WORDS:
        return WORDS[hint]
    kind = origin if origin is not None else hint
    if _wide(kind, Mapping):
        return "a table"
    if _wide(list, kind) or _wide(kind, (tuple, set, frozenset)):
        return "a list"
    return f"of type {getattr(kind, '__name__', kind)}"


def _all_fit(value: list[Any], kind: type, inner: tuple[Any, ...]) -> bool:
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(map(fits, value, inner))
    return not inner or all(fits(item, inner[0]) for item in value)


def _wide(kind: Any, other: Any) -> bool:
    """Whether the one is a case of the other; protocols that cannot say so have no cases."""
    try:
        return issubclass(kind, other)
    except TypeError:
        return False
